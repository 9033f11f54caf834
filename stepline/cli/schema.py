"""The command that writes the JSON Schemas of what Stepline writes and reads."""

from pathlib import Path

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import PATH_TYPE


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-o",
    "--out",
    type=PATH_TYPE,
    help="Folder for the files NAME.schema.json. One NAME is printed if this option is left out.",
)
def schema(names: tuple[str, ...], out: Path | None) -> None:
    """Write JSON Schemas of what Stepline writes and reads.

    \b
    Example:
      stepline schema --out schemas

    NAME is record (JSON of `stepline steps`), events (a line of `stepline live`), settings (a TOML
    file of the main job) or comparison (JSON of `stepline compare`). Without a NAME all are
    written.
    """
    from stepline.errors import SettingsError
    from stepline.schema import schema_text, write_schemas

    # Into a folder, or a single one to stdout.
    if out is not None:
        print_message(*(f"wrote {path}" for path in write_schemas(out, names)))
    elif len(names) == 1:
        print_data(schema_text(names[0]), end="")
    else:
        raise SettingsError("several schemas need a folder; name it with --out")
