"""The steps of many videos of one task as one procedure: what all do, what some do, in which
orders."""

from stepline.compare.procedure import TaskComparison, compare

__all__ = ["TaskComparison", "compare"]
