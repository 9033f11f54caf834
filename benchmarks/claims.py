"""The papers' claims, one by one: what the results say of each, as one table in
docs/results/claims.md.

    python benchmarks/claims.py            # prints the table
    python benchmarks/claims.py --write    # puts it into the page, between its two marks

benchmarks/claims.toml says what is claimed and in which file of benchmarks/results it was measured.
A claim is that one thing scores above another; its differences come one a seed, each with a
simulated world and networks of its own, or one a training seed in each of several worlds. The
interval is Student's, 95 %, of their mean. A claim reproduces where it lies above zero, reverses
where it lies below, and cannot be told where it holds zero.
"""

import argparse
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from research.study import interval

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results" / "claims.md"
MARKS = ("<!-- claims -->\n", "<!-- end of claims -->\n")
HEAD = "| | claim | paper | mean [95 %] | each | verdict | why | how |\n|---|---|---|---|---|---|---|---|"
# row -> metric -> seed or (world, seed) -> score
Scores: TypeAlias = Mapping[str, Mapping[str, Mapping[Any, float]]]


def mean_and_interval(gains: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its interval; of one value, an endless one."""
    return mean(gains), *(interval(gains) if len(gains) > 1 else (-math.inf, math.inf))


def verdict(low: float, high: float) -> str:
    """Return what an interval says of a claim that the difference is above zero."""
    return "**reproduces**" if low > 0 else "**reverses**" if high < 0 else "cannot be told"


@cache
def result(name: str) -> Any:
    """Return what a file of benchmarks/results holds."""
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


def scores(name: str) -> Scores:
    """Return the scores of each row of a results file, whichever of its forms it has."""
    tree, found = result(name), dict[str, dict[str, dict[Any, float]]]()

    def add(row: str, metrics: Mapping[str, float], place: Any) -> None:
        for metric, value in metrics.items():
            found.setdefault(row, {}).setdefault(metric, {})[place] = value

    for row in tree.get("rows", ()):  # a study's
        for metric, values in row["scores"].items():
            for seed, value in zip(tree["seeds"], values, strict=False):
                add(f"{row['table']}: {row['row']}", {metric: value}, seed)
    for cell in tree.get("comparison", ()):  # of ProcX's arms
        add(cell["arm"], cell["scores"], (cell["world"], cell["seed"]))
    for seed, rows in tree.get("worlds", {}).items():  # WYS2's curves
        for row in rows:
            add(
                f"{row['input']}, {row['labels']}",
                {metric: row[metric] for metric in ("F", "tau", "rho")},
                seed,
            )
    for network in tree.get("networks", ()):  # choices of proposals
        for kind in ("places", "described", "unseen"):
            for choice, metrics in network[kind].items():
                place = network["world"], network["seed"]
                add(f"{network['form']}, {kind}: {choice}", metrics, place)
    return found


def gains_of(source: Mapping[str, Any]) -> list[float]:
    """Return the differences of a claim, by the name that its study gave it, or between two rows of
    a file."""
    if "pool" in source:
        return [gain for part in source["pool"] for gain in gains_of(part)]
    if "files" in source:
        rest = {key: value for key, value in source.items() if key != "files"}
        return [gain for file in source["files"] for gain in gains_of({**rest, "file": file})]
    scale = source.get("scale", 1.0)
    if "claim" in source:
        (one,) = [
            claim
            for claim in result(source["file"])["claims"]
            if claim["claim"] == source["claim"]
            and source.get("metric", claim["metric"]) == claim["metric"]
        ]
        return [scale * gain for gain in one["gains"]]
    rows = scores(source["file"])
    more, less = (rows[source[side]][source["metric"]] for side in ("more", "less"))
    return [scale * (more[place] - less[place]) for place in sorted(more.keys() & less.keys())]


def line(claim: Mapping[str, Any]) -> str:
    """Return a claim as a line of the table."""
    if "videos" in claim:  # an interval over videos, which its benchmark took itself
        value: Any = result(claim["file"])
        for key in claim["videos"]:
            value = value[key]
        middle, low, high = (100 * one for one in value)
        each = "over videos"
    else:
        gains = gains_of(claim)
        middle, low, high = mean_and_interval(gains)
        each = ", ".join(f"{gain:+.1f}" for gain in gains)
    published = f"{claim['published']:+g}" if "published" in claim else "–"
    cells = (
        claim["paper"],
        claim["says"],
        published,
        f"{middle:+.1f} [{low:+.1f}, {high:+.1f}]",
        each,
        verdict(low, high),
        claim.get("why", ""),
        claim["how"],
    )
    return f"| {' | '.join(cells)} |"


def table() -> str:
    """Return all claims as one table, and what its last column stands for."""
    tree = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))
    lines = [
        HEAD,
        *(line(claim) for claim in tree["claim"]),
        "",
        "| how | what was trained | command |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {one['what']} | `{one['command']}` |" for name, one in tree["how"].items()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/results/claims.md"
    )
    if parser.parse_args().write:
        before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
        PAGE.write_text(
            before + MARKS[0] + table() + MARKS[1] + rest.split(MARKS[1])[1], encoding="utf-8"
        )
    else:
        print(table())


if __name__ == "__main__":
    main()
