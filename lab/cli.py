"""`python -m lab`: whole tables of a paper."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from stepline.cli.errors import Group
from stepline.cli.options import (
    PATH_TYPE,
    combine_options,
    json_option,
    out_option,
    settings_options,
)
from stepline.cli.progress import progress_bars

NASVA_TABLES = (
    "2",
    "3",
    "4",
    "8",
    "9",
    "beyond",
    "head",
    "dropout",
    "size",
    "version-2",
    "lag",
    "corpus",
    "labellers",
    "labellers-1",
    "unshown",
)
PROCX_TABLES = (
    "baselines",
    "1",
    "3",
    "4",
    "5",
    "2a",
    "2b",
    "contrast",
    "7b",
    "data",
    "decoding",
    "speech",
)
WYS2_TABLES = ("labels", "baselines", "pseudo-labels", "options", "amount", "grid")
WYS2_USES = ("summaries", "alignability")
ALL_VIDEOS = 10**9  # more than there are

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group)
def lab() -> None:
    """Remake a paper's tables: every row next to its published value, with spread over seeds and CPU
    seconds."""


def study_options(
    tables: Sequence[str], folder: str, table_help: str = "Only this table."
) -> Callable[[F], F]:
    """Return what adds the options that all studies share."""
    return combine_options(
        out_option("Folder. What it holds already is not trained again.", folder),
        click.option(
            "--seeds",
            type=click.IntRange(min=1),
            default=3,
            show_default=True,
            help="Simulated worlds, each with networks of its own.",
        ),
        click.option(
            "--table", "tables", type=click.Choice(tables), multiple=True, help=table_help
        ),
        json_option,
    )


@lab.command("nasva-tables")
@study_options(
    NASVA_TABLES,
    "out/nasva-tables",
    "Only this table. Those from version-2 on come only when they are named.",
)
@click.option(
    "--small/--full", default=True, show_default=True, help="A network of seconds, or the paper's."
)
@click.option(
    "--videos",
    type=click.IntRange(min=2),
    help="Videos to train on, instead of the form's own number.",
)
@click.option("--data", type=PATH_TYPE, help="Real data (docs/selftraining.md), not the world.")
@click.option(
    "--first-seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the seeds, in order.",
)
def nasva_tables(
    out: Path, seeds: int, tables: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """NaSVA's tables 2, 3, 4, 8 and 9 in the simulated world, its orderings, and what goes beyond
    it.

    The small form takes about an hour of one CPU core. A run that was stopped goes on where it was.

    \b
    Example:
      python -m lab nasva-tables --table 3 --seeds 1 --out tables
    """
    from lab.nasva.rows import PAPER_SIZE, NasvaSize
    from lab.nasva.tables import NasvaStudy

    size = NasvaSize() if options["small"] else PAPER_SIZE
    if options["videos"]:
        size = size.model_copy(update={"videos": options["videos"]})
    elif options["data"] is not None:
        size = size.model_copy(update={"videos": ALL_VIDEOS})
    worlds = range(options["first_seed"], options["first_seed"] + seeds)
    with training_counter() as report:
        NasvaStudy(out, worlds, tables, report, size, options["data"]).run()
    print_tables(out, "tables", as_json=as_json)


@lab.command("procx-tables")
@study_options(PROCX_TABLES, "out/procx-tables", "Only this table, also one that is not usual.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of one thread each.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Of every training, instead of the form's own number.",
)
@click.option(
    "--train/--no-train",
    default=True,
    show_default=True,
    help="Or write what has been run already.",
)
def procx_tables(
    out: Path, seeds: int, tables: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """ProcX's tables 1 to 5 in the simulated world, baselines, ablations, and what goes beyond the
    paper.

    The usual tables (baselines, 2a, 2b, 5, contrast, decoding, speech) take half an hour of two
    cores. 1, 3, 4, 7b and data take as much again, by --table. A run that was stopped goes on where it
    was.

    \b
    Example:
      python -m lab procx-tables --table 5 --seeds 1 --out tables
    """
    from lab.procx.rows import ProcxSize
    from lab.procx.tables import ProcxStudy

    steps = options["steps"]
    size = ProcxSize()
    if steps is not None:
        size = ProcxSize(pretraining_steps=steps, finetuning_steps=steps, steps=steps)
    worlds = range(2, seeds + 2)  # sizes were chosen on worlds 0 and 1
    with training_counter() as report:
        ProcxStudy(out, worlds, tables, report, size, options["processes"], options["train"]).run()
    print_tables(out, "tables", as_json=as_json)


@lab.command("wys2-tables")
@study_options(
    (*WYS2_TABLES, *WYS2_USES),
    "out/wys2-tables",
    "Only this table. Grid, summaries and alignability come only when they are named.",
)
@click.option(
    "--labelled", type=click.IntRange(min=10), help="Videos with key-steps, instead of 400."
)
@click.option("--unlabelled", type=click.IntRange(min=1), help="Videos without, instead of 1500.")
def wys2_tables(
    out: Path, seeds: int, tables: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """WYS2's labels, baselines, pseudo-labels, the supplement's grid, and uses, in the simulated
    world.

    Without --table it takes about five minutes of one CPU core. A run that was stopped goes on
    where it was.

    \b
    Example:
      python -m lab wys2-tables --table labels --seeds 1 --out tables
    """
    from lab.wys2.rows import Wys2Size
    from lab.wys2.tables import Wys2Study
    from lab.wys2.uses import UsesSize, UsesStudy

    sizes = {name: videos for name, videos in options.items() if videos is not None}
    detectors = [table for table in tables if table in WYS2_TABLES]
    uses = [table for table in tables if table in WYS2_USES]
    if detectors or not tables:
        with training_counter() as report:
            Wys2Study(out, range(seeds), detectors, report, Wys2Size(**sizes)).run()
        print_tables(out, "tables", as_json=as_json)
    if uses:
        sizes.pop("unlabelled", None)
        with training_counter() as report:
            UsesStudy(out, range(seeds), uses, report, UsesSize(**sizes)).run()
        print_tables(out, "uses", as_json=as_json)


@lab.command("writer-prompts")
@click.argument("captions", type=PATH_TYPE)
@settings_options(
    "A setting of the model, such as base_url=http://127.0.0.1:8000/v1 or gguf=model.gguf."
)
@json_option
def writer_prompts(
    captions: Path, settings_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """NaSVA's table 6 for one transcript: what a model writes by each of the three prompts.

    \b
    Example:
      python -m lab writer-prompts talk.vtt --set base_url=http://127.0.0.1:8000/v1
    """
    from lab.nasva.prompts import compare_prompts
    from stepline.settings import load_settings
    from stepline.speech.captions import read_captions
    from stepline.writing.settings import LlmSettings

    settings = load_settings(LlmSettings, settings_file, overrides)
    lines = compare_prompts(read_captions(captions).transcript, settings)
    if as_json:
        click.echo(json.dumps(lines))
        return
    for name, texts in lines.items():
        click.echo(f"{name}:")
        for text in texts:
            click.echo(f"  {text}")


@contextmanager
def training_counter() -> Iterator[Callable[[int, int], None] | None]:
    """Yield what shows how many of how many trainings are done. None where no one watches."""
    with progress_bars() as show:
        if show is None:
            yield None
        else:
            yield lambda number, count: show("trainings", number, count)


def print_tables(folder: Path, name: str, *, as_json: bool) -> None:
    """Print what a study wrote, as Markdown or as one line of JSON."""
    suffix = "json" if as_json else "md"
    text = (folder / f"{name}.{suffix}").read_text(encoding="utf-8")
    if as_json:
        click.echo(json.dumps(json.loads(text)))
    else:
        click.echo(text, nl=False)
    click.echo(f"wrote {folder / name}.json and {folder / name}.md", err=True)
