"""Sources and exports at size: CPU seconds and peak MiB, each measured in a process of its own.

python benchmarks/curate_sources.py --rows 1200000 --records 20000
"""

import argparse
import csv
import json
import random
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CATEGORIES = ("Food and Entertaining", "Cars & Other Vehicles", "Hobbies and Crafts")
TASKS = 23_611  # HowTo100M's
SENTENCES = 100  # of a synthetic record
CUES = 25  # of a video in the captions


def make(folder: Path, rows: int) -> None:
    """Write a list as csv and Parquet, and HowTo100M's table and captions, of random ids."""
    import pyarrow.csv as tables
    import pyarrow.parquet as parquet

    draw, letters = random.Random(0), string.ascii_letters + string.digits + "-_"
    ids = ["".join(draw.choices(letters, k=11)) for _ in range(rows)]
    with (folder / "list.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "video", "title", "task", "category", "duration"])
        for place, id in enumerate(ids):
            title, task = f"How to do thing {place} at home, slowly", f"Make thing {place % TASKS}"
            writer.writerow(
                [
                    id,
                    f"videos/{id[:2]}/{id}.mp4",
                    title,
                    task,
                    CATEGORIES[place % 3],
                    60 + place % 600,
                ]
            )
    parquet.write_table(tables.read_csv(folder / "list.csv"), folder / "list.parquet")
    with (folder / "HowTo100M_v1.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["video_id", "category_1", "category_2", "rank", "task_id"])
        writer.writerows(
            [id, CATEGORIES[place % 3], "Recipes", 1, place % TASKS] for place, id in enumerate(ids)
        )
    said = {
        "text": ["and then you take the whisk and mix it"] * CUES,
        "start": [4.0 * cue for cue in range(CUES)],
    }
    captions = json.dumps({**said, "end": [4.0 * cue + 4 for cue in range(CUES)]})
    with (folder / "caption.json").open("w") as file:
        file.write("{" + ", ".join(f'"{id}": {captions}' for id in ids[:1]))
        file.writelines(f', "{id}": {captions}' for id in ids[1:])
        file.write("}")


def read(folder: Path, name: str) -> int:
    """Read a source to its end and return how many entries it had."""
    from stepline.curate.settings import SourceSettings
    from stepline.curate.sources.read import read_source

    table = name.startswith("HowTo")
    settings = SourceSettings(preset="htm-370k") if table else SourceSettings(stamps=False)
    return sum(1 for _ in read_source(str(folder / name), settings))


def export(folder: Path, records: int) -> int:
    """Export synthetic records of a hundred sentences and ten steps each, and return the bytes of
    the dataset."""
    from stepline.curate.export.dataset import DatasetContents, export_dataset
    from stepline.curate.settings import ExportSettings
    from stepline.records import Record, Sentence, Span, Step, Transcript, Video

    def made(number: int) -> Record:
        draw = random.Random(number)
        words = [
            " ".join(f"word{draw.randrange(20_000)}" for _ in range(9)) for _ in range(SENTENCES)
        ]
        sentences = tuple(
            Sentence(text=text, span=Span(4.0 * k, 4.0 * k + 3.5)) for k, text in enumerate(words)
        )
        steps = tuple(
            Step(
                id=str(k),
                text=words[10 * k],
                spans=(Span(40.0 * k, 40.0 * k + 8),),
                status="shown",
                score=0.5,
            )
            for k in range(10)
        )
        video = Video(id=f"v{number:07}", duration=400.0)
        return Record(
            id=video.id, video=video, transcript=Transcript(sentences=sentences), steps=steps
        )

    (folder / "dataset").mkdir()
    export_dataset(
        DatasetContents(lambda: map(made, range(records)), {}), folder / "dataset", ExportSettings()
    )
    return sum(path.stat().st_size for path in (folder / "dataset").rglob("*") if path.is_file())


def peak_memory() -> int:
    """Return the most KiB that this process held. Not what its parent held before, which getrusage
    may tell."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def measured(what: str, folder: Path, size: int) -> None:
    """Do one thing in this process and print what it took as a row of a table."""
    import numpy  # noqa: F401  (what is imported anyway is no part of the measure)
    import pyarrow.parquet  # noqa: F401

    before, began = peak_memory(), time.process_time()
    result = export(folder, size) if what == "export" else read(folder, what)
    took, peak = time.process_time() - began, peak_memory()
    unit = (
        f"{size:,} records, {result / 2**20:.0f} MiB written"
        if what == "export"
        else f"{result:,} entries"
    )
    print(
        f"| {what} | {unit} | {took:.1f} | {peak // 1024} ({before // 1024} imports) |", flush=True
    )


def main() -> None:
    """Make the inputs and measure each source and the export in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measured(given.one[0], Path(given.one[1]), int(given.one[2]))
        return
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch), given.rows)
        print("| what | size | CPU s | peak MiB |\n|---|---|---|---|", flush=True)
        for what in ("list.csv", "list.parquet", "HowTo100M_v1.csv", "export"):
            command = [sys.executable, __file__, "--one", what, scratch, str(given.records)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
