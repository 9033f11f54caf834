"""Lines of a task with what other videos of it do: in which orders, and how many do each.

`stepline compare` makes one of many videos. What it says of a new video:

    words   that of a line's wordings counts which fits a sentence best
    order   the price of going from line i to line j in `line_model` changes by
            log P(j next | i) - log P(j next | i) of lists in general, and so does that of the end
    said    a line is less likely told than the line that most videos do, by the log odds of their
            shares of the videos
    shown   so is a line that nobody tells shown

Few videos are seen, so each P counts one video more: one that does as lists in general do. Every
weight of 0 leaves all as it is without a graph. Letters: K lines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.line_model import LinePrior, LineWording, jump_prices, load_line_weights
from stepline.grounding.settings import CoarseSettings
from stepline.records import FrozenModel, Matrix, StepKind

Array = npt.NDArray[np.float64]
Embedder: TypeAlias = Callable[[Sequence[str]], Matrix]

PRIOR_VIDEOS = 1.0  # that do as lists in general do, and either order alike


class TaskGraph(FrozenModel):
    """The steps of a task as lines, in the order of most videos.

    wordings: in which other videos do each line.
    kinds: of the lines.
    videos: how many were compared.
    counts: (K,) how many of them do each line.
    transitions: (K + 1, K) P(line j is the next of the lines after line i - 1), row 0 of the start.
    What is missing to 1 ends there.
    departures: (K + 1,) how often the videos go on from there.
    before: (K, K) P(line i comes before line j) in a video that does both.
    Raises ShapeError, by `check`, where they do not fit together.
    """

    lines: tuple[str, ...]
    wordings: tuple[tuple[str, ...], ...]
    kinds: tuple[StepKind, ...]
    videos: int
    counts: tuple[int, ...]
    transitions: tuple[tuple[float, ...], ...]
    departures: tuple[int, ...]
    before: tuple[tuple[float, ...], ...]

    def check(self) -> None:
        """Raise ShapeError where the parts do not fit together."""
        count = len(self.lines)
        shapes = (np.shape(self.transitions), np.shape(self.before))
        lengths = (len(self.wordings), len(self.kinds), len(self.counts), len(self.departures))
        is_right = shapes == ((count + 1, count), (count, count))
        if not is_right or lengths != (count, count, count, count + 1):
            raise ShapeError(f"a task graph of {count} lines has parts of {lengths} and {shapes}")

    @property
    def share_log_odds(self) -> Array:
        """(K,) nats, 0 or less: log odds that a video does each line, less those of the line that
        most do. Half a video more of either kind is added."""
        counts = np.array(self.counts, dtype=np.float64)
        half = PRIOR_VIDEOS / 2
        odds = (counts + half) / (self.videos - counts + half)
        log_odds = np.log(odds)
        greatest = log_odds.max(initial=-np.inf)
        return np.asarray(log_odds - greatest)


@dataclass(frozen=True)
class GraphPrior:
    """What a task graph says of a new video, weighed by the settings `graph_...`.

    wordings: of the graph's lines, where they count.
    """

    graph: TaskGraph
    settings: CoarseSettings
    wordings: Sequence[LineWording] = ()

    @property
    def of_lines(self) -> LinePrior:
        """What it says to `line_model`."""
        settings = self.settings
        order = None
        said_log_odds = None
        if settings.graph_order > 0:
            order = settings.graph_order * order_log_ratios(self.graph)
        if settings.graph_share > 0:
            said_log_odds = settings.graph_share * self.graph.share_log_odds
        return LinePrior(order, said_log_odds, self.wordings, settings.graph_wordings)

    @property
    def shown_log_odds(self) -> Array | None:
        """(K,) nats, 0 or less, by which a line that no one says is less likely shown. None where
        the weight is 0."""
        if self.settings.graph_share == 0:
            return None
        return self.settings.graph_share * self.graph.share_log_odds


def graph_prior(graph: TaskGraph, settings: CoarseSettings, embedder: Embedder) -> GraphPrior:
    """Return the prior of a graph, with the vectors of its wordings where they count.

    embedder: of texts as unit rows (N, D). Raises ShapeError for a graph whose parts do not fit.
    """
    graph.check()
    wordings = []
    if settings.graph_wordings > 0:
        # The first wording of each line, then the second, as far as a line has one.
        most = max(map(len, graph.wordings), default=0)
        for number in range(most):
            lines = []
            for line, others in zip(graph.lines, graph.wordings, strict=True):
                if number < len(others):
                    line = others[number]
                lines.append(line)
            wordings.append(LineWording(lines, embedder(lines)))
    return GraphPrior(graph, settings, wordings)


def order_log_ratios(graph: TaskGraph) -> Array:
    """Return log P(line j next | line i) of the task against that of lists in general, (K + 1, K +
    1). Row 0 is the start and the last column the end.

    It is 0 where a line follows itself: how long a line is said says nothing of order.
    """
    count = len(graph.lines)
    shape = (count + 1, count + 1)
    is_other = np.ones(shape)
    np.fill_diagonal(is_other[1:], 0.0)

    # lists in general
    weights = load_line_weights()
    prices = np.empty(shape)
    prices[:, :count] = jump_prices(count, weights)
    lines_left = np.arange(count, -1, -1)
    prices[:, count] = weights.end * lines_left
    in_lists = np.exp(prices) * is_other
    in_lists /= in_lists.sum(axis=1, keepdims=True)

    # the videos of the task, and one more that does as lists do
    in_videos = np.zeros(shape)
    in_videos[:, :count] = graph.transitions
    rest = 1.0 - in_videos.sum(axis=1)
    in_videos[:, count] = np.maximum(0.0, rest)
    # Moves weigh by how often the videos were at their line.
    departures = np.array(graph.departures, dtype=np.float64)
    moves = in_videos * is_other * departures[:, None]
    total = moves.sum(axis=1, keepdims=True) + PRIOR_VIDEOS
    of_task = (moves + PRIOR_VIDEOS * in_lists) / total

    # A line that follows itself stays at 0.
    ratios = np.zeros(shape)
    others = is_other > 0
    ratio = of_task[others] / in_lists[others]
    ratios[others] = np.log(ratio)
    return ratios
