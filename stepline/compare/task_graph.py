"""The task graph of a comparison: its common steps as lines, with what the videos do of them.

    graph = read_task_graph(Path("comparison/comparison.json"))

The steps that only some videos do are no lines. A way that leads over them from one line to another
counts as one move (an absorbing Markov chain; Kemeny and Snell, 1960).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from stepline.compare.procedure import END_ID, START_ID, ProcedureStep, TaskComparison
from stepline.errors import SettingsError
from stepline.grounding.task_graph import LIST_VIDEOS, TaskGraph
from stepline.limits import MAX_LINES_BYTES, LimitError, read_limited
from stepline.outputs.text import one_line
from stepline.pipeline.batch import read_texts

Array = npt.NDArray[np.float64]

MAX_WORDINGS = 8  # of a line, besides its own
DECIMALS = 6  # of a probability
CURE = "give the comparison.json that `stepline compare` wrote"


def read_task_graph(path: Path) -> TaskGraph:
    """Return the task graph of a comparison.json.

    Raises SettingsError where the file holds no comparison, or one without common steps.
    """
    try:
        comparison = TaskComparison.model_validate_json(read_limited(path, MAX_LINES_BYTES))
    except LimitError as error:
        raise SettingsError(f"{path}: {error}; {CURE}") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); {CURE}") from error
    except ValidationError as error:
        raise SettingsError(f"{path}: holds no comparison of videos; {CURE}") from error
    return task_graph(comparison)


class LinesToFind(NamedTuple):
    """What `--texts` names. graph: of the comparison whose lines the texts are; None: of a text."""

    texts: tuple[str, ...]
    graph: TaskGraph | None = None


def read_lines(path: Path) -> LinesToFind:
    """Return the lines of a text file, or those of a comparison.json with its task graph.

    Raises SettingsError where the file holds neither.
    """
    if path.suffix.lower() == ".json":
        graph = read_task_graph(path)
        return LinesToFind(graph.lines, graph)
    return LinesToFind(read_texts(path))


def task_graph(comparison: TaskComparison) -> TaskGraph:
    """Return the common steps of a comparison as lines, with their order in the videos.

    Raises SettingsError where no step is common or an arrow leads to no step.
    """
    steps = comparison.common_steps
    if not steps:
        cure = "compare again with --set compare.common_share=0.3"
        raise SettingsError(f"the comparison has no common step; {cure}")
    ids = [step.id for step in steps]
    transitions, departures = _moves_between(comparison, ids)
    return TaskGraph(
        lines=tuple(one_line(step.text) for step in steps),
        wordings=tuple(map(_wordings, steps)),
        kinds=tuple(step.kind for step in steps),
        videos=len(comparison.videos),
        counts=tuple(min(step.videos, len(comparison.videos)) for step in steps),
        transitions=_rows(transitions),
        departures=departures,
        before=_rows(_order_probabilities(comparison, ids)),
    )


def _wordings(step: ProcedureStep) -> tuple[str, ...]:
    """Return the other words in which videos do a step, those of the first videos."""
    texts = [one_line(occurrence.text) for occurrence in step.occurrences]
    others = [text for text in dict.fromkeys(texts) if text != one_line(step.text)]
    return tuple(others[:MAX_WORDINGS])


def _moves_between(comparison: TaskComparison, ids: Sequence[str]) -> tuple[Array, tuple[int, ...]]:
    """Return P(line j is the next line after position i), (K + 1, K), and how often the videos go
    on from each position, (K + 1,)."""
    nodes = [START_ID]
    nodes += [step.id for step in comparison.steps]
    number_of = {node: number for number, node in enumerate(nodes)}
    chances = np.zeros((len(nodes), len(nodes)))
    leaving: Counter[str] = Counter()
    for arrow in comparison.transitions:
        leaving[arrow.source] += arrow.count
        if arrow.target == END_ID:
            continue
        if arrow.source not in number_of or arrow.target not in number_of:
            raise SettingsError(f"{arrow.source} to {arrow.target}: no such step; {CURE}")
        chances[number_of[arrow.source], number_of[arrow.target]] = arrow.probability
    lines = [number_of[id] for id in ids]
    positions = [0, *lines]
    others = sorted(set(range(1, len(nodes))) - set(lines))
    # every way of a video ends, so that the inverse exists
    ways = np.linalg.pinv(np.eye(len(others)) - chances[np.ix_(others, others)])
    direct = chances[np.ix_(positions, lines)]
    over_others = chances[np.ix_(positions, others)] @ ways @ chances[np.ix_(others, lines)]
    moves = np.clip(direct + over_others, 0.0, 1.0)
    departures = tuple(leaving[nodes[position]] for position in positions)
    return moves, departures


def _order_probabilities(comparison: TaskComparison, ids: Sequence[str]) -> Array:
    """Return P(line i comes before line j), (K, K), with one video more of either order."""
    number_of = {id: number for number, id in enumerate(ids)}
    counts = np.full((len(ids), len(ids)), LIST_VIDEOS)
    for order in comparison.orders:
        if order.first in number_of and order.then in number_of:
            first = number_of[order.first]
            then = number_of[order.then]
            counts[first, then] += order.videos
            counts[then, first] += order.of - order.videos
    return np.asarray(counts / (counts + counts.T))


def _rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.round(DECIMALS).tolist())
