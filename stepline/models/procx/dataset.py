"""Videos with the steps that are to be found in them, from records or a public dataset and
features.

A video's features are read when its sample is looked at, resized when a batch is made. Its texts
are in memory, packed until then. A step is placed at a fraction of the seconds that the features
cover, since nothing else is seen.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stepline.datasets import DATASETS
from stepline.errors import ShapeError
from stepline.features import FeatureStore
from stepline.models.procx.batch import StepSample
from stepline.models.procx.settings import DataSettings, StepSource
from stepline.models.training.batches import GatheredSamples
from stepline.models.training.sources import (
    ExcludedIds,
    FeatureJoin,
    Features,
    FeatureSpec,
    dataset_of,
    feature_spec,
    reasons_in_words,
)
from stepline.records import Record, Rejected, Sentence, Step


@dataclass(frozen=True, slots=True)
class Event:
    """Seconds of a video, and the sentences that are right for them, the one to be said first."""

    start: float
    end: float
    texts: tuple[str, ...]


def record_events(record: Record, settings: DataSettings) -> Iterator[Event]:
    """Yield what is to be found, in the record's order: as many events as a step of people has
    spans.

    A step that Stepline wrote or swapped has one, the best where it is shown, else where it is
    said.
    """
    target = settings.target or "steps"
    if target == "narration":
        for sentence in record.sentences:
            yield Event(sentence.span.start, sentence.span.end, (sentence.text,))
        return
    steps: tuple[Step, ...] = getattr(record, target)
    for step in steps:
        # the texts that are right for a step, the one to be said first
        texts = {
            "own": (step.text,),
            "said": ((*step.alternatives, step.text)[0],),
            "any": (step.text, *step.alternatives),
        }
        spans = step.spans
        if target == "steps":
            spans = step.spans[:1]
            if not spans and step.said is not None:
                spans = (step.said,)
        for span in spans:
            yield Event(span.start, span.end, texts[settings.wording])


TimedText: TypeAlias = tuple[float, float, str]  # start, end, and what is said there


def timed_texts(sentences: Iterable[Sentence]) -> list[TimedText]:
    """Return the seconds and the text of each sentence."""
    return [(line.span.start, line.span.end, line.text) for line in sentences]


def speech_window(speech: Iterable[TimedText], around: float, start: float, end: float) -> str:
    """Return what is said from `around` seconds before the start until as many after the end, as
    one text."""
    return " ".join(
        text for first, last, text in speech if last > start - around and first < end + around
    )


NO_STEP = "it has no step with a place and a text"
STEP_AFTER_END = "the step lies after what is seen"
NO_TEXT = "the step has no text"


@dataclass(frozen=True, slots=True)
class _PendingSample:
    """A sample that is not read yet.

    count: its events.
    packed: they and what is said, as compressed JSON.

    As objects the sentences of a video take twenty times the bytes, and NaSVA's 340,000 videos have
    34 million.
    """

    video: str
    count: int
    packed: bytes

    @classmethod
    def pack(
        cls, video: str, events: Sequence[Event], speech: Sequence[TimedText]
    ) -> "_PendingSample":
        plain_events = [(event.start, event.end, event.texts) for event in events]
        plain = json.dumps([plain_events, speech])
        return cls(video, len(events), zlib.compress(plain.encode()))

    def unpack(self) -> tuple[list[Event], list[TimedText]]:
        plain_events, speech = json.loads(zlib.decompress(self.packed))
        events = [Event(start, end, tuple(texts)) for start, end, texts in plain_events]
        return events, speech


class StepDataset(GatheredSamples[_PendingSample, StepSample]):
    """Samples that are read when they are asked for.

    counts: steps of each.
    spec: what the features of all of them are of.
    lengths: 1 each, since features are resized to one length.
    """

    def __init__(
        self,
        parts: Sequence[_PendingSample],
        features: Features,
        settings: DataSettings,
        spec: FeatureSpec | None,
        omitted: Sequence[Rejected] = (),
    ) -> None:
        shards = []
        if isinstance(features, FeatureStore):
            shards = [features[part.video].shard for part in parts]
        super().__init__(self._read, [1] * len(parts), shards, parts, omitted)
        self._features = features
        self._settings = settings
        self._spec = spec
        self.counts = tuple(part.count for part in parts)

    def _read(self, index: int) -> StepSample:
        part = self.parts[index]
        events, speech = part.unpack()
        # A video's features are read only here, when its sample is asked for.
        stored = self._features
        video = part.video
        features = stored.read(video) if isinstance(stored, FeatureStore) else stored[video]
        spans = tuple((event.start, event.end) for event in events)
        windows: tuple[str, ...] | None = None
        if self._settings.speech:
            around = self._settings.around
            windows = tuple(speech_window(speech, around, *span) for span in spans)
        return StepSample(
            part.video,
            features.values,
            features.duration,
            spans,
            sentences=tuple(event.texts[0] for event in events),
            speech=windows,
            alternatives=tuple(event.texts[1:] for event in events),
        )

    @property
    def spec(self) -> FeatureSpec:
        """What the features are of. Raises ShapeError without any sample."""
        if self._spec is None or not self.parts:
            raise ShapeError(
                f"no video is left to train on: {reasons_in_words(self.omitted)}; fix the sources"
            )
        return self._spec

    def texts(self) -> Iterator[str]:
        """Yield all that a vocabulary should hold: the steps' wordings, and what is said where that
        is read."""
        for part in self.parts:
            events, speech = part.unpack()
            for event in events:
                yield from event.texts
            yield from (text for _, _, text in speech)

    def split(self, fraction: float) -> tuple["StepDataset", "StepDataset"]:
        """Return the samples to train on and those held out: a fraction of the videos, chosen by
        their ids alone."""
        training, held_out = self.split_parts(fraction, self._settings.held_out_most)
        about = (self._features, self._settings, self._spec)
        return StepDataset(training, *about, self.omitted), StepDataset(held_out, *about)


def gather_samples(
    records: Iterable[Record],
    features: Features,
    settings: DataSettings | None = None,
    *,
    excluded: ExcludedIds = frozenset(),
) -> StepDataset:
    """Return what can be trained on, one sample per video.

    settings: `target` says what its steps are, None: `steps`.
    features: a store, or the features themselves, by the videos' ids. excluded: ids of videos that
    are left out (a benchmark's own). Nothing is read but the store's index.
    """
    settings = settings or DataSettings()
    join = FeatureJoin(features, slack=settings.slack, excluded=excluded, one_rate=True)
    parts = []
    for record in records:
        video = record.video.id
        # Whether its features can be used.
        flaw = join.flaw(video, record.video.duration, key=video)
        events = []
        if flaw is None:
            spec, rows = feature_spec(features, video)
            # Its steps, as far as the features reach: a step after them cannot be seen.
            seconds = rows / spec.rate
            for event in record_events(record, settings):
                text = event.texts[0]
                start = f"{event.start:g} s"
                if not text.strip():
                    join.omit("step", video, (NO_TEXT, start), text)
                elif event.start >= seconds:
                    value = f"{start} of {seconds:g} s"
                    join.omit("step", video, (STEP_AFTER_END, value), text)
                else:
                    events.append(event)
        if not events:
            join.omit("video", video, flaw or (NO_STEP, ""))
            continue
        # What is said, for networks that read it.
        speech = timed_texts(record.sentences) if settings.speech else []
        parts.append(_PendingSample.pack(video, events, speech))
    return StepDataset(parts, features, settings, join.specs.get("video"), join.omitted)


STEP_SOURCES: dict[str, StepSource] = {
    "reference": "reference",
    "steps": "steps",
    "transcript": "narration",
}


def steps_given_by(source: str) -> StepSource:
    """Return what of a source's records are the steps, where no one says it: what people annotated,
    else its steps."""
    dataset = dataset_of(source)
    return "steps" if dataset is None else STEP_SOURCES[DATASETS[dataset[0]].record_field]
