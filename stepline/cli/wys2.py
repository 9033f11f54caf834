"""`stepline experiment wys2-tables`: WYS2's tables in the simulated world."""

import json
from pathlib import Path
from typing import Any

import click

TABLES = ("labels", "baselines", "pseudo-labels", "options", "grid")


@click.command("wys2-tables")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/wys2-tables"), show_default=True,
              help="Folder; what it holds already is not trained again.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds, splits and networks.")
@click.option("--table", "tables", type=click.Choice(TABLES), multiple=True, help="Only this table; the grid comes "
              "only when it is named.")  # fmt: skip
@click.option("--labelled", type=click.IntRange(min=10), help="Videos with key-steps, instead of 400.")
@click.option("--unlabelled", type=click.IntRange(min=1), help="Videos without, instead of 1500.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def wys2_tables(out: Path, seeds: int, tables: tuple[str, ...], **options: Any) -> None:
    """WYS2's labels, baselines, pseudo-labels and the supplement's grid, in the simulated world.

    All but the grid take about five minutes of one CPU core; a run that was stopped goes on where it was.

    \b
    Example:
      stepline experiment wys2-tables --table labels --seeds 1 --out tables
    """
    from stepline.cli.progress import progress_bars
    from stepline.experiments.wys2_tables import Wys2Plan
    from stepline.experiments.wys2_trial import Wys2Size

    given = {name: options[name] for name in ("labelled", "unlabelled") if options[name] is not None}
    with progress_bars() as show:
        report = (lambda done, count: show("trainings", done, count)) if show is not None else None
        Wys2Plan(out, range(seeds), tables, Wys2Size(**given), report).run()
    name = "tables.json" if options["as_json"] else "tables.md"
    text = (out / name).read_text(encoding="utf-8")
    click.echo(json.dumps(json.loads(text)) if options["as_json"] else text, nl=options["as_json"])
    click.echo(f"wrote {out / 'tables.json'} and {out / 'tables.md'}", err=True)
