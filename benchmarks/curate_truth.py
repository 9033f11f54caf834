"""Measures a curated dataset against the planted truth: before and after, as NaSVA's table 5, and stage by stage.

    python benchmarks/curate_corpus.py CORPUS --videos 300
    stepline curate CORPUS/videos.csv --recipe benchmarks/curate_howtostep.toml --out OUT
    python benchmarks/curate_truth.py --corpus CORPUS --out OUT

Alignable: the sentence or step says something that is really shown somewhere. Well aligned: and the middle of its span
lies where that is shown; `tight`: with an IoU of 0.5 or more. A recognised sentence stands for the true ones with which
it overlaps by half of the shorter; a step for the true step with which it shares most words, half of its own at least.
R@1 and IoU are over the written steps that are really shown, the same in every row: one that a stage has dropped or
placed nowhere is a miss; `kept_steps` counts those alone that a stage keeps. Intervals: bootstrap over videos, 95 %.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.records import Record, Span, Step
from stepline.store import read_parquet, read_record

RESULTS = Path(__file__).resolve().parent / "results"
DRAWS = 2000
SMALL = "a an the and to of in on with it its that this you your so now then up off out just is are"
SHARED = 0.5   # share of a step's words that its true step must have
TIGHT = 0.5    # IoU of a span that is tight

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """One sentence or step: where it is put, and where what it says is really shown (none: nowhere)."""

    video: str
    place: Span | None
    at: float | None
    shown: tuple[Span, ...]

    @property
    def aligned(self) -> bool:
        """The middle lies where it is shown."""
        return self.place is not None and any(self.place.center in span for span in self.shown)

    @property
    def hit(self) -> bool:
        """The best second lies where it is shown."""
        return self.at is not None and any(self.at in span for span in self.shown)

    @property
    def iou(self) -> float:
        """With the span where it is shown."""
        return max((self.place.iou(span) for span in self.shown), default=0.0) if self.place else 0.0


def words(text: str) -> set[str]:
    """Return what a text is about: its words without the smallest, cut to their stems."""
    return {word[:5] for word in re.findall(r"[a-z]+", text.lower())} - set(SMALL.split())


def true_step(step: Step, truth: Record) -> Step | None:
    """Return the true step that a written one stands for, by words; of equals the one said nearest."""
    sentences = truth.transcript.sentences if truth.transcript else ()
    own, best = words(step.text), (0.0, 0.0)
    found = None
    for true in truth.reference:
        told = words(true.text).union(*(words(sentences[source].text) for source in true.sources))
        shared = len(own & told) / max(1, len(own))
        near = -abs(true.said.center - step.said.center) if true.said and step.said else -1e9
        if shared >= SHARED and (found is None or (shared, near) > best):
            found, best = true, (shared, near)
    return found


def narrations(record: Record, truth: Record) -> list[Unit]:
    """Return what is said, where it is said."""
    said = truth.transcript.sentences if truth.transcript else ()
    shown = {source: step.spans for step in truth.reference for source in step.sources}
    units = []
    for one in record.transcript.sentences if record.transcript else ():
        same = [n for n, true in enumerate(said) if one.span.overlap(true.span) >= half_of(one.span, true.span)]
        spans = tuple(span for n in same for span in shown.get(n, ()))
        units.append(Unit(record.id, one.span, one.span.center, spans))
    return units


def half_of(one: Span, other: Span) -> float:
    """Return half the seconds of the shorter span."""
    return min(one.duration, other.duration) / 2


def units_of(record: Record, truth: Record, *, said: bool = False) -> dict[str, Unit]:
    """Return a unit a step, by step id; said: where it is said, not where it is shown."""
    found = {}
    for step in record.steps:
        true = true_step(step, truth)
        place = step.said if said else next(iter(step.spans), None)
        at = place.center if place is not None and (said or step.at is None) else step.at
        found[step.id] = Unit(record.id, place, at, true.spans if true else ())
    return found


# ---------------------------------------------------------------- stages


def stage_folder(out: Path, stage: str) -> Path | None:
    """Return the folder of a dataset stage's last result."""
    found = sorted((out / "stages" / stage).glob("*/records.parquet" if stage != "train" else "*/run/aligner.*"))
    found += sorted((out / "stages" / stage).glob("records.parquet" if stage != "train" else "run/aligner.*"))
    if not found:
        return None
    newest = max(found, key=lambda path: path.stat().st_mtime)
    return newest.parent if stage != "train" else newest.parent.parent


def records(folder: Path | None) -> dict[str, Record]:
    """Return the records of a stage."""
    return {one.id: one for one in read_parquet(folder / "records.parquet")} if folder is not None else {}


def by_network(found: Mapping[str, Record], gather: Path, run: Path) -> dict[str, Record]:
    """Return the records with their steps placed by a trained network, not calibrated: every step is placed."""
    from stepline.features import FeatureStore
    from stepline.nasva.infer import fit_texts, load, place_steps

    features, vectors, loaded = FeatureStore(gather / "features"), FeatureStore(run / "vectors" / "step"), load(run)
    placed = {}
    for id, record in found.items():
        if id in vectors and id in features:
            fit = fit_texts(loaded.aligner, features.read(id), vectors.matrix(id))
            steps = place_steps(record.steps, fit, None, duration=record.video.duration).steps
            placed[id] = record.model_copy(update={"steps": steps})
    return placed


# ---------------------------------------------------------------- figures


def with_interval(units: Sequence[Unit], figure: Callable[[Unit], float]) -> list[float]:
    """Return the mean of a figure over units with its interval, videos drawn anew: [mean, low, high]."""
    if not units:
        return [float("nan")] * 3
    videos = {id: n for n, id in enumerate(sorted({unit.video for unit in units}))}
    total, count = np.zeros(len(videos)), np.zeros(len(videos))
    for unit in units:
        total[videos[unit.video]] += figure(unit)
        count[videos[unit.video]] += 1
    drawn = np.random.default_rng(0).multinomial(len(videos), np.full(len(videos), 1 / len(videos)), DRAWS)
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


def aligned_rows(stages: Mapping[str, Mapping[str, Unit]], wanted: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return R@1 and IoU of the same steps in every stage; what one lacks is a miss."""
    rows = {}
    for name, found in stages.items():
        base = {key: stages["said"][key] for key in wanted}
        rows[name] = placing([found.get(key, Unit(unit.video, None, None, unit.shown)) for key, unit in base.items()])
    return rows


def kept_rows(stages: Mapping[str, Mapping[str, Unit]]) -> dict[str, dict[str, object]]:
    """Return R@1 and IoU of those steps alone that a stage keeps and places, and that are really shown."""
    return {name: placing([u for u in found.values() if u.shown and u.place]) for name, found in stages.items()}


def drops(truths: Mapping[str, Record], kept: Mapping[str, Record]) -> dict[str, list[int]]:
    """Return, a kind of video, how many there are and how many were kept."""
    all_, left = (Counter(str(truths[id].settings["kind"]) for id in ids) for ids in (truths, set(truths) & set(kept)))
    return {kind: [all_[kind], left[kind]] for kind in sorted(all_)}


def measure(corpus: Path, out: Path) -> dict[str, object]:
    """Return all figures."""
    truths = {file.stem: read_record(file) for file in sorted((corpus / "truth").glob("*.json"))}
    folders = {name: stage_folder(out, name) for name in ("gather", "train", "refine", "clean", "visible")}
    found = {name: records(folders[name]) for name in ("gather", "refine", "clean", "visible")}
    truths_kept = {id: truths[id] for id in found["gather"] if id in truths}

    def stage(name: str, *, said: bool = False) -> dict[str, Unit]:
        made = {id: record for id, record in found[name].items() if id in truths_kept}
        pairs = ((id, units_of(record, truths[id], said=said)) for id, record in made.items())
        return {f"{id} {key}": unit for id, units in pairs for key, unit in units.items()}

    stages = {"said": stage("gather", said=True), "ground": stage("gather")}
    if folders["train"] is not None and folders["gather"] is not None:
        found["trained"] = by_network(found["gather"], folders["gather"], folders["train"] / "run")
        stages["trained"] = stage("trained")
    stages |= {name: stage(name) for name in ("refine", "clean") if found[name]}
    told = [unit for id, truth in truths_kept.items() for unit in narrations(found["gather"][id], truth)]
    table = {"narrations": quality(told), "written steps, where said": quality([*stages["said"].values()])}
    for name in [name for name in stages if name != "said"]:
        table[f"{name}, shown"] = quality([unit for unit in stages[name].values() if unit.place])
    if found["visible"]:
        visible = [u for id, r in found["visible"].items() if id in truths for u in narrations_kept(r, truths[id])]
        table["visible narrations"] = quality(visible)
    wanted = [key for key, unit in stages["said"].items() if unit.shown]
    return {
        "videos": len(truths_kept),
        "kinds": drops(truths, found["gather"]),
        "table5": table,
        "same_steps": aligned_rows(stages, wanted),
        "kept_steps": kept_rows(stages),
        "auc": {name: auc(stages[name], found_scores(found, name)) for name in ("ground", "refine") if name in stages},
    }


def narrations_kept(record: Record, truth: Record) -> list[Unit]:
    """Return the sentences of a record that became steps."""
    said = narrations(record, truth)
    return [said[source] for step in record.steps for source in step.sources]


def found_scores(found: Mapping[str, Mapping[str, Record]], name: str) -> dict[str, float]:
    """Return P(shown) a step."""
    made = found["gather" if name == "ground" else name]
    return {f"{id} {step.id}": float(step.score or 0.0) for id, record in made.items() for step in record.steps}


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
    for name in ("table5", "same_steps", "kept_steps"):
        rows = result[name]
        assert isinstance(rows, dict)
        columns = list(next(iter(rows.values())))
        lines += [f"\n| {name} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        lines += [f"| {row} | " + " | ".join(cell(cells[c]) for c in columns) + " |" for row, cells in rows.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="what curate_corpus.py drew")
    parser.add_argument("--out", type=Path, required=True, help="what stepline curate wrote")
    parser.add_argument("--name", default="curate_truth", help="of the result file; empty: none is written")
    args = parser.parse_args()
    result = measure(args.corpus, args.out)
    if args.name:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{args.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in ("videos", "kinds", "auc")}))
    print(markdown(result))


if __name__ == "__main__":
    main()
