"""A video's summary as files: the seconds that show its steps as one mp4."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import MediaError, SettingsError
from stepline.models.wys2.settings import SummarySettings
from stepline.models.wys2.summary import Importance, SummarySegment, summarize
from stepline.pipeline.pictures import LookOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress
from stepline.records import Record

if TYPE_CHECKING:
    from stepline.models.wys2.summarizer import LoadedSummarizer

log = logging.getLogger(__name__)

SUMMARY_SUFFIX = ".summary.mp4"
SUMMARY_COMMENT = "summary by Stepline"  # in the file's metadata, by which it is recognised


@dataclass(frozen=True)
class Summary:
    """What was kept, and the file that shows it."""

    segments: tuple[SummarySegment, ...]
    file: Path

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
    """Cut the summary of the video at `path`.

    Raises SettingsError where another file is in its place. Raises MediaError where no step is
    shown or nothing can be cut, StoreError where `out` cannot be written.
    """
    from stepline.media import join_clips
    from stepline.outputs import safe_stem
    from stepline.outputs.clips import sound_track_settings

    # what is kept, and where it goes
    segments = summarize(record, settings, importance)
    film = out / f"{safe_stem(record.id)}{SUMMARY_SUFFIX}"
    if os.path.realpath(film) == os.path.realpath(path):
        raise MediaError(
            f"{path}: the summary would be written over this video; give another folder with --out"
        )
    if film.exists() and not _is_summary(film):
        cure = "give another folder with --out"
        raise SettingsError(
            f"{film}: the summary would replace this file, which is not a summary; {cure}"
        )
    spans = [segment.span for segment in segments]
    join_clips(path, spans, film, sound_track_settings(record), comment=SUMMARY_COMMENT)
    summary = Summary(segments, film)
    log.info("kept %.1f s in %d segments", summary.duration, len(segments))
    return summary


def _is_summary(path: Path) -> bool:
    from stepline.media import probe

    try:
        return probe(path).comment == SUMMARY_COMMENT
    except MediaError:
        return False


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
