"""Sets a forecast next to the run that followed it, and asks how far other samples of that run
would have been off.

    stepline curate SOURCE --recipe R --out OUT --dry-run --json > forecast.json
    stepline curate SOURCE --recipe R --out OUT
    python benchmarks/curate_forecast.py OUT [forecast.json] [--sample 24]

Without forecast.json, the forecast is made from the dry run's journals by the version that runs
this.

What the run took of a stage is what the journals of the run and of the dry run's own videos say. So
both sides are about all videos. The samples drawn again begin with --sample videos and grow as
a dry run's do, of the video stages alone.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from stepline.curate.forecast.costs import SampleCosts, StageCosts, read_costs
from stepline.curate.forecast.model import forecast, next_sample
from stepline.curate.forecast.video_sample import draw_stratified, known_sizes
from stepline.curate.settings import ForecastSettings
from stepline.curate.store.run_log import read_items, read_timings
from stepline.remote import RemotePath

RESULT = Path(__file__).resolve().parent / "results" / "curate_forecast.json"
SAMPLES = 200


def whole(out: Path) -> tuple[SampleCosts, SampleCosts, list[str]]:
    """Return what the run's own journals say, those of its dry run, and the ids of all videos."""
    ids = [item.id for item in read_items(RemotePath(str(out)))]
    run = read_costs(read_timings(RemotePath(str(out))), ids)
    lines = [
        line
        for folder in sorted(out.glob("forecast/*"))
        for line in read_timings(RemotePath(str(folder)))
    ]
    return run, read_costs(lines, ids), ids


def together(run: SampleCosts, dry: SampleCosts) -> dict[str, StageCosts]:
    """Return the costs of every video: of the run where it did it, else of the dry run, whose
    result it used."""
    found = {}
    for name, other in dry.stages.items():
        stage = run.stages.get(name, other)  # none where the sample was all there is
        spent = {
            key: np.where(stage.spent["wall"] > 0, stage.spent[key], other.spent[key])
            for key in stage.spent
        }
        found[name] = StageCosts(spent, stage.load, stage.units, stage.failed)
    return found


def made_again(out: Path) -> dict[str, object]:
    """Return the forecast that this version makes from the dry run's journals."""
    items = list(read_items(RemotePath(str(out))))
    known = known_sizes(items)
    settings = ForecastSettings()
    (folder,) = out.glob("forecast/*")
    chosen = draw_stratified(known.values, settings.sample, settings.seed)
    costs = read_costs(read_timings(RemotePath(str(folder))), [items[place].id for place in chosen])
    return asdict(forecast(costs, known.values[chosen], known.values, settings, size=known.kind))


def compared(
    told: dict[str, object], run: SampleCosts, stages: dict[str, StageCosts]
) -> list[dict[str, object]]:
    """Return a row a stage, and the sum: CPU seconds forecast, with the interval, and measured."""
    rows: list[dict[str, object]] = []
    for stage in told["stages"]:  # type: ignore[attr-defined]
        name = stage["name"]
        once = sum(took[1] for took in run.dataset.get(name, []))
        real = float(stages[name].spent["cpu"].sum()) if name in stages else once
        cpu = stage["cpu"]
        rows.append(
            {
                "stage": name,
                "forecast": cpu["value"],
                "low": cpu["low"],
                "high": cpu["high"],
                "measured": real,
            }
        )
    total = {key: sum(float(row[key]) for row in rows) for key in ("forecast", "measured")}  # type: ignore[arg-type]
    rows.append({"stage": "all", **total, "low": float("nan"), "high": float("nan")})
    for row in rows:
        row["off"] = (
            float(row["forecast"]) / float(row["measured"]) - 1 if row["measured"] else None
        )  # type: ignore[arg-type]
    return rows


def chosen_part(stage: StageCosts, chosen: list[int]) -> StageCosts:
    """Return a stage's costs of some videos."""
    spent = {key: values[chosen] for key, values in stage.spent.items()}
    return replace(stage, spent=spent, load=dict.fromkeys(stage.load, 0.0))


def redrawn(out: Path, stages: dict[str, StageCosts], count: int) -> dict[str, float]:
    """Return how far forecasts from other samples lie from the video stages' true CPU seconds."""
    items = list(read_items(RemotePath(str(out))))
    known = known_sizes(items)
    truth = sum(float(stage.spent["cpu"].sum()) for stage in stages.values())
    errors, sizes, held = [], [], 0
    for seed in range(SAMPLES):
        settings = ForecastSettings(sample=count, seed=seed, draws=200, cores=(1,))
        drawn = draw_stratified(known.values, settings.most, seed)
        taken, sampled = 0, min(count, len(items))
        while taken < sampled:
            taken, chosen = sampled, drawn[:sampled]
            part = {name: chosen_part(stage, chosen) for name, stage in stages.items()}
            told = forecast(
                SampleCosts(part, {}, 0.0, 0.0), known.values[chosen], known.values, settings
            )
            sampled = next_sample(told, settings)
        seconds = told.cpu_hours
        errors.append(seconds.value * 3600 / truth - 1)
        sizes.append(taken)
        # Where all were sampled, both ends are the truth but for rounding.
        held += (
            seconds.low * 3600 <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= seconds.high * 3600
        )
    off = np.abs(errors)
    return {
        "samples": SAMPLES,
        "first_sample": count,
        "mean_sample": float(np.mean(sizes)),
        "mean_off": float(np.mean(errors)),
        "median_abs_off": float(np.median(off)),
        "p95_abs_off": float(np.percentile(off, 95)),
        "within_10_percent": float((off <= 0.1).mean()),
        "within_15_percent": float((off <= 0.15).mean()),
        "interval_held": held / SAMPLES,
    }


def main() -> None:
    """Print and keep both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("forecast", type=Path, nargs="?")
    parser.add_argument(
        "--sample",
        type=int,
        default=ForecastSettings().sample,
        help="videos that a sample begins with",
    )
    given = parser.parse_args()
    text = given.forecast.read_text() if given.forecast else json.dumps(made_again(given.out))
    told = json.loads(text[text.index("{") :])
    run, dry, _ = whole(given.out)
    stages = together(run, dry)
    rows = compared(told, run, stages)
    for row in rows:
        print(
            json.dumps(
                {
                    key: round(value, 3) if isinstance(value, float) else value
                    for key, value in row.items()
                }
            )
        )
    again = redrawn(given.out, stages, given.sample)
    print(json.dumps(again))
    RESULT.write_text(
        json.dumps(
            {
                "stages": rows,
                "redrawn": again,
                "videos": told["videos"],
                "sampled": told["sampled"],
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
