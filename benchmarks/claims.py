"""Prints the rows of docs/results/claims.md: what is claimed, and what the seeds say.

    python benchmarks/claims.py benchmarks/results/nasva_tables.json benchmarks/results/nasva_lag.json

Each file is what a study wrote (`research/study.py`), or another benchmark that has the same "claims": a difference a
seed, each seed a simulated world and networks of its own. The interval is Student's, 95 %, of the mean over seeds. A
claim reproduces where it lies above zero, reverses where it lies below, and cannot be told where it holds zero.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import t as student


def interval(gains: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean and its interval; of one value, an endless one."""
    count = len(gains)
    mean = sum(gains) / count
    if count < 2:
        return mean, -math.inf, math.inf
    deviation = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (count - 1))
    half = float(student.ppf((1 + level) / 2, count - 1)) * deviation / math.sqrt(count)
    return mean, mean - half, mean + half


def verdict(gains: Sequence[float]) -> str:
    """Return what the interval says of a claim that the difference is above zero."""
    _, low, high = interval(gains)
    return "reproduces" if low > 0 else "reverses" if high < 0 else "cannot be told"


def rows(path: Path) -> list[str]:
    """Return a line of the table a claim."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    lines = []
    for one in tree["claims"]:
        mean, low, high = interval(one["gains"])
        paper = "–" if one.get("published") is None else f"{one['published']:+g}"
        seeds = ", ".join(f"{gain:+.1f}" for gain in one["gains"])
        said = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        lines.append(f"| {one['claim']} | {paper} | {said} | {seeds} | {verdict(one['gains'])} |")
    return lines


def main() -> None:
    print("| claim | paper | mean [95 %] | a seed | verdict |\n|---|---|---|---|---|")
    for name in sys.argv[1:]:
        print("\n".join(rows(Path(name))))


if __name__ == "__main__":
    main()
