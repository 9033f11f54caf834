"""What the video stages pass on, as the bytes of a stored result and back: JSON, or arrays with a
JSON header.

    probe       ProbeResult                       transcribe   pipeline.speech.Speech
    write       writing.WrittenSteps              coarse       CoarseSteps
    encode      FeatureHeader + arrays            ground       GroundedSteps + alignment
    judge       JudgedTranscript

The same values give the same bytes: no clock, no path, one key of metadata (safetensors keeps
several in no order).
"""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from stepline.curate.stage import VideoContext
from stepline.errors import StoreError
from stepline.grounding.ground import Grounding
from stepline.limits import read_safetensors_header
from stepline.models.nasva.predict import AlignerGrounding
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, FrozenModel, Rejected, Step, Transcript
from stepline.vision import Activity
from stepline.vision.on_screen_text import ScreenText

if TYPE_CHECKING:
    from stepline.grounding.vision_language import VisualAnswers


METADATA_KEY = "stepline"  # the one key of metadata
Array = npt.NDArray[np.generic]
Result = TypeVar("Result")
Header = TypeVar("Header", bound=FrozenModel)


class ProbeResult(FrozenModel):
    """The result of the stage `probe`: what a video file holds.

    Attributes:
        duration: seconds, 0 if unknown.
        picture: whether it has a video stream.
        sound: whether it has an audio stream.
        width: width of the picture in pixels.
        height: height of the picture in pixels.
        digest: sha256 of the file, None without a file.
        warnings: messages of the decoder.
    """

    duration: float
    picture: bool
    sound: bool
    width: int = 0
    height: int = 0
    digest: str | None = None
    warnings: tuple[str, ...] = ()


class CoarseSteps(FrozenModel):
    """The result of the stage `coarse`: steps with the seconds in which they are spoken.

    Attributes:
        duration: seconds that can be decoded.
        transcript: sentences within the duration.
        steps: steps whose `said` is the span of their sentences.
        dropped: steps and sentences that are left out.
        warnings: messages of all stages so far.
    """

    duration: float
    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


class GroundedSteps(FrozenModel):
    """The result of the stage `ground`: steps with the seconds in which they are shown.

    Attributes:
        steps: steps with spans.
        rate: columns of the alignment matrix per second.
        kind: meaning of the alignment scores, which are stored as an array. None without an
            alignment.
        report: diagnostics of the grounding by name.
        doubts: warnings of the grounding.
        vlm: requests to a vision-language model and its answers. None if no model was asked.
    """

    steps: tuple[Step, ...]
    rate: float = 1.0
    kind: Literal["cosine", "probability"] | None = None
    report: dict[str, JsonValue] = Field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    # Stored under the key "witness", and only if a model was asked.
    vlm: dict[str, JsonValue] | None = Field(
        default=None, alias="witness", exclude_if=lambda answers: answers is None
    )


class JudgedTranscript(FrozenModel):
    """The result of the stage `judge`: the transcript with P(shown) of each sentence.

    Attributes:
        transcript: sentences with their P(shown).
        judge: who judged. None without a detector.
    """

    transcript: Transcript
    judge: str | None = None


def read_result(kind: type[Result], video: VideoContext, stage: str) -> Result:
    """Return the result of an earlier stage for the same video.

    Args:
        kind: class of the result.
        video: inputs of the current stage.
        stage: name of the earlier stage.
    """
    return load_result(kind, video.results[stage])


def pack_grounding(
    grounding: "Grounding | AlignerGrounding", answers: "VisualAnswers | None" = None
) -> bytes:
    """Return grounded steps and their alignment (K steps, T rows) as bytes.

    answers: answers of a vision-language model. None if no model was asked.
    """
    report, alignment = grounding.report, grounding.alignment
    header = GroundedSteps(
        steps=grounding.steps,
        rate=alignment.rate,
        kind=alignment.kind,
        report=asdict(report),
        doubts=(*report.warnings, *(answers.notes if answers else ())),
        witness=answers.report if answers else None,
    )
    return pack_arrays(header, {"scores": alignment.scores})


def round_seconds(duration: float) -> float:
    """Return seconds rounded to milliseconds, 0 for infinity and NaN."""
    return 0.0 if not math.isfinite(duration) else round(duration, 3)


class FeatureHeader(FrozenModel):
    """Metadata of the arrays that the stage `encode` stores.

    Attributes:
        backbone: name of the vision backbone, None without features.
        rate: rows of the arrays per second.
        cuts: seconds of shot boundaries. None if motion was not measured.
        end: last decoded second.
        warnings: messages of the decoder.
        lines: text on screen. None: earlier versions did not look for it.
    """

    backbone: str | None = None
    rate: float = 1.0
    cuts: tuple[float, ...] | None = None  # None: no motion was measured
    end: float = 0.0
    warnings: tuple[str, ...] = ()
    lines: tuple[ScreenText, ...] | None = None


def dump_result(result: object) -> bytes:
    """Return a result of a stage as JSON."""
    return _type_adapter(type(result)).dump_json(result)


def load_result(kind: type[Result], data: bytes) -> Result:
    """Return a result of a stage from JSON.

    kind: class of the result.

    Raises StoreError for any other bytes.
    """
    try:
        result: Result = _type_adapter(kind).validate_json(data)
        return result
    except ValidationError as error:
        raise StoreError(
            f"a stored result is not a {kind.__name__} ({error.error_count()} errors); remove it"
        ) from error


# Making an adapter takes milliseconds.
_type_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def pack_arrays(header: FrozenModel, arrays: "Mapping[str, Array]") -> bytes:
    """Return metadata and arrays in the safetensors format."""
    # In one order, however the caller built the mapping.
    contiguous = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    return bytes(save(contiguous, {METADATA_KEY: header.model_dump_json(by_alias=True)}))


def unpack_arrays(kind: type[Header], data: bytes) -> tuple[Header, dict[str, Array]]:
    """Return metadata and arrays from the safetensors format.

    kind: class of the metadata.

    Raises StoreError for any other bytes.
    """
    try:
        # The library's reader drops metadata.
        header = read_safetensors_header(io.BytesIO(data))[0]["__metadata__"][METADATA_KEY]
        arrays: dict[str, Array] = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"a stored result has no arrays of {kind.__name__} ({error}); remove it"
        ) from error
    return load_result(kind, header.encode()), arrays


def pack_features(visual: VisualFeatures) -> bytes:
    """Return visual features as bytes, in float16 like those of a feature store."""
    arrays: dict[str, Array] = {}
    header = FeatureHeader(end=visual.end, warnings=visual.warnings, lines=visual.on_screen)
    facts: dict[str, Any] = {}
    features = visual.features
    activity = visual.activity

    # what was seen and how it moves, if it is there
    if features is not None:
        arrays["features"] = features.values.astype(np.float16)
        facts["backbone"] = features.backbone
        facts["rate"] = features.rate
    if activity is not None:
        arrays["motion"] = activity.motion
        arrays["peaks"] = activity.peak_changes
        arrays["looks"] = activity.thumbnails.astype(np.float16)
        facts["cuts"] = tuple(map(float, activity.cuts))
        facts["rate"] = activity.rate
    return pack_arrays(header.model_copy(update=facts), arrays)


def unpack_features(data: bytes) -> VisualFeatures:
    """Return visual features from stored bytes, without the backbone that made them."""
    header, stored = unpack_arrays(FeatureHeader, data)
    rate = header.rate
    # Whatever is stored as halves is computed in float32.
    arrays = {name: array.astype(np.float32) for name, array in stored.items()}

    # what was seen and how it moves, if it is there
    features = None
    activity = None
    if "features" in arrays and header.backbone is not None:
        features = FeatureSequence(arrays["features"], rate, header.backbone)
    if header.cuts is not None:
        activity = Activity(arrays["motion"], header.cuts, rate, arrays["peaks"], arrays["looks"])
    return VisualFeatures(
        features=features,
        activity=activity,
        end=header.end,
        warnings=header.warnings,
        on_screen=header.lines or (),
    )
