"""Search: speed over made records, and whether the true moment is among the first five.

    python lab/search.py --steps 100000
    python lab/search.py --clips CLIPS --records DIR

The first makes records of how-to steps in a temporary folder, with random unit vectors. A search
compares all of them, whatever they hold. It times whole queries: the query's own vector, words,
meaning, and the answers. In the same run, a plain scan reads every record and keeps the steps that
hold a word of the query.

The second asks for each labelled step of CLIPS (labels.json, docs/real_clips.md) in a person's
words. DIR holds their records. A step is right if one of the answers is of that clip and near the
marks. That is at most 3 s from the seconds in which the step is spoken or shown.

Both also report the shares of queries without an answer, of queries in made words and of queries
about other things.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.files.atomic_files import files_below
from stepline.library import Moment, SearchIndex, search
from stepline.records import Matrix, Record, Span, Step, Video
from stepline.storage import read_record, write_record
from stepline.text import embed

VERB_WORDS = (
    "fold",
    "cut",
    "stir",
    "pour",
    "whisk",
    "press",
    "turn",
    "lift",
    "wash",
    "dry",
    "sand",
    "paint",
    "fix",
    "drill",
    "glue",
    "knead",
    "roll",
    "slice",
    "heat",
)
THING_PHRASES = (
    "egg whites",
    "the dough",
    "a strip",
    "the valve",
    "two screws",
    "the batter",
    "the hinge",
    "the wire",
    "a board",
)
PLACE_PHRASES = (
    "in the bowl",
    "on the bench",
    "with a spatula",
    "under the sink",
    "until it is smooth",
    "by hand",
)
QUERY_TEXTS = (
    "fold the egg whites",
    "how to fix a wire under the sink",
    "stir until smooth",
    "drill the board by hand",
)
STEPS_PER_RECORD = 100
SLACK_SECONDS = 3.0
MADE_QUERIES = 200  # of made words, not those that the search itself compares with
MADE_SEED = 17
OTHER_QUERIES = (
    "interest rates of the central bank",
    "who won the football final",
    "compile a kernel module",
    "ticket to the moon",
    "divorce lawyer",
    "neutrino mass",
    "quarterly tax return",
    "poems about autumn",
    "rebase a git branch",
    "weather tomorrow",
    "train timetable",
    "parliament elections",
    "jazz piano chords",
    "dinosaur fossils",
    "stock market crash",
    "learn Portuguese grammar",
    "galaxy clusters",
    "passport renewal",
    "chess openings",
    "opera tickets",
)

# a query, and whether a moment answers it
Question: TypeAlias = tuple[str, Callable[[Moment], bool]]


def made_records(folder: Path, count: int) -> None:
    """Write records of STEPS_PER_RECORD steps each."""
    rng = np.random.default_rng(0)
    for number in range(count // STEPS_PER_RECORD):
        steps = []
        for index in range(STEPS_PER_RECORD):
            words = [rng.choice(phrases) for phrases in (VERB_WORDS, THING_PHRASES, PLACE_PHRASES)]
            text = f"{' '.join(words)} {index}"
            span = Span(5.0 * index, 5.0 * index + 4)
            steps.append(Step(id=str(index), text=text, spans=(span,), status="placed"))
        record = Record(id=f"v{number}", video=Video(id=f"v{number}"), steps=tuple(steps))
        write_record(record, folder / f"v{number}.json")


def scan(folder: Path, query: str) -> int:
    """Return how many steps hold a word of the query, by reading every record."""
    words = query.split()
    count = 0
    for path in files_below(folder):
        if path.suffix == ".json":
            for step in read_record(path).steps:
                count += any(word in step.text for word in words)
    return count


def speed(count: int) -> dict[str, float]:
    """Return milliseconds per query, of the clock and of the processor, and how many times a plain
    scan takes."""
    rng = np.random.default_rng(1)

    def embedder(texts: "list[str]") -> Matrix:
        if len(texts) == 1:
            return embed(texts)
        rows = rng.normal(size=(len(texts), 384)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    folder = Path(tempfile.mkdtemp())
    try:
        made_records(folder, count)
        index = SearchIndex(folder, embedder)
        build_seconds = time_call(index.update)
        index.search(QUERY_TEXTS[0])  # loads the vectors
        cpu_begin = time.process_time()
        times = [time_call(index.search, query) for query in QUERY_TEXTS * 5]
        cpu_seconds = (time.process_time() - cpu_begin) / len(times)
        scan_seconds = time_call(scan, folder, QUERY_TEXTS[0])
        size = index.path.stat().st_size
    finally:
        shutil.rmtree(folder)
    median = float(np.median(times))
    return {
        "steps": count,
        "ms a query": round(1000 * median, 1),
        "CPU ms a query": round(1000 * cpu_seconds, 1),
        "slowest ms": round(1000 * max(times), 1),
        "plain scan / query": round(scan_seconds / median, 1),
        "s to build, without vectors": round(build_seconds, 1),
        "MB of index": round(size / 1e6, 1),
    }


def time_call(call: Callable[..., object], *arguments: object) -> float:
    """Return the seconds that a call takes."""
    begun = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begun


def quality(clips: Path, records: Path) -> dict[str, float]:
    """Return the shares of `shares` for the labelled steps of clips."""
    labels = json.loads((clips / "labels.json").read_text())
    questions: list[Question] = []
    for name, truth in labels.items():
        clip = Path(name).stem
        if not (records / f"{clip}.json").is_file():
            continue
        for label in truth["steps"]:
            spans = list(label.get("shown") or [])
            if label.get("spoken"):
                spans.append(label["spoken"])
            questions.append((label["text"], partial(_is_near, clip=clip, spans=spans)))
    return shares(records, questions)


def shares(folder: Path, questions: Sequence[Question]) -> dict[str, float]:
    """Return the shares of questions whose right moment is the first answer, and among five.

    Next to them those of made words, and of queries about other things, that are answered by
    nothing.
    """
    index = SearchIndex(folder)
    index.update()
    is_first = []
    is_among_five = []
    for text, is_right in questions:
        answers = [is_right(moment) for moment in index.search(text)]
        is_first.append(any(answers[:1]))
        is_among_five.append(any(answers[:5]))
    row = {
        "steps": len(questions),
        "first": float(np.mean(is_first)),
        "five": float(np.mean(is_among_five)),
    }
    made_queries = search.random_queries(MADE_QUERIES, MADE_SEED)
    for name, queries in (("made words", made_queries), ("other things", OTHER_QUERIES)):
        has_no_answer = [not index.search(query) for query in queries]
        row[f"{name}, no answer"] = float(np.mean(has_no_answer))
    index.close()
    return {name: round(value, 3) for name, value in row.items()}


def _is_near(moment: Moment, clip: str, spans: Sequence[Sequence[float]]) -> bool:
    """Say whether a moment is near where a step is spoken or shown."""
    if moment.video != clip or moment.start is None or moment.end is None:
        return False
    first = moment.start - SLACK_SECONDS
    last = moment.end + SLACK_SECONDS
    return any(first <= end and start <= last for start, end in spans)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--records", type=Path)
    args = parser.parse_args()
    figures = quality(args.clips, args.records) if args.clips else speed(args.steps)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
