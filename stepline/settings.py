"""Settings: typed, frozen, with a default for every field. They are read here from files, the
environment and `key=value`.

Each package declares its own `settings.py` from `Settings`. `pipeline` composes them into one tree.
Read by hand: pydantic-settings imports for 0.1 s more than pydantic, and reads a misspelt section
as none at all.
"""

import difflib
import functools
import itertools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from stepline.errors import SettingsError
from stepline.limits import MAX_DEPTH, MAX_SETTINGS_BYTES, LimitError, parse_toml, read_limited

# Every number has a range: far wider than is useful, far short of what overflows or takes the
# machine.
Count: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]
CountOrZero: TypeAlias = Annotated[int, Field(ge=0, le=10**9)]
Bytes: TypeAlias = Annotated[int, Field(ge=1, le=2**50)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
Threads: TypeAlias = Annotated[int, Field(ge=1, le=256)]
ThreadsOrZero: TypeAlias = Annotated[int, Field(ge=0, le=256)]
Processes: TypeAlias = Annotated[int, Field(ge=1, le=4096)]
Batch: TypeAlias = Annotated[int, Field(ge=1, le=65_536)]  # items that a network takes together
Width: TypeAlias = Annotated[int, Field(ge=1, le=65_536)]  # of a layer of a network
Layers: TypeAlias = Annotated[int, Field(ge=1, le=256)]
LayersOrZero: TypeAlias = Annotated[int, Field(ge=0, le=256)]
Heads: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
Fraction: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0.0, le=1e9)]
Positive: TypeAlias = Annotated[float, Field(ge=1e-9, le=1e9)]
Offset: TypeAlias = Annotated[float, Field(ge=-3600.0, le=3600.0)]  # seconds
LogProbability: TypeAlias = Annotated[float, Field(ge=-1e3, le=0.0)]


class Settings(BaseModel):
    """Base of every settings class: frozen, strict, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


T = TypeVar("T", bound=Settings)
log = logging.getLogger(__name__)

NONE_WORD = "none"  # None in a file, a variable or an override: TOML has no null
MAX_VALUE_CHARS = 60  # characters of a refused value that an error repeats
VARIABLE_PREFIX = "STEPLINE_"  # of environment variables; STEPLINE_ASR__BEAM=5 is asr.beam=5
# (section, old name) -> new name, of settings whose old name works for one release
RENAMED_SETTINGS = {("vision", "witness"): "vlm"}
# Of all commands: what one command does not have may be another's, what none has is a mistake.
SECTION_NAMES = frozenset(
    {
        *(
            "asr",
            "clean",
            "clips",
            "coarse",
            "compare",
            "contrast",
            "data",
            "detector",
            "engine",
            "export",
            "filter",
            "forecast",
        ),
        *(
            "gather",
            "judge",
            "labels",
            "limits",
            "links",
            "loss",
            "match",
            "media",
            "model",
            "nasva",
            "pairing",
        ),
        *(
            "place",
            "places",
            "procx",
            "pseudo",
            "refine",
            "report",
            "rounds",
            "run",
            "said",
            "sieve_swap",
            "source",
        ),
        *(
            "stages",
            "steps",
            "summarizer",
            "text_base",
            "threads",
            "train",
            "vision",
            "visible",
            "vocabulary",
        ),
        "writing",
    }
)


# Settings of earlier versions, each with what to use instead.
REMOVED_SETTINGS = {
    "writing.second_pass": "the language model writes the steps in one pass; leave it out",
    "run.words": "it is a constant now; leave it out",
    "engine.batch": "each video is recognised by itself; leave it out",
    "engine.fewest": "actors are started as videos wait for them; leave it out",
    "procx.choose": "the most confident proposals are the steps; leave it out",
    "procx.search": "captions are written greedily; leave it out",
    "train.offset_rate": "all layers learn at one rate; leave it out",
    "data.held_out_score": "SODA-D chooses the best network; leave it out",
    "engine.cache": "engine.ahead bounds the files that are fetched together; leave it out",
    "forecast.cores": "the hours are those of engine.workers; leave it out",
    "forecast.core_hour": "a dry run forecasts no prices; leave it out",
    "forecast.gpu_hour": "a dry run forecasts no prices; leave it out",
    "forecast.million_tokens": "a dry run forecasts no prices; leave it out",
    "forecast.gigabyte_month": "a dry run forecasts no prices; leave it out",
}
# Settings of earlier versions that are constants of the code now, by section, each with the default
# that it had. What earlier versions stored holds them.
CONSTANT_SETTINGS: dict[str, dict[str, JsonValue]] = {
    "asr": {
        "retry_beam": 1,
        "voice": 0.5,
        "cut_within": 4.0,
        "voice_gap": 2.0,
        "voice_pad": 0.4,
        "longest_word": 1.5,
        "switch_below": -0.6,
        "switch_voice": 2.0,
        "switch_above": 0.6,
        "word_probability": 0.45,
        "voiced": 0.2,
        "belief": -0.35,
        "clear_voice": 0.5,
        "clear_log_probability": -0.4,
    },
    "ground": {
        "shown_rate": 0.9,
        "shown_rate_shots": 0.81,
        "unsaid_rate": 0.3,
        "belong_rate": 0.95,
        "belong_least": -0.75,
        "instructs_rate": 0.95,
        "instructs_least": -1.6,
        "talk": 0.2,
        "likeness_penalty": 2.0,
        "likeness_penalty_conse": 4.0,
        "vision_limit": 2.0,
        "vision_alone": 2.0,
        "lag_reach": 6.0,
        "lag_spread": 2.0,
        "lag_usual": 1.25,
        "likeness_shots": 0.4,
        "unwritten": 0.15,
        "smooth": 0.0,
        "compete": 1.0,
    },
    "coarse": {"likeness": 0.35, "label_rule": "covering"},
    "vision": {"cut_ratio": 4.0, "cut_floor": 0.2},
    "aligner": {"order_cost": 1.5, "bf16": False},
    "loss": {"alignability": "kept", "alignability_weight": 1.0},
    "data": {"held_out_most": 500},
    "refine": {"agree_with": []},
    "place": {"unshown": "unlike"},
    "labels": {"mapping": "clipped", "text_model": "minilm"},
    "match": {"ordered_documents": 20, "instruction": 0.5},
    "text_base": {"seed": 0},
    "gather": {"run": 3, "same_picture": 0.02},
    "export": {"webdataset": False, "media": False},
    "clean": {"least": 1},
    "visible": {"least": 1},
    "report": {"audit_texts": 25, "example_steps": 4, "frame_width": 176},
}


def load_settings(
    kind: type[T],
    path: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    preset: Path | None = None,
) -> T:
    """Return `kind` from its defaults, the user's config file, the environment, a preset, a TOML
    file and overrides.

    Later ones win. preset: a TOML file of `cli.options.preset_files`. overrides:
    `section.key=value`. The config file and the environment serve every command: their sections
    that `kind` does not have are left to the others.
    Raises SettingsError, naming the key and the nearest known one, for anything that does not fit.
    """
    tree, names = _user_settings(kind)
    for file in (preset, path):
        if file is not None:
            tree = _merged(tree, _read_toml(file))
    for override in overrides:
        _apply(tree, override, f"--set {override!r}")
    try:
        return validate(kind, tree)
    except SettingsError as error:
        if not names:
            raise
        raise SettingsError(f"{error} (some settings come from {', '.join(names)})") from error


def config_file() -> Path | None:
    """Return the user's config file if there is one: STEPLINE_CONFIG (empty: none), else in the
    config folder."""
    import platformdirs

    variable = os.environ.get(f"{VARIABLE_PREFIX}CONFIG")
    if variable is not None:
        if not variable:
            return None
        return Path(variable).expanduser()
    path = platformdirs.user_config_path("stepline", appauthor=False) / "config.toml"
    if not path.is_file():
        return None
    return path


def _user_settings(kind: type[BaseModel]) -> tuple[dict[str, Any], list[str]]:
    """Return what the config file and the environment set of `kind`, and the names of those that
    set something."""
    tree: dict[str, Any] = {}
    names = []
    path = config_file()
    if path is not None:
        for section, value in _read_toml(path).items():
            if _concerns(kind, section, str(path)):
                tree[section] = value
        if tree:
            names.append(str(path))
    for name in sorted(os.environ):
        if not name.startswith(VARIABLE_PREFIX) or "__" not in name:
            continue
        key = name.removeprefix(VARIABLE_PREFIX).lower().replace("__", ".")
        section, _, _ = key.partition(".")
        if _concerns(kind, section, name):
            _apply(tree, f"{key}={os.environ[name]}", name)
            names.append(name)
    return tree, names


def _concerns(kind: type[BaseModel], section: str, origin: str) -> bool:
    """Return whether `kind` has a section. Raises SettingsError for one that the settings of no
    command have."""
    if section in kind.model_fields:
        return True
    if section in SECTION_NAMES:
        return False
    cure = _nearest(section, sorted(kind.model_fields))
    raise SettingsError(f"{origin}: unknown section {section!r}; {cure}")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both trees as one. Where both set a value, that of `above`."""
    merged = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            merged[name] = _merged(below[name], above[name])
    return merged


def validate(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Return `kind` from plain values, as TOML and the command line give them (lists, strings for
    paths).

    A section whose default sets some of its fields keeps them where the tree gives only others. The
    text "none" is None wherever a setting may be None.
    """
    whole = {}
    for name, value in _with_none(kind, tree).items():
        default = None
        if name in kind.model_fields:
            default = kind.model_fields[name].default
        whole[name] = _over(default, value)
    try:
        return kind.model_validate_json(json.dumps(whole, default=str))
    except ValidationError as error:
        raise SettingsError(_explain(kind, error)) from error


def without_constants(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return stored settings without those that are constants now, or were removed. `section` is
    the tree's own name."""
    constants = CONSTANT_SETTINGS.get(section, {})
    current = {}
    for name, value in tree.items():
        if name in constants or f"{section}.{name}" in REMOVED_SETTINGS:
            continue
        current[name] = without_constants(value, name) if isinstance(value, dict) else value
    return current


def with_constants(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return settings with those that are constants now, as earlier versions stored them.

    Keys of stored results are made of them: results of those versions stay valid.
    """
    whole = dict(CONSTANT_SETTINGS.get(section, {}))
    for name, value in tree.items():
        whole[name] = with_constants(value, name) if isinstance(value, dict) else value
    return whole


def _over(default: object, value: object) -> object:
    """Return a section with what its default sets. pydantic would take the defaults of its
    class."""
    if not (isinstance(default, BaseModel) and isinstance(value, Mapping)):
        return value
    whole = default.model_dump(mode="json", exclude_unset=True)
    for name, below in value.items():
        whole[name] = _over(getattr(default, name, None), below)
    return whole


def admits_none(annotation: object) -> bool:
    """Return whether None is a value of a field of this type."""
    return NoneType in _alternatives(annotation)


def section_class(annotation: object) -> type[BaseModel] | None:
    """Return the settings class of a field that is a section, None where it is not a section."""
    for choice in _alternatives(annotation):
        if not isinstance(choice, type) or get_origin(choice) is not None:
            continue
        if issubclass(choice, BaseModel):
            return choice
    return None


def _alternatives(annotation: object) -> tuple[object, ...]:
    """Return the types that a field's type joins by `|`, each without its bounds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(part for choice in get_args(annotation) for part in _alternatives(choice))
    return (annotation,)


def _item_type(annotation: object) -> object:
    """Return the type of what a list or a table of any length holds, None for another field."""
    for choice in _alternatives(annotation):
        types = [part for part in get_args(choice) if part is not Ellipsis]
        if get_origin(choice) is dict:
            return types[1]
        if get_origin(choice) in (tuple, list) and len(types) == 1:
            return types[0]
    return None


def _with_none(kind: type[BaseModel], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree with None for each "none" of a field that may be None."""
    values = {}
    for name, value in tree.items():
        annotation = None
        if name in kind.model_fields:
            annotation = kind.model_fields[name].annotation
        values[name] = _none_read(annotation, value)
    return values


def _none_read(annotation: object, value: object) -> object:
    if value == NONE_WORD:
        # Where the word is one of the setting's choices, it means that choice.
        choices = _alternatives(annotation)
        is_choice = any(NONE_WORD in get_args(choice) for choice in choices)
        if NoneType in choices and not is_choice:
            return None
        return value
    section = section_class(annotation)
    if isinstance(value, Mapping) and section is not None:
        return _with_none(section, value)
    item = _item_type(annotation)
    if isinstance(value, Mapping) and item is not None:
        return {name: _none_read(item, below) for name, below in value.items()}
    if isinstance(value, list) and item is not None:
        return [_none_read(item, below) for below in value]
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        tree = parse_toml(read_limited(path, MAX_SETTINGS_BYTES).decode("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); give a TOML file"
        ) from error
    except ValueError as error:
        raise SettingsError(f"{path}: not valid TOML ({error}); correct that line") from error
    return _with_current_names(tree)


def _with_current_names(tree: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    renamed = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            value = _with_current_names(value, name)
        renamed[current_name(parent, name)] = value
    return renamed


@functools.cache  # one warning for each old name
def current_name(parent: str, name: str) -> str:
    """Return the name of a setting, with a warning where it was given by its old name."""
    current = RENAMED_SETTINGS.get((parent, name))
    if current is None:
        return name
    log.warning(
        "%s.%s is now %s.%s; the old name works for one release", parent, name, parent, current
    )
    return current


def _apply(tree: dict[str, Any], override: str, origin: str) -> None:
    """Write one `a.b=value` into the tree. The value is read as TOML, else kept as a string."""
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        raise SettingsError(
            f"{origin[:MAX_VALUE_CHARS]}: write it as section.key=value, for example asr.beam=5"
        )
    parts[1:] = [current_name(parent, name) for parent, name in itertools.pairwise(parts)]
    branch = tree
    for part in parts[:-1]:
        branch = branch.setdefault(part, {})
        if not isinstance(branch, dict):
            raise SettingsError(
                f"{origin}: {part!r} is a value, not a section; write section.key=value"
            )
    # A string may come without quotes.
    try:
        branch[parts[-1]] = parse_toml(f"v = {value}")["v"]
    except LimitError as error:
        raise SettingsError(f"{origin[:MAX_VALUE_CHARS]}: {error}; give a plain value") from error
    except ValueError:
        branch[parts[-1]] = value


def _explain(kind: type[BaseModel], error: ValidationError) -> str:
    """Say in one line what is wrong with the first bad setting, and what was probably meant."""
    first = error.errors(include_url=False)[0]
    path = tuple(str(part) for part in first["loc"])
    # A setting that is there, with a value that does not fit.
    if first["type"] != "extra_forbidden":
        rule = first["msg"]
        if first["type"].startswith(("greater_than", "less_than")):
            number_range = _range(kind, path)
            if number_range:
                rule = f"it must be {number_range}"
        if _may_be_none(kind, path):
            rule += f", or {NONE_WORD}"
        # What may be a secret is not repeated.
        may_be_secret = any("key" in part or "url" in part for part in path)
        if not may_be_secret:
            text = repr(first.get("input"))
            if len(text) > MAX_VALUE_CHARS:
                text = f"{text[:MAX_VALUE_CHARS]}..."
            rule += f" (given: {text})"
        return f"setting {'.'.join(path)}: {rule}"
    # A setting that is not there.
    name = ".".join(path)
    for removed, cure in REMOVED_SETTINGS.items():
        if f".{name}".endswith(f".{removed}"):
            return f"setting {name} was removed; {cure}"
    above = path[:-1]
    if above and path[-1] in CONSTANT_SETTINGS.get(above[-1], {}):
        return f"setting {name} was removed; it is a constant now; leave it out"
    cure = _nearest(path[-1], _keys(kind, above), above)
    return f"unknown setting {name!r}; {cure}"


def _may_be_none(kind: type[BaseModel], path: Sequence[str]) -> bool:
    if not path:  # a rule of the whole section
        return False
    owner = _section(kind, path[:-1])
    if owner is None or path[-1] not in owner.model_fields:
        return False
    field = owner.model_fields[path[-1]]
    return admits_none(field.annotation)


BOUND_NAMES = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def _range(kind: type[BaseModel], path: Sequence[str]) -> str:
    """Return the range of the number at `path` below `kind` in words, nothing where it is not a
    number."""
    owner = _section(kind, path[:-1])
    if owner is None:
        return ""
    schema: dict[str, Any] = owner.model_json_schema()["properties"].get(path[-1], {})
    for form in (schema, *schema.get("anyOf", ())):
        bounds = [bound for bound in BOUND_NAMES if bound in form]
        if bounds:
            return " and ".join(f"{BOUND_NAMES[bound]} {form[bound]:g}" for bound in bounds)
    return ""


def _nearest(key: str, keys: Sequence[str], path: Sequence[str] = ()) -> str:
    """Return the known key most like an unknown one, with the path to it, or all of them where none
    is like it."""
    near = difflib.get_close_matches(key, keys, n=1)
    if near:
        return f"did you mean {'.'.join((*path, near[0]))!r}?"
    return f"known here: {', '.join(keys)}"


def _keys(kind: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the field names of the settings class at `path` below `kind`, none where no class is
    there."""
    owner = _section(kind, path)
    if owner is None:
        return []
    return sorted(owner.model_fields)


def _section(kind: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """Return the settings class at `path` below `kind`, None where no class is there."""
    annotation: object = kind
    for part in path:
        section = section_class(annotation)
        if section is not None and part in section.model_fields:
            annotation = section.model_fields[part].annotation
        else:
            annotation = _item_type(annotation)
    return section_class(annotation)
