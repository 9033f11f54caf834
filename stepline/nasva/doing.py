"""Is anything being done at this second? Hands at work move more than a face that talks, or a table that waits.

How much more differs from video to video, so the weight of this evidence is earned from the video's own speech,
starting from a usual one (`fuse.earned`). Letters: K steps, T seconds.
"""

from collections.abc import Sequence

import numpy as np

from stepline.nasva.evidence import LIMIT, NOISE, smoothed
from stepline.nasva.prior import Array

STILL = 1e-3  # motion below which a picture counts as still, a share of the grey range
CAP = 1.1  # standard deviations; how fast hands move says nothing about whether they work
SMOOTH = 2.0  # seconds to either side; a hand pauses, a single second says little


def doing(motion: Array | None, shots: Sequence[slice], shape: tuple[int, ...]) -> Array:
    """Return (K, T) evidence, in standard deviations, that something is being done; zero where nothing is known.

    motion: (T,), NaN where missing; its logarithm counts, since hands move many times more than a face.
    """
    if motion is None or not np.isfinite(motion).any() or not shape[0]:
        return np.zeros(shape)
    logs = np.log(np.where(np.isfinite(motion), motion, np.nanmean(motion)) + STILL)
    row = smoothed(logs[None], shots, SMOOTH)[0]
    spread = row.std()
    z = np.clip((row - row.mean()) / spread, -LIMIT, CAP) if spread > NOISE else np.zeros(len(row))
    return np.tile(z, (shape[0], 1))
