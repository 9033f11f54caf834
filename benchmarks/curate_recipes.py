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
from stepline.files.remote import RemotePath
from stepline.files.storage import read_parquet
from stepline.records import Record

RESULT_PATH = Path(__file__).parent / "results" / "curate_recipes.json"
SMALL_RECIPE = str(Path(__file__).parent / "curate_howtostep.toml")
TAR_SETTINGS = ("export.webdataset=true", "export.media=true")
CLEAN_STAGES = (
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
VIDEO_ENDINGS = (".mp4", ".mkv", ".webm")
# name -> the recipe's file or name, its settings
RECIPE_SETTINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "howtostep": (SMALL_RECIPE, TAR_SETTINGS),
    "sieve_swap": ("sieve_swap", (*TAR_SETTINGS, "sieve_swap.pairing.smallest_category=1")),
    "visual_narration": ("visual_narration", TAR_SETTINGS),
    "clean": (SMALL_RECIPE, (*TAR_SETTINGS, f"stages={json.dumps(CLEAN_STAGES)}")),
    "features": ("features", ()),
}


def stepline(*words: str) -> None:
    """Run a command of Stepline's."""
    subprocess.run([sys.executable, "-m", "stepline", *words], check=True)


def build_base(work: Path) -> Path:
    """Return a text base of the drawn tasks' steps, which is made where it is not there."""
    base = work / "base"
    texts = work / "tasks.json"
    if not (base / "manifest.json").exists():
        tasks = []
        for task in read_tasks():
            tasks.append({"title": task.title, "steps": [step.text for step in task.steps]})
        texts.write_text(json.dumps(tasks))
        stepline("text-base", "build", str(texts), "--out", str(base), "--licence", "MIT")
    return base


def run(source: str, name: str, engine: str, work: Path) -> Path:
    """Take a source through a recipe, and return its OUT."""
    recipe, settings = RECIPE_SETTINGS[name]
    if name == "sieve_swap":
        base = json.dumps(str(build_base(work)))
        settings = (*settings, f"sieve_swap.base={base}")
    set_options: list[str] = []
    for setting in settings:
        set_options += ["--set", setting]
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
        *set_options,
    )
    return out


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file below a folder."""
    digest_of_file = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            digest_of_file[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digest_of_file


def read_back(folder: Path, cache: Path) -> dict[str, Any]:
    """Return what others' programs find in a published dataset. Raises ValueError where it is not
    as it says."""
    import mlcroissant
    from datasets import load_dataset

    # Its Parquet
    about = json.loads((folder / "dataset.json").read_text())
    loaded = load_dataset(str(folder), cache_dir=str(cache))
    splits = {split: rows.num_rows for split, rows in loaded.items()}
    records: list[Record] = []
    for shard in sorted(folder.glob("data/train-*.parquet")):
        records += read_parquet(shard)
    # Its tars
    tars = sorted(map(str, folder.glob("webdataset/*.tar")))
    samples = ()
    if tars:
        web_folder = str(folder / "webdataset")
        samples = load_dataset(web_folder, split="train", cache_dir=str(cache))
    videos = 0
    for tar in tars:
        videos += sum(name.endswith(VIDEO_ENDINGS) for name in names_in(tar))
    # Its Croissant
    croissant_path = folder / "croissant.json"
    tree = json.loads(croissant_path.read_text())
    issues = mlcroissant.Dataset(jsonld=str(croissant_path)).metadata.ctx.issues
    listed = {}
    for file in tree["distribution"]:
        if file["@type"] == "cr:FileObject":
            listed[file["@id"]] = file["sha256"]
    own_digests = digests(folder)
    # All must say the same.
    expected = {"train": about["videos"], "left_out": about["left_out"]}
    if {name: count for name, count in expected.items() if count} != splits:
        raise ValueError(f"{folder}: {splits}, but dataset.json says {expected}")
    if not about["videos"] == len(records) == len(samples) == videos:
        raise ValueError(
            f"{folder}: {len(records)} records, {len(samples)} samples, {videos} videos in tars"
        )
    if issues.errors or any(own_digests[name] != digest for name, digest in listed.items()):
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
    rows = sum(len(store.read(video).values) for video in store)
    return {"videos": len(store), "rows": rows}


def table(rows: Mapping[str, Mapping[str, Any]], engines: Sequence[str]) -> str:
    """Return the rows as text."""
    names = " and ".join(engines)
    heading = f"{'recipe':<18}{'kept':>6}{'left out':>10}{'steps':>7}{'files':>7}"
    lines = [f"{heading}  same bytes on {names}"]
    for name, row in rows.items():
        videos = row.get("train", row.get("videos", 0))
        left_out = row.get("left_out", 0)
        steps = row.get("steps", 0)
        counts = f"{videos:>6}{left_out:>10}{steps:>7}{row['files']:>7}"
        lines.append(f"{name:<18}{counts}  {row['same_bytes']}")
    return "\n".join(lines)


def main() -> None:
    """Run every recipe on every engine and print the table."""
    names = list(RECIPE_SETTINGS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    parser.add_argument("--recipes", nargs="+", default=names, choices=names)
    parser.add_argument("--results", type=Path, default=RESULT_PATH)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    for name in options.recipes:
        is_features = name == "features"
        result_folder = "features" if is_features else "dataset"
        digests_of_engines = []
        for engine in options.engines:
            out = run(options.source, name, engine, options.work)
            digests_of_engines.append(digests(out / result_folder))
        cache = options.work / "read" / name
        figures = feature_rows(out) if is_features else read_back(out / "dataset", cache)
        first = digests_of_engines[0]
        rows[name] = {
            **figures,
            "files": len(first),
            "same_bytes": all(other == first for other in digests_of_engines),
        }
        print(json.dumps({name: rows[name]}), file=sys.stderr, flush=True)
    cpu_seconds = {}
    for engine in options.engines:
        lines = read_timings(RemotePath(str(options.work / engine)))
        cpu_seconds[engine] = sum(float(str(line.get("cpu", 0.0))) for line in lines)
    print(table(rows, options.engines))
    result = {"recipes": rows, "cpu_s": cpu_seconds}
    options.results.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(row["same_bytes"] for row in rows.values()) else 1)


if __name__ == "__main__":
    main()
