"""The operations of the API on videos: their cards, records, corrections, files and frames."""

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import Field, JsonValue, WithJsonSchema, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stepline.files.atomic_files import check_plain_file, remove_file
from stepline.library.card_filter import CardFilter, count_metadata, count_tags
from stepline.library.corrected_library import CorrectedLibrary, VideoCard, VideoState
from stepline.library.corrections import ChangeEdit, ConflictError, Correction, Edit, NewCorrection
from stepline.library.rewriting import rewrite_steps
from stepline.limits import parse_json
from stepline.outputs import OUTPUTS, safe_stem
from stepline.outputs.ownership import OutputManifest
from stepline.outputs.text import picture_seconds
from stepline.pages.web.local_server import TemporaryFileResponse, file_response
from stepline.pipeline.sources import is_link, name_videos
from stepline.records import FrozenModel
from stepline.storage import to_json
from stepline.studio import media
from stepline.studio.job_api import JobReply
from stepline.studio.jobs import resolve_job_options
from stepline.studio.operations import (
    Api,
    ErrorReply,
    JsonBody,
    Page,
    StudioApi,
    VideoId,
    api_router,
    in_video_thread,
    reply_docs,
)
from stepline.studio.sharing import CLIPS, OUTPUT_NAMES, write_output
from stepline.studio.worker import JobOptions
from stepline.writing.quantities import mark_times, tokens

router = api_router()

# tables with rows of one video
VIDEO_TABLES = ("correction", "machine", "waveform")
VIDEO_PATH = "/api/videos/{id}"
SortName = Literal["title", "newest", "duration"]
SORT_KEYS: dict[SortName, Callable[[VideoCard], Any]] = {
    "title": lambda card: card.title.casefold(),
    "newest": lambda card: -card.written,
    "duration": lambda card: card.duration or 0.0,
}

# The record, or its video and steps alone: `openapi` adds these schemas.
RECORD_SCHEMA = {
    "anyOf": [
        {"$ref": "#/components/schemas/Record"},
        {
            "type": "object",
            "properties": {
                "video": {"$ref": "#/components/schemas/Video"},
                "steps": {"type": "array", "items": {"$ref": "#/components/schemas/Step"}},
            },
            "required": ["video", "steps"],
            "additionalProperties": False,
        },
    ]
}


class VideoBody(FrozenModel):
    """Request body that starts a job on a video file in an allowed folder, or on a link.

    Attributes:
        path: path of the video file. None if there is a link.
        link: http(s) address of the video. None if there is a path.
        options: options of the job.
    """

    path: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    link: Annotated[str, Field(max_length=4096)] | None = None
    options: JobOptions = JobOptions()

    @model_validator(mode="after")
    def _check_one_source(self) -> "VideoBody":
        if (self.path is None) == (self.link is None):
            raise ValueError("a path or a link")
        if self.link is not None and not is_link(self.link):
            raise ValueError("a link begins with http:// or https://")
        return self


class VideosReply(FrozenModel):
    """A page of the videos that a query asks for.

    Attributes:
        videos: the cards of the page.
        total: number of all videos that the query asks for.
    """

    videos: tuple[VideoCard, ...]
    total: int


class LabelsReply(FrozenModel):
    """The labels in use, each with its number of videos.

    Attributes:
        tags: the tags.
        metadata: the names of metadata.
    """

    tags: dict[str, int]
    metadata: dict[str, int]


class VideoReply(VideoCard):
    """A video's card, with what its pages need.

    Attributes:
        media: whether the video file can be read.
        frame_rate: frames per second, None without a file.
        formats: the output formats.
        library: the library's id.
    """

    media: bool
    frame_rate: float | None
    formats: tuple[str, ...]
    library: str


class RecordReply(FrozenModel):
    """The corrected record of a video, and what the machine had said.

    Attributes:
        record: the record with the corrections, or its video and steps alone.
        machine: step id -> field -> the machine's value, of the fields that people changed.
        revision: number of corrections.
        stamp: hash of the machine's record.
        sentences: by which number corrections name each sentence of the transcript.
        step_times: step id -> the shortest and longest of each time that its text states, in
            seconds.
        pictures: step id -> the second that its picture shows, of the steps that have one.
    """

    record: Annotated[dict[str, JsonValue], WithJsonSchema(RECORD_SCHEMA)]
    machine: dict[str, dict[str, JsonValue]]
    revision: int
    stamp: str
    sentences: tuple[int, ...]
    step_times: dict[str, tuple[tuple[float, float], ...]]
    pictures: dict[str, float]


class CorrectionsReply(FrozenModel):
    """The corrections of a video, the oldest first."""

    corrections: tuple[Correction, ...]


class CorrectionReply(FrozenModel):
    """A correction that is stored.

    Attributes:
        revision: number of corrections of the video.
        id: id of the correction.
        written: ids of the steps that were written again, since their sentences were corrected.
        kept: id of a step whose sentence was corrected -> why its text stays.
    """

    revision: int
    id: str
    written: tuple[str, ...]
    kept: dict[str, str]


class ConflictReply(ErrorReply):
    """The error of a correction of what someone else changed since.

    Attributes:
        by: name of the other person.
        edits: the other person's edits.
        revision: number of corrections of the video.
    """

    by: str
    edits: tuple[Edit, ...]
    revision: int


class RemovalPreview(FrozenModel):
    """What the removal of a video takes.

    Attributes:
        files: the files, relative to the library.
        corrections: number of corrections of steps and sentences, without undone ones.
    """

    files: tuple[str, ...]
    corrections: int


class RemovalReply(FrozenModel):
    """A video that was removed.

    Attributes:
        id: id of the video.
        removed: the files, relative to the library.
    """

    id: str
    removed: tuple[str, ...]


class WaveformReply(FrozenModel):
    """The waveform of a video's sound.

    Attributes:
        peaks: the loudest sample of equal parts of the video, 0 to 255. Empty without sound.
        duration: duration of the video in seconds, None if unknown.
    """

    peaks: tuple[int, ...]
    duration: float | None


async def _card_labels(
    tag: Annotated[tuple[str, ...], Query(description="tags that the videos have")] = (),
    metadata: Annotated[
        tuple[str, ...], Query(description="NAME:VALUE, or NAME, that the videos have")
    ] = (),
    state: Literal[VideoState, ""] = "",
) -> CardFilter:
    # a page sends an empty one for any
    tags = list(filter(str.strip, tag))
    return CardFilter("", tags, list(filter(str.strip, metadata)), state or None)


CardLabels = Annotated[CardFilter, Depends(_card_labels)]


@router.get("/api/videos")
def list_videos(
    api: Api,
    labels: CardLabels,
    page: Page,
    q: Annotated[str, Query(description="words of the title, tags and metadata")] = "",
    sort: SortName = "title",
) -> VideosReply:
    """The videos as cards."""
    # All that match are sorted before a page of them is cut out.
    cards = replace(labels, words=q).filter_cards(api.studio.library.videos())
    cards.sort(key=SORT_KEYS[sort])
    return VideosReply(videos=tuple(cards[page]), total=len(cards))


@router.get("/api/labels")
def list_labels(api: Api) -> LabelsReply:
    """The tags and the names of metadata, with the number of videos of each."""
    cards = api.studio.library.videos()
    return LabelsReply(tags=count_tags(cards), metadata=count_metadata(cards))


@router.post("/api/videos", responses=reply_docs(404))
def start_job(api: Api, body: JsonBody[VideoBody]) -> JobReply:
    """Have the steps of a video found, by a job."""
    options = resolve_job_options(api.studio.library, body.options, api.jobs.settings)
    source = body.link
    if source is None:
        path = api.studio.library.resolve_allowed(Path(body.path or ""))
        if not os.path.exists(path):  # also one of a name that no disk takes
            raise HTTPException(
                HTTPStatus.NOT_FOUND, f"{body.path}: no such file; correct its path"
            )
        source = str(path)
    return JobReply(job=api.jobs.add(source, options).id)


@router.post(f"{VIDEO_PATH}/jobs", responses=reply_docs(404))
def read_again(id: VideoId, api: Api, body: JsonBody[JobOptions]) -> JobReply:
    """Have the steps of a video of the library found again, by a job with other options."""
    library = api.studio.library
    path = _require_media_file(api, id)
    (name,) = name_videos([path], library.folder)
    if f"{safe_stem(name)}.json" != library.video(id).name:
        reason = "the video's file was moved since; add it as a new video"
        raise HTTPException(HTTPStatus.CONFLICT, reason)
    # The page shows corrected steps whatever the file holds.
    current = library.current(id)
    if current.has_step_corrections:
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "its steps were corrected, and corrections stay with the steps that they were made for; "
            "undo them, or delete the video here and add it again",
        )
    texts = body.texts or current.machine_record.recipe
    # Its results are made again, or with the same options nothing would be done.
    options = body.model_copy(update={"video": id, "texts": texts, "force": True})
    options = resolve_job_options(library, options, api.jobs.settings)
    return JobReply(job=api.jobs.add(str(path), options).id)


@router.get(VIDEO_PATH, responses=reply_docs(404))
@in_video_thread
def get_video(id: VideoId, api: Api) -> VideoReply:
    """One video."""
    path = _find_media_file(api, id)
    rate = None if path is None else media.frame_rate(path, media.file_stamp(path))
    # A format is offered where its package is installed and its video is there.
    missing = set()
    if find_spec("docx") is None:
        missing.add("docx")
    if path is None:
        missing |= {"mp4", "mkv", CLIPS}
    formats = tuple(name for name in OUTPUT_NAMES if name not in missing)
    return VideoReply(
        **dict(api.studio.library.card(id)),
        media=path is not None,
        frame_rate=rate,
        formats=formats,
        library=api.studio.database.identity,
    )


@router.get(f"{VIDEO_PATH}/record", responses=reply_docs(404))
def get_record(
    id: VideoId,
    api: Api,
    part: Annotated[
        Literal["steps", ""], Query(description="steps: the record's video and steps alone")
    ] = "",
) -> RecordReply:
    """The corrected record, and what the machine had said."""
    both = api.studio.library.current(id)
    current = both.corrected
    record = current.record
    # A page that follows the steps needs no transcript.
    if part:
        record = record.model_copy(update={"transcript": None})
    tree = parse_json(to_json(record))
    if part:
        tree = {"video": tree["video"], "steps": tree["steps"]}
    return RecordReply(
        record=tree,
        machine=current.machine,
        revision=current.revision,
        stamp=both.stamp,
        sentences=current.sentences,
        step_times={step.id: tuple(mark_times(tokens(step.text))[1]) for step in record.steps},
        pictures=picture_seconds(record),
    )


@router.get(
    f"{VIDEO_PATH}/steps", response_class=Response, responses=reply_docs(404, media_type="*/*")
)
@in_video_thread
def export_steps(
    id: VideoId,
    api: Api,
    format: Annotated[str, Query(description=f"one of {', '.join(OUTPUT_NAMES)}")] = "json",
) -> Response:
    """An output of the corrected record, as a download."""
    record = api.studio.library.corrected(id).record
    return TemporaryFileResponse(write_output(record, format, _find_media_file(api, id)))


@router.get(f"{VIDEO_PATH}/history", responses=reply_docs(404))
def list_corrections(
    id: VideoId,
    api: Api,
    first: Annotated[
        int, Query(alias="from", ge=0, description="the revision after which they begin")
    ] = 0,
) -> CorrectionsReply:
    """The corrections, the oldest first."""
    return CorrectionsReply(corrections=tuple(api.studio.library.corrections(id)[first:]))


@router.post(
    f"{VIDEO_PATH}/corrections",
    responses={**reply_docs(404), 409: {"model": ConflictReply | ErrorReply}},
    response_model=CorrectionReply,
)
def add_correction(
    id: VideoId, api: Api, body: JsonBody[NewCorrection]
) -> CorrectionReply | Response:
    """Store a correction, or undo one. The error 409 names who changed the same step since.

    Steps whose sentences change are written again by the writer of the record.
    """
    library = api.studio.library
    # The server adds what a client may not choose: the video and the time.
    fields = dict(body) | {"id": body.id or uuid.uuid4().hex}
    correction = Correction(video=id, when=time.time(), **fields)
    current = library.current(id)
    try:
        correction, kept = rewrite_steps(
            current.machine_record, current.corrections, correction, api.jobs.settings.writing
        )
        revision = library.correct(id, correction)
    except ConflictError as conflict:
        # Someone changed the same since: the reply says who, and what.
        reply = ConflictReply(
            error=str(conflict),
            by=conflict.theirs[-1].by,
            edits=tuple(edit for other in conflict.theirs for edit in other.edits),
            revision=library.revision(id),
        )
        return JSONResponse(reply.model_dump(mode="json"), HTTPStatus.CONFLICT)
    added = correction.edits[len(body.edits) :]
    written = tuple(edit.step for edit in added if isinstance(edit, ChangeEdit))
    return CorrectionReply(revision=revision, id=correction.id, written=written, kept=kept)


@router.get(f"{VIDEO_PATH}/removal", responses=reply_docs(404))
def preview_removal(id: VideoId, api: Api) -> RemovalPreview:
    """What DELETE of the video would remove."""
    library = api.studio.library
    corrections = library.count_step_corrections([library.video(id).name])
    return RemovalPreview(files=removed_files(library, id), corrections=corrections)


@router.delete(VIDEO_PATH, responses=reply_docs(404))
def delete_video(id: VideoId, api: Api) -> RemovalReply:
    """Remove a video's record, outputs and corrections. Its own file stays."""
    removed = remove_video(api.studio.library, id)
    # Whoever follows a video learns that it is gone.
    api.broadcast.publish("video", {"id": id, "removed": True})
    return RemovalReply(id=id, removed=removed)


@router.get(
    f"{VIDEO_PATH}/media",
    response_class=Response,
    responses=reply_docs(404, 416, media_type="video/*", files=(200, 206)),
)
@in_video_thread
def get_media(id: VideoId, api: Api, request: Request) -> Response:
    """The video file, whole or a range of its bytes."""
    path = _require_media_file(api, id)
    return file_response(request, path, media.browser_media_type(path))


@router.get(
    f"{VIDEO_PATH}/pictures/{{second:float}}.jpg",
    response_class=Response,
    responses=reply_docs(404, media_type="image/jpeg"),
)
@in_video_thread
def get_frame(id: VideoId, api: Api, second: float) -> Response:
    """What is on screen at a second, as JPEG."""
    second = round(second, 1)
    duration = api.studio.library.card(id).duration
    # A video of unknown length accepts every second, and finds no picture past its end.
    if duration is not None and second > duration:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no second of this video")
    path = _require_media_file(api, id)
    # Pictures are kept by the file's stamp, so one that was replaced shows its own.
    data = media.frame_jpeg(path, media.file_stamp(path), second)
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(data, media_type="image/jpeg", headers=headers)


@router.get(f"{VIDEO_PATH}/waveform", responses=reply_docs(404))
@in_video_thread
def get_waveform(id: VideoId, api: Api) -> WaveformReply:
    """The peaks of the sound, in equal parts."""
    peaks = media.load_peaks(api.studio.database, id, _require_media_file(api, id))
    return WaveformReply(peaks=tuple(peaks), duration=api.studio.library.card(id).duration)


def _find_media_file(api: StudioApi, id: str) -> Path | None:
    library = api.studio.library
    return library.media_file(id, library.record(id).video)


def _require_media_file(api: StudioApi, id: str) -> Path:
    path = _find_media_file(api, id)
    if path is None and api.digests.is_busy:
        reason = "the video's file is still compared with its record; try again in a few seconds"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, reason)
    if path is None or not os.access(path, os.R_OK):
        raise HTTPException(
            HTTPStatus.NOT_FOUND,
            "the video's file cannot be read, has changed, or is not in the library or a folder of "
            "--allow",
        )
    return path


def removed_files(library: CorrectedLibrary, id: str) -> tuple[str, ...]:
    """Return the files that the removal of a video deletes, relative to the library.

    The record comes last.

    Raises NotFoundError for an unknown id, StoreError for a record that is a link.
    """
    path = library.folder / library.video(id).name
    # A record that is a link could be a file of someone else.
    check_plain_file(path)
    # The outputs of a record that was renamed are named as its file.
    named = library.record(id).id
    manifest = OutputManifest(named if safe_stem(named) == path.stem else path.stem, path.parent)
    names = [name for name in OUTPUTS if name != "json" and manifest.owns(name)]
    paths = list(map(manifest.path_of, names))
    # The record comes last: what a kill leaves before it can be removed again.
    paths += [manifest.note_path, path]
    files = (file for file in paths if file.is_file() and not file.is_symlink())
    return tuple(file.relative_to(library.folder).as_posix() for file in files)


def remove_video(library: CorrectedLibrary, id: str) -> tuple[str, ...]:
    """Remove a video's record, the outputs that Stepline wrote, and its corrections.

    Returns the names of the files, relative to the library. The video file stays, and so do outputs
    that someone has changed. Raises NotFoundError for an unknown id, StoreError for a record that is
    a link.
    """
    files = removed_files(library, id)
    # The database first: a record without corrections can be removed again, the reverse cannot.
    with library.database.write_transaction() as connection:
        for table in VIDEO_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE video = ?", (id,))
    for file in files:
        remove_file(library.folder / file)
    return files
