"""How a live run reports."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepline.grounding.task_graph import TaskGraph


@dataclass(frozen=True)
class LiveOptions:
    """lag: s that what is shown waits for more evidence. texts: a recipe's lines to follow.
    graph: of other videos of the task, whose lines the texts are.

    until_next: hold a paced source at the end of each step until there is a sign that it is
    finished. Of a source that watches someone work, emit the next step at such a sign.
    """

    lag: float = 2.0
    texts: tuple[str, ...] = ()
    until_next: bool = False
    graph: "TaskGraph | None" = None
