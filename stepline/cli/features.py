"""`stepline features`: other people's features into a store, and what a store holds."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from stepline.cli.group import Group


@click.group(cls=Group)
def features() -> None:
    """Keep the features of many videos, or of their texts, in one store on disk."""


@features.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The store: a folder.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Rows a second, for files that do not say it.")  # fmt: skip
@click.option("--backbone", help="Who made the features, for example internvideo.")
@click.option("--width", type=click.IntRange(min=1), help="What all must be wide; else the first decides.")
@click.option("--ending", help="Only files whose names end so, for example .video.npy.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_(source: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Add the features of SOURCE: a folder of .npy, .pth.tar, .pth or .safetensors, a WebDataset's .tar, or one file.

    Each file is named after its video (docs/nasva.md has the rules). What is no features is left out and listed in
    dropped.jsonl. An import that was stopped goes on where it was.

    \b
    Example:
      stepline features import internvideo/ --out store --backbone internvideo
    """
    from stepline.errors import StoreError
    from stepline.features import import_features
    from stepline.features.flaws import counted

    done = import_features(source, out, **options)
    reasons = counted(done.dropped)
    if as_json:
        told = {"added": len(done.added), "rows": done.rows, "already": done.already, "dropped": reasons}
        click.echo(json.dumps(told))
    else:
        click.echo(f"{out}: added {len(done.added)} items ({done.rows} rows), {done.already} were there already")
    for reason, count in reasons.items():
        click.echo(f"dropped {count}: {reason}", err=True)
    if not done.added and not done.already:
        first = done.dropped[0]
        raise StoreError(f"{source}: nothing in it could be stored; {first.place}: {first.reason} ({first.value})")


@features.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(store: Path, as_json: bool) -> None:
    """Read all of STORE and say what it holds; end with 1 when rows are damaged, empty or not finite.

    \b
    Example:
      stepline features check store
    """
    from stepline.features import FeatureStore
    from stepline.features.flaws import DROPPED, counted, read_dropped

    found = FeatureStore(store)
    faults = list(found.faults())
    told = {
        "items": len(found),
        "rows": sum(each.rows for each in found.values()),
        "hours": round(sum(each.rows / each.rate for each in found.values()) / 3600, 2),
        "widths": list(found.widths),
        "backbones": sorted({each.backbone for each in found.values()}),
        "faults": counted(faults),
        "dropped": counted(read_dropped(store / DROPPED)),
    }
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo("\n".join(f"{name:<10} {_plain(value)}" for name, value in told.items()))
    for fault in faults:
        click.echo(f"{fault.id}: {fault.reason} {fault.value}".rstrip(), err=True)
    sys.exit(1 if faults else 0)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} x {reason}" for reason, count in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
