"""JSON Schema of what Stepline writes and reads, made from the classes that define it."""

from stepline.schema.documents import SCHEMA_NAMES, json_schema, schema_text, write_schemas
from stepline.schema.field_meanings import comment_meanings, field_meanings

__all__ = [
    "SCHEMA_NAMES",
    "comment_meanings",
    "field_meanings",
    "json_schema",
    "schema_text",
    "write_schemas",
]
