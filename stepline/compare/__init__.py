"""The steps of many videos of one task as one procedure: what all do, what some do, in which
orders."""

from stepline.compare.procedure import Comparison, compare

__all__ = ["Comparison", "compare"]
