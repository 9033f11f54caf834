"""`stepline text-base`: build, ask and show a base of how-to texts."""

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
    from stepline.sieve_swap.text_base.base import Manifest

NO_LICENCE = "licence not stated"

base_settings_options = combine_options(
    preset_option("sieve-swap"),
    settings_options("e.g. text_base.batch=256.", "A TOML file of settings (docs/settings.md)."),
)


@click.group("text-base", cls=Group)
def text_base() -> None:
    """Build and query a base of how-to texts."""


@text_base.command()
@click.argument("sources", nargs=-1, required=True, type=PATH_TYPE)
@click.option("--out", required=True, type=PATH_TYPE, help="The folder of the base.")
@click.option("--licence", help="Licence of the texts whose source states none.")
@base_settings_options
@device_option
@lock_out_folder
def build(sources: tuple[Path, ...], out: Path, licence: str | None, **options: Any) -> None:
    """Build a text base.

    \b
    Example:
      stepline text-base build recipes.json manuals --out base --licence "CC BY 4.0"

    SOURCES are csv (RecipeNLG), JSON, Parquet, .txt and .md, or folders of them.

    The same command continues a build that was stopped.
    """
    from stepline.settings import load_settings
    from stepline.sieve_swap.settings import SieveSwapSettings
    from stepline.sieve_swap.text_base import build_base

    file, overrides = options["settings_file"], options["overrides"]
    settings = load_settings(SieveSwapSettings, file, overrides, preset=options["preset"])
    base = build_base(sources, out, settings.text_base, licence=licence)
    print_message(describe_base(base.manifest))


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
    from stepline.sieve_swap.text_base.base import require_manifest

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
        lines.append(f"{part.read} steps read, {part.read - part.steps} of them merged")
        for source in part.sources:
            licence = source.licence or NO_LICENCE
            amount = f"{source.documents} documents, {source.steps} steps"
            lines.append(f"  {source.name}: {amount} ({licence})")
            for drop in source.dropped:
                example = drop.examples[0]
                lines.append(f"    left out: {drop.count} ({drop.reason}), e.g. {example}")
    return "\n".join(lines)
