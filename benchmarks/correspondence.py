"""Do pictures belong to the speech? Own pictures of real clips against those of every other clip.

    python benchmarks/correspondence.py CLIPS --cache DIR [--write]

CLIPS, DIR as for real_clips.py. Words over another film are cut where it ends. Weights are fitted
leaving out the makers (first word of the file's name) of both clips of a pair, centre of the
pictures and all; AUC, and the share of steps that stay "shown" at `belong_least`, own against
foreign, with bootstrap intervals over clips; and of the found steps, how many are shown or only
said as told, by the weights of other makers. --write: fits the weights to all pairs and writes
stepline/grounding/correspondence.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from real_clips import DRAWS, matched, pictures, records
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

import stepline.grounding.correspondence as package
from stepline.grounding.settings import GroundSettings
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import Record, Step
from stepline.text import embed

OUT = Path(package.__file__).with_name("correspondence.json")
CUES = ("cuts", "topic", "text")
SUBSETS = (("cuts",), ("topic",), ("text",), ("cuts", "topic"), ("cuts", "text"), CUES)

Array = npt.NDArray[np.float64]


def maker(name: str) -> str:
    return name.split("_")[0]


def cues(
    record: Record, vectors: npt.NDArray[np.float32], seen: VisualFeatures, centre: Array
) -> list[float]:
    """Return the three cues of one clip's words over one clip's pictures; an unknown topic is 0."""
    weights = package.CorrespondenceWeights(0.0, 0.0, 0.0, 0.0, {"conse": centre.tolist()})
    tie = package.correspondence(
        record.sentences,
        seen.end,
        cuts=seen.activity.cuts if seen.activity else (),
        features=seen.features,
        sentence_vectors=vectors,
        on_screen=seen.cues.lines if seen.cues else (),
        weights=weights,
    )
    return [tie.cuts, tie.topic or 0.0, tie.text]


def fit(rows: Array, own: npt.NDArray[np.bool_]) -> Any:
    """Return the regression; each pair counts twice, once as if no text could be read."""
    blind = rows * [1.0, 1.0, 0.0]
    both = np.concatenate([rows, blind]), np.concatenate([own, own])
    return LogisticRegression(C=10.0, class_weight="balanced").fit(*both)


def auc(own: Array, foreign: Array) -> float:
    ranks = rankdata(np.concatenate([own, foreign]))[: len(own)]
    return float((ranks.sum() - len(own) * (len(own) + 1) / 2) / (len(own) * len(foreign)))


def left_out(names: list[str], rows: Array, used: list[int]) -> Array:
    """Return the log odds (N, N), words by pictures, each by a fit without the makers of both
    clips."""
    makers = np.array([maker(name) for name in names])
    own, odds = np.eye(len(names), dtype=bool), np.zeros((len(names), len(names)))
    kept = np.zeros(len(CUES))
    kept[used] = 1.0
    for a in sorted(set(makers)):
        for b in sorted(set(makers)):
            out = np.isin(makers, [a, b])
            train = ~out[:, None] & ~out[None]
            model = fit(rows[train] * kept, own[train])
            test = (makers == a)[:, None] & (makers == b)[None]
            odds[test] = model.decision_function(rows[test] * kept)
    return odds


def _right(pairs: list[tuple[dict[str, Any], Step]], earned: bool) -> int:
    """Return how many found steps are rightly judged if the pictures have earned a say, or have
    not."""
    said = [step.status != "said" and earned for _, step in pairs]
    return sum(
        bool(label.get("shown")) == shown for (label, _), shown in zip(pairs, said, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    labels = json.loads((args.clips / "labels.json").read_text())
    spoken = [
        name for name, truth in labels.items() if any(step.get("spoken") for step in truth["steps"])
    ]
    known = {
        name: record
        for name, record in records(args.clips, spoken, args.cache).items()
        if record.steps
    }
    seen = {name: pictures(args.clips / name, args.cache) for name in labels}
    names = list(known)
    means = {
        name: np.nan_to_num(rows.features.values).mean(axis=0)
        for name, rows in seen.items()
        if rows.features
    }
    vectors = {name: embed([sentence.text for sentence in known[name].sentences]) for name in names}
    rows = np.zeros((len(names), len(names), len(CUES)))
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            others = [
                mean for name, mean in means.items() if maker(name) not in (maker(a), maker(b))
            ]
            rows[i, j] = cues(known[a], vectors[a], seen[b], np.mean(others, axis=0))
    own, steps = (
        np.eye(len(names), dtype=bool),
        np.array([len(known[name].steps) for name in names]),
    )
    rng, least = np.random.default_rng(0), GroundSettings().belong_least
    found = [matched(labels[name]["steps"], known[name].steps) for name in names]
    # (N, 2)
    right = np.array([[_right(pairs, earned) for earned in (False, True)] for pairs in found])
    print(
        "| cues | AUC | own steps shown | over other films | found steps rightly judged |\n|---|---|---|---|---|"
    )
    for cue_names in SUBSETS:
        odds = left_out(names, rows, [CUES.index(cue) for cue in cue_names])
        figures = []
        for draw in (np.arange(len(names)), *rng.integers(0, len(names), size=(DRAWS, len(names)))):
            part, mine = odds[np.ix_(draw, draw)], own[np.ix_(draw, draw)]
            weight = np.repeat(steps[draw][:, None], len(draw), axis=1)
            shown = [
                float((weight * (part > least))[mask].sum() / weight[mask].sum())
                for mask in (mine, ~mine)
            ]
            judged = right[draw, (np.diag(part) > least).astype(int)].sum() / sum(
                len(found[n]) for n in draw
            )
            figures.append([auc(part[mine], part[~mine]), *shown, float(judged)])
        low, high = np.percentile(figures[1:], [2.5, 97.5], axis=0)
        cells = [
            f"{v:.2f} [{a:.2f}, {b:.2f}]" for v, a, b in zip(figures[0], low, high, strict=True)
        ]
        print(f"| {', '.join(cue_names)} | " + " | ".join(cells) + " |")
        if cue_names == CUES:
            for limit in sorted({-1.5, -1.0, -0.75, -0.7, -0.5, 0.0, 0.5, least}):
                shown = [
                    float(
                        (steps[:, None] * mask * (odds > limit)).sum()
                        / (steps[:, None] * mask).sum()
                    )
                    for mask in (own, ~own)
                ]
                print(
                    f"    log odds above {limit}: own {shown[0]:.3f}, over other films {shown[1]:.3f}"
                )
    if args.write:
        centre = np.mean(list(means.values()), axis=0)
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                rows[i, j] = cues(known[a], vectors[a], seen[b], centre)
        model = fit(rows.reshape(-1, len(CUES)), own.ravel())
        cut, topic, text = (float(w) for w in model.coef_[0])
        usual = -float(model.intercept_[0]) / topic
        mean = {"conse": [round(float(x), 4) for x in centre]}
        weights: dict[str, Any] = {
            "cuts": round(cut, 2),
            "topic": round(topic, 1),
            "usual_topic": round(usual, 3),
            "text": round(text, 2),
        }
        weights |= {"mean_pictures": mean}
        fitted = {"narrated": len(names), "pairs": len(names) ** 2, "pictures": len(seen)}
        provenance = {"made_by": "benchmarks/correspondence.py", "fitted_on": fitted}
        OUT.write_text(json.dumps({"weights": weights, "provenance": provenance}) + "\n")


if __name__ == "__main__":
    main()
