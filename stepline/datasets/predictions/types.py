"""Segments by video, what could not be read of them, and times as people and language models write
them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from stepline.datasets.files import Node, Tree, quoted
from stepline.datasets.predictions.pdvc import CUT_RULE, UNCUT_RULE, Cut
from stepline.datasets.youtube_ids import shared_prefix
from stepline.records import Record, Rejected

NEXT_START_RULE = "a chapter ends where the next one starts"
UNPREFIXED_RULE = 'the "v_" before every id is left out, as from the annotations'
DURATION_RULE = "the last chapter ends with its video"
UNKNOWN_END = "the last chapter has no end and the video's duration is not known; give durations"


class PredictedSegment(NamedTuple):
    """A predicted text with its times in seconds, as the file gives them: they may be reversed or
    negative."""

    start: float
    end: float
    sentence: str
    score: float | None = None


@dataclass(frozen=True)
class SegmentPredictions:
    """Segments by video id, in the file's order. A video that is named without segments has an
    empty tuple.

    rejected: everything that was left out. rules: how ends were set, ids shortened and empty texts
    counted.
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
    # video, text, location: to be read as prose
    replies: list[tuple[str, str, str]] = field(default_factory=list)

    def open_video(self, video: str, location: str) -> bool:
        """Return whether a video is new. One that was read before is rejected."""
        if video in self.segments:
            self.reject(location, video, f"this video was read before, in {self.places[video]}")
            return False
        self.segments[video] = []
        self.places[video] = location
        return True

    def reject(self, location: str, what: Tree, reason: str) -> None:
        """Note something that cannot be read."""
        text = quoted(what) if not isinstance(what, str) else what
        self.rejected.append(Rejected("prediction", reason, text=text, location=location))

    def reject_node(self, node: Node, reason: str) -> None:
        """Note a value that cannot be read."""
        self.reject(node.location, node.value, reason)

    def add(self, video: str, segment: PredictedSegment) -> None:
        """Add a segment. One whose text is empty stays a prediction, as for the official scorers,
        and is counted."""
        self.segments[video].append(segment)
        self.without_text += not segment.sentence

    def note_rule(self, rule: str) -> None:
        """Note that a rule was used."""
        if rule not in self.rules:
            self.rules.append(rule)

    def record(self, record: Record, location: str) -> None:
        """Add a record's placed steps, each with its best span. A record without steps gives its
        captions."""
        if not self.open_video(record.id, location):
            return
        for step in record.steps or record.captions:
            if step.spans:
                best = step.spans[0]
                segment = PredictedSegment(best.start, best.end, step.text, step.score)
                self.segments[record.id].append(segment)
            else:
                status = step.status or "not set"
                step_location = f"{location}: step {step.id}"
                self.reject(step_location, step.text, f"has no span (status {status})")

    def add_chapters(self, video: str, starts: list[tuple[float, str, str]]) -> None:
        """Add chapters (start, title, location): each ends where the next starts, the last with the
        video if known."""
        # Each ends at the start of the next, and the last with the video.
        chapters = sorted(starts, key=itemgetter(0))
        ends: list[float | None] = [start for start, _, _ in chapters[1:]]
        ends.append(self.durations.get(video))
        last_index = len(chapters) - 1
        for index, (start, title, location) in enumerate(chapters):
            end = ends[index]
            is_last = index == last_index
            if end is None:
                self.reject(location, title, UNKNOWN_END)
            elif end <= start and is_last:
                self.reject(location, title, "the chapter starts after the video's end")
            elif end <= start:
                self.reject(location, title, "the chapter starts at the same second as the next")
            else:
                self.note_rule(DURATION_RULE if is_last else NEXT_START_RULE)
                self.segments[video].append(PredictedSegment(start, end, title))

    def finish(self) -> SegmentPredictions:
        """Return the segments of all files that were read."""
        prefix = shared_prefix(self.segments)
        if prefix:
            self.note_rule(UNPREFIXED_RULE)
        if self.cut_videos:
            self.note_rule(f"{self.cut_videos} videos: {CUT_RULE}")
        if self.uncut_videos:
            self.note_rule(f"{self.uncut_videos} videos: {UNCUT_RULE}")
        if self.without_text:
            self.note_rule(f"{self.without_text} segments have an empty text and stay as they are")
        segments = {}
        for video, rows in self.segments.items():
            segments[video.removeprefix(prefix)] = tuple(rows)
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
    """Return the seconds of a number, "95.2", "95.2 s", "01:20", "1:02:03.5", None for anything
    else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _finite(value)
    if not isinstance(value, str):
        return None
    text = value.strip().strip("[]()<>")
    if plain := _PLAIN_PATTERN.fullmatch(text):
        return _finite(float(plain[1]))
    return _clock(text)


def _clock(text: str) -> float | None:
    match = _CLOCK_PATTERN.fullmatch(text)
    if match is None:
        return None
    hour_text, minute_text, second_text = match.groups()
    hours = int(hour_text or 0)
    minutes = int(minute_text)
    # A clock has no 60th second.
    seconds = float(second_text.replace(",", "."))
    if seconds >= MINUTE_SECONDS:
        return None
    # without hours, minutes may be more than an hour
    if hour_text is not None and minutes >= HOUR_MINUTES:
        return None
    return MINUTE_SECONDS * (HOUR_MINUTES * hours + minutes) + seconds


def _finite(value: int | float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if not math.isfinite(number) else number


def parse_interval(value: Tree) -> tuple[float, float] | None:
    """Return the two times of a list of two or of text such as "01:20 - 01:35", None for anything
    else."""
    parts = _BETWEEN_PATTERN.split(value.strip()) if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 2:
        return None
    start = parse_seconds(parts[0])
    end = parse_seconds(parts[1])
    return None if start is None or end is None else (start, end)
