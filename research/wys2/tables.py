"""`python -m research wys2-tables`: run what is lacking, and write the tables with the paper's ROC-AUC beside ours."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from research.wys2.trials import (
    Wys2Claim,
    Wys2Outcome,
    Wys2Row,
    Wys2Size,
    Wys2Trial,
    alike,
    grid,
    run_trial,
    wys2_claims,
    wys2_rows,
)
from stepline.storage import write_atomic

TITLES = {
    "labels": "How positives are inferred (cosine, 4 sampled negatives)",
    "baselines": "Baselines",
    "pseudo-labels": "Pseudo-labels on unlabelled videos",
    "options": "Named options, SS labels where not said",
    "grid": "The supplement's grid, its small form; fixed c, scored on validation clips",
}


@dataclass(frozen=True)
class Wys2Line:
    """A row with what its trial gave, an outcome a seed."""

    row: Wys2Row
    outcomes: tuple[Wys2Outcome, ...]


@dataclass(frozen=True)
class Wys2Judged:
    """A claim with its difference a seed; holds: None where nothing is asserted."""

    claim: Wys2Claim
    gains: tuple[float, ...]

    @property
    def holds(self) -> bool | None:
        """Tell whether the mean difference is what is asserted."""
        return None if self.claim.least is None else mean(self.gains) > self.claim.least


@dataclass(frozen=True)
class Wys2Plan:
    """What is run. tables: by name (none: all but the grid). report: told how many of how many trials are done."""

    folder: Path
    seeds: Sequence[int] = (0, 1, 2)
    tables: Sequence[str] = ()
    size: Wys2Size = field(default_factory=Wys2Size)
    report: Callable[[int, int], None] | None = None

    def run(self) -> tuple[list[Wys2Line], list[Wys2Judged]]:
        """Train what is not in the folder yet, write tables.json and tables.md there, and return their content."""
        rows = [row for row in (*wys2_rows(), *grid()) if row.table in (self.tables or set(TITLES) - {"grid"})]
        trials = list(dict.fromkeys(self._trial(row.trial, seed) for seed in self.seeds for row in rows))
        for done, trial in enumerate(trials):
            if self.report is not None:
                self.report(done, len(trials))
            run_trial(trial, self.folder / "trials")
        lines = [Wys2Line(row, tuple(self._outcome(row.trial, seed) for seed in self.seeds)) for row in rows]
        known = {row.trial for row in rows}
        claims = [claim for claim in wys2_claims() if {claim.more, claim.less} <= known]
        judged = [Wys2Judged(claim, tuple(self._gain(claim, seed) for seed in self.seeds)) for claim in claims]
        write_atomic(self.folder / "tables.json", as_json(lines, judged, self.seeds))
        write_atomic(self.folder / "tables.md", as_markdown(lines, judged))
        return lines, judged

    def _trial(self, trial: Wys2Trial, seed: int) -> Wys2Trial:
        """Return a row's trial with another seed, and of this plan's size in all that the row does not set itself."""
        own = {name: getattr(trial.size, name) for name in trial.size.model_fields_set}
        return alike(trial, seed=seed, size=self.size.model_copy(update=own))

    def _outcome(self, trial: Wys2Trial, seed: int) -> Wys2Outcome:
        return run_trial(self._trial(trial, seed), self.folder / "trials")

    def _gain(self, claim: Wys2Claim, seed: int) -> float:
        return self._outcome(claim.more, seed).auc - self._outcome(claim.less, seed).auc


def as_json(lines: Sequence[Wys2Line], judged: Sequence[Wys2Judged], seeds: Sequence[int]) -> str:
    """Return all that was measured."""
    rows = [
        {"table": line.row.table, "row": line.row.words, "published_auc": line.row.published,
         "auc": [one.auc for one in line.outcomes], "validation_auc": [one.validation for one in line.outcomes],
         "precision": [one.precision if one.positives else None for one in line.outcomes],
         "positives": [one.positives for one in line.outcomes],
         "cpu_seconds": [one.cpu_seconds for one in line.outcomes], "trial": line.row.trial.model_dump(mode="json")}
        for line in lines
    ]  # fmt: skip
    claims = [
        {"claim": one.claim.words, "must_exceed": one.claim.least, "gains": list(one.gains), "holds": one.holds}
        for one in judged
    ]
    return json.dumps({"seeds": list(seeds), "rows": rows, "claims": claims}, indent=1) + "\n"


def as_markdown(lines: Sequence[Wys2Line], judged: Sequence[Wys2Judged]) -> str:
    """Return the tables, then the claims; ROC-AUC in per cent as in the paper, the mean and from least to most."""
    parts = []
    for table in dict.fromkeys(line.row.table for line in lines):
        rows = [_cells(line) for line in lines if line.row.table == table]
        if table == "grid":
            rows.sort(key=lambda cells: -float(cells[3].split()[0]))
        head = ["row", "paper", "ROC-AUC, test", "ROC-AUC, validation", "shown of the positives", "positives", "CPU s"]
        parts.append(f"### {TITLES[table]}\n\n{_grid(head, rows)}")
    return "\n".join([*parts, _claims(judged)]) if judged else "\n".join(parts)


def _cells(line: Wys2Line) -> list[str]:
    made = line.outcomes
    return [
        line.row.words,
        "–" if line.row.published is None else f"{line.row.published:.1f}",
        _spread([100 * one.auc for one in made]),
        _spread([100 * one.validation for one in made]),
        f"{100 * mean(one.precision for one in made):.0f} %" if made[0].positives else "–",
        f"{mean(one.positives for one in made):.0f}" if made[0].positives else "–",
        f"{mean(one.cpu_seconds for one in made):.0f}",
    ]


def _spread(values: Sequence[float]) -> str:
    middle = f"{mean(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _claims(judged: Sequence[Wys2Judged]) -> str:
    said = {True: "holds", False: "**does not hold**", None: "not asserted"}
    rows = [
        [one.claim.words, ", ".join(f"{100 * gain:+.1f}" for gain in one.gains), f"{100 * mean(one.gains):+.1f}",
         "–" if one.claim.least is None else f"> {100 * one.claim.least:g}", said[one.holds]]
        for one in judged
    ]  # fmt: skip
    head = ["claim", "a seed", "mean", "must exceed", "verdict"]
    return f"### Orderings, differences in points\n\n{_grid(head, rows)}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
