"""What the picture added to speech, in numbers and in plain words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepline.grounding.correspondence import HARDLY_FIT

PLACED_BY_WORDS = "steps are placed where they are said, and may not be shown"


@dataclass(frozen=True)
class GroundReport:
    """What the picture added: the weight that each kind of evidence earned (0 = nothing), and how
    many steps it moved. Its fields are keys of the record.

    likeness: to the step's words.
    motion: 1 where some step is placed by shots, whose hands at work then count, else 0.
    lag: seconds by which the pictures of those shots follow the words.
    moved: steps whose most likely second is more than 2 s from that of speech alone.
    correspondence: log odds that the pictures belong to the speech, None where nothing shows it.
    earned: whether that is enough to call steps shown.
    instruction: log Bayes factor that the speech instructs, None where the steps are not from it.
    instructs: whether that is enough to call steps shown.
    """

    likeness: float
    motion: float
    lag: float
    moved: int
    shots: int
    note: str
    correspondence: float | None = None
    earned: bool = False
    instruction: float | None = None
    instructs: bool = True

    @property
    def unclear(self) -> str:
        """Why a step is "unclear", in plain words."""
        if not self.instructs:
            return "hardly any sentence of the video states a step"
        return "said last, and only for some cases" if self.earned else HARDLY_FIT

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the user should know before trusting the steps: two films, or no how-to video."""
        doubts = []
        if self.correspondence is not None and not self.earned:
            doubts.append(f"what is seen hardly fits what is said: {PLACED_BY_WORDS}")
        if not self.instructs:
            doubts.append(f"hardly any sentence states a step, as in a talk: {PLACED_BY_WORDS}")
        return tuple(doubts)


def merge_reports(reports: Sequence[GroundReport]) -> GroundReport:
    """Return one report of all windows: mean weights and lag, all that moved."""
    log_odds = [report.correspondence for report in reports if report.correspondence is not None]
    return GroundReport(
        likeness=float(np.mean([report.likeness for report in reports])),
        motion=float(np.mean([report.motion for report in reports])),
        lag=float(np.mean([report.lag for report in reports])),
        moved=sum(report.moved for report in reports),
        shots=sum(report.shots for report in reports),
        note=f"{len(reports)} windows; in the first: {reports[0].note}",
        correspondence=float(np.mean(log_odds)) if log_odds else None,
        earned=any(report.earned for report in reports),
        # The speech is weighed for the whole video, so all windows have the same.
        instruction=reports[0].instruction,
        instructs=reports[0].instructs,
    )


def evidence_note(weight: float, by_shots: int, steps: int, moved: int) -> str:
    """Return in words what the pictures did.

    weight: of likeness.
    by_shots: steps placed by shots.
    """
    if not weight and not by_shots:
        return (
            "speech alone: the pictures do not show where anything is done, so they weigh nothing"
        )
    return (
        f"likeness weighs {weight:.1f}, {by_shots} of {steps} steps are placed by shots; "
        f"{moved} moved by more than 2 s"
    )
