"""A refit of grounding and judge to videos that people corrected: few parameters, shrunk hard, held
out by source.

    placing   `GROUND`'s settings: P(shown) before evidence, the lag of pictures behind words, the length of spans
    judge     the three weights of P(the picture shows it) of a sentence (wys2/judge.py)

Maximum a posteriori: each parameter has a normal prior around its default, on the scale that
`Parameter` names. A step adds -log P(its verdict) and 1 - tIoU of its span. Sources are held
out in turn (leave one source out, at most `FOLDS` folds). A part is accepted where its held-out
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
from stepline.nasva.settings import NasvaSettings
from stepline.numeric import fit_logistic_weights
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Span, Step, Transcript
from stepline.text.embedding import embedded_once
from stepline.wys2.judge import grounding_evidence, judge_rows, judged_span, regression_weights

# of all parameters, in standard deviations of their priors. 0 is the default
Point: TypeAlias = tuple[float, ...]
Part: TypeAlias = Literal["placing", "judge"]
Told: TypeAlias = Callable[[str], None]

LEAST_VIDEOS, LEAST_SOURCES = 5, 3
FOLDS = 10
GRID = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)  # standard deviations of the prior that are tried
SLACK = 1.0  # s by which the best second may miss a span of people; their edges are not finer
# s of a sentence's clip that must show its step, as the judge that is shipped was fitted
OVERLAP = 0.5
SURE = 1e-3  # of a probability in a logarithm
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


GROUND = (
    Parameter("shown_rate", "logit", 0.5),
    Parameter("shown_rate_shots", "logit", 0.5),
    Parameter("wording", "logit", 0.5),
    Parameter("lag_usual", "linear", 0.5),  # s
    Parameter("typical", "log", 0.3),
    Parameter("grow", "logit", 0.4),
)
DEFAULT: Point = (0.0,) * len(GROUND)
LOSS, JUDGE_LOSS = "loss a step", "loss a sentence"


@dataclass(frozen=True)
class CorrectedVideo:
    """A video that people corrected. machine: its record. truth: as they left it. seen: what its
    pictures show.

    source: who made it, or the folder that it is in, or itself: sources are held out whole.
    """

    machine: Record
    truth: Record
    seen: VisualFeatures
    source: str

    def step_labels(self) -> list[tuple[int, bool, Span | None]]:
        """Return the places of the machine's steps that people judged or left, whether shown, and
        where."""
        final = {step.id: step for step in self.truth.steps}
        labels = []
        for place, step in enumerate(self.machine.steps):
            told = final.get(step.id)
            if told is not None and told.status in ("shown", "said", "not found"):
                shown = told.status == "shown"
                labels.append((place, shown, told.spans[0] if shown and told.spans else None))
        return labels

    def sentence_labels(self) -> Floats:
        """Return 1.0 for each sentence (S,) whose clip shows a step that rests on it."""
        shown = np.zeros(len(self.machine.sentences))
        for step in self.truth.steps:
            for source in step.sources if step.status == "shown" and step.spans else ():
                clip = judged_span(self.machine.sentences[source].span)
                shown[source] = max(shown[source], clip.overlap(step.spans[0]) >= OVERLAP)
        return shown


@dataclass(frozen=True)
class VideoOutcome:
    """What the parameters make of one video: sums over its labelled steps, and the judge's
    evidence.

    rows: (S, 3) of its sentences. shown: (S,) their truth.
    """

    sums: Mapping[str, float]
    rows: Floats
    shown: Floats


def ground_settings(point: Point, base: GroundSettings) -> GroundSettings:
    """Return the settings at a point around the defaults of the package. What is not a parameter is
    the base's."""
    usual = GroundSettings()
    changed = {
        p.name: p.value(getattr(usual, p.name), z) for p, z in zip(GROUND, point, strict=True) if z
    }
    return base.model_copy(update={p.name: getattr(usual, p.name) for p in GROUND} | changed)


def outcome(video: CorrectedVideo, settings: GroundSettings, *, seconds: float) -> VideoOutcome:
    """Return what settings of grounding make of a video. seconds: of the clip in which a sentence
    is judged."""
    machine = video.machine
    steps = [
        Step(id=step.id, text=step.text, kind=step.kind, said=step.said, sources=step.sources)
        for step in machine.steps
    ]
    transcript = machine.transcript or Transcript()
    whole = StepsSettings(nasva=NasvaSettings(ground=settings))
    written = not machine.recipe
    found = ground_steps(
        steps, machine.video.duration or 0.0, transcript, video.seen, whole, written=written
    )
    sums = dict.fromkeys(("steps", "right", "shown", "at", "tIoU", LOSS), 0.0)
    for place, shown, span in video.step_labels():
        step = found.steps[place]
        p = min(max(step.score or 0.0, SURE), 1 - SURE)
        sums["steps"] += 1
        sums["right"] += (step.status == "shown") == shown
        sums[LOSS] -= math.log(p if shown else 1 - p)
        if span is not None:
            iou = step.spans[0].iou(span) if step.spans else 0.0
            sums["shown"] += 1
            sums["at"] += step.at is not None and span.gap(step.at) <= SLACK
            sums["tIoU"] += iou
            sums[LOSS] += 1 - iou
    evidence = grounding_evidence(transcript, found.steps, found.alignment, seconds=seconds)
    return VideoOutcome(sums, judge_rows(*evidence), video.sentence_labels())


def fit_judge(rows: Floats, shown: Floats, usual: Floats) -> Floats:
    """Return the judge's weights (3,), the most likely under a normal prior around the usual ones.

    rows: (N, 3) of sentences. shown: (N,) their truth.
    """
    return fit_logistic_weights(
        rows,
        shown,
        prior_mean=usual,
        prior_precision=np.eye(3) / JUDGE_SPREAD**2,
        max_change=MAX_JUDGE_CHANGE,
    )


def _refit_judge(outcomes: Sequence[VideoOutcome]) -> Floats:
    rows, shown = (
        np.concatenate([o.rows for o in outcomes]),
        np.concatenate([o.shown for o in outcomes]),
    )
    return fit_judge(rows, shown, regression_weights("grounding"))


def judge_sums(found: VideoOutcome, weights: Floats) -> dict[str, float]:
    """Return sums over a video's sentences: how many, rightly judged at P = .5, and -log P."""
    p = np.clip(1 / (1 + np.exp(-(found.rows @ weights))), SURE, 1 - SURE)
    loss = -np.where(found.shown > 0, np.log(p), np.log(1 - p)).sum()
    right = ((p >= 0.5) == (found.shown > 0)).sum()
    return {"sentences": float(len(p)), "judged": float(right), JUDGE_LOSS: float(loss)}


class PlacingFit:
    """The fit of `GROUND` to videos. What a point makes of a video is computed once, whichever
    videos it is fitted to.

    base: the settings that what is not a parameter comes from.
    """

    def __init__(
        self, videos: Sequence[CorrectedVideo], base: StepsSettings, told: Told | None = None
    ) -> None:
        self.videos, self.base, self._told = videos, base, told or (lambda _: None)
        self._known: dict[tuple[int, Point], VideoOutcome] = {}

    def outcome(self, video: int, point: Point) -> VideoOutcome:
        """Return what a point makes of a video."""
        if (video, point) not in self._known:
            settings = ground_settings(point, self.base.nasva.ground)
            seconds = self.base.judge.seconds
            self._known[video, point] = outcome(self.videos[video], settings, seconds=seconds)
        return self._known[video, point]

    def cost(self, videos: Sequence[int], point: Point) -> float:
        """Return the negative log posterior of a point, less a constant."""
        return sum(self.outcome(video, point).sums[LOSS] for video in videos) + 0.5 * sum(
            z * z for z in point
        )

    def fit(self, videos: Sequence[int]) -> Point:
        """Return the best point found: each parameter alone, then the gains together, the greatest
        first."""
        best, least = DEFAULT, self.cost(videos, DEFAULT)
        gains = []
        for place in range(len(GROUND)):
            costs = [(self.cost(videos, _at(DEFAULT, place, z)), z) for z in GRID]
            if min(costs)[0] < least:
                gains.append((*min(costs), place))
        for _, z, place in sorted(gains):
            point = _at(best, place, z)
            if (cost := self.cost(videos, point)) < least:
                best, least = point, cost
        self._told(f"{len(videos)} videos fitted")
        return best


def _at(point: Point, place: int, z: float) -> Point:
    return (*point[:place], z, *point[place + 1 :])


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
    videos: Sequence[CorrectedVideo], base: StepsSettings | None = None, told: Told | None = None
) -> Refit:
    """Return what corrections teach: parameters fitted to all videos, and how the fit does on those
    held out.

    base: the settings in use, which `before` is measured with. Raises DatasetError for too few
    videos or sources.
    """
    base, sources = base or StepsSettings(), [video.source for video in videos]
    different = len(set(sources))
    if len(videos) < LEAST_VIDEOS or different < LEAST_SOURCES:
        counts = f"{len(videos)} corrected videos of {different} sources"
        raise DatasetError(
            f"{counts}; a refit needs {LEAST_VIDEOS} of {LEAST_SOURCES}: correct more"
        )
    with embedded_once():
        fitting = PlacingFit(videos, base, told)
        used = [outcome(video, base.nasva.ground, seconds=base.judge.seconds) for video in videos]
        in_use = _judge_weights(base)
        before, placed, judged = (list[Mapping[str, float]]([{}] * len(videos)) for _ in range(3))
        for train, test in _folds(sources):
            point = fitting.fit(train)
            weights = _refit_judge([used[video] for video in train])
            for video in test:
                before[video] = {**used[video].sums, **judge_sums(used[video], in_use)}
                placed[video] = dict(fitting.outcome(video, point).sums)
                judged[video] = judge_sums(used[video], weights)
        everything = range(len(videos))
        point, weights = fitting.fit(everything), _refit_judge(used)
    figures = _figures(before, [{**placed[n], **judged[n]} for n in range(len(videos))], sources)
    refusals = {
        part: reason for part, rows in figures.items() if (reason := refusal(rows)) is not None
    }
    settings: dict[str, Mapping[str, float | list[float]]] = {}
    fitted = ground_settings(point, base.nasva.ground)
    if "placing" not in refusals:
        moved = [p.name for p, z in zip(GROUND, point, strict=True) if z]
        settings["nasva.ground"] = {name: getattr(fitted, name) for name in moved}
    if "judge" not in refusals:
        settings["judge"] = {"weights": [round(float(weight), 4) for weight in weights]}
    return Refit(len(videos), different, figures, refusals, settings)


def held_out_figures(
    videos: Sequence[CorrectedVideo], before: StepsSettings, after: StepsSettings
) -> dict[Part, Sequence[Figure]]:
    """Return what settings do to corrected videos that they were not fitted to, next to what others
    do."""
    with embedded_once():
        first, second = (
            [_sums(video, settings) for video in videos] for settings in (before, after)
        )
        return _figures(first, second, [video.source for video in videos])


def _sums(video: CorrectedVideo, settings: StepsSettings) -> Mapping[str, float]:
    found = outcome(video, settings.nasva.ground, seconds=settings.judge.seconds)
    return {**found.sums, **judge_sums(found, _judge_weights(settings))}


def _judge_weights(settings: StepsSettings) -> Floats:
    return np.array(settings.judge.weights or regression_weights("grounding"))


Sums: TypeAlias = Sequence[Mapping[str, float]]  # of each video


def _figures(before: Sums, after: Sums, sources: Sequence[str]) -> dict[Part, Sequence[Figure]]:
    return {
        "placing": [
            _figure("shown or only said, rightly", "right", "steps", before, after, sources),
            _figure("best second right", "at", "shown", before, after, sources),
            _figure("tIoU of the span", "tIoU", "shown", before, after, sources),
            _figure(LOSS, LOSS, "steps", before, after, sources),
        ],
        "judge": [
            _figure("sentences judged rightly", "judged", "sentences", before, after, sources),
            _figure(JUDGE_LOSS, JUDGE_LOSS, "sentences", before, after, sources),
        ],
    }


def refusal(rows: Sequence[Figure]) -> str | None:
    """Return why a part is refused: its loss, the last figure, does not surely fall, or another
    figure is worse."""
    *others, loss = rows
    if not loss.high < 0:
        return f"the held-out loss does not surely fall ({loss.change:+.3f} [{loss.low:+.3f}, {loss.high:+.3f}])"
    worse = next((row for row in others if row.change < 0), None)
    return (
        None if worse is None else f"{worse.name} falls by {-worse.change:.3f} on held-out videos"
    )


def _folds(sources: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the videos to fit to and those held out. All videos of a source are held out
    together."""
    # so that folds are of like size
    names = sorted(set(sources), key=lambda name: (-sources.count(name), name))
    fold_of = {name: place % FOLDS for place, name in enumerate(names)}
    for fold in range(min(FOLDS, len(names))):
        held = [video for video, name in enumerate(sources) if fold_of[name] == fold]
        yield [video for video in range(len(sources)) if video not in held], held


def _figure(
    name: str, hits: str, of: str, before: Sums, after: Sums, sources: Sequence[str]
) -> Figure:
    totals = np.array([row[of] for row in before])
    first, second = (
        Ratio(np.array([row[hits] for row in rows]), totals) for rows in (before, after)
    )
    draws = resample(
        {"before": over_sources(first, sources), "after": over_sources(second, sources)}
    )
    low, high = interval(draws["after"] - draws["before"])
    return Figure(name, point_estimate(first), point_estimate(second), low, high, int(totals.sum()))
