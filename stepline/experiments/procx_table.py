"""Rows and claims of ProcX's tables as JSON and as Markdown: the mean over seeds, from least to most."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from stepline.evaluate.protocols.rules import DENSE
from stepline.experiments.procx_claims import ProcxClaim
from stepline.experiments.procx_rows import COLUMNS, TITLES, ProcxRow
from stepline.experiments.procx_trial import ProcxSize

SHOWN = (*COLUMNS, "F1", "steps")


@dataclass(frozen=True)
class ProcxLine:
    """A row with what its trials gave: each metric a seed, and the CPU seconds, pre-training included."""

    row: ProcxRow
    scores: Mapping[str, tuple[float, ...]]
    cpu_seconds: tuple[float, ...]


@dataclass(frozen=True)
class ProcxJudged:
    """A claim with its difference a seed; holds: None where nothing is asserted."""

    claim: ProcxClaim
    gains: tuple[float, ...]

    @property
    def holds(self) -> bool | None:
        """Tell whether the mean difference is what is asserted."""
        return None if self.claim.least is None else mean(self.gains) > self.claim.least


@dataclass(frozen=True)
class Facts:
    """What tables rest on.

    scored: ids of the videos scored, by form, a list a seed; swapping: how right Sieve & Swap
    was, a seed; steps: of all narrated videos, by their words, a seed; attention: over how many points it spreads, a
    seed; cpu_seconds: of all trainings together.
    """

    seeds: tuple[int, ...]
    scored: Mapping[str, Sequence[Sequence[str]]]
    swapping: Sequence[Mapping[str, float]]
    steps: Mapping[str, Sequence[int]]
    attention: Mapping[str, Sequence[float]]
    cpu_seconds: float
    trainings: int
    size: ProcxSize


def as_json(lines: Sequence[ProcxLine], judged: Sequence[ProcxJudged], facts: Facts) -> str:
    """Return all that was measured, with the rule of scoring and the ids scored."""
    rows = [
        {"table": line.row.table, "row": line.row.words, "form": line.row.form, "chosen": line.row.view,
         "published": dict(line.row.published), "scores": {name: list(one) for name, one in line.scores.items()},
         "cpu_seconds": list(line.cpu_seconds), "baseline": line.row.guess,
         "trial": None if line.row.guess else line.row.trial.model_dump(mode="json", exclude={"size", "seed"})}
        for line in lines
    ]  # fmt: skip
    claims = [
        {"claim": one.claim.words, "metric": one.claim.metric, "published": one.claim.published,
         "must_exceed": one.claim.least, "gains": list(one.gains), "holds": one.holds}
        for one in judged
    ]  # fmt: skip
    tree = {
        "protocol": {"benchmarks": ["youcook2", "tasty"], "convention": "stepline", "rule": DENSE},
        "seeds": list(facts.seeds), "size": facts.size.model_dump(mode="json"),
        "cpu_seconds": facts.cpu_seconds, "trainings": facts.trainings,
        "sieve_and_swap": [dict(one) for one in facts.swapping], "narrated_steps": dict(facts.steps),
        "attention": dict(facts.attention), "rows": rows, "claims": claims, "scored": dict(facts.scored),
    }  # fmt: skip
    return json.dumps(tree, indent=1) + "\n"


def as_markdown(lines: Sequence[ProcxLine], judged: Sequence[ProcxJudged], facts: Facts) -> str:
    """Return what was scored and how, one table a table of the paper, then the claims."""
    parts = [_head(facts)]
    for table in dict.fromkeys(line.row.table for line in lines):
        parts.append(_table(table, [line for line in lines if line.row.table == table]))
    return "\n".join([*parts, _claims(judged)] if judged else parts)


def _head(facts: Facts) -> str:
    counts = ", ".join(f"{form} {'/'.join(str(len(ids)) for ids in lists)}" for form, lists in facts.scored.items())
    said = ", ".join(f"{words} {mean(count):.0f}" for words, count in facts.steps.items())
    right = ", ".join(f"{name} {mean(one[name] for one in facts.swapping):.3g}" for name in facts.swapping[0])
    spread = ", ".join(f"{name} {mean(points):.1f}" for name, points in facts.attention.items())
    points = f"Points over which a query and head of the last decoder layer spreads: {spread}.\n" if spread else ""
    return (
        f"Protocol of every number: youcook2 and tasty, convention stepline: {DENSE}.\n"
        f"Videos scored, a seed: {counts}; their ids are in tables.json (`scored`). Per cent, the mean of "
        f"{len(facts.seeds)} seeds (least to most). {facts.trainings} trainings, {facts.cpu_seconds:.0f} CPU s.\n"
        f"Steps of the narrated videos: {said}. Sieve & Swap by the planted truth: {right}.\n{points}"
    )


def _table(table: str, lines: Sequence[ProcxLine]) -> str:
    published = any(line.row.published for line in lines)
    head = ["row", *(["paper: SODA-C, SODA-D"] if published else []), *SHOWN, "CPU s"]
    rows = [
        [line.row.words, *([_published(line.row)] if published else []),
         *(spread(line.scores[name], whole=name not in ("SODA-C", "SODA-D")) for name in SHOWN),
         f"{mean(line.cpu_seconds):.0f}"]
        for line in lines
    ]  # fmt: skip
    return f"### {TITLES[table]}\n\n{_grid(head, rows)}"


def _published(row: ProcxRow) -> str:
    return ", ".join(f"{row.published[name]:.2f}" for name in ("SODA-C", "SODA-D") if name in row.published) or "–"


def spread(values: Sequence[float], *, whole: bool = False) -> str:
    """Return the mean, and from least to most where there are several and `whole` is not asked for."""
    middle = f"{mean(values):.1f}"
    return middle if whole or len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _claims(judged: Sequence[ProcxJudged]) -> str:
    said = {True: "holds", False: "**does not hold**", None: "not asserted"}
    rows = [
        [one.claim.words, one.claim.metric, "–" if one.claim.published is None else f"{one.claim.published:+.2f}",
         ", ".join(f"{gain:+.1f}" for gain in one.gains), f"{mean(one.gains):+.1f}",
         "–" if one.claim.least is None else f"> {one.claim.least:g}", said[one.holds]]
        for one in judged
    ]  # fmt: skip
    head = ["claim", "metric", "paper", "a seed", "mean", "must exceed", "verdict"]
    return f"### Orderings, differences in points\n\n{_grid(head, rows)}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
