"""ProcX as its papers' code computes it: with grid_sample, PyTorch's own linear layers and dropout.

The same weights, so that stepline/models/procx/model.py can be measured and tested against it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch.nn.functional as F
from plain_deformable import layer
from torch import Tensor

from stepline.models.procx import deformable_attention as attention
from stepline.models.training import layers as cpu_kernels


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
        inner = part.wide(rows).relu()
        return part.narrow(F.dropout(inner, part.dropout, part.training))

    def dropped(part: cpu_kernels.Dropout, rows: Tensor) -> Tensor:
        return F.dropout(rows, part.rate, part.training)

    changes: list[tuple[object, str, object]] = []
    if sampling:
        changes.append((attention.DeformableAttention, "forward", sampled))
    if layers:
        changes.append((cpu_kernels.FeedForward, "forward", fed))
        changes.append((cpu_kernels.Dropout, "forward", dropped))
        # no product is large enough for the kernels of stepline.models.training
        changes.append((cpu_kernels, "MIN_ONEDNN_PRODUCTS", 2**62))
    patches = [patch.object(*change) for change in changes]
    for change_patch in patches:
        change_patch.start()
    try:
        yield
    finally:
        for change_patch in patches:
            change_patch.stop()
