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
from stepline.curate.store.run_log import LogLine, read_items, read_timings
from stepline.files.remote import RemotePath

RESULT_PATH = Path(__file__).resolve().parent / "results" / "curate_forecast.json"
SAMPLE_DRAWS = 200
ROUNDING_SHARE = 1e-9  # of a sum: what rounding may change


def whole(out: Path) -> tuple[SampleCosts, SampleCosts, list[str]]:
    """Return what the run's own journals say, those of its dry run, and the ids of all videos."""
    place = RemotePath(str(out))
    ids = [item.id for item in read_items(place)]
    run = read_costs(read_timings(place), ids)
    dry_lines: list[LogLine] = []
    for folder in sorted(out.glob("forecast/*")):
        dry_lines += read_timings(RemotePath(str(folder)))
    return run, read_costs(dry_lines, ids), ids


def together(run: SampleCosts, dry: SampleCosts) -> dict[str, StageCosts]:
    """Return the costs of every video: of the run where it did it, else of the dry run, whose
    result it used."""
    stages = {}
    for name, dry_stage in dry.stages.items():
        # The run has none where the sample was all there is.
        stage = run.stages.get(name, dry_stage)
        is_of_run = stage.spent["wall"] > 0
        spent = {}
        for key, values in stage.spent.items():
            spent[key] = np.where(is_of_run, values, dry_stage.spent[key])
        stages[name] = StageCosts(spent, stage.load, stage.units, stage.failed)
    return stages


def made_again(out: Path) -> dict[str, object]:
    """Return the forecast that this version makes from the dry run's journals."""
    items = list(read_items(RemotePath(str(out))))
    sizes = known_sizes(items)
    settings = ForecastSettings()
    (folder,) = out.glob("forecast/*")
    sample = draw_stratified(sizes.values, settings.sample, settings.seed)
    ids = [items[number].id for number in sample]
    costs = read_costs(read_timings(RemotePath(str(folder))), ids)
    sample_sizes = sizes.values[sample]
    return asdict(forecast(costs, sample_sizes, sizes.values, settings, size=sizes.kind))


def compared(
    prediction: dict[str, object], run: SampleCosts, stages: dict[str, StageCosts]
) -> list[dict[str, object]]:
    """Return a row per stage, and the sum: CPU seconds forecast, with interval, and measured."""
    rows: list[dict[str, object]] = []
    total_forecast = 0.0
    total_measured = 0.0
    for stage in prediction["stages"]:  # type: ignore[attr-defined]
        name = stage["name"]
        if name in stages:
            measured = float(stages[name].spent["cpu"].sum())
        else:
            # A dataset's stage, which runs once
            measured = sum(cpu_seconds for _, cpu_seconds, *_ in run.dataset.get(name, []))
        cpu = stage["cpu"]
        total_forecast += cpu["value"]
        total_measured += measured
        row = {"stage": name, "forecast": cpu["value"], "low": cpu["low"], "high": cpu["high"]}
        rows.append({**row, "measured": measured, "off": share_off(cpu["value"], measured)})
    rows.append(
        {
            "stage": "all",
            "forecast": total_forecast,
            "measured": total_measured,
            "low": float("nan"),
            "high": float("nan"),
            "off": share_off(total_forecast, total_measured),
        }
    )
    return rows


def share_off(prediction: float, measured: float) -> float | None:
    """Return by what share a prediction is over the measured value. None where that is 0."""
    if not measured:
        return None
    return prediction / measured - 1


def part_of(stage: StageCosts, sample: list[int]) -> StageCosts:
    """Return a stage's costs of some videos."""
    spent = {key: values[sample] for key, values in stage.spent.items()}
    return replace(stage, spent=spent, load=dict.fromkeys(stage.load, 0.0))


def redrawn(out: Path, stages: dict[str, StageCosts], count: int) -> dict[str, float]:
    """Return how far forecasts from other samples lie from the video stages' true CPU seconds."""
    items = list(read_items(RemotePath(str(out))))
    sizes = known_sizes(items).values
    truth = sum(float(stage.spent["cpu"].sum()) for stage in stages.values())
    errors = []
    sample_counts = []
    right_intervals = 0
    for seed in range(SAMPLE_DRAWS):
        settings = ForecastSettings(sample=count, seed=seed, draws=200, cores=(1,))
        drawn = draw_stratified(sizes, settings.most, seed)
        # The sample grows as a dry run's does.
        sample_count = 0
        next_count = min(count, len(items))
        while sample_count < next_count:
            sample_count = next_count
            sample = drawn[:sample_count]
            parts = {name: part_of(stage, sample) for name, stage in stages.items()}
            costs = SampleCosts(parts, {}, 0.0, 0.0)
            prediction = forecast(costs, sizes[sample], sizes, settings)
            next_count = next_sample(prediction, settings)
        hours = prediction.cpu_hours
        errors.append(hours.value * 3600 / truth - 1)
        sample_counts.append(sample_count)
        # Where all were sampled, both ends are the truth but for rounding.
        is_above_low = hours.low * 3600 <= truth * (1 + ROUNDING_SHARE)
        is_below_high = truth * (1 - ROUNDING_SHARE) <= hours.high * 3600
        right_intervals += is_above_low and is_below_high
    off = np.abs(errors)
    return {
        "samples": SAMPLE_DRAWS,
        "first_sample": count,
        "mean_sample": float(np.mean(sample_counts)),
        "mean_off": float(np.mean(errors)),
        "median_abs_off": float(np.median(off)),
        "p95_abs_off": float(np.percentile(off, 95)),
        "within_10_percent": float((off <= 0.1).mean()),
        "within_15_percent": float((off <= 0.15).mean()),
        "interval_held": right_intervals / SAMPLE_DRAWS,
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
    options = parser.parse_args()
    if options.forecast:
        text = options.forecast.read_text()
        prediction = json.loads(text[text.index("{") :])
    else:
        prediction = json.loads(json.dumps(made_again(options.out)))
    run, dry, _ = whole(options.out)
    stages = together(run, dry)
    rows = compared(prediction, run, stages)
    for row in rows:
        rounded = {}
        for key, value in row.items():
            rounded[key] = round(value, 3) if isinstance(value, float) else value
        print(json.dumps(rounded))
    other_samples = redrawn(options.out, stages, options.sample)
    print(json.dumps(other_samples))
    result = {
        "stages": rows,
        "redrawn": other_samples,
        "videos": prediction["videos"],
        "sampled": prediction["sampled"],
    }
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
