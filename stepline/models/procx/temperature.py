"""The temperature of ProcX's contrastive loss, learned with the network."""

import math

import torch
from torch import Tensor, nn

LEAST_TEMPERATURE = 0.01  # CLIP


class Temperature(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """The sigma of equation 15: learned, begins at 0.07, never below 0.01. Source: CoCa, CLIP. The
    paper gives none."""

    def __init__(self, start: float = 0.07) -> None:
        super().__init__()
        logarithm = torch.tensor(math.log(start))
        self.logarithm = nn.Parameter(logarithm)

    def forward(self) -> Tensor:
        """Return sigma, a scalar."""
        return self.logarithm.exp().clamp(min=LEAST_TEMPERATURE)
