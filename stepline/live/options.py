"""How a live run reports."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepline.grounding.task_graph import TaskGraph


@dataclass(frozen=True)
class LiveOptions:
    """How a live run reports.

    lag: seconds that what is shown waits for more evidence. texts: a recipe's lines to follow.
    graph: task graph of other videos of the task, whose lines the texts are.
    """

    lag: float = 2.0
    texts: tuple[str, ...] = ()
    graph: "TaskGraph | None" = None
