"""From P(shown at t) to seconds, spans and a verdict. Letters: K steps, T seconds."""

import math
from collections.abc import Sequence

import numpy as np

from stepline.nasva.coarse import grow
from stepline.nasva.prior import Array
from stepline.nasva.settings import GroundSettings
from stepline.records import Span, Status, Step

SPREAD = 0.5  # of the logarithm of a shown span's length within one video; WhenAct's over all videos is 1.0


def occupancy(centers: Array, shots: Sequence[slice], seconds: float) -> Array:
    """Return (K, T): P(the step is being shown at t), its middle drawn from `centers`, its length about `seconds`.

    A step does not run on across a cut.
    """
    reach = max((shot.stop - shot.start for shot in shots), default=1) - 1
    box = np.array([_longer(2 * abs(d), seconds) for d in range(-reach, reach + 1)])  # (2 reach + 1,)
    held = np.zeros(centers.shape)
    for shot in shots:
        length = shot.stop - shot.start
        near = box[reach - length + 1 : reach + length]  # (2 length - 1,)
        for row, out in zip(centers[:, shot], held[:, shot], strict=True):
            out[:] = np.convolve(row, near, mode="full")[length - 1 : 2 * length - 1]
    return np.asarray(np.minimum(1.0, held))


def _longer(length: float, median: float) -> float:
    """Return P(a shown span is longer than `length`), lognormal around `median` seconds."""
    return 1.0 if length <= 0 else 0.5 * math.erfc(math.log(length / median) / (SPREAD * math.sqrt(2)))


def shown_spans(row: Array, shots: Sequence[slice], duration: float, settings: GroundSettings) -> list[Span]:
    """Return where a step is shown, best first: peaks of the row (T,), each grown inside its shot and never twice."""
    left = row.copy()
    spans: list[Span] = []
    while len(spans) < settings.alternatives and left.size and left.max() > settings.grow * row.max():
        peak = int(left.argmax())
        shot = next(s for s in shots if s.start <= peak < s.stop)
        start, end = (shot.start + edge for edge in grow(left[shot], peak - shot.start, settings.grow))
        spans.append(Span(float(start), min(float(end), duration)))
        left[max(0, start - 1) : end + 1] = 0
    return spans


def placed(
    step: Step, row: Array, score: float, shots: Sequence[slice], duration: float, settings: GroundSettings
) -> Step:
    """Return the step with spans, at, score and status; one that is not shown has no spans."""
    status = verdict(step, score, settings)
    if status != "shown":
        return step.model_copy(update={"spans": (), "at": None, "score": score, "status": status})
    spans = tuple(shown_spans(row, shots, duration, settings))
    at = min(int(row.argmax()) + 0.5, (int(row.argmax()) + duration) / 2)  # the last second may be a short one
    return step.model_copy(update={"spans": spans, "at": at, "score": score, "status": status})


def verdict(step: Step, score: float, settings: GroundSettings) -> Status:
    """Return what P(shown) = `score` means for a step that is, or is not, spoken of."""
    if score >= settings.shown_threshold:
        return "shown"
    return "not found" if step.said is None else "said"
