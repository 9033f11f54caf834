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

CATEGORY_NAMES = ("Food and Entertaining", "Cars & Other Vehicles", "Hobbies and Crafts")
TASK_COUNT = 23_611  # HowTo100M's
SENTENCE_COUNT = 100  # of a synthetic record
CUE_COUNT = 25  # of a video in the captions


def make(folder: Path, rows: int) -> None:
    """Write a list as csv and Parquet, and HowTo100M's table and captions, of random ids."""
    import pyarrow.csv as tables
    import pyarrow.parquet as parquet

    draw = random.Random(0)
    letters = string.ascii_letters + string.digits + "-_"
    ids = ["".join(draw.choices(letters, k=11)) for _ in range(rows)]
    with (folder / "list.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "video", "title", "task", "category", "duration"])
        for place, id in enumerate(ids):
            path = f"videos/{id[:2]}/{id}.mp4"
            title = f"How to do thing {place} at home, slowly"
            task = f"Make thing {place % TASK_COUNT}"
            seconds = 60 + place % 600
            writer.writerow([id, path, title, task, CATEGORY_NAMES[place % 3], seconds])
    parquet.write_table(tables.read_csv(folder / "list.csv"), folder / "list.parquet")
    with (folder / "HowTo100M_v1.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["video_id", "category_1", "category_2", "rank", "task_id"])
        for place, id in enumerate(ids):
            category = CATEGORY_NAMES[place % 3]
            writer.writerow([id, category, "Recipes", 1, place % TASK_COUNT])
    cues = {
        "text": ["and then you take the whisk and mix it"] * CUE_COUNT,
        "start": [4.0 * cue for cue in range(CUE_COUNT)],
        "end": [4.0 * cue + 4 for cue in range(CUE_COUNT)],
    }
    captions = json.dumps(cues)
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

    def make_record(number: int) -> Record:
        draw = random.Random(number)
        sentences = []
        for k in range(SENTENCE_COUNT):
            text = " ".join(f"word{draw.randrange(20_000)}" for _ in range(9))
            sentences.append(Sentence(text=text, span=Span(4.0 * k, 4.0 * k + 3.5)))
        steps = []
        for k in range(10):
            text = sentences[10 * k].text
            spans = (Span(40.0 * k, 40.0 * k + 8),)
            steps.append(Step(id=str(k), text=text, spans=spans, status="shown", score=0.5))
        video = Video(id=f"v{number:07}", duration=400.0)
        transcript = Transcript(sentences=tuple(sentences))
        return Record(id=video.id, video=video, transcript=transcript, steps=tuple(steps))

    dataset = folder / "dataset"
    dataset.mkdir()
    contents = DatasetContents(lambda: map(make_record, range(records)), {})
    export_dataset(contents, dataset, ExportSettings())
    return sum(path.stat().st_size for path in dataset.rglob("*") if path.is_file())


def peak_memory() -> int:
    """Return the most KiB that this process held. Not what its parent held before, which getrusage
    may report."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1])


def measured(what: str, folder: Path, size: int) -> None:
    """Do one thing in this process and print what it took as a row of a table."""
    import numpy  # noqa: F401  (what is imported anyway does not count)
    import pyarrow.parquet  # noqa: F401

    kib_before = peak_memory()
    start = time.process_time()
    if what == "export":
        written_bytes = export(folder, size)
        amount = f"{size:,} records, {written_bytes / 2**20:.0f} MiB written"
    else:
        amount = f"{read(folder, what):,} entries"
    seconds = time.process_time() - start
    memory = f"{peak_memory() // 1024} ({kib_before // 1024} imports)"
    print(f"| {what} | {amount} | {seconds:.1f} | {memory} |", flush=True)


def main() -> None:
    """Make the inputs and measure each source and the export in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, folder, size = options.one
        measured(what, Path(folder), int(size))
        return
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch), options.rows)
        print("| what | size | CPU s | peak MiB |\n|---|---|---|---|", flush=True)
        for what in ("list.csv", "list.parquet", "HowTo100M_v1.csv", "export"):
            command = [sys.executable, __file__, "--one", what, scratch, str(options.records)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
