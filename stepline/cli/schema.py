"""`stepline schema`: JSON Schemas (draft 2020-12) of the record, live events, settings and comparison.

Each comes from the pydantic class. The record's is that of the studio's API too.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import path_option
from stepline.errors import SettingsError
from stepline.files.atomic_files import write_atomic

Schema = dict[str, Any]

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def record_schema() -> Schema:
    """Return the schema of a record's JSON file, and of each line of `steps --json`."""
    from stepline import storage

    return storage.record_schema()


def events_schema() -> Schema:
    """Return the JSON schema of an event, which is a line of the output of `stepline live`."""
    from stepline.live.events import LiveEvent
    from stepline.storage import output_schema

    optional = [name for name, field in LiveEvent.model_fields.items() if field.default is None]
    return output_schema(LiveEvent, {"LiveEvent": optional})


def settings_schema() -> Schema:
    """Return the JSON schema of the settings for finding steps, in which "none" means null."""
    from stepline.pipeline.request import StepsSettings
    from stepline.settings import NONE_WORD

    schema = StepsSettings.model_json_schema()
    for definition in (schema, *schema["$defs"].values()):
        for field in definition.get("properties", {}).values():
            if {"type": "null"} in field.get("anyOf", ()):
                field["anyOf"].append({"const": NONE_WORD})
    return schema


def comparison_schema() -> Schema:
    """Return the schema of `comparison.json`."""
    from stepline.compare import TaskComparison
    from stepline.storage import output_schema

    return output_schema(TaskComparison, {})


SCHEMA_MAKERS: dict[str, Callable[[], Schema]] = {
    "record": record_schema,
    "events": events_schema,
    "settings": settings_schema,
    "comparison": comparison_schema,
}


def json_schema(name: str) -> Schema:
    """Return a schema by its name in SCHEMA_MAKERS. Raises SettingsError for any other."""
    from stepline.records import RECORD_VERSION

    if name not in SCHEMA_MAKERS:
        names = ", ".join(SCHEMA_MAKERS)
        raise SettingsError(f"{name!r}: no schema has that name; known: {names}")
    head = {"$schema": SCHEMA_DIALECT, "$id": f"urn:stepline:{name}:{RECORD_VERSION}"}
    return head | SCHEMA_MAKERS[name]()


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@path_option(
    "-o",
    "--out",
    help="Folder for the files NAME.schema.json. One NAME is printed if this option is left out.",
)
def schema(names: tuple[str, ...], out: Path | None) -> None:
    """Write JSON Schemas of what Stepline writes and reads.

    \b
    Example:
      stepline schema --out schemas

    NAME is record (JSON of `stepline steps`), events (a line of `stepline live`), settings (a TOML
    file of settings) or comparison (JSON of `stepline compare`). Without a NAME all are
    written.
    """
    if out is None and len(names) != 1:
        raise SettingsError("several schemas need a folder; name it with --out")
    # All are made first, so that a wrong name leaves no file behind.
    texts = {}
    for name in names or SCHEMA_MAKERS:
        texts[name] = json.dumps(json_schema(name), ensure_ascii=False, indent=2) + "\n"
    for name, text in texts.items():
        if out is None:
            print_data(text, end="")
            continue
        path = out / f"{name}.schema.json"
        write_atomic(path, text)
        print_message(f"wrote {path}")
