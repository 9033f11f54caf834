"""Grounding while the video still runs: which step is shown now, which are done, which are to come.

The model of `ground`, its numbers and its code, run again as the video goes on. What has not come
yet is `AHEAD_SECONDS` without evidence: a step that was just said may well be shown there. With
P_k(t) = P(step k is being shown at t) and P(shown_k) its score,

    P(now_k at t)      = P_k(t)
    P(done_k at t)     = (P(shown_k) - P_k(t)) sum_{u < t} P_k(u) / sum_{u != t} P_k(u)
    P(to come_k at t)  = the rest of P(shown_k)

Asked about a second L seconds ago, it answers with all that came since: a fixed-lag
smoother. Asked at the end, it is `ground` itself. docs/live.md says what a lag is worth. Letters:
K steps, T seconds, D width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.evidence import TimedText
from stepline.grounding.fusion import separate_overlapping_spans
from stepline.grounding.ground import Grounding, ground_inputs, ground_window
from stepline.grounding.inputs import (
    GroundingInputs,
    GroundingWindow,
    to_video_time,
    video_evidence,
)
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Matrix, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity

# after now, in which a step that was said may be shown. WhenAct: 5 % are farther off than 29 s
AHEAD_SECONDS = 60


@dataclass(frozen=True)
class StepStates:
    """What is known by the second `known_at` of the second `second`: P(shown then, before, after)
    of each step, (K,).

    The three sum to P(shown). The rest is P(never shown).
    """

    second: float
    known_at: float
    now: Array
    p_done: Array
    to_come: Array


@dataclass(frozen=True)
class _StepEstimate:
    """The latest estimate of one step: the step with its verdict, P(being shown at t) from second
    `start` on, (T,)."""

    step: Step
    start: int
    expected: Array


class OnlineGrounder:
    """Places steps in a video as it goes on. Memory and time per second do not grow with it, but
    with what is given.

    Steps are looked at in the last minutes alone. In a video longer than two `settings.context`, a
    step that was said longer ago than one keeps what was last known of it. Lines that no one says
    are looked for in the last 1.5 `settings.window`.
    """

    def __init__(
        self, settings: GroundSettings | None = None, *, lag: float = 0.0, written: bool = True
    ) -> None:
        """lag: seconds by which `smoothed` looks back.

        written: as `ground` has it.
        """
        self.lag = lag
        self._settings = settings or GroundSettings()
        self._inputs = GroundingInputs((), 0.0, written=written)
        self._until = 0.0
        self._rows: dict[str, _StepEstimate] = {}  # by the step's id
        self._fresh = True

    def update_steps(
        self,
        steps: Sequence[Step],
        transcript: Transcript | None = None,
        *,
        vectors: Matrix | None = None,
        sentence_vectors: Matrix | None = None,
    ) -> None:
        """Replace the steps and the transcript by all that is said so far. Ids identify steps.

        vectors: (K, D), sentence_vectors: (S, D), in the space of the features.
        """
        self._inputs = replace(
            self._inputs,
            steps=tuple(steps),
            transcript=transcript,
            step_vectors=vectors,
            sentence_vectors=sentence_vectors,
        )
        self._fresh = False

    def update_pictures(
        self,
        until: float,
        *,
        features: FeatureSequence | None = None,
        activity: "Activity | None" = None,
        on_screen: Sequence[TimedText] = (),
    ) -> None:
        """Add the pictures up to second `until`, which never decreases. Later ones are kept for then."""
        self._until = max(self._until, until)
        self._inputs = replace(
            self._inputs, features=features, activity=activity, on_screen=on_screen
        )
        self._fresh = False

    def forget(self, seconds: int) -> None:
        """Move the beginning of the video `seconds` later: from now on all times, given and
        returned, count from there.

        To be called before steps, transcript and pictures are given again without what came before.
        """
        self._until -= seconds
        self._rows = {}

    def state(self, second: float | None = None) -> StepStates:
        """Return the step probabilities of a second, by default the present one."""
        self._refresh()
        if second is None:
            second = self._until
        last = math.ceil(self._until) - 1
        states = np.zeros((len(self._inputs.steps), 3))
        # Each step by the row that was last known of it.
        for state, step in zip(states, self._inputs.steps, strict=True):
            row = self._rows[step.id]
            column = min(int(second), last) - row.start
            state[:] = _state_probabilities(row.expected, row.step.score or 0.0, column)
        now, p_done, to_come = (np.ascontiguousarray(column) for column in states.T)
        return StepStates(second, self._until, now, p_done, to_come)

    def smoothed(self, lag: float | None = None) -> StepStates:
        """Return the step probabilities of the second `lag` seconds ago."""
        if lag is None:
            lag = self.lag
        return self.state(max(0.0, self._until - lag))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps as grounded so far: spans, at, score and status, which what comes may
        change."""
        self._refresh()
        return separate_overlapping_spans([self._rows[step.id].step for step in self._inputs.steps])

    def finish(self, duration: float) -> Grounding:
        """Return the grounding of the finished video of `duration` seconds."""
        return ground_inputs(replace(self._inputs, duration=duration), self._settings)

    def _past(self, until: float) -> GroundingInputs:
        """Return what was said, and shown before second `until`. Then comes the unknown."""
        return replace(self._inputs.before(until), ahead=AHEAD_SECONDS)

    def _refresh(self) -> None:
        """Ground the recent steps again with the new evidence."""
        if self._fresh:
            return
        self._fresh = True
        steps = self._inputs.steps
        if not steps or self._until <= 0:
            self._rows = {step.id: _StepEstimate(step, 0, np.zeros(1)) for step in steps}
            return
        # The last minutes, grounded as a video of their own.
        window = self._window()
        start = int(window.context.start)
        inputs = self._past(self._until)
        video = video_evidence(inputs).cut(window)
        grounding = ground_window(inputs.cut(window), video, self._settings)
        # Back in the video's time.
        rows = {step.id: _StepEstimate(step, start, np.zeros(1)) for step in steps}
        for k, step, scores in zip(
            window.steps, grounding.steps, grounding.alignment.scores, strict=True
        ):
            in_video = to_video_time(step, steps[k], window)
            rows[steps[k].id] = _StepEstimate(in_video, start, scores.astype(np.float64))
        # Steps that the window does not decide keep what was known of them.
        decided = {step.id for k, step in enumerate(steps) if k not in window.decided_steps}
        for id, row in self._rows.items():
            if id in decided:
                rows[id] = row
        self._rows = rows

    def _window(self) -> GroundingWindow:
        """Return the last minutes, the steps in them, and those of them that may still move."""
        settings = self._settings
        # How far back the window reaches.
        reach = 1.5 * settings.window
        if self._inputs.said.all():
            reach = 2 * settings.context
        start = max(0.0, math.floor(self._until - reach))
        # From when on a step may still move.
        oldest_second = start + settings.context if start else 0.0
        recent_steps = []
        decided_steps = set()
        for k, step in enumerate(self._inputs.steps):
            # A line that no one says may be shown at any time.
            center = step.said.center if step.said is not None else math.inf
            if center >= start:
                recent_steps.append(k)
            if center >= oldest_second:
                decided_steps.add(k)
        context = Span(start, float(math.ceil(self._until) + AHEAD_SECONDS))
        return GroundingWindow(context, tuple(recent_steps), frozenset(decided_steps))


def _state_probabilities(row: Array, p_shown: float, column: int) -> tuple[float, float, float]:
    """Return P(shown in this column, before it, after it) of P(being shown at t), (T,), and P(shown
    at all)."""
    now = 0.0
    if 0 <= column < len(row):
        now = min(float(row[column]), p_shown)
    # What is not now is shared by how much lies before and after.
    before = float(row[: max(0, column)].sum())
    after = float(row[max(0, column + 1) :].sum())
    p_done = 0.0
    if before + after > 0:
        p_done = (p_shown - now) * before / (before + after)
    return now, p_done, p_shown - now - p_done
