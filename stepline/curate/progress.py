"""How far a run is: what the driver counts while it goes on, and what `status` counts from OUT's files."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from stepline.curate.stage import Failure


@dataclass
class Progress:
    """Videos of one phase. earlier: finished before the run began; kinds: how the failed ones failed, by kind.

    reasons: (stage, kind) -> videos.
    """

    total: int
    stages: tuple[str, ...] = ()
    done: int = 0
    earlier: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def count(self, failure: Failure | None, *, earlier: bool) -> None:
        """Count one finished video. earlier: it took no work in this run."""
        self.done += 1
        self.earlier += earlier
        if failure is not None:
            self.kinds[failure.kind] += 1
            self.reasons[failure.stage, failure.kind] += 1

    @property
    def failed(self) -> int:
        """Videos that failed; those that the recipe leaves out are none of them."""
        return sum(count for kind, count in self.kinds.items() if kind != "left out")

    @property
    def seconds(self) -> float:
        """Since the phase began."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float | None:
        """Videos an hour that this run has worked on; None before the first."""
        worked = self.done - self.earlier
        return worked / max(self.seconds, 1e-9) * 3600 if worked else None

    @property
    def left(self) -> float | None:
        """Seconds to the end at this rate; None while it is not known."""
        return None if not self.rate else (self.total - self.done) / self.rate * 3600


Report: TypeAlias = Callable[[Progress], None]
