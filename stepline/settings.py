"""Settings: typed and frozen, with a default for every field, read from files, the environment and
`key=value`.

Each package declares the settings classes of its `settings.py` from `Settings`. `pipeline` composes
them into one tree. pydantic-settings is not used: it imports for 0.1 s more than pydantic, and
ignores a misspelt section.
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
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stepline.errors import SettingsError
from stepline.limits import MAX_DEPTH, MAX_SETTINGS_BYTES, LimitError, parse_toml, read_limited

# Every number has a range: far wider than is useful, far short of what overflows or takes the
# machine.
Count = Annotated[int, Field(ge=1, le=10**9)]
CountOrZero = Annotated[int, Field(ge=0, le=10**9)]
Bytes = Annotated[int, Field(ge=1, le=2**50)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Threads = Annotated[int, Field(ge=1, le=256)]
ThreadsOrZero = Annotated[int, Field(ge=0, le=256)]
Processes = Annotated[int, Field(ge=1, le=4096)]
Batch = Annotated[int, Field(ge=1, le=65_536)]  # items that a network takes together
Width = Annotated[int, Field(ge=1, le=65_536)]  # of a layer of a network
Layers = Annotated[int, Field(ge=1, le=256)]
LayersOrZero = Annotated[int, Field(ge=0, le=256)]
Heads = Annotated[int, Field(ge=1, le=1024)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e9)]
Positive = Annotated[float, Field(ge=1e-9, le=1e9)]
Offset = Annotated[float, Field(ge=-3600.0, le=3600.0)]  # seconds
LogProbability = Annotated[float, Field(ge=-1e3, le=0.0)]


class Settings(BaseModel):
    """Base of every settings class: frozen, strict, no unknown keys, no NaN.

    The docstring below a field is its meaning in help, docs and JSON Schema.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


T = TypeVar("T", bound=Settings)
log = logging.getLogger(__name__)

NONE_WORD = "none"  # None in a file, a variable or an override: TOML has no null
MAX_VALUE_CHARS = 60  # characters of a refused value that an error repeats
VARIABLE_PREFIX = "STEPLINE_"  # of environment variables; STEPLINE_ASR__BEAM=5 is asr.beam=5
# (section, old name) -> new name, of settings whose old name works for one release
RENAMED_SETTINGS = {("vision", "witness"): "vlm"}
# Sections of all commands. A section that one command does not have may be another's. One that no
# command has is a mistake.
_SECTION_TEXT = """
asr clean clips coarse compare contrast data detector engine export filter gather judge
labels limits links loss match media model nasva pairing place places procx pseudo refine report
rounds run said sieve_swap source stages steps text_base threads train vision visible
vocabulary writing
"""
SECTION_NAMES = frozenset(_SECTION_TEXT.split())

# Settings of 0.1.0, by what is said to those who still set them.
_REMOVED_SETTINGS = {
    "`writing.llm.form` chooses what a model is asked; leave it out": "llm.prompt_file",
    "`writing.llm.form` decides how much speech is read at a time; leave it out": "llm.words_per_chunk",
    "the writer reads words only; `vision.vlm` looks at the video": "llm.pictures",
    "the writer reads words only; `vision.vlm.projector` is the one that sees": "llm.projector",
    "engine.ahead bounds the files that are fetched together; leave it out": "engine.cache",
    "run with --limit, and `stepline curate status` shows the time; leave it out": "forecast",
    "rounds.rounds says how many are made; leave it out": "rounds.enough rounds.same",
    "it is fixed or gone now; leave it out": """
        llm.picture_size llm.together media.decoder vision.faces vision.vlm.video
        vision.vlm.clip_seconds vision.vlm.clip_rate writing.second_pass run.words
        asr.retry_beam asr.voice asr.cut_within asr.voice_gap asr.voice_pad asr.longest_word
        asr.switch_below asr.switch_voice asr.switch_above asr.word_probability asr.voiced
        asr.belief asr.clear_voice asr.clear_log_probability ground.order ground.wording
        ground.shown_rate ground.shown_rate_shots ground.unsaid_rate ground.belong_rate
        ground.belong_least ground.instructs_rate ground.instructs_least ground.talk
        ground.likeness_penalty ground.likeness_penalty_conse ground.vision_limit
        ground.vision_alone ground.lag_reach ground.lag_spread ground.lag_usual
        ground.likeness_shots ground.unwritten ground.smooth ground.compete coarse.likeness
        coarse.label_rule coarse.graph_wordings coarse.graph_order coarse.graph_share
        vision.cut_ratio vision.cut_floor aligner.order_cost aligner.bf16 loss.alignability
        loss.alignability_weight loss.every_layer data.held_out_most data.held_out_score
        refine.agree_with refine.least_kept rounds.first place.unshown labels.mapping
        labels.text_model labels.ranking match.ordered_documents match.instruction
        match.new_numbers text_base.seed gather.run gather.same_picture export.webdataset
        export.media procx.speech clean.least visible.least report.audit_texts
        report.example_steps report.frame_width engine.batch engine.fewest text_base.merge
        text_base.memory text_base.shard text_base.engine text_base.recall data.speech
        data.around model.refine procx.choose procx.search train.offset_rate judge.weights
        pseudo.most rounds.held_out procx.overlap procx.caption_power report.steps_read
        report.videos_compared report.task report.points report.text_base report.witness
        attention.padding attention.query_start captioner.transcript_layers
        captioner.longest_transcript loss.match loss.role_weight loss.role_temperature
        loss.overlap_weight loss.varifocal_alpha loss.varifocal_gamma loss.focal_alpha
        loss.focal_gamma loss.count_spread loss.count_beta contrast.rivals
    """,
}
CURE_OF_REMOVED_SETTING = {
    name: cure for cure, names in _REMOVED_SETTINGS.items() for name in names.split()
}


def load_settings(
    kind: type[T],
    path: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    preset: Path | None = None,
) -> T:
    """Return the settings of a command.

    Later sources override earlier ones: the defaults, the user's config file, environment
    variables, the preset, the TOML file, the overrides. The config file and the environment serve
    every command. Their sections that `kind` lacks are ignored if another command has them.

    Args:
        kind: the settings class of the command.
        path: a TOML file. None means no file.
        overrides: texts of the form `section.key=value`.
        preset: a TOML file of `cli.options.preset_files`. None means no preset.

    Raises SettingsError for unknown or invalid settings, with the key and the most similar known
    key.
    """
    tree, origins = _user_settings(kind)
    for file in (preset, path):
        if file is not None:
            tree = _merge_settings(tree, _read_toml(file))
    for override in overrides:
        _apply_override(tree, override, f"--set {override!r}")
    try:
        return validate(kind, tree)
    except SettingsError as error:
        if not origins:
            raise
        raise SettingsError(f"{error} (some settings come from {', '.join(origins)})") from error


def config_file() -> Path | None:
    """Return the path of the user's config file. None if there is none.

    The environment variable STEPLINE_CONFIG gives the path, and "" means no file. Without the
    variable it is config.toml in the user's config folder.
    """
    import platformdirs

    variable = os.environ.get(f"{VARIABLE_PREFIX}CONFIG")
    if variable is not None:
        return Path(variable).expanduser() if variable else None
    path = platformdirs.user_config_path("stepline", appauthor=False) / "config.toml"
    return path if path.is_file() else None


def _user_settings(kind: type[BaseModel]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of `kind` in the config file and the environment, and their origins."""
    tree: dict[str, Any] = {}
    origins = []
    path = config_file()
    if path is not None:
        for section, value in _read_toml(path).items():
            if _has_section(kind, section, str(path)):
                tree[section] = value
        if tree:
            origins.append(str(path))
    for name in sorted(os.environ):
        if not name.startswith(VARIABLE_PREFIX) or "__" not in name:
            continue
        key = name.removeprefix(VARIABLE_PREFIX).lower().replace("__", ".")
        section, _, _ = key.partition(".")
        if _has_section(kind, section, name):
            _apply_override(tree, f"{key}={os.environ[name]}", name)
            origins.append(name)
    return tree, origins


def _has_section(kind: type[BaseModel], section: str, origin: str) -> bool:
    """Return whether a settings class has a section of this name.

    Args:
        kind: the settings class.
        section: name of the section.
        origin: where the name was read, for messages.

    Raises SettingsError if no command has such a section.
    """
    if section in kind.model_fields:
        return True
    if section in SECTION_NAMES:
        return False
    cure = _suggest_key(section, sorted(kind.model_fields))
    raise SettingsError(f"{origin}: unknown section {section!r}; {cure}")


def _merge_settings(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the union of two trees of settings. If both set a value, `higher` wins."""
    merged = {**lower, **higher}
    for name in lower.keys() & higher.keys():
        if isinstance(lower[name], dict) and isinstance(higher[name], dict):
            merged[name] = _merge_settings(lower[name], higher[name])
    return merged


def validate(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Return a settings object made from plain values, such as those of TOML or the command line.

    If the default of a section sets some of its fields, they keep these values unless the tree sets
    them. The text "none" becomes None for each setting that may be None.

    Args:
        kind: the settings class.
        tree: setting name -> value or section, with lists for tuples and strings for paths.
    """
    complete = {}
    for name, value in _replace_none_words(kind, tree).items():
        field = kind.model_fields.get(name)
        complete[name] = _add_section_default(field and field.default, value)
    try:
        return kind.model_validate_json(json.dumps(complete, default=str))
    except ValidationError as error:
        raise SettingsError(_explain_error(kind, error)) from error


def without_removed_settings(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return stored settings without those of 0.1.0 that were removed since.

    Args:
        tree: setting name -> value or section.
        section: dotted name of the section that the tree holds, "" for all settings.
    """
    current = {}
    for name, value in tree.items():
        path = f"{section}.{name}"
        if removed_setting_cure(path) is None:
            current[name] = (
                without_removed_settings(value, path) if isinstance(value, dict) else value
            )
    return current


def removed_setting_cure(path: str) -> str | None:
    """Return what to use instead of a removed setting of version 0.1.0. None for other settings.

    path: dotted name of the setting, with or without the sections before it.
    """
    for name, cure in CURE_OF_REMOVED_SETTING.items():
        if f".{path}".endswith(f".{name}"):
            return cure
    return None


def _add_section_default(default: object, value: object) -> object:
    """Return the values of a section, completed with the values that its default sets.

    pydantic alone would complete them with the defaults of the section's class.
    """
    if not (isinstance(default, BaseModel) and isinstance(value, Mapping)):
        return value
    complete = default.model_dump(mode="json", exclude_unset=True)
    for name, nested in value.items():
        complete[name] = _add_section_default(getattr(default, name, None), nested)
    return complete


def admits_none(annotation: object) -> bool:
    """Return whether a field with this type annotation may be None."""
    return NoneType in _union_members(annotation)


def section_class(annotation: object) -> type[BaseModel] | None:
    """Return the settings class in a section's type annotation. None for other annotations."""
    for member in _union_members(annotation):
        if not isinstance(member, type) or get_origin(member) is not None:
            continue
        if issubclass(member, BaseModel):
            return member
    return None


def _union_members(annotation: object) -> tuple[object, ...]:
    """Return the types in a union annotation (`A | B`), without pydantic's constraints."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _union_members(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(part for member in get_args(annotation) for part in _union_members(member))
    return (annotation,)


def _item_type(annotation: object) -> object:
    """Return the item type of a list annotation, or the value type of a dict annotation.

    None for other annotations.
    """
    for member in _union_members(annotation):
        types = [part for part in get_args(member) if part is not Ellipsis]
        if get_origin(member) is dict:
            return types[1]
        if get_origin(member) in (tuple, list) and len(types) == 1:
            return types[0]
    return None


def _replace_none_words(annotation: object, value: Any) -> Any:
    """Return a value of a setting, or a section, with None for the text "none" where it may be None.

    Args:
        annotation: type annotation of the setting.
        value: as JSON or TOML holds it.
    """
    if value == NONE_WORD:
        # Where the word is one of the setting's choices, it means that choice.
        members = _union_members(annotation)
        is_choice = any(NONE_WORD in get_args(member) for member in members)
        return None if NoneType in members and not is_choice else value
    section = section_class(annotation)
    item = _item_type(annotation)
    if isinstance(value, Mapping) and section is not None:
        types = {name: field.annotation for name, field in section.model_fields.items()}
        return {name: _replace_none_words(types.get(name), value[name]) for name in value}
    if isinstance(value, Mapping) and item is not None:
        return {name: _replace_none_words(item, nested) for name, nested in value.items()}
    if isinstance(value, list) and item is not None:
        return [_replace_none_words(item, nested) for nested in value]
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
    return _rename_old_settings(tree)


def _rename_old_settings(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    renamed = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            value = _rename_old_settings(value, name)
        renamed[current_setting_name(section, name)] = value
    return renamed


@functools.cache  # one warning for each old name
def current_setting_name(parent: str, name: str) -> str:
    """Return the current name of a setting. An old name is replaced, with a warning.

    Args:
        parent: dotted name of the section that holds the setting.
        name: current or old name of the setting.
    """
    current = RENAMED_SETTINGS.get((parent, name))
    if current is None:
        return name
    log.warning(
        "%s.%s is now %s.%s; the old name works for one release", parent, name, parent, current
    )
    return current


def _apply_override(tree: dict[str, Any], override: str, origin: str) -> None:
    """Set the value of an override `a.b=value` in the tree. A value that is not TOML is a string.

    Args:
        tree: setting name -> value or section.
        override: the text.
        origin: where the text is from, for messages.
    """
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        raise SettingsError(
            f"{origin[:MAX_VALUE_CHARS]}: write it as section.key=value, for example asr.beam=5"
        )
    parts[1:] = [current_setting_name(parent, name) for parent, name in itertools.pairwise(parts)]
    section = tree
    for part in parts[:-1]:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise SettingsError(
                f"{origin}: {part!r} is a value, not a section; write section.key=value"
            )
    # Behind a line break, TOML would begin another setting.
    if len(value.strip().splitlines()) > 1:
        raise SettingsError(f"{origin}: a value has one line; give each setting a --set of its own")
    # A string may come without quotes.
    try:
        section[parts[-1]] = parse_toml(f"v = {value}")["v"]
    except LimitError as error:
        raise SettingsError(f"{origin[:MAX_VALUE_CHARS]}: {error}; give a plain value") from error
    except ValueError:
        section[parts[-1]] = value


def _explain_error(kind: type[BaseModel], error: ValidationError) -> str:
    """Return one line on the first invalid setting, with the most similar known name."""
    first = error.errors(include_url=False)[0]
    path = tuple(str(part) for part in first["loc"])
    # A known setting with an invalid value.
    if first["type"] != "extra_forbidden":
        owner = _settings_class_at(kind, path[:-1])
        rule = first["msg"].removeprefix("Value error, ")
        if owner is not None and path and path[-1] in owner.model_fields:
            if first["type"].startswith(("greater_than", "less_than")):
                number_range = _describe_range(owner, path[-1])
                rule = f"it must be {number_range}" if number_range else rule
            if admits_none(owner.model_fields[path[-1]].annotation):
                rule += f", or {NONE_WORD}"
        # A secret is not repeated, and a whole section may hold one.
        may_be_secret = any("key" in part or "url" in part for part in path)
        if not may_be_secret and not isinstance(first.get("input"), dict):
            text = repr(first.get("input"))
            if len(text) > MAX_VALUE_CHARS:
                text = f"{text[:MAX_VALUE_CHARS]}..."
            rule += f" (given: {text})"
        return f"setting {'.'.join(path)}: {rule}"
    # An unknown setting.
    name = ".".join(path)
    cure = removed_setting_cure(name)
    if cure is not None:
        return f"setting {name} was removed; {cure}"
    *sections, key = path
    owner = _settings_class_at(kind, sections)
    cure = _suggest_key(key, sorted(owner.model_fields) if owner else [], sections)
    return f"unknown setting {name!r}; {cure}"


BOUND_NAMES = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def _describe_range(owner: type[BaseModel], name: str) -> str:
    """Return the allowed range of a numeric field in words, "" for other fields."""
    schema: dict[str, Any] = owner.model_json_schema()["properties"].get(name, {})
    for form in (schema, *schema.get("anyOf", ())):
        bounds = [bound for bound in BOUND_NAMES if bound in form]
        if bounds:
            return " and ".join(f"{BOUND_NAMES[bound]} {form[bound]:g}" for bound in bounds)
    return ""


def _suggest_key(key: str, known_keys: Sequence[str], sections: Sequence[str] = ()) -> str:
    """Return advice for an unknown key: the most similar known key, or all known keys.

    Args:
        key: the unknown key.
        known_keys: the keys of its section.
        sections: names of the sections that contain the key, outermost first.
    """
    near = difflib.get_close_matches(key, known_keys, n=1)
    if near:
        return f"did you mean {'.'.join((*sections, near[0]))!r}?"
    return f"known here: {', '.join(known_keys)}"


def _settings_class_at(kind: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """Return the settings class of a nested section. None if there is no such section.

    Args:
        kind: settings class of the root.
        path: names of the sections from the root to the nested one.
    """
    annotation: object = kind
    for part in path:
        section = section_class(annotation)
        if section is not None and part in section.model_fields:
            annotation = section.model_fields[part].annotation
        else:
            annotation = _item_type(annotation)
    return section_class(annotation)
