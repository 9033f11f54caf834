"""The paper's comparisons with several training seeds per world, every arm at its own rate.

    tune       worlds 0 and 1: each tuned arm at each rate and number of steps. The arm takes those
               of the highest mean SODA-D
    compare    worlds 2, 3, ...: every arm at its rate, several seeds of weights and order per world

Arms of one world and seed share data, so that claims are judged by paired differences. That is
their mean, and its 95 % t-interval over all pairs and over the means of worlds. A cell is one
training. Those that are done are not run again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from research.procx.rows import (
    PDVC_TRIAL,
    PROCX_TRIAL,
    VID2SEQ_TRIAL,
    ProcxSize,
    ProcxTrial,
    pretrained,
)
from research.procx.trials import ProcxTrials, score_name
from research.study import interval, markdown_table, spread
from stepline.atomic_files import write_atomic
from stepline.locks import lock_output

Option: TypeAlias = tuple[float, int]  # rate and steps of the last training
Cell: TypeAlias = dict[str, Any]  # arm, world, seed, rate, steps, scores, cpu_seconds

TUNING_OPTIONS: Sequence[Option] = tuple(
    (rate, steps) for rate in (1e-3, 3e-3) for steps in (600, 1200)
)
FROM_ZERO = "key-aware, queries from zero, offsets a tenth"
QUARTER_OF_CAPTIONS = {"captioned_share": 0.25}
ARM_TRIALS: Mapping[str, ProcxTrial] = {
    "ProcX": PROCX_TRIAL,
    "ProcX, Sieve & Swap": pretrained(PROCX_TRIAL, "swap"),
    "PDVC": PDVC_TRIAL,
    "Vid2Seq": VID2SEQ_TRIAL,
    "ProcX, roles": PROCX_TRIAL.changed(query_form="roles"),
    "PDVC, roles": PDVC_TRIAL.changed(query_form="roles"),
    "ProcX, roles, contrast": PROCX_TRIAL.changed(query_form="roles", role_weight=0.5),
    "ProcX, roles, overlap": PROCX_TRIAL.changed(query_form="roles", overlap_weight=1.0),
    "ProcX, raw speech": pretrained(PROCX_TRIAL, "raw"),
    "ProcX, only sieved": pretrained(PROCX_TRIAL, "only-sieve"),
    "ProcX, mixed": pretrained(PROCX_TRIAL, "mix"),
    "ProcX, refined places": pretrained(PROCX_TRIAL, "refined"),
    "ProcX, true places": pretrained(PROCX_TRIAL, "true"),
    "vanilla attention": PROCX_TRIAL.changed(encoder="vanilla", decoder="vanilla"),
    "vanilla attention, focal": PROCX_TRIAL.changed(
        encoder="vanilla", decoder="vanilla", confidence="focal"
    ),
    "vanilla attention, focal, LSTM": PROCX_TRIAL.changed(
        encoder="vanilla", decoder="vanilla", confidence="focal", captioner="lstm", contrast="none"
    ),
    FROM_ZERO: PROCX_TRIAL.changed(query_start="zero", offset_rate=0.1),
    "PDVC, raw speech": pretrained(PDVC_TRIAL, "raw"),
    "PDVC, Sieve & Swap": pretrained(PDVC_TRIAL, "swap"),
    "PDVC, a tenth of Sieve & Swap": pretrained(PDVC_TRIAL, "swap", narrated_share=0.1),
    "PDVC, half of Sieve & Swap": pretrained(PDVC_TRIAL, "swap", narrated_share=0.5),
    "Vid2Seq, raw speech": pretrained(VID2SEQ_TRIAL, "raw"),
    "Vid2Seq, Sieve & Swap": pretrained(VID2SEQ_TRIAL, "swap"),
    "ProcX, captions not learnt": PROCX_TRIAL.changed(caption_weight=0.0, contrast="none"),
    "PDVC, captions not learnt": PDVC_TRIAL.changed(caption_weight=0.0),
    "ProcX, PDVC's captioner": PROCX_TRIAL.changed(captioner="lstm", contrast="none"),
    "ProcX, Tasty": PROCX_TRIAL.changed(form="tasty"),
    "ProcX, Sieve & Swap, Tasty": pretrained(PROCX_TRIAL, "swap", form="tasty"),
    "ProcX, a quarter of the captions": PROCX_TRIAL.changed(**QUARTER_OF_CAPTIONS),
    "ProcX, Sieve & Swap, a quarter of the captions": pretrained(
        PROCX_TRIAL, "swap", **QUARTER_OF_CAPTIONS
    ),
    "ProcX, true places, a quarter of the captions": pretrained(
        PROCX_TRIAL, "true", **QUARTER_OF_CAPTIONS
    ),
}
TUNED_ARMS = (
    "ProcX",
    "ProcX, Sieve & Swap",
    "PDVC",
    "PDVC, Sieve & Swap",
    "Vid2Seq",
    "Vid2Seq, Sieve & Swap",
    "ProcX, roles",
    "PDVC, roles",
)


def tuned_as(arm: str) -> str:
    """Return the arm whose rate and steps `arm` takes.

    It is of the same system, and pre-trained if `arm` is.
    """
    trial = ARM_TRIALS[arm]
    system = {"procx": "ProcX", "pdvc": "PDVC", "vid2seq": "Vid2Seq"}[trial.system]
    if trial.query_form == "roles":
        return f"{system}, roles"
    return system if trial.pretraining is None else f"{system}, Sieve & Swap"


STUDY_STAGES = ("tuning", "comparison")
METRIC_NAMES = ("SODA-D", "SODA-C", "CIDEr")
# Heads of the tables of the result.
TUNING_HEAD = ("tuned arm", "rate", "steps", "worlds", "SODA-D", "validation")
ARMS_HEAD = ("arm", "rate", "trainings", *METRIC_NAMES, "texts", "rise at the end", "CPU s")
CLAIMS_HEAD = ("claim", "paper", "mean", "95 % over pairs", "95 % over worlds", "pairs")
CELL_FACTS = ("steps", "texts")  # in the cells, and not compared


@dataclass(frozen=True)
class Comparison:
    """An ordering of the paper: one arm is above another.

    published: the paper's difference, by metric.
    """

    statement: str
    more: str
    less: str
    published: Mapping[str, float]


ARM_COMPARISONS = (
    Comparison("ProcX: queries by role above shared", "ProcX, roles", "ProcX", {}),
    Comparison("PDVC: queries by role above shared", "PDVC, roles", "PDVC", {}),
    Comparison("ProcX with queries by role above PDVC", "ProcX, roles", "PDVC", {}),
    Comparison("queries by role: ProcX above PDVC", "ProcX, roles", "PDVC, roles", {}),
    Comparison("contrast between roles above none", "ProcX, roles, contrast", "ProcX, roles", {}),
    Comparison("suppressed overlap above none", "ProcX, roles, overlap", "ProcX, roles", {}),
    Comparison(
        "pre-training on Sieve & Swap above none",
        "ProcX, Sieve & Swap",
        "ProcX",
        {"SODA-C": 1.26, "SODA-D": 2.98},
    ),
    Comparison(
        "ProcX above PDVC, no pre-training", "ProcX", "PDVC", {"SODA-C": 0.60, "SODA-D": 3.00}
    ),
    Comparison(
        "ProcX above PDVC, both on Sieve & Swap",
        "ProcX, Sieve & Swap",
        "PDVC, Sieve & Swap",
        {"SODA-C": 1.13, "SODA-D": 4.81},
    ),
    Comparison(
        "pre-training on raw speech above none",
        "ProcX, raw speech",
        "ProcX",
        {"SODA-C": 0.94, "SODA-D": 2.45},
    ),
    Comparison(
        "Sieve & Swap above raw speech",
        "ProcX, Sieve & Swap",
        "ProcX, raw speech",
        {"SODA-C": 0.32, "SODA-D": 0.53},
    ),
    Comparison(
        "Sieve & Swap above only sieved",
        "ProcX, Sieve & Swap",
        "ProcX, only sieved",
        {"SODA-C": 0.36},
    ),
    Comparison("mixed above Sieve & Swap", "ProcX, mixed", "ProcX, Sieve & Swap", {}),
    Comparison(
        "PDVC: Sieve & Swap above raw speech",
        "PDVC, Sieve & Swap",
        "PDVC, raw speech",
        {"SODA-C": 0.35, "SODA-D": 0.09},
    ),
    Comparison(
        "ProcX above Vid2Seq, no pre-training", "ProcX", "Vid2Seq", {"SODA-C": 2.42, "SODA-D": 7.47}
    ),
    Comparison(
        "PDVC above Vid2Seq, no pre-training", "PDVC", "Vid2Seq", {"SODA-C": 1.82, "SODA-D": 4.47}
    ),
    Comparison(
        "PDVC: Sieve & Swap above none",
        "PDVC, Sieve & Swap",
        "PDVC",
        {"SODA-C": 0.73, "SODA-D": 1.17},
    ),
    Comparison(
        "PDVC: all narrated videos above half",
        "PDVC, Sieve & Swap",
        "PDVC, half of Sieve & Swap",
        {},
    ),
    Comparison(
        "PDVC: half of the narrated videos above a tenth",
        "PDVC, half of Sieve & Swap",
        "PDVC, a tenth of Sieve & Swap",
        {},
    ),
    Comparison(
        "Vid2Seq: Sieve & Swap above none",
        "Vid2Seq, Sieve & Swap",
        "Vid2Seq",
        {"SODA-C": 0.60, "SODA-D": 2.55},
    ),
    Comparison(
        "Vid2Seq: Sieve & Swap above raw speech",
        "Vid2Seq, Sieve & Swap",
        "Vid2Seq, raw speech",
        {"SODA-C": 0.56, "SODA-D": 0.07},
    ),
    Comparison(
        "Tasty: Sieve & Swap above none",
        "ProcX, Sieve & Swap, Tasty",
        "ProcX, Tasty",
        {"SODA-C": 0.83, "SODA-D": 0.80},
    ),
    Comparison(
        "a quarter of the captions: Sieve & Swap above none",
        "ProcX, Sieve & Swap, a quarter of the captions",
        "ProcX, a quarter of the captions",
        {},
    ),
    Comparison(
        "a quarter of the captions: true times above none",
        "ProcX, true places, a quarter of the captions",
        "ProcX, a quarter of the captions",
        {},
    ),
    Comparison("refined above spoken times", "ProcX, refined places", "ProcX, Sieve & Swap", {}),
    Comparison("refined times above no pre-training", "ProcX, refined places", "ProcX", {}),
    Comparison("true times above no pre-training", "ProcX, true places", "ProcX", {}),
    Comparison(
        "ProcX: captions not learnt above learnt", "ProcX, captions not learnt", "ProcX", {}
    ),
    Comparison(
        "captions not learnt: ProcX above PDVC",
        "ProcX, captions not learnt",
        "PDVC, captions not learnt",
        {},
    ),
    Comparison("PDVC's captioner: ProcX above PDVC", "ProcX, PDVC's captioner", "PDVC", {}),
    Comparison(
        "gVFL above focal confidence",
        "vanilla attention",
        "vanilla attention, focal",
        {"SODA-C": 0.90, "SODA-D": 4.69},
    ),
    Comparison(
        "transformer above LSTM, focal",
        "vanilla attention, focal",
        "vanilla attention, focal, LSTM",
        {"SODA-C": -0.49, "SODA-D": -2.84, "CIDEr": 1.46},
    ),
    Comparison(
        "key-aware above vanilla", "ProcX", "vanilla attention", {"SODA-C": 0.19, "SODA-D": 1.30}
    ),
    Comparison(
        "key-aware from zero above vanilla",
        FROM_ZERO,
        "vanilla attention",
        {"SODA-C": 0.19, "SODA-D": 1.30},
    ),
    Comparison("key-aware: from zero above usual", FROM_ZERO, "ProcX", {}),
)


@dataclass(frozen=True)
class ArmStudy:
    """Cells in `folder`, and what they show in `result`, a JSON file written after every cell."""

    folder: Path
    result: Path
    command: str
    size: ProcxSize = field(default_factory=ProcxSize)
    patience: int = 0  # as of a trial; above 0, rates are chosen by the validation score

    def tune(
        self, arms: Sequence[str], worlds: Sequence[int], options: Sequence[Option] = TUNING_OPTIONS
    ) -> None:
        """Run each arm at each rate and number of steps."""
        for world in worlds:
            for arm in arms:
                for option in options:
                    self._run("tuning", arm, world, 0, option)

    def compare(
        self,
        arms: Sequence[str],
        worlds: Sequence[int],
        seeds: Sequence[int],
        option: Option | None = None,
    ) -> None:
        """Run every arm, all worlds with one seed before the next seed.

        option: None takes every arm's tuned one.
        """
        for seed in seeds:
            for world in worlds:
                for arm in arms:
                    arm_option = option or self.option_of(arm)
                    self._run("comparison", arm, world, seed, arm_option)

    def option_of(self, arm: str) -> Option:
        """Return the rate and number of steps with the highest mean in tuning.

        It is the mean SODA-D, or the mean validation score where there is one.
        """
        name = tuned_as(arm)
        scores: dict[Option, list[float]] = {}
        for cell in self.cells("tuning"):
            if cell["arm"] == name:
                option = (cell["rate"], cell["steps"])
                scores.setdefault(option, []).append(tuning_score(cell))
        if not scores:
            raise KeyError(f"{name} is not tuned yet; run `tune` first")
        return max(scores, key=lambda option: mean(scores[option]))

    def cells(self, stage: str) -> list[Cell]:
        """Return the finished cells of a stage."""
        tree: dict[str, list[Cell]] = {}
        if self.result.exists():
            tree = json.loads(self.result.read_text(encoding="utf-8"))
        return tree.get(stage, [])

    def _run(self, stage: str, arm: str, world: int, seed: int, option: Option) -> None:
        rate, steps = option
        identity = {"arm": arm, "world": world, "seed": seed, "rate": rate, "steps": steps}
        if any(identity.items() <= cell.items() for cell in self.cells(stage)):
            return
        trial = ARM_TRIALS[arm].changed(
            seed=world,
            network_seed=seed,
            rate=rate,
            steps=steps,
            patience=self.patience,
            size=self.size,
        )
        store = ProcxTrials(self.folder, ("surest",), ())
        outcome = store.outcome(trial)
        scores = {}
        for metric in (*METRIC_NAMES, *CELL_FACTS):
            scores[metric] = outcome.scores[score_name(trial.form, "surest", metric)]
        cell = {**identity, "scores": scores, "cpu_seconds": store.cpu_seconds(trial)}
        if self.patience:
            cell["validation"] = validation_curve(outcome.scores)
        # several processes share the cells
        with lock_output(self.folder / "result.lock", self.result, wait=True):
            cells = {name: self.cells(name) for name in STUDY_STAGES}
            cells[stage].append(cell)
            self.write(cells)

    def write(self, cells: Mapping[str, Sequence[Cell]]) -> None:
        """Write the cells of both stages with what they show."""
        tree = {
            "command": self.command,
            "size": self.size.model_dump(mode="json"),
            "tuned": list(tuning_means(cells["tuning"])),
            **cells,
            "claims": list(claims_of(cells["comparison"])),
        }
        write_atomic(self.result, json.dumps(tree, indent=1) + "\n")


def validation_curve(scores: Mapping[str, float]) -> list[tuple[int, float]]:
    """Return the steps at which a training was validated, with its scores."""
    curve = []
    for name, score in scores.items():
        if name.startswith("validation "):
            curve.append((int(name.removeprefix("validation ")), score))
    return sorted(curve)


def rise_at_end(curve: Sequence[tuple[int, float]]) -> float:
    """Return by how much the last third of a validation curve is above all before it, in points.

    It is 0 where the plateau was reached before.
    """
    first = len(curve) - len(curve) // 3
    before = max((score for _, score in curve[:first]), default=0.0)
    after = max((score for _, score in curve[first:]), default=before)
    return max(0.0, after - before)


def tuning_score(cell: Cell) -> float:
    """Return the score that chooses a rate: the best validation score, or SODA-D without one."""
    score: float = cell["scores"]["SODA-D"]
    if "validation" in cell:
        score = max(value for _, value in cell["validation"])
    return score


def tuning_means(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Yield the mean SODA-D of each arm, rate and number of steps."""
    groups: dict[tuple[str, float, int], list[Cell]] = {}
    for cell in cells:
        option = (cell["arm"], cell["rate"], cell["steps"])
        groups.setdefault(option, []).append(cell)
    for (arm, rate, steps), own in groups.items():
        means = {
            "arm": arm,
            "rate": rate,
            "steps": steps,
            "worlds": [cell["world"] for cell in own],
            "SODA-D": mean(cell["scores"]["SODA-D"] for cell in own),
        }
        if all("validation" in cell for cell in own):
            means["validation"] = mean(tuning_score(cell) for cell in own)
        yield means


def claims_of(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Yield what the cells show of each comparison and metric.

    Both arms need two cells of one world and seed.
    """
    by_arm: dict[str, dict[tuple[int, int], Mapping[str, float]]] = {}
    for cell in cells:
        by_arm.setdefault(cell["arm"], {})[cell["world"], cell["seed"]] = cell["scores"]
    for claim in ARM_COMPARISONS:
        more = by_arm.get(claim.more, {})
        less = by_arm.get(claim.less, {})
        # of one world and seed
        pairs = sorted(more.keys() & less.keys())
        if len(pairs) < 2:
            continue
        for metric in METRIC_NAMES:
            gains = []
            by_world: dict[int, list[float]] = {}
            for pair in pairs:
                gain = more[pair][metric] - less[pair][metric]
                gains.append(gain)
                by_world.setdefault(pair[0], []).append(gain)
            world_means = [mean(world_gains) for world_gains in by_world.values()]
            yield {
                "claim": f"{claim.statement}, {metric}",
                "metric": metric,
                "published": claim.published.get(metric),
                "gains": gains,
                "places": pairs,
                "mean": mean(gains),
                "pairs": interval(gains),
                "worlds": interval(world_means) if len(world_means) > 1 else None,
                "world_means": world_means,
            }


def as_markdown(tree: Mapping[str, Any]) -> str:
    """Return what was measured as tables: tuning, arms, claims with their intervals."""
    tables = (
        markdown_table(TUNING_HEAD, [_tuning_row(means) for means in tree["tuned"]]),
        markdown_table(ARMS_HEAD, _arm_rows(tree["comparison"])),
        markdown_table(CLAIMS_HEAD, [_claim_row(claim) for claim in tree["claims"]]),
    )
    return "\n".join(tables)


def _tuning_row(means: Mapping[str, Any]) -> list[str]:
    validation = f"{means['validation']:.1f}" if "validation" in means else "–"
    return [
        means["arm"],
        f"{means['rate']:g}",
        str(means["steps"]),
        str(len(means["worlds"])),
        f"{means['SODA-D']:.1f}",
        validation,
    ]


def _arm_rows(cells: Sequence[Cell]) -> list[list[str]]:
    by_arm: dict[str, list[Cell]] = {}
    for cell in cells:
        by_arm.setdefault(cell["arm"], []).append(cell)
    rows = []
    for arm, own in by_arm.items():
        row = [arm, f"{own[0]['rate']:g}", str(len(own))]
        for metric in (*METRIC_NAMES, "texts"):
            row.append(spread([cell["scores"][metric] for cell in own]))
        rises = [rise_at_end(cell["validation"]) for cell in own if "validation" in cell]
        row.append(spread(rises) if rises else "–")
        seconds = mean(cell["cpu_seconds"] for cell in own)
        row.append(f"{seconds:.0f}")
        rows.append(row)
    return rows


def _claim_row(claim: Mapping[str, Any]) -> list[str]:
    published = "–" if claim["published"] is None else f"{claim['published']:+g}"
    worlds = "–" if claim["worlds"] is None else _range(claim["worlds"])
    return [
        claim["claim"],
        published,
        f"{claim['mean']:+.1f}",
        _range(claim["pairs"]),
        worlds,
        str(len(claim["gains"])),
    ]


def _range(bounds: Sequence[float]) -> str:
    low, high = bounds
    return f"{low:+.1f} to {high:+.1f}"
