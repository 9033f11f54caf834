"""Grounding while the video still runs.

The model of `ground`, its numbers and its code, run again as the video continues. The time that has
not come yet counts as `AHEAD_SECONDS` without evidence: a step that was just said may well be shown
there. Asked at the end, the result is that of `ground` itself. docs/live.md has the differences.

Letters: K steps, S sentences, D width.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stepline.grounding.fusion import separate_overlapping_spans
from stepline.grounding.ground import Grounding, ground_inputs, ground_window
from stepline.grounding.inputs import (
    GroundingInputs,
    GroundingWindow,
    to_video_time,
    video_evidence,
)
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Matrix, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity

# after now, in which a step that was said may be shown. WhenAct: 5 % are farther off than 29 s
AHEAD_SECONDS = 60


class OnlineGrounder:
    """Grounds the steps of a running video again whenever there is new speech or a new picture.

    Only the last minutes are grounded again: two `settings.context`, or 1.5 `settings.window` if a step is
    not said. A step that was said earlier keeps its last result.
    """

    def __init__(self, settings: GroundSettings | None = None, *, written: bool = True) -> None:
        """Start without steps and pictures.

        Args:
            settings: settings of grounding. None: the defaults.
            written: True if the steps were written from the transcript, False for a user's own
                lines.
        """
        self._settings = settings or GroundSettings()
        self._inputs = GroundingInputs((), 0.0, written=written)
        self._until = 0.0
        self._estimates: dict[str, Step] = {}  # the latest grounding of each step, by its id
        self._is_current = True

    def update_steps(
        self,
        steps: Sequence[Step],
        transcript: Transcript | None = None,
        *,
        vectors: Matrix | None = None,
        sentence_vectors: Matrix | None = None,
    ) -> None:
        """Replace the steps and the transcript by all that is said so far.

        Args:
            steps: K steps. Their ids identify them from one call to the next.
            transcript: S sentences said so far.
            vectors: (K, D) text vectors of the steps, in the space of the features.
            sentence_vectors: (S, D) text vectors of the sentences, in the same space.
        """
        self._inputs = replace(
            self._inputs,
            steps=tuple(steps),
            transcript=transcript,
            step_vectors=vectors,
            sentence_vectors=sentence_vectors,
        )
        self._is_current = False

    def update_pictures(
        self,
        until: float,
        *,
        features: FeatureSequence | None = None,
        activity: "Activity | None" = None,
    ) -> None:
        """Replace the pictures by all that is shown so far.

        Args:
            until: second up to which pictures are available. It never decreases.
            features: feature rows of all pictures since the beginning of the video.
            activity: motion and cuts since the beginning of the video.
        """
        self._until = max(self._until, until)
        self._inputs = replace(self._inputs, features=features, activity=activity)
        self._is_current = False

    def forget(self, seconds: int) -> None:
        """Move the start of the video `seconds` later. All times then count from the new start.

        The caller must then call `update_steps` and `update_pictures` with what remains.
        """
        self._until -= seconds
        self._estimates = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps with span, most likely second, score and status, as grounded so far."""
        self._refresh()
        return separate_overlapping_spans([self._estimates[step.id] for step in self._inputs.steps])

    def finish(self, duration: float) -> Grounding:
        """Return the grounding of the finished video. duration: in seconds."""
        return ground_inputs(replace(self._inputs, duration=duration), self._settings)

    def _refresh(self) -> None:
        """Ground the recent steps again if there is new evidence."""
        if self._is_current:
            return
        self._is_current = True
        steps = self._inputs.steps
        estimates = {step.id: step for step in steps}
        if steps and self._until > 0:
            # The last minutes, grounded as a video of their own. What comes later is unknown.
            window = self._window()
            inputs = replace(self._inputs.before(self._until), ahead=AHEAD_SECONDS)
            video = video_evidence(inputs).cut(window)
            grounding = ground_window(inputs.cut(window), video, self._settings)
            for k, step in zip(window.steps, grounding.steps, strict=True):
                estimates[steps[k].id] = to_video_time(step, steps[k], window)
            # Steps that the window does not decide keep their last estimate.
            for k, step in enumerate(steps):
                if k not in window.decided_steps and step.id in self._estimates:
                    estimates[step.id] = self._estimates[step.id]
        self._estimates = estimates

    def _window(self) -> GroundingWindow:
        """Return the last minutes as a window, with the steps in it and those that may still move."""
        settings = self._settings
        # How far back the window reaches.
        reach = 2 * settings.context if self._inputs.is_said.all() else 1.5 * settings.window
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
