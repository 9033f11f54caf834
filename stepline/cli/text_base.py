"""`stepline text-base`: how-to texts made into a base that can be searched by meaning."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepline.cli.group import Group

if TYPE_CHECKING:
    from stepline.sieve_swap.text_base.manifest import Manifest
    from stepline.sieve_swap.text_base.settings import TextBaseSettings

ENGINES = ("lists", "flat", "ivf", "hnsw")

settings_file = click.option(
    "--settings", "file", type=click.Path(path_type=Path), help="A TOML file of settings (docs/settings.md)."
)
overrides = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="e.g. text_base.memory=1024.")


@click.group("text-base", cls=Group)
def text_base() -> None:
    """Build, index, ask and describe a base of how-to texts."""


@text_base.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder of the base.")
@click.option("--licence", help="Licence of the texts whose source states none.")
@click.option("--append", is_flag=True, help="Add to the base that is there.")
@settings_file
@overrides
def build(
    sources: tuple[Path, ...],
    out: Path,
    licence: str | None,
    append: bool,
    file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Build a base of SOURCES: csv (RecipeNLG), JSON, Parquet, .txt and .md, or folders of them.

    A build that was stopped goes on where it was when it is asked for again.

    \b
    Example:
      stepline text-base build recipes.json manuals --out base --licence "CC BY 4.0"
    """
    from stepline.sieve_swap.text_base import build_base

    base = build_base(sources, out, _settings(file, overrides), licence=licence, append=append)
    click.echo(described(base.manifest), nl=False, err=True)


@text_base.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Choice(ENGINES), default="lists", show_default=True, help="lists needs no FAISS.")
@settings_file
@overrides
def index(base: Path, engine: str, file: Path | None, overrides: tuple[str, ...]) -> None:
    """Add an approximate index to BASE and measure its recall against exact search.

    \b
    Example:
      stepline text-base index base --engine lists --set text_base.recall=0.99
    """
    from stepline.sieve_swap.text_base import add_index

    settings = _settings(file, overrides).model_copy(update={"engine": engine})
    entry = add_index(base, settings)
    click.echo(f"{engine}: recall@1 {entry.recall:.3f} at effort {entry.effort}, of {entry.probes} lines", err=True)


@text_base.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the whole manifest.")
def show(base: Path, as_json: bool) -> None:
    """Print what BASE holds: sources, licences, lines merged, what was left out and why.

    \b
    Example:
      stepline text-base show base
    """
    from stepline.sieve_swap.text_base.indexes import present_manifest

    manifest = present_manifest(base)
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"
    click.echo(text if as_json else described(manifest), nl=False)


@text_base.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, required=True)
@click.option("-k", "count", type=click.IntRange(min=1), default=3, show_default=True, help="Steps a text.")
@click.option("--engine", type=click.Choice(("exact", *ENGINES)), help="By default the index built last, if any.")
def ask(base: Path, texts: tuple[str, ...], count: int, engine: str | None) -> None:
    """Print the steps of BASE that are nearest to each of TEXTS: cosine, step, source.

    \b
    Example:
      stepline text-base ask base "chop the onion"
    """
    from stepline.sieve_swap.text_base import open_base

    opened = open_base(base)
    rows, cosines = opened.nearest(opened.embed(texts), count, engine=engine)  # type: ignore[arg-type]
    for text, found, likeness in zip(texts, rows, cosines, strict=True):
        click.echo(f"{text}:")
        near = [(row, cosine) for row, cosine in zip(found, likeness, strict=True) if row >= 0]
        steps = opened.steps([row for row, _ in near])
        for step, (_, cosine) in zip(steps, near, strict=True):
            click.echo(f"  {cosine:.2f}  {step.text}  [{step.source}, {step.licence or 'licence not stated'}]")


def described(manifest: "Manifest") -> str:
    """Return what a base holds, in lines."""
    lines = [f"{manifest.documents} documents, {manifest.steps} different steps, embedded by {manifest.encoder}"]
    for part in manifest.parts:
        merged = f"{part.same} of the same words and {part.near} near-duplicates merged"
        lines.append(f"part {part.name}: {part.documents} documents, {part.read} steps read, {merged}")
        for source in part.sources:
            stated = source.licence or "licence not stated"
            lines.append(f"  {source.name}: {source.documents} documents, {source.steps} steps ({stated})")
            lines += [f"    left out: {d.count} ({d.reason}), e.g. {d.examples[0]}" for d in source.dropped]
    for entry in manifest.indexes:
        lines.append(f"index {entry.engine}: recall@1 {entry.recall:.3f} at effort {entry.effort}")
    return "\n".join(lines) + "\n"


def _settings(file: Path | None, overrides: tuple[str, ...]) -> "TextBaseSettings":
    from stepline.settings import load_settings
    from stepline.sieve_swap.settings import SieveSwapSettings

    return load_settings(SieveSwapSettings, file, overrides).text_base
