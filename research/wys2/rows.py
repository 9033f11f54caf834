"""The rows of WYS2's tables in the simulated world and what is claimed of them. Nothing heavy is
imported here.

The simulated sentence encoder is not InferSent: its cosines are lower, so that c is a quantile
unless a row says "c = 0.5". Every training takes about as many steps, whatever it is trained on.
"""

from typing import Literal, TypeAlias

from research.study import Claim, Row, Trial
from stepline.settings import Count, Positive, Settings
from stepline.wys2.settings import ContrastSettings, LabelSettings, PseudoSettings, Score

Positives: TypeAlias = Literal["labels", "all", "planted"]
Untrained: TypeAlias = Literal["zero-shot", "objects"]


class Wys2Size(Settings):
    """How large the experiment is."""

    labelled: Count = 400  # videos with key-steps; 20 % withheld, the rest split 80:20
    unlabelled: Count = 1500  # videos without
    steps: Count = 300  # of every training, about
    batch: Count = 128  # WYS2, section 4
    learning_rate: Positive = 1e-3  # the paper's 1e-5 is for S3D with released weights


class Wys2Trial(Trial):
    """One detector, or what stands for one."""

    # "text": words alone, a logistic regression
    kind: Literal["detector", "text"] | Untrained = "detector"
    positives: Positives = "labels"  # by the labels, every clip, or by the planted truth
    labels: LabelSettings = LabelSettings(quantile=0.35)
    resolved: bool = True  # pronouns are resolved before texts are compared
    score: Score = "cosine"
    contrast: ContrastSettings = ContrastSettings()
    overlapping: bool = False  # trained on clips of 16 s
    pseudo: PseudoSettings | None = None
    everything: bool = False  # all unlabelled clips are taken for positive
    most: Count | None = None  # positives that are trained on, drawn at random; None: all
    size: Wys2Size = Wys2Size()


TITLES = {
    "labels": "How positives are inferred (cosine, 4 sampled negatives)",
    "baselines": "Baselines",
    "pseudo-labels": "Pseudo-labels on unlabelled videos",
    "options": "Named options, SS labels where not said",
    "amount": "Positives that are trained on, SS labels",
    "grid": "The supplement's grid, its small form; fixed c, scored on validation clips",
}


Wys2Row: TypeAlias = Row[Wys2Trial]


AUC = "ROC-AUC"
SS = Wys2Trial()
VR = Wys2Trial(labels=LabelSettings(kind="vr"))
MC = Wys2Trial(labels=LabelSettings(kind="mc"))
PSEUDO = Wys2Trial(pseudo=PseudoSettings())
BEST = Wys2Trial(pseudo=PseudoSettings(threshold="share"))
EVERYTHING = Wys2Trial(everything=True)
WORDS = Wys2Trial(kind="text")
OBJECTS = Wys2Trial(kind="objects")
ZERO_SHOT = Wys2Trial(kind="zero-shot")


def wys2_rows() -> tuple[Wys2Row, ...]:
    """Return all rows."""
    return (*_labels(), *_baselines(), *_pseudo(), *_options(), *_amount())


def _labels() -> list[Wys2Row]:
    return [
        Wys2Row("labels", "SS, the likest 35 %", SS, {AUC: 62.7}),
        Wys2Row("labels", "SS, c = 0.5", SS.changed(labels=LabelSettings())),
        Wys2Row("labels", "SS, pronouns not resolved", SS.changed(resolved=False)),
        Wys2Row("labels", "VR", VR, {AUC: 58.8}),
        Wys2Row("labels", "MC, the best 35 % of a task's clips", MC, {AUC: 59.3}),
        Wys2Row(
            "labels",
            "MC, own task first",
            MC.changed(labels=LabelSettings(kind="mc", ranking="tasks", rank=1.0)),
        ),
        Wys2Row("labels", "every clip with narration", SS.changed(positives="all")),
        Wys2Row("labels", "planted truth", SS.changed(positives="planted")),
    ]


def _baselines() -> list[Wys2Row]:
    every = SS.changed(positives="all")
    mil, released = (
        ContrastSettings(objective="mil-nce"),
        ContrastSettings(objective="mil-nce-released"),
    )
    return [
        Wys2Row("baselines", "cosine without training (CLIP on short clips)", ZERO_SHOT),
        Wys2Row("baselines", "words alone", WORDS, {AUC: 53.5}),
        Wys2Row("baselines", "objects alone", OBJECTS, {AUC: 51.0}),
        Wys2Row(
            "baselines",
            "MIL-NCE, 3 candidates, every clip",
            every.changed(contrast=mil),
            {AUC: 59.6},
        ),
        Wys2Row("baselines", "MIL-NCE as released", every.changed(contrast=released)),
        Wys2Row(
            "baselines",
            "VideoCLIP: clips of 16 s, every clip",
            every.changed(overlapping=True),
            {AUC: 59.0},
        ),
        Wys2Row("baselines", "TAN: joint head, SS labels", SS.changed(score="joint")),
    ]


def _pseudo() -> list[Wys2Row]:
    return [
        Wys2Row("pseudo-labels", "none", SS, {AUC: 62.7}),
        Wys2Row("pseudo-labels", "threshold of best F1 on validation clips", PSEUDO, {AUC: 76.2}),
        Wys2Row("pseudo-labels", "the best 10 % of the unlabelled clips", BEST),
        Wys2Row(
            "pseudo-labels", "two rounds, best F1", SS.changed(pseudo=PseudoSettings(rounds=2))
        ),
        Wys2Row("pseudo-labels", "every unlabelled clip taken for shown", EVERYTHING),
        Wys2Row("pseudo-labels", "raw dot product, none", SS.changed(score="dot")),
        Wys2Row("pseudo-labels", "raw dot product, best F1", PSEUDO.changed(score="dot")),
        Wys2Row("pseudo-labels", "raw dot product, the best 10 %", BEST.changed(score="dot")),
    ]


def _options() -> list[Wys2Row]:
    return [
        Wys2Row("options", "raw dot product, SS", SS.changed(score="dot")),
        Wys2Row("options", "raw dot product, VR", VR.changed(score="dot")),
        Wys2Row("options", "raw dot product, MC", MC.changed(score="dot")),
        Wys2Row(
            "options",
            "the whole batch as rivals",
            SS.changed(contrast=ContrastSettings(negatives=None)),
        ),
        Wys2Row(
            "options",
            "2 texts and 2 clips as rivals",
            SS.changed(contrast=ContrastSettings(rivals="both")),
        ),
        Wys2Row("options", "twice the steps", SS.changed(size=Wys2Size(steps=600))),
    ]


def _amount() -> list[Wys2Row]:
    counts = [
        Wys2Row("amount", f"{count} positives", SS.changed(most=count))
        for count in (16, 64, 250, 1000)
    ]
    many = SS.changed(size=Wys2Size(labelled=1000))  # 4,000 positives
    return [
        Wys2Row("amount", "cosine without training", ZERO_SHOT),
        *counts,
        Wys2Row("amount", "all", SS),
        Wys2Row("amount", "4000 positives, of 1000 videos", many.changed(most=4000)),
    ]


def grid_rows() -> tuple[Wys2Row, ...]:
    """Return the supplement's grid in its small form: c, negatives, batch and learning rate, scored
    on validation."""
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
                    name = f"c {c}, {negatives} negatives, batch {batch}, rate {rate:g}"
                    rows.append(Wys2Row("grid", name, trial))
    return tuple(rows)


# the paper's orderings, and what the world's prototype made safe to assert of them, in ROC-AUC
CLAIMS = (
    Claim("SS above VR", AUC, SS, VR, 0.04),
    Claim("SS above MC", AUC, SS, MC, 0.04),
    Claim(
        "SS above VR, raw dot product", AUC, SS.changed(score="dot"), VR.changed(score="dot"), 0.0
    ),
    Claim(
        "SS above MC, raw dot product", AUC, SS.changed(score="dot"), MC.changed(score="dot"), 0.0
    ),
    Claim("pseudo-labels above none", AUC, PSEUDO, SS, 0.015),
    Claim(
        "pseudo-labels above none, raw dot product",
        AUC,
        PSEUDO.changed(score="dot"),
        SS.changed(score="dot"),
        0.0,
    ),
    # the prototype's own form
    Claim("pseudo-labels (the best 10 %) above none", AUC, BEST, SS, 0.015),
    Claim(
        "the same, raw dot product", AUC, BEST.changed(score="dot"), SS.changed(score="dot"), 0.0
    ),
    Claim("pseudo-labels above taking everything", AUC, PSEUDO, EVERYTHING, 0.0),
    Claim("SS above words alone", AUC, SS, WORDS, 0.0),
    Claim("SS above objects alone", AUC, SS, OBJECTS, 0.0),
    Claim("SS above cosine without training", AUC, SS, ZERO_SHOT, 0.0),
    Claim("MC above VR", AUC, MC, VR, None),
)
