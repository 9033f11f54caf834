"""A part of what training lowers, as every loss gives it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """A sum, and how many it is over: several processes add both up before they divide."""

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """The sum, divided; exactly 0 when it is over nothing."""
        return self.total / self.count.clamp(min=1)

    def weighted(self, weight: float) -> "Loss":
        """Return the loss with its sum multiplied."""
        return Loss(self.total * weight, self.count)
