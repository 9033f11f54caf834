"""The files of one finished video: outputs with key frames, clips, and the summary as an mp4."""

import io
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepline.errors import MediaError, SettingsError, SteplineError
from stepline.files.atomic_files import atomic_files, remove_partial_files
from stepline.media import encode_jpeg, join_clips, probe, read_frames_at
from stepline.models.wys2.settings import SummarySettings
from stepline.models.wys2.summary import SummarySegment, summarize
from stepline.outputs import (
    OUTPUTS,
    WebAddresses,
    find_outputs,
    missing_outputs,
    output_paths,
    remove_clips,
    safe_stem,
    write_clips,
    write_outputs,
)
from stepline.outputs.clips import sound_track_settings
from stepline.outputs.text import no_steps_reason, picture_seconds
from stepline.pipeline.request import Request
from stepline.pipeline.understand import StepsResult
from stepline.records import Record, ScreenTarget

log = logging.getLogger(__name__)

KEYFRAME_PIXELS = 480  # pixels of the longer side. Sharp on a phone, at most 18 kB per step
SMALL_KEYFRAME_PIXELS = 320  # pixels. About 9 kB, where a page has very many
BOX_COLOUR = (230, 40, 60)  # of the frame around what is clicked: red, as editors mark it
BOX_WIDTH, BOX_MARGIN = 3, 3  # pixels of that frame, and around the label
# from which key frames are small, so that the page of an hour stays a few MB
MIN_STEPS_FOR_SMALL_KEYFRAMES = 60

SUMMARY_SUFFIX = ".summary.mp4"
SUMMARY_COMMENT = "summary by Stepline"  # in the file's metadata, by which it is recognised


@dataclass(frozen=True)
class OutputOptions:
    """Which files are written for each video, and to which folder.

    Attributes:
        out: the folder of the files.
        formats: keys of `outputs.OUTPUTS`.
        clips: whether an mp4 of each seen or placed step is cut.
        force: whether results of an earlier run are made again.
        overwrite: whether files that no earlier run wrote may be overwritten.
        web: web addresses at which the folder and the videos will be published. None: relative
            links.
    """

    out: Path
    formats: tuple[str, ...]
    clips: bool = False
    force: bool = False
    overwrite: bool = False
    web: "WebAddresses | None" = None

    def __post_init__(self) -> None:
        find_outputs(self.formats)

    @property
    def has_keyframes(self) -> bool:
        """Whether an output has pictures of the steps."""
        return any(OUTPUTS[name].keyframes != "none" for name in self.formats)


def write_files(request: Request, result: StepsResult, options: OutputOptions) -> tuple[Path, ...]:
    """Write all files of one video, or none of them. Return their paths.

    Args:
        request: the video.
        result: its record and its alignment of steps with seconds.
        options: which files are written, and to which folder.
    """
    # all files appear together
    record = result.record
    with atomic_files() as files:
        if missing_outputs(record, options.out, ["json"]):
            remove_clips(record, options.out, files)  # of another result: they show other seconds
        clips = write_clips(record, request.path, options.out, files) if options.clips else []
        pictures: dict[str, bytes] = {}
        if options.has_keyframes:
            pictures = extract_keyframes(record, request.path)
        outputs = write_outputs(
            record,
            options.out,
            alignment=result.alignment,
            keyframes=pictures,
            media=None if request.is_captions_only else request.path,
            linked=request.kept,
            formats=options.formats,
            files=files,
            web=options.web,
        )
    # of a run that was killed. Until now they showed whose the files in place are
    for name in options.formats:
        for path in output_paths(record, options.out, name):
            if path.is_dir():
                remove_partial_files(path)
            else:
                remove_partial_files(options.out, of=path)
    return (*clips, *outputs)


def extract_keyframes(record: Record, path: Path) -> dict[str, bytes]:
    """Return step id -> JPEG for every seen or placed step: the frame of its `picture_seconds`.

    The frame of a clicked step has a box around the click's target.

    Args:
        record: the record with the steps.
        path: the video file.
    """
    second_by_step = picture_seconds(record)
    targets = {step.id: step.target for step in record.steps if step.target is not None}
    side = SMALL_KEYFRAME_PIXELS
    if len(second_by_step) < MIN_STEPS_FOR_SMALL_KEYFRAMES:
        side = KEYFRAME_PIXELS
    pictures: dict[float, bytes] = {}
    seconds = list(second_by_step.values())
    try:
        if seconds:
            for still in read_frames_at(path, seconds, longer=side):
                pictures[still.time] = encode_jpeg(still.image)
    except SteplineError as error:  # the page is still worth having. The reason goes to the log
        log.warning("no key frames: %s", error)
        return {}
    # A target is marked on a copy, since two steps may share a picture.
    marked = {}
    for id, second in second_by_step.items():
        if second in pictures:
            marked[id] = pictures[second]
            if id in targets:
                marked[id] = draw_target_box(marked[id], targets[id])
    return marked


def draw_target_box(picture: bytes, target: ScreenTarget) -> bytes:
    """Return the JPEG with a box drawn around the clicked element of the screen.

    Args:
        picture: bytes of the JPEG.
        target: position of the clicked element.
    """
    from PIL import Image, ImageDraw

    with Image.open(io.BytesIO(picture)) as opened:
        image = opened.convert("RGB")
    x, y, end_x, end_y = target.box

    # the box on the screen, in pixels of this picture
    box = (
        x * image.width - BOX_MARGIN,
        y * image.height - BOX_MARGIN,
        end_x * image.width + BOX_MARGIN,
        end_y * image.height + BOX_MARGIN,
    )
    ImageDraw.Draw(image).rectangle(box, outline=BOX_COLOUR, width=BOX_WIDTH)
    return encode_jpeg(np.asarray(image))


@dataclass(frozen=True)
class WrittenSummary:
    """A video that was cut down to its most important segments.

    Attributes:
        segments: the segments that are kept, each with its span and steps.
        file: the mp4 file that was written.
    """

    segments: tuple[SummarySegment, ...]
    file: Path

    @property
    def duration(self) -> float:
        """Seconds of the summary."""
        return sum(segment.span.duration for segment in self.segments)


def write_summary(
    record: Record, path: Path, out: Path, settings: SummarySettings
) -> WrittenSummary:
    """Cut a video file of the most important segments of a video. Return the segments and the file.

    Args:
        record: the steps of the video.
        path: the video file.
        out: the folder to which the summary is written.
        settings: length and other settings of the summary.

    Raises SettingsError if a file that is not a summary has the same path. Raises MediaError if no
    step is shown or nothing can be cut, StoreError if `out` cannot be written.
    """
    # what is kept, and where it goes
    if reason := no_steps_reason(record):
        raise MediaError(f"{record.id}: nothing to summarize: {reason}")
    segments = summarize(record, settings)
    film = out / f"{safe_stem(record.id)}{SUMMARY_SUFFIX}"
    if os.path.realpath(film) == os.path.realpath(path):
        raise MediaError(
            f"{path}: the summary would be written over this video; give another folder with --out"
        )
    if film.exists() and not _is_summary(film):
        raise SettingsError(
            f"{film}: the summary would replace this file, which is not a summary; give another "
            "folder with --out"
        )
    spans = [segment.span for segment in segments]
    join_clips(path, spans, film, sound_track_settings(record), comment=SUMMARY_COMMENT)
    return WrittenSummary(segments, film)


def _is_summary(path: Path) -> bool:
    try:
        return probe(path).comment == SUMMARY_COMMENT
    except MediaError:
        return False
