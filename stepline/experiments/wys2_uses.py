"""The uses of WYS2 among its tables (`--table summaries`, `--table alignability`): run what is lacking, write them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TypeAlias

from stepline.settings import Count, Settings
from stepline.store import write_atomic

Scores: TypeAlias = Mapping[str, Mapping[str, float]]  # row -> measure -> value

VERSION = 1  # of what a run does; another makes all runs new
TITLES = {
    "summaries": "Summaries, IV-Sum's form: raw features beside the detector's; held-out videos",
    "alignability": "Alignability: a head on raw features and on the detector's; `stepline evaluate htm-align`",
}
PUBLISHED = {  # WYS2, tables 3 and 2
    "pictures alone, raw features": "65.2, .095, .202",
    "with speech, raw features": "67.3, .101, .212",
    "with speech, the detector's features": "68.9, .106, .218",
    "head on the detector's features": "77.0",
}


class UsesSize(Settings):
    """How large the experiment is."""

    labelled: Count = 400  # videos with key-steps, from which the detector learns
    lessons: Count = 100  # further videos, from which summarizers and heads learn
    tests: Count = 60  # further videos, on which both are scored
    detector_steps: Count = 300
    summarizer_epochs: Count = 20
    head_epochs: Count = 8


@dataclass(frozen=True)
class UsesPlan:
    """What is run. tables: by name. report: told how many of how many runs are done."""

    folder: Path
    seeds: Sequence[int]
    tables: Sequence[str]
    size: UsesSize = field(default_factory=UsesSize)
    report: Callable[[int, int], None] | None = None

    def run(self) -> dict[str, list[Scores]]:
        """Run what is not in the folder yet, write uses.json and uses.md there; return scores a seed of each table."""
        found: dict[str, list[Scores]] = {table: [] for table in self.tables}
        done = 0
        for table in self.tables:
            for seed in self.seeds:
                if self.report is not None:
                    self.report(done, len(self.tables) * len(self.seeds))
                found[table].append(self._scores(table, seed))
                done += 1
        tree = {"seeds": list(self.seeds), "size": self.size.model_dump(mode="json"), "tables": found}
        write_atomic(self.folder / "uses.json", json.dumps(tree, indent=1) + "\n")
        write_atomic(self.folder / "uses.md", "\n".join(as_markdown(table, found[table]) for table in self.tables))
        return found

    def _scores(self, table: str, seed: int) -> Scores:
        named = f"{VERSION} {table} {seed} {self.size.model_dump_json()}"
        key = hashlib.sha256(named.encode()).hexdigest()[:20]
        path = self.folder / "uses" / f"{key}.json"
        if not path.exists():
            from stepline.experiments.wys2_use_runs import RUNS

            scores = RUNS[table](seed, self.size, self.folder / "uses" / key)
            write_atomic(path, json.dumps({"table": table, "seed": seed, "scores": scores}, indent=1) + "\n")
        kept: Scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
        return kept


def as_markdown(table: str, seeds: Sequence[Scores]) -> str:
    """Return one table: of each row and measure the mean, and from least to most where there are several seeds."""
    measures = list(next(iter(seeds[0].values())))
    rows = [
        [row, PUBLISHED.get(row, "–"), *(_spread(measure, [scores[row][measure] for scores in seeds])
                                          for measure in measures)]
        for row in seeds[0]
    ]  # fmt: skip
    lines = [["row", "paper", *measures], ["---"] * (len(measures) + 2), *rows]
    return f"### {TITLES[table]}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _spread(measure: str, values: Sequence[float]) -> str:
    if measure == "CPU s":
        return f"{mean(values):.0f}"
    scale, digits = (1, ".3f") if measure in ("tau", "rho") else (100, ".1f")
    middle, least, most = (format(scale * value, digits) for value in (mean(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"
