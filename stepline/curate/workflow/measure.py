"""A trained network against what needs no training, on held-out videos that people reviewed.

    nasva    R@1: a step that people saw in some clip counts as right where they saw it in the seconds it is given
             (IoU 0.5 with a clip that they confirmed); against the grounding, which trains nothing
    wys2     ROC-AUC of P(shown) against people's answers where the grounding places a step; against the grounding's
    procx    SODA-D of the spans against those that people confirmed; against even parts of the video

A step that is placed where no one was asked yet is unanswered: its clip joins the queue. A gain
counts where its 95 % interval, videos drawn again, is above 0.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.curate.workflow.amounts import NetworkName
from stepline.curate.workflow.curation import Curation
from stepline.curate.workflow.queue import SAME_PLACE_IOU, ReviewPlace, place_of, step_places
from stepline.curate.workflow.review import Review, reviewed_record
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Ratio, Statistic, interval, point_estimate, resample
from stepline.evaluate.events import Event
from stepline.evaluate.ranking import RocAuc
from stepline.evaluate.soda import soda
from stepline.features import FeatureStore
from stepline.models.training.sources import text_encoder
from stepline.records import Record, Span, Step

# Record id -> its steps where a network has them.
PlacedSteps: TypeAlias = Mapping[str, Sequence[Step]]
PER_CENT = 100.0


@dataclass(frozen=True)
class Measure:
    """The scores of a network and of its baseline on held-out videos, in per cent.

    items: steps or clips that are scored, of `videos` videos. low, high: the 95 % interval of the
    gain. NaN where nothing can be scored.
    """

    network: NetworkName
    metric: str
    baseline_name: str
    items: int
    videos: int
    score: float
    baseline: float
    low: float
    high: float

    @property
    def gain(self) -> float:
        """The score less the baseline's."""
        return self.score - self.baseline

    @property
    def is_better(self) -> bool:
        """Whether the gain is certain."""
        return self.low > 0

    def __str__(self) -> str:
        """Return it in one line, with the verdict."""
        if math.isnan(self.gain):
            same = f"no held-out clip shows a difference from {self.baseline_name}"
            return f"{self.network} is refused: {same}"
        scores = f"{self.metric} {self.score:.1f} against {self.baseline:.1f}, {self.baseline_name}"
        where = f"on {self.items:,} held-out items of {self.videos:,} videos"
        gain = f"{self.gain:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        if self.is_better:
            return f"{self.network} is recommended: {scores}, {where}: {gain}"
        reason = "its gain may be none"
        if self.high < 0:
            reason = "it is worse"
        elif math.isnan(self.low):
            reason = "one video cannot tell"
        return f"{self.network} is refused, {reason}: {scores}, {where}: {gain}"


@dataclass(frozen=True)
class SplitForTest:
    """The videos on which networks are measured: their records as machines have them, and what
    people said."""

    records: Sequence[Record]
    curation: Curation
    review: Review
    seed: int

    def measure(self, network: NetworkName, run: Path, placements: PlacedSteps) -> Measure:
        """Return the measure of a network's run. placements: their steps where an aligner has them.

        Raises DatasetError where the videos have no features.
        """
        features = self.curation.features
        if features is None:
            raise DatasetError(f"{self.curation.folder}: no features; give videos with pictures")
        if network == "nasva":
            return measure_aligner(self.records, placements, self.review, seed=self.seed)
        if network == "wys2":
            return measure_detector(self.records, run, features, self.review, seed=self.seed)
        # A captioner is scored against what people confirmed.
        records = [reviewed_record(record, self.review) for record in self.records]
        step_counts = [len(record.steps) for record in self.curation.records]
        mean = sum(step_counts) / len(step_counts)
        return measure_captioner(records, run, features, steps_a_video=mean, seed=self.seed)


def place_by_aligner(
    records: Iterable[Record], folder: Path, features: FeatureStore, encoder: str
) -> dict[str, tuple[Step, ...]]:
    """Return the steps of records where a trained aligner has them, as `steps --aligner` does."""
    from stepline.models.nasva.checkpoint import load_aligner
    from stepline.models.nasva.predict import ground_by_aligner

    # Each held-out video, placed as `stepline steps --aligner` places it.
    loaded = load_aligner(folder)
    encode = text_encoder(encoder)
    placements = {}
    for record in records:
        if not record.steps or record.id not in features:
            continue
        texts = [step.text for step in record.steps]
        vectors = encode(texts)
        rows = features.read(record.id)
        duration = record.video.duration
        grounding = ground_by_aligner(record.steps, loaded, rows, vectors, duration=duration)
        placements[record.id] = grounding.steps
    return placements


def unanswered_places(
    records: Iterable[Record], placements: PlacedSteps, places: Sequence[ReviewPlace]
) -> list[ReviewPlace]:
    """Return where a network places steps of reviewed videos in seconds that no one is asked
    about."""
    # The places that people were asked about, by video and step.
    reviewed = set()
    places_by_step: dict[tuple[str, str], list[ReviewPlace]] = {}
    for place in places:
        reviewed.add(place.video)
        key = (place.video, place.step)
        places_by_step.setdefault(key, []).append(place)
    missing = []
    for record in records:
        if record.id not in reviewed:
            continue
        # Of two steps of one id the first counts.
        own_steps = {step.id: step for step in reversed(record.steps)}
        for step in placements.get(record.id, ()):
            if not step.spans:
                continue
            span = step.spans[0]
            others = places_by_step.get((record.id, step.id), [])
            if not any(place.is_near(span) for place in others):
                own_step = own_steps[step.id]
                missing.append(place_of(record, own_step, span))
    return missing


def measure_aligner(
    records: Iterable[Record], placements: PlacedSteps, review: Review, *, seed: int
) -> Measure:
    """Return R@1 of a network and of the records' own places, over the steps that people saw."""
    # Hits of a video by the network and by the record, and the steps that both are asked about.
    network_hits: list[int] = []
    record_hits: list[int] = []
    totals: list[int] = []
    for record in records:
        placed_steps = placements.get(record.id, ())
        network = {step.id: step.spans[:1] for step in placed_steps}
        network_count = 0
        record_count = 0
        count = 0
        for step in record.steps:
            verdicts = review.of_step(record.id, step.id)
            # Only a step that people saw somewhere can be placed rightly.
            if not any(is_shown for _, is_shown in verdicts):
                continue
            by_network = _verdict(network.get(step.id, ()), verdicts)
            by_record = _verdict(step.spans[:1], verdicts)
            # Both are asked about the same steps, so that they can be compared.
            if by_network is not None and by_record is not None:
                count += 1
                network_count += by_network
                record_count += by_record
        if count:
            network_hits.append(network_count)
            record_hits.append(record_count)
            totals.append(count)
    below = np.array(totals, dtype=np.float64)
    network_above = np.array(network_hits, dtype=np.float64)
    record_above = np.array(record_hits, dtype=np.float64)
    own = Ratio(network_above, below)
    baseline = Ratio(record_above, below)
    return _measure("nasva", "R@1", "the grounding", (own, baseline), seed)


def _verdict(spans: Sequence[Span], verdicts: Sequence[tuple[Span, bool]]) -> bool | None:
    """Return whether people saw the step in its first span: not where it has none. None where no
    one was asked about these seconds, or as many said no."""
    if not spans:
        return False
    # The nearest place that people were asked about answers for this one.
    near = []
    for span, is_shown in verdicts:
        iou = span.iou(spans[0])
        near.append((iou, is_shown))
    iou, is_shown = max(near)
    if iou < SAME_PLACE_IOU:
        return None
    return is_shown


def measure_detector(
    records: Iterable[Record], folder: Path, features: FeatureStore, review: Review, *, seed: int
) -> Measure:
    """Return ROC-AUC of a detector and of the grounding's P(shown), over the clips with a verdict
    in which the grounding places a step."""
    from stepline.models.wys2.benchmark import load_for_benchmarks

    loaded = load_for_benchmarks(folder)
    by_video: dict[str, list[ReviewPlace]] = {}
    for record in records:
        if record.id not in features:
            continue
        for place in step_places(record, is_held_out=False):
            if review.verdicts.get(place.id) is not None:
                by_video.setdefault(record.id, []).append(place)
    # P(shown) of each clip by the detector and by the grounding.
    labels: list[float] = []
    scores: list[float] = []
    baselines: list[float] = []
    video: list[int] = []
    for number, (name, places) in enumerate(by_video.items()):
        rows = features.read(name)
        texts = [place.text for place in places]
        spans = [place.span for place in places]
        vectors = loaded.encode(texts)
        scores += loaded.score(rows, spans, vectors).tolist()
        for place in places:
            baselines.append(place.p)
            is_shown = review.verdicts[place.id] is True
            labels.append(float(is_shown))
            video.append(number)
    # Both areas, over the same clips.
    truth = np.array(labels, dtype=np.float64)
    index = np.array(video, dtype=np.int64)
    count = len(by_video)
    own = RocAuc(truth, np.array(scores), index, count)
    baseline = RocAuc(truth, np.array(baselines), index, count)
    return _measure("wys2", "ROC-AUC", "the grounding's P(shown)", (own, baseline), seed)


def measure_captioner(
    records: Sequence[Record],
    folder: Path,
    features: FeatureStore,
    *,
    steps_a_video: float,
    seed: int,
) -> Measure:
    """Return SODA-D of a captioner's spans and of even parts, against the spans that people
    confirmed.

    records: reviewed ones. steps_a_video: of the videos it was trained on, as many parts.
    """
    from stepline.models.procx.checkpoint import load_model
    from stepline.models.procx.inference import describe

    # Spans of the confirmed steps, of the network, and of even parts.
    loaded = load_model(folder)
    truth: dict[str, list[Event]] = {}
    descriptions: dict[str, list[Event]] = {}
    parts: dict[str, list[Event]] = {}
    count = max(1, round(steps_a_video))
    for record in records:
        confirmed = _events(record.reference)
        if not confirmed or record.id not in features:
            continue
        rows = features.read(record.id)
        duration = record.video.duration or rows.duration
        description = describe(loaded.model, loaded.vocabulary, rows, duration=duration)
        truth[record.id] = confirmed
        descriptions[record.id] = _events(description.steps)
        # A baseline that sees nothing: parts of the same length.
        bounds = np.linspace(0.0, duration, count + 1)
        even_parts = pairwise(bounds.tolist())
        parts[record.id] = [(start, end, "") for start, end in even_parts]
    own = _mean_soda(truth, descriptions)
    baseline = _mean_soda(truth, parts)
    return _measure("procx", "SODA-D", "even parts", (own, baseline), seed)


def _events(steps: Iterable[Step]) -> list[Event]:
    """Return the best span of each step that has one, without its text."""
    events: list[Event] = []
    for step in steps:
        if step.spans:
            span = step.spans[0]
            events.append((span.start, span.end, ""))
    return events


def _mean_soda(truth: Mapping[str, list[Event]], events: Mapping[str, list[Event]]) -> Ratio:
    """Return the mean F1 of SODA-D over videos, which can be drawn again."""
    scores = []
    if truth:
        per_video = soda(truth, events, kind="d").per_video
        for name in sorted(truth):
            _, _, f1 = per_video[name]
            scores.append(f1)
    # A ratio over videos, each with one F1, so that videos can be drawn again.
    above = np.array(scores, dtype=np.float64)
    below = np.ones(len(scores))
    return Ratio(above, below)


def _measure(
    network: NetworkName, metric: str, baseline: str, scores: tuple[Statistic, Statistic], seed: int
) -> Measure:
    """Return the measure of a network's score and its baseline's, over the same videos."""
    own, other = scores
    low = high = math.nan
    if not own.items:
        return Measure(network, metric, baseline, 0, 0, math.nan, math.nan, low, high)
    draws = resample({"network": own, "baseline": other}, seed=seed)
    # One video alone has no interval.
    if own.videos > 1:
        gains = draws["network"] - draws["baseline"]
        low, high = interval(PER_CENT * gains)
    return Measure(
        network=network,
        metric=metric,
        baseline_name=baseline,
        items=own.items,
        videos=own.videos,
        score=PER_CENT * point_estimate(own),
        baseline=PER_CENT * point_estimate(other),
        low=low,
        high=high,
    )
