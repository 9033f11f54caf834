"""Files of a run's output: pairs, records, statistics, and the JSON form in which the paper's
authors released theirs.

Each file is named by its place in the input and by a digest of all that decides its bytes. A run
that was killed finds what is done by these names, and goes on; a file is written whole or not at
all. Statistics are what there is to count in a swapped collection (appendix A.1, figures 4 to 6),
part by part, and added up. The released form is {id: {duration, timestamps, sentences}} with two
texts a segment. Their meaning is not documented; here the first is the step and the second what was
said. `stepline.datasets.read("sieve-swap", ...)` reads the files.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import Field

from stepline.atomic_files import atomic_path, remove_file, remove_partial_files
from stepline.errors import StoreError, first_line
from stepline.parquet import ParquetError, ParquetReader
from stepline.records import FrozenModel, Record, Rejected, Step
from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.agreement.check import NEW
from stepline.sieve_swap.content_words import content_words
from stepline.sieve_swap.videos import length
from stepline.storage import read_parquet, to_json

TRAIN, VALIDATION, LEFT_OUT = "train", "validation", "left_out"
PAIRS, PARTS = "pairs", "parts"
FOLDERS = (TRAIN, VALIDATION, LEFT_OUT, PAIRS, PARTS)
CUT = 16  # hex digits of a digest in a file's name


@dataclass(frozen=True)
class PairedVideo:
    """What pairing says of one video. reason: why it stays out, None where it comes in. Best
    document first."""

    video: str
    reason: str | None
    split: str | None
    documents: list[int] = field(default_factory=list)
    iou: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    evaluation: list[str] = field(default_factory=list)


def digest(*parts: object) -> str:
    """Return a digest of plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:CUT]


def name(number: int, *parts: object) -> str:
    """Return the stem of a part's files: its number, then a digest of what decides them."""
    return f"{number:05d}-{digest(*parts)}"


def write_pairs(rows: Sequence[PairedVideo], path: Path) -> None:
    """Write what pairing found, a row a video, as Parquet."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    texts = arrow.list_(arrow.string())
    schema = arrow.schema(
        [
            ("video", arrow.string()),
            ("reason", arrow.string()),
            ("split", arrow.string()),
            ("documents", arrow.list_(arrow.int64())),
            ("iou", arrow.list_(arrow.float64())),
            ("recall", arrow.list_(arrow.float64())),
            ("evaluation", texts),
        ]
    )
    with atomic_path(path) as partial:
        parquet.write_table(
            arrow.Table.from_pylist([asdict(row) for row in rows], schema=schema), partial
        )


def read_pairs(path: Path) -> list[PairedVideo]:
    """Return the rows of a file of pairs. Raises StoreError for a damaged one."""
    try:
        return [PairedVideo(**row) for row in ParquetReader(path).rows()]
    except (ParquetError, TypeError) as error:
        reason = first_line(error)
        raise StoreError(
            f"{path}: not a readable file of pairs ({reason}); remove it and run again"
        ) from error


def write_records(records: Sequence[Record], split: str, path: Path) -> None:
    """Write records as Parquet, sorted by id, with columns for their split and their texts;
    `read_parquet` reads it."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    rows = [
        {
            "id": record.id,
            "video": record.video.id,
            "task": record.video.task,
            "split": split,
            "texts": [step.text for step in record.steps],
            "starts": [step.spans[0].start for step in record.steps],
            "ends": [step.spans[0].end for step in record.steps],
            "record": to_json(record),
        }
        for record in sorted(records, key=lambda record: record.id)
    ]
    kinds = {"texts": arrow.list_(arrow.string()), "starts": arrow.list_(arrow.float64())}
    kinds["ends"] = kinds["starts"]
    columns = ("id", "video", "task", "split", "texts", "starts", "ends", "record")
    schema = arrow.schema([(column, kinds.get(column, arrow.string())) for column in columns])
    with atomic_path(path) as partial:
        parquet.write_table(
            arrow.Table.from_pylist(rows, schema=schema), partial, compression="zstd"
        )


def remove_leftovers(out: Path, words: Path) -> None:
    """Remove what killed runs left half-written, in the folder of the documents' words too."""
    for folder in (out, words, *(out / name for name in FOLDERS)):
        if folder.is_dir():
            remove_partial_files(folder)


def keep_only(out: Path, wanted: Iterable[Path]) -> int:
    """Remove files of earlier runs over other videos or texts; return how many. Only the run's own
    folders."""
    kept = set(wanted)
    stale = [file for file in _ours(out) if file not in kept]
    for file in stale:
        remove_file(file)
    return len(stale)


def _ours(out: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((out / folder).glob("[0-9]*-*.*"))


DENSITY = 20  # steps of the density of content words, each 5 per cent
LONG = 60  # words or seconds from which on they are counted as one
TEN = 10  # seconds of a video's length that are one bar
KEPT, OWN = "swapped", "kept in its own words"
KEPT_WORDS = 2_000  # most frequent words that a part keeps


class Statistics(FrozenModel):
    """Counts that can be added. Keys are numbers in words where they are bars of a histogram."""

    videos: dict[str, int] = Field(default_factory=dict)  # split, or why a video was left out
    sentences: dict[str, int] = Field(default_factory=dict)  # KEPT, OWN, or why one was sieved
    steps_a_video: dict[str, int] = Field(default_factory=dict)
    words_a_step: dict[str, int] = Field(default_factory=dict)
    seconds_a_step: dict[str, int] = Field(default_factory=dict)
    seconds_a_video: dict[str, int] = Field(default_factory=dict)  # tens
    # twentieths: content words among a text's words
    density_before: dict[str, int] = Field(default_factory=dict)
    density_after: dict[str, int] = Field(default_factory=dict)
    # content word -> times, raw narration
    words_before: dict[str, int] = Field(default_factory=dict)
    words_after: dict[str, int] = Field(default_factory=dict)  # the same, steps
    # "source: id" of a document -> steps taken from it
    documents: dict[str, int] = Field(default_factory=dict)
    licences: dict[str, int] = Field(default_factory=dict)
    # swaps with a number that is not said, and others
    checks: dict[str, int] = Field(default_factory=dict)
    excluded: dict[str, int] = Field(default_factory=dict)  # evaluation set -> videos kept out
    seconds: float = 0.0  # of all steps


def add(parts: Sequence[Statistics]) -> Statistics:
    """Return the sum of parts."""
    fields = [name for name in Statistics.model_fields if name != "seconds"]
    sums = {
        name: _sorted(sum((Counter(getattr(part, name)) for part in parts), Counter()))
        for name in fields
    }
    return Statistics.model_validate(sums | {"seconds": sum(part.seconds for part in parts)})


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def count(records: Sequence[Record], splits: Sequence[str]) -> Statistics:
    """Return the statistics of swapped records; splits: of each record."""
    steps = [step for record in records for step in record.steps]
    before = [
        s.text for record in records if record.transcript for s in record.transcript.sentences
    ]
    after = [step.text for step in steps]
    words_before, density_before = _content(before)
    words_after, density_after = _content(after)
    sieved = Counter(item.reason for record in records for item in _sentences(record.dropped))
    kept = Counter(kind for record in records for kind in _kept(record).values())
    return Statistics(
        videos=_sorted(Counter(splits)),
        sentences=_sorted(sieved + kept),
        steps_a_video=_sorted(Counter(str(len(record.steps)) for record in records)),
        words_a_step=_bars([len(text.split()) for text in after]),
        seconds_a_step=_bars([step.said.duration for step in steps if step.said]),
        seconds_a_video=_sorted(
            Counter(str(TEN * int(length(record) // TEN)) for record in records)
        ),
        density_before=density_before,
        density_after=density_after,
        words_before=words_before,
        words_after=words_after,
        documents=_sorted(
            Counter(document_of(step.source_text) for step in steps if step.source_text)
        ),
        licences=_sorted(
            Counter(step.licence or "not stated" for step in steps if step.source_text)
        ),
        checks=_checks(steps),
        seconds=sum(step.said.duration for step in steps if step.said),
    )


def document_of(source_text: str) -> str:
    """Return which document a swapped step is from: its source_text without the step's place."""
    return source_text.rpartition("#")[0]


def _sentences(dropped: Sequence[Rejected]) -> list[Rejected]:
    return [item for item in dropped if item.what == "sentence"]


def _kept(record: Record) -> dict[int, str]:
    """Return how each kept sentence was kept; a step without source_text has the words that were
    said."""
    own = {source: OWN for step in record.steps if not step.source_text for source in step.sources}
    return own | {
        source: KEPT for step in record.steps if step.source_text for source in step.sources
    }


def _bars(values: Sequence[float]) -> dict[str, int]:
    return _sorted(Counter(str(min(LONG, int(value))) for value in values))


def _content(texts: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how often each content word comes, numerals and units too, and texts by their share of
    such words."""
    words: Counter[str] = Counter()
    density: Counter[str] = Counter()
    for text, found in zip(texts, content_words(texts, numerals=True), strict=True):
        words.update(found)
        share = min(1.0, len(found) / max(1, len(text.split())))
        density[str(min(DENSITY - 1, int(share * DENSITY)))] += 1
    return dict(_sorted(Counter(dict(words.most_common(KEPT_WORDS))))), _sorted(density)


def _checks(steps: Sequence[Step]) -> dict[str, int]:
    """Count the swaps that change something, read again from what was written: none may but a
    number not said."""
    found: Counter[str] = Counter()
    for step in steps:
        if step.source_text:
            found[
                change(step.alternatives[0], step.text, new_numbers=False) or "nothing is changed"
            ] += 1
    return _sorted(found + Counter({NEW: 0}))


def write_released(parts: Iterable[Path], file: Path) -> int:
    """Write the records of Parquet files as one JSON file, a video at a time; return how many
    segments it holds."""
    segments = 0
    with atomic_path(file) as partial, partial.open("w", encoding="utf-8") as out:
        mark = "{"
        for record in _records(parts):
            entry = released_entry(record)
            segments += len(record.steps)
            out.write(
                f"{mark}\n{json.dumps(record.video.id)}: {json.dumps(entry, ensure_ascii=False)}"
            )
            mark = ","
        out.write("\n}\n" if mark == "," else "{}\n")
    return segments


def released_entry(record: Record) -> dict[str, object]:
    """Return one video in the released form; a step without another wording gives its own text
    twice."""
    return {
        "duration": length(record),
        "timestamps": [
            [step.spans[0].start, step.spans[0].end] for step in record.steps if step.spans
        ],
        "sentences": [
            [step.text, (*step.alternatives, step.text)[0]] for step in record.steps if step.spans
        ],
    }


def _records(parts: Iterable[Path]) -> Iterator[Record]:
    for part in sorted(parts):
        yield from read_parquet(part)
