"""The data that the stages exchange: spans, sentences, steps, features, alignments and records.

Times are seconds from the start of the video. Only FeatureSequence and Alignment have rows: their
methods `rows` and `spans` convert between seconds and rows. Everything is frozen, and validated on
creation.
"""

import functools
import html
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_serializer, model_validator
from pydantic.dataclasses import dataclass as validated_dataclass

from stepline.errors import ShapeError
from stepline.limits import MAX_SECOND

Matrix = npt.NDArray[np.float32]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=MAX_SECOND)]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]  # ISO 8601
Status = Literal["seen", "placed", "said_only", "not_found"]
StepKind = Literal["do", "avoid"]
TitleSource = Literal["user", "link", "file", "speech", "name"]
TimeKind = Literal["total", "preparation", "cooking"]
Basis = Literal["network", "image_text", "vlm", "screen", "person", "pictures"]

FRAME_PIXELS = 640  # height of a record's page in a notebook
RECORD_VERSION: Literal[1] = 1  # of the record's schema; a reader refuses any other
# status of release 0.1.0 -> status of today. "shown" by words alone is "placed"
EARLIER_STATUSES: dict[str | None, Status] = {
    "shown": "seen",
    "unclear": "placed",
    "said": "said_only",
    "not found": "not_found",
}
EARLIER_DOUBT = "release 0.1.0 found it unclear"

log = logging.getLogger(__name__)


class FrozenModel(BaseModel):
    """Base class of all stored types: frozen, strict, no unknown fields, no NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


@validated_dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, extra="forbid"))
class Span:
    """Seconds [start, end) from the start of the video, 0 <= start < end <= 100 h."""

    start: Annotated[float, Field(description="second at which it begins")]
    end: Annotated[float, Field(description="second at which it ends")]

    def __post_init__(self) -> None:
        if not 0.0 <= self.start < self.end <= MAX_SECOND:  # also refuses NaN
            raise ValueError(
                f"span [{self.start}, {self.end}): need finite 0 <= start < end <= {MAX_SECOND:.0f}"
            )

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.end - self.start

    @property
    def center(self) -> float:
        """The middle second."""
        return (self.start + self.end) / 2

    def __contains__(self, second: float) -> bool:
        return self.start <= second < self.end

    def overlap(self, other: "Span") -> float:
        """Return the length of the intersection of both spans in seconds, 0 for disjoint spans."""
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))

    def iou(self, other: "Span") -> float:
        """Return the intersection over union of both spans, in [0, 1]."""
        shared = self.overlap(other)
        return shared / (self.duration + other.duration - shared)

    def pause(self, other: "Span") -> float:
        """Return the seconds between both spans, 0 for spans that touch or overlap."""
        return max(0.0, other.start - self.end, self.start - other.end)

    def gap(self, second: float) -> float:
        """Return the distance in seconds from `second` to the span, 0 inside the span."""
        return max(0.0, self.start - second, second - self.end)


def covering_span(spans: Iterable[Span | None]) -> Span | None:
    """Return the shortest span that contains all the given spans. None if all are None."""
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return Span(min(span.start for span in known), max(span.end for span in known))


class LinkChapter(FrozenModel):
    """A chapter of a video, from its web page."""

    start: Seconds
    """second of the video at which the chapter begins"""
    title: str
    """title of the chapter, as the page writes it"""


class LinkOrigin(FrozenModel):
    """The web page from which a video was downloaded. JSON leaves an unknown upload_date out."""

    url: str
    """without user, password and query, but for the id of a page's video"""
    title: str | None = None
    """of the video on its page"""
    uploader: str | None = None
    """the person or channel that published it"""
    licence: str | None = None
    """licence of the video, as the page names it"""
    chapters: tuple[LinkChapter, ...] = ()
    """chapters, in the order of the page"""
    upload_date: Day | None = None
    """day of the upload, YYYY-MM-DD"""


class Video(FrozenModel):
    """A video file with its metadata.

    JSON leaves origin, title_source, author, publication_date, tags and metadata out where they are
    not known.
    """

    id: Annotated[str, Field(min_length=1)]
    """the dataset's own (a YouTube id), or the file's stem"""
    path: str | None = None
    """of the file, absolute where Stepline read it"""
    duration: Annotated[float, Field(gt=0.0, le=MAX_SECOND)] | None = None
    """s"""
    title: str | None = None
    """title_source says where it is from"""
    task: str | None = None
    """what a dataset says the video shows"""
    sha256: str | None = None
    """of the file's bytes, so that a rerun knows whether it is still the same video"""
    origin: LinkOrigin | None = None
    """of a video named by its address"""
    title_source: TitleSource | None = Field(
        None,
        description="the title's source: the user, a link's page, the file's metadata, speech or "
        "the file's name, None from a dataset or an older version",
    )
    author: str | None = None
    """as its page or metadata says"""
    publication_date: Day | None = None
    """as its page or metadata says"""
    tags: tuple[str, ...] = ()
    """that people gave it"""
    metadata: dict[str, str] = Field(default_factory=dict)
    """people's own names and values"""


class Word(FrozenModel):
    """One recognised word."""

    text: str
    """the word with the punctuation after it"""
    span: Span | None = None
    """when it is said, null where the recogniser gave no time"""
    confidence: Probability | None = None
    """P(this word was said), by the recogniser"""


class Sentence(FrozenModel):
    """One spoken sentence."""

    text: str
    """the words, as recognised or as captions have them"""
    span: Span
    """when it is said"""
    words: tuple[Word, ...] = ()
    """its words with their times, empty if these are not known"""
    confidence: Probability | None = None
    """mean confidence of its words"""
    shown: Probability | None = None
    """P(the picture shows it), null until judged"""


class Transcript(FrozenModel):
    """The transcript of a video: sentences sorted by start, which may overlap."""

    language: str | None = None
    """ISO 639-1 code"""
    sentences: tuple[Sentence, ...] = ()
    """sorted by start"""
    recogniser: str | None = None
    """the model, or "captions"; null where nothing was listened to"""

    @model_validator(mode="after")
    def _require_sorted(self) -> "Transcript":
        starts = [sentence.span.start for sentence in self.sentences]
        if starts != sorted(starts):
            raise ValueError("sentences must be sorted by start")
        return self


class ScreenTarget(FrozenModel):
    """The screen element that a step of a screen recording clicks."""

    label: str
    """text on the element"""
    at: Seconds
    """second in which it is seen, before the click"""
    box: tuple[Probability, Probability, Probability, Probability]
    """left, top, right, bottom, as fractions of the picture"""


class Wait(FrozenModel):
    """How long a step lets a thing wait, apart from the work: "bake the cookies for 8 minutes"."""

    low: Annotated[float, Field(gt=0.0)]
    """shortest wait that is said, in s"""
    high: Annotated[float, Field(gt=0.0)] | None = Field(
        description='longest, the same as `low` if one time is said, null after "at least"'
    )
    what: str | None = None
    """what waits, as the step names it"""


class Step(FrozenModel):
    """One thing to do, or to avoid: a written, swapped, captioned or reference step."""

    id: str
    """unique in its record"""
    text: Annotated[str, Field(min_length=1)]
    """one action, as an order"""
    kind: StepKind = "do"
    """ "avoid" for a warning ("don't move the person")"""
    spans: tuple[Span, ...] = ()
    """where it is shown, best first, empty until placed (a reference may hold several)"""
    at: Seconds | None = None
    """the most likely second"""
    said: Span | None = None
    """where it is spoken"""
    status: Status | None = Field(
        None,
        description="seen: the pictures show it; placed: its span is where it is said; said_only: "
        "no picture, or evidence that it is not shown; not_found: neither said nor shown; null: not judged",
    )
    basis: Basis | None = Field(
        None,
        description="which evidence made the step `seen`: a trained network, an image-text network "
        "(CLIP), a vision-language model, the screen, a person, or pictures (older records)",
    )
    doubt: str | None = None
    """of a placed step: why it may not be shown, null without a reason"""
    score: Probability | None = None
    """P(it is shown at all). Of an aligner that is not calibrated: its best cosine"""
    sources: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """indices of the sentences it rests on"""
    source_text: str | None = None
    """where a swapped text comes from"""
    licence: str | None = None
    """where a swapped text comes from"""
    alternatives: tuple[str, ...] = ()
    """other wordings"""
    seen: tuple[str, ...] = ()
    """what the picture holds at that time that speaks for or against, in plain words"""
    target: Annotated[ScreenTarget | None, Field(exclude_if=lambda target: target is None)] = None
    """what is clicked, of a step in a screen recording (JSON holds it only there)"""
    wait: Annotated[Wait | None, Field(exclude_if=lambda wait: wait is None)] = None
    """resting, baking or drying time that the step states (JSON holds it only then)"""

    @model_validator(mode="after")
    def _require_basis(self) -> "Step":
        check_status(self)
        return self

    @property
    def start(self) -> float | None:
        """Second at which the best span starts, None without a span."""
        return self.spans[0].start if self.spans else None

    @property
    def end(self) -> float | None:
        """Second at which the best span ends, None without a span."""
        return self.spans[0].end if self.spans else None


def check_status(step: Step) -> None:
    """Raise ValueError for a seen step without a basis, and a basis or doubt of any other step."""
    if (step.status == "seen") != (step.basis is not None):
        raise ValueError(f"step {step.id!r}: a step has a basis where it is seen, and only there")
    # A line of the user may have a doubt before it is placed.
    if step.doubt is not None and step.status not in (None, "placed"):
        raise ValueError(f"step {step.id!r}: a step has a doubt only where it is placed")


def current_status(status: Any) -> Any:
    """Return the status of today for one of release 0.1.0, and any other value as it is."""
    if status not in EARLIER_STATUSES:
        return status
    _warn_of_earlier_status()
    return EARLIER_STATUSES[status]


def with_current_status(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a step or a live event, with a status of release 0.1.0 as it is today."""
    earlier = tree.get("status")
    status = current_status(earlier)
    if status == earlier:
        return dict(tree)
    if status == "seen" and tree.get("basis") == "words":
        status = "placed"
    basis = "pictures" if status == "seen" else None
    doubt = EARLIER_DOUBT if earlier == "unclear" else None
    return {**tree, "status": status, "basis": basis, "doubt": doubt}


@functools.cache  # one warning per process
def _warn_of_earlier_status() -> None:
    log.warning(
        "statuses of release 0.1.0 are read for one release: shown is now seen (by a picture) or "
        "placed (by its words), unclear is placed with a doubt, said is said_only"
    )


class Amount(FrozenModel):
    """A spoken amount: a number or a range, low <= high, with its unit."""

    low: Annotated[float, Field(ge=0.0)]
    """the number, or the least of a range"""
    high: Annotated[float, Field(ge=0.0)]
    """the number, or the greatest of a range"""
    unit: str | None = Field(
        None,
        description="short (g, ml, tsp, tbsp, cup, cm, inch) for mass, volume and length, "
        "singular for others (clove, can, pinch), with the size of each (14 oz can), None for a bare "
        "count",
    )
    text: str = ""
    """as it is said"""

    @model_validator(mode="after")
    def _require_order(self) -> "Amount":
        if self.low > self.high:
            raise ValueError(f"amount {self.low:g}-{self.high:g}: need low <= high")
        return self


class Material(FrozenModel):
    """An ingredient, material or tool of the work."""

    name: Annotated[str, Field(min_length=1)]
    """as it is said, without an article"""
    amounts: tuple[Amount, ...] = ()
    """those that are said of it, in order, empty where none is said"""
    at: Seconds
    """second at which it is named first"""
    sources: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """indices of the sentences that name it so"""


class WorkTime(FrozenModel):
    """The spoken duration of the work, or of a part of the work."""

    kind: TimeKind
    """of the whole work, of what comes before cooking, or of cooking"""
    low: Annotated[float, Field(gt=0.0)]
    """shortest duration that is said, in seconds"""
    high: Annotated[float, Field(gt=0.0)]
    """longest duration that is said, in seconds; the same as `low` if one is said"""
    text: str = ""
    """the sentence that says so"""
    at: Seconds
    """second at which it is said"""
    sources: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """indices of the sentences that say so"""

    @model_validator(mode="after")
    def _require_order(self) -> "WorkTime":
        if self.low > self.high:
            raise ValueError(f"time {self.low:g}-{self.high:g} s: need low <= high")
        return self


RejectedKind = Literal[
    "video",
    "duration",
    "step",
    "span",
    "sentence",
    "narration",
    "annotation",
    "prediction",
    "document",
    "features",
]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that was left out of a result, with the reason. JSON leaves empty fields out."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    what: Annotated[RejectedKind, Field(description="kind of the thing")]
    reason: Annotated[str, Field(description="by which it is counted, one of a few fixed wordings")]
    _: KW_ONLY
    text: Annotated[
        str, Field(description="of the step or sentence, or how the thing names itself")
    ] = ""
    id: Annotated[str, Field(description="of the video or item it belongs to")] = ""
    value: Annotated[str, Field(description="found instead of what is asked for")] = ""
    location: Annotated[str, Field(description="file, and the row in it")] = ""

    @model_serializer(mode="plain")
    def _serialize(self) -> dict[str, str]:
        tree = {"what": self.what, "text": self.text, "reason": self.reason}
        optional = {"id": self.id, "value": self.value, "location": self.location}
        return tree | {name: value for name, value in optional.items() if value}


def count_reasons(rejected: Iterable[Rejected]) -> dict[str, int]:
    """Return reason -> number of things rejected for it, the most frequent reason first."""
    return dict(Counter(row.reason for row in rejected).most_common())


class Record(FrozenModel):
    """The result for one video, with one field per stage.

    No stage reads `reference`.
    """

    id: Annotated[str, Field(min_length=1)]
    """names the files of the item; a dataset may ask two things of one video"""
    video: Video
    """the file, and what is known of it"""
    transcript: Transcript | None = None
    """what is said in it"""
    steps: tuple[Step, ...] = ()
    """what to do, in the order of saying"""
    materials: tuple[Material, ...] = ()
    """what the speaker says the work needs"""
    tools: tuple[Material, ...] = ()
    """what the speaker says the work needs"""
    yields: tuple[Material, ...] = ()
    """how much it makes, where that is said"""
    times: tuple[WorkTime, ...] = ()
    """how long it takes, where that is said"""
    recipe: tuple[str, ...] = ()
    """the user's own lines"""
    captions: tuple[Step, ...] = ()
    """steps described from the pictures"""
    reference: tuple[Step, ...] = ()
    """human truth, read by no stage"""
    dropped: tuple[Rejected, ...] = ()
    """what was left out, and why"""
    warnings: tuple[str, ...] = ()
    """what the user should know (a truncated file)"""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """what made it (plain values)"""
    models: dict[str, JsonValue] = Field(default_factory=dict)
    """what made it (plain values)"""
    version: Literal[1] = RECORD_VERSION
    """of this form"""

    def to_text(self, output: str) -> str:
        """Return the record in a text format.

        output: name of the format, as in docs/outputs.md.

        Raises SettingsError for any other name.
        """
        # Imported by name, since `outputs` imports this module.
        text: str = import_module("stepline.outputs.registry").render(self, output)
        return text

    def __str__(self) -> str:
        """Return the table of the steps that `stepline steps` prints."""
        table: str = import_module("stepline.outputs.terminal").step_table(self)
        return table

    def to_html(self) -> str:
        """Return the record as an HTML page without pictures."""
        return self.to_text("html")

    def _repr_html_(self) -> str:
        """Return the record's HTML page in an iframe, for display in a notebook."""
        source = html.escape(self.to_html(), quote=True)
        style = f"width: 100%; height: {FRAME_PIXELS}px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'

    def to_markdown(self) -> str:
        """Return the steps as Markdown, without pictures."""
        return self.to_text("markdown")

    def to_vtt(self) -> str:
        """Return the steps as WebVTT subtitles."""
        return self.to_text("vtt")

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """The sentences of the transcript, () if there is no transcript."""
        return self.transcript.sentences if self.transcript else ()

    @model_validator(mode="after")
    def _require_seen_by(self) -> "Record":
        # A copy of a step is not validated when it is made.
        for step in (*self.steps, *self.captions):
            check_status(step)
        return self

    @model_validator(mode="after")
    def _require_cited_sentences(self) -> "Record":
        materials = (*self.materials, *self.tools, *self.yields)
        sources_by_name = [
            *((f"step {step.id!r}", step.sources) for step in self.steps),
            *((f"{material.name!r}", material.sources) for material in materials),
            *((f"the {time.kind} time", time.sources) for time in self.times),
        ]
        count = len(self.sentences)
        for name, sources in sources_by_name:
            last = max(sources, default=-1)
            if last >= count:
                raise ValueError(f"{name} cites sentence {last}; there are {count}")
        return self


@dataclass(frozen=True)
class FeatureSequence:
    """The visual features of a video, with T rows of width D.

    Attributes:
        values: (T, D) float32. Row t covers the seconds [t/rate, (t+1)/rate).
        rate: rows per second.
        backbone: name of the image-text network that computed the features.
    """

    values: Matrix
    rate: float
    backbone: str

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.float32:
            raise ShapeError(
                f"features must be float32 (T, D), not {self.values.dtype} {self.values.shape}"
            )
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ShapeError(f"feature rate must be rows per second > 0, not {self.rate}")
        if len(self.values) / self.rate > MAX_SECOND:
            raise ShapeError(
                f"{len(self.values)} rows at {self.rate:g} a second are more than {MAX_SECOND:.0f} "
                "s of video"
            )
        if not np.isfinite(self.values).all():
            raise ShapeError(
                f"features of backbone {self.backbone!r} hold NaN or infinity; extract them again"
            )

    @property
    def duration(self) -> float:
        """Seconds that the rows cover together."""
        return len(self.values) / self.rate

    def rows(self, span: Span) -> slice:
        """Return the slice of rows that overlap a span.

        It is empty if the span lies after the last row.
        """
        return _overlapping_rows(span, self.rate, len(self.values))


@dataclass(frozen=True)
class Alignment:
    """Scores of how well each of K texts matches each of T rows of visual features of a video.

    Attributes:
        texts: the K texts.
        scores: (K, T) float32. Column t covers the seconds [t/rate, (t+1)/rate).
        rate: columns per second.
        kind: "cosine" for scores in [-1, 1], "probability" for scores in [0, 1].
    """

    texts: tuple[str, ...]
    scores: Matrix
    rate: float
    kind: Literal["cosine", "probability"]

    def __post_init__(self) -> None:
        count = len(self.texts)
        if self.scores.ndim != 2 or len(self.scores) != count:
            raise ShapeError(
                f"scores must be ({count}, T) for {count} texts, not {self.scores.shape}"
            )
        low = -1.0 if self.kind == "cosine" else 0.0
        if not self.scores.size:
            return
        is_inside = self.scores.min() >= low - 1e-4 and self.scores.max() <= 1 + 1e-4
        if not is_inside:
            raise ShapeError(f"{self.kind} scores must lie in [{low}, 1] and hold no NaN")

    def rows(self, span: Span) -> slice:
        """Return the slice of columns that overlap a span.

        It is empty if the span lies after the last one.
        """
        return _overlapping_rows(span, self.rate, self.scores.shape[1])

    def spans(self, floor: float) -> list[list[Span]]:
        """Return, for each text, the maximal spans in which its score is at least a threshold.

        The spans of a text are sorted by their highest score, the best first.

        floor: the threshold, on the scale of `kind`.
        """
        return [_spans_above(row, floor, self.rate) for row in self.scores]


def _overlapping_rows(span: Span, rate: float, count: int) -> slice:
    first = math.floor(span.start * rate + 1e-6)
    last = math.ceil(span.end * rate - 1e-6)
    start = min(count, first)
    return slice(start, min(count, max(start, last)))


def _spans_above(scores: Matrix, floor: float, rate: float) -> list[Span]:
    padded = np.concatenate(([0], (scores >= floor).astype(np.int8), [0]))
    edges = np.flatnonzero(np.diff(padded))
    # A run begins at every other edge, and ends at the next one.
    runs = [
        (-float(scores[start:stop].max()), int(start), int(stop))
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]
    return [Span(start / rate, stop / rate) for _, start, stop in sorted(runs)]
