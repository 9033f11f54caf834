"""P(shown) without truth, by which texts stand for what is not shown, in the simulated world
(version 2 and 1).

    python benchmarks/shown_negatives.py            # about 2 CPU minutes, less where the networks are there already

`stepline curate` fits P(shown) of a step to texts that a video surely does not show
(`nasva/fit_calibration.py`). They are those of other tasks, of another video of the same task, or
of these the half that is least like the video's own. Scored apart from the video's own texts
(before: "other task, apart"), or next to them. The network is one of `python -m research
nasva-tables --table lag` (one teacher, labels around its best second), taken from, or trained into,
its folder. Judged by the planted truth about the written steps of videos that it was trained on, as
in curate. Printed: ROC-AUC and calibration error (ECE, ten bins) of P(shown). The row "best cosine"
needs no fit. The row "told the truth" is the fit to the truth of the other half of the videos, the
most that the regression's numbers allow.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from research.nasva.rows import NasvaSize, WorldName, of_lag, sized
from research.nasva.trials import NasvaTrials
from stepline.evaluate.calibration import calibration_error
from stepline.evaluate.ranking import roc_auc
from stepline.nasva.align import TextScores, score_texts
from stepline.nasva.calibration import calibration_features
from stepline.nasva.checkpoint import LoadedAligner
from stepline.nasva.fit_calibration import cross_validate, fit_by_foreign_evidence
from stepline.nasva.settings import UnshownTexts
from stepline.nasva.unshown_texts import unshown_texts
from stepline.records import Matrix

OUT = Path(__file__).resolve().parent / "results" / "shown_negatives.json"
KINDS: tuple[UnshownTexts, ...] = ("other task", "same task", "unlike")
BEFORE = "other task, apart"
RATE = 0.6  # as in curate; NaSVA's table 5
NETWORK = of_lag("short", None, "center")
WORLDS: Sequence[WorldName] = ("short", "short-2")
JUDGED = 100  # videos, the first ones of those that it was trained on

Figures = dict[str, dict[str, float]]


def measured(trials: NasvaTrials, seed: int, world: WorldName, size: NasvaSize) -> Figures:
    """Return the area and the error of P(shown) by each kind of negatives."""
    trial = sized(NETWORK.changed(world=world), size, seed)
    videos = trials.corpus(trial).videos[:JUDGED]
    loaded = LoadedAligner(trials.network(trial), trials.folder / trial.key, "", None, None)

    def fit(index: int, *vectors: Matrix) -> TextScores:
        return score_texts(loaded.aligner, videos[index].features, np.concatenate(vectors))

    own = [fit(index, video.step_vectors) for index, video in enumerate(videos)]
    truths = [video.truth.any(axis=1) for video in videos if video.truth is not None]
    truth = np.concatenate(truths)
    told = cross_validate(list(zip(own, truths, strict=True)))
    found: Figures = {
        "best cosine": {"area": told.area_before, "error": told.error_before},
        "told the truth": {"area": told.area_after, "error": told.error_after},
    }
    tasks = [video.task for video in videos]
    alone = np.concatenate([calibration_features(one) for one in own])
    for kind in KINDS:
        given = []
        for index, (other, rows) in enumerate(
            unshown_texts(tasks, lambda at: videos[at].linking, kind)
        ):
            given.append(videos[other].step_vectors[rows[: len(own[index].scores)]])
        apart = np.concatenate(
            [calibration_features(fit(index, one)) for index, one in enumerate(given) if len(one)]
        )
        both = [
            calibration_features(fit(at, videos[at].step_vectors, one))
            for at, one in enumerate(given)
        ]
        beside = np.concatenate(
            [rows[: len(one.scores)] for one, rows in zip(own, both, strict=True)]
        )
        foreign = np.concatenate(
            [rows[len(one.scores) :] for one, rows in zip(own, both, strict=True)]
        )
        for name, evidence in ((f"{kind}, apart", (alone, apart)), (kind, (beside, foreign))):
            p = fit_by_foreign_evidence(alone, *evidence, rate=RATE)[0](alone)
            found[name] = {
                "area": roc_auc(truth.astype(float), p),
                "error": calibration_error(truth, p),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--world", choices=WORLDS, action="append", help="only this one")
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument(
        "--trials", type=Path, default=Path("out/nasva-tables"), help="folder of the study"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    size, trials = NasvaSize(videos=args.videos), NasvaTrials(args.trials / "trials")
    runs = {
        world: [measured(trials, seed, world, size) for seed in range(args.seeds)]
        for world in args.world or WORLDS
    }
    pairs = [
        ("other task", BEFORE),
        ("same task", "other task"),
        ("unlike", "other task"),
        ("unlike", BEFORE),
        ("unlike, apart", BEFORE),
    ]
    claims = [
        {
            "claim": f"P(shown) by '{more}' above by '{less}', version {1 if world == 'short' else 2}",
            "metric": "ROC-AUC",
            "published": None,
            "gains": [100 * (run[more]["area"] - run[less]["area"]) for run in found],
        }
        for world, found in runs.items()
        for more, less in pairs
    ]
    command = " ".join(["python benchmarks/shown_negatives.py", *sys.argv[1:]])
    tree = {"command": command, "seeds": list(range(args.seeds)), "runs": runs, "claims": claims}
    args.out.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    print(table(runs))


def table(runs: dict[WorldName, list[Figures]]) -> str:
    """Return the figures as Markdown: mean (least to most)."""
    lines = ["| world | texts that are not shown | ROC-AUC | ECE |", "|---|---|---|---|"]
    for world, found in runs.items():
        for name in found[0]:
            cells = [[run[name][figure] for run in found] for figure in ("area", "error")]
            said = [f"{np.mean(cell):.3f} ({min(cell):.3f} to {max(cell):.3f})" for cell in cells]
            lines.append(f"| {world} | {name} | {said[0]} | {said[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
