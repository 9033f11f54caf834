"""NaSVA's tables 2, 3, 4, 8 and 9 as trials, row for row, with the published values, and more.

The paper's eps2 is a cosine of its own features. In the simulated world 0.7 and 0.8 keep no label
at all. So the fractions of texts that are dropped replace it: 0 for 0.6, 0.15 for 0.7, 0.30
for 0.8. The simulated backbones replace the real ones by rank alone: dull for S3D-G, usual for
CLIP, sharp for InternVideo.
"""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import model_validator

from lab.study import Row, Trial
from stepline.models.nasva.settings import AlignabilityTargets, BestAt, RefineSettings, UnshownTexts
from stepline.settings import Count, Fraction, Positive, Settings

Texts: TypeAlias = Literal["W", "S", "W+S"]
LabelSource: TypeAlias = Literal["asr", "video", "planted"]
Labeller: TypeAlias = Literal["best second", "small loss", "soft"]
WorldName: TypeAlias = Literal["short", "short-2", "onset"]


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


PAPER_SIZE = NasvaSize(
    width=256, heads=8, layers=3, feed_forward=2048, projection=64, learning_rate=1e-4, epochs=12
)


class Round(Settings):
    """One refinement of the labels."""

    refine: RefineSettings
    teachers: Count = 1
    # "small loss": keeps first labels. "soft": each second at its probability
    labeller: Labeller = "best second"
    # of the first labels, those of least loss that are kept. Agreement keeps as many
    small_loss: Fraction = 0.4
    # the paper's cosine that `refine.threshold` means in the simulated world
    eps2: Fraction | None = None

    @property
    def in_cosines(self) -> "Round":
        """The round with the paper's own threshold, for the features that it was chosen for."""
        if self.eps2 is None:
            return self
        refine = self.refine.model_copy(update={"threshold": self.eps2, "threshold_kind": "cosine"})
        return self.model_copy(update={"refine": refine})


class LabelPlan(Settings):
    """How the written steps are labelled."""

    first: LabelSource = "asr"  # Step-ASR, Step-Video, or the planted truth
    floor: Fraction = 0.20  # eps1
    rounds: tuple[Round, ...] = ()

    @property
    def soft(self) -> bool:
        """Whether a text's label is a probability of every second."""
        return bool(self.rounds) and self.rounds[-1].labeller == "soft"


class NasvaTrial(Trial):
    """One training: its data, its labels, its network, its length."""

    again: int = 0  # a second teacher differs from the first in this alone
    world: WorldName = "short"
    lag: float | None = None  # s, `narration.offset` in place of the world's own
    # to train on, in place of the size's. The more, the fewer epochs, down to one
    videos: Count | None = None
    backbone: str = "usual"
    recogniser: Literal["clean", "aligned", "noisy"] = "clean"
    texts: Texts = "S"
    planted: bool = False  # narrations too are labelled by the planted truth
    labels: LabelPlan = LabelPlan()
    early: bool = False  # trained as long as a teacher, not as long as a final network
    attention_dropout: Fraction = 0.0
    # the final network has the paper's size, its teachers that of `size`
    paper_network: bool = False
    head: AlignabilityTargets | None = None
    # texts that the head learns as not shown, in place of those without a label
    unshown: UnshownTexts | None = None
    size: NasvaSize = NasvaSize()

    @model_validator(mode="after")
    def _has_a_loss(self) -> "NasvaTrial":
        if self.texts != "S" and self.labels.soft:
            raise ValueError("soft labels are those of written steps; give texts='S'")
        return self

    @property
    def predecessors(self) -> tuple["NasvaTrial", ...]:
        """The trainings whose matrices make its last round of labels, none for first labels."""
        if self.texts == "W" or not self.labels.rounds:
            return ()
        *before, last = self.labels.rounds
        plan = self.labels.model_copy(update={"rounds": tuple(before)})
        shared = ("seed", "world", "lag", "backbone", "recogniser", "size")
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
    "head": (
        "Alignability: ROC-AUC of the head beside the best cosine's; "
        "two teachers that agree, S alone"
    ),
    "size": "Networks of the paper's size, trained as long as a teacher; S alone",
    "dropout": "Attention dropout; two teachers that agree, S alone",
    "version-2": "The paper's orderings in version 2 of the world",
    "lag": "Table 8 over the lag of the pictures behind the words; S alone, 8 s, eps2 0.8",
    "corpus": "eps2 over the number of videos; S alone, start, 8 s",
    "labellers": "Labellers in version 2 of the world; S alone",
    "labellers-1": "Labellers in version 1 of the world; S alone",
    "unshown": (
        "What the alignability head learns as not shown; "
        "two teachers that agree, S alone, version 2"
    ),
}
# Tables that come only when they are named.
UNUSUAL_TABLES = ("version-2", "lag", "corpus", "labellers", "labellers-1", "unshown")


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
AFTER_START = "label start - window start"


NasvaRow: TypeAlias = Row[NasvaTrial]


def start(eps2: float, seconds: float | None = 8.0) -> Round:
    """Return the paper's refinement: the best second starts the label."""
    return fixed(eps2, "start", seconds)


def fixed(eps2: float, position: BestAt, seconds: float | None) -> Round:
    """Return a refinement of the paper's tables, with the fraction that stands for eps2."""
    refine = RefineSettings(
        threshold=DROPPED_FRACTION[eps2], position=position, seconds=seconds, agree=None
    )
    return Round(refine=refine, eps2=eps2)


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
    explained = (*_second_version(), *_lags(), *_corpora(), *_labellers(), *unshown_rows())
    return (*papers, *_heads(), *_dropout(), *_paper_network(), *explained)


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


def _heads() -> list[NasvaRow]:
    ours = labelled(OUR_ROUND)
    return [
        NasvaRow("head", "no head: the best cosine", ours),
        NasvaRow("head", "targets: kept", ours.changed(head="kept")),
        NasvaRow("head", "targets: agreement", ours.changed(head="agreement")),
    ]


def _dropout() -> list[NasvaRow]:
    ours = labelled(OUR_ROUND)
    return [
        NasvaRow("dropout", "of attention weights: 0", ours),
        NasvaRow(
            "dropout",
            "of attention weights: 0.1 (as released)",
            ours.changed(attention_dropout=0.1),
        ),
    ]


def _paper_network() -> list[NasvaRow]:
    ours = labelled(OUR_ROUND).changed(early=True)
    large_first = EARLY_TEACHER.changed(paper_network=True)
    large_ours = ours.changed(paper_network=True)
    return [
        NasvaRow("size", "D 64, 1 + 1 layers, first labels", EARLY_TEACHER),
        NasvaRow("size", "D 256, 3 + 3 layers, first labels", large_first),
        NasvaRow("size", "D 64, 1 + 1 layers, our labels", ours),
        NasvaRow("size", "D 256, 3 + 3 layers, our labels", large_ours),
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


WORLD_LAGS: tuple[tuple[WorldName, float | None], ...] = (
    ("short", None),
    ("short", 4.0),
    ("short-2", None),
    ("onset", None),
)
CORPUS_VIDEOS = (100, 300, 1000, 3000)
# By the table that uses it.
TABLE_WORLDS: Mapping[str, WorldName] = {"labellers": "short-2", "labellers-1": "short"}


def of_lag(world: WorldName, lag: float | None, position: BestAt) -> NasvaTrial:
    """Return the paper's refinement in a world whose pictures follow its words with this lag."""
    return labelled(fixed(0.8, position, 8.0)).changed(world=world, lag=lag)


def _lags() -> list[NasvaRow]:
    positions: tuple[BestAt, ...] = ("start", "center")
    rows = []
    for world, lag in WORLD_LAGS:
        for position in positions:
            name = f"{lag_name(world, lag)}, {position}"
            rows.append(NasvaRow("lag", name, of_lag(world, lag, position)))
    return rows


def lag_name(world: WorldName, lag: float | None) -> str:
    """Return the name of a world and its lag in rows and claims."""
    names: Mapping[WorldName, str] = {
        "short": "version 1",
        "short-2": "version 2",
        "onset": "version 2, act at the onset",
    }
    lag_text = "its own lag" if lag is None else f"{lag:+.0f} s"
    return f"{names[world]}, {lag_text}"


def of_corpus(videos: int, eps2: float) -> NasvaTrial:
    """Return the paper's refinement of a corpus of this size."""
    return labelled(start(eps2)).changed(videos=videos)


def _corpora() -> list[NasvaRow]:
    rows = []
    for videos in CORPUS_VIDEOS:
        for eps2 in (0.6, 0.8):
            name = f"{videos} videos, eps2 {eps2} ({DROPPED_FRACTION[eps2]:.0%} dropped)"
            rows.append(NasvaRow("corpus", name, of_corpus(videos, eps2)))
    return rows


LABELLER_TRIALS: Mapping[str, NasvaTrial] = {
    "the early-stopped teacher": EARLY_TEACHER,
    "one teacher": labelled(round_of()),
    "two teachers that agree within 4 s": labelled(OUR_ROUND),
    "first labels of small loss": labelled(
        round_of().model_copy(update={"labeller": "small loss"})
    ),
    "soft labels of one teacher": labelled(round_of().model_copy(update={"labeller": "soft"})),
}


def _labellers() -> list[NasvaRow]:
    rows = []
    for table, world in TABLE_WORLDS.items():
        for name, trial in LABELLER_TRIALS.items():
            rows.append(NasvaRow(table, name, trial.changed(world=world)))
    return rows


def unshown_rows() -> list[NasvaRow]:
    """Return the rows of what the alignability head learns as not shown."""
    ours = labelled(OUR_ROUND).changed(world="short-2", head="kept")
    return [
        NasvaRow("unshown", "its own texts without a label", ours),
        NasvaRow("unshown", "texts of other tasks", ours.changed(unshown="other task")),
        NasvaRow(
            "unshown", "texts of the same task, unlike its own", ours.changed(unshown="unlike")
        ),
    ]


def sized(trial: NasvaTrial, size: NasvaSize, seed: int, *, cosines: bool = False) -> NasvaTrial:
    """Return a trial of another size and seed. cosines: with the paper's own thresholds."""
    if trial.videos is not None:
        # the more videos, the fewer epochs
        share = min(1.0, size.videos / trial.videos)
        update = {
            "videos": trial.videos,
            "epochs": math.ceil(share * size.epochs),
            "teacher_epochs": math.ceil(share * size.teacher_epochs),
        }
        size = size.model_copy(update=update)
    labels = trial.labels
    if cosines:
        rounds = tuple(label_round.in_cosines for label_round in labels.rounds)
        labels = labels.model_copy(update={"rounds": rounds})
    return trial.changed(videos=None, size=size, seed=seed, labels=labels)


def _one(steps: float) -> dict[str, float]:
    return {STEP_RECALL: steps}


def _two(steps: float, narrations: float) -> dict[str, float]:
    return {STEP_RECALL: steps, NARRATION_RECALL: narrations}
