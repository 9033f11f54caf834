"""The operations of the API on videos: their cards, records, corrections, files and frames."""

import os
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast, get_args

from pydantic import Field, ValidationError, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stepline.files.atomic_files import check_plain_file, remove_file
from stepline.library.card_filter import CardFilter, count_metadata, count_tags
from stepline.library.corrected_library import CorrectedLibrary, VideoCard, VideoState
from stepline.library.corrections import ConflictError, Correction, Edit, PersonName
from stepline.limits import parse_json
from stepline.outputs import OUTPUTS
from stepline.outputs.ownership import OutputManifest
from stepline.pages.web.local_server import TemporaryFileResponse, file_response, is_whole_number
from stepline.pipeline.sources import is_link
from stepline.records import FrozenModel
from stepline.storage import to_json
from stepline.studio import media
from stepline.studio.jobs import JobRunner, resolve_job_options
from stepline.studio.operations import (
    PAGE_PARAMETERS,
    Operation,
    bad_request_error,
    parse_body,
    raise_not_found,
    requested_page,
)
from stepline.studio.sharing import write_output
from stepline.studio.store import Studio
from stepline.studio.worker import JobOptions

# tables with rows of one video
VIDEO_TABLES = ("correction", "machine", "waveform")
VIDEO_STATES = get_args(VideoState)
LABEL_PARAMETERS = {
    "tag": "a tag that the videos have; may come several times",
    "metadata": "NAME:VALUE, or NAME, that the videos have; may come several times",
}
SORT_KEYS: dict[str, Callable[[VideoCard], Any]] = {
    "title": lambda card: card.title.casefold(),
    "newest": lambda card: -card.written,
    "duration": lambda card: card.duration or 0.0,
}


class CorrectionBody(FrozenModel):
    """Request body that corrects the record of a video.

    Attributes:
        by: name of the person.
        base: number of corrections that the person's browser had loaded.
        edits: the changes.
        undoes: id of a correction that is undone. None: no correction is undone.
        id: id chosen by the client, so that a request that is sent twice counts once.
        window: id of the browser window that sends the request.
        record: stamp of the record that the browser had loaded. The status is 409 if the record has
            changed.
    """

    by: PersonName
    base: Annotated[int, Field(ge=0)]
    edits: tuple[Edit, ...] = ()
    undoes: str | None = None
    id: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    window: Annotated[str, Field(max_length=80)] = ""
    record: Annotated[str, Field(max_length=80)] = ""


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


class VideoApi:
    """The HTTP operations on the videos of one library.

    Attributes:
        on_removal: called with the id of a removed video.
    """

    def __init__(self, studio: Studio, jobs: JobRunner) -> None:
        self._library = studio.library
        self._database = studio.database
        self._jobs = jobs
        self.on_removal: Callable[[str], None] = lambda _id: None

    def operations(self) -> list[Operation]:
        """Return the operations."""
        # Lists and records, corrections, removal, and what reads the file.
        video = "/api/videos/{id}"
        query = {
            "q": "words of the title, tags and metadata",
            "state": "new or corrected",
            "sort": "title, newest or duration",
        }
        query |= LABEL_PARAMETERS | PAGE_PARAMETERS
        return [
            Operation("GET", "/api/videos", self.list_videos, "The videos as cards.", query),
            Operation(
                "GET",
                "/api/labels",
                self.list_labels,
                "The tags and the names of metadata, with the number of videos of each.",
            ),
            Operation(
                "POST", "/api/videos", self.start_job, "Have a video understood.", body=VideoBody
            ),
            Operation(
                "GET",
                f"{video}/record",
                self.get_record,
                "The corrected record, and what the machine had said.",
                {"part": "steps: those of the record alone"},
            ),
            Operation(
                "GET",
                f"{video}/history",
                self.list_corrections,
                "The corrections, the oldest first.",
                {"from": "the revision after which they begin"},
            ),
            Operation(
                "POST",
                f"{video}/corrections",
                self.add_correction,
                "Take a correction in, or undo one.",
                body=CorrectionBody,
            ),
            Operation(
                "GET",
                f"{video}/removal",
                self.preview_removal,
                "What DELETE of the video would remove.",
            ),
            Operation(
                "DELETE",
                video,
                self.delete_video,
                "Remove a video's record, outputs and corrections; its own file stays.",
            ),
            *self._file_operations(video),
        ]

    def _file_operations(self, video: str) -> list[Operation]:
        """Return the operations that read the file of a video, whose path is given."""
        # All may take long, so they have threads of their own.
        formats = f"one of {', '.join(OUTPUTS)}"
        return [
            Operation("GET", video, self.get_video, "One video.", reads_video=True),
            Operation(
                "GET",
                f"{video}/steps",
                self.export_steps,
                "An output of the corrected record.",
                {"format": formats},
                reads_video=True,
            ),
            Operation(
                "GET",
                f"{video}/media",
                self.get_media,
                "The video file, whole or a range.",
                reads_video=True,
            ),
            Operation(
                "GET",
                f"{video}/pictures/{{second}}.jpg",
                self.get_frame,
                "What is on screen at a second.",
                reads_video=True,
            ),
            Operation(
                "GET",
                f"{video}/waveform",
                self.get_waveform,
                "The peaks of the sound, 0 to 255, in equal parts.",
                reads_video=True,
            ),
        ]

    def list_videos(self, request: Request) -> Response:
        """Return the videos that a query asks for as cards (short summaries).

        The reply also has the total number of these videos.
        """
        page = requested_page(request)
        matching = card_filter(request, words=request.query_params.get("q", ""))
        sort = request.query_params.get("sort", "title")
        if sort not in SORT_KEYS:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"sort is one of {', '.join(SORT_KEYS)}")
        # All that match are sorted before a page of them is cut out.
        cards = matching.filter_cards(self._library.videos())
        cards.sort(key=SORT_KEYS[sort])
        return JSONResponse({"videos": list(map(_card_json, cards[page])), "total": len(cards)})

    def list_labels(self, _: Request) -> Response:
        """Return the tags and the names of metadata that the library's videos have."""
        cards = self._library.videos()
        return JSONResponse({"tags": count_tags(cards), "metadata": count_metadata(cards)})

    def preview_removal(self, request: Request) -> Response:
        """Return the files that a removal deletes, and the number of corrections."""
        id = self._video_id(request)
        files = removed_files(self._library, id)
        names = [file.relative_to(self._library.folder).as_posix() for file in files]
        return JSONResponse({"files": names, "corrections": self._library.revision(id)})

    def delete_video(self, request: Request) -> Response:
        """Remove a video from the library."""
        id = self._video_id(request)
        files = remove_video(self._library, id)
        self.on_removal(id)
        return JSONResponse({"id": id, "removed": files})

    async def start_job(self, request: Request) -> Response:
        """Start a job."""
        body = await parse_body(request, VideoBody)
        options = resolve_job_options(self._library, body.options)
        source = body.link or str(self._library.resolve_allowed(Path(body.path or "")))
        job = await run_in_threadpool(self._jobs.add, source, options)
        return JSONResponse({"job": job.id})

    def get_video(self, request: Request) -> Response:
        """Return a video's card (short summary), outputs, frame rate and whether its file exists.

        The reply also has the library's id.
        """
        id = self._video_id(request)
        path = self._find_media_file(id)
        rate = media.frame_rate(path, media.file_stamp(path)) if path is not None else None
        card = _card_json(self._library.card(id))
        # A format is offered where its package is installed.
        formats = [name for name in OUTPUTS if name != "docx" or find_spec("docx")]
        card |= {"media": path is not None, "frame_rate": rate, "formats": formats}
        return JSONResponse(card | {"library": self._database.identity})

    def get_record(self, request: Request) -> Response:
        """Return the corrected record. With part=steps, only its video and steps."""
        both = self._library.current(self._video_id(request))
        current = both.corrected
        record = current.record
        # A page that follows the steps needs no transcript.
        is_part = request.query_params.get("part") == "steps"
        if is_part:
            record = record.model_copy(update={"transcript": None})
        tree = parse_json(to_json(record))
        if is_part:
            tree = {"video": tree["video"], "steps": tree["steps"]}
        return JSONResponse(
            {
                "record": tree,
                "machine": current.machine,
                "revision": current.revision,
                "stamp": both.stamp,
            }
        )

    def export_steps(self, request: Request) -> Response:
        """Return the record of a video with all corrections, as a download in the `format` of the query
        (a key of OUTPUTS, by default "json")."""
        id = self._video_id(request)
        record = self._library.corrected(id).record
        name = request.query_params.get("format", "json")
        return TemporaryFileResponse(write_output(record, name, self._find_media_file(id)))

    def list_corrections(self, request: Request) -> Response:
        """Return the corrections after a revision."""
        first = request.query_params.get("from", "0")
        if not is_whole_number(first):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "from is a revision, a whole number")
        corrections = self._library.corrections(self._video_id(request))[int(first) :]
        return JSONResponse({"corrections": [item.model_dump(mode="json") for item in corrections]})

    async def add_correction(self, request: Request) -> Response:
        """Store a correction. The error 409 names who changed the same step since."""
        id = self._video_id(request)
        body = await parse_body(request, CorrectionBody)
        # The server adds what a client may not choose: the video and the time.
        fields = dict(body) | {"id": body.id or uuid.uuid4().hex}
        try:
            correction = Correction(video=id, when=time.time(), **fields)
        except ValidationError as error:
            raise bad_request_error(error) from error
        try:
            revision = await run_in_threadpool(self._library.correct, id, correction)
        except ConflictError as conflict:
            # Someone changed the same since: the reply says who, and what.
            edits = [
                edit.model_dump(mode="json") for other in conflict.theirs for edit in other.edits
            ]
            reply = {
                "error": str(conflict),
                "by": conflict.theirs[-1].by,
                "edits": edits,
                "revision": self._library.revision(id),
            }
            return JSONResponse(reply, HTTPStatus.CONFLICT)
        return JSONResponse({"revision": revision, "id": correction.id})

    def get_media(self, request: Request) -> Response:
        """Return the video file, or a range of its bytes."""
        path = self._require_media_file(self._video_id(request))
        return file_response(request, path, media.browser_media_type(path))

    def get_frame(self, request: Request) -> Response:
        """Return the frame at a second as JPEG."""
        id = self._video_id(request)
        try:
            second = round(float(request.path_params["second"]), 1)
        except ValueError:
            second = -1.0
        duration = self._library.card(id).duration
        # A video of unknown length accepts every second, and finds no picture past its end.
        end = second if duration is None else duration
        if not 0.0 <= second <= end:  # so it is not NaN
            raise HTTPException(HTTPStatus.NOT_FOUND, "no second of this video")
        path = self._require_media_file(id)
        # Pictures are kept by the file's stamp, so one that was replaced shows its own.
        data = media.frame_jpeg(path, media.file_stamp(path), second)
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(data, media_type="image/jpeg", headers=headers)

    def get_waveform(self, request: Request) -> Response:
        """Return the waveform of the video's sound, as `waveform_peaks` does."""
        id = self._video_id(request)
        peaks = media.load_peaks(self._database, id, self._require_media_file(id))
        return JSONResponse({"peaks": list(peaks), "duration": self._library.card(id).duration})

    def _video_id(self, request: Request) -> str:
        return require_video_id(self._library, request.path_params["id"])

    def _find_media_file(self, id: str) -> Path | None:
        return self._library.media_file(id, self._library.record(id).video)

    def _require_media_file(self, id: str) -> Path:
        path = self._find_media_file(id)
        if path is None or not os.access(path, os.R_OK):
            raise HTTPException(
                HTTPStatus.NOT_FOUND,
                "the video's file is not in the library or a folder of --allow, cannot be "
                "read, has changed, or is still compared",
            )
        return path


def card_filter(request: Request, words: str = "") -> CardFilter:
    """Return the filter of cards that a request asks for, by labels, state and words.

    Raises HTTPException (400) for an unknown state.
    """
    query = request.query_params
    state = query.get("state") or None
    if state not in (None, *VIDEO_STATES):
        reason = f"state is one of {', '.join(VIDEO_STATES)}; leave it out for all"
        raise HTTPException(HTTPStatus.BAD_REQUEST, reason)
    # a page sends an empty one for any
    tags = list(filter(str.strip, query.getlist("tag")))
    metadata = list(filter(str.strip, query.getlist("metadata")))
    return CardFilter(words, tags, metadata, cast(VideoState | None, state))


def _card_json(card: VideoCard) -> dict[str, Any]:
    return card.model_dump(mode="json", by_alias=True)


def require_video_id(library: CorrectedLibrary, id: str) -> str:
    """Return the id of a video. Raises HTTPException (404) for an unknown one."""
    with raise_not_found("no such video"):
        return library.video(id).id


def removed_files(library: CorrectedLibrary, id: str) -> list[Path]:
    """Return the files that the removal of a video deletes, its record last.

    Raises LookupError for an unknown id, StoreError for a record that is a link.
    """
    path = library.folder / library.video(id).name
    # A record that is a link could be a file of someone else.
    check_plain_file(path)
    manifest = OutputManifest(path.stem, path.parent)
    names = [name for name in OUTPUTS if name != "json" and manifest.owns(name)]
    paths = list(map(manifest.path_of, names))
    # The record comes last: what a kill leaves before it can be removed again.
    paths += [manifest.note_path, path]
    return [file for file in paths if file.is_file() and not file.is_symlink()]


def remove_video(library: CorrectedLibrary, id: str) -> list[str]:
    """Remove a video's record, the outputs that Stepline wrote, and its corrections.

    Returns the names of the files, relative to the library. The video file stays, and so do outputs
    that someone has changed. Raises LookupError for an unknown id, StoreError for a record that is
    a link.
    """
    files = removed_files(library, id)
    # The database first: a record without corrections can be removed again, the reverse cannot.
    with library.database.write_transaction() as connection:
        for table in VIDEO_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE video = ?", (id,))
    for file in files:
        remove_file(file)
    return [file.relative_to(library.folder).as_posix() for file in files]
