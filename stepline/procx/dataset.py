"""Videos with the steps that are to be found in them, from records and features; what does not fit is told.

A video's features are read when its sample is looked at, resized when a batch is made. A step lies at a share of the
seconds that the features cover, since nothing else is seen.

What of a record is to be found in its video: spans with sentences, and what is said around them.

Where the steps that ProcX learns come from: records on disk, or a public dataset.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, overload

from stepline.datasets import DATASETS, stream
from stepline.datasets.excluded import Excluded
from stepline.errors import DatasetError, ShapeError
from stepline.features import FeatureStore
from stepline.procx.batch import StepSample
from stepline.procx.settings import DataSettings, StepSource, TextChoice
from stepline.records import FeatureSequence, Record, Rejected, Sentence, Span, Step, count_reasons
from stepline.storage import read_parquet, read_record


@dataclass(frozen=True, slots=True)
class Event:
    """Seconds of a video, and the sentences that are right for them, the one to be said first."""

    start: float
    end: float
    texts: tuple[str, ...]


def record_events(record: Record, settings: DataSettings) -> Iterator[Event]:
    """Yield what is to be found, in the record's order: as many events as a step of people has spans.

    A step that Stepline wrote or swapped has one, the best where it is shown, else where it is said.
    """
    target = settings.target or "steps"
    if target == "narration":
        for sentence in record.transcript.sentences if record.transcript else ():
            yield Event(sentence.span.start, sentence.span.end, (sentence.text,))
        return
    told: tuple[Step, ...] = getattr(record, target)
    for step in told:
        for span in _places(step) if target == "steps" else step.spans:
            yield Event(span.start, span.end, _wordings(step, settings.wording))


def speech_window(sentences: Iterable[Sentence], around: float, start: float, end: float) -> str:
    """Return what is said from `around` seconds before the start until as many after the end, as one text."""
    near = (one.text for one in sentences if one.span.end > start - around and one.span.start < end + around)
    return " ".join(near)


def _places(step: Step) -> tuple[Span, ...]:
    return step.spans[:1] or ((step.said,) if step.said is not None else ())


def _wordings(step: Step, wording: TextChoice) -> tuple[str, ...]:
    if wording == "own":
        return (step.text,)
    if wording == "said":
        return ((*step.alternatives, step.text)[0],)
    return (step.text, *step.alternatives)


Features: TypeAlias = FeatureStore | Mapping[str, FeatureSequence]

NO_FEATURES = "there are no features of its video"
NO_ROWS = "its features hold no row"
OTHER_LENGTH = "its video and its features differ in length"
OTHER_KIND = "its features are of another kind than the first video's"
TWICE = "the video came before"
EXCLUDED = "it is excluded"
NO_STEP = "it has no step with a place and a text"
PAST = "the step lies after what is seen"
NO_TEXT = "the step has no text"


@dataclass(frozen=True)
class FeatureSpec:
    """What features are of: their width, their backbone, and rows a second."""

    width: int
    backbone: str
    rate: float


@dataclass(frozen=True, slots=True)
class _PendingSample:
    """A sample that is not read yet."""

    video: str
    events: tuple[Event, ...]
    sentences: tuple[Sentence, ...]


class StepDataset(Sequence[StepSample]):
    """Samples that are read when they are asked for. omitted: what is no sample, or not asked for, and why.

    kind: what the features of all of them are of; lengths: 1 each, since features are resized to one length.
    """

    def __init__(
        self,
        parts: Sequence[_PendingSample],
        features: Features,
        settings: DataSettings,
        kind: FeatureSpec | None,
        omitted: Sequence[Rejected] = (),
    ) -> None:
        self._parts, self._features, self._settings, self._kind = parts, features, settings, kind
        self.omitted = tuple(omitted)
        self.videos = tuple(part.video for part in parts)
        self.counts = tuple(len(part.events) for part in parts)
        self.lengths = [1] * len(parts)

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> StepSample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepSample]: ...
    def __getitem__(self, index: int | slice) -> StepSample | Sequence[StepSample]:
        """Return a sample as it is now. Raises ShapeError where its features hold NaN meanwhile."""
        if isinstance(index, slice):
            return [self._read(part) for part in self._parts[index]]
        return self._read(self._parts[index])

    def _read(self, part: _PendingSample) -> StepSample:
        found = read_features(self._features, part.video)
        spans = tuple((event.start, event.end) for event in part.events)
        around = self._settings.around
        said = tuple(speech_window(part.sentences, around, *span) for span in spans) if self._settings.speech else None
        return StepSample(
            part.video,
            found.values,
            found.duration,
            spans,
            tuple(event.texts[0] for event in part.events),
            said,
            tuple(event.texts[1:] for event in part.events),
        )

    @property
    def kind(self) -> FeatureSpec:
        """What the features are of. Raises ShapeError without any sample."""
        if self._kind is None or not self._parts:
            told = ", ".join(f"{count} x {reason}" for reason, count in self.reasons().items()) or "nothing was given"
            raise ShapeError(f"no video is left to train on: {told}; mend the sources")
        return self._kind

    def reasons(self) -> dict[str, int]:
        """Return how many were left out for each reason, the most frequent first."""
        return count_reasons(self.omitted)

    def texts(self) -> Iterator[str]:
        """Yield all that a vocabulary should hold: the steps' wordings, and what is said where that is read."""
        for part in self._parts:
            for event in part.events:
                yield from event.texts
            if self._settings.speech:
                yield from (sentence.text for sentence in part.sentences)

    def split(self, share: float) -> tuple["StepDataset", "StepDataset"]:
        """Return the samples to train on and those held out: a share of the videos, chosen by their ids alone."""
        held = [zlib.crc32(part.video.encode()) < share * 2**32 for part in self._parts]
        kept = [part for part, out in zip(self._parts, held, strict=True) if not out]
        rest = [part for part, out in zip(self._parts, held, strict=True) if out][: self._settings.held_out_most]
        given = (self._features, self._settings, self._kind)
        return StepDataset(kept, *given, self.omitted), StepDataset(rest, *given)


def gather_samples(
    records: Iterable[Record],
    features: Features,
    settings: DataSettings | None = None,
    *,
    excluded: Excluded | frozenset[str] = frozenset(),
) -> StepDataset:
    """Return what can be trained on, one sample a video. `settings.target` says what its steps are; None: `steps`.

    features: a store, or the features themselves, by the videos' ids. excluded: ids of videos that are left out (a
    benchmark's own). Nothing is read but the store's index.
    """
    gathering = _Gathering(features, settings or DataSettings(), excluded)
    for record in records:
        gathering.take(record)
    return StepDataset(gathering.parts, features, gathering.settings, gathering.kind, gathering.omitted)


def read_features(features: Features, video: str) -> FeatureSequence:
    """Return the features of a video. Raises StoreError where there are none, ShapeError for NaN."""
    return features.read(video) if isinstance(features, FeatureStore) else features[video]


class _Gathering:
    def __init__(self, features: Features, settings: DataSettings, excluded: Excluded | frozenset[str]) -> None:
        self._features, self.settings, self._excluded = features, settings, excluded
        self._seen: set[str] = set()
        self.kind: FeatureSpec | None = None
        self.parts: list[_PendingSample] = []
        self.omitted: list[Rejected] = []

    def take(self, record: Record) -> None:
        """Add a video, or note why not."""
        video = record.video.id
        flaw = self._flaw(record)
        if flaw is not None:
            reason, value = flaw
            self.omitted.append(Rejected("video", reason, id=video, value=value))
            return
        seconds = self._seconds(video)
        asked: list[Event] = []
        for event in record_events(record, self.settings):
            text = event.texts[0]
            if not text.strip():
                self.omitted.append(Rejected("step", NO_TEXT, text=text, id=video, value=f"{event.start:g} s"))
            elif event.start >= seconds:
                value = f"{event.start:g} s of {seconds:g} s"
                self.omitted.append(Rejected("step", PAST, text=text, id=video, value=value))
            else:
                asked.append(event)
        if not asked:
            self.omitted.append(Rejected("video", NO_STEP, id=video))
            return
        said = record.transcript.sentences if record.transcript and self.settings.speech else ()
        self.parts.append(_PendingSample(video, tuple(asked), said))

    def _flaw(self, record: Record) -> tuple[str, str] | None:
        video, stated = record.video.id, record.video.duration
        if video in self._seen:
            return TWICE, ""
        self._seen.add(video)
        if video in self._excluded:
            return EXCLUDED, ""
        if video not in self._features:
            return NO_FEATURES, ""
        kind, rows = self._facts(video)
        if not rows:
            return NO_ROWS, ""
        if stated is not None and abs(stated - rows / kind.rate) > self.settings.slack:
            return OTHER_LENGTH, f"{stated:g} s and {rows / kind.rate:g} s"
        self.kind = self.kind or kind
        return None if kind == self.kind else (OTHER_KIND, f"{kind}, not {self.kind}")

    def _facts(self, video: str) -> tuple[FeatureSpec, int]:
        found = self._features[video]
        if isinstance(found, FeatureSequence):
            return FeatureSpec(found.values.shape[1], found.backbone, found.rate), len(found.values)
        return FeatureSpec(found.width, found.backbone, found.rate), found.rows

    def _seconds(self, video: str) -> float:
        kind, rows = self._facts(video)
        return rows / kind.rate


GIVES: dict[str, StepSource] = {"reference": "reference", "steps": "steps", "transcript": "narration"}


@dataclass(frozen=True)
class RecordSource:
    """Records (.parquet, .json or a folder of them), or NAME:PATH of a public dataset; subset: only its split."""

    place: str
    subset: str | None = None

    @property
    def _dataset(self) -> tuple[str, Path] | None:
        name, colon, path = self.place.partition(":")
        return (name, Path(path)) if colon and name in DATASETS else None

    @property
    def target(self) -> StepSource:
        """What of its records are the steps, where nobody says it: what people annotated, else what they give."""
        return GIVES[DATASETS[self._dataset[0]].gives] if self._dataset else "steps"

    def records(self) -> Iterator[Record]:
        """Yield the records. Raises DatasetError or StoreError where there are none, or a subset of mere records."""
        if self._dataset is not None:
            name, path = self._dataset
            found = (entry.record for entry in stream(name, path, subset=self.subset) if entry.record is not None)
            yield from found
            return
        if self.subset is not None:
            raise DatasetError(f"{self.place}: records know no subset {self.subset!r}; leave --subset out")
        for file in _files(Path(self.place)):
            if file.suffix == ".parquet":
                yield from read_parquet(file)
            else:
                yield read_record(file)


def _files(path: Path) -> list[Path]:
    files = sorted((*path.glob("*.parquet"), *path.glob("*.json"))) if path.is_dir() else [path]
    if not files or not path.exists():
        known = "records (.parquet, .json or a folder of them), or NAME:PATH of `stepline datasets`"
        raise DatasetError(f"{path}: no steps to train on; give {known}")
    return files
