"""What the video stages hand on, as the bytes of a stored result and back: JSON, or arrays with
JSON beside them.

    probe       ProbeResult                       transcribe   pipeline.understand.Speech
    write       writing.WrittenSteps              coarse       CoarseSteps
    encode      FeatureHeader + arrays            ground       GroundedSteps + alignment
    judge       JudgedTranscript

The same values give the same bytes: no clock, no path, one key of metadata (safetensors keeps
several in no order).
"""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)

from stepline.errors import StoreError
from stepline.limits import parse_json
from stepline.pipeline.understand import VisualFeatures
from stepline.records import Alignment, FeatureSequence, FrozenModel, Rejected, Step, Transcript
from stepline.vision.on_screen_text import ScreenText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepline.curate.stage import VideoContext
    from stepline.grounding.ground import Grounding
    from stepline.nasva.predict import AlignerGrounding
    from stepline.visual_questions import VisualAnswers

METADATA = "stepline"  # the one key of metadata
CUES = ("presenter", "letters")  # arrays of PictureCues

Array = npt.NDArray[np.generic]
Result = TypeVar("Result")
Header = TypeVar("Header", bound=FrozenModel)


class ProbeResult(FrozenModel):
    """What a file holds. duration: seconds, 0 where nobody tells it; digest: sha256 of the file,
    None without one."""

    duration: float
    picture: bool
    sound: bool
    width: int = 0
    height: int = 0
    digest: str | None = None
    warnings: tuple[str, ...] = ()


class CoarseSteps(FrozenModel):
    """Steps where they are said, and the transcript within the video. duration: seconds that can be
    decoded."""

    duration: float
    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


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


class GroundedSteps(FrozenModel):
    """Steps where they are shown. kind: of the alignment's scores, which are the stored array; None
    without any.

    witness: what was asked of a vision-language model and what it said; None, and not stored, where
    nobody was asked.
    """

    steps: tuple[Step, ...]
    rate: float = 1.0
    kind: Literal["cosine", "probability"] | None = None
    report: dict[str, JsonValue] = Field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    witness: dict[str, JsonValue] | None = None

    @model_serializer(mode="wrap")
    def _without_nobody(self, stored: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store the witness only where one was asked: results of before stay what they are."""
        tree: dict[str, Any] = stored(self)
        if self.witness is None:
            tree.pop("witness", None)
        return tree


class JudgedTranscript(FrozenModel):
    """The transcript with P(shown) of every sentence, and who judged; None where nobody could."""

    transcript: Transcript
    judge: str | None = None


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


def read_result(kind: type[Result], video: "VideoContext", stage: str) -> Result:
    """Return what a stage has made of the same video."""
    return from_bytes(kind, video.results[stage])


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


def pack_grounding(
    grounding: "Grounding | AlignerGrounding", answers: "VisualAnswers | None" = None
) -> bytes:
    """Return grounded steps and their alignment (K, T) as bytes; answers: of a vision-language
    model on them."""
    report, alignment = grounding.report, grounding.alignment
    header = GroundedSteps(
        steps=grounding.steps,
        rate=alignment.rate,
        kind=alignment.kind,
        report=asdict(report),
        doubts=report.doubts,
    )
    if answers is not None:
        header = header.model_copy(
            update={"witness": answers.report, "doubts": (*report.doubts, *answers.notes)}
        )
    return pack(header, {"scores": alignment.scores})


def unpack_grounding(data: bytes) -> tuple[GroundedSteps, Alignment | None]:
    """Return grounded steps and their alignment; None where nothing was to be seen."""
    grounded, arrays = unpack(GroundedSteps, data)
    if grounded.kind is None:
        return grounded, None
    texts = tuple(step.text for step in grounded.steps)
    return grounded, Alignment(
        texts, arrays["scores"].astype(np.float32), grounded.rate, grounded.kind
    )


def round_seconds(duration: float) -> float:
    """Return seconds as records keep them."""
    return round(duration, 3) if math.isfinite(duration) else 0.0
