"""The common steps of a comparison as lines to find, with their kinds and their order in the videos.

graph = read_task_graph(Path("comparison/comparison.json"))
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from stepline.compare.procedure import TaskComparison
from stepline.errors import SettingsError
from stepline.grounding.speech import TaskGraph
from stepline.limits import MAX_LINES_BYTES, LimitError, read_limited
from stepline.outputs.text import one_line
from stepline.pipeline.batch import read_texts

Array = npt.NDArray[np.float64]

PRIOR_VIDEOS = 1.0  # videos that are added for either order of two lines
PROBABILITY_DECIMALS = 6
COMPARISON_CURE = "give the comparison.json that `stepline compare` wrote"


def read_task_graph(path: Path) -> TaskGraph:
    """Return the task graph of a comparison.json.

    Raises SettingsError if the file holds no comparison, or one without common steps.
    """
    try:
        comparison = TaskComparison.model_validate_json(read_limited(path, MAX_LINES_BYTES))
    except LimitError as error:
        raise SettingsError(f"{path}: {error}; {COMPARISON_CURE}") from error
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); {COMPARISON_CURE}"
        ) from error
    except ValidationError as error:
        raise SettingsError(f"{path}: holds no comparison of videos; {COMPARISON_CURE}") from error
    return task_graph(comparison)


class LinesToFind(NamedTuple):
    """The lines of `--texts`, and the task graph if they come from a comparison.

    Attributes:
        texts: the lines.
        graph: kinds and order of the lines in the compared videos. None: a plain text file.
    """

    texts: tuple[str, ...]
    graph: TaskGraph | None = None


def read_lines_to_find(path: Path) -> LinesToFind:
    """Return the lines of a text file, or of a comparison.json with its task graph.

    Raises SettingsError for any other file.
    """
    if path.suffix.lower() == ".json":
        graph = read_task_graph(path)
        return LinesToFind(graph.lines, graph)
    return LinesToFind(read_texts(path))


def task_graph(comparison: TaskComparison) -> TaskGraph:
    """Return the common steps of a comparison as lines, with P(one line comes before another).

    Raises SettingsError if no step is common.
    """
    steps = comparison.common_steps
    if not steps:
        raise SettingsError(
            "the comparison has no common step; compare again with --set compare.common_share=0.3"
        )
    ids = [step.id for step in steps]
    lines = [one_line(step.text) for step in steps]
    before = _order_probabilities(comparison, ids).round(PROBABILITY_DECIMALS)
    return TaskGraph(
        lines=tuple(lines),
        kinds=tuple(step.kind for step in steps),
        videos=len(comparison.videos),
        before=tuple(map(tuple, before.tolist())),
    )


def _order_probabilities(comparison: TaskComparison, ids: Sequence[str]) -> Array:
    """Return (K, K) P(line i comes before line j), as if one more video did each order.

    Args:
        comparison: the comparison, with the orders that the videos do.
        ids: ids of the K steps of the lines.
    """
    number_of = {id: number for number, id in enumerate(ids)}
    shape = (len(ids), len(ids))
    # Both orders begin with the same count, so that none is impossible.
    counts = np.full(shape, PRIOR_VIDEOS)
    for order in comparison.orders:
        if order.first in number_of and order.then in number_of:
            first = number_of[order.first]
            then = number_of[order.then]
            counts[first, then] += order.videos
            counts[then, first] += order.of - order.videos
    return np.asarray(counts / (counts + counts.T))
