"""Described videos scored as `stepline evaluate youcook2` and `tasty` do: SODA-C, SODA-D and densevid_eval.

The convention is "stepline": every withheld video counts, one without a prediction 0. All in per cent.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from stepline.evaluate.densevid import densevid
from stepline.evaluate.events import Event, overlap, times
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.soda import soda
from stepline.experiments.procx_trial import View
from stepline.procx.choosing import Proposals
from stepline.procx.describe import Choose
from stepline.store import write_atomic

METRICS = ("SODA-C", "METEOR", "CIDEr", "BLEU-4", "SODA-D", "F1")  # the order of the paper's columns

Events = Mapping[str, Sequence[Event]]


def score_events(reference: Events, given: Events) -> dict[str, float]:
    """Return the metrics of `METRICS`, and how many steps a video was given. Both: id -> (start, end, sentence)."""
    words = densevid([reference], given, meteor=_meteor()).mean
    return {
        "SODA-C": 100 * soda(reference, given, kind="c", meteor=_meteor()).f1,
        "SODA-D": 100 * soda(reference, given, kind="d").f1,
        **{name: 100 * words[name] for name in ("METEOR", "CIDEr", "BLEU-4", "F1")},
        "steps": float(np.mean([len(given.get(video, ())) for video in reference])),
    }


@lru_cache(maxsize=1)
def _meteor() -> Meteor:
    return Meteor()


def write_reference(path: Path, reference: Events, durations: Mapping[str, float]) -> None:
    """Write the truth in YouCook2's flat form, as `stepline evaluate --reference` reads it."""
    tree = {
        video: {
            "duration": durations[video],
            "timestamps": [event[:2] for event in events],
            "sentences": [event[2] for event in events],
        }
        for video, events in reference.items()
    }
    write_atomic(path, json.dumps(tree) + "\n")


def write_predictions(path: Path, given: Events) -> None:
    """Write described videos as `stepline evaluate --predictions` reads them."""
    tree = {
        video: [{"timestamp": event[:2], "sentence": event[2]} for event in events] for video, events in given.items()
    }
    write_atomic(path, json.dumps({"results": tree}) + "\n")


def oracle(truth: Sequence[Sequence[Event]]) -> Choose:
    """Return the chooser that knows where the steps are: for each the proposal of a one-to-one pairing by IoU.

    ProcX section 5 measures with it how much ranking by confidence loses.
    """

    def chooser(number: int, proposals: Proposals) -> list[int]:
        wanted = times(list(truth[number]))
        agree = overlap(wanted, proposals.boxes)  # (steps, queries)
        _, queries = linear_sum_assignment(-agree)
        return sorted(queries.tolist(), key=lambda query: (*proposals.boxes[query], query))

    return chooser


def view_name(form: str, view: View, metric: str) -> str:
    """Return the name under which an outcome holds a metric."""
    return f"{form} {view} {metric}"
