"""With --until-next: a paced source is held at the end of each step until there is a sign that it
is finished. Of a source that watches someone work, the next step is emitted at such a sign."""

import contextlib
import queue
from collections.abc import Callable, Sequence

from stepline.live.events import EmitEvent, LiveLog
from stepline.live.source import LiveSource


class Pacing:
    """done_signals: what hands that say "done" put there. is_done: whether the picture says that a
    step is finished."""

    def __init__(
        self,
        log: LiveLog,
        emit_event: EmitEvent,
        done_signals: "queue.SimpleQueue[str]",
        is_done: Callable[[str], bool],
    ) -> None:
        self._log = log
        self._emit_event = emit_event
        self._done_signals = done_signals
        self._is_done = is_done
        self._current_step: str | None = None  # the last one of "next"
        self._pending_signal = ""  # that no step has followed yet

    def advance_until_next(self, sources: Sequence[LiveSource]) -> None:
        """Hold a paced source where a step has ended. Go on at a sign."""
        # Hands may have said that the step is done since the last look.
        with contextlib.suppress(queue.Empty):
            self._pending_signal = self._done_signals.get_nowait()
        steps = self._log.present_steps
        ids = [present.step.id for present in steps]
        # -1: no step yet, or one that was taken back since.
        index = ids.index(self._current_step) if self._current_step in ids else -1
        paced = [source for source in sources if source.paced]
        if index >= 0 and not self._pending_signal:
            current = steps[index]
            if current.ended and paced and not any(source.held for source in paced):
                self._emit_event("waiting", step=current.step.id, text=current.step.text)
                for source in paced:
                    source.held = True
            # a film that plays cannot say that someone has finished
            if paced or not self._is_done(current.step.id):
                return
        # The source plays again, and the next step is emitted, if there is one.
        for source in paced:
            source.held = False
        if index + 1 < len(steps):
            following = steps[index + 1].step
            reason = self._pending_signal or ("begin" if index < 0 else "picture")
            self._current_step = following.id
            self._pending_signal = ""
            self._emit_event("next", step=following.id, text=following.text, reason=reason)
