"""JSON Schema (draft 2020-12) of the record, of live events, of settings and of a comparison.

Each is what pydantic says of the class that defines it, with the meanings that the code gives its
fields. The record's is changed as `storage.to_json` changes the record: times are flat, spans are
pairs.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from stepline.compare import TaskComparison
from stepline.errors import SettingsError
from stepline.files.atomic_files import write_atomic
from stepline.files.storage import KNOWN_ONLY_FIELDS
from stepline.limits import MAX_SECOND
from stepline.live.events import LiveEvent
from stepline.pipeline.request import StepsSettings
from stepline.records import RECORD_VERSION, Record
from stepline.schema.field_meanings import field_meanings, nested_classes
from stepline.settings import NONE_WORD

Schema: TypeAlias = dict[str, Any]

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FILE_SUFFIX: Final = ".schema.json"
SECONDS_SCHEMA: Final[Schema] = {"type": "number", "minimum": 0.0, "maximum": MAX_SECOND}
NULLABLE_SECONDS_SCHEMA: Final[Schema] = {"anyOf": [SECONDS_SCHEMA, {"type": "null"}]}
PAIR_SCHEMA: Final[Schema] = {
    "description": "Start and end in seconds, start < end.",
    "type": "array",
    "items": SECONDS_SCHEMA,
    "minItems": 2,
    "maxItems": 2,
}
# what its own serializer always writes
REJECTED_REQUIRED: Final = ("what", "text", "reason")


def record_schema() -> Schema:
    """Return the schema of a record's JSON file, and of each line of `steps --json`."""
    schema = _described(Record)
    classes = nested_classes(Record)
    # to_json writes every field, but for those that it leaves out where nothing is known
    for name, definition in _definitions(schema, Record):
        optional = KNOWN_ONLY_FIELDS.get(classes[name], ())
        always = [*definition["properties"]]
        for field in optional:
            always.remove(field)
        definition["required"] = always
    # and some in another form than the classes hold them
    definitions = schema["$defs"]
    definitions["Rejected"]["required"] = [*REJECTED_REQUIRED]
    _flatten_times(definitions["Sentence"], SECONDS_SCHEMA)
    _flatten_times(definitions["Word"], NULLABLE_SECONDS_SCHEMA)
    _flatten_step(definitions["Step"])
    del definitions["Span"]
    return schema


def events_schema() -> Schema:
    """Return the schema of an event, a line of `stepline live`. Only what is known is in it."""
    schema = _described(LiveEvent)
    for name, definition in _definitions(schema, LiveEvent):
        always = [*definition["properties"]]
        # its serializer drops what is None. The objects within keep theirs
        if name == LiveEvent.__name__:
            for key, field in LiveEvent.model_fields.items():
                if field.default is None:
                    always.remove(key)
        definition["required"] = always
    return schema


def settings_schema() -> Schema:
    """Return the schema of the main job's settings, as TOML has them: "none" means null."""
    schema = _described(StepsSettings)
    for _, definition in _definitions(schema, StepsSettings):
        # TOML has no null
        for field in definition["properties"].values():
            if {"type": "null"} in field.get("anyOf", ()):
                field["anyOf"].append({"const": NONE_WORD})
    return schema


def comparison_schema() -> Schema:
    """Return the schema of `comparison.json`."""
    schema = _described(TaskComparison)
    for _, definition in _definitions(schema, TaskComparison):
        definition["required"] = [*definition["properties"]]
    return schema


SCHEMA_MAKERS: Final[dict[str, Callable[[], Schema]]] = {
    "record": record_schema,
    "events": events_schema,
    "settings": settings_schema,
    "comparison": comparison_schema,
}
SCHEMA_NAMES: Final = tuple(SCHEMA_MAKERS)


def json_schema(name: str) -> Schema:
    """Return a schema by its name in SCHEMA_NAMES. Raises SettingsError for any other."""
    if name not in SCHEMA_MAKERS:
        names = ", ".join(SCHEMA_NAMES)
        raise SettingsError(f"{name!r}: no schema has that name; known: {names}")
    schema = SCHEMA_MAKERS[name]()
    head = {"$schema": SCHEMA_DIALECT, "$id": f"urn:stepline:{name}:{RECORD_VERSION}"}
    return head | schema


def schema_text(name: str) -> str:
    """Return a schema as JSON, with a line feed at its end."""
    schema = json_schema(name)
    text = json.dumps(schema, ensure_ascii=False, indent=2)
    return f"{text}\n"


def write_schemas(folder: Path | str, names: Sequence[str] = ()) -> list[Path]:
    """Write `NAME.schema.json` of each name, of all without one, and return the files.

    Raises SettingsError for an unknown name, StoreError where the folder cannot be written.
    """
    folder = Path(folder)
    # all of them first, so that a wrong name leaves no file behind
    texts = {}
    for name in names or SCHEMA_NAMES:
        path = folder / f"{name}{FILE_SUFFIX}"
        texts[path] = schema_text(name)
    for path, text in texts.items():
        write_atomic(path, text)
    return [*texts]


def _described(kind: type[BaseModel]) -> Schema:
    """Return what pydantic says of a class, with the meaning of each field, without pydantic's
    titles of fields."""
    schema = kind.model_json_schema(mode="validation")
    classes = nested_classes(kind)
    for name, definition in _definitions(schema, kind):
        # its first paragraph. The next ones are about single fields
        docstring = definition.get("description", "")
        summary, _, _ = docstring.partition("\n\n")
        words = summary.split()
        definition["description"] = " ".join(words)
        meanings = field_meanings(classes[name])
        properties = definition["properties"]
        for field, entry in properties.items():
            entry.pop("title", None)
            if field in meanings:
                meaning = meanings[field]
                properties[field] = {"description": meaning} | entry
    return schema


def _definitions(schema: Schema, kind: type) -> list[tuple[str, Schema]]:
    """Return the schemas of the classes with fields, and their names, the whole one first."""
    definitions = [(kind.__name__, schema)]
    for name, definition in schema.get("$defs", {}).items():
        if "properties" in definition:
            definitions.append((name, definition))
    return definitions


def _flatten_times(definition: Schema, seconds: Schema) -> None:
    """Put start and end in the place of a span."""
    properties = definition["properties"]
    del properties["span"]
    properties["start"] = {"description": "Second at which it begins."} | seconds
    properties["end"] = {"description": "Second at which it ends."} | seconds
    definition["required"] = [*properties]


def _flatten_step(definition: Schema) -> None:
    """Add the best span as start and end, and make pairs of spans."""
    properties = definition["properties"]
    best = "of the best span in which it is shown, null where it is not"
    properties["start"] = {"description": f"Start {best}."} | NULLABLE_SECONDS_SCHEMA
    properties["end"] = {"description": f"End {best}."} | NULLABLE_SECONDS_SCHEMA
    properties["spans"] = properties["spans"] | {"items": PAIR_SCHEMA}
    properties["said"] = properties["said"] | {"anyOf": [PAIR_SCHEMA, {"type": "null"}]}
    definition["required"] += ["start", "end"]
