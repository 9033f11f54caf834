"""A video's summary as files: the seconds that show its steps as one mp4, and a storyboard."""

import logging
from dataclasses import dataclass
from pathlib import Path

from stepline.errors import MediaError
from stepline.jobs import keyframes
from stepline.records import Record
from stepline.store import write_atomic
from stepline.wys2.summary import Importance, Segment, summarize
from stepline.wys2.summary_settings import SummarySettings

log = logging.getLogger(__name__)

BOARD = ".summary.html"


@dataclass(frozen=True)
class Summary:
    """What was kept, and the files that show it."""

    segments: tuple[Segment, ...]
    files: tuple[Path, ...]

    @property
    def duration(self) -> float:
        """Seconds of the summary."""
        return sum(segment.span.duration for segment in self.segments)


def write_summary(
    record: Record, path: Path, out: Path, settings: SummarySettings, importance: Importance | None = None
) -> Summary:
    """Cut the summary of the video at `path` and write its storyboard, each whole or not at all.

    Raises MediaError where no step is shown or nothing can be cut, StoreError where `out` cannot be written.
    """
    from stepline.media import splice
    from stepline.show import SUMMARY_SUFFIX, safe_stem, storyboard

    segments = summarize(record, settings, importance)
    film, board = (out / f"{safe_stem(record.id)}{suffix}" for suffix in (SUMMARY_SUFFIX, BOARD))
    if film.resolve() == path.resolve():
        raise MediaError(f"{path}: the summary would be written over this video; give another folder with --out")
    splice(path, [segment.span for segment in segments], film)
    write_atomic(board, storyboard(record, segments, keyframes=keyframes(record, path), film=film.name))
    log.info("kept %.1f s in %d segments", sum(segment.span.duration for segment in segments), len(segments))
    return Summary(segments, (film, board))
