"""Settings: typed, frozen, with a default for every field; TOML and `key=value` overrides are read here.

Each package declares its own `settings.py` from `Settings`; `pipeline` composes them into one tree.
"""

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stepline.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


Count: TypeAlias = Annotated[int, Field(ge=1)]
CountOrZero: TypeAlias = Annotated[int, Field(ge=0)]
Fraction: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0.0)]
Positive: TypeAlias = Annotated[float, Field(gt=0.0)]


class Settings(BaseModel):
    """Base of every settings class: frozen, strict, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


T = TypeVar("T", bound=Settings)

LONGEST = 60  # characters of a refused value that an error repeats


def load_settings(kind: type[T], path: Path | None = None, overrides: Sequence[str] = ()) -> T:
    """Return `kind` from its defaults, then a TOML file, then `section.key=value` overrides.

    Raises SettingsError, naming the key and the nearest known one, for anything that does not fit.
    """
    tree: dict[str, Any] = _read_toml(path) if path is not None else {}
    for override in overrides:
        _apply(tree, override)
    return validate(kind, tree)


def validate(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Return `kind` from plain values, as TOML and the command line give them (lists, strings for paths).

    A section whose default sets some of its fields keeps them where the tree gives only others.
    """
    try:
        return kind.model_validate_json(json.dumps(_over_defaults(kind, tree), default=str))
    except ValidationError as error:
        raise SettingsError(_explain(kind, error)) from error


def _over_defaults(kind: type[BaseModel], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree with what the defaults of its sections set; pydantic would take those of their classes."""
    sections = {name: field.default for name, field in kind.model_fields.items()}
    return {name: _over(sections.get(name), given) for name, given in tree.items()}


def _over(default: object, given: object) -> object:
    if not (isinstance(default, BaseModel) and isinstance(given, Mapping)):
        return given
    own = default.model_dump(mode="json", exclude_unset=True)
    return own | {name: _over(getattr(default, name, None), value) for name, value in given.items()}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error}); correct that line") from error


def _apply(tree: dict[str, Any], override: str) -> None:
    """Write one `a.b=value` into the tree; the value is read as TOML, else kept as a string."""
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise SettingsError(f"--set {override!r}: write it as section.key=value, for example asr.beam=5")
    branch = tree
    for part in parts[:-1]:
        branch = branch.setdefault(part, {})
        if not isinstance(branch, dict):
            raise SettingsError(f"--set {override!r}: {part!r} is a value, not a section")
    try:
        branch[parts[-1]] = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        branch[parts[-1]] = value


def _explain(kind: type[BaseModel], error: ValidationError) -> str:
    """Say in one line what is wrong with the first bad setting, and what was probably meant."""
    first = error.errors(include_url=False)[0]
    place = tuple(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"setting {'.'.join(place)}: {first['msg']}{_given(place, first.get('input'))}"
    known = _keys(kind, place[:-1])
    near = difflib.get_close_matches(place[-1], known, n=1)
    cure = f"did you mean {'.'.join((*place[:-1], near[0]))!r}?" if near else f"known here: {', '.join(known)}"
    return f"unknown setting {'.'.join(place)!r}; {cure}"


def _given(place: Sequence[str], value: object) -> str:
    """Return the refused value, shortened; nothing where it may hold a key or a password."""
    text = repr(value)
    secret = any("key" in part or "url" in part for part in place)
    return "" if secret else f" (given: {text if len(text) <= LONGEST else text[:LONGEST] + '...'})"


def _keys(kind: type[BaseModel], place: Sequence[str]) -> list[str]:
    """Return the field names of the settings class found at `place` below `kind`."""
    for part in place:
        child = kind.model_fields[part].annotation
        if not (isinstance(child, type) and issubclass(child, BaseModel)):
            return []
        kind = child
    return sorted(kind.model_fields)
