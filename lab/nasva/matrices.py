"""Alignment matrices of videos that are in memory, and labels from them: what trials and tests ask of
`stepline.models.nasva.pseudo_labels`, a video at a time there. Letters: K texts, T feature rows.
"""

from collections.abc import Sequence

import numpy as np

from stepline.errors import ShapeError
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.pseudo_labels import (
    StepSpans,
    StepVideo,
    choose_labels,
    find_label_candidates,
    iterate_matrices,
    iterate_outputs,
)
from stepline.models.nasva.settings import RefineSettings
from stepline.models.training.batches import Sample
from stepline.records import FeatureSequence, Matrix


def step_video(id: str, features: FeatureSequence, vectors: Matrix, spans: StepSpans) -> StepVideo:
    """Return a video whose features and vectors are in memory.

    spans: where the steps are said. Raises ShapeError when they do not fit together.
    """
    if len(spans) != len(vectors):
        raise ShapeError(f"{id}: {len(vectors)} step vectors need as many places, not {len(spans)}")
    rows = len(features.values)
    return StepVideo(id, spans, rows, features.rate, lambda: (features, vectors))


def relabel(
    matrices: Sequence[Sequence[Matrix]],
    rates: Sequence[float],
    settings: RefineSettings | None = None,
) -> tuple[StepSpans, ...]:
    """Return a label, or none, for each text of each video.

    matrices: one or several teachers' cosines (K, T) of every video. They are averaged, and the
    teachers must agree where the settings say so. rates: feature rows per second. Raises ShapeError
    when fewer than `least_kept` of the texts keep a label, or the teachers saw other videos.
    """
    settings = settings or RefineSettings()
    counts = {len(of_teacher) for of_teacher in matrices}
    if counts != {len(rates)}:
        raise ShapeError(
            f"need the matrices of at least one teacher, each of all {len(rates)} videos"
        )
    by_video = zip(*matrices, strict=True)
    candidates = []
    for of_video, rate in zip(by_video, rates, strict=True):
        candidates.append(find_label_candidates(of_video, rate, settings))
    return choose_labels(candidates, settings)


def alignment_matrices(network: Aligner, samples: Sequence[Sample]) -> list[Matrix]:
    """Return the cosines (K, T) of every video's texts, in the order of the samples."""
    matrices: list[Matrix] = [np.zeros((0, 0), dtype=np.float32)] * len(samples)
    for index, (scores,) in iterate_matrices([network], samples):
        matrices[index] = scores
    return matrices


def alignable_logits(network: Aligner, samples: Sequence[Sample]) -> list[Matrix]:
    """Return the alignability head's logits (K,) of every video's texts.

    They are empty for a network without a head.
    """
    logits: list[Matrix] = [np.zeros(0, dtype=np.float32)] * len(samples)
    for indices, videos, (output,) in iterate_outputs([network], samples):
        if output.alignability_logits is not None:
            rows = output.alignability_logits.cpu().numpy()
            for index, sample, row in zip(indices, videos, rows, strict=True):
                logits[index] = row[: len(sample.text)].copy()
    return logits
