"""Takes a corpus through every whole recipe, on both engines, and reads back what was published.

    python benchmarks/curate_corpus.py CORPUS --videos 24 --clips CLIPS python
    benchmarks/curate_recipes.py CORPUS/videos.csv --work FOLDER [--engines local ray] [--recipes
    clean features]

Each engine has one OUT for all recipes, FOLDER/ENGINE, so that what they share is computed once. A
rerun goes on. Of each dataset it reports that its files are the same on both engines, byte for
byte. `datasets` loads its Parquet by the card alone and its tars as a WebDataset. `mlcroissant`
finds its Croissant valid, with the sha256 of every file. Networks are those of
curate_howtostep.toml. The text base is made of the drawn tasks' steps. The table is printed and
written to benchmarks/results/curate_recipes.json.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from research.drawn_videos.tasks import read_tasks
from stepline.curate.store.run_log import read_timings
from stepline.remote import RemotePath
from stepline.storage import read_parquet

RESULTS = Path(__file__).parent / "results" / "curate_recipes.json"
SMALL = str(Path(__file__).parent / "curate_howtostep.toml")
TARS = ("export.webdataset=true", "export.media=true")
CLEAN = (
    "probe",
    "transcribe",
    "write",
    "filter",
    "encode",
    "coarse",
    "ground",
    "judge",
    "gather",
    "train",
    "refine",
    "clean",
    "export",
)
# name -> the recipe's file or name, its settings
RECIPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "howtostep": (SMALL, TARS),
    "sieve_swap": ("sieve_swap", (*TARS, "sieve_swap.pairing.smallest_category=1")),
    "visual_narration": ("visual_narration", TARS),
    "clean": (SMALL, (*TARS, f"stages={json.dumps(CLEAN)}")),
    "features": ("features", ()),
}


def stepline(*words: str) -> None:
    """Run a command of Stepline's."""
    subprocess.run([sys.executable, "-m", "stepline", *words], check=True)


def build_base(work: Path) -> Path:
    """Return a text base of the drawn tasks' steps, which is made where it is not there."""
    base, texts = work / "base", work / "tasks.json"
    if not (base / "manifest.json").exists():
        texts.write_text(
            json.dumps(
                [
                    {"title": task.title, "steps": [s.text for s in task.steps]}
                    for task in read_tasks()
                ]
            )
        )
        stepline("text-base", "build", str(texts), "--out", str(base), "--licence", "MIT")
    return base


def run(source: str, name: str, engine: str, work: Path) -> Path:
    """Take a source through a recipe, and return its OUT."""
    recipe, settings = RECIPES[name]
    if name == "sieve_swap":
        settings = (*settings, f"sieve_swap.base={json.dumps(str(build_base(work)))}")
    given = [part for setting in settings for part in ("--set", setting)]
    out = work / engine
    stepline(
        "curate",
        source,
        "--recipe",
        recipe,
        "--out",
        str(out),
        "--engine",
        engine,
        "--workers",
        "2",
        *given,
    )
    return out


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def read_back(folder: Path, cache: Path) -> dict[str, Any]:
    """Return what others' programs find in a published dataset. Raises ValueError where it is not
    as it says."""
    import mlcroissant
    from datasets import load_dataset

    about = json.loads((folder / "dataset.json").read_text())
    splits = {
        split: rows.num_rows
        for split, rows in load_dataset(str(folder), cache_dir=str(cache)).items()
    }
    records = [
        record
        for shard in sorted(folder.glob("data/train-*.parquet"))
        for record in read_parquet(shard)
    ]
    tars = sorted(map(str, folder.glob("webdataset/*.tar")))
    samples = (
        load_dataset(str(folder / "webdataset"), split="train", cache_dir=str(cache))
        if tars
        else ()
    )
    videos = sum(name.endswith((".mp4", ".mkv", ".webm")) for tar in tars for name in names_in(tar))
    tree = json.loads((folder / "croissant.json").read_text())
    issues = mlcroissant.Dataset(jsonld=str(folder / "croissant.json")).metadata.ctx.issues
    listed = {
        file["@id"]: file["sha256"]
        for file in tree["distribution"]
        if file["@type"] == "cr:FileObject"
    }
    found = digests(folder)
    expected = {"train": about["videos"], "left_out": about["left_out"]}
    if {name: count for name, count in expected.items() if count} != splits:
        raise ValueError(f"{folder}: {splits}, but dataset.json says {expected}")
    if not about["videos"] == len(records) == len(samples) == videos:
        raise ValueError(
            f"{folder}: {len(records)} records, {len(samples)} samples, {videos} videos in tars"
        )
    if issues.errors or any(found[name] != digest for name, digest in listed.items()):
        raise ValueError(f"{folder}: croissant.json: {issues.errors}, or a sha256 that is wrong")
    steps = sum(len(record.steps) for record in records)
    if steps != about["steps"]:
        raise ValueError(f"{folder}: {steps} steps, but dataset.json says {about['steps']}")
    return {
        **splits,
        "steps": steps,
        "samples_in_tars": len(samples),
        "croissant_files": len(listed),
    }


def names_in(tar: str) -> list[str]:
    """Return the names of a tar's members."""
    with tarfile.open(tar) as archive:
        return archive.getnames()


def feature_rows(out: Path) -> dict[str, Any]:
    """Return what the store of a `features` run holds."""
    from stepline.features import FeatureStore

    store = FeatureStore(out / "features")
    return {"videos": len(store), "rows": sum(len(store.read(video).values) for video in store)}


def table(rows: Mapping[str, Mapping[str, Any]], engines: Sequence[str]) -> str:
    """Return the rows as text."""
    lines = [
        f"{'recipe':<18}{'kept':>6}{'left out':>10}{'steps':>7}{'files':>7}  same bytes on {' and '.join(engines)}"
    ]
    for name, row in rows.items():
        kept, left = row.get("train", row.get("videos", 0)), row.get("left_out", 0)
        lines.append(
            f"{name:<18}{kept:>6}{left:>10}{row.get('steps', 0):>7}{row['files']:>7}  {row['same_bytes']}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run every recipe on every engine and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    for name in options.recipes:
        found = []
        for engine in options.engines:
            out = run(options.source, name, engine, options.work)
            found.append(digests(out / ("features" if name == "features" else "dataset")))
        told = (
            feature_rows(out)
            if name == "features"
            else read_back(out / "dataset", options.work / "read" / name)
        )
        rows[name] = {
            **told,
            "files": len(found[0]),
            "same_bytes": all(each == found[0] for each in found),
        }
        print(json.dumps({name: rows[name]}), file=sys.stderr, flush=True)
    outs = {engine: RemotePath(str(options.work / engine)) for engine in options.engines}
    spent = {
        engine: sum(float(str(line.get("cpu", 0.0))) for line in read_timings(out))
        for engine, out in outs.items()
    }
    print(table(rows, options.engines))
    options.results.write_text(json.dumps({"recipes": rows, "cpu_s": spent}, indent=1) + "\n")
    sys.exit(0 if all(row["same_bytes"] for row in rows.values()) else 1)


if __name__ == "__main__":
    main()
