"""Orderings of the paper, and what goes beyond it, as differences between trials, seed by seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepline.experiments.nasva_tables import (
    ALL_PLANTED,
    EARLY,
    FIRST,
    NARRATED,
    OURS,
    PAPER,
    SAID,
    STEPS,
    fixed,
    labelled,
    round_of,
    start,
)
from stepline.experiments.trial import Trial
from stepline.experiments.trials import Outcome

INSIDE = "labels inside"
REFINED = labelled(*PAPER)
CENTER, AVERAGED = labelled(round_of()), labelled(round_of(teachers=2))
BOTH = labelled(*PAPER, texts="W+S")
VIDEO, VIDEO_REFINED = labelled(first="video"), labelled(*PAPER, first="video")


@dataclass(frozen=True)
class Claim:
    """How far `more` scores above `less`; with `beyond`, how much further than its second above its first.

    least: what the mean over the seeds must exceed, None where nothing is asserted. published: the paper's difference.
    """

    words: str
    score: str
    more: Trial
    less: Trial
    least: float | None = None
    published: float | None = None
    beyond: tuple[Trial, Trial] | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trainings that the claim is about."""
        return (self.more, self.less, *(self.beyond or ()))

    def gain(self, outcome: Callable[[Trial], Outcome]) -> float:
        """Return the difference, in points."""
        more, less, *rest = (outcome(trial).scores[self.score] for trial in self.trials)
        return more - less - (rest[1] - rest[0] if rest else 0.0)

    def holds(self, gains: Sequence[float]) -> bool | None:
        """Tell whether the mean gain is what is asserted; None where nothing is."""
        return None if self.least is None else sum(gains) / len(gains) > self.least


ASSERTED = (
    Claim("W + S above W, steps", STEPS, BOTH, NARRATED, 5.0, 10.2),
    Claim("self-training on Step-ASR labels, equally long training, steps", STEPS, REFINED, FIRST, 4.0, 7.7),
    Claim("the same above that of Step-Video labels", STEPS, REFINED, FIRST, 2.0, 7.3, (VIDEO, VIDEO_REFINED)),
    Claim("refined S above W, steps", STEPS, REFINED, NARRATED, 0.0, 9.0),
    Claim("W above refined S, narrations", SAID, NARRATED, REFINED, 0.0, 23.3),
    Claim("refined labels in the planted window more often than coarse ones", INSIDE, REFINED, FIRST, 0.0),
    Claim("our student above the early-stopped teacher, steps", STEPS, labelled(OURS), EARLY, 0.0),
    Claim("our student above the early-stopped teacher, narrations", SAID, labelled(OURS), EARLY, 0.0),
)

REPORTED = (
    Claim("the paper's student above the early-stopped teacher, steps", STEPS, REFINED, EARLY),
    Claim("start above center, 8 s, steps", STEPS, REFINED, labelled(fixed(0.8, "center", 8.0)), None, 6.5),
    Claim("eps2 0.8 above 0.7, start, steps", STEPS, REFINED, labelled(start(0.7)), None, 1.4),
    Claim("two teachers averaged above one, center, steps", STEPS, AVERAGED, CENTER),
    Claim("teachers that agree above averaged, steps", STEPS, labelled(OURS), AVERAGED),
    Claim("a second round of ours above the first, steps", STEPS, labelled(OURS, OURS), labelled(OURS)),
    Claim("W + S above W, narrations", SAID, BOTH, NARRATED, None, 6.2),
    Claim("the ceiling above W + S, steps", STEPS, ALL_PLANTED, BOTH),
)
