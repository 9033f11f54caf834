"""Predictions of other systems, and Stepline's own, as segments (start, end, sentence, score).

JSON in one of these forms:

    {"results": {id: [{"sentence", "timestamp": [s, e]}]}}         densevid, PDVC, VidChapters, Vid2Seq
    {id: {"timestamps": [[s, e]], "sentences": [..]}}              the flat form of annotations
    {id: [[s, e, sentence], ...]}                                  lists, also with a score
    {id: [{"start", "end", "text", "score"}, ...]}                 objects
    a Stepline record

Also Parquet of Stepline's records, and a folder of any of these files.

PDVC's own results hold all proposals of a video with their scores. PDVC ranks and cuts them before
it scores them:

    joint score = proposal_score + weight * sentence_score / (words^2 + 1e-5)

Of a video the `pred_event_count` best stay, in the order of their times. Source: PDVC's
eval_utils.py. The weight is that of its YouCook2 configurations.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from stepline.datasets.files import JSON_ENDINGS, Node, Tree, quote_value, read_node
from stepline.datasets.record_builder import BAD_TEXT, NO_TEXT, shared_prefix
from stepline.errors import DatasetError, StoreError
from stepline.files.atomic_files import files_below
from stepline.limits import is_storable
from stepline.numeric import parse_number
from stepline.records import Record, Rejected
from stepline.storage import from_json, read_parquet

FILE_ENDINGS = (*JSON_ENDINGS, ".parquet")
MAX_LISTED = 3  # rejected rows in an error

# keys of a row's words, of both its times in one list, of each time, and of its score
TEXT_KEYS = ("sentence", "text", "caption", "step", "label")
PAIR_KEYS = ("timestamp", "segment")
START_KEYS = ("start", "start_time")
END_KEYS = ("end", "end_time")
SCORE_KEYS = ("score", "proposal_score")

NOT_TIMES = "its start and end are not two times"
NO_FORM = "is neither a list of segments nor an object with timestamps and sentences"
UNPREFIXED_RULE = 'the "v_" before every id is left out, as from the annotations'


class PredictedSegment(NamedTuple):
    """A predicted segment of a video with its text.

    Attributes:
        start: start in seconds, as the file gives it. It may be negative, or later than the end.
        end: end in seconds.
        sentence: caption or step text, which may be empty.
        score: confidence of the system, on any scale. None: the file gives none.
    """

    start: float
    end: float
    sentence: str
    score: float | None = None


@dataclass(frozen=True)
class SegmentPredictions:
    """The predicted segments in a file or folder.

    Attributes:
        segments: video id -> segments in the order of the file, () for a video without segments.
        rejected: rows and files that could not be read, and why.
        rules: sentences that say how ids, empty texts and PDVC's proposals were handled.
    """

    segments: Mapping[str, tuple[PredictedSegment, ...]]
    rejected: tuple[Rejected, ...] = ()
    rules: tuple[str, ...] = ()


# ---------------------------------------------------------------- PDVC's proposals


Cut = Literal["pdvc"]

CAPTION_WEIGHT = 1.0  # of a caption's likelihood next to its proposal's confidence
LENGTH_POWER = 2.0  # of the words by which a likelihood is divided
WORD_EPSILON = 1e-5  # against captions without a word
PDVC_CUT_NOTE = "ranked and cut as PDVC does it"
UNCUT_NOTE = (
    "proposals of PDVC, more than its event counts, scored as they are; --cut pdvc ranks and cuts "
    "them as PDVC does before it scores"
)


def has_pdvc_scores(row: Node) -> bool:
    """Return whether a JSON value is a proposal of PDVC that holds its scores."""
    keys = {"proposal_score", "sentence_score", "pred_event_count"}
    return isinstance(row.value, dict) and row.value.keys() >= keys


def cut_proposals(rows: Sequence[Node]) -> list[Node]:
    """Return the proposals of a video that PDVC's evaluation keeps, in order of time.

    PDVC keeps the proposals with the highest joint scores. The best proposal states how many.

    rows: the proposals of one video.

    Raises DatasetError for a row without PDVC's scores.
    """
    scores = [joint_score(row) for row in rows]
    ranking = sorted(range(len(rows)), key=scores.__getitem__, reverse=True)
    # How many proposals stay is what the best one says.
    event_count = rows[ranking[0]]["pred_event_count"]
    number = event_count.number()
    if not math.isfinite(number):
        raise event_count.error("a number of events")
    best = [rows[index] for index in ranking[: max(0, int(number))]]
    return sorted(best, key=lambda row: row["timestamp"].pair())


def joint_score(row: Node) -> float:
    """Return the score by which PDVC ranks a proposal.

    It is the proposal's confidence plus the length-normalised log-likelihood of its caption.
    """
    words = len(row["sentence"].text().split())
    likelihood = row["sentence_score"].number() / (math.pow(words, LENGTH_POWER) + WORD_EPSILON)
    return row["proposal_score"].number() + CAPTION_WEIGHT * likelihood


# ---------------------------------------------------------------- files


def read_predictions(path: Path | str, *, cut: Cut | None = None) -> SegmentPredictions:
    """Return the segments that a system predicted, and everything that could not be read.

    Args:
        path: a file in one of the forms of this module, or a folder of such files.
        cut: "pdvc" ranks and cuts the proposals in PDVC's results, as PDVC does before scoring.
            None: all proposals are returned.

    Raises DatasetError when a file cannot be read at all. In a folder such a file is rejected.
    """
    path = Path(path)
    reader = _PredictionReader(cut)
    if path.is_dir():
        files = [file for file in files_below(path) if file.name.lower().endswith(FILE_ENDINGS)]
        if not files:
            endings = ", ".join(FILE_ENDINGS)
            raise DatasetError(f"{path}: holds no predictions; give a folder of {endings} files")
        for file in files:
            try:
                reader.read_file(file)
            except DatasetError as error:
                reader.reject(str(file), file.name, str(error))
    else:
        reader.read_file(path)
    if reader.rejected and not reader.segments:
        reasons = "; ".join(
            f"{row.location}: {quote_value(row.text)} {row.reason}"
            for row in reader.rejected[:MAX_LISTED]
        )
        raise DatasetError(
            f"{path}: no predictions in it that can be read ({reasons}); see docs/datasets.md"
        )
    return reader.predictions()


class _PredictionReader:
    """Collects the predicted segments of several files."""

    def __init__(self, cut: Cut | None) -> None:
        self.segments: dict[str, list[PredictedSegment]] = {}
        self.rejected: list[Rejected] = []
        self._cut = cut
        self._locations: dict[str, str] = {}  # video id -> where it was read
        self._empty_text_count = 0
        self._cut_video_count = 0
        self._uncut_video_count = 0  # videos with more proposals than PDVC would score

    def predictions(self) -> SegmentPredictions:
        """Return the segments of all files that were read."""
        prefix = shared_prefix(self.segments)
        rules = [UNPREFIXED_RULE] if prefix else []
        for count, rule in (
            (self._cut_video_count, f"videos: {PDVC_CUT_NOTE}"),
            (self._uncut_video_count, f"videos: {UNCUT_NOTE}"),
            (self._empty_text_count, "segments have an empty text and stay as they are"),
        ):
            if count:
                rules.append(f"{count} {rule}")
        segments = {
            video.removeprefix(prefix): tuple(rows) for video, rows in self.segments.items()
        }
        return SegmentPredictions(segments, tuple(self.rejected), tuple(rules))

    def reject(self, location: str, value: Tree, reason: str) -> None:
        """Add a row or file that cannot be read to the rejected ones.

        Args:
            location: file and place of the row.
            value: the JSON value.
            reason: why it cannot be read.
        """
        text = value if isinstance(value, str) else quote_value(value)
        self.rejected.append(Rejected("prediction", reason, text=text, location=location))

    def read_file(self, path: Path) -> None:
        """Add the segments of a file. Raises DatasetError if the file cannot be read."""
        try:
            if path.name.lower().endswith(".parquet"):
                for record in read_parquet(path):
                    self._add_record(record, str(path))
                return
            root = read_node(path)
            tree = root.value
            if _is_record(tree):
                self._add_record(from_json(json.dumps(tree), str(path)), str(path))
                return
        except StoreError as error:
            raise DatasetError(str(error)) from error
        if not isinstance(tree, dict):
            raise root.error("an object of videos")
        videos = root["results"] if isinstance(tree.get("results"), dict) else root
        for video, node in videos.entries():
            self._add_video(video, node)

    def _add_video(self, video: str, node: Node) -> None:
        value = node.value
        if not video or not is_storable(video):
            self.reject(node.location, value, "names no video")
        elif isinstance(value, list):
            if self._open_video(video, node.location):
                self._add_rows(video, list(node.rows()))
        elif isinstance(value, dict) and {"timestamps", "sentences"} <= value.keys():
            if self._open_video(video, node.location):
                self._add_columns(video, node)
        else:
            self.reject(node.location, value, NO_FORM)

    def _open_video(self, video: str, location: str) -> bool:
        """Return whether a video was not read before. A repeated video is rejected."""
        if video in self.segments:
            self.reject(location, video, f"this video was read before, in {self._locations[video]}")
            return False
        self.segments[video] = []
        self._locations[video] = location
        return True

    def _add_record(self, record: Record, location: str) -> None:
        """Add the best span of each step of a record. Without steps its captions are added."""
        if not self._open_video(record.id, location):
            return
        for step in record.steps or record.captions:
            if step.spans:
                best = step.spans[0]
                segment = PredictedSegment(best.start, best.end, step.text, step.score)
                self.segments[record.id].append(segment)
            else:
                reason = f"has no span (status {step.status or 'not set'})"
                self.reject(f"{location}: step {step.id}", step.text, reason)

    def _add_columns(self, video: str, node: Node) -> None:
        columns = [node.value["timestamps"], node.value["sentences"]]
        if not all(isinstance(column, list) for column in columns):
            self.reject(node.location, node.value, NO_FORM)
        elif len(columns[0]) != len(columns[1]):
            self.reject(node.location, node.value, "timestamps, sentences are not equally long")
        else:
            for index, (times, text) in enumerate(zip(*columns, strict=True)):
                self._add_segment(video, f"{node.location}.sentences[{index}]", times, text)

    def _add_rows(self, video: str, rows: list[Node]) -> None:
        if any(map(has_pdvc_scores, rows)):
            event_count = rows[0].value.get("pred_event_count", math.inf)
            if self._cut == "pdvc":
                self._cut_video_count += 1
                rows = cut_proposals(rows)
            elif isinstance(event_count, int | float) and len(rows) > event_count:
                self._uncut_video_count += 1
        for row in rows:
            value = row.value
            if isinstance(value, dict):
                times = _first_value(value, PAIR_KEYS)
                if times is None:
                    times = [_first_value(value, START_KEYS), _first_value(value, END_KEYS)]
                text = _first_value(value, TEXT_KEYS)
                score = _first_value(value, SCORE_KEYS)
                self._add_segment(video, row.location, times, text, score)
            elif isinstance(value, list) and len(value) in (3, 4):
                start, end, text, score = [*value, None][:4]
                self._add_segment(video, row.location, [start, end], text, score)
            else:
                self.reject(row.location, value, "is not [start, end, sentence]")

    def _add_segment(
        self, video: str, location: str, times: Tree, text: Tree, score: Tree = None
    ) -> None:
        """Add a segment. A segment with an empty text is kept and counted, as in the official
        scorers.
        """
        numbers = [parse_number(time) for time in times] if isinstance(times, list) else []
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            self.reject(location, text, NOT_TIMES)
        elif not isinstance(text, str):
            self.reject(location, text, NO_TEXT)
        elif not is_storable(text):
            self.reject(location, "", BAD_TEXT)
        else:
            sentence = text.strip()
            self._empty_text_count += not sentence
            segment = PredictedSegment(numbers[0], numbers[1], sentence, parse_number(score))
            self.segments[video].append(segment)


def _is_record(value: Tree) -> bool:
    return isinstance(value, dict) and {"version", "id", "video", "reference"} <= value.keys()


def _first_value(row: dict[str, Tree], keys: Sequence[str]) -> Tree:
    """Return a row's value of the first of several keys whose value is not null, else None."""
    return next((row[key] for key in keys if row.get(key) is not None), None)
