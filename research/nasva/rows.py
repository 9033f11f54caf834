"""NaSVA's tables 2, 3, 4, 8 and 9 as trials in the simulated world, row for row, and what goes beyond them.

The paper's eps2 is a cosine of its own features. In the simulated world 0.7 and 0.8 keep no label at all, so the
shares of texts that are dropped stand in for it: 0 for 0.6, 0.15 for 0.7, 0.30 for 0.8. The simulated backbones
stand in for the real ones by rank alone: dull for S3D-G, usual for CLIP, sharp for InternVideo.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from research.nasva.corpus import LabelPlan, Round, Size, Texts, Trial
from stepline.nasva.network_settings import Position, RefineSettings

DROPPED = {0.6: 0.0, 0.7: 0.15, 0.8: 0.30}  # eps2 of the paper -> share of texts dropped here
BACKBONES = {"MIL-NCE S3D-G": "dull", "CLIP-ViT/L-14": "usual", "InternVideo-ViT/L-14": "sharp"}
STEPS, SAID = "recipe R@1", "narration R@1"  # what stands for HT-Step and for HTM-Align


@dataclass(frozen=True)
class Row:
    """A row: its table and words, the trial of seed 0, the published scores by the names of ours."""

    table: str
    words: str
    trial: Trial
    published: Mapping[str, float] = field(default_factory=dict)


def start(eps2: float, seconds: float | None = 8.0) -> Round:
    """Return the paper's refinement: the best second starts the label."""
    return fixed(eps2, "start", seconds)


def fixed(eps2: float, position: Position, seconds: float | None) -> Round:
    """Return a refinement of the paper's tables, with the share that stands for eps2."""
    refine = RefineSettings(threshold=DROPPED[eps2], position=position, seconds=seconds, agree=None)
    return Round(refine=refine, eps2=eps2)


def round_of(*, teachers: int = 1, agree: float | None = None, position: Position = "center") -> Round:
    """Return a refinement that drops nothing by its score, and by the teachers' disagreement where that is given."""
    refine = RefineSettings(threshold=0.0, position=position, seconds=8.0, agree=agree)
    return Round(refine=refine, teachers=teachers)


OURS = round_of(teachers=2, agree=4.0)
PAPER = (start(0.8),)
SECOND, THIRD = fixed(0.7, "center", None), fixed(0.8, "center", None)  # table 9


def labelled(*rounds: Round, first: str = "asr", floor: float = 0.20, texts: Texts = "S") -> Trial:
    """Return a training on written steps after these rounds of labelling."""
    plan = LabelPlan.model_validate({"first": first, "floor": floor, "rounds": rounds})
    return Trial(texts=texts, labels=plan)


NARRATED = Trial(texts="W")
FIRST = labelled()
EARLY = FIRST.model_copy(update={"early": True})
PLANTED = labelled(first="planted")
ALL_PLANTED = labelled(first="planted", texts="W+S").model_copy(update={"planted": True})


def rows() -> tuple[Row, ...]:
    """Return all rows, those of the paper's orderings first."""
    papers = (*_table_2(), *_table_3(), *_beyond(), *_table_4(), *_table_8(), *_table_9())
    return (*papers, *_heads(), *_dropout(), *_paper_network())


def _table_2() -> list[Row]:
    published = {
        "CLIP-ViT/L-14": ((32.2, 58.7), (42.4, 64.9)),
        "MIL-NCE S3D-G": ((29.1, 59.5), (40.9, 63.0)),
        "InternVideo-ViT/L-14": ((34.7, 70.0), (46.4, 71.6)),
    }
    made = []
    for real, (alone, both) in published.items():
        on = {"backbone": BACKBONES[real]}
        words = f"{real} (here {BACKBONES[real]})"
        made += [
            Row("2", f"{words}, W", NARRATED.model_copy(update=on), _two(*alone)),
            Row("2", f"{words}, W + S", labelled(*PAPER, texts="W+S").model_copy(update=on), _two(*both)),
            Row("2", f"{words}, planted labels of W + S: the ceiling", ALL_PLANTED.model_copy(update=on)),
        ]
    return made


def _table_3() -> list[Row]:
    video = labelled(first="video")
    return [
        Row("3", "Step-Video, no self-training", video, _one(36.5)),
        Row("3", "Step-Video, eps2 0.8", labelled(*PAPER, first="video"), _one(36.9)),
        Row("3", "Step-ASR, eps1 0.15, no self-training", labelled(floor=0.15), _one(35.3)),
        Row("3", "Step-ASR, eps1 0.20, no self-training", FIRST, _one(36.0)),
        Row("3", "Step-ASR, eps1 0.15, eps2 0.7", labelled(start(0.7), floor=0.15), _one(41.4)),
        Row("3", "Step-ASR, eps1 0.15, eps2 0.8", labelled(start(0.8), floor=0.15), _one(41.7)),
        Row("3", "Step-ASR, eps1 0.20, eps2 0.7", labelled(start(0.7)), _one(42.3)),
        Row("3", "Step-ASR, eps1 0.20, eps2 0.8", labelled(*PAPER), _one(43.7)),
        Row("3", "planted labels: the ceiling", PLANTED),
    ]


def _beyond() -> list[Row]:
    """Return what a student needs to be better than its early-stopped teacher too."""
    return [
        Row("beyond", "the early-stopped teacher", EARLY),
        Row("beyond", "the same labels, trained long", FIRST),
        Row("beyond", "one teacher, start, 8 s, nothing dropped", labelled(round_of(position="start"))),
        Row("beyond", "one teacher, center, 8 s, nothing dropped", labelled(round_of())),
        Row("beyond", "two teachers averaged", labelled(round_of(teachers=2))),
        Row("beyond", "two teachers that agree within 4 s", labelled(OURS)),
        Row("beyond", "the same, two rounds", labelled(OURS, OURS)),
        Row("beyond", "two teachers that agree, W + S", labelled(OURS, texts="W+S")),
        Row("beyond", "planted labels: the ceiling", PLANTED),
    ]


def _table_4() -> list[Row]:
    noisy = NARRATED.model_copy(update={"recogniser": "noisy"})
    sharp = {"backbone": "sharp"}
    return [
        Row("4", "CLIP (usual), clean recogniser", NARRATED, _two(32.2, 58.7)),
        Row("4", "S3D (dull), clean recogniser", NARRATED.model_copy(update={"backbone": "dull"}), _two(29.1, 59.5)),
        Row("4", "InternVideo (sharp), clean recogniser", NARRATED.model_copy(update=sharp), _two(34.7, 70.0)),
        Row("4", "InternVideo (sharp), noisy recogniser", noisy.model_copy(update=sharp), _two(35.7, 61.3)),
    ]


def _table_8() -> list[Row]:
    grown = {0.6: 37.6, 0.7: 37.5, 0.8: 38.2}
    begun, around = {6.0: 43.1, 8.0: 43.7, 10.0: 43.0}, {6.0: 38.0, 8.0: 37.2, 10.0: 37.8}
    made = [Row("8", f"eps2 {e}, center, grown", labelled(fixed(e, "center", None)), _one(s)) for e, s in grown.items()]
    made += [Row("8", f"eps2 0.8, start, {n:.0f} s", labelled(start(0.8, n)), _one(s)) for n, s in begun.items()]
    made += [
        Row("8", f"eps2 0.8, center, {n:.0f} s", labelled(fixed(0.8, "center", n)), _one(s)) for n, s in around.items()
    ]
    return [*made, Row("8", "planted labels: the ceiling", PLANTED)]


def _table_9() -> list[Row]:
    first, second = (*PAPER, SECOND), (*PAPER, SECOND, THIRD)
    return [
        Row("9", "0 rounds, S", FIRST, _two(36.0, 44.0)),
        Row("9", "1 round, start, 8 s, S", labelled(*PAPER), _two(43.7, 46.7)),
        Row("9", "1 round, start, 8 s, W + S", labelled(*PAPER, texts="W+S"), _two(46.4, 71.6)),
        Row("9", "2 rounds, center, grown, S", labelled(*first), _two(44.8, 52.9)),
        Row("9", "2 rounds, center, grown, W + S", labelled(*first, texts="W+S"), _two(46.9, 72.1)),
        Row("9", "3 rounds, center, grown, S", labelled(*second), _two(45.2, 51.8)),
        Row("9", "3 rounds, center, grown, W + S", labelled(*second, texts="W+S"), _two(46.0, 69.7)),
        Row("9", "planted labels of W + S: the ceiling", ALL_PLANTED),
    ]


def _heads() -> list[Row]:
    ours = labelled(OURS)
    return [
        Row("head", "no head: the best cosine", ours),
        Row("head", "targets: kept", ours.model_copy(update={"head": "kept"})),
        Row("head", "targets: agreement", ours.model_copy(update={"head": "agreement"})),
    ]


def _dropout() -> list[Row]:
    ours = labelled(OURS)
    return [
        Row("dropout", "of attention weights: 0", ours),
        Row("dropout", "of attention weights: 0.1 (as released)", ours.model_copy(update={"attention_dropout": 0.1})),
    ]


def _paper_network() -> list[Row]:
    ours = labelled(OURS)
    return [
        Row("size", "D 64, 1 + 1 layers, first labels", EARLY),
        Row("size", "D 256, 3 + 3 layers, first labels", EARLY.model_copy(update={"paper_network": True})),
        Row("size", "D 64, 1 + 1 layers, our labels", ours.model_copy(update={"early": True})),
        Row("size", "D 256, 3 + 3 layers, our labels", ours.model_copy(update={"paper_network": True, "early": True})),
    ]


def sized(trial: Trial, size: Size, seed: int, *, cosines: bool = False) -> Trial:
    """Return a trial of another size and seed; cosines: with the paper's own thresholds."""
    rounds = tuple(each.in_cosines for each in trial.labels.rounds) if cosines else trial.labels.rounds
    plan = trial.labels.model_copy(update={"rounds": rounds})
    return trial.model_copy(update={"size": size, "seed": seed, "labels": plan})


def _one(steps: float) -> dict[str, float]:
    return {STEPS: steps}


def _two(steps: float, said: float) -> dict[str, float]:
    return {STEPS: steps, SAID: said}
