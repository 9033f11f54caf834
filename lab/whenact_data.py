"""Reads the WhenAct annotations: what was said when, and when it was shown."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.records import Span

SHARED_DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
ACTIONS_FILE = SHARED_DATA / "whenact" / "narrated_actions.json.gz"
CLIP = 60  # seconds in a clip; WhenAct's miniclips are cut there
FOLDS = 5
DRAWS = 2000  # bootstrap samples

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Action:
    """A phrase and its times.

    source: the video that the clip comes from. shown: None where the clip does not show it.
    """

    text: str
    source: str
    said: Span
    visible: bool
    shown: tuple[float, float] | None


def read_actions(path: Path = ACTIONS_FILE) -> list[Action]:
    clips = json.loads(gzip.decompress(path.read_bytes()))
    actions = []
    for name, clip in clips.items():
        source = re.sub(r"mini_\d+\.mp4$", "", name)
        for entry in clip["actions"]:
            start, end = map(float, entry["spoken"])
            shown_span = None
            if entry["shown"]:
                shown_start, shown_end = map(float, entry["shown"])
                shown_span = (shown_start, shown_end)
            action = Action(
                text=entry["text"],
                source=source,
                said=Span(start, min(end, float(CLIP))),
                visible=bool(entry["visible"]),
                shown=shown_span,
            )
            actions.append(action)
    return actions


def shown_seconds(spans: Sequence[tuple[float, float]]) -> Array:
    """Return (N, CLIP): the shown spans as uniform distributions over their seconds."""
    t = np.arange(CLIP)
    rows = np.zeros((len(spans), CLIP))
    for row, (start, end) in zip(rows, spans, strict=True):
        row[:] = np.clip(np.minimum(t + 1, end) - np.maximum(t, start), 0, None)
        # a moment without length is in the second that holds it
        if row.sum() == 0:
            row[min(CLIP - 1, int(start))] = 1
    return rows / rows.sum(axis=1, keepdims=True)


def folds(sources: Sequence[str], count: int = FOLDS, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return the fold of each item. All items of a source video share one."""
    names = sorted(set(sources))
    numbers = np.random.default_rng(seed).permutation(len(names)) % count
    fold_of_source = dict(zip(names, numbers, strict=True))
    return np.array([fold_of_source[source] for source in sources])
