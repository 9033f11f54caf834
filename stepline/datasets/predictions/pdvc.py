"""PDVC's own results: all proposals of a video with their scores, which PDVC ranks and cuts before
it scores them.

    joint score = proposal_score + weight * sentence_score / (words^2 + 1e-5)

Of a video the `pred_event_count` best stay, in the order of their times. Source: PDVC's
eval_utils.py. The weight is that of its YouCook2 configurations.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from stepline.datasets.files import Node

Cut: TypeAlias = Literal["pdvc"]

SCORE_FIELDS = ("proposal_score", "sentence_score", "pred_event_count")
CAPTION_WEIGHT = 1.0  # of a caption's likelihood next to its proposal's confidence
LENGTH_POWER = 2.0  # of the words by which a likelihood is divided
WORD_EPSILON = 1e-5  # against captions without a word
CUT_RULE = "ranked and cut as PDVC does it"
UNCUT_RULE = (
    "proposals of PDVC, more than its event counts, scored as they are; --cut pdvc ranks and cuts "
    "them as PDVC does before it scores"
)


def has_scores(rows: Sequence[Node]) -> bool:
    """Return whether any row of a video has the fields that PDVC ranks and cuts by."""
    fields = set(SCORE_FIELDS)
    return any(isinstance(row.value, dict) and fields <= row.value.keys() for row in rows)


def is_uncut(rows: Sequence[Node]) -> bool:
    """Return whether a video has more of PDVC's proposals than PDVC counts events in it."""
    if not has_scores(rows):
        return False
    first = rows[0].value
    if not isinstance(first, dict):
        return False
    count = first.get("pred_event_count")
    return isinstance(count, int | float) and len(rows) > count


def cut_proposals(rows: Sequence[Node]) -> list[Node]:
    """Return the proposals of a video that PDVC scores, in the order of their times.

    Raises DatasetError for a row without PDVC's scores.
    """
    scores = [joint_score(row) for row in rows]
    ranking = sorted(range(len(rows)), key=scores.__getitem__, reverse=True)
    # How many stay is what the best proposal says.
    likeliest = rows[ranking[0]]
    event_count = likeliest["pred_event_count"]
    number = event_count.number()
    if not math.isfinite(number):
        raise event_count.error("a number of events")
    size = max(0, int(number))
    best = []
    for index in ranking[:size]:
        best.append(rows[index])
    return sorted(best, key=_times)


def joint_score(row: Node) -> float:
    """Return what PDVC ranks a proposal by: its confidence and its caption's likelihood."""
    words = len(row["sentence"].text().split())
    length = math.pow(words, LENGTH_POWER) + WORD_EPSILON
    likelihood = row["sentence_score"].number() / length
    return row["proposal_score"].number() + CAPTION_WEIGHT * likelihood


def _times(row: Node) -> tuple[float, float]:
    """Return the start and end of a proposal."""
    return row["timestamp"].pair()
