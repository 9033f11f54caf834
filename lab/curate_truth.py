"""Measures a curated dataset against the planted truth: before and after, as NaSVA's table 5, and
stage by stage.

    python lab/curate_corpus.py CORPUS --videos 300
    stepline curate CORPUS/videos.csv --recipe lab/curate_howtostep.toml --out OUT
    (the same with "clean" behind "refine": --set 'stages=[...]', for its rows)
    python lab/curate_truth.py --corpus CORPUS --out OUT

Alignable: the sentence or step says something that is really shown somewhere. Well aligned: and the
middle of its span lies where that is shown. `tight`: with an IoU of 0.5 or more. A recognised
sentence stands for the true ones with which it overlaps by half of the shorter. A step stands for
the true step with which it shares most words, half of its own at least. R@1 and IoU are over the
written steps that are really shown, the same in every row. One that a stage has dropped or placed
nowhere is a miss. `kept_steps` counts those alone that a stage keeps. `steps_of_X` asks every stage
for those that X keeps: this separates choosing from placing. "self-trained": the last network
places all.
Intervals: bootstrap over videos.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from curate_units import Unit, narrations, units_of

from stepline.curate.stage import Recipe
from stepline.files.storage import read_parquet, read_record
from stepline.models.nasva.settings import AlignerSettings
from stepline.records import Record

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
BOOTSTRAP_DRAWS = 2000
TIGHT_IOU = 0.5  # of a span that is tight

Records = dict[str, Record]  # by video
Units = Mapping[str, Unit]  # by video and step


# ---------------------------------------------------------------- stages


def stage_folder(out: Path, stage: str) -> Path | None:
    """Return the folder of a dataset stage's last result."""
    folder = out / "stages" / stage
    # A network is two folders deep, below `run`.
    depth = 2 if stage == "train" else 1
    file_pattern = "run/aligner.*" if stage == "train" else "records.parquet"
    results = sorted(folder.glob(f"*/{file_pattern}"))
    results += sorted(folder.glob(file_pattern))
    if not results:
        return None
    newest = max(results, key=lambda path: path.stat().st_mtime)
    return newest.parents[depth - 1]


def read_out(out: Path) -> Recipe:
    """Return the recipe of a run."""
    from stepline.curate.store.run_log import read_recipe
    from stepline.files.remote import RemotePath

    return read_recipe(RemotePath(str(out)))


def read_truths(corpus: Path) -> Records:
    """Return the planted truth of each video."""
    truths = {}
    for file in sorted((corpus / "truth").glob("*.json")):
        truths[file.stem] = read_record(file)
    return truths


def records(folder: Path | None) -> Records:
    """Return the records of a stage."""
    if folder is None:
        return {}
    return {record.id: record for record in read_parquet(folder / "records.parquet")}


def by_network(
    gathered: Mapping[str, Record], gather: Path, run: Path, settings: AlignerSettings
) -> Records:
    """Return the records with their steps placed by a trained network, not calibrated: every step
    is placed."""
    from stepline.features import FeatureStore
    from stepline.models.nasva.align import score_texts
    from stepline.models.nasva.checkpoint import load_aligner
    from stepline.models.nasva.predict import place_steps

    features = FeatureStore(gather / "features")
    vectors = FeatureStore(run / "vectors" / "step")
    loaded = load_aligner(run)
    placed_records = {}
    for id, record in gathered.items():
        if id in vectors and id in features:
            fit = score_texts(loaded.aligner, features.read(id), vectors.matrix(id))
            duration = record.video.duration
            placement = place_steps(record.steps, fit, None, settings=settings, duration=duration)
            placed_records[id] = record.model_copy(update={"steps": placement.steps})
    return placed_records


# ---------------------------------------------------------------- figures


def with_interval(units: Sequence[Unit], figure: Callable[[Unit], float]) -> list[float]:
    """Return the mean of a figure over units with its interval, videos drawn again: [mean, low,
    high]."""
    if not units:
        return [float("nan")] * 3
    ids = sorted({unit.video for unit in units})
    row_of_video = {id: row for row, id in enumerate(ids)}
    total = np.zeros(len(ids))
    count = np.zeros(len(ids))
    for unit in units:
        row = row_of_video[unit.video]
        total[row] += figure(unit)
        count[row] += 1
    # How often each draw has each video
    rng = np.random.default_rng(0)
    equal_shares = np.full(len(ids), 1 / len(ids))
    drawn = rng.multinomial(len(ids), equal_shares, BOOTSTRAP_DRAWS)
    means = (drawn @ total) / np.maximum(drawn @ count, 1e-9)
    low, high = np.nanpercentile(means, [2.5, 97.5])
    mean = total.sum() / count.sum()
    return [round(float(value), 4) for value in (mean, low, high)]


def quality(units: Sequence[Unit]) -> dict[str, object]:
    """Return table 5's shares."""
    return {
        "units": len(units),
        "alignable": with_interval(units, lambda unit: float(bool(unit.shown_spans))),
        "well_aligned": with_interval(units, lambda unit: float(unit.aligned)),
        "tight": with_interval(units, lambda unit: float(unit.iou >= TIGHT_IOU)),
    }


def placing(units: Sequence[Unit]) -> dict[str, object]:
    """Return R@1 and IoU."""
    return {
        "steps": len(units),
        "recall": with_interval(units, lambda unit: float(unit.hit)),
        "iou": with_interval(units, lambda unit: unit.iou),
    }


def aligned_rows(stages: Mapping[str, Units], keys: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return R@1 and IoU of the same steps in every stage. What one lacks is a miss."""
    rows = {}
    for name, units in stages.items():
        with_misses = []
        for key in keys:
            unit = stages["said"][key]
            missed = Unit(unit.video, None, None, unit.shown_spans)
            with_misses.append(units.get(key, missed))
        rows[name] = placing(with_misses)
    return rows


def placed(units: Units) -> list[str]:
    """Return the steps that a stage keeps and places, and that are really shown."""
    return [key for key, unit in units.items() if unit.shown_spans and unit.place]


def kept_rows(stages: Mapping[str, Units]) -> dict[str, dict[str, object]]:
    """Return R@1 and IoU of those steps alone that a stage keeps and places, and that are really
    shown."""
    rows = {}
    for name, units in stages.items():
        rows[name] = placing([units[key] for key in placed(units)])
    return rows


def drops(truths: Mapping[str, Record], gathered: Mapping[str, Record]) -> dict[str, list[int]]:
    """Return, per kind of video, how many there are and how many were kept."""
    drawn_counts: Counter[str] = Counter()
    kept_counts: Counter[str] = Counter()
    for id, truth in truths.items():
        kind = str(truth.settings["kind"])
        drawn_counts[kind] += 1
        kept_counts[kind] += id in gathered
    return {kind: [drawn_counts[kind], kept_counts[kind]] for kind in sorted(drawn_counts)}


class StageResults:
    """The records of each stage of a run, and their units against the truth.

    truths: of all videos. gathered_truths: of those that the run kept.
    """

    def __init__(self, corpus: Path, out: Path) -> None:
        self.truths = read_truths(corpus)
        folders = {}
        for name in ("gather", "train", "refine", "clean", "visible"):
            folders[name] = stage_folder(out, name)
        self.records: dict[str, Records] = {}
        for name in ("gather", "refine", "clean", "visible"):
            self.records[name] = records(folders[name])
        self.gathered = self.records["gather"]
        self.gathered_truths = {}
        for id in self.gathered:
            if id in self.truths:
                self.gathered_truths[id] = self.truths[id]
        self.stages = {
            "said": self.units("gather", where_said=True),
            "ground": self.units("gather"),
        }
        self._add_networks(folders, out)
        for name in ("refine", "clean"):
            if self.records[name]:
                self.stages[name] = self.units(name)

    def _add_networks(self, folders: Mapping[str, Path | None], out: Path) -> None:
        """Add the steps as the first network and the last one place them."""
        gather = folders["gather"]
        for name, source in (("trained", "train"), ("self-trained", "refine")):
            folder = folders[source]
            if folder is not None and gather is not None:
                settings = read_out(out).place.aligner
                run = folder / "run"
                self.records[name] = by_network(self.gathered, gather, run, settings)
                self.stages[name] = self.units(name)

    def units(self, name: str, *, where_said: bool = False) -> dict[str, Unit]:
        """Return the unit of each step of a stage, by video and step."""
        units = {}
        for id, record in self.records[name].items():
            if id not in self.gathered_truths:
                continue
            of_video = units_of(record, self.truths[id], where_said=where_said)
            for key, unit in of_video.items():
                units[f"{id} {key}"] = unit
        return units

    def narrations(self) -> list[Unit]:
        """Return the unit of each sentence."""
        units = []
        for id, truth in self.gathered_truths.items():
            units += narrations(self.gathered[id], truth)
        return units

    def visible_narrations(self) -> list[Unit]:
        """Return the unit of each sentence that the stage `visible` made a step."""
        units = []
        for id, record in self.records["visible"].items():
            if id in self.truths:
                units += narrations_kept(record, self.truths[id])
        return units

    def scores(self, name: str) -> dict[str, float]:
        """Return P(shown) per step of a stage."""
        stage = "gather" if name == "ground" else name
        scores = {}
        for id, record in self.records[stage].items():
            for step in record.steps:
                scores[f"{id} {step.id}"] = float(step.score or 0.0)
        return scores


def measure(corpus: Path, out: Path) -> dict[str, object]:
    """Return all figures."""
    results = StageResults(corpus, out)
    stages = results.stages
    table = {
        "narrations": quality(results.narrations()),
        "written steps, where said": quality([*stages["said"].values()]),
    }
    for name, units in stages.items():
        if name != "said":
            table[f"{name}, shown"] = quality([unit for unit in units.values() if unit.place])
    if results.records["visible"]:
        table["visible narrations"] = quality(results.visible_narrations())
    shown_keys = [key for key, unit in stages["said"].items() if unit.shown_spans]
    figures: dict[str, object] = {
        "videos": len(results.gathered_truths),
        "kinds": drops(results.truths, results.gathered),
        "table5": table,
        "same_steps": aligned_rows(stages, shown_keys),
        "kept_steps": kept_rows(stages),
    }
    for name in ("refine", "clean"):
        if name in stages:
            figures[f"steps_of_{name}"] = aligned_rows(stages, placed(stages[name]))
    curves = {}
    for name in ("ground", "refine"):
        if name in stages:
            curves[name] = auc(stages[name], results.scores(name))
    figures["auc"] = curves
    return figures


def narrations_kept(record: Record, truth: Record) -> list[Unit]:
    """Return the sentences of a record that became steps."""
    units = narrations(record, truth)
    return [units[source] for step in record.steps for source in step.sources]


def auc(units: Units, scores: Mapping[str, float]) -> float:
    """Return the ROC-AUC of P(shown) against whether a step is shown."""
    from stepline.evaluate.ranking import roc_auc

    keys = sorted(units)
    is_shown = np.array([float(bool(units[key].shown_spans)) for key in keys])
    probabilities = np.array([scores[key] for key in keys])
    return round(float(roc_auc(is_shown, probabilities)), 4)


def markdown(result: Mapping[str, object]) -> str:
    """Return the tables."""
    lines = []
    for name, rows in result.items():
        if not isinstance(rows, dict) or name in ("kinds", "auc"):
            continue
        columns = list(next(iter(rows.values())))
        lines.append(f"\n| {name} | " + " | ".join(columns) + " |")
        lines.append("|---" * (len(columns) + 1) + "|")
        for row, figures in rows.items():
            cells = [_cell(figures[column]) for column in columns]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return "{:.3f} [{:.3f}, {:.3f}]".format(*value)
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="what curate_corpus.py drew")
    parser.add_argument("--out", type=Path, required=True, help="what stepline curate wrote")
    parser.add_argument(
        "--name", default="curate_truth", help="of the result file, empty: none is written"
    )
    options = parser.parse_args()
    result = measure(options.corpus, options.out)
    if options.name:
        RESULTS_FOLDER.mkdir(exist_ok=True)
        path = RESULTS_FOLDER / f"{options.name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in ("videos", "kinds", "auc")}))
    print(markdown(result))


if __name__ == "__main__":
    main()
