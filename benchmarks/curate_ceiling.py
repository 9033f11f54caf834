"""What the pictures of the drawn corpus could give: the aligner trained on true places and on where
steps are said.

    python benchmarks/curate_ceiling.py --corpus CORPUS --out OUT

Each half of the gathered videos is placed by a network that was trained on the other, with the
recipe's own settings. R@1 is that of the network's best second alone, of all written steps that are
really shown: speech has no part in it.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from curate_truth import RESULTS_FOLDER, read_out, read_truths, records, stage_folder, with_interval
from curate_units import Unit, units_of

from stepline.curate.stage import Recipe
from stepline.curate.stages.train import of_any_width
from stepline.features import FeatureStore
from stepline.files.storage import write_parquet
from stepline.models.nasva.align import score_texts
from stepline.models.nasva.checkpoint import load_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.train import AlignerSources, train_run
from stepline.records import Record

STEP_LABELS = ("true", "said")


def labelled(record: Record, units: Mapping[str, Unit], label: str) -> Record:
    """Return a record whose steps are "said" where their label is. Those that are not shown have no
    true one."""

    steps = []
    for step in record.steps:
        place = step.said
        if label != "said":
            place = next(iter(units[step.id].shown_spans), None)
        steps.append(step.model_copy(update={"spans": (), "said": place}))
    return record.model_copy(update={"steps": tuple(steps)})


def placed_by_others(
    gathered: Mapping[str, Record],
    truths: Mapping[str, Record],
    gather: Path,
    recipe: Recipe,
    label: str,
) -> Iterator[Unit]:
    """Yield each shown step with the best second of a network that never saw its video."""
    features = FeatureStore(gather / "features")
    ids = sorted(gathered)
    units = {id: units_of(gathered[id], truths[id]) for id in ids}
    settings = of_any_width(recipe.train)
    for half in (0, 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            others = (labelled(gathered[id], units[id], label) for id in ids[1 - half :: 2])
            write_parquet(others, folder / "records.parquet")
            sources = AlignerSources(gather / "features", steps=str(folder / "records.parquet"))
            train_run(sources, folder / "run", settings)
            loaded = load_aligner(folder / "run")
        for id in ids[half::2]:
            yield from best_seconds(gathered[id], units[id], loaded.aligner, features)


def best_seconds(
    record: Record, units: Mapping[str, Unit], aligner: Aligner, features: FeatureStore
) -> Iterator[Unit]:
    """Yield the shown steps of a video at the network's best second."""
    from stepline.text import embed

    vectors = embed([step.text for step in record.steps])
    fit = score_texts(aligner, features.read(record.id), vectors)
    for step, row in zip(record.steps, fit.scores, strict=True):
        shown_spans = units[step.id].shown_spans
        if shown_spans:
            best_second = (int(row.argmax()) + 0.5) / fit.rate
            yield Unit(record.id, None, best_second, shown_spans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="what curate_corpus.py drew")
    parser.add_argument("--out", type=Path, required=True, help="what stepline curate wrote")
    options = parser.parse_args()
    gather = stage_folder(options.out, "gather")
    if gather is None:
        parser.error(f"{options.out}: nothing is gathered there")
    truths = read_truths(options.corpus)
    gathered = {}
    for id, record in records(gather).items():
        if id in truths:
            gathered[id] = record
    recipe = read_out(options.out)
    result = {}
    for label in STEP_LABELS:
        units = list(placed_by_others(gathered, truths, gather, recipe, label))
        result[label] = {
            "steps": len(units),
            "recall": with_interval(units, lambda unit: float(unit.hit)),
        }
        print(label, json.dumps(result[label]), flush=True)
    path = RESULTS_FOLDER / "curate_ceiling.json"
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
