"""P(a text is shown at all) without any truth: how a video's own texts fit it, against texts of other videos.

Texts of another video show nothing of this one, so what their scores look like is what "not shown" looks like. A
video's own texts are a mixture of that and of shown ones, of which `rate` is the share:

    P(shown | evidence) = 1 - (1 - rate) p(evidence | foreign) / p(evidence | own)

The ratio of the two densities comes from a logistic regression that tells own from foreign texts (Elkan and Noto 2008,
learning from positive and unlabelled examples, with the roles turned), the rate from Storey's estimate of the share of
true null hypotheses (2002). It leans low where foreign texts are easier to refuse than own ones that are not shown.
Letters: N texts of many videos.
"""

from collections.abc import Sequence

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.calibration import Logistic, fit_logistic
from stepline.nasva.aligner_settings import Mode
from stepline.nasva.infer.align import Fit
from stepline.nasva.infer.load import Loaded
from stepline.nasva.infer.shown import Calibration, evidence
from stepline.nasva.prior import Array

DRAWS = 16  # of each text's verdict; the regression is fitted to all of them
SURE = 0.999  # no text is surely own, or surely foreign


def calibrate_by_foreign(
    loaded: Loaded, own: Sequence[Fit], foreign: Sequence[Fit], *, mode: Mode = "step", rate: float | None = None
) -> tuple[Calibration, float]:
    """Return a calibration of the network and the share of own texts that it takes for shown.

    own, foreign: how the texts of each video, and those of another, fit it. rate: that share, where it is known.
    Raises DatasetError with too few texts, or where own texts fit no better than foreign ones.
    """
    rows, null = (np.concatenate([evidence(fit) for fit in each if len(fit.scores)]) for each in (own, foreign))
    known = np.arange(len(rows) + len(null)) < len(rows)
    apart = fit_logistic(np.concatenate([rows, null]), known)
    own_p, null_p = apart(rows), apart(null)
    share = shown_share(own_p, null_p) if rate is None else rate
    if not 0 < share < 1:
        reason = f"the share of shown texts comes out as {share:.2f}"
        raise DatasetError(f"{reason}, so P(shown) cannot be told; give the rate, or train longer")
    p = shown_chances(own_p, len(rows) / len(null), share)
    drawn = np.random.default_rng(2008).random((DRAWS, len(p))) < p
    logistic: Logistic = fit_logistic(np.tile(rows, (DRAWS, 1)), drawn.ravel())
    return Calibration(loaded.sha256, {mode: logistic}), share


def shown_share(own: Array, foreign: Array) -> float:
    """Return 1 - 2 P(an own text looks more foreign than half of the foreign ones do): Storey's, lambda 0.5."""
    return float(np.clip(1 - 2 * np.mean(own < np.median(foreign)), 0.0, 1.0))


def shown_chances(own: Array, odds: float, rate: float) -> Array:
    """Return P(shown) (N,) of own texts from P(own); odds: own texts to foreign ones in the fit. Mean near `rate`."""
    own = np.clip(own, 1 - SURE, SURE)
    ratio = (1 - own) / own * odds  # p(evidence | foreign) / p(evidence | own)
    return np.asarray(np.clip(1 - (1 - rate) * ratio, 0.0, 1.0))
