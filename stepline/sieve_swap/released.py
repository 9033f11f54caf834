"""The JSON form in which the paper's authors released their data: {id: {duration, timestamps, sentences}}.

`sentences` holds two texts a segment. Their meaning is not documented; here the first is the step and the second what
was said. `stepline.datasets.read("sieve-swap", ...)` reads the files.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepline.records import Record
from stepline.sieve_swap.admission import length
from stepline.store import atomic_path, read_parquet


def write_released(parts: Iterable[Path], file: Path) -> int:
    """Write the records of Parquet files as one JSON file, a video at a time; return how many segments it holds."""
    segments = 0
    with atomic_path(file) as partial, partial.open("w", encoding="utf-8") as out:
        mark = "{"
        for record in _records(parts):
            entry = released(record)
            segments += len(record.steps)
            out.write(f"{mark}\n{json.dumps(record.video.id)}: {json.dumps(entry, ensure_ascii=False)}")
            mark = ","
        out.write("\n}\n" if mark == "," else "{}\n")
    return segments


def released(record: Record) -> dict[str, object]:
    """Return one video in the released form; a step without another wording gives its own text twice."""
    return {
        "duration": length(record),
        "timestamps": [[step.spans[0].start, step.spans[0].end] for step in record.steps if step.spans],
        "sentences": [[step.text, (*step.alternatives, step.text)[0]] for step in record.steps if step.spans],
    }


def _records(parts: Iterable[Path]) -> Iterator[Record]:
    for part in sorted(parts):
        yield from read_parquet(part)
