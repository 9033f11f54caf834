"""NaSVA's tables 2, 3, 4, 8 and 9 as trials, row for row, with the published values, and more.

The paper's eps2 is a cosine of its own features. In the simulated world 0.7 and 0.8 keep no label
at all. So the fractions of texts that are dropped replace it: 0 for 0.6, 0.15 for 0.7, 0.30
for 0.8. The simulated backbones replace the real ones by rank alone: dull for S3D-G, usual for
CLIP, sharp for InternVideo.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from lab.study import Claim, Row, Trial
from stepline.models.nasva.settings import BestAt, RefineSettings
from stepline.settings import Count, Fraction, Positive, Settings

Texts: TypeAlias = Literal["W", "S", "W+S"]
LabelSource: TypeAlias = Literal["asr", "video", "planted"]
WorldName: TypeAlias = Literal["short", "short-2"]


class NasvaSize(Settings):
    """How large an experiment is. The defaults are the small form."""

    videos: Count = 500  # to train on
    held_out: Count = 150  # to score on
    width: Count = 64  # D; the paper's 256
    heads: Count = 4  # the paper's 8
    layers: Count = 1  # encoder and decoder each; the paper's 3
    feed_forward: Count = 256  # the release's 2048
    projection: Count = 32  # d; the paper's 64
    learning_rate: Positive = 1e-3  # the paper's 1e-4, for a network 30 times as large
    epochs: Count = 8  # of every final network; the paper's 12
    # of a network whose matrix makes labels: stopped before it knows its noise by heart
    teacher_epochs: Count = 4


class Round(Settings):
    """One refinement of the labels."""

    refine: RefineSettings
    teachers: Count = 1


class LabelPlan(Settings):
    """How the written steps are labelled."""

    first: LabelSource = "asr"  # Step-ASR, Step-Video, or the planted truth
    floor: Fraction = 0.20  # eps1
    rounds: tuple[Round, ...] = ()


class NasvaTrial(Trial):
    """One training: its data, its labels, its network, its length."""

    again: int = 0  # a second teacher differs from the first in this alone
    world: WorldName = "short"
    backbone: str = "usual"
    recogniser: Literal["clean", "aligned", "noisy"] = "clean"
    texts: Texts = "S"
    planted: bool = False  # narrations too are labelled by the planted truth
    labels: LabelPlan = LabelPlan()
    early: bool = False  # trained as long as a teacher, not as long as a final network
    size: NasvaSize = NasvaSize()

    @property
    def predecessors(self) -> tuple["NasvaTrial", ...]:
        """The trainings whose matrices make its last round of labels, none for first labels."""
        if self.texts == "W" or not self.labels.rounds:
            return ()
        *before, last = self.labels.rounds
        plan = self.labels.model_copy(update={"rounds": tuple(before)})
        shared = ("seed", "world", "backbone", "recogniser", "size")
        plain = NasvaTrial(**{name: getattr(self, name) for name in shared})
        teachers = []
        for again in range(last.teachers):
            teachers.append(plain.changed(labels=plan, early=True, again=again))
        return tuple(teachers)


TABLE_TITLES = {
    "2": "Table 2: training texts (W narrations, S written steps) and backbones",
    "3": "Table 3: where labels come from, thresholds, self-training; S alone",
    "4": "Table 4: backbones and recognisers; W alone",
    "8": "Table 8: the first refinement; S alone",
    "9": "Table 9: rounds of self-training",
    "beyond": (
        "Beyond the paper: a student better than its early-stopped teacher; S alone where not said"
    ),
    "version-2": "The paper's orderings in version 2 of the world",
}
# Tables that come only when they are named.
UNUSUAL_TABLES = ("version-2",)


# eps2 of the paper -> fraction of texts dropped here.
DROPPED_FRACTION = {0.6: 0.0, 0.7: 0.15, 0.8: 0.30}
BACKBONE_GRADES = {
    "MIL-NCE S3D-G": "dull",
    "CLIP-ViT/L-14": "usual",
    "InternVideo-ViT/L-14": "sharp",
}
# Scores that replace those of HT-Step and of HTM-Align.
STEP_RECALL = "recipe R@1"
NARRATION_RECALL = "narration R@1"
LABELS_INSIDE = "labels inside"


NasvaRow: TypeAlias = Row[NasvaTrial]


def start(eps2: float, seconds: float | None = 8.0) -> Round:
    """Return the paper's refinement: the best second starts the label."""
    return fixed(eps2, "start", seconds)


def fixed(eps2: float, position: BestAt, seconds: float | None) -> Round:
    """Return a refinement of the paper's tables, with the fraction that stands for eps2."""
    refine = RefineSettings(
        threshold=DROPPED_FRACTION[eps2], position=position, seconds=seconds, agree=None
    )
    return Round(refine=refine)


def round_of(
    *, teachers: int = 1, agree: float | None = None, position: BestAt = "center"
) -> Round:
    """Return a refinement that drops nothing by its score.

    agree: seconds within which the teachers must agree. None drops nothing by disagreement.
    """
    refine = RefineSettings(threshold=0.0, position=position, seconds=8.0, agree=agree)
    return Round(refine=refine, teachers=teachers)


OUR_ROUND = round_of(teachers=2, agree=4.0)
PAPER_ROUNDS = (start(0.8),)
# Of table 9.
SECOND_ROUND = fixed(0.7, "center", None)
THIRD_ROUND = fixed(0.8, "center", None)


def labelled(
    *rounds: Round, first: str = "asr", floor: float = 0.20, texts: Texts = "S"
) -> NasvaTrial:
    """Return a training on written steps after these rounds of labelling."""
    plan = LabelPlan.model_validate({"first": first, "floor": floor, "rounds": rounds})
    return NasvaTrial(texts=texts, labels=plan)


NARRATION_TRIAL = NasvaTrial(texts="W")
FIRST_LABELS = labelled()
EARLY_TEACHER = FIRST_LABELS.changed(early=True)
PLANTED_LABELS = labelled(first="planted")
ALL_PLANTED = labelled(first="planted", texts="W+S").changed(planted=True)
REFINED_LABELS = labelled(*PAPER_ROUNDS)
BOTH_TEXTS = labelled(*PAPER_ROUNDS, texts="W+S")
CENTER_LABELS = labelled(round_of())
AVERAGED_LABELS = labelled(round_of(teachers=2))
VIDEO_FIRST = labelled(first="video")
VIDEO_REFINED = labelled(*PAPER_ROUNDS, first="video")


def nasva_rows() -> tuple[NasvaRow, ...]:
    """Return all rows, those of the paper's orderings first."""
    papers = (*_table_2(), *_table_3(), *_beyond(), *_table_4(), *_table_8(), *_table_9())
    return (*papers, *_second_version())


def _table_2() -> list[NasvaRow]:
    published = {
        "CLIP-ViT/L-14": ((32.2, 58.7), (42.4, 64.9)),
        "MIL-NCE S3D-G": ((29.1, 59.5), (40.9, 63.0)),
        "InternVideo-ViT/L-14": ((34.7, 70.0), (46.4, 71.6)),
    }
    rows = []
    for real, (alone, both) in published.items():
        grade = BACKBONE_GRADES[real]
        name = f"{real} (here {grade})"
        ceiling = f"{name}, planted labels of W + S: the ceiling"
        narration = NARRATION_TRIAL.changed(backbone=grade)
        both_texts = BOTH_TEXTS.changed(backbone=grade)
        rows.append(NasvaRow("2", f"{name}, W", narration, _two(*alone)))
        rows.append(NasvaRow("2", f"{name}, W + S", both_texts, _two(*both)))
        rows.append(NasvaRow("2", ceiling, ALL_PLANTED.changed(backbone=grade)))
    return rows


def _table_3() -> list[NasvaRow]:
    video = labelled(first="video")
    return [
        NasvaRow("3", "Step-Video, no self-training", video, _one(36.5)),
        NasvaRow("3", "Step-Video, eps2 0.8", labelled(*PAPER_ROUNDS, first="video"), _one(36.9)),
        NasvaRow("3", "Step-ASR, eps1 0.15, no self-training", labelled(floor=0.15), _one(35.3)),
        NasvaRow("3", "Step-ASR, eps1 0.20, no self-training", FIRST_LABELS, _one(36.0)),
        NasvaRow(
            "3", "Step-ASR, eps1 0.15, eps2 0.7", labelled(start(0.7), floor=0.15), _one(41.4)
        ),
        NasvaRow(
            "3", "Step-ASR, eps1 0.15, eps2 0.8", labelled(start(0.8), floor=0.15), _one(41.7)
        ),
        NasvaRow("3", "Step-ASR, eps1 0.20, eps2 0.7", labelled(start(0.7)), _one(42.3)),
        NasvaRow("3", "Step-ASR, eps1 0.20, eps2 0.8", labelled(*PAPER_ROUNDS), _one(43.7)),
        NasvaRow("3", "planted labels: the ceiling", PLANTED_LABELS),
    ]


def _beyond() -> list[NasvaRow]:
    """Return the rows of what a student needs to be better than its early-stopped teacher."""
    return [
        NasvaRow("beyond", "the early-stopped teacher", EARLY_TEACHER),
        NasvaRow("beyond", "the same labels, trained long", FIRST_LABELS),
        NasvaRow(
            "beyond",
            "one teacher, start, 8 s, nothing dropped",
            labelled(round_of(position="start")),
        ),
        NasvaRow("beyond", "one teacher, center, 8 s, nothing dropped", labelled(round_of())),
        NasvaRow("beyond", "two teachers averaged", labelled(round_of(teachers=2))),
        NasvaRow("beyond", "two teachers that agree within 4 s", labelled(OUR_ROUND)),
        NasvaRow("beyond", "the same, two rounds", labelled(OUR_ROUND, OUR_ROUND)),
        NasvaRow("beyond", "two teachers that agree, W + S", labelled(OUR_ROUND, texts="W+S")),
        NasvaRow("beyond", "planted labels: the ceiling", PLANTED_LABELS),
    ]


def _table_4() -> list[NasvaRow]:
    noisy = NARRATION_TRIAL.changed(recogniser="noisy")
    return [
        NasvaRow("4", "CLIP (usual), clean recogniser", NARRATION_TRIAL, _two(32.2, 58.7)),
        NasvaRow(
            "4",
            "S3D (dull), clean recogniser",
            NARRATION_TRIAL.changed(backbone="dull"),
            _two(29.1, 59.5),
        ),
        NasvaRow(
            "4",
            "InternVideo (sharp), clean recogniser",
            NARRATION_TRIAL.changed(backbone="sharp"),
            _two(34.7, 70.0),
        ),
        NasvaRow(
            "4",
            "InternVideo (sharp), noisy recogniser",
            noisy.changed(backbone="sharp"),
            _two(35.7, 61.3),
        ),
    ]


def _table_8() -> list[NasvaRow]:
    grown = {0.6: 37.6, 0.7: 37.5, 0.8: 38.2}
    fixed_lengths: Mapping[BestAt, Mapping[float, float]] = {
        "start": {6.0: 43.1, 8.0: 43.7, 10.0: 43.0},
        "center": {6.0: 38.0, 8.0: 37.2, 10.0: 37.8},
    }
    rows = []
    for eps2, recall in grown.items():
        trial = labelled(fixed(eps2, "center", None))
        rows.append(NasvaRow("8", f"eps2 {eps2}, center, grown", trial, _one(recall)))
    for position, published in fixed_lengths.items():
        for seconds, recall in published.items():
            trial = labelled(fixed(0.8, position, seconds))
            name = f"eps2 0.8, {position}, {seconds:.0f} s"
            rows.append(NasvaRow("8", name, trial, _one(recall)))
    rows.append(NasvaRow("8", "planted labels: the ceiling", PLANTED_LABELS))
    return rows


def _table_9() -> list[NasvaRow]:
    two_rounds = (*PAPER_ROUNDS, SECOND_ROUND)
    three_rounds = (*PAPER_ROUNDS, SECOND_ROUND, THIRD_ROUND)
    both_two = labelled(*two_rounds, texts="W+S")
    both_three = labelled(*three_rounds, texts="W+S")
    return [
        NasvaRow("9", "0 rounds, S", FIRST_LABELS, _two(36.0, 44.0)),
        NasvaRow("9", "1 round, start, 8 s, S", REFINED_LABELS, _two(43.7, 46.7)),
        NasvaRow("9", "1 round, start, 8 s, W + S", BOTH_TEXTS, _two(46.4, 71.6)),
        NasvaRow("9", "2 rounds, center, grown, S", labelled(*two_rounds), _two(44.8, 52.9)),
        NasvaRow("9", "2 rounds, center, grown, W + S", both_two, _two(46.9, 72.1)),
        NasvaRow("9", "3 rounds, center, grown, S", labelled(*three_rounds), _two(45.2, 51.8)),
        NasvaRow("9", "3 rounds, center, grown, W + S", both_three, _two(46.0, 69.7)),
        NasvaRow("9", "planted labels of W + S: the ceiling", ALL_PLANTED),
    ]


def _second_version() -> list[NasvaRow]:
    rows = {
        "W": NARRATION_TRIAL,
        "W + S": BOTH_TEXTS,
        "S, first labels": FIRST_LABELS,
        "S, refined": REFINED_LABELS,
        "Step-Video": VIDEO_FIRST,
        "Step-Video, refined": VIDEO_REFINED,
        "the early-stopped teacher": EARLY_TEACHER,
    }
    return [
        NasvaRow("version-2", name, trial.changed(world="short-2")) for name, trial in rows.items()
    ]


def _one(steps: float) -> dict[str, float]:
    return {STEP_RECALL: steps}


def _two(steps: float, narrations: float) -> dict[str, float]:
    return {STEP_RECALL: steps, NARRATION_RECALL: narrations}


CLAIMS = (
    Claim("W + S above W, steps", STEP_RECALL, BOTH_TEXTS, NARRATION_TRIAL, published=10.2),
    Claim(
        "self-training on Step-ASR labels, equally long training, steps",
        STEP_RECALL,
        REFINED_LABELS,
        FIRST_LABELS,
        published=7.7,
    ),
    Claim(
        "the same above that of Step-Video labels",
        STEP_RECALL,
        REFINED_LABELS,
        FIRST_LABELS,
        published=7.3,
        beyond=(VIDEO_FIRST, VIDEO_REFINED),
    ),
    Claim("refined S above W, steps", STEP_RECALL, REFINED_LABELS, NARRATION_TRIAL, published=9.0),
    Claim(
        "W above refined S, narrations",
        NARRATION_RECALL,
        NARRATION_TRIAL,
        REFINED_LABELS,
        published=23.3,
    ),
    Claim(
        "refined labels in the planted window more often than coarse ones",
        LABELS_INSIDE,
        REFINED_LABELS,
        FIRST_LABELS,
    ),
    Claim(
        "our student above the early-stopped teacher, steps",
        STEP_RECALL,
        labelled(OUR_ROUND),
        EARLY_TEACHER,
    ),
    Claim(
        "our student above the early-stopped teacher, narrations",
        NARRATION_RECALL,
        labelled(OUR_ROUND),
        EARLY_TEACHER,
    ),
    Claim(
        "the paper's student above the early-stopped teacher, steps",
        STEP_RECALL,
        REFINED_LABELS,
        EARLY_TEACHER,
    ),
    Claim(
        "start above center, 8 s, steps",
        STEP_RECALL,
        REFINED_LABELS,
        labelled(fixed(0.8, "center", 8.0)),
        published=6.5,
    ),
    Claim(
        "eps2 0.8 above 0.7, start, steps",
        STEP_RECALL,
        REFINED_LABELS,
        labelled(start(0.7)),
        published=1.4,
    ),
    Claim(
        "two teachers averaged above one, center, steps",
        STEP_RECALL,
        AVERAGED_LABELS,
        CENTER_LABELS,
    ),
    Claim(
        "teachers that agree above averaged, steps",
        STEP_RECALL,
        labelled(OUR_ROUND),
        AVERAGED_LABELS,
    ),
    Claim(
        "a second round of ours above the first, steps",
        STEP_RECALL,
        labelled(OUR_ROUND, OUR_ROUND),
        labelled(OUR_ROUND),
    ),
    Claim(
        "W + S above W, narrations", NARRATION_RECALL, BOTH_TEXTS, NARRATION_TRIAL, published=6.2
    ),
    Claim("the ceiling above W + S, steps", STEP_RECALL, ALL_PLANTED, BOTH_TEXTS),
)


def version_2_claims() -> list[Claim]:
    """Return the same orderings in version 2 of the world."""

    def moved(subject: Hashable) -> NasvaTrial:
        if not isinstance(subject, NasvaTrial):
            raise TypeError(f"a claim of NaSVA's is about trials, not {subject!r}")
        return subject.changed(world="short-2")

    claims = []
    for claim in CLAIMS:
        beyond = None
        if claim.beyond is not None:
            beyond = (moved(claim.beyond[0]), moved(claim.beyond[1]))
        again = replace(
            claim,
            statement=f"{claim.statement}, version 2",
            more=moved(claim.more),
            less=moved(claim.less),
            beyond=beyond,
        )
        claims.append(again)
    return claims
