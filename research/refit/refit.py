"""A refit of grounding and judge to videos that people corrected: few parameters, shrunk hard, held
out by source.

    placing   the settings of `GROUND_PARAMETERS`: P(shown) before evidence, the lag of pictures
              behind words, the length of spans
    judge     the three weights of P(the picture shows it) of a sentence (wys2/judge.py)

Maximum a posteriori: each parameter has a normal prior around its default, on the scale that
`Parameter` names. A step adds -log P(its verdict) and 1 - tIoU of its span. Sources are held
out in turn (leave one source out, at most `MAX_FOLDS` folds). A part is accepted where its held-out
loss falls, by a bootstrap over sources, and no figure with it. Letters: V videos, N steps or
sentences of all videos.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import (
    Floats,
    Ratio,
    interval,
    over_sources,
    point_estimate,
    resample,
)
from stepline.grounding.settings import GroundSettings
from stepline.models.nasva.settings import NasvaSettings
from stepline.models.wys2.judge import (
    grounding_evidence,
    judge_rows,
    judged_span,
    regression_weights,
)
from stepline.numeric import fit_logistic_weights
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Span, Step, Transcript
from stepline.text.embedding import embedded_once

# of all parameters, in standard deviations of their priors. 0 is the default
Point: TypeAlias = tuple[float, ...]
Part: TypeAlias = Literal["placing", "judge"]
Sums: TypeAlias = Sequence[Mapping[str, float]]  # of each video
ReportMessage: TypeAlias = Callable[[str], None]

MIN_VIDEOS = 5  # corrected
MIN_SOURCES = 3
MAX_FOLDS = 10
# standard deviations of the prior that are tried
GRID_DEVIATIONS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)
# by which the best second may miss a span of people, whose edges are not finer
SLACK_SECONDS = 1.0
# s of a sentence's clip that must show its step, as the judge that is shipped was fitted
MIN_OVERLAP_SECONDS = 0.5
MIN_PROBABILITY = 1e-3  # of a probability in a logarithm
JUDGE_SPREAD = 1.0  # standard deviation of the prior of each of the judge's weights, nats
MAX_JUDGE_CHANGE = 1.0  # of a weight in one step of the fit, nats; it ends in six steps


@dataclass(frozen=True)
class Parameter:
    """A setting of nasva.ground: on `scale` its prior is normal around the default, `spread`
    wide."""

    name: str
    scale: Literal["linear", "log", "logit"]
    spread: float

    def value(self, default: float, z: float) -> float:
        """Return the setting that lies z standard deviations from its default, with four
        decimals."""
        x = z * self.spread
        if self.scale == "linear":
            return round(default + x, 4)
        if self.scale == "log":
            return round(default * math.exp(x), 4)
        return round(1 / (1 + (1 - default) / default * math.exp(-x)), 4)


GROUND_PARAMETERS = (
    Parameter("shown_rate", "logit", 0.5),
    Parameter("shown_rate_shots", "logit", 0.5),
    Parameter("wording", "logit", 0.5),
    Parameter("lag_usual", "linear", 0.5),  # s
    Parameter("typical", "log", 0.3),
    Parameter("grow", "logit", 0.4),
)
DEFAULT_POINT: Point = (0.0,) * len(GROUND_PARAMETERS)
STEP_LOSS = "loss a step"
SENTENCE_LOSS = "loss a sentence"


@dataclass(frozen=True)
class CorrectedVideo:
    """A video that people corrected. machine: its record. truth: as they left it. pictures: what
    the video shows.

    source: who made it, or the folder that it is in, or itself: sources are held out whole.
    """

    machine: Record
    truth: Record
    pictures: VisualFeatures
    source: str

    def step_labels(self) -> list[tuple[int, bool, Span | None]]:
        """Return the indices of the machine's steps that people judged or left, whether shown, and
        where."""
        final = {step.id: step for step in self.truth.steps}
        labels: list[tuple[int, bool, Span | None]] = []
        for index, step in enumerate(self.machine.steps):
            corrected = final.get(step.id)
            if corrected is None or corrected.status not in ("shown", "said", "not found"):
                continue
            is_shown = corrected.status == "shown"
            span = corrected.spans[0] if is_shown and corrected.spans else None
            labels.append((index, is_shown, span))
        return labels

    def sentence_labels(self) -> Floats:
        """Return 1.0 for each sentence (S,) whose clip shows a step that rests on it."""
        labels = np.zeros(len(self.machine.sentences))
        for step in self.truth.steps:
            if step.status != "shown" or not step.spans:
                continue
            for source in step.sources:
                clip = judged_span(self.machine.sentences[source].span)
                if clip.overlap(step.spans[0]) >= MIN_OVERLAP_SECONDS:
                    labels[source] = 1.0
        return labels


@dataclass(frozen=True)
class VideoOutcome:
    """What the parameters make of one video: sums over its labelled steps, and the judge's
    evidence.

    rows: (S, 3) of its sentences. labels: (S,) their truth.
    """

    sums: Mapping[str, float]
    rows: Floats
    labels: Floats


def ground_settings(point: Point, base: GroundSettings) -> GroundSettings:
    """Return the settings at a point around the defaults of the package. What is not a parameter is
    the base's."""
    usual = GroundSettings()
    values = {}
    for parameter, z in zip(GROUND_PARAMETERS, point, strict=True):
        default = getattr(usual, parameter.name)
        values[parameter.name] = parameter.value(default, z) if z else default
    return base.model_copy(update=values)


def outcome(video: CorrectedVideo, settings: GroundSettings, *, seconds: float) -> VideoOutcome:
    """Return what settings of grounding make of a video. seconds: of the clip in which a sentence
    is judged."""
    machine = video.machine
    transcript = machine.transcript or Transcript()
    grounding = ground_steps(
        [_unplaced(step) for step in machine.steps],
        machine.video.duration or 0.0,
        transcript,
        video.pictures,
        StepsSettings(nasva=NasvaSettings(ground=settings)),
        written=not machine.recipe,
    )
    sums = dict.fromkeys(("steps", "right", "shown", "at", "tIoU", STEP_LOSS), 0.0)
    for index, is_shown, span in video.step_labels():
        step = grounding.steps[index]
        p = min(max(step.score or 0.0, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
        sums["steps"] += 1
        sums["right"] += (step.status == "shown") == is_shown
        sums[STEP_LOSS] -= math.log(p if is_shown else 1 - p)
        if span is not None:
            iou = step.spans[0].iou(span) if step.spans else 0.0
            sums["shown"] += 1
            sums["at"] += step.at is not None and span.gap(step.at) <= SLACK_SECONDS
            sums["tIoU"] += iou
            sums[STEP_LOSS] += 1 - iou
    evidence = grounding_evidence(transcript, grounding.steps, grounding.alignment, seconds=seconds)
    return VideoOutcome(sums, judge_rows(*evidence), video.sentence_labels())


def _unplaced(step: Step) -> Step:
    return Step(id=step.id, text=step.text, kind=step.kind, said=step.said, sources=step.sources)


def fit_judge(rows: Floats, labels: Floats, usual: Floats) -> Floats:
    """Return the judge's weights (3,), the most likely under a normal prior around the usual ones.

    rows: (N, 3) of sentences. labels: (N,) their truth.
    """
    return fit_logistic_weights(
        rows,
        labels,
        prior_mean=usual,
        prior_precision=np.eye(3) / JUDGE_SPREAD**2,
        max_change=MAX_JUDGE_CHANGE,
    )


def _refit_judge(outcomes: Sequence[VideoOutcome]) -> Floats:
    rows = np.concatenate([video.rows for video in outcomes])
    labels = np.concatenate([video.labels for video in outcomes])
    return fit_judge(rows, labels, regression_weights("grounding"))


def judge_sums(video: VideoOutcome, weights: Floats) -> dict[str, float]:
    """Return sums over a video's sentences: how many, rightly judged at P = .5, and -log P."""
    is_shown = video.labels > 0
    p = 1 / (1 + np.exp(-(video.rows @ weights)))
    p = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    loss = -np.where(is_shown, np.log(p), np.log(1 - p)).sum()
    right = ((p >= 0.5) == is_shown).sum()
    return {"sentences": float(len(p)), "judged": float(right), SENTENCE_LOSS: float(loss)}


class PlacingFit:
    """The fit of `GROUND_PARAMETERS` to videos. What a point makes of a video is computed once, whichever
    videos it is fitted to.

    base: the settings that what is not a parameter comes from.
    """

    def __init__(
        self,
        videos: Sequence[CorrectedVideo],
        base: StepsSettings,
        report: ReportMessage | None = None,
    ) -> None:
        self.videos = videos
        self.base = base
        self._report = report
        self._outcomes: dict[tuple[int, Point], VideoOutcome] = {}

    def outcome(self, video: int, point: Point) -> VideoOutcome:
        """Return what a point makes of a video."""
        if (video, point) not in self._outcomes:
            settings = ground_settings(point, self.base.nasva.ground)
            seconds = self.base.judge.seconds
            self._outcomes[video, point] = outcome(self.videos[video], settings, seconds=seconds)
        return self._outcomes[video, point]

    def cost(self, videos: Sequence[int], point: Point) -> float:
        """Return the negative log posterior of a point, less a constant."""
        loss = sum(self.outcome(video, point).sums[STEP_LOSS] for video in videos)
        return loss + 0.5 * sum(z * z for z in point)

    def fit(self, videos: Sequence[int]) -> Point:
        """Return the best point found: each parameter alone, then the gains together, the greatest
        first."""
        best = DEFAULT_POINT
        least = self.cost(videos, DEFAULT_POINT)

        # each parameter alone
        gains = []
        for parameter in range(len(GROUND_PARAMETERS)):
            costs = []
            for z in GRID_DEVIATIONS:
                costs.append((self.cost(videos, _at(DEFAULT_POINT, parameter, z)), z))
            cost, z = min(costs)
            if cost < least:
                gains.append((cost, z, parameter))

        # the gains together
        for _, z, parameter in sorted(gains):
            point = _at(best, parameter, z)
            cost = self.cost(videos, point)
            if cost < least:
                best = point
                least = cost
        if self._report is not None:
            self._report(f"{len(videos)} videos fitted")
        return best


def _at(point: Point, parameter: int, z: float) -> Point:
    return (*point[:parameter], z, *point[parameter + 1 :])


@dataclass(frozen=True)
class Figure:
    """A figure of held-out videos before and after, and the difference with its 95 % interval over
    sources."""

    name: str
    before: float
    after: float
    low: float
    high: float
    of: int

    @property
    def change(self) -> float:
        """After less before."""
        return self.after - self.before


@dataclass(frozen=True)
class Refit:
    """What a refit has come to. settings: those to write, by section. Nothing where all was
    refused.

    refusals: by part, why. figures: by part, of videos that were held out.
    """

    videos: int
    sources: int
    figures: Mapping[Part, Sequence[Figure]] = field(default_factory=dict)
    refusals: Mapping[Part, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, float | list[float]]] = field(default_factory=dict)


def refit(
    videos: Sequence[CorrectedVideo],
    base: StepsSettings | None = None,
    report: ReportMessage | None = None,
) -> Refit:
    """Return what corrections teach: parameters fitted to all videos, and how the fit does on those
    held out.

    base: the settings in use, which `before` is measured with. Raises DatasetError for too few
    videos or sources.
    """
    if base is None:
        base = StepsSettings()
    sources = [video.source for video in videos]
    source_count = len(set(sources))
    if len(videos) < MIN_VIDEOS or source_count < MIN_SOURCES:
        counts = f"{len(videos)} corrected videos of {source_count} sources"
        raise DatasetError(f"{counts}; a refit needs {MIN_VIDEOS} of {MIN_SOURCES}: correct more")
    with embedded_once():
        fitting = PlacingFit(videos, base, report)
        seconds = base.judge.seconds
        base_outcomes = [outcome(video, base.nasva.ground, seconds=seconds) for video in videos]
        before, after = _held_out_sums(fitting, base_outcomes, sources)
        point = fitting.fit(range(len(videos)))
        weights = _refit_judge(base_outcomes)

    # what the held-out videos refuse
    figures = _figures(before, after, sources)
    refusals = {}
    for part, rows in figures.items():
        reason = refusal(rows)
        if reason is not None:
            refusals[part] = reason

    settings: dict[str, Mapping[str, float | list[float]]] = {}
    if "placing" not in refusals:
        settings["nasva.ground"] = _changed_settings(point, base.nasva.ground)
    if "judge" not in refusals:
        settings["judge"] = {"weights": [round(float(weight), 4) for weight in weights]}
    return Refit(len(videos), source_count, figures, refusals, settings)


def _held_out_sums(
    fitting: PlacingFit, base_outcomes: Sequence[VideoOutcome], sources: Sequence[str]
) -> tuple[Sums, Sums]:
    """Return the sums of each video: with the settings in use, and fitted to the other folds."""
    base_weights = _judge_weights(fitting.base)
    before: list[Mapping[str, float]] = [{}] * len(sources)
    after: list[Mapping[str, float]] = [{}] * len(sources)
    for train, test in _folds(sources):
        point = fitting.fit(train)
        weights = _refit_judge([base_outcomes[video] for video in train])
        for video in test:
            base_outcome = base_outcomes[video]
            placed = fitting.outcome(video, point)
            before[video] = {**base_outcome.sums, **judge_sums(base_outcome, base_weights)}
            after[video] = {**placed.sums, **judge_sums(base_outcome, weights)}
    return before, after


def _changed_settings(point: Point, base: GroundSettings) -> dict[str, float | list[float]]:
    settings = ground_settings(point, base)
    values = {}
    for parameter, z in zip(GROUND_PARAMETERS, point, strict=True):
        if z:
            values[parameter.name] = getattr(settings, parameter.name)
    return values


def held_out_figures(
    videos: Sequence[CorrectedVideo], before: StepsSettings, after: StepsSettings
) -> dict[Part, Sequence[Figure]]:
    """Return what settings do to corrected videos that they were not fitted to, next to what others
    do."""
    with embedded_once():
        before_sums = [_sums(video, before) for video in videos]
        after_sums = [_sums(video, after) for video in videos]
        return _figures(before_sums, after_sums, [video.source for video in videos])


def _sums(video: CorrectedVideo, settings: StepsSettings) -> Mapping[str, float]:
    result = outcome(video, settings.nasva.ground, seconds=settings.judge.seconds)
    return {**result.sums, **judge_sums(result, _judge_weights(settings))}


def _judge_weights(settings: StepsSettings) -> Floats:
    return np.array(settings.judge.weights or regression_weights("grounding"))


def _figures(before: Sums, after: Sums, sources: Sequence[str]) -> dict[Part, Sequence[Figure]]:
    return {
        "placing": [
            _figure("shown or only said, rightly", "right", "steps", before, after, sources),
            _figure("best second right", "at", "shown", before, after, sources),
            _figure("tIoU of the span", "tIoU", "shown", before, after, sources),
            _figure(STEP_LOSS, STEP_LOSS, "steps", before, after, sources),
        ],
        "judge": [
            _figure("sentences judged rightly", "judged", "sentences", before, after, sources),
            _figure(SENTENCE_LOSS, SENTENCE_LOSS, "sentences", before, after, sources),
        ],
    }


def refusal(rows: Sequence[Figure]) -> str | None:
    """Return why a part is refused: its loss, the last figure, does not surely fall, or another
    figure is worse."""
    *others, loss = rows
    if not loss.high < 0:
        change = f"{loss.change:+.3f} [{loss.low:+.3f}, {loss.high:+.3f}]"
        return f"the held-out loss does not surely fall ({change})"
    for row in others:
        if row.change < 0:
            return f"{row.name} falls by {-row.change:.3f} on held-out videos"
    return None


def _folds(sources: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the videos to fit to and those held out. All videos of a source are held out
    together."""
    # so that folds are of like size
    names = sorted(set(sources), key=lambda name: (-sources.count(name), name))
    fold_of = {name: number % MAX_FOLDS for number, name in enumerate(names)}
    for fold in range(min(MAX_FOLDS, len(names))):
        train: list[int] = []
        test: list[int] = []
        for video, name in enumerate(sources):
            part = test if fold_of[name] == fold else train
            part.append(video)
        yield train, test


def _figure(
    name: str, hits: str, of: str, before: Sums, after: Sums, sources: Sequence[str]
) -> Figure:
    totals = np.array([row[of] for row in before])
    before_ratio = Ratio(np.array([row[hits] for row in before]), totals)
    after_ratio = Ratio(np.array([row[hits] for row in after]), totals)
    draws = resample(
        {"before": over_sources(before_ratio, sources), "after": over_sources(after_ratio, sources)}
    )
    low, high = interval(draws["after"] - draws["before"])
    return Figure(
        name=name,
        before=point_estimate(before_ratio),
        after=point_estimate(after_ratio),
        low=low,
        high=high,
        of=int(totals.sum()),
    )
