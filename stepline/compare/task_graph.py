"""The task graph of a comparison: its common steps as lines, with what the videos do of them.

    graph = read_task_graph(Path("comparison/comparison.json"))

The steps that only some videos do are not lines. A way that leads over them from one line to
another counts as one move (an absorbing Markov chain, Kemeny and Snell, 1960).
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
from stepline.grounding.task_graph import PRIOR_VIDEOS, TaskGraph
from stepline.limits import MAX_LINES_BYTES, LimitError, read_limited
from stepline.outputs.text import one_line
from stepline.pipeline.batch import read_texts

Array = npt.NDArray[np.float64]

MAX_WORDINGS = 8  # of a line, apart from its own
PROBABILITY_DECIMALS = 6
COMPARISON_CURE = "give the comparison.json that `stepline compare` wrote"


def read_task_graph(path: Path) -> TaskGraph:
    """Return the task graph of a comparison.json.

    Raises SettingsError where the file holds no comparison, or one without common steps.
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
    """The lines of `--texts`, and the task graph if they come from a comparison."""

    texts: tuple[str, ...]
    graph: TaskGraph | None = None


def read_lines(path: Path) -> LinesToFind:
    """Return the lines of a text file, or of a comparison.json with its task graph. Raises
    SettingsError for any other file."""
    if path.suffix.lower() == ".json":
        graph = read_task_graph(path)
        return LinesToFind(graph.lines, graph)
    return LinesToFind(read_texts(path))


def task_graph(comparison: TaskComparison) -> TaskGraph:
    """Return the common steps of a comparison as lines, with their order in the videos.

    Raises SettingsError where no step is common or an edge leads to an unknown step.
    """
    steps = comparison.common_steps
    if not steps:
        raise SettingsError(
            "the comparison has no common step; compare again with --set compare.common_share=0.3"
        )
    ids = [step.id for step in steps]
    videos = len(comparison.videos)
    transitions, departures = _moves_between(comparison, ids)
    return TaskGraph(
        lines=tuple(one_line(step.text) for step in steps),
        wordings=tuple(map(_other_wordings, steps)),
        kinds=tuple(step.kind for step in steps),
        videos=videos,
        # A step that a video does twice counts once.
        counts=tuple(min(step.videos, videos) for step in steps),
        transitions=_rounded_rows(transitions),
        departures=departures,
        before=_rounded_rows(_order_probabilities(comparison, ids)),
    )


def _other_wordings(step: ProcedureStep) -> tuple[str, ...]:
    """Return the other texts of a step in the videos, those of the first videos."""
    own = one_line(step.text)
    texts = [one_line(occurrence.text) for occurrence in step.occurrences]
    others = [text for text in dict.fromkeys(texts) if text != own]
    return tuple(others[:MAX_WORDINGS])


def _moves_between(comparison: TaskComparison, ids: Sequence[str]) -> tuple[Array, tuple[int, ...]]:
    """Return P(line j is the next line after position i) (K + 1, K), and the number of moves from
    each position (K + 1,). Position 0 is the start."""
    # P(step j is the next one after step i)
    nodes = [START_ID]
    nodes += [step.id for step in comparison.steps]
    number_of = {node: number for number, node in enumerate(nodes)}
    count = len(nodes)
    probabilities = np.zeros((count, count))
    outgoing_counts: Counter[str] = Counter()
    for arrow in comparison.transitions:
        outgoing_counts[arrow.source] += arrow.count
        if arrow.target == END_ID:
            continue
        if arrow.source not in number_of or arrow.target not in number_of:
            arrow_ends = f"{arrow.source} to {arrow.target}"
            raise SettingsError(f"{arrow_ends}: no such step; {COMPARISON_CURE}")
        source = number_of[arrow.source]
        target = number_of[arrow.target]
        probabilities[source, target] = arrow.probability

    # ways over the steps that are not lines. Each of them ends, so that the inverse exists.
    lines = [number_of[id] for id in ids]
    positions = [0, *lines]
    others = sorted(set(range(1, count)) - set(lines))
    moves_among_others = probabilities[np.ix_(others, others)]
    # The fundamental matrix of an absorbing chain: how often each other step is visited.
    expected_visits = np.linalg.pinv(np.eye(len(others)) - moves_among_others)
    to_others = probabilities[np.ix_(positions, others)]
    to_lines = probabilities[np.ix_(others, lines)]
    direct_moves = probabilities[np.ix_(positions, lines)]
    # One move: straight to a line, or over any number of other steps.
    moves_over_others = to_others @ expected_visits @ to_lines
    moves = np.clip(direct_moves + moves_over_others, 0.0, 1.0)
    departures = [outgoing_counts[nodes[position]] for position in positions]
    return moves, tuple(departures)


def _order_probabilities(comparison: TaskComparison, ids: Sequence[str]) -> Array:
    """Return P(line i comes before line j) (K, K), smoothed by one video of either order."""
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


def _rounded_rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    rounded = matrix.round(PROBABILITY_DECIMALS)
    return tuple(tuple(row) for row in rounded.tolist())
