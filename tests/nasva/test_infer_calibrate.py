import numpy as np
import pytest

from stepline.errors import DatasetError
from stepline.nasva.align import TextScores
from stepline.nasva.fit_calibration import cross_validate


def look(shown, absent):
    """A video of texts that are shown, which rise by 1 in one row, and of texts that are not."""
    scores = np.random.default_rng(shown).normal(scale=0.1, size=(shown + absent, 30)).astype(np.float32)
    scores[:shown, 3] += 1.0
    return TextScores(scores, None, 1.0), np.arange(shown + absent) < shown


def test_each_half_of_the_videos_needs_twenty_texts_of_each_kind():
    assert cross_validate([look(10, 12)] * 4).videos == 4  # 20 shown and 24 not in each half
    videos = [look(10, 12), look(10, 9), look(10, 12), look(10, 10)]  # 19 not in the second half
    with pytest.raises(DatasetError, match=r"20 texts shown and 19 not in a half of the videos; each half.* needs 20"):
        cross_validate(videos)
