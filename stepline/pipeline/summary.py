"""A video's summary as files: the seconds that show its steps as one mp4, and a storyboard."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import MediaError, SettingsError
from stepline.files.atomic_files import atomic_files, partial_files, remove_partial_files
from stepline.models.wys2.settings import SummarySettings
from stepline.models.wys2.summary import Importance, SummarySegment, summarize
from stepline.outputs.html import PAGE_MARK
from stepline.pipeline.output_files import keyframes
from stepline.pipeline.pictures import LookOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress
from stepline.records import Record

if TYPE_CHECKING:
    from stepline.models.wys2.summarizer import LoadedSummarizer

log = logging.getLogger(__name__)

STORYBOARD_SUFFIX = ".summary.html"


@dataclass(frozen=True)
class Summary:
    """What was kept, and the files that show it."""

    segments: tuple[SummarySegment, ...]
    files: tuple[Path, ...]

    @property
    def duration(self) -> float:
        """Seconds of the summary."""
        return sum(segment.span.duration for segment in self.segments)


def write_summary(
    record: Record,
    path: Path,
    out: Path,
    settings: SummarySettings,
    importance: Importance | None = None,
) -> Summary:
    """Cut the summary of the video at `path` and write its storyboard, both or neither.

    Raises SettingsError where another file is in their place. Raises MediaError where no step is
    shown or nothing can be cut, StoreError where `out` cannot be written.
    """
    from stepline.media import join_clips
    from stepline.outputs import SUMMARY_SUFFIX, safe_stem, storyboard
    from stepline.outputs.clips import sound_track_settings

    # what is kept, and where it goes
    segments = summarize(record, settings, importance)
    stem = safe_stem(record.id)
    film = out / f"{stem}{SUMMARY_SUFFIX}"
    board = out / f"{stem}{STORYBOARD_SUFFIX}"
    if os.path.realpath(film) == os.path.realpath(path):
        raise MediaError(
            f"{path}: the summary would be written over this video; give another folder with --out"
        )

    # no other file is lost
    for place in (board, film):
        if place.exists() and not _has_board(board):
            cure = "give another folder with --out"
            raise SettingsError(
                f"{place}: the summary would replace this file, which is not a summary; {cure}"
            )

    # both files, or neither
    with atomic_files() as files:
        spans = [segment.span for segment in segments]
        join_clips(path, spans, files.partial(film), sound_track_settings(record))
        html = storyboard(
            record,
            segments,
            keyframes=keyframes(record, path),
            film=film.name,
            media=os.path.relpath(path, out),
        )
        files.partial(board).write_text(html, encoding="utf-8")
    remove_partial_files(out, of=board)
    summary = Summary(segments, (film, board))
    log.info("kept %.1f s in %d segments", summary.duration, len(segments))
    return summary


def _has_board(path: Path) -> bool:
    """Whether a film has its storyboard next to it, or one that a kill kept from its place."""
    return any(_is_board(file) for file in (path, *partial_files(path)))


def _is_board(path: Path) -> bool:
    return path.is_file() and PAGE_MARK.encode() in path.read_bytes()


def score_seconds(
    record: Record,
    request: Request,
    settings: StepsSettings,
    summarizer: "LoadedSummarizer",
    progress: Progress | None = None,
) -> Importance:
    """Return how much each second of a video matters, (T,), by a trained summarizer. The pictures
    are seen again.

    Raises SettingsError without pictures, ShapeError where the features are of another width.
    """
    from stepline.media import probe
    from stepline.models.wys2.predict import encode_texts
    from stepline.models.wys2.summarizer import predict_importance, segment_video

    # A record holds no feature rows, so the video is looked at again.
    info = probe(request.path, settings.media)
    visual = extract_features(request, info, settings, LookOptions(progress=progress))
    if visual.features is None or visual.backbone is None:
        lack = "this video has none, or none are looked at"
        raise SettingsError(f"{summarizer.path}: a summarizer needs pictures; {lack}")

    # what is said, for a network that reads it
    network = summarizer.network
    vectors = None
    if network.settings.text_width > 0:
        texts = [sentence.text for sentence in record.sentences]
        vectors = encode_texts(summarizer.space.text, visual.backbone, texts)
    video = segment_video(record, visual.features, vectors, network.settings)
    return predict_importance(network, video)
