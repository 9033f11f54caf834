"""The JSON Schemas of Stepline, against which the tests hold every file that a command writes."""

import functools
import importlib.util
import json
from pathlib import Path

HAS_JSONSCHEMA = importlib.util.find_spec("jsonschema") is not None


@functools.cache
def validator(name):
    """The validator of a schema by its name."""
    from jsonschema import Draft202012Validator

    from stepline.cli.schema import json_schema

    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(name, tree):
    """Fail, with the place of the first fault, where a tree does not follow a schema."""
    errors = sorted(validator(name).iter_errors(tree), key=lambda error: list(error.path))
    assert not errors, f"{name} at {list(errors[0].path)}: {errors[0].message[:300]}"


def schema_of(tree):
    """The name of the schema that a JSON file has to follow, None for other files."""
    if not isinstance(tree, dict):
        return None
    if {"id", "video", "transcript", "version"} <= tree.keys():
        return "record"
    if {"transitions", "orders", "left_out"} <= tree.keys():
        return "comparison"
    return None


def check_outputs(folder, since):
    """Check the records, comparisons and events in a folder that are newer than a time in ns."""
    if not (HAS_JSONSCHEMA and Path(folder).is_dir()):
        return
    for path in Path(folder).glob("*.json*"):
        is_lock = not path.stat().st_size  # driver.json of a curation is there to be locked
        if path.name.startswith(".") or path.stat().st_mtime_ns < since or is_lock:
            continue
        if path.suffix == ".json":
            tree = json.loads(path.read_bytes())
            name = schema_of(tree)
            if name is not None:
                check(name, tree)
        elif path.name.endswith(".events.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                check("events", json.loads(line))
