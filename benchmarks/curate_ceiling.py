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

from curate_truth import RESULTS, read_out, records, stage_folder, with_interval
from curate_units import Unit, units_of

from stepline.curate.stage import Recipe
from stepline.curate.stages.train import of_any_width
from stepline.features import FeatureStore
from stepline.nasva.align import score_texts
from stepline.nasva.checkpoint import load_aligner
from stepline.nasva.model import Aligner
from stepline.nasva.train import AlignerSources, train_run
from stepline.records import Record, Span
from stepline.storage import read_record, write_parquet

WANTED = ("true", "said")


def labelled(record: Record, units: Mapping[str, Unit], label: str) -> Record:
    """Return a record whose steps are "said" where their label is. Those that are not shown have no
    true one."""

    def place(id: str, said: Span | None) -> Span | None:
        return said if label == "said" else next(iter(units[id].shown), None)

    steps = (
        step.model_copy(update={"spans": (), "said": place(step.id, step.said)})
        for step in record.steps
    )
    return record.model_copy(update={"steps": tuple(steps)})


def placed_by_others(
    found: Mapping[str, Record],
    truths: Mapping[str, Record],
    gather: Path,
    recipe: Recipe,
    label: str,
) -> Iterator[Unit]:
    """Yield each shown step with the best second of a network that never saw its video."""
    features, ids = FeatureStore(gather / "features"), sorted(found)
    units = {id: units_of(found[id], truths[id]) for id in ids}
    settings = of_any_width(recipe.train)
    for half in (0, 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            others = (
                labelled(found[id], units[id], label)
                for number, id in enumerate(ids)
                if number % 2 != half
            )
            write_parquet(others, folder / "records.parquet")
            train_run(
                AlignerSources(gather / "features", steps=str(folder / "records.parquet")),
                folder / "run",
                settings,
            )
            loaded = load_aligner(folder / "run")
        for id in ids[half::2]:
            yield from best_seconds(found[id], units[id], loaded.aligner, features)


def best_seconds(
    record: Record, units: Mapping[str, Unit], aligner: Aligner, features: FeatureStore
) -> Iterator[Unit]:
    """Yield the shown steps of a video at the network's best second."""
    from stepline.text import embed

    fit = score_texts(
        aligner, features.read(record.id), embed([step.text for step in record.steps])
    )
    for step, row in zip(record.steps, fit.scores, strict=True):
        unit, at = units[step.id], (int(row.argmax()) + 0.5) / fit.rate
        if unit.shown:
            yield Unit(record.id, None, at, unit.shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="what curate_corpus.py drew")
    parser.add_argument("--out", type=Path, required=True, help="what stepline curate wrote")
    args = parser.parse_args()
    gather = stage_folder(args.out, "gather")
    if gather is None:
        parser.error(f"{args.out}: nothing is gathered there")
    truths = {
        file.stem: read_record(file) for file in sorted((args.corpus / "truth").glob("*.json"))
    }
    found = {id: record for id, record in records(gather).items() if id in truths}
    recipe = read_out(args.out)
    result = {}
    for label in WANTED:
        units = list(placed_by_others(found, truths, gather, recipe, label))
        result[label] = {
            "steps": len(units),
            "recall": with_interval(units, lambda unit: float(unit.hit)),
        }
        print(label, json.dumps(result[label]), flush=True)
    (RESULTS / "curate_ceiling.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
