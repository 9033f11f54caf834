"""The alignment matrices of many videos at once, those of like length together."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from stepline.batches import LONGEST, Sample, bucketed, collate
from stepline.nasva.model import Aligned, Aligner
from stepline.records import Matrix

BATCH = 16  # videos


def alignment_matrices(network: Aligner, samples: Sequence[Sample]) -> list[Matrix]:
    """Return the cosines (K, T) of every video's texts, in the order given; the network ends at rest.

    A video of more than `LONGEST` rows is seen whole, as no training saw it; labels are of no effect.
    """
    found: list[Matrix] = [np.zeros((0, 0), dtype=np.float32)] * len(samples)
    for chosen, aligned in _aligned(network, samples):
        for index, scores in zip(chosen, aligned.scores.cpu().numpy(), strict=True):
            found[index] = scores[: len(samples[index].text), : len(samples[index].video)].copy()
    return found


def alignable_logits(network: Aligner, samples: Sequence[Sample]) -> list[Matrix]:
    """Return the alignability head's logits (K,) of every video's texts; of a network without a head, none."""
    found: list[Matrix] = [np.zeros(0, dtype=np.float32)] * len(samples)
    for chosen, aligned in _aligned(network, samples):
        if aligned.alignable is not None:
            for index, logits in zip(chosen, aligned.alignable.cpu().numpy(), strict=True):
                found[index] = logits[: len(samples[index].text)].copy()
    return found


def _aligned(network: Aligner, samples: Sequence[Sample]) -> Iterator[tuple[tuple[int, ...], Aligned]]:
    """Yield what the network says of each batch, and which samples the batch holds."""
    network.eval()
    device = next(network.parameters()).device
    lengths = samples.lengths if hasattr(samples, "lengths") else [len(sample.video) for sample in samples]
    for chosen in bucketed(lengths, BATCH, seed=0, epoch=0):
        batch = collate([samples[index] for index in chosen], max(LONGEST, *lengths))
        with torch.inference_mode():
            aligned = network(batch.to(device))
        yield chosen, aligned
