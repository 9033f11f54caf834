"""The rows of WYS2's tables in the simulated world and what is claimed of them. Nothing heavy is
imported here.

The simulated sentence encoder is not InferSent: its cosines are lower, so that c is a quantile
unless a row says "c = 0.5". Every training takes about as many steps, whatever it is trained on.
"""

from typing import Literal, TypeAlias

from lab.study import Claim, Row, Trial
from stepline.models.wys2.settings import ContrastSettings, LabelSettings, PseudoSettings, Score
from stepline.settings import Count, Positive, Settings

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
    size: Wys2Size = Wys2Size()


TABLE_TITLES = {
    "labels": "How positives are inferred (cosine, 4 sampled negatives)",
    "baselines": "Baselines",
    "pseudo-labels": "Pseudo-labels on unlabelled videos",
    "grid": "The supplement's grid, its small form; fixed c, scored on validation clips",
}


Wys2Row: TypeAlias = Row[Wys2Trial]


AUC_MEASURE = "ROC-AUC"
SS_TRIAL = Wys2Trial()
VR_TRIAL = Wys2Trial(labels=LabelSettings(kind="vr"))
MC_TRIAL = Wys2Trial(labels=LabelSettings(kind="mc"))
PSEUDO_TRIAL = Wys2Trial(pseudo=PseudoSettings())
BEST_TRIAL = Wys2Trial(pseudo=PseudoSettings(threshold="share"))
EVERYTHING_TRIAL = Wys2Trial(everything=True)
WORDS_TRIAL = Wys2Trial(kind="text")
OBJECTS_TRIAL = Wys2Trial(kind="objects")
ZERO_SHOT_TRIAL = Wys2Trial(kind="zero-shot")
EVERY_CLIP_TRIAL = SS_TRIAL.changed(positives="all")


def wys2_rows() -> tuple[Wys2Row, ...]:
    """Return all rows."""
    return (*_labels(), *_baselines(), *_pseudo())


def _labels() -> list[Wys2Row]:
    fixed_similarity = SS_TRIAL.changed(labels=LabelSettings())
    unresolved = SS_TRIAL.changed(resolved=False)
    return [
        Wys2Row("labels", "SS, the likest 35 %", SS_TRIAL, {AUC_MEASURE: 62.7}),
        Wys2Row("labels", "SS, c = 0.5", fixed_similarity),
        Wys2Row("labels", "SS, pronouns not resolved", unresolved),
        Wys2Row("labels", "VR", VR_TRIAL, {AUC_MEASURE: 58.8}),
        Wys2Row("labels", "MC, the best 35 % of a task's clips", MC_TRIAL, {AUC_MEASURE: 59.3}),
        Wys2Row("labels", "every clip with narration", EVERY_CLIP_TRIAL),
        Wys2Row("labels", "planted truth", SS_TRIAL.changed(positives="planted")),
    ]


def _baselines() -> list[Wys2Row]:
    contrast = ContrastSettings(objective="mil-nce")
    released = ContrastSettings(objective="mil-nce-released")
    mil_nce = EVERY_CLIP_TRIAL.changed(contrast=contrast)
    mil_nce_released = EVERY_CLIP_TRIAL.changed(contrast=released)
    videoclip = EVERY_CLIP_TRIAL.changed(overlapping=True)
    joint = SS_TRIAL.changed(score="joint")
    return [
        Wys2Row("baselines", "cosine without training (CLIP on short clips)", ZERO_SHOT_TRIAL),
        Wys2Row("baselines", "words alone", WORDS_TRIAL, {AUC_MEASURE: 53.5}),
        Wys2Row("baselines", "objects alone", OBJECTS_TRIAL, {AUC_MEASURE: 51.0}),
        Wys2Row("baselines", "MIL-NCE, 3 candidates, every clip", mil_nce, {AUC_MEASURE: 59.6}),
        Wys2Row("baselines", "MIL-NCE as released", mil_nce_released),
        Wys2Row(
            "baselines", "VideoCLIP: clips of 16 s, every clip", videoclip, {AUC_MEASURE: 59.0}
        ),
        Wys2Row("baselines", "TAN: joint head, SS labels", joint),
    ]


def _pseudo() -> list[Wys2Row]:
    two_rounds = SS_TRIAL.changed(pseudo=PseudoSettings(rounds=2))
    best_f1 = "threshold of best F1 on validation clips"
    every_clip = "every unlabelled clip taken for shown"
    return [
        Wys2Row("pseudo-labels", "none", SS_TRIAL, {AUC_MEASURE: 62.7}),
        Wys2Row("pseudo-labels", best_f1, PSEUDO_TRIAL, {AUC_MEASURE: 76.2}),
        Wys2Row("pseudo-labels", "the best 10 % of the unlabelled clips", BEST_TRIAL),
        Wys2Row("pseudo-labels", "two rounds, best F1", two_rounds),
        Wys2Row("pseudo-labels", every_clip, EVERYTHING_TRIAL),
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


# the paper's orderings, in ROC-AUC
PAPER_CLAIMS = (
    Claim("SS above VR", AUC_MEASURE, SS_TRIAL, VR_TRIAL),
    Claim("SS above MC", AUC_MEASURE, SS_TRIAL, MC_TRIAL),
    Claim("pseudo-labels above none", AUC_MEASURE, PSEUDO_TRIAL, SS_TRIAL),
    Claim("pseudo-labels (the best 10 %) above none", AUC_MEASURE, BEST_TRIAL, SS_TRIAL),
    Claim("pseudo-labels above taking everything", AUC_MEASURE, PSEUDO_TRIAL, EVERYTHING_TRIAL),
    Claim("SS above words alone", AUC_MEASURE, SS_TRIAL, WORDS_TRIAL),
    Claim("SS above objects alone", AUC_MEASURE, SS_TRIAL, OBJECTS_TRIAL),
    Claim("SS above cosine without training", AUC_MEASURE, SS_TRIAL, ZERO_SHOT_TRIAL),
    Claim("MC above VR", AUC_MEASURE, MC_TRIAL, VR_TRIAL),
)
