"""What the video stages hand on, as the bytes of a cell and back: JSON, or arrays with JSON beside them.

The same values give the same bytes: no clock, no path, one key of metadata (safetensors keeps several in no order).
"""

import json
import math
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue, ValidationError

from stepline.errors import StoreError
from stepline.records import FrozenModel, Rejected, Step, Transcript

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepline.curate.stage import VideoContext

NOTE = "stepline"  # the one key of metadata

Array = npt.NDArray[np.generic]


class Probed(FrozenModel):
    """What a file holds. duration: seconds, 0 where nobody tells it; digest: sha256 of the file, None without one."""

    duration: float
    picture: bool
    sound: bool
    width: int = 0
    height: int = 0
    digest: str | None = None
    warnings: tuple[str, ...] = ()


class Spoken(FrozenModel):
    """What is said. end: the last second of sound that could be read."""

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()
    end: float = 0.0
    warnings: tuple[str, ...] = ()


class Drafted(FrozenModel):
    """What a writer made of it."""

    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()


class Placed(FrozenModel):
    """Steps where they are said, and the transcript within the video. duration: seconds that can be decoded."""

    duration: float
    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


class Grounded(FrozenModel):
    """Steps where they are shown. kind: of the alignment's scores, which are the cell's array; None without any."""

    steps: tuple[Step, ...]
    rate: float = 1.0
    kind: Literal["cosine", "probability"] | None = None
    report: dict[str, JsonValue] = Field(default_factory=dict)
    doubts: tuple[str, ...] = ()


class Judged(FrozenModel):
    """The transcript with P(shown) of every sentence, and who judged; None where nobody could."""

    transcript: Transcript
    judge: str | None = None


class Looked(FrozenModel):
    """What stands beside the arrays of pictures: whose features, rows a second, the last second seen."""

    backbone: str | None = None
    rate: float = 1.0
    cuts: tuple[float, ...] | None = None  # None: no motion was measured
    end: float = 0.0
    warnings: tuple[str, ...] = ()


Part = TypeVar("Part", bound=FrozenModel)


def to_bytes(part: FrozenModel) -> bytes:
    """Return a part as JSON."""
    return part.model_dump_json().encode()


def from_bytes(kind: type[Part], data: bytes) -> Part:
    """Return a part from JSON. Raises StoreError for any other bytes."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise StoreError(f"a cell holds no {kind.__name__} ({error.error_count()} errors); remove it") from error


def result(kind: type[Part], work: "VideoContext", stage: str) -> Part:
    """Return what a stage has made of the same video."""
    return from_bytes(kind, work.results[stage])


def pack(part: FrozenModel, arrays: "Mapping[str, Array]") -> bytes:
    """Return a part with arrays, as safetensors."""
    from safetensors.numpy import save

    solid = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    return bytes(save(solid, {NOTE: part.model_dump_json()}))


def unpack(kind: type[Part], data: bytes) -> tuple[Part, dict[str, Array]]:
    """Return a part and its arrays. Raises StoreError for any other bytes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        length = int.from_bytes(data[:8], "little")
        note = json.loads(data[8 : 8 + length])["__metadata__"][NOTE]
        arrays: dict[str, Array] = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"a cell holds no arrays of {kind.__name__} ({error}); remove it") from error
    return from_bytes(kind, note.encode()), arrays


def whole(duration: float) -> float:
    """Return seconds as records keep them."""
    return round(duration, 3) if math.isfinite(duration) else 0.0
