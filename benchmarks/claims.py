"""The papers' claims, one by one: what the results say of each, as one table in
docs/results/claims.md.

    python benchmarks/claims.py            # prints the table
    python benchmarks/claims.py --write    # puts it into the page, between its two marks

benchmarks/claims.toml says what is claimed and in which file of benchmarks/results it was measured.
A claim is that one thing scores above another. Its differences come one per seed, each with a
simulated world and networks of its own. Or they come one per training seed in each of several
worlds. The
interval is Student's, 95 %, of their mean. A claim reproduces where it is above zero, reverses
where it is below, and is "undecided" where it holds zero.

Trainings that stopped in mid-learning give no verdict: their rows are called half-trained. Claims
with a difference that a paper publishes are apart from our own questions, and both are counted. A
published one that nothing measures is listed with the reason.
"""

import argparse
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from research.study import interval

BENCHMARKS_FOLDER = Path(__file__).resolve().parent
PAGE_PATH = BENCHMARKS_FOLDER.parent / "docs" / "results" / "claims.md"
PAGE_MARKS = ("<!-- claims -->\n", "<!-- end of claims -->\n")
TABLE_HEAD = (
    "| | claim | paper | mean [95 %] | each | verdict | why | how |\n"
    "|---|---|---|---|---|---|---|---|"
)
HALF_TRAINED = "half-trained"  # of networks that stopped while they were still learning
VERDICT_NAMES = ("reproduces", "reverses", "undecided", HALF_TRAINED, "not measured")
BY_THE_WORLD = "by the world"  # of a reversal whose cause is known to be how the world is made
# row -> metric -> seed or (world, seed) -> score
Scores: TypeAlias = Mapping[str, Mapping[str, Mapping[Any, float]]]


def mean_and_interval(gains: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its interval. Of one value, an endless one."""
    low, high = -math.inf, math.inf
    if len(gains) > 1:
        low, high = interval(gains)
    return mean(gains), low, high


def verdict(low: float, high: float) -> str:
    """Return what an interval says of a claim that the difference is above zero."""
    if low > 0:
        return "**reproduces**"
    if high < 0:
        return "**reverses**"
    return "undecided"


def kind_of(words: str) -> str:
    """Return which of VERDICT_NAMES the cell of a verdict holds."""
    return next(kind for kind in VERDICT_NAMES if kind in words)


@cache
def result(name: str) -> Any:
    """Return what a file of benchmarks/results holds."""
    path = BENCHMARKS_FOLDER / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def scores(name: str) -> Scores:
    """Return the scores of each row of a results file, whichever of its forms it has."""
    tree = result(name)
    table: dict[str, dict[str, dict[Any, float]]] = {}

    def add(row: str, metrics: Mapping[str, float], run: Any) -> None:
        for metric, value in metrics.items():
            table.setdefault(row, {}).setdefault(metric, {})[run] = value

    # A study's
    for row in tree.get("rows", ()):
        for metric, values in row["scores"].items():
            for seed, value in zip(tree["seeds"], values, strict=False):
                add(f"{row['table']}: {row['row']}", {metric: value}, seed)
    # Of ProcX's arms
    for cell in tree.get("comparison", ()):
        add(cell["arm"], cell["scores"], (cell["world"], cell["seed"]))
    # WYS2's curves
    for seed, rows in tree.get("worlds", {}).items():
        for row in rows:
            metrics = {metric: row[metric] for metric in ("F", "tau", "rho")}
            add(f"{row['input']}, {row['labels']}", metrics, seed)
    # Choices of proposals
    for network in tree.get("networks", ()):
        run = (network["world"], network["seed"])
        for kind in ("places", "described", "unseen"):
            for choice, metrics in network[kind].items():
                add(f"{network['form']}, {kind}: {choice}", metrics, run)
    return table


def gains_of(source: Mapping[str, Any]) -> list[float]:
    """Return the differences of a claim, by the name that its study gave it, or between two rows of
    a file."""
    gains: list[float] = []
    if "pool" in source:
        for part in source["pool"]:
            gains += gains_of(part)
        return gains
    if "files" in source:
        rest = {key: value for key, value in source.items() if key != "files"}
        for file in source["files"]:
            gains += gains_of({**rest, "file": file})
        return gains
    scale = source.get("scale", 1.0)
    if "claim" in source:
        claim = claim_of(source)
        return [scale * gain for gain in claim["gains"]]
    rows = scores(source["file"])
    metric = source["metric"]
    more = rows[source["more"]][metric]
    less = rows[source["less"]][metric]
    for run in sorted(more.keys() & less.keys()):
        gains.append(scale * (more[run] - less[run]))
    return gains


def claim_of(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the claim of a study that a source names."""
    claims = []
    for claim in result(source["file"])["claims"]:
        is_metric = source.get("metric", claim["metric"]) == claim["metric"]
        if is_metric and claim["claim"] == source["claim"]:
            claims.append(claim)
    (claim,) = claims
    return claim


def value_at(file: str, keys: Sequence[str]) -> tuple[float, float, float]:
    """Return a value and its interval of a results file, in per cent."""
    value: Any = result(file)
    for key in keys:
        value = value[key]
    middle, low, high = value
    return 100 * middle, 100 * low, 100 * high


def measured(claim: Mapping[str, Any]) -> tuple[float, float, float, str]:
    """Return the mean difference of a claim, its interval, and the differences in words."""
    # An interval over videos, which its benchmark took itself
    if "videos" in claim:
        return *value_at(claim["file"], claim["videos"]), "over videos"
    # Two shares with an interval each, whose farthest ends bound it
    if "shares" in claim:
        more_keys, less_keys = claim["shares"]
        more, more_low, more_high = value_at(claim["file"], more_keys)
        less, less_low, less_high = value_at(claim["file"], less_keys)
        words = f"{less:.1f} to {more:.1f}"
        return more - less, more_low - less_high, more_high - less_low, words
    gains = gains_of(claim)
    return *mean_and_interval(gains), ", ".join(f"{gain:+.1f}" for gain in gains)


def line(
    claim: Mapping[str, Any], by_the_world: Sequence[str] = (), half_trained: Sequence[str] = ()
) -> str:
    """Return a claim as a line of the table.

    by_the_world: the claims that reverse for how the world is made. half_trained: the values of
    `how` whose networks stopped in mid-learning.
    """
    published = f"{claim['published']:+g}" if "published" in claim else "–"
    if "unmeasured" in claim:
        cells = (claim["paper"], claim["says"], published, "–", "", "not measured")
        return f"| {' | '.join(cells)} | {claim['unmeasured']} | – |"
    middle, low, high, differences = measured(claim)
    words = verdict(low, high)
    if claim["says"] in by_the_world and high < 0:
        words += f", {BY_THE_WORLD}"
    if claim["how"] in half_trained:
        words = HALF_TRAINED
    mean_words = f"{middle:+.1f} [{low:+.1f}, {high:+.1f}]"
    cells = (claim["paper"], claim["says"], published, mean_words, differences, words)
    return f"| {' | '.join(cells)} | {claim.get('why', '')} | {claim['how']} |"


def count_row(name: str, lines: Sequence[str]) -> str:
    """Return how many claims of a table have each verdict, as a row."""
    verdicts = [re.split(r" \| ", line)[5] for line in lines]
    kinds = Counter(map(kind_of, verdicts))
    world = sum(BY_THE_WORLD in words for words in verdicts)
    counts = " | ".join(str(kinds[kind]) for kind in VERDICT_NAMES)
    return f"| {name} | {len(lines)} | {counts} | {world} |"


def counts(parts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the table of counts: a row for each group of lines of claims."""
    columns = " | ".join(VERDICT_NAMES)
    head = f"| | rows | {columns} | reverses {BY_THE_WORLD} |"
    rule = "|---|" + "---|" * (len(VERDICT_NAMES) + 2)
    return [head, rule, *(count_row(name, lines) for name, lines in parts.items())]


def claim_file() -> dict[str, Any]:
    """Return what claims.toml holds."""
    text = (BENCHMARKS_FOLDER / "claims.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def table() -> str:
    """Return the counts, the claims with a published difference, our own questions, what the world
    decides, and what the last column stands for."""
    tree = claim_file()
    causes = tree["world"]
    by_the_world = [says for cause in causes for says in cause["claims"]]
    half_trained = [name for name, how in tree["how"].items() if how.get("half_trained")]
    published: list[str] = []
    own: list[str] = []
    papers: dict[str, list[str]] = {}
    for claim in tree["claim"]:
        row = line(claim, by_the_world, half_trained)
        if "published" in claim:
            published.append(row)
            papers.setdefault(claim["paper"], []).append(row)
        else:
            own.append(row)
    groups = {f"{paper}, with a published difference": rows for paper, rows in papers.items()}
    groups = {**groups, "all with a published difference": published, "our own questions": own}
    lines = [
        *counts(groups),
        "",
        "### With a difference that a paper publishes",
        "",
        TABLE_HEAD,
        *published,
        "",
        "### Our own questions",
        "",
        TABLE_HEAD,
        *own,
        "",
        "### What the world decides",
        "",
        *(f"- {cause['says']}" for cause in causes),
        "",
        "### How it was measured",
        "",
        "| how | what was trained | command |",
        "|---|---|---|",
    ]
    for name, how in tree["how"].items():
        lines.append(f"| {name} | {how['what']} | `{how['command']}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/results/claims.md"
    )
    if parser.parse_args().write:
        first_mark, last_mark = PAGE_MARKS
        before, rest = PAGE_PATH.read_text(encoding="utf-8").split(first_mark)
        after = rest.split(last_mark)[1]
        page = before + first_mark + table() + last_mark + after
        PAGE_PATH.write_text(page, encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
