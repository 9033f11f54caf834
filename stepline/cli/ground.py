"""`stepline ground`: where a video shows the user's own lines, by a trained network."""

from pathlib import Path
from typing import Any

import click

from stepline.cli.options import chosen_settings

ORDERS = ("none", "given")


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--texts", required=True, type=click.Path(path_type=Path), help="The lines to find, one a line.")
@click.option("--aligner", required=True, type=click.Path(path_type=Path), help="The trained network: file or folder.")
@click.option("--mode", type=click.Choice(["step", "narration"]), help="Steps, or what is spoken, in its order.")
@click.option("--order", help="none; given: as the lines stand; or a JSON table of P(line i comes before line j).")
@click.option("--text-features", type=click.Path(path_type=Path), help="Ready vectors of the lines.")
@click.option("--backbone", type=click.Choice(["conse", "clip", "s3d"]), help="What sees a video.")
@click.option("--weights", help="The backbone's checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting.")
def ground(source: Path, **options: Any) -> None:
    """Find lines of text in SOURCE, a video or a file of ready features: the seconds in which each is shown, if any.

    \b
    Example:
      stepline ground lemonade.mp4 --texts recipe.txt --aligner trained --order given
    """
    from stepline.jobs import read_lines
    from stepline.lines import find_lines, read_order
    from stepline.show import step_table
    from stepline.store import to_json

    table = None if options["order"] in (None, *ORDERS) else Path(options["order"])
    settings = chosen_settings({**options, "order": None if table else options["order"]})
    lines = read_lines(options["texts"])
    before = read_order(table, len(lines)) if table else None
    record = find_lines(source, lines, settings, vectors=options["text_features"], before=before)
    for warning in record.warnings:
        click.echo(f"warning: {source.name}: {warning}", err=True)
    click.echo(to_json(record) if options["as_json"] else step_table(record), nl=False)
