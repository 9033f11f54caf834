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

NASVA_TABLES = ("2", "3", "4", "8", "9", "beyond", "version-2")
WYS2_TABLES = ("labels", "baselines", "pseudo-labels", "grid")

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
    NASVA_TABLES, "out/nasva-tables", "Only this table. Version-2 comes only when it is named."
)
@click.option("--videos", type=click.IntRange(min=2), help="Videos to train on, instead of 500.")
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

    It takes about an hour of one CPU core. A run that was stopped goes on where it was.

    \b
    Example:
      python -m lab nasva-tables --table 3 --seeds 1 --out tables
    """
    from lab.nasva.rows import NasvaSize
    from lab.nasva.tables import NasvaStudy

    size = NasvaSize()
    if options["videos"]:
        size = size.model_copy(update={"videos": options["videos"]})
    worlds = range(options["first_seed"], options["first_seed"] + seeds)
    with training_counter() as report:
        NasvaStudy(out, worlds, tables, report, size).run()
    print_tables(out, as_json=as_json)


@lab.command("wys2-tables")
@study_options(
    WYS2_TABLES, "out/wys2-tables", "Only this table. The grid comes only when it is named."
)
@click.option(
    "--labelled", type=click.IntRange(min=10), help="Videos with key-steps, instead of 400."
)
@click.option("--unlabelled", type=click.IntRange(min=1), help="Videos without, instead of 1500.")
def wys2_tables(
    out: Path, seeds: int, tables: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """WYS2's labels, baselines, pseudo-labels and the supplement's grid, in the simulated world.

    Without --table it takes about five minutes of one CPU core. A run that was stopped goes on
    where it was.

    \b
    Example:
      python -m lab wys2-tables --table labels --seeds 1 --out tables
    """
    from lab.wys2.rows import Wys2Size
    from lab.wys2.tables import Wys2Study

    sizes = {name: videos for name, videos in options.items() if videos is not None}
    with training_counter() as report:
        Wys2Study(out, range(seeds), tables, report, Wys2Size(**sizes)).run()
    print_tables(out, as_json=as_json)


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


def print_tables(folder: Path, *, as_json: bool) -> None:
    """Print what a study wrote, as Markdown or as one line of JSON."""
    suffix = "json" if as_json else "md"
    text = (folder / f"tables.{suffix}").read_text(encoding="utf-8")
    if as_json:
        click.echo(json.dumps(json.loads(text)))
    else:
        click.echo(text, nl=False)
    click.echo(f"wrote {folder / 'tables.json'} and {folder / 'tables.md'}", err=True)
