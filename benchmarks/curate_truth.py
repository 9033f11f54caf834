"""Measures a curated dataset against the planted truth: before and after, as NaSVA's table 5, and
stage by stage.

    python benchmarks/curate_corpus.py CORPUS --videos 300
    stepline curate CORPUS/videos.csv --recipe benchmarks/curate_howtostep.toml --out OUT
    (the same with "clean" behind "refine": --set 'stages=[...]', for its rows)
    python benchmarks/curate_truth.py --corpus CORPUS --out OUT

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
import numpy.typing as npt
from curate_units import Unit, narrations, units_of

from stepline.curate.stage import Recipe
from stepline.nasva.settings import AlignerSettings
from stepline.records import Record
from stepline.storage import read_parquet, read_record

RESULTS = Path(__file__).resolve().parent / "results"
DRAWS = 2000
TIGHT = 0.5  # IoU of a span that is tight

Floats = npt.NDArray[np.float64]


# ---------------------------------------------------------------- stages


def stage_folder(out: Path, stage: str) -> Path | None:
    """Return the folder of a dataset stage's last result."""
    found = sorted(
        (out / "stages" / stage).glob(
            "*/records.parquet" if stage != "train" else "*/run/aligner.*"
        )
    )
    found += sorted(
        (out / "stages" / stage).glob("records.parquet" if stage != "train" else "run/aligner.*")
    )
    if not found:
        return None
    newest = max(found, key=lambda path: path.stat().st_mtime)
    return newest.parent if stage != "train" else newest.parent.parent


def read_out(out: Path) -> Recipe:
    """Return the recipe of a run."""
    from stepline.curate.store.run_log import read_recipe
    from stepline.remote import RemotePath

    return read_recipe(RemotePath(str(out)))


def records(folder: Path | None) -> dict[str, Record]:
    """Return the records of a stage."""
    return (
        {one.id: one for one in read_parquet(folder / "records.parquet")}
        if folder is not None
        else {}
    )


def by_network(
    found: Mapping[str, Record], gather: Path, run: Path, settings: AlignerSettings
) -> dict[str, Record]:
    """Return the records with their steps placed by a trained network, not calibrated: every step
    is placed."""
    from stepline.features import FeatureStore
    from stepline.nasva.align import score_texts
    from stepline.nasva.checkpoint import load_aligner
    from stepline.nasva.predict import place_steps

    features, vectors, loaded = (
        FeatureStore(gather / "features"),
        FeatureStore(run / "vectors" / "step"),
        load_aligner(run),
    )
    placed = {}
    for id, record in found.items():
        if id in vectors and id in features:
            fit = score_texts(loaded.aligner, features.read(id), vectors.matrix(id))
            steps = place_steps(
                record.steps, fit, None, settings=settings, duration=record.video.duration
            ).steps
            placed[id] = record.model_copy(update={"steps": steps})
    return placed


# ---------------------------------------------------------------- figures


def with_interval(units: Sequence[Unit], figure: Callable[[Unit], float]) -> list[float]:
    """Return the mean of a figure over units with its interval, videos drawn again: [mean, low,
    high]."""
    if not units:
        return [float("nan")] * 3
    videos = {id: n for n, id in enumerate(sorted({unit.video for unit in units}))}
    total, count = np.zeros(len(videos)), np.zeros(len(videos))
    for unit in units:
        total[videos[unit.video]] += figure(unit)
        count[videos[unit.video]] += 1
    drawn = np.random.default_rng(0).multinomial(
        len(videos), np.full(len(videos), 1 / len(videos)), DRAWS
    )
    low, high = np.nanpercentile((drawn @ total) / np.maximum(drawn @ count, 1e-9), [2.5, 97.5])
    return [round(float(value), 4) for value in (total.sum() / count.sum(), low, high)]


def quality(units: Sequence[Unit]) -> dict[str, object]:
    """Return table 5's shares."""
    return {
        "units": len(units),
        "alignable": with_interval(units, lambda unit: float(bool(unit.shown))),
        "well_aligned": with_interval(units, lambda unit: float(unit.aligned)),
        "tight": with_interval(units, lambda unit: float(unit.iou >= TIGHT)),
    }


def placing(units: Sequence[Unit]) -> dict[str, object]:
    """Return R@1 and IoU."""
    return {
        "steps": len(units),
        "recall": with_interval(units, lambda unit: float(unit.hit)),
        "iou": with_interval(units, lambda unit: unit.iou),
    }


def aligned_rows(
    stages: Mapping[str, Mapping[str, Unit]], wanted: Sequence[str]
) -> dict[str, dict[str, object]]:
    """Return R@1 and IoU of the same steps in every stage. What one lacks is a miss."""
    rows = {}
    for name, found in stages.items():
        base = {key: stages["said"][key] for key in wanted}
        rows[name] = placing(
            [found.get(key, Unit(unit.video, None, None, unit.shown)) for key, unit in base.items()]
        )
    return rows


def placed(units: Mapping[str, Unit]) -> list[str]:
    """Return the steps that a stage keeps and places, and that are really shown."""
    return [key for key, unit in units.items() if unit.shown and unit.place]


def kept_rows(stages: Mapping[str, Mapping[str, Unit]]) -> dict[str, dict[str, object]]:
    """Return R@1 and IoU of those steps alone that a stage keeps and places, and that are really
    shown."""
    return {name: placing([found[key] for key in placed(found)]) for name, found in stages.items()}


def drops(truths: Mapping[str, Record], kept: Mapping[str, Record]) -> dict[str, list[int]]:
    """Return, a kind of video, how many there are and how many were kept."""
    all_, left = (
        Counter(str(truths[id].settings["kind"]) for id in ids)
        for ids in (truths, set(truths) & set(kept))
    )
    return {kind: [all_[kind], left[kind]] for kind in sorted(all_)}


def measure(corpus: Path, out: Path) -> dict[str, object]:
    """Return all figures."""
    truths = {file.stem: read_record(file) for file in sorted((corpus / "truth").glob("*.json"))}
    folders = {
        name: stage_folder(out, name) for name in ("gather", "train", "refine", "clean", "visible")
    }
    found = {name: records(folders[name]) for name in ("gather", "refine", "clean", "visible")}
    truths_kept = {id: truths[id] for id in found["gather"] if id in truths}

    def stage(name: str, *, said: bool = False) -> dict[str, Unit]:
        made = {id: record for id, record in found[name].items() if id in truths_kept}
        pairs = ((id, units_of(record, truths[id], said=said)) for id, record in made.items())
        return {f"{id} {key}": unit for id, units in pairs for key, unit in units.items()}

    stages = {"said": stage("gather", said=True), "ground": stage("gather")}
    for name, source in (("trained", "train"), ("self-trained", "refine")):
        folder = folders[source]
        if folder is not None and folders["gather"] is not None:
            found[name] = by_network(
                found["gather"], folders["gather"], folder / "run", read_out(out).place.aligner
            )
            stages[name] = stage(name)
    stages |= {name: stage(name) for name in ("refine", "clean") if found[name]}
    told = [
        unit for id, truth in truths_kept.items() for unit in narrations(found["gather"][id], truth)
    ]
    table = {
        "narrations": quality(told),
        "written steps, where said": quality([*stages["said"].values()]),
    }
    for name in [name for name in stages if name != "said"]:
        table[f"{name}, shown"] = quality([unit for unit in stages[name].values() if unit.place])
    if found["visible"]:
        visible = [
            u
            for id, r in found["visible"].items()
            if id in truths
            for u in narrations_kept(r, truths[id])
        ]
        table["visible narrations"] = quality(visible)
    wanted = [key for key, unit in stages["said"].items() if unit.shown]
    return {
        "videos": len(truths_kept),
        "kinds": drops(truths, found["gather"]),
        "table5": table,
        "same_steps": aligned_rows(stages, wanted),
        "kept_steps": kept_rows(stages),
        **{
            f"steps_of_{n}": aligned_rows(stages, placed(stages[n]))
            for n in ("refine", "clean")
            if n in stages
        },
        "auc": {
            name: auc(stages[name], found_scores(found, name))
            for name in ("ground", "refine")
            if name in stages
        },
    }


def narrations_kept(record: Record, truth: Record) -> list[Unit]:
    """Return the sentences of a record that became steps."""
    said = narrations(record, truth)
    return [said[source] for step in record.steps for source in step.sources]


def found_scores(found: Mapping[str, Mapping[str, Record]], name: str) -> dict[str, float]:
    """Return P(shown) a step."""
    made = found["gather" if name == "ground" else name]
    return {
        f"{id} {step.id}": float(step.score or 0.0)
        for id, record in made.items()
        for step in record.steps
    }


def auc(units: Mapping[str, Unit], scores: Mapping[str, float]) -> float:
    """Return the ROC-AUC of P(shown) against whether a step is shown."""
    from stepline.evaluate.ranking import roc_auc

    keys = sorted(units)
    shown = np.array([float(bool(units[key].shown)) for key in keys])
    return round(float(roc_auc(shown, np.array([scores[key] for key in keys]))), 4)


def markdown(result: Mapping[str, object]) -> str:
    """Return the tables."""

    def cell(value: object) -> str:
        return "{:.3f} [{:.3f}, {:.3f}]".format(*value) if isinstance(value, list) else str(value)

    lines = []
    for name, rows in result.items():
        if not isinstance(rows, dict) or name in ("kinds", "auc"):
            continue
        columns = list(next(iter(rows.values())))
        lines += [f"\n| {name} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        lines += [
            f"| {row} | " + " | ".join(cell(cells[c]) for c in columns) + " |"
            for row, cells in rows.items()
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="what curate_corpus.py drew")
    parser.add_argument("--out", type=Path, required=True, help="what stepline curate wrote")
    parser.add_argument(
        "--name", default="curate_truth", help="of the result file; empty: none is written"
    )
    args = parser.parse_args()
    result = measure(args.corpus, args.out)
    if args.name:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{args.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in ("videos", "kinds", "auc")}))
    print(markdown(result))


if __name__ == "__main__":
    main()
