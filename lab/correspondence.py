"""Do pictures belong to the speech? Own pictures of real clips against those of every other clip.

    python lab/correspondence.py CLIPS --cache DIR [--write]

CLIPS, DIR as for real_clips.py. Words over another film are cut where it ends. Weights are fitted
leaving out the makers (first word of the file's name) of both clips of a pair, centre of the
pictures and all. AUC, and the share of steps that stay "shown" at `MIN_BELONG_LOG_ODDS`, own against
foreign, with bootstrap intervals over clips. And of the found steps, how many are shown or only
said as reported, by the weights of other makers. With --write it fits the weights to all pairs. It
writes stepline/grounding/correspondence.json.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from real_clips import BOOTSTRAP_DRAWS, matched, pictures, records
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

import stepline.grounding.correspondence as package
from stepline.grounding.ground import MIN_BELONG_LOG_ODDS
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import Record, Step
from stepline.text import embed

WEIGHTS_PATH = Path(package.__file__).with_name("correspondence.json")
CUE_NAMES = ("topic", "text")
CUE_SUBSETS = (("topic",), ("text",), CUE_NAMES)
LIMITS_OF_LOG_ODDS = (-0.75, -0.5, 0.0, 0.25, 0.35, 0.4, 0.5, 0.75)

Array = npt.NDArray[np.float64]


def maker(name: str) -> str:
    return name.split("_")[0]


def cues(
    record: Record, vectors: npt.NDArray[np.float32], visual: VisualFeatures, centre: Array
) -> list[float]:
    """Return the cues of one clip's words over one clip's pictures. An unknown topic is 0."""
    mean_pictures = {"conse": centre.tolist()}
    weights = package.CorrespondenceWeights(0.0, 0.0, 0.0, mean_pictures)
    evidence = package.measure_correspondence(
        record.sentences,
        features=visual.features,
        sentence_vectors=vectors,
        on_screen=visual.on_screen,
        weights=weights,
    )
    topic = evidence.topic or 0.0
    return [topic, evidence.text]


def fit(rows: Array, own: npt.NDArray[np.bool_]) -> Any:
    """Return the regression. Each pair counts twice, once as if no text could be read."""
    blind = rows * [1.0, 0.0]
    both = np.concatenate([rows, blind])
    labels = np.concatenate([own, own])
    model = LogisticRegression(C=10.0, class_weight="balanced")
    return model.fit(both, labels)


def auc(own: Array, foreign: Array) -> float:
    """Return the area under the ROC curve of two samples."""
    count = len(own)
    ranks = rankdata(np.concatenate([own, foreign]))
    rank_sum = ranks[:count].sum()
    least_sum = count * (count + 1) / 2
    return float((rank_sum - least_sum) / (count * len(foreign)))


def left_out(names: list[str], rows: Array, used: list[int]) -> Array:
    """Return the log odds (N, N), words by pictures, each by a fit without the makers of both
    clips."""
    makers = np.array([maker(name) for name in names])
    count = len(names)
    own = np.eye(count, dtype=bool)
    odds = np.zeros((count, count))
    cue_mask = np.zeros(len(CUE_NAMES))
    cue_mask[used] = 1.0
    for a in sorted(set(makers)):
        for b in sorted(set(makers)):
            is_test = np.isin(makers, [a, b])
            train = ~is_test[:, None] & ~is_test[None]
            model = fit(rows[train] * cue_mask, own[train])
            test = (makers == a)[:, None] & (makers == b)[None]
            odds[test] = model.decision_function(rows[test] * cue_mask)
    return odds


def _right(pairs: list[tuple[dict[str, Any], Step]], trusted: bool) -> int:
    """Return how many found steps are rightly judged. trusted: the pictures decide."""
    right = 0
    for label, step in pairs:
        is_shown = trusted and step.status != "said_only"
        right += bool(label.get("shown")) == is_shown
    return right


@dataclass(frozen=True)
class Clips:
    """Clips by name. records, vectors: of those with steps in speech. visuals, means: pictures of
    all, and the mean of their features."""

    records: dict[str, Record]
    vectors: dict[str, npt.NDArray[np.float32]]
    visuals: dict[str, VisualFeatures]
    means: dict[str, Array]

    @property
    def names(self) -> list[str]:
        """Those with steps in speech."""
        return list(self.records)


def read_clips(folder: Path, cache: Path, labels: dict[str, Any]) -> Clips:
    """Return all clips with labels."""
    spoken = []
    for name, truth in labels.items():
        if any(step.get("spoken") for step in truth["steps"]):
            spoken.append(name)
    written = {}
    all_records = records(folder, spoken, cache)
    for name, record in all_records.items():
        if record.steps:
            written[name] = record
    visuals = {name: pictures(folder / name, cache) for name in labels}
    means = {}
    for name, visual in visuals.items():
        if visual.features:
            values = np.nan_to_num(visual.features.values)
            means[name] = values.mean(axis=0)
    vectors = {}
    for name, record in written.items():
        texts = [sentence.text for sentence in record.sentences]
        vectors[name] = embed(texts)
    return Clips(written, vectors, visuals, means)


def pair_cues(clips: Clips, centre_of: Callable[[str, str], Array]) -> Array:
    """Return the cues (N, N, 2) of every clip's words over every clip's pictures.

    centre_of: the mean of pictures for words and pictures of two clips.
    """
    names = clips.names
    rows = np.zeros((len(names), len(names), len(CUE_NAMES)))
    for i, words in enumerate(names):
        record = clips.records[words]
        vectors = clips.vectors[words]
        for j, film in enumerate(names):
            centre = centre_of(words, film)
            rows[i, j] = cues(record, vectors, clips.visuals[film], centre)
    return rows


def centre_without(clips: Clips, words: str, film: str) -> Array:
    """Return the mean of the pictures of all other makers."""
    makers = (maker(words), maker(film))
    others = []
    for name, mean in clips.means.items():
        if maker(name) not in makers:
            others.append(mean)
    centre: Array = np.mean(others, axis=0)
    return centre


@dataclass(frozen=True)
class Judgements:
    """own: (N, N) whether words and pictures are of one clip. steps: (N,) written ones.
    pairs: (N,) labelled steps that were found. right: (N, 2) of them rightly judged, if the
    pictures are not believed, and if they are."""

    own: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]


def judge_steps(clips: Clips, labels: dict[str, Any]) -> Judgements:
    """Count the steps of all clips."""
    steps = []
    pair_counts = []
    right = []
    for name, record in clips.records.items():
        pairs = matched(labels[name]["steps"], record.steps)
        steps.append(len(record.steps))
        pair_counts.append(len(pairs))
        right.append([_right(pairs, False), _right(pairs, True)])
    own = np.eye(len(steps), dtype=bool)
    return Judgements(own, np.array(steps), np.array(pair_counts), np.array(right))


def figures_of(
    draw: npt.NDArray[np.int64], odds: Array, judged: Judgements, least: float
) -> list[float]:
    """Return AUC, the shares of steps shown over own and other pictures, and that of found steps
    rightly judged, for a draw of clips."""
    pairs = np.ix_(draw, draw)
    part = odds[pairs]
    own = judged.own[pairs]
    steps = judged.steps[draw][:, None]
    weight = np.repeat(steps, len(draw), axis=1)
    shown_shares = []
    for mask in (own, ~own):
        shown_steps = (weight * (part > least))[mask].sum()
        shown_shares.append(float(shown_steps / weight[mask].sum()))
    believed = (np.diag(part) > least).astype(int)
    right = judged.right[draw, believed].sum()
    right_share = float(right / judged.pairs[draw].sum())
    return [auc(part[own], part[~own]), *shown_shares, right_share]


def print_limits(odds: Array, judged: Judgements, least: float) -> None:
    """Print the shares of steps shown at other limits of the log odds."""
    for limit in sorted({*LIMITS_OF_LOG_ODDS, least}):
        shares = []
        for mask in (judged.own, ~judged.own):
            weight = judged.steps[:, None] * mask
            shown_steps = (weight * (odds > limit)).sum()
            shares.append(float(shown_steps / weight.sum()))
        own, foreign = shares
        print(f"    log odds above {limit}: own {own:.3f}, over other films {foreign:.3f}")


def print_table(names: list[str], rows: Array, judged: Judgements) -> None:
    """Print the figures of every set of cues, with bootstrap intervals over clips."""
    rng = np.random.default_rng(0)
    least = MIN_BELONG_LOG_ODDS
    count = len(names)
    print("| cues | AUC | own steps shown | over other films | found steps rightly judged |")
    print("|---|---|---|---|---|")
    for cue_names in CUE_SUBSETS:
        used = [CUE_NAMES.index(cue) for cue in cue_names]
        odds = left_out(names, rows, used)
        figures = figures_of(np.arange(count), odds, judged, least)
        draws = []
        for draw in rng.integers(0, count, size=(BOOTSTRAP_DRAWS, count)):
            draws.append(figures_of(draw, odds, judged, least))
        low, high = np.percentile(draws, [2.5, 97.5], axis=0)
        cells = []
        for value, bottom, top in zip(figures, low, high, strict=True):
            cells.append(f"{value:.2f} [{bottom:.2f}, {top:.2f}]")
        print(f"| {', '.join(cue_names)} | " + " | ".join(cells) + " |")
        if cue_names == CUE_NAMES:
            print_limits(odds, judged, least)


def write_weights(clips: Clips) -> None:
    """Fit the weights to all pairs and write them into the package."""
    centre = np.mean(list(clips.means.values()), axis=0)
    rows = pair_cues(clips, lambda *_: centre)
    own = np.eye(len(rows), dtype=bool)
    flat_rows = rows.reshape(-1, len(CUE_NAMES))
    model = fit(flat_rows, own.ravel())
    topic, text = model.coef_[0].tolist()
    usual = -float(model.intercept_[0]) / topic
    rounded_centre = [round(float(value), 4) for value in centre]
    weights: dict[str, Any] = {
        "topic": round(topic, 1),
        "usual_topic": round(usual, 3),
        "text": round(text, 2),
        "mean_pictures": {"conse": rounded_centre},
    }
    fitted_on = {"narrated": len(rows), "pairs": len(rows) ** 2, "pictures": len(clips.visuals)}
    provenance = {"made_by": "lab/correspondence.py", "fitted_on": fitted_on}
    WEIGHTS_PATH.write_text(json.dumps({"weights": weights, "provenance": provenance}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    labels = json.loads((args.clips / "labels.json").read_text())
    clips = read_clips(args.clips, args.cache, labels)
    rows = pair_cues(clips, partial(centre_without, clips))
    print_table(clips.names, rows, judge_steps(clips, labels))
    if args.write:
        write_weights(clips)


if __name__ == "__main__":
    main()
