"""The manifest of a text base: manifest.json, the last file written. Without it there is no
base."""

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from stepline.errors import StoreError
from stepline.files.atomic_files import write_atomic
from stepline.records import FrozenModel
from stepline.settings import CountOrZero

LAYOUT_VERSION: Literal[1] = 1  # of the layout on disk; a reader refuses any other
MANIFEST_NAME = "manifest.json"
MAX_EXAMPLES = 3  # places named for each reason


class RejectionCount(FrozenModel):
    """Number of items rejected for one reason, with the locations of the first."""

    reason: str
    count: CountOrZero
    examples: tuple[str, ...] = ()


class SourceEntry(FrozenModel):
    """One source as it was read. name: the file or folder, without its path. sha256: of its files,
    in order."""

    name: str
    sha256: str
    bytes: CountOrZero
    licence: str | None = None
    documents: CountOrZero = 0
    steps: CountOrZero = 0
    dropped: tuple[RejectionCount, ...] = ()


class PartEntry(FrozenModel):
    """What one build or one appending added. plan: the sha256 of sources and settings that it was
    made from."""

    name: str
    plan: str
    documents: CountOrZero
    steps: CountOrZero  # lines that this part added
    read: CountOrZero  # lines read, before any were merged
    same: CountOrZero  # merged: the same words
    near: CountOrZero  # merged: near-duplicates
    sources: tuple[SourceEntry, ...]
    files: dict[str, str]  # file name -> sha256


class CurvePoint(FrozenModel):
    """The measured recall@1 of an index at one setting of its effort (lists probed, ef)."""

    effort: CountOrZero
    recall: float


class IndexEntry(FrozenModel):
    """An approximate index. effort: the least that reached the recall asked for. probes: queries
    measured."""

    engine: str  # "lists", or one of an earlier version, which is not searched
    steps: CountOrZero
    effort: CountOrZero
    recall: float
    wanted: float
    probes: CountOrZero
    curve: tuple[CurvePoint, ...]
    files: dict[str, str]


class Manifest(FrozenModel):
    """Metadata of a text base: sources, parts and indexes."""

    version: Literal[1] = LAYOUT_VERSION
    encoder: str
    encoder_sha256: str
    width: CountOrZero
    precision: Literal["float16", "float32"]
    documents: CountOrZero = 0
    steps: CountOrZero = 0
    parts: tuple[PartEntry, ...] = ()
    indexes: tuple[IndexEntry, ...] = ()


def read_manifest(folder: Path) -> Manifest | None:
    """Return a base's manifest, None where it has no manifest. Raises StoreError for one that cannot be
    read."""
    path = folder / MANIFEST_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be read ({error.strerror}); build the text base again"
        ) from error
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise StoreError(
            f"{path}: not a text base of version {LAYOUT_VERSION} ({reason}); build it again"
        ) from error


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest: from now on the folder is a text base that holds what it says."""
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2)
    write_atomic(folder / MANIFEST_NAME, text + "\n")


def digest(value: object) -> str:
    """Return the sha256 of a value's JSON."""
    # Sorted, so that equal settings have one digest.
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
