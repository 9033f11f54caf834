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

DATA = (
    Path(__file__).resolve().parents[1]
    / ".."
    / "shared"
    / "data"
    / "whenact"
    / "narrated_actions.json.gz"
)
CLIP = 60  # seconds in a clip; WhenAct's miniclips are cut there
FOLDS = 5

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Action:
    """A phrase: `shown` is None where the clip does not show it. `source` is the video that the
    clip comes from."""

    text: str
    source: str
    said: Span
    visible: bool
    shown: tuple[float, float] | None


def read_actions(path: Path = DATA) -> list[Action]:
    clips = json.loads(gzip.decompress(path.read_bytes()))
    actions = []
    for name, clip in clips.items():
        source = re.sub(r"mini_\d+\.mp4$", "", name)
        for a in clip["actions"]:
            said = Span(float(a["spoken"][0]), min(float(a["spoken"][1]), float(CLIP)))
            shown = tuple(map(float, a["shown"])) if a["shown"] else None
            actions.append(Action(a["text"], source, said, bool(a["visible"]), shown))
    return actions


def shown_seconds(shown: Sequence[tuple[float, float]]) -> Array:
    """Return (N, CLIP): the shown span of each action as a distribution over seconds, uniform
    within the span."""
    t = np.arange(CLIP)
    rows = np.array(
        [np.clip(np.minimum(t + 1, end) - np.maximum(t, start), 0, None) for start, end in shown]
    )
    for row, (start, _) in zip(rows, shown, strict=True):
        if row.sum() == 0:  # a moment without length: the second that holds it
            row[min(CLIP - 1, int(start))] = 1
    return rows / rows.sum(axis=1, keepdims=True)


def folds(sources: Sequence[str], count: int = FOLDS, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return the fold of each item. All items of a source video share one."""
    names = sorted(set(sources))
    order = dict(
        zip(names, np.random.default_rng(seed).permutation(len(names)) % count, strict=True)
    )
    return np.array([order[source] for source in sources])
