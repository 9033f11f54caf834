"""WYS2's tables as trials in the simulated world; nothing heavy is imported here.

The simulated sentence encoder is not InferSent: its cosines are lower, so that c is a quantile unless a row says
"c = 0.5". Every training takes about as many steps, whatever it is trained on.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stepline.settings import Count, Positive, Settings
from stepline.wys2.settings import ContrastSettings, LabelSettings, PseudoSettings, Score

Positives: TypeAlias = Literal["labels", "all", "planted"]
Untrained: TypeAlias = Literal["zero-shot", "objects"]

VERSION = 1  # of what a trial does; another makes all trials new


class Wys2Size(Settings):
    """How large the experiment is."""

    labelled: Count = 400  # videos with key-steps; 20 % withheld, the rest split 80:20
    unlabelled: Count = 1500  # videos without
    steps: Count = 300  # of every training, about
    batch: Count = 128  # WYS2, section 4
    learning_rate: Positive = 1e-3  # the paper's 1e-5 is for S3D with released weights


class Wys2Trial(Settings):
    """One detector, or what stands for one."""

    seed: int = 0  # of the world, the split, the network
    kind: Literal["detector", "text"] | Untrained = "detector"  # "text": words alone, a logistic regression
    positives: Positives = "labels"  # by the labels, every clip, or by the planted truth
    labels: LabelSettings = LabelSettings(quantile=0.35)
    resolved: bool = True  # pronouns are resolved before texts are compared
    score: Score = "cosine"
    contrast: ContrastSettings = ContrastSettings()
    overlapping: bool = False  # trained on clips of 16 s
    pseudo: PseudoSettings | None = None
    everything: bool = False  # all unlabelled clips are taken for positive
    size: Wys2Size = Wys2Size()

    @property
    def key(self) -> str:
        """The name under which its result is kept."""
        return hashlib.sha256(f"{VERSION} {self.model_dump_json()}".encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Wys2Row:
    """A row of a table: its words, its trial with seed 0, and the paper's ROC-AUC where it has the row."""

    table: str
    words: str
    trial: Wys2Trial
    published: float | None = None


@dataclass(frozen=True)
class Wys2Claim:
    """An ordering: how much higher `more` must score than `less`, in ROC-AUC; None: told, not asserted."""

    words: str
    more: Wys2Trial
    less: Wys2Trial
    least: float | None


SS = Wys2Trial()
VR = Wys2Trial(labels=LabelSettings(kind="vr"))
MC = Wys2Trial(labels=LabelSettings(kind="mc"))
RAW = {"score": "dot"}
PSEUDO = Wys2Trial(pseudo=PseudoSettings())
BEST = Wys2Trial(pseudo=PseudoSettings(threshold="share"))
EVERYTHING = Wys2Trial(everything=True)
WORDS = Wys2Trial(kind="text")
OBJECTS = Wys2Trial(kind="objects")
ZERO_SHOT = Wys2Trial(kind="zero-shot")


def alike(trial: Wys2Trial, **changes: object) -> Wys2Trial:
    """Return a trial that differs in some fields."""
    return Wys2Trial.model_validate({**{name: getattr(trial, name) for name in type(trial).model_fields}, **changes})


def wys2_rows() -> tuple[Wys2Row, ...]:
    """Return all rows."""
    return (*_labels(), *_baselines(), *_pseudo(), *_options())


def _labels() -> list[Wys2Row]:
    return [
        Wys2Row("labels", "SS, the likest 35 %", SS, 62.7),
        Wys2Row("labels", "SS, c = 0.5", alike(SS, labels=LabelSettings())),
        Wys2Row("labels", "SS, pronouns not resolved", alike(SS, resolved=False)),
        Wys2Row("labels", "VR", VR, 58.8),
        Wys2Row("labels", "MC, the best 35 % of a task's clips", MC, 59.3),
        Wys2Row("labels", "MC, own task first", alike(MC, labels=LabelSettings(kind="mc", ranking="tasks", rank=1.0))),
        Wys2Row("labels", "every clip with narration", alike(SS, positives="all")),
        Wys2Row("labels", "planted truth", alike(SS, positives="planted")),
    ]


def _baselines() -> list[Wys2Row]:
    every = alike(SS, positives="all")
    mil, released = ContrastSettings(objective="mil-nce"), ContrastSettings(objective="mil-nce-released")
    return [
        Wys2Row("baselines", "cosine without training (CLIP on short clips)", ZERO_SHOT),
        Wys2Row("baselines", "words alone", WORDS, 53.5),
        Wys2Row("baselines", "objects alone", OBJECTS, 51.0),
        Wys2Row("baselines", "MIL-NCE, 3 candidates, every clip", alike(every, contrast=mil), 59.6),
        Wys2Row("baselines", "MIL-NCE as released", alike(every, contrast=released)),
        Wys2Row("baselines", "VideoCLIP: clips of 16 s, every clip", alike(every, overlapping=True), 59.0),
        Wys2Row("baselines", "TAN: joint head, SS labels", alike(SS, score="joint")),
    ]


def _pseudo() -> list[Wys2Row]:
    return [
        Wys2Row("pseudo-labels", "none", SS, 62.7),
        Wys2Row("pseudo-labels", "threshold of best F1 on validation clips", PSEUDO, 76.2),
        Wys2Row("pseudo-labels", "the best 10 % of the unlabelled clips", BEST),
        Wys2Row("pseudo-labels", "two rounds, best F1", alike(SS, pseudo=PseudoSettings(rounds=2))),
        Wys2Row("pseudo-labels", "every unlabelled clip taken for shown", EVERYTHING),
        Wys2Row("pseudo-labels", "raw dot product, none", alike(SS, **RAW)),
        Wys2Row("pseudo-labels", "raw dot product, best F1", alike(PSEUDO, **RAW)),
        Wys2Row("pseudo-labels", "raw dot product, the best 10 %", alike(BEST, **RAW)),
    ]


def _options() -> list[Wys2Row]:
    return [
        Wys2Row("options", "raw dot product, SS", alike(SS, **RAW)),
        Wys2Row("options", "raw dot product, VR", alike(VR, **RAW)),
        Wys2Row("options", "raw dot product, MC", alike(MC, **RAW)),
        Wys2Row("options", "the whole batch as rivals", alike(SS, contrast=ContrastSettings(negatives=None))),
        Wys2Row("options", "2 texts and 2 clips as rivals", alike(SS, contrast=ContrastSettings(rivals="both"))),
        Wys2Row("options", "twice the steps", alike(SS, size=Wys2Size(steps=600))),
    ]


def wys2_claims() -> tuple[Wys2Claim, ...]:
    """Return the paper's orderings, and what the world's prototype made safe to assert of them."""
    return (
        Wys2Claim("SS above VR", SS, VR, 0.04),
        Wys2Claim("SS above MC", SS, MC, 0.04),
        Wys2Claim("SS above VR, raw dot product", alike(SS, **RAW), alike(VR, **RAW), 0.0),
        Wys2Claim("SS above MC, raw dot product", alike(SS, **RAW), alike(MC, **RAW), 0.0),
        Wys2Claim("pseudo-labels above none", PSEUDO, SS, 0.015),
        Wys2Claim("pseudo-labels above none, raw dot product", alike(PSEUDO, **RAW), alike(SS, **RAW), 0.0),
        Wys2Claim("pseudo-labels (the best 10 %) above none", BEST, SS, 0.015),  # the prototype's own form
        Wys2Claim("the same, raw dot product", alike(BEST, **RAW), alike(SS, **RAW), 0.0),
        Wys2Claim("pseudo-labels above taking everything", PSEUDO, EVERYTHING, 0.0),
        Wys2Claim("SS above words alone", SS, WORDS, 0.0),
        Wys2Claim("SS above objects alone", SS, OBJECTS, 0.0),
        Wys2Claim("SS above cosine without training", SS, ZERO_SHOT, 0.0),
        Wys2Claim("MC above VR", MC, VR, None),
    )


def grid() -> tuple[Wys2Row, ...]:
    """Return the supplement's grid in its small form: c, negatives, batch and learning rate, scored on validation."""
    rows = []
    for c in (0.4, 0.5, 0.6):
        for negatives in (3, 5, 7, 9):
            for batch in (64, 128):
                for rate in (3e-4, 1e-3):
                    trial = Wys2Trial(
                        labels=LabelSettings(similarity=c),
                        contrast=ContrastSettings(negatives=negatives),
                        size=Wys2Size(batch=batch, learning_rate=rate),
                    )
                    words = f"c {c}, {negatives} negatives, batch {batch}, rate {rate:g}"
                    rows.append(Wys2Row("grid", words, trial))
    return tuple(rows)
