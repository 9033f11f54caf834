"""Videos with the steps that are to be found in them, from records or a public dataset and
features.

A video's features are read when its sample is asked for, and resized when a batch is made. A step
is at a fraction of the seconds that the features cover, since the network sees nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stepline.datasets import DATASETS
from stepline.errors import ShapeError
from stepline.features import FeatureStore
from stepline.models.procx.batch import StepSample
from stepline.models.procx.settings import DataSettings, StepSource
from stepline.models.training.batches import GatheredSamples
from stepline.models.training.sources import (
    ExcludedIds,
    Features,
    FeatureSpec,
    TrainingVideoFilter,
    format_reasons,
    parse_dataset_source,
    read_feature_spec,
)
from stepline.records import Record, Rejected, Step

MAX_HELD_OUT = 500  # samples that are scored
NO_STEP = "it has no step with a place and a text"
STEP_AFTER_END = "the step lies after what is seen"
NO_TEXT = "the step has no text"


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step to find.

    Attributes:
        start: start in seconds.
        end: end in seconds.
        text: sentence that describes the step.
    """

    start: float
    end: float
    text: str


def timed_steps(record: Record, settings: DataSettings) -> Iterator[TimedStep]:
    """Yield the steps of a record with their times, in its order.

    The steps are sentences of the narration, or steps. A step annotated by people gives one item
    per annotated span. A step written or swapped by Stepline gives one item: the best span in which
    it is shown, otherwise the span in which it is said.

    Args:
        record: a video with its steps.
        settings: which part of the record gives the steps, and their wording.
    """
    target = settings.target or "steps"
    if target == "narration":
        for sentence in record.sentences:
            yield TimedStep(sentence.span.start, sentence.span.end, sentence.text)
        return
    steps: tuple[Step, ...] = getattr(record, target)
    for step in steps:
        spoken = (*step.alternatives, step.text)[0]
        spans = step.spans
        if target == "steps":
            spans = spans[:1] or ((step.said,) if step.said else ())
        for span in spans:
            text = spoken if settings.wording == "said" else step.text
            yield TimedStep(span.start, span.end, text)


@dataclass(frozen=True, slots=True)
class PendingStepSample:
    """A training video whose features are not read yet.

    Attributes:
        video: id of the video.
        steps: its annotated steps.
    """

    video: str
    steps: tuple[TimedStep, ...]


class StepDataset(GatheredSamples[PendingStepSample, StepSample]):
    """Training videos whose features are read on access.

    Its `counts` are the numbers of steps. Its `lengths` are all 1, since features are resized to
    one length.
    """

    def __init__(
        self,
        parts: Sequence[PendingStepSample],
        features: Features,
        spec: FeatureSpec | None,
        omitted: Sequence[Rejected] = (),
    ) -> None:
        shards = []
        if isinstance(features, FeatureStore):
            shards = [features[part.video].shard for part in parts]
        super().__init__(self._read, [1] * len(parts), shards, parts, omitted)
        self._features = features
        self._spec = spec
        self.counts = tuple(len(part.steps) for part in parts)

    def _read(self, index: int) -> StepSample:
        part = self.parts[index]
        stored = self._features
        features = (
            stored.read(part.video) if isinstance(stored, FeatureStore) else stored[part.video]
        )
        return StepSample(
            part.video,
            features.values,
            features.duration,
            tuple((step.start, step.end) for step in part.steps),
            tuple(step.text for step in part.steps),
        )

    @property
    def spec(self) -> FeatureSpec:
        """Backbone, width and rate of the features. Raises ShapeError if the dataset is empty."""
        if self._spec is None or not self.parts:
            raise ShapeError(
                f"no video is left to train on: {format_reasons(self.omitted)}; fix the sources"
            )
        return self._spec

    def texts(self) -> Iterator[str]:
        """Yield the sentences of all steps, from which the vocabulary is made."""
        for part in self.parts:
            yield from (step.text for step in part.steps)

    def split(self, fraction: float) -> tuple["StepDataset", "StepDataset"]:
        """Return the training part and the held-out part of the dataset.

        fraction: share of the videos that is held out. The choice depends on the video ids only.
        """
        training, held_out = self.split_parts(fraction, MAX_HELD_OUT)
        return (
            StepDataset(training, self._features, self._spec, self.omitted),
            StepDataset(held_out, self._features, self._spec),
        )


def gather_samples(
    records: Iterable[Record],
    features: Features,
    settings: DataSettings = DataSettings(),
    *,
    excluded: ExcludedIds = frozenset(),
) -> StepDataset:
    """Return the training samples of records, one per video. Only the index of a feature store is
    read.

    Args:
        records: videos with their steps.
        features: a feature store, or feature sequences by video id.
        settings: `target` is the part of a record that gives the steps. None: its `steps`.
        excluded: ids of videos to leave out, such as those of a benchmark.
    """
    join = TrainingVideoFilter(
        features, slack=settings.slack, excluded=excluded, requires_same_rate=True
    )
    parts = []
    for record in records:
        video = record.video.id
        # Whether its features can be used.
        flaw = join.reason_to_omit(video, record.video.duration, key=video)
        steps = []
        if flaw is None:
            spec, rows = read_feature_spec(features, video)
            # Its steps, as far as the features reach: a step after them cannot be seen.
            seconds = rows / spec.rate
            for step in timed_steps(record, settings):
                start = f"{step.start:g} s"
                if not step.text.strip():
                    join.omit("step", video, (NO_TEXT, start), step.text)
                elif step.start >= seconds:
                    value = f"{start} of {seconds:g} s"
                    join.omit("step", video, (STEP_AFTER_END, value), step.text)
                else:
                    steps.append(step)
        if steps:
            parts.append(PendingStepSample(video, tuple(steps)))
        else:
            join.omit("video", video, flaw or (NO_STEP, ""))
    return StepDataset(parts, features, join.specs.get("video"), join.omitted)


STEP_SOURCES: dict[str, StepSource] = {
    "reference": "reference",
    "steps": "steps",
    "transcript": "narration",
}


def default_step_source(source: str) -> StepSource:
    """Return which part of a record gives the steps if no setting says so: the annotations of the
    source's dataset, otherwise the record's steps.

    source: source of the records, as `read_records` takes it.
    """
    dataset = parse_dataset_source(source)
    return "steps" if dataset is None else STEP_SOURCES[DATASETS[dataset[0]].record_field]
