"""`stepline evaluate`: score predictions on a benchmark. Nothing heavy is imported before the command runs."""

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("benchmark", required=False)
@click.option("--predictions", type=click.Path(path_type=Path), help="What a system says: a file or folder.")
@click.option("--reference", type=click.Path(path_type=Path), help="The benchmark's own annotations.")
@click.option("--against", type=click.Path(path_type=Path), help="Another system's, compared on the same videos.")
@click.option("--convention", help="How to score; `stepline evaluate BENCHMARK` lists what there is.")
@click.option("--subset", help="Only this split of the reference.")
@click.option("--per-video", type=click.Path(path_type=Path), help="Write one row a video to this Parquet file.")
@click.option("--draws", type=click.IntRange(min=1), default=1000, show_default=True, help="Bootstrap draws of videos.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the draws.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def evaluate(benchmark: str | None, **options: Any) -> None:
    """Score PREDICTIONS on BENCHMARK: every number with its rule, its interval and what was missing.

    Without a benchmark, list them; without predictions and reference, say how that benchmark is scored.

    \b
    Example:
      stepline evaluate htm-align
    """
    from stepline.errors import DatasetError
    from stepline.evaluate.protocols import evaluate as scored

    if benchmark is None:
        click.echo(list_benchmarks(), nl=False)
        return
    predictions, reference = options["predictions"], options["reference"]
    if predictions is None and reference is None:
        click.echo(describe_benchmark(benchmark), nl=False)
        return
    if predictions is None or reference is None:
        lacking = "--predictions" if predictions is None else "--reference"
        raise DatasetError(f"{lacking} is lacking; give both --predictions and --reference")
    named = {"convention": options["convention"], "subset": options["subset"]}
    scores = scored(benchmark, predictions, reference, **named)
    other = scored(benchmark, options["against"], reference, **named) if options["against"] else None
    _print(scores, other, options)


def _print(scores: Any, other: Any, options: dict[str, Any]) -> None:
    from stepline.evaluate import report

    chance = {"draws": options["draws"], "seed": options["seed"]}
    made = report.report(scores, **chance)
    compared = report.compare(scores, other, **chance) if other is not None else None
    click.echo((report.as_json if options["as_json"] else report.as_table)(made, compared), nl=False)
    if options["per_video"] is not None:
        report.write_per_video(made, options["per_video"])
        click.echo(f"wrote {options['per_video']}", err=True)


def list_benchmarks() -> str:
    """Return the benchmarks, a line each with its conventions."""
    from stepline.evaluate.protocols import BENCHMARKS

    width = max(map(len, BENCHMARKS))
    lines = [f"{row.name:<{width}}  {row.what} ({', '.join(row.conventions)})" for row in BENCHMARKS.values()]
    return "\n".join(lines) + "\n"


def describe_benchmark(name: str) -> str:
    """Return what a benchmark takes and each of its rules. Raises DatasetError for an unknown name."""
    from stepline.evaluate.protocols.table import benchmark

    row = benchmark(name)
    lines = [
        f"{row.name}: {row.what}",
        f"  source       {row.source}",
        f"  reference    {row.reference}",
        f"  predictions  {row.predictions}",
        f"  default      {row.default}: {row.why}",
        *(f"  {convention:<11}  {found.rule}" for convention, found in row.conventions.items()),
    ]
    return "\n".join(lines) + "\n"
