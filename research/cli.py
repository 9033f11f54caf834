"""`python -m research`: whole tables of a paper."""

import json
from pathlib import Path
from typing import Any

import click

from stepline.cli.common import Group

TABLES = ("2", "3", "4", "8", "9", "beyond", "head", "dropout", "size")
PROCX_TABLES = (
    "baselines", "1", "3", "4", "5", "2a", "2b", "contrast", "7b", "data", "decoding", "speech",
)  # fmt: skip
WYS2_TABLES = ("labels", "baselines", "pseudo-labels", "options", "grid")
WYS2_USES = ("summaries", "alignability")
ALL = 10**9  # videos, more than there are


@click.group(cls=Group)
def experiment() -> None:
    """Remake a paper's tables: every row beside its published value, with spread over seeds and CPU seconds."""


@experiment.command("nasva-tables")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/nasva-tables"), show_default=True,
              help="Folder; what it holds already is not trained again.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds and networks.")
@click.option("--table", "tables", type=click.Choice(TABLES), multiple=True, help="Only this table.")
@click.option("--small/--full", default=True, show_default=True, help="A network of seconds, or the paper's.")
@click.option("--videos", type=click.IntRange(min=2), help="Videos to train on, instead of the form's own number.")
@click.option("--data", type=click.Path(path_type=Path), help="Real data (docs/selftraining.md), not the world.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def nasva_tables(out: Path, seeds: int, tables: tuple[str, ...], **options: Any) -> None:
    """NaSVA's tables 2, 3, 4, 8 and 9 in the simulated world, its orderings, and what goes beyond it.

    The small form takes about an hour of one CPU core; a run that was stopped goes on where it was.

    \b
    Example:
      python -m research nasva-tables --table 3 --seeds 1 --out tables
    """
    from research.nasva.corpus import PAPER_SIZE, Size
    from research.nasva.tables import Plan
    from stepline.cli.common import progress_bars

    size = Size() if options["small"] else PAPER_SIZE
    videos = options["videos"] or (size.videos if options["data"] is None else ALL)
    size = size.model_copy(update={"videos": videos})
    with progress_bars() as progress:
        show = progress
        report = (lambda done, count: show("trainings", done, count)) if show is not None else None
        Plan(out, range(seeds), tables, size, report, options["data"]).run()
    name = "tables.json" if options["as_json"] else "tables.md"
    text = (out / name).read_text(encoding="utf-8")
    click.echo(json.dumps(json.loads(text)) if options["as_json"] else text, nl=options["as_json"])
    click.echo(f"wrote {out / 'tables.json'} and {out / 'tables.md'}", err=True)


@experiment.command("procx-tables")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/procx-tables"), show_default=True,
              help="Folder; what it holds already is not trained again.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds and networks.")
@click.option("--table", "tables", type=click.Choice(PROCX_TABLES), multiple=True,
              help="Only this table, also one that is not usual.")  # fmt: skip
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Of one thread each.")
@click.option("--steps", type=click.IntRange(min=1), help="Of every training, instead of the form's own number.")
@click.option("--train/--no-train", default=True, show_default=True, help="Or write what has been run already.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def procx_tables(
    out: Path, seeds: int, tables: tuple[str, ...], processes: int, steps: int | None, train: bool, as_json: bool
) -> None:
    """ProcX's tables 1 to 5 in the simulated world, baselines, ablations, and what goes beyond the paper.

    The usual tables (baselines, 2a, 2b, 5, contrast, decoding, speech) take half an hour of two cores; 1, 3, 4, 7b and
    data as much again, by --table. A run that was stopped goes on where it was.

    \b
    Example:
      python -m research procx-tables --table 5 --seeds 1 --out tables
    """
    from research.procx.corpus import ProcxSize
    from research.procx.tables import ProcxPlan
    from stepline.cli.common import progress_bars

    size = ProcxSize() if steps is None else ProcxSize(pretraining_steps=steps, finetuning_steps=steps)
    with progress_bars() as progress:
        show = progress
        report = (lambda done, count: show("trainings", done, count)) if show is not None else None
        ProcxPlan(out, range(2, seeds + 2), tables, size, processes, train, report).run()  # worlds 0, 1 chose the size
    name = "tables.json" if as_json else "tables.md"
    text = (out / name).read_text(encoding="utf-8")
    click.echo(json.dumps(json.loads(text)) if as_json else text, nl=as_json)
    click.echo(f"wrote {out / 'tables.json'} and {out / 'tables.md'}", err=True)


@experiment.command("wys2-tables")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/wys2-tables"), show_default=True,
              help="Folder; what it holds already is not trained again.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds, splits and networks.")
@click.option(
    "--table", "tables", type=click.Choice((*WYS2_TABLES, *WYS2_USES)), multiple=True,
    help="Only this table; grid, summaries and alignability come only when they are named.",
)  # fmt: skip
@click.option("--labelled", type=click.IntRange(min=10), help="Videos with key-steps, instead of 400.")
@click.option("--unlabelled", type=click.IntRange(min=1), help="Videos without, instead of 1500.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def wys2_tables(out: Path, seeds: int, tables: tuple[str, ...], **options: Any) -> None:
    """WYS2's labels, baselines, pseudo-labels, the supplement's grid, and uses, in the simulated world.

    Without --table it takes about five minutes of one CPU core; a run that was stopped goes on where it was.

    \b
    Example:
      python -m research wys2-tables --table labels --seeds 1 --out tables
    """
    from research.wys2.tables import Wys2Plan
    from research.wys2.trials import Wys2Size
    from research.wys2.uses import UsesPlan, UsesSize
    from stepline.cli.common import progress_bars

    given = {name: options[name] for name in ("labelled", "unlabelled") if options[name] is not None}
    detectors, uses = ([table for table in tables if table in known] for known in (WYS2_TABLES, WYS2_USES))
    written = []
    with progress_bars() as show:
        report = (lambda done, count: show("trainings", done, count)) if show is not None else None
        if detectors or not tables:
            Wys2Plan(out, range(seeds), detectors, Wys2Size(**given), report).run()
            written.append("tables")
        if uses:
            size = UsesSize(**{name: value for name, value in given.items() if name == "labelled"})
            UsesPlan(out, range(seeds), uses, size, report).run()
            written.append("uses")
    for name in written:
        text = (out / f"{name}.{'json' if options['as_json'] else 'md'}").read_text(encoding="utf-8")
        click.echo(json.dumps(json.loads(text)) if options["as_json"] else text, nl=options["as_json"])
        click.echo(f"wrote {out / name}.json and {out / name}.md", err=True)
