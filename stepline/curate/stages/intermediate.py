"""What the video stages pass on, as the bytes of a stored result and back: JSON, or arrays with a
JSON header.

    probe       ProbeResult                       transcribe   pipeline.speech.Speech
    write       writing.WrittenSteps              coarse       CoarseSteps
    encode      FeatureHeader + arrays            ground       GroundedSteps + alignment
    judge       JudgedTranscript

The same values give the same bytes: no clock, no path, one key of metadata (safetensors keeps
several in no order).
"""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from stepline.pipeline.packed_features import Result, from_bytes, pack, unpack
from stepline.records import Alignment, FrozenModel, Rejected, Step, Transcript

if TYPE_CHECKING:
    from stepline.curate.stage import VideoContext
    from stepline.grounding.ground import Grounding
    from stepline.grounding.vision_language import VisualAnswers
    from stepline.models.nasva.predict import AlignerGrounding


class ProbeResult(FrozenModel):
    """What a file holds. duration: seconds, 0 where it is not known. digest: sha256 of the file,
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


class GroundedSteps(FrozenModel):
    """Steps where they are shown. kind: of the alignment's scores, which are the stored array. None
    without any.

    vlm: what was asked of a vision-language model and what it said. None, and not stored, where
    no model was asked.
    """

    steps: tuple[Step, ...]
    rate: float = 1.0
    kind: Literal["cosine", "probability"] | None = None
    report: dict[str, JsonValue] = Field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    vlm: dict[str, JsonValue] | None = Field(default=None, alias="witness")

    @model_serializer(mode="wrap")
    def _omit_empty_vlm_answers(self, stored: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store the answers, as "witness", only where a model was asked."""
        tree: dict[str, Any] = stored(self)
        answers = tree.pop("vlm")
        if answers is not None:
            tree["witness"] = answers
        return tree


class JudgedTranscript(FrozenModel):
    """The transcript with P(shown) of every sentence, and who judged. None where no one could."""

    transcript: Transcript
    judge: str | None = None


def read_result(kind: type[Result], video: "VideoContext", stage: str) -> Result:
    """Return what a stage has made of the same video."""
    return from_bytes(kind, video.results[stage])


def pack_grounding(
    grounding: "Grounding | AlignerGrounding", answers: "VisualAnswers | None" = None
) -> bytes:
    """Return grounded steps and their alignment (K, T) as bytes. answers: of a vision-language
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
        doubts = (*report.doubts, *answers.notes)
        header = header.model_copy(update={"vlm": answers.report, "doubts": doubts})
    return pack(header, {"scores": alignment.scores})


def unpack_grounding(data: bytes) -> tuple[GroundedSteps, Alignment | None]:
    """Return grounded steps and their alignment. This is None where nothing was to be seen."""
    grounded, arrays = unpack(GroundedSteps, data)
    # Without an alignment, nothing was grounded.
    if grounded.kind is None:
        return grounded, None
    texts = tuple(step.text for step in grounded.steps)
    scores = arrays["scores"].astype(np.float32)
    return grounded, Alignment(texts, scores, grounded.rate, grounded.kind)


def round_seconds(duration: float) -> float:
    """Return seconds as records keep them."""
    return 0.0 if not math.isfinite(duration) else round(duration, 3)
