"""The user's own lines (a recipe) as steps: each said where the narration most resembles it, if anywhere."""

import math
from collections.abc import Sequence

import numpy as np

from stepline.errors import ShapeError
from stepline.nasva.coarse import coarse_spans
from stepline.nasva.settings import CoarseSettings
from stepline.records import Matrix, Step, Transcript


def place_texts(
    texts: Sequence[str],
    transcript: Transcript,
    sentence_vectors: Matrix,
    text_vectors: Matrix,
    *,
    settings: CoarseSettings | None = None,
) -> tuple[Step, ...]:
    """Return one step a text, in the order given, with `said` and `sources` where the narration speaks of it.

    sentence_vectors: (S, D), text_vectors: (K, D), of one sentence encoder. A text that no sentence resembles (cosine
    below `likeness`, or the floor of section 3.1) keeps said=None; so does every text when nobody speaks.
    Raises ShapeError when the vectors do not fit.
    """
    settings = settings or CoarseSettings()
    steps = tuple(Step(id=str(number), text=text) for number, text in enumerate(texts, start=1))
    sentences = transcript.sentences
    if not steps or not sentences:
        return steps
    cosine = _cosine(text_vectors, sentence_vectors, (len(steps), len(sentences)))  # (K, S)
    alike = [step for step, row in zip(steps, cosine, strict=True) if row.max() >= settings.likeness]
    chosen = cosine[cosine.max(axis=1) >= settings.likeness]
    duration = float(math.ceil(max(sentence.span.end for sentence in sentences)))
    kept, _ = coarse_spans(alike, sentences, chosen, duration=duration, settings=settings)
    said = {step.id: step.model_copy(update={"score": None}) for step in kept}
    return tuple(said.get(step.id, step) for step in steps)


def _cosine(texts: Matrix, sentences: Matrix, shape: tuple[int, int]) -> Matrix:
    if texts.ndim != 2 or sentences.ndim != 2 or texts.shape[1] != sentences.shape[1]:
        raise ShapeError(f"text vectors {texts.shape} and sentence vectors {sentences.shape} must share their width")
    if (len(texts), len(sentences)) != shape:
        raise ShapeError(f"need one vector a text and a sentence: {shape}, not {(len(texts), len(sentences))}")
    scale = np.linalg.norm(texts, axis=1)[:, None] * np.linalg.norm(sentences, axis=1)
    return np.asarray(texts @ sentences.T / np.maximum(scale, 1e-12), dtype=np.float32)
