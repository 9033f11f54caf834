"""Which clips are visual narrations, inferred from key-steps: the paper's SS, VR and MC (WYS2, section 3.1).

Letters: N clips, O tasks. Labels are (N,) bool: True means that the picture shows what is said, as far as key-steps
can tell; False is "not known to", for the paper draws its negatives by pairing clips with other clips' words.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.batches import Flags
from stepline.errors import DatasetError, ShapeError
from stepline.records import Matrix
from stepline.text import embed
from stepline.wys2.clips import Clip
from stepline.wys2.settings import LabelSettings, Mapping

Array: TypeAlias = npt.NDArray[np.float64]
Embed: TypeAlias = Callable[[Sequence[str]], Matrix]


def similarities(clips: Sequence[Clip], settings: LabelSettings, encode: Embed | None = None) -> Array:
    """Return S(narration, key-step) in [0, 1] of each clip, (N,); NaN without a key-step.

    encode: texts to unit rows, that of `settings.text_model` where none is given.
    """
    encode = encode or (lambda texts: embed(texts, model=settings.text_model))
    steps = [clip.key_step for clip in clips]
    texts = sorted({clip.text for clip in clips if clip.key_step is not None} | {text for text in steps if text})
    place = {text: row for row, text in enumerate(texts)}
    vectors = encode(texts).astype(np.float64)
    cosine = np.full(len(clips), np.nan)
    for row, clip in enumerate(clips):
        if clip.key_step is not None:
            cosine[row] = vectors[place[clip.text]] @ vectors[place[clip.key_step]]
    return mapped(cosine, settings.mapping)


def mapped(cosine: Array, mapping: Mapping) -> Array:
    """Return cosines as similarities in [0, 1]; the paper does not say how. NaN stays NaN."""
    within = np.clip(cosine, -1.0, 1.0)
    if mapping == "halved":
        return np.asarray((1 + within) / 2)
    if mapping == "angle":
        return np.asarray(1 - np.arccos(within) / np.pi)
    return np.maximum(within, 0.0)


def by_similarity(similarity: Array, settings: LabelSettings) -> Flags:
    """Return SS: clips whose narration says what their key-step says. similarity: (N,), NaN without a key-step.

    Raises DatasetError when no clip has a key-step, or none is similar enough.
    """
    known = np.isfinite(similarity)
    if not known.any():
        raise DatasetError(f"none of {len(similarity)} clips has a key-step; SS labels need key-steps with times")
    least = settings.similarity
    if settings.quantile is not None:
        least = float(np.quantile(similarity[known], 1 - settings.quantile))
    labels: Flags = known & (np.where(known, similarity, -1.0) >= least)
    if not labels.any():
        best = float(similarity[known].max())
        raise DatasetError(f"no narration reaches similarity {least:g}, the likest has {best:.2f}; lower it")
    return labels


def by_relevance(clips: Sequence[Clip]) -> Flags:
    """Return VR: clips with any key-step. Raises DatasetError when there is none."""
    return by_relevance_of(np.array([clip.key_step is not None for clip in clips], dtype=np.bool_))


def by_relevance_of(has_step: Flags) -> Flags:
    """Return VR of clips of which is known whether they show a key-step, (N,). Raises DatasetError when none does."""
    if not has_step.any():
        raise DatasetError(f"none of {len(has_step)} clips has a key-step; VR labels need key-steps with times")
    return has_step


def by_consensus(tasks: npt.NDArray[np.int64], video: Array, text: Array, settings: LabelSettings) -> Flags:
    """Return MC: clips that rank high for their own task by the picture and by the words.

    tasks: (N,) each clip's own; video, text: (N, O) the classifiers' log probabilities. `ranking` "clips": among the
    best `rank` share of the clips of their task; "tasks": their own task is among the `rank` likeliest.
    Raises DatasetError when no clip does.
    """
    if video.shape != text.shape or video.ndim != 2 or tasks.shape != video.shape[:1]:
        raise ShapeError(f"need (N,) tasks and two (N, O) scores, not {tasks.shape}, {video.shape} and {text.shape}")
    labels = _ranked(tasks, video, settings) & _ranked(tasks, text, settings)
    if not labels.any():
        raise DatasetError(f"no clip ranks within {settings.rank:g} by picture and words; raise labels.rank")
    return labels


def _ranked(tasks: npt.NDArray[np.int64], scores: Array, settings: LabelSettings) -> Flags:
    own = scores[np.arange(len(tasks)), tasks]
    if settings.ranking == "tasks":
        return np.asarray((scores > own[:, None]).sum(axis=1) + 1 <= settings.rank)
    kept = np.zeros(len(tasks), dtype=np.bool_)
    for task in set(tasks.tolist()):
        rows = np.flatnonzero(tasks == task)
        best = rows[np.argsort(-own[rows], kind="stable")]
        kept[best[: round(settings.rank * len(rows))]] = True
    return kept
