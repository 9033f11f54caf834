"""PDVC's own results: all proposals of a video with their scores, which PDVC ranks and cuts before
it scores them.

    joint score = proposal_score + weight * sentence_score / (words^2 + 1e-5)

Of a video the `pred_event_count` best stay, in the order of their times. Source: PDVC's
eval_utils.py; the weight is that of its YouCook2 configurations.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from stepline.datasets.files import Node

Cut: TypeAlias = Literal["pdvc"]

FIELDS = ("proposal_score", "sentence_score", "pred_event_count")
CAPTION_WEIGHT = 1.0  # of a caption's likelihood beside its proposal's confidence
LENGTH_POWER = 2.0  # of the words by which a likelihood is divided
WORD_EPSILON = 1e-5  # against captions without a word
CUT_RULE = "ranked and cut as PDVC does it"
UNCUT_RULE = (
    "proposals of PDVC, more than its event counts, scored as they are; --cut pdvc ranks and cuts "
    "them as PDVC does before it scores"
)


def has_scores(rows: Sequence[Node]) -> bool:
    """Tell whether any row of a video has the fields that PDVC ranks and cuts by."""
    return any(isinstance(row.value, dict) and set(FIELDS) <= set(row.value) for row in rows)


def is_uncut(rows: Sequence[Node]) -> bool:
    """Tell whether a video has more of PDVC's proposals than PDVC counts events in it."""
    if not has_scores(rows) or not isinstance(rows[0].value, dict):
        return False
    count = rows[0].value.get("pred_event_count")
    return isinstance(count, int | float) and len(rows) > count


def cut_proposals(rows: Sequence[Node]) -> list[Node]:
    """Return the proposals of a video that PDVC scores, in the order of their times.

    Raises DatasetError for a row without PDVC's scores.
    """
    scores = [joint_score(row) for row in rows]
    ranking = sorted(range(len(rows)), key=lambda index: scores[index], reverse=True)
    counted = rows[ranking[0]]["pred_event_count"]
    if not math.isfinite(counted.number()):
        raise counted.error("a number of events")
    best = [rows[index] for index in ranking[: max(0, int(counted.number()))]]
    return sorted(best, key=lambda row: row["timestamp"].pair())


def joint_score(row: Node) -> float:
    """Return what PDVC ranks a proposal by: its confidence and its caption's likelihood."""
    words = len(row["sentence"].text().split())
    likelihood = row["sentence_score"].number() / (math.pow(words, LENGTH_POWER) + WORD_EPSILON)
    return row["proposal_score"].number() + CAPTION_WEIGHT * likelihood
