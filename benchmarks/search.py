"""Search: speed over made records, and whether the true moment is among the first five.

    python benchmarks/search.py --steps 100000
    python benchmarks/search.py --clips CLIPS --records DIR
    python benchmarks/search.py --drawn 30 --floors 0 .2 .25 .3

The first makes records of how-to steps in a temporary folder, with random unit vectors. A search
compares all of them, whatever they hold. It times whole queries: the query's own vector, words,
meaning, and the answers. In the same run, a plain scan reads every record and keeps the steps that
hold a word of the query.

The second asks for each labelled step of CLIPS (labels.json, docs/real_clips.md) in a person's
words. DIR holds their records. A step is right if one of the answers is of that clip and near the
marks. That is at most 3 s from the seconds in which the step is spoken or shown.

The third asks for the steps of that many scripts of drawn videos (`research.drawn_videos`, seeds
from 200 on) in the words of their recipe. What is searched is what the narrator says, in other
words, and the steps that the grammar writes of it. A sentence takes SPOKEN s here. An answer is
right if it is in a sentence that describes a step of that wording.

Both also report the shares of queries without an answer, of queries in made words and of queries
about other things. The --floors are the least likenesses by which meaning answers.
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

from research.drawn_videos import make_script
from stepline.atomic_files import files_below
from stepline.library import Moment, SearchIndex, search
from stepline.records import Matrix, Record, Sentence, Span, Step, Transcript, Video, covering_span
from stepline.storage import read_record, write_record
from stepline.text import embed
from stepline.writing.extractive.writer import write_extractive

VERBS = "fold cut stir pour whisk press turn lift wash dry sand paint fix drill glue knead roll slice heat".split()  # noqa: SIM905
THINGS = (
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
PLACES = (
    "in the bowl",
    "on the bench",
    "with a spatula",
    "under the sink",
    "until it is smooth",
    "by hand",
)
QUERIES = (
    "fold the egg whites",
    "how to fix a wire under the sink",
    "stir until smooth",
    "drill the board by hand",
)
PER_RECORD, SLACK = 100, 3.0  # steps; seconds
FIRST_SEED, SPOKEN = 200, 5.0  # of scripts; s that a sentence takes
MADE, MADE_SEED = 200, 17  # queries of made words; not those that the search itself compares with
OTHER_THINGS = (
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
    """Write records of PER_RECORD steps each."""
    rng = np.random.default_rng(0)
    for number in range(count // PER_RECORD):
        texts = (
            f"{rng.choice(VERBS)} {rng.choice(THINGS)} {rng.choice(PLACES)} {n}"
            for n in range(PER_RECORD)
        )
        spans = (Span(5.0 * n, 5.0 * n + 4) for n in range(PER_RECORD))
        steps = tuple(
            Step(id=str(n), text=text, spans=(span,), status="shown")
            for n, (text, span) in enumerate(zip(texts, spans, strict=True))
        )
        write_record(
            Record(id=f"v{number}", video=Video(id=f"v{number}"), steps=steps),
            folder / f"v{number}.json",
        )


def scan(folder: Path, query: str) -> int:
    """Return how many steps hold a word of the query, by reading every record."""
    words = query.split()
    records = (read_record(path) for path in files_below(folder) if path.suffix == ".json")
    return sum(
        any(word in step.text for word in words) for record in records for step in record.steps
    )


def speed(count: int) -> dict[str, float]:
    """Return milliseconds a query, of the clock and of the processor, and how many times a plain
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
        begun = time.perf_counter()
        index.update()
        built = time.perf_counter() - begun
        index.search(QUERIES[0])  # loads the vectors
        times, processor = [], time.process_time()
        for query in QUERIES * 5:
            begun = time.perf_counter()
            index.search(query)
            times.append(time.perf_counter() - begun)
        processor = (time.process_time() - processor) / len(times)
        begun = time.perf_counter()
        scan(folder, QUERIES[0])
        scanned = time.perf_counter() - begun
        size = index.path.stat().st_size
    finally:
        shutil.rmtree(folder)
    median = float(np.median(times))
    return {
        "steps": count,
        "ms a query": round(1000 * median, 1),
        "CPU ms a query": round(1000 * processor, 1),
        "slowest ms": round(1000 * max(times), 1),
        "plain scan / query": round(scanned / median, 1),
        "s to build, without vectors": round(built, 1),
        "MB of index": round(size / 1e6, 1),
    }


def quality(clips: Path, records: Path, floors: Sequence[float]) -> list[dict[str, float]]:
    """Return the shares of `shares` for the labelled steps of clips."""
    labels = json.loads((clips / "labels.json").read_text())
    questions = list[Question]()
    for name, truth in labels.items():
        if (records / f"{Path(name).stem}.json").is_file():
            for label in truth["steps"]:
                spans = [
                    *(label.get("shown") or []),
                    *([label["spoken"]] if label.get("spoken") else []),
                ]
                questions.append(
                    (label["text"], partial(_right, clip=Path(name).stem, spans=spans))
                )
    return shares(records, questions, floors)


def drawn_quality(count: int, floors: Sequence[float]) -> list[dict[str, float]]:
    """Return the shares of `shares` for the steps of scripts."""
    folder = Path(tempfile.mkdtemp())
    # a step's wording: the videos, and the second at which each says it
    told: dict[str, list[tuple[str, float]]] = {}
    try:
        for seed in range(FIRST_SEED, FIRST_SEED + count):
            script = make_script(seed)
            spans = [Span(SPOKEN * n, SPOKEN * (n + 1)) for n in range(len(script.utterances))]
            said = zip(script.utterances, spans, strict=True)
            transcript = Transcript(
                language="en", sentences=tuple(Sentence(text=u.text, span=s) for u, s in said)
            )
            written = write_extractive(transcript).steps
            places = [covering_span([spans[source] for source in step.sources]) for step in written]
            steps = tuple(
                step.model_copy(update={"said": said, "status": "said"})
                for step, said in zip(written, places, strict=True)
            )
            record = Record(
                id=script.id, video=Video(id=script.id), transcript=transcript, steps=steps
            )
            write_record(record, folder / f"{script.id}.json")
            for step in script.steps:
                told.setdefault(step.text, []).append((script.id, spans[step.utterance].center))
        return shares(
            folder,
            [(text, partial(_tells, places=places)) for text, places in told.items()],
            floors,
        )
    finally:
        shutil.rmtree(folder)


def shares(
    folder: Path, questions: Sequence[Question], floors: Sequence[float]
) -> list[dict[str, float]]:
    """Return, for each least likeness, the shares of questions whose right moment is the first
    answer, and among five.

    Next to them those of made words, and of queries about other things, that are answered by
    nothing.
    """
    index = SearchIndex(folder)
    index.update()
    rows = []
    for floor in floors:
        search.LEAST_LIKENESS = floor
        ranks = [[right(moment) for moment in index.search(text)] for text, right in questions]
        row = {"least likeness": floor, "steps": len(ranks)}
        row |= {
            name: float(np.mean([any(right[:n]) for right in ranks]))
            for name, n in (("first", 1), ("five", 5))
        }
        for name, queries in (
            ("made words", search.made_words(MADE, MADE_SEED)),
            ("other things", OTHER_THINGS),
        ):
            row[f"{name}, no answer"] = float(
                np.mean([not index.search(query) for query in queries])
            )
        rows.append({name: round(value, 3) for name, value in row.items()})
    index.close()
    return rows


def _tells(moment: Moment, places: Sequence[tuple[str, float]]) -> bool:
    times = [at for id, at in places if id == moment.video]
    return (
        moment.start is not None
        and moment.end is not None
        and any(moment.start <= at < moment.end for at in times)
    )


def _right(moment: Moment, clip: str, spans: Sequence[Sequence[float]]) -> bool:
    if moment.video != clip or moment.start is None or moment.end is None:
        return False
    return any(moment.start <= end + SLACK and start - SLACK <= moment.end for start, end in spans)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--drawn", type=int)
    parser.add_argument("--floors", type=float, nargs="+", default=[search.LEAST_LIKENESS])
    args = parser.parse_args()
    told: object
    if args.drawn:
        told = drawn_quality(args.drawn, args.floors)
    else:
        told = quality(args.clips, args.records, args.floors) if args.clips else speed(args.steps)
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
