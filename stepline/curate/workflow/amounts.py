"""Which networks the data can carry: amounts of reviewed data against measured curves.

A network is recommended from the smallest amount on at which it was measured above the baseline
that needs no training. At every larger amount it was above that too. What is below was measured to
lose, or was not measured: there nothing is promised. Each curve names where it is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

NetworkName: TypeAlias = Literal["nasva", "procx", "wys2"]


@dataclass(frozen=True)
class LearningPoint:
    """A score at an amount of data, and that of the baseline on the same videos. videos: 0 where
    the curve counts labels alone."""

    videos: int
    labels: int
    score: float
    baseline: float

    @property
    def gains(self) -> bool:
        """Whether the network is above the baseline."""
        return self.score > self.baseline


@dataclass(frozen=True)
class Curve:
    """What a network reached by the amount it was trained on.

    labels: what is counted.
    metric: what the scores are per cent of.
    baseline: what needs no training.
    source: where it is reported.
    points: the smallest amount first.
    """

    labels: str
    metric: str
    baseline: str
    source: str
    points: tuple[LearningPoint, ...]

    @property
    def least(self) -> LearningPoint:
        """The smallest point from which on every one gains."""
        # From the largest amount back to the first that lost.
        least = self.points[-1]
        for point in reversed(self.points):
            if not point.gains:
                break
            least = point
        return least


MEASURED_CURVES: dict[NetworkName, Curve] = {
    # Half of 262 and of 899 drawn videos, with true places. The other half is scored. Below them 19
    # real clips with 104 shown steps, self-trained on themselves: no such curve begins lower.
    "nasva": Curve(
        "confirmed steps",
        "R@1",
        "where steps are said",
        "docs/selftraining.md and docs/curate.md, lab/curate_ceiling.py",
        (
            LearningPoint(19, 104, 61.5, 68.3),
            LearningPoint(131, 332, 61.5, 43.0),
            LearningPoint(449, 1193, 76.0, 46.0),
        ),
    ),
    # 400 captioned videos of a simulated world and a quarter of them. Even parts, no network.
    "procx": Curve(
        "confirmed steps",
        "SODA-D",
        "even parts of the video",
        "docs/procx.md, arms ProcX and a quarter of the captions",
        (LearningPoint(100, 560, 42.3, 35.9), LearningPoint(400, 2250, 65.1, 35.9)),
    ),
    # Positive clips of a simulated world. The cosine of features and words as they come.
    "wys2": Curve(
        "confirmed steps",
        "ROC-AUC",
        "the features as they come",
        "docs/results/wys2.md, table amount",
        (
            LearningPoint(0, 16, 60.0, 70.6),
            LearningPoint(0, 64, 68.5, 70.6),
            LearningPoint(0, 250, 75.6, 70.6),
            LearningPoint(0, 1000, 82.7, 70.6),
            LearningPoint(0, 1591, 84.5, 70.6),
        ),
    ),
}


@dataclass(frozen=True)
class Recommendation:
    """Whether the data carry a network. videos, labels: those that there are to train on."""

    network: NetworkName
    videos: int
    labels: int

    @property
    def curve(self) -> Curve:
        """What was measured of the network."""
        return MEASURED_CURVES[self.network]

    @property
    def is_enough(self) -> bool:
        """Whether there is as much as the smallest amount that was measured to gain."""
        least = self.curve.least
        return self.videos >= least.videos and self.labels >= least.labels

    def __str__(self) -> str:
        """Return it in one line, with the amounts, the measured score and its source."""
        curve = self.curve
        least = curve.least
        there = f"{self.labels:,} {curve.labels} of {self.videos:,} videos"
        needed = f"{least.labels:,}"
        if least.videos:
            needed += f" of {least.videos:,} videos"
        scores = f"{curve.metric} {least.score:.1f} against {least.baseline:.1f}, {curve.baseline}"
        measured = f"measured to gain from {needed} on ({scores}: {curve.source})"
        verdict = "can be trained" if self.is_enough else "too little to promise a gain"
        return f"{self.network}, {verdict}: {there}; {measured}"


def recommend(videos: int, labels: int) -> list[Recommendation]:
    """Return for each network whether the confirmed steps of the videos are enough for it."""
    return [Recommendation(network, videos, labels) for network in MEASURED_CURVES]


def carried(recommendations: Sequence[Recommendation]) -> list[NetworkName]:
    """Return the networks that the data carry."""
    return [each.network for each in recommendations if each.is_enough]
