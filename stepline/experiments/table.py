"""Rows and claims of an experiment as JSON and as Markdown: the mean over seeds, from least to most."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from stepline.experiments.claims import Claim
from stepline.experiments.nasva_tables import SAID, STEPS, Row

TITLES = {
    "2": "Table 2: training texts (W narrations, S written steps) and backbones",
    "3": "Table 3: where labels come from, thresholds, self-training; S alone",
    "4": "Table 4: backbones and recognisers; W alone",
    "8": "Table 8: the first refinement; S alone",
    "9": "Table 9: rounds of self-training",
    "beyond": "Beyond the paper: a student better than its early-stopped teacher; S alone where not said",
    "head": "Alignability: ROC-AUC of the head beside the best cosine's; two teachers that agree, S alone",
    "size": "Networks of the paper's size, trained as long as a teacher; S alone",
    "dropout": "Attention dropout; two teachers that agree, S alone",
}
AUC = tuple(f"{kind} AUC {of}" for kind in ("recipe", "step", "narration") for of in ("cosine", "head"))
NAMES = {
    STEPS: "steps R@1",
    SAID: "narrations R@1",
    "labels kept": "labels kept",
    "labels inside": "inside the window",
    "recipe AUC cosine": "steps, cosine",
    "recipe AUC head": "steps, head",
    "step AUC cosine": "written steps, cosine",
    "step AUC head": "written steps, head",
    "narration AUC cosine": "narrations, cosine",
    "narration AUC head": "narrations, head",
}


@dataclass(frozen=True)
class Line:
    """A row with what its trials gave: each score a seed, in per cent, and the CPU seconds, teachers included.

    failure: why one of them could not be trained; there are no scores then.
    """

    row: Row
    scores: Mapping[str, tuple[float, ...]]
    cpu_seconds: tuple[float, ...]
    failure: str | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its difference a seed."""

    claim: Claim
    gains: tuple[float, ...]


def as_json(lines: Sequence[Line], judged: Sequence[Judged], seeds: Sequence[int]) -> str:
    """Return all that was measured."""
    rows = [
        {"table": line.row.table, "row": line.row.words, "published": dict(line.row.published),
         "scores": {name: list(values) for name, values in line.scores.items()}, "cpu_seconds": list(line.cpu_seconds),
         "failure": line.failure,
         "trial": line.row.trial.model_dump(mode="json")}
        for line in lines
    ]  # fmt: skip
    claims = [
        {"claim": one.claim.words, "score": one.claim.score, "published": one.claim.published,
         "must_exceed": one.claim.least, "gains": list(one.gains), "holds": one.claim.holds(one.gains)}
        for one in judged
    ]  # fmt: skip
    return json.dumps({"seeds": list(seeds), "rows": rows, "claims": claims}, indent=1) + "\n"


def as_markdown(lines: Sequence[Line], judged: Sequence[Judged]) -> str:
    """Return one table a table of the paper, then the claims."""
    parts = []
    for table in dict.fromkeys(line.row.table for line in lines):
        parts.append(_table(table, [line for line in lines if line.row.table == table]))
    return "\n".join([*parts, _claims(judged)]) if judged else "\n".join(parts)


def spread(values: Sequence[float]) -> str:
    """Return the mean, and from least to most where there are several."""
    if not values:
        return "–"
    middle = f"{mean(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _table(table: str, lines: Sequence[Line]) -> str:
    columns = _columns(table)
    published = table in "23489"
    head = ["row", *(["published: steps, narrations"] if published else []), *(NAMES[name] for name in columns)]
    rows = [
        [_words(line), *([_published(line.row)] if published else []),
         *(spread(line.scores.get(name, ())) for name in columns), _seconds(line)]
        for line in lines
    ]  # fmt: skip
    return f"### {TITLES[table]}\n\n{_grid([*head, 'CPU s'], rows)}"


def _seconds(line: Line) -> str:
    return f"{mean(line.cpu_seconds):.0f}" if line.cpu_seconds else "–"


def _words(line: Line) -> str:
    return line.row.words if line.failure is None else f"{line.row.words}: {line.failure}"


def _columns(table: str) -> tuple[str, ...]:
    if table == "head":
        return (STEPS, SAID, *AUC)
    return (STEPS, SAID) if table in ("2", "4", "size", "dropout") else (STEPS, SAID, "labels kept", "labels inside")


def _published(row: Row) -> str:
    return ", ".join(f"{row.published[name]:.1f}" for name in (STEPS, SAID) if name in row.published) or "–"


def _claims(judged: Sequence[Judged]) -> str:
    said = {True: "holds", False: "**does not hold**", None: "not asserted"}
    rows = [
        [one.claim.words, "–" if one.claim.published is None else f"{one.claim.published:+.1f}",
         ", ".join(f"{gain:+.1f}" for gain in one.gains), f"{mean(one.gains):+.1f}",
         "–" if one.claim.least is None else f"> {one.claim.least:g}", said[one.claim.holds(one.gains)]]
        for one in judged
    ]  # fmt: skip
    head = ["claim", "paper", "a seed", "mean", "must exceed", "verdict"]
    return f"### Orderings, differences in points\n\n{_grid(head, rows)}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
