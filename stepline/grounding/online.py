"""Grounding while the video still runs: which step is shown now, which are done, which are to come.

The model of `ground`, its numbers and its code, asked anew as the video goes on. What has not come
yet is `AHEAD` seconds without evidence: a step that was just said may well be shown there. With
P_k(t) = P(step k is being shown at t) and P(shown_k) its score,

    P(now_k at t)      = P_k(t)
    P(done_k at t)     = (P(shown_k) - P_k(t)) sum_{u < t} P_k(u) / sum_{u != t} P_k(u)
    P(to come_k at t)  = the rest of P(shown_k)

Asked about a second that lies L seconds back, it answers with all that came since: a fixed-lag
smoother. Asked at the end, it is `ground` itself. docs/live.md tells what a lag is worth. Letters:
K steps, T seconds, D width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding.evidence import TimedText, similarity
from stepline.grounding.fusion import part_neighbours
from stepline.grounding.ground import (
    Grounding,
    GroundingInputs,
    gather_inputs,
    ground,
    ground_window,
    prior_of,
    shown_before_evidence,
    spoken_passages,
)
from stepline.grounding.recipe_filter import (
    RecipeFilter,
    RecipeState,
    begin_evidence,
    likeness_evidence,
)
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.grounding.windows import GroundingWindow, cut_activity, cut_features, to_video_time
from stepline.records import FeatureSequence, Matrix, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity

# seconds after now in which a step that was said may be shown; WhenAct: 5 % lie farther off than 29
# s
AHEAD = 60
FOLLOWED = 30  # seconds back to which a line of a recipe may still be revised
# seconds after which it is, though nobody spoke meanwhile: what is usual is known better by then
REVISED = 5


@dataclass(frozen=True)
class StepStates:
    """What is known by the second `known` of the second `second`: P(shown then, before, after) of
    each step, (K,).

    The three sum to P(shown); the rest is P(never shown).
    """

    second: float
    known: float
    now: Array
    done: Array
    to_come: Array


@dataclass(frozen=True)
class _Row:
    """What was last known of one step: the step with its verdict, P(being shown at t) from second
    `start` on, (T,)."""

    step: Step
    start: int
    expected: Array


class OnlineGrounder:
    """Places steps in a video as it goes on; memory and time a second do not grow with it, but with
    what is given.

    Steps are looked at in the last minutes alone: one that was said longer ago than
    `settings.context` keeps what was last known of it, in a video longer than two of these. Lines
    that nobody says are sought in the last 1.5 `settings.window`.
    """

    def __init__(
        self,
        settings: GroundSettings | None = None,
        *,
        lag: float = 0.0,
        written: bool = True,
        before: Array | None = None,
        usual: tuple[float, float] | None = None,
    ) -> None:
        """lag: seconds by which `smoothed` looks back. written: as `ground` has it.

        before, usual: of `follow`, P(line i is shown before line j), (K, K), and the mean and
        spread of the likeness of lines and pictures in other videos.
        """
        self.lag = lag
        self._settings, self._written = settings or GroundSettings(), written
        self._until = 0.0
        self._steps: tuple[Step, ...] = ()
        self._transcript: Transcript | None = None
        self._vectors: Matrix | None = None
        self._sentence_vectors: Matrix | None = None
        self._features: FeatureSequence | None = None
        self._activity: Activity | None = None
        self._on_screen: Sequence[TimedText] = ()
        self._rows: dict[str, _Row] = {}  # by the step's id
        self._fresh = True
        self._before, self._usual = before, usual
        self._recipe: RecipeFilter | None = None
        # where the lines were said when `follow` was asked last
        self._heard: tuple[Span | None, ...] = ()

    def update_steps(
        self,
        steps: Sequence[Step],
        transcript: Transcript | None = None,
        *,
        vectors: Matrix | None = None,
        sentence_vectors: Matrix | None = None,
    ) -> None:
        """Take all that is said so far: the steps, later ones among them anew or revised, known by
        their ids.

        vectors: (K, D), sentence_vectors: (S, D), in the space of the features.
        """
        if vectors is not None and len(vectors) != len(steps):
            raise ShapeError(
                f"step vectors must have one row a step: {len(steps)}, not {len(vectors)}"
            )
        self._steps, self._transcript = tuple(steps), transcript
        self._vectors, self._sentence_vectors = vectors, sentence_vectors
        self._fresh = False

    def update_pictures(
        self,
        until: float,
        *,
        features: FeatureSequence | None = None,
        activity: "Activity | None" = None,
        on_screen: Sequence[TimedText] = (),
    ) -> None:
        """Take all that is shown up to second `until`, which never goes back; what is given beyond
        it waits."""
        self._until = max(self._until, until)
        self._features, self._activity, self._on_screen = features, activity, on_screen
        self._fresh = False

    def forget(self, seconds: int) -> None:
        """Have the video begin `seconds` later: from now on all times, given and returned, count
        from there.

        To be called where steps, transcript and pictures are given anew, without what lies before.
        """
        self._until -= seconds
        self._rows = {}
        if self._recipe is not None:
            self._recipe.seconds -= seconds

    def state(self, second: float | None = None) -> StepStates:
        """Return what is known now of a second, the present one where none is named."""
        self._refresh()
        at = self._until if second is None else second
        now, done, to_come = (np.zeros(len(self._steps)) for _ in range(3))
        for k, step in enumerate(self._steps):
            row = self._rows[step.id]
            column = min(int(at), math.ceil(self._until) - 1) - row.start
            now[k], done[k], to_come[k] = _now_done_to_come(
                row.expected, row.step.score or 0.0, column
            )
        return StepStates(at, self._until, now, done, to_come)

    def smoothed(self, lag: float | None = None) -> StepStates:
        """Return what is known now of the second `lag` seconds ago."""
        return self.state(max(0.0, self._until - (self.lag if lag is None else lag)))

    def follow(self, lag: int = 0) -> RecipeState:
        """Return which of the steps, the lines of a recipe, was shown `lag` (0 to 30) seconds ago,
        the next one, and those skipped. The lines stay the same from the first call on; where they
        are said may change."""
        if self._recipe is None:
            self._recipe = RecipeFilter(
                len(self._steps), self._settings, before=self._before, lag=FOLLOWED
            )
        recipe, settings = self._recipe, self._settings
        seconds = int(self._until)
        if seconds <= recipe.seconds or not self._steps:
            return recipe.state(lag)
        start = max(0, seconds - math.ceil(1.5 * settings.window))
        context = GroundingWindow(
            Span(float(start), float(seconds + AHEAD)), tuple(range(len(self._steps))), frozenset()
        )
        given = self._gather(float(seconds))[0].cut(context)
        said = np.array([step.said is not None for step in self._steps], dtype=bool)
        width = seconds - start
        passages = [
            spoken_passages(step, given.transcript, float(width + AHEAD)) for step in given.steps
        ]
        prior = prior_of(passages, settings.lag_usual, width + AHEAD)
        seen = np.full((len(said), width), np.nan)
        if given.features is not None and given.step_vectors is not None:
            seen = similarity(given.features, given.step_vectors, width)
        conse = given.features is not None and given.features.backbone == "conse"
        penalty = settings.likeness_penalty_conse if conse else settings.likeness_penalty
        # (K, T)
        evidence = likeness_evidence(
            prior[:, :width], seen, said, penalty, settings, usual=self._usual
        )
        begins = begin_evidence(prior, said)[:, :width]
        rate = shown_before_evidence(said, settings.shown_rate, None, settings)
        heard = tuple(step.said for step in self._steps)
        back = FOLLOWED if heard != self._heard or seconds % REVISED == 0 else 0
        anew = max(start, recipe.seconds - back)
        self._heard = heard
        recipe.update(evidence[:, anew - start :], rate, begins[:, anew - start :], start=anew)
        return recipe.state(lag, rate)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps as grounded so far: spans, at, score and status, which what comes may
        change."""
        self._refresh()
        return part_neighbours([self._rows[step.id].step for step in self._steps])

    def finish(self, duration: float) -> Grounding:
        """Return what `ground` makes of all that was said and shown of a video of `duration`
        seconds."""
        return ground(
            self._steps,
            duration=duration,
            transcript=self._transcript,
            features=self._features,
            step_vectors=self._vectors,
            activity=self._activity,
            sentence_vectors=self._sentence_vectors,
            on_screen=self._on_screen,
            written=self._written,
            settings=self._settings,
        )

    def _refresh(self) -> None:
        """Ground the steps that what came since may still move."""
        if self._fresh:
            return
        self._fresh = True
        if not self._steps or self._until <= 0:
            self._rows = {step.id: _Row(step, 0, np.zeros(1)) for step in self._steps}
            return
        given, belong = self._gather(self._until)
        window = self._window()
        grounding = ground_window(replace(given, ahead=AHEAD).cut(window), belong, self._settings)
        start = int(window.context.start)
        rows = {
            self._steps[k].id: _Row(
                to_video_time(step, self._steps[k], window), start, row.astype(np.float64)
            )
            for k, step, row in zip(
                window.steps, grounding.steps, grounding.alignment.scores, strict=True
            )
        }
        decided = {step.id for k, step in enumerate(self._steps) if k not in window.decides}
        kept = {id: row for id, row in self._rows.items() if id in decided}
        unknown = {step.id: _Row(step, start, np.zeros(1)) for step in self._steps}
        self._rows = unknown | rows | kept

    def _gather(self, until: float) -> tuple[GroundingInputs, float | None]:
        """Return what was said, and shown before second `until`."""
        come = GroundingWindow(Span(0.0, until), (), frozenset())
        return gather_inputs(
            self._steps,
            duration=until,
            transcript=self._transcript,
            features=cut_features(self._features, come),
            step_vectors=self._vectors,
            activity=cut_activity(self._activity, come),
            sentence_vectors=self._sentence_vectors,
            on_screen=[line for line in self._on_screen if line.span.start < until],
            written=self._written,
        )

    def _window(self) -> GroundingWindow:
        """Return the last minutes, the steps in them, and those of them that may still move."""
        settings = self._settings
        all_said = all(step.said is not None for step in self._steps)
        reach = 2 * settings.context if all_said else 1.5 * settings.window
        start = max(0.0, math.floor(self._until - reach))
        late = start + settings.context if start else 0.0
        near, decides = [], set()
        for k, step in enumerate(self._steps):
            if step.said is None or step.said.center >= start:
                near.append(k)
            if step.said is None or step.said.center >= late:
                decides.add(k)
        return GroundingWindow(
            Span(start, float(math.ceil(self._until) + AHEAD)), tuple(near), frozenset(decides)
        )


def _now_done_to_come(row: Array, shown: float, column: int) -> tuple[float, float, float]:
    """Return P(shown in this column, before it, after it) of P(being shown at t), (T,), and P(shown
    at all)."""
    now = min(float(row[column]), shown) if 0 <= column < len(row) else 0.0
    before, after = row[: max(0, column)].sum(), row[max(0, column + 1) :].sum()
    done = (shown - now) * before / (before + after) if before + after > 0 else 0.0
    return now, float(done), float(shown - now - done)
