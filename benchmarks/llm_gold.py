"""What the language-model writer makes of right steps with faults mixed in.

    python benchmarks/llm_gold.py [FOLDER]

A server on this machine answers with the steps that an editor wants of the chunk it is asked about.
It makes a fault each time (tests/gold_narration.py). FOLDER: of real narrations with `labels.json`
and captions, besides the made one. The result is in benchmarks/results/llm_gold.json.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BENCHMARKS_FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCHMARKS_FOLDER.parent / "tests"))

import gold_narration  # noqa: E402
from gold_narration import Narration  # noqa: E402

from stepline.networks.weights import weights_folder  # noqa: E402
from stepline.writing.llm.writer import write_llm  # noqa: E402
from stepline.writing.settings import LlmSettings  # noqa: E402

CHARS_PER_TOKEN = 4


def main() -> None:
    os.environ.setdefault("STEPLINE_WEIGHTS", str(weights_folder()))
    os.environ["STEPLINE_CACHE"] = tempfile.mkdtemp()
    narrations = [gold_narration.made_narration()]
    if len(sys.argv) > 1:
        narrations += gold_narration.labelled_narrations(Path(sys.argv[1]))
    rows = [row(narration) for narration in narrations]
    print(f"{'narration':14} right  found  written  precise  chunks  tokens  seconds")
    for counts in rows:
        name, *numbers = counts.values()
        print(f"{name:14}", *(f"{number:7}" for number in numbers))
    text = json.dumps(rows, indent=1) + "\n"
    (BENCHMARKS_FOLDER / "results" / "llm_gold.json").write_text(text, encoding="utf-8")


def row(narration: Narration) -> dict[str, Any]:
    """Return the counts of one narration. tokens: of questions and answers, about."""
    counts: dict[str, Any] = {"narration": narration.name}
    gold = gold_narration.GoldServer(narration)
    start = time.perf_counter()
    with gold.server as server:
        settings = LlmSettings(base_url=server.url, cache=False)
        written = write_llm(narration.transcript, settings)
    seconds = round(time.perf_counter() - start, 1)
    result = gold_narration.score(narration, written)
    counts |= {
        "right": result.right,
        "found": result.found,
        "written": result.written,
        "precise": result.precise,
        "chunks": len(gold.faults),
        "tokens": gold.chars // CHARS_PER_TOKEN,
        "seconds": seconds,
    }
    return counts


if __name__ == "__main__":
    main()
