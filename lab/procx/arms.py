"""The paper's comparisons with several training seeds per world, every arm at its own rate.

    tune       worlds 0 and 1: each tuned arm at each rate and number of steps. The arm takes those
               of the highest mean SODA-D
    compare    worlds 2, 3, ...: every arm at its rate, several seeds of weights and order per world

Arms of one world and seed share data, so that claims are judged by paired differences. That is
their mean, and its 95 % t-interval over all pairs and over the means of worlds. A cell is one
training. Those that are done are not run again. Where further tuning finds a better rate, the cells
at the rate before it are kept apart.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from lab.procx.comparisons import ARM_COMPARISONS, ARM_TRIALS, tuned_as
from lab.procx.rows import BENCHMARK_FORMS, ProcxSize
from lab.procx.trials import ProcxTrials, score_name
from lab.study import interval, markdown_table, spread
from stepline.files.atomic_files import write_atomic
from stepline.files.locks import lock_output

Option: TypeAlias = tuple[float, int]  # rate and steps of the last training
Cell: TypeAlias = dict[str, Any]  # arm, world, seed, rate, steps, scores, cpu_seconds

TUNING_OPTIONS: Sequence[Option] = tuple(
    (rate, steps) for rate in (1e-3, 3e-3) for steps in (600, 1200)
)
OTHER_RATES = "comparison at other rates"
STUDY_STAGES = ("tuning", "comparison", OTHER_RATES)
METRIC_NAMES = ("SODA-D", "SODA-C", "CIDEr")
# Heads of the tables of the result.
TUNING_HEAD = ("tuned arm", "rate", "steps", "worlds", "SODA-D", "validation")
ARMS_HEAD = ("arm", "rate", "trainings", *METRIC_NAMES, "texts", "rise at the end", "CPU s")
CLAIMS_HEAD = ("claim", "paper", "mean", "95 % over pairs", "95 % over worlds", "pairs")
CELL_FACTS = ("steps", "texts")  # in the cells, and not compared


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
        """Return the rate and number of steps with the highest mean in tuning."""
        option = best_option(self.cells("tuning"), tuned_as(arm))
        if option is None:
            raise KeyError(f"{tuned_as(arm)} is not tuned yet; run `tune` first")
        return option

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
        forms = BENCHMARK_FORMS if trial.zero_shot else ()
        store = ProcxTrials(self.folder, forms)
        outcome = store.outcome(trial)
        scores = {}
        for metric in (*METRIC_NAMES, *CELL_FACTS):
            scores[metric] = outcome.scores[score_name(trial.form, metric)]
        if trial.zero_shot:
            for metric in METRIC_NAMES:
                tasty_score = outcome.scores[score_name("tasty", metric)]
                scores[f"Tasty, {metric}"] = tasty_score
        cell = {**identity, "scores": scores, "cpu_seconds": store.cpu_seconds(trial)}
        if self.patience:
            cell["validation"] = validation_curve(outcome.scores)
        # several processes share the cells
        with lock_output(self.folder / "result.lock", self.result, wait=True):
            cells = {name: self.cells(name) for name in STUDY_STAGES}
            cells[stage].append(cell)
            self.write(cells)

    def write(self, cells: Mapping[str, Sequence[Cell]]) -> None:
        """Write the cells of all stages with what they show."""
        tuning = cells["tuning"]
        compared, others = split_by_rate([*cells["comparison"], *cells[OTHER_RATES]], tuning)
        tree: dict[str, Any] = {
            "command": self.command,
            "size": self.size.model_dump(mode="json"),
            "tuned": list(tuning_means(tuning)),
            "tuning": tuning,
            "comparison": compared,
        }
        if others:
            tree[OTHER_RATES] = others
        tree["claims"] = list(claims_of(compared))
        write_atomic(self.result, json.dumps(tree, indent=1) + "\n")


def option_in(cell: Cell) -> Option:
    """Return the rate and number of steps of a training."""
    return cell["rate"], cell["steps"]


def best_option(tuning: Sequence[Cell], arm: str) -> Option | None:
    """Return the rate and number of steps of a tuned arm with the highest mean in tuning, None
    where it has no training there.

    It is the mean SODA-D, or the mean validation score where there is one.
    """
    scores: dict[Option, list[float]] = {}
    for cell in tuning:
        if cell["arm"] == arm:
            scores.setdefault(option_in(cell), []).append(tuning_score(cell))
    if not scores:
        return None
    return max(scores, key=lambda option: mean(scores[option]))


def split_by_rate(cells: Sequence[Cell], tuning: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Return the cells at the tuned rate of their arm, and those at other rates.

    An arm without a cell at its tuned rate keeps those that it has among the first.
    """
    tuned = {arm: best_option(tuning, tuned_as(arm)) for arm in {cell["arm"] for cell in cells}}
    arms_at_tuned_rate = set()
    for cell in cells:
        if option_in(cell) == tuned[cell["arm"]]:
            arms_at_tuned_rate.add(cell["arm"])
    compared: list[Cell] = []
    others: list[Cell] = []
    for cell in cells:
        is_other = option_in(cell) != tuned[cell["arm"]]
        target = others if is_other and cell["arm"] in arms_at_tuned_rate else compared
        target.append(cell)
    return compared, others


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
        groups.setdefault((cell["arm"], *option_in(cell)), []).append(cell)
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
