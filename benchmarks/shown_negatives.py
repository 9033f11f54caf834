"""P(shown) without truth, by which texts are taken for what is not shown, in the simulated
world (version 2 and 1).

    python benchmarks/shown_negatives.py

It takes about 2 CPU minutes, less where the networks are there already.

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
from stepline.models.nasva.align import TextScores, score_texts
from stepline.models.nasva.calibration import calibration_features
from stepline.models.nasva.checkpoint import NO_SPACE, LoadedAligner
from stepline.models.nasva.fit_calibration import cross_validate, fit_by_foreign_evidence
from stepline.models.nasva.settings import UnshownTexts
from stepline.models.nasva.unshown_texts import unshown_texts
from stepline.records import Matrix

RESULT_PATH = Path(__file__).resolve().parent / "results" / "shown_negatives.json"
UNSHOWN_KINDS: tuple[UnshownTexts, ...] = ("other task", "same task", "unlike")
BASELINE_NAME = "other task, apart"
SHOWN_RATE = 0.6  # as in curate; NaSVA's table 5
NETWORK_TRIAL = of_lag("short", None, "center")
WORLD_NAMES: Sequence[WorldName] = ("short", "short-2")
JUDGED_VIDEOS = 100  # videos, the first ones of those that it was trained on

Figures = dict[str, dict[str, float]]


def measured(trials: NasvaTrials, seed: int, world: WorldName, size: NasvaSize) -> Figures:
    """Return the area and the error of P(shown) by each kind of negatives."""
    trial = sized(NETWORK_TRIAL.changed(world=world), size, seed)
    videos = trials.corpus(trial).videos[:JUDGED_VIDEOS]
    network = trials.network(trial)
    width = network.settings.video_width
    loaded = LoadedAligner(trials.folder / trial.key, "", NO_SPACE, width, True, network, None)

    def score(index: int, *vectors: Matrix) -> TextScores:
        return score_texts(loaded.aligner, videos[index].features, np.concatenate(vectors))

    # the videos' own steps, and the most that the regression's numbers allow
    own = [score(index, video.step_vectors) for index, video in enumerate(videos)]
    truths = [video.truth.any(axis=1) for video in videos if video.truth is not None]
    truth = np.concatenate(truths)
    by_truth = cross_validate(list(zip(own, truths, strict=True)))
    figures: Figures = {
        "best cosine": {"area": by_truth.area_before, "error": by_truth.error_before},
        "told the truth": {"area": by_truth.area_after, "error": by_truth.error_after},
    }

    tasks = [video.task for video in videos]
    own_rows = np.concatenate([calibration_features(scores) for scores in own])
    for kind in UNSHOWN_KINDS:
        # as many texts of another video as the video has of its own
        unshown = unshown_texts(tasks, lambda index: videos[index].linking, kind)
        unshown_vectors = []
        for index, (other, rows) in enumerate(unshown):
            count = len(own[index].scores)
            unshown_vectors.append(videos[other].step_vectors[rows[:count]])

        # scored apart from the video's own texts, and next to them
        apart_rows = []
        own_joint_rows = []
        unshown_joint_rows = []
        for index, vectors in enumerate(unshown_vectors):
            if len(vectors):
                apart_rows.append(calibration_features(score(index, vectors)))
            joint_rows = calibration_features(score(index, videos[index].step_vectors, vectors))
            own_count = len(own[index].scores)
            own_joint_rows.append(joint_rows[:own_count])
            unshown_joint_rows.append(joint_rows[own_count:])
        apart = (own_rows, np.concatenate(apart_rows))
        joint = (np.concatenate(own_joint_rows), np.concatenate(unshown_joint_rows))
        for name, evidence in ((f"{kind}, apart", apart), (kind, joint)):
            predict, *_ = fit_by_foreign_evidence(own_rows, *evidence, rate=SHOWN_RATE)
            p = predict(own_rows)
            area = roc_auc(truth.astype(float), p)
            figures[name] = {"area": area, "error": calibration_error(truth, p)}
    return figures


# claims: the first kind of texts above the second
CLAIM_PAIRS = (
    ("other task", BASELINE_NAME),
    ("same task", "other task"),
    ("unlike", "other task"),
    ("unlike", BASELINE_NAME),
    ("unlike, apart", BASELINE_NAME),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--world", choices=WORLD_NAMES, action="append", help="only this one")
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument(
        "--trials", type=Path, default=Path("out/nasva-tables"), help="folder of the study"
    )
    parser.add_argument("--out", type=Path, default=RESULT_PATH)
    args = parser.parse_args()
    size = NasvaSize(videos=args.videos)
    trials = NasvaTrials(args.trials / "trials")
    seeds = list(range(args.seeds))
    runs = {}
    claims = []
    for world in args.world or WORLD_NAMES:
        runs[world] = [measured(trials, seed, world, size) for seed in seeds]
        claims += claims_of(world, runs[world])
    command = " ".join(["python benchmarks/shown_negatives.py", *sys.argv[1:]])
    tree = {"command": command, "seeds": seeds, "runs": runs, "claims": claims}
    args.out.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    print(table(runs))


def claims_of(world: WorldName, runs: list[Figures]) -> list[dict[str, object]]:
    """Return the claims about a world, each with its gains per seed."""
    version = 1 if world == "short" else 2
    claims: list[dict[str, object]] = []
    for more, less in CLAIM_PAIRS:
        claim = {
            "claim": f"P(shown) by '{more}' above by '{less}', version {version}",
            "metric": "ROC-AUC",
            "published": None,
            "gains": [100 * (run[more]["area"] - run[less]["area"]) for run in runs],
        }
        claims.append(claim)
    return claims


def table(runs_by_world: dict[WorldName, list[Figures]]) -> str:
    """Return the figures as Markdown: mean (least to most)."""
    lines = ["| world | texts that are not shown | ROC-AUC | ECE |", "|---|---|---|---|"]
    for world, runs in runs_by_world.items():
        for name in runs[0]:
            cells = [world, name]
            for figure in ("area", "error"):
                values = [run[name][figure] for run in runs]
                cells.append(f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
