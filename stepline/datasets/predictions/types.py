"""Segments by video, what could not be read of them, and times as people and language models write
them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stepline.datasets.files import Node, Tree, quoted
from stepline.datasets.predictions.pdvc import CUT_RULE, UNCUT_RULE, Cut
from stepline.datasets.youtube_ids import shared_prefix
from stepline.records import Record, Rejected

NEXT_START_RULE = "a chapter ends where the next one starts"
UNPREFIXED_RULE = 'the "v_" before every id is left out, as from the annotations'
DURATION_RULE = "the last chapter ends with its video"


class PredictedSegment(NamedTuple):
    """A predicted text with its times in seconds, as the file gives them: they may be reversed or
    negative."""

    start: float
    end: float
    sentence: str
    score: float | None = None


@dataclass(frozen=True)
class SegmentPredictions:
    """Segments by video id, in the file's order; a video that is named without segments has an
    empty tuple.

    rejected: everything that was passed over. rules: the named rules by which ends were set, ids
    shortened and empty texts kept.
    """

    segments: Mapping[str, tuple[PredictedSegment, ...]]
    rejected: tuple[Rejected, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass
class PredictionCollector:
    """The growing result while files are read. durations: video id -> seconds, where they are
    known."""

    durations: Mapping[str, float] = field(default_factory=dict)
    segments: dict[str, list[PredictedSegment]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    without_text: int = 0  # segments with an empty text
    cut: Cut | None = None  # how the proposals of a video are cut
    cut_videos: int = 0
    uncut_videos: int = 0  # that look as if they were to be cut
    # video, text, where: to be read as prose
    replies: list[tuple[str, str, str]] = field(default_factory=list)

    def open_video(self, video: str, where: str) -> bool:
        """Tell whether a video is new; one that was read before is noted and must be passed
        over."""
        if video in self.segments:
            self.reject(where, video, f"this video was read before, in {self.places[video]}")
            return False
        self.segments[video] = []
        self.places[video] = where
        return True

    def reject(self, location: str, what: Tree, reason: str) -> None:
        """Note something that cannot be read."""
        text = what if isinstance(what, str) else quoted(what)
        self.rejected.append(Rejected("prediction", reason, text=text, location=location))

    def reject_node(self, node: Node, reason: str) -> None:
        """Note a value that cannot be read."""
        self.reject(node.location, node.value, reason)

    def add(self, video: str, segment: PredictedSegment) -> None:
        """Add a segment; one whose text is empty stays a prediction, as for the official scorers,
        and is counted."""
        self.segments[video].append(segment)
        self.without_text += not segment.sentence

    def note_rule(self, rule: str) -> None:
        """Note that a rule was used."""
        if rule not in self.rules:
            self.rules.append(rule)

    def record(self, record: Record, where: str) -> None:
        """Add a record's placed steps, each with its best span; a record without steps gives its
        captions."""
        if not self.open_video(record.id, where):
            return
        for step in record.steps or record.captions:
            if step.spans:
                best = step.spans[0]
                self.segments[record.id].append(
                    PredictedSegment(best.start, best.end, step.text, step.score)
                )
            else:
                self.reject(
                    f"{where}: step {step.id}",
                    step.text,
                    f"has no span (status {step.status or 'not set'})",
                )

    def add_chapters(self, video: str, starts: list[tuple[float, str, str]]) -> None:
        """Add chapters (start, title, where): each ends where the next starts, the last with the
        video if known."""
        starts = sorted(starts, key=lambda chapter: chapter[0])
        duration = self.durations.get(video)
        for index, (start, title, where) in enumerate(starts):
            last = index + 1 == len(starts)
            end = duration if last else starts[index + 1][0]
            if end is None:
                why = "the last chapter has no end and the video's duration is not known; give durations"
                self.reject(where, title, why)
            elif end <= start:
                why = (
                    "starts after the video's end"
                    if last
                    else "starts at the same second as the next"
                )
                self.reject(where, title, f"the chapter {why}")
            else:
                self.note_rule(DURATION_RULE if last else NEXT_START_RULE)
                self.segments[video].append(PredictedSegment(start, end, title))

    def finish(self) -> SegmentPredictions:
        """Return what was found."""
        prefix = shared_prefix(self.segments)
        if prefix:
            self.note_rule(UNPREFIXED_RULE)
        if self.cut_videos:
            self.note_rule(f"{self.cut_videos} videos: {CUT_RULE}")
        if self.uncut_videos:
            self.note_rule(f"{self.uncut_videos} videos: {UNCUT_RULE}")
        if self.without_text:
            self.note_rule(f"{self.without_text} segments have an empty text and stay as they are")
        segments = {
            video.removeprefix(prefix): tuple(rows) for video, rows in self.segments.items()
        }
        return SegmentPredictions(segments, tuple(self.rejected), tuple(self.rules))


# ---------------------------------------------------------------- times


_CLOCK_PATTERN = re.compile(r"(?:(\d{1,4}):)?(\d{1,5}):(\d{1,2}(?:[.,]\d{1,9})?)")
# as Python, NumPy and pandas write a float: up to 17 digits after the point, or an exponent
_PLAIN_PATTERN = re.compile(
    r"(-?\d{1,20}(?:\.\d{0,30})?(?:e[+-]?\d{1,3})?)\s*(?:s|sec|secs|seconds?)?", re.IGNORECASE
)
_BETWEEN_PATTERN = re.compile(r"\s*(?:-->|–|—|-|\bto\b)\s*")
MINUTE_SECONDS = 60
HOUR_MINUTES = 60


def parse_seconds(value: Tree) -> float | None:
    """Return the seconds of a number, "95.2", "95.2 s", "01:20", "1:02:03.5"; None for anything
    else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _finite(value)
    if not isinstance(value, str):
        return None
    text = value.strip().strip("[]()<>")
    plain = _PLAIN_PATTERN.fullmatch(text)
    return _finite(float(plain[1])) if plain else _clock(text)


def _clock(text: str) -> float | None:
    match = _CLOCK_PATTERN.fullmatch(text)
    if match is None:
        return None
    hours = int(match[1] or 0)
    minutes = int(match[2])
    seconds = float(match[3].replace(",", "."))
    if seconds >= MINUTE_SECONDS or (match[1] is not None and minutes >= HOUR_MINUTES):
        return None
    return MINUTE_SECONDS * (HOUR_MINUTES * hours + minutes) + seconds


def _finite(value: int | float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def parse_interval(value: Tree) -> tuple[float, float] | None:
    """Return the two times of a list of two or of text such as "01:20 - 01:35"; None for anything
    else."""
    parts = _BETWEEN_PATTERN.split(value.strip()) if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 2:
        return None
    start, end = parse_seconds(parts[0]), parse_seconds(parts[1])
    return None if start is None or end is None else (start, end)
