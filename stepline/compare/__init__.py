"""The steps of many videos of one task as one procedure: common and optional steps, in which
orders."""

from stepline.compare.procedure import TaskComparison, compare
from stepline.compare.task_graph import read_task_graph, task_graph

__all__ = ["TaskComparison", "compare", "read_task_graph", "task_graph"]
