"""What one training of an experiment is: its data, its labels, its network, its length. Nothing heavy is imported.

A trial is named by its content, so that tables share trainings and a rerun finds them done.
"""

import hashlib
from typing import Literal, TypeAlias

from stepline.nasva.model_settings import AlignabilityTargets
from stepline.nasva.selftrain_settings import RefineSettings
from stepline.settings import Count, Fraction, Positive, Settings

Texts: TypeAlias = Literal["W", "S", "W+S"]
Source: TypeAlias = Literal["asr", "video", "planted"]

VERSION = 1  # of what a trial does; another makes all trials new


class Size(Settings):
    """How large an experiment is; the defaults are the small form."""

    videos: Count = 500  # to train on
    held_out: Count = 150  # to score on
    width: Count = 64  # D; the paper's 256
    heads: Count = 4  # the paper's 8
    layers: Count = 1  # encoder and decoder each; the paper's 3
    feed_forward: Count = 256  # the release's 2048
    projection: Count = 32  # d; the paper's 64
    learning_rate: Positive = 1e-3  # the paper's 1e-4, for a network 30 times as large
    epochs: Count = 8  # of every final network; the paper's 12
    teacher_epochs: Count = 4  # of a network whose matrix makes labels: stopped before it knows its noise by heart


PAPER_SIZE = Size(width=256, heads=8, layers=3, feed_forward=2048, projection=64, learning_rate=1e-4, epochs=12)


class Round(Settings):
    """One refinement of the labels."""

    refine: RefineSettings
    teachers: Count = 1
    eps2: Fraction | None = None  # the paper's cosine that `refine.threshold` stands for in the simulated world

    @property
    def in_cosines(self) -> "Round":
        """The round with the paper's own threshold, for features of which it was chosen."""
        if self.eps2 is None:
            return self
        refine = self.refine.model_copy(update={"threshold": self.eps2, "threshold_kind": "cosine"})
        return self.model_copy(update={"refine": refine})


class LabelPlan(Settings):
    """How the written steps are labelled."""

    first: Source = "asr"  # Step-ASR, Step-Video, or the planted truth
    floor: Fraction = 0.20  # eps1
    rounds: tuple[Round, ...] = ()


class Trial(Settings):
    """One training."""

    seed: int = 0  # of the world, of the network and of the order of videos
    again: int = 0  # a second teacher differs from the first in this alone
    backbone: str = "usual"
    recogniser: Literal["clean", "aligned", "noisy"] = "clean"
    texts: Texts = "S"
    planted: bool = False  # narrations too are labelled by the planted truth
    labels: LabelPlan = LabelPlan()
    early: bool = False  # trained as long as a teacher, not as long as a final network
    attention_dropout: Fraction = 0.0
    paper_network: bool = False  # the final network has the paper's size, its teachers that of `size`
    head: AlignabilityTargets | None = None
    size: Size = Size()

    @property
    def key(self) -> str:
        """The name under which its result is kept."""
        return hashlib.sha256(f"{VERSION} {self.model_dump_json()}".encode()).hexdigest()[:20]

    @property
    def teachers(self) -> tuple["Trial", ...]:
        """The trainings whose matrices make its last round of labels; none where the labels are first ones."""
        if self.texts == "W" or not self.labels.rounds:
            return ()
        *before, last = self.labels.rounds
        plan = self.labels.model_copy(update={"rounds": tuple(before)})
        plain = Trial(seed=self.seed, backbone=self.backbone, recogniser=self.recogniser, size=self.size)
        kept = {"labels": plan, "early": True}
        return tuple(plain.model_copy(update=kept | {"again": again}) for again in range(last.teachers))
