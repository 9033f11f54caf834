"""`stepline schema`: JSON Schemas (draft 2020-12) of the record, live events, settings and comparison.

Each comes from the pydantic class. The record's is changed as `storage.to_json` changes a record:
times are flat, spans are pairs.
"""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import path_option
from stepline.errors import SettingsError

Schema: TypeAlias = dict[str, Any]

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def record_schema() -> Schema:
    """Return the schema of a record's JSON file, and of each line of `steps --json`."""
    from stepline.limits import MAX_SECOND
    from stepline.records import Record
    from stepline.storage import OPTIONAL_FIELDS

    optional = {kind.__name__: fields for kind, fields in OPTIONAL_FIELDS.items()}
    schema = _schema(Record, {**optional, "Rejected": ("id", "value", "location")})
    second = {"type": "number", "minimum": 0.0, "maximum": MAX_SECOND}
    second_or_null = {"anyOf": [second, {"type": "null"}]}
    pair = {
        "description": "Start and end in seconds, start < end.",
        "type": "array",
        "items": second,
        "minItems": 2,
        "maxItems": 2,
    }
    definitions = schema["$defs"]
    del definitions["Span"]
    # start and end in the place of a span
    for name, time in (("Sentence", second), ("Word", second_or_null)):
        properties = definitions[name]["properties"]
        del properties["span"]
        properties["start"] = {"description": "Second at which it begins."} | time
        properties["end"] = {"description": "Second at which it ends."} | time
        definitions[name]["required"] = [*properties]
    # the best span as start and end, and spans as pairs
    step = definitions["Step"]
    properties = step["properties"]
    best = "of the best span in which it is shown, null where it is not"
    properties["start"] = {"description": f"Start {best}."} | second_or_null
    properties["end"] = {"description": f"End {best}."} | second_or_null
    properties["spans"]["items"] = pair
    properties["said"]["anyOf"] = [pair, {"type": "null"}]
    step["required"] += ["start", "end"]
    return schema


def events_schema() -> Schema:
    """Return the JSON schema of an event, which is a line of the output of `stepline live`."""
    from stepline.live.events import LiveEvent

    optional = [name for name, field in LiveEvent.model_fields.items() if field.default is None]
    return _schema(LiveEvent, {"LiveEvent": optional})


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

    return _schema(TaskComparison, {})


def _schema(kind: Any, optional: Mapping[str, Collection[str]]) -> Schema:
    """Return the schema of a pydantic class, with every field required.

    Args:
        kind: the class.
        optional: class name -> fields that may be missing.
    """
    schema: Schema = kind.model_json_schema()
    for name, definition in {**schema["$defs"], kind.__name__: schema}.items():
        left_out = optional.get(name, ())
        # JsonValue has none
        fields = definition.get("properties", ())
        definition["required"] = [field for field in fields if field not in left_out]
    return schema


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
    file of the main job) or comparison (JSON of `stepline compare`). Without a NAME all are
    written.
    """
    from stepline.files.atomic_files import write_atomic

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
