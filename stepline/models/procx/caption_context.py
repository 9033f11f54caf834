"""What a captioner is given, and what it makes of it.

Letters: M captions of B videos, T feature rows, A transcript tokens, P positions of all levels, W
tokens, D width, V vocabulary, d projection.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class CaptionContext:
    """What M captions are about.

    queries: (M, D).
    features: (B, T, D) fused rows of the videos, or None.
    video: (M,) whose each caption is.
    feature_pad: (B, T).
    transcript: (M, A) tokens of what is said around each, or None.
    transcript_pad: (M, A).
    For the LSTM alone:
    levels: (B, P, D), `lengths` positions of each one after the other. feature_pad is (B, P) then.
    boxes: (M, 2), the center and length of each caption's step.
    """

    queries: Tensor
    features: Tensor | None = None
    video: Tensor | None = None
    feature_pad: Tensor | None = None
    transcript: Tensor | None = None
    transcript_pad: Tensor | None = None
    levels: Tensor | None = None
    lengths: tuple[int, ...] = ()
    boxes: Tensor | None = None


@dataclass(frozen=True)
class CaptionerOutput:
    """What the captioner says.

    logits: (M, W, V) of each next token.
    text_vectors: (M, d), unit vectors of the sentences, None without any.
    """

    logits: Tensor
    text_vectors: Tensor | None
