"""Visual features as bytes and back: arrays in safetensors, with a JSON header."""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, FrozenModel
from stepline.vision.on_screen_text import ScreenText

if TYPE_CHECKING:
    from collections.abc import Mapping


METADATA = "stepline"  # the one key of metadata
CUES = ("presenter", "letters")  # arrays of PictureCues
Array = npt.NDArray[np.generic]
Result = TypeVar("Result")
Header = TypeVar("Header", bound=FrozenModel)


class FeatureHeader(FrozenModel):
    """What stands beside the arrays of pictures: whose features, rows a second, the last second
    seen."""

    backbone: str | None = None
    rate: float = 1.0
    cuts: tuple[float, ...] | None = None  # None: no motion was measured
    end: float = 0.0
    warnings: tuple[str, ...] = ()
    # of text in the picture; None: no cue was looked for
    lines: tuple[ScreenText, ...] | None = None


def to_bytes(result: object) -> bytes:
    """Return a result as JSON."""
    return _adapter(type(result)).dump_json(result)


def from_bytes(kind: type[Result], data: bytes) -> Result:
    """Return a result from JSON. Raises StoreError for any other bytes."""
    try:
        result: Result = _adapter(kind).validate_json(data)
        return result
    except ValidationError as error:
        raise StoreError(
            f"a stored result is no {kind.__name__} ({error.error_count()} errors); remove it"
        ) from error


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}  # making one takes milliseconds


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def pack(header: FrozenModel, arrays: "Mapping[str, Array]") -> bytes:
    """Return a header with arrays, as safetensors."""
    from safetensors.numpy import save

    contiguous = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    return bytes(save(contiguous, {METADATA: header.model_dump_json()}))


def unpack(kind: type[Header], data: bytes) -> tuple[Header, dict[str, Array]]:
    """Return a header and its arrays. Raises StoreError for any other bytes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        length = int.from_bytes(data[:8], "little")
        header = parse_json(data[8 : 8 + length])["__metadata__"][METADATA]
        arrays: dict[str, Array] = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"a stored result has no arrays of {kind.__name__} ({error}); remove it"
        ) from error
    return from_bytes(kind, header.encode()), arrays


def pack_features(visual: VisualFeatures) -> bytes:
    """Return the visual features of a video as bytes: halves, as a feature store keeps them; no
    backbone."""
    arrays: dict[str, Array] = {}
    backbone, rate, cuts = None, 1.0, None
    if visual.features is not None:
        arrays["features"] = visual.features.values.astype(np.float16)
        backbone, rate = visual.features.backbone, visual.features.rate
    if visual.activity is not None:
        arrays |= {"motion": visual.activity.motion, "peaks": visual.activity.peaks}
        arrays["looks"] = visual.activity.looks.astype(np.float16)
        cuts, rate = tuple(float(cut) for cut in visual.activity.cuts), visual.activity.rate
    lines = None
    if visual.cues is not None:
        arrays |= {name: getattr(visual.cues, name) for name in CUES}
        lines, rate = visual.cues.lines, visual.cues.rate
    header = FeatureHeader(
        backbone=backbone,
        rate=rate,
        cuts=cuts,
        end=visual.end,
        warnings=visual.warnings,
        lines=lines,
    )
    return pack(header, arrays)


def unpack_features(data: bytes) -> VisualFeatures:
    """Return the visual features of a video, without a backbone."""
    from stepline.vision import Activity, PictureCues

    header, arrays = unpack(FeatureHeader, data)
    features, activity = None, None
    if "features" in arrays and header.backbone is not None:
        features = FeatureSequence(
            arrays["features"].astype(np.float32), header.rate, header.backbone
        )
    if header.cuts is not None:
        motion, peaks, looks = (
            arrays[name].astype(np.float32) for name in ("motion", "peaks", "looks")
        )
        activity = Activity(motion, header.cuts, header.rate, peaks, looks)
    cues = None
    if header.lines is not None:
        cues = PictureCues(
            header.rate,
            **{name: arrays[name].astype(np.float32) for name in CUES},
            lines=header.lines,
        )
    return VisualFeatures(features, activity, None, header.end, header.warnings, cues)
