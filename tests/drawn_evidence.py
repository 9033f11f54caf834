"""Evidence with a known truth, for whatever is fitted to it."""

import numpy as np


def drawn(count=400, seed=0):
    """Evidence of which the second column tells a text that is shown, and the others nothing."""
    chance = np.random.default_rng(seed)
    shown = chance.random(count) < 0.4
    rows = chance.normal(size=(count, 6))
    rows[:, 1] += 1.5 * shown
    return rows, shown
