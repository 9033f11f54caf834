"""How many aligned steps each task has, beside those that a text base tells of it (NaSVA, figure 6a)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepline.sieve_swap.text_base.likeness import normal_words
from stepline.sieve_swap.text_base.lines import Document

_HOW_TO = re.compile(r"^\s*how\s+to\s+", re.IGNORECASE)
TOP = 20  # tasks shown


@dataclass(frozen=True)
class TaskSteps:
    """Of one task: steps of the dataset with a time, and the steps of the base's documents of that title."""

    task: str
    aligned: int
    told: int
    documents: int


def task_steps(aligned: Mapping[str, int], documents: Iterable[Document]) -> list[TaskSteps]:
    """Return the tasks that the base has a document of, those with most steps in the base first, at most TOP.

    A document is of a task when its title has the same normal words, "how to" left out.
    """
    tasks = {_title(task): task for task in sorted(aligned)}
    told: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for document in documents:
        task = tasks.get(_title(document.title))
        if task is not None:
            told[task] += len(document.steps)
            count[task] += 1
    rows = [TaskSteps(task, aligned[task], told[task], count[task]) for task in told]
    return sorted(rows, key=lambda row: (-row.told, row.task))[:TOP]


def _title(text: str) -> tuple[str, ...]:
    return normal_words(_HOW_TO.sub("", text))
