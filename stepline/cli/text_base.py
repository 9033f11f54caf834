"""`stepline text-base`: build, index, ask and show a base of how-to texts."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import Group, print_data, print_message
from stepline.cli.options import (
    PATH_TYPE,
    combine_options,
    device_option,
    lock_out_folder,
    preset_option,
    settings_options,
)

if TYPE_CHECKING:
    from stepline.sieve_swap.text_base.manifest import Manifest
    from stepline.sieve_swap.text_base.settings import TextBaseSettings

NO_LICENCE = "licence not stated"

base_settings_options = combine_options(
    preset_option("sieve-swap"),
    settings_options("e.g. text_base.memory=1024.", "A TOML file of settings (docs/settings.md)."),
)


@click.group("text-base", cls=Group)
def text_base() -> None:
    """Build, index and query a base of how-to texts."""


@text_base.command()
@click.argument("sources", nargs=-1, required=True, type=PATH_TYPE)
@click.option("--out", required=True, type=PATH_TYPE, help="The folder of the base.")
@click.option("--licence", help="Licence of the texts whose source states none.")
@click.option("--append", is_flag=True, help="Add to the base that is there.")
@base_settings_options
@device_option
@lock_out_folder
def build(
    sources: tuple[Path, ...], out: Path, licence: str | None, append: bool, **options: Any
) -> None:
    """Build a text base.

    \b
    Example:
      stepline text-base build recipes.json manuals --out base --licence "CC BY 4.0"

    SOURCES are csv (RecipeNLG), JSON, Parquet, .txt and .md, or folders of them.

    The same command continues a build that was stopped.
    """
    from stepline.sieve_swap.text_base import build_base

    base = build_base(sources, out, _text_base_settings(options), licence=licence, append=append)
    print_message(describe_base(base.manifest))


@text_base.command()
@click.argument("base", type=PATH_TYPE)
@base_settings_options
@device_option
def index(base: Path, **options: Any) -> None:
    """Add an approximate index to a text base.

    \b
    Example:
      stepline text-base index base --set text_base.recall=0.99

    Its recall is measured against exact search.
    """
    from stepline.files.locks import LOCK_NAME, lock_output
    from stepline.sieve_swap.text_base import add_index

    settings = _text_base_settings(options)
    # An index is added under the lock that builds take.
    with lock_output(base / LOCK_NAME, base):
        entry = add_index(base, settings)
    recall = f"recall@1 {entry.recall:.3f} at effort {entry.effort}"
    print_message(f"{entry.engine}: {recall}, of {entry.probes} lines")


@text_base.command()
@click.argument("base", type=PATH_TYPE)
@click.option("--json", "as_json", is_flag=True, help="Print the whole manifest.")
def show(base: Path, as_json: bool) -> None:
    """Print what a text base holds.

    \b
    Example:
      stepline text-base show base

    That is sources, licences, lines merged, what was left out and why.
    """
    from stepline.sieve_swap.text_base.index import require_manifest

    manifest = require_manifest(base)
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2)
    print_data(text if as_json else describe_base(manifest))


@text_base.command()
@click.argument("base", type=PATH_TYPE)
@click.argument("texts", nargs=-1, required=True)
@click.option(
    "-k", "count", type=click.IntRange(min=1), default=3, show_default=True, help="Steps per text."
)
@device_option
def ask(base: Path, texts: tuple[str, ...], count: int) -> None:
    """Print the steps nearest to each text.

    \b
    Example:
      stepline text-base ask base "chop the onion"

    Each row has the cosine, the step and its source.
    """
    from stepline.sieve_swap.text_base import open_base

    opened = open_base(base)
    rows, cosines = opened.nearest(opened.embed(texts), count)
    for text, nearest, similarity in zip(texts, rows, cosines, strict=True):
        print_data(f"{text}:")
        # Where there are too few steps, the rest of a row is -1.
        matches = nearest >= 0
        steps = opened.steps(nearest[matches])
        for step, cosine in zip(steps, similarity[matches], strict=True):
            licence = step.licence or NO_LICENCE
            print_data(f"  {cosine:.2f}  {step.text}  [{step.source}, {licence}]")


def describe_base(manifest: "Manifest") -> str:
    """Return what a base holds, in lines."""
    amount = f"{manifest.documents} documents, {manifest.steps} different steps"
    lines = [f"{amount}, embedded by {manifest.encoder}"]
    for part in manifest.parts:
        merged = f"{part.same} of the same words and {part.near} near-duplicates merged"
        amount = f"{part.documents} documents, {part.read} steps read"
        lines.append(f"part {part.name}: {amount}, {merged}")
        for source in part.sources:
            licence = source.licence or NO_LICENCE
            amount = f"{source.documents} documents, {source.steps} steps"
            lines.append(f"  {source.name}: {amount} ({licence})")
            for drop in source.dropped:
                example = drop.examples[0]
                lines.append(f"    left out: {drop.count} ({drop.reason}), e.g. {example}")
    for entry in manifest.indexes:
        recall = f"recall@1 {entry.recall:.3f} at effort {entry.effort}"
        lines.append(f"index {entry.engine}: {recall}")
    return "\n".join(lines)


def _text_base_settings(options: dict[str, Any]) -> "TextBaseSettings":
    from stepline.settings import load_settings
    from stepline.sieve_swap.settings import SieveSwapSettings

    file, overrides = options["settings_file"], options["overrides"]
    return load_settings(SieveSwapSettings, file, overrides, preset=options["preset"]).text_base
