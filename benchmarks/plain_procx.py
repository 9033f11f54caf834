"""ProcX as its papers' code computes it: points sampled with grid_sample, PyTorch's own linear
layers and dropout.

The same weights, so that stepline/procx/model.py can be measured and tested against it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch.nn.functional as F
from plain_deformable import layer
from torch import Tensor

from stepline.procx import deformable_attention as attention
from stepline.training import layers as cpu_kernels


@contextmanager
def plain(*, sampling: bool = True, layers: bool = True) -> Iterator[None]:
    """Within it, every network samples its points (`sampling`), and every layer is PyTorch's own
    (`layers`)."""

    def sampled(
        attend: attention.DeformableAttention,
        query: Tensor,
        references: Tensor,
        memory: Tensor,
        lengths: tuple[int, ...],
        pad: Tensor | None = None,  # noqa: ARG001   # no video of a benchmark is empty
    ) -> Tensor:
        return layer(attend, query, references, memory, lengths)

    def fed(part: cpu_kernels.FeedForward, rows: Tensor) -> Tensor:
        return part.narrow(F.dropout(part.wide(rows).relu(), part.dropout, part.training))

    def dropped(part: cpu_kernels.Dropout, rows: Tensor) -> Tensor:
        return F.dropout(rows, part.rate, part.training)

    changes = [(attention.DeformableAttention, "forward", sampled)] if sampling else []
    changes += (
        [(cpu_kernels.FeedForward, "forward", fed), (cpu_kernels.Dropout, "forward", dropped)]
        if layers
        else []
    )
    changes += [(cpu_kernels, "MIN_ONEDNN_PRODUCTS", 2**62)] if layers else []
    patches = [patch.object(*change) for change in changes]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
