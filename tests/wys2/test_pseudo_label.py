import numpy as np
import pytest

from stepline.errors import DatasetError
from stepline.wys2.clips import ClipTextPair
from stepline.wys2.detector import Detector
from stepline.wys2.settings import DetectorSettings, PseudoSettings
from stepline.wys2.train import ValidationClips, choose_threshold, train_with_pseudo_labels

SHARE = PseudoSettings(threshold="share", share=0.25)
TRUE, FALSE = True, False


class FirstNumber(Detector):
    """Scores a clip by the first number of its first row."""

    def __init__(self):
        super().__init__(DetectorSettings(video_width=6, text_width=6))

    def own_scores(self, batch):
        return batch.video[:, 0, 0]


def clips(*scores):
    return [
        ClipTextPair(str(score), np.full((1, 6), score, np.float32), np.ones((1, 6), np.float32)) for score in scores
    ]


def recorded(calls):
    def train(given, number):
        calls.append((number, sorted(float(pair.id) for pair in given)))
        return FirstNumber()

    return train


VALIDATION = ValidationClips(clips(0.1, 0.2, 0.7, 0.9), np.array([FALSE, FALSE, TRUE, TRUE]))


def test_clips_above_the_threshold_join_the_training():
    calls = []
    made = train_with_pseudo_labels(clips(5.0, 6.0), clips(0.0, 0.69, 0.7, 2.0), VALIDATION, recorded(calls))
    assert calls == [(0, [5.0, 6.0]), (1, [0.7, 2.0, 5.0, 6.0])]
    first, second = made.rounds
    assert (first.kept, first.threshold, first.auc) == (0, None, 1.0)
    assert (second.kept, second.of, second.pairs) == (2, 4, 4)
    assert second.threshold == pytest.approx(0.7)


def test_the_report_says_how_many_pseudo_labels_are_right_where_that_is_known():
    truth = np.array([FALSE, FALSE, FALSE, TRUE])
    made = train_with_pseudo_labels(clips(5.0), clips(0.0, 0.1, 0.8, 2.0), VALIDATION, recorded([]), truth=truth)
    assert made.rounds[1].precision == 0.5


def test_each_round_starts_from_the_labelled_clips():
    calls = []
    train_with_pseudo_labels(clips(5.0), clips(0.0, 1.0), VALIDATION, recorded(calls), PseudoSettings(rounds=2))
    assert calls == [(0, [5.0]), (1, [1.0, 5.0]), (2, [1.0, 5.0])]


def test_the_threshold_of_best_f1():
    held = np.array([0.9, 0.8, 0.7, 0.6, 0.1], np.float32)
    positive = np.array([TRUE, TRUE, FALSE, TRUE, FALSE])  # F1 at 2, 3, 4 of them: 0.8, 0.67, 0.86
    assert choose_threshold(held, held, positive, PseudoSettings()) == pytest.approx(0.6)


def test_equal_scores_stay_together():
    held = np.array([0.9, 0.5, 0.5, 0.5], np.float32)
    positive = np.array([TRUE, TRUE, FALSE, FALSE])  # 0.9 alone: F1 0.67; all four: 0.67; "two of them" does not exist
    assert choose_threshold(held, held, positive, PseudoSettings()) == pytest.approx(0.9)


def test_a_share_of_the_unlabelled_clips():
    scores = np.arange(8, dtype=np.float32)
    threshold = choose_threshold(scores, scores[:0], np.zeros(0, bool), SHARE)
    assert (scores >= threshold).sum() == 2


@pytest.mark.parametrize("positive", [[TRUE, TRUE], [FALSE, FALSE]])
def test_a_threshold_needs_both_classes(positive):
    held = np.array([0.1, 0.2], np.float32)
    with pytest.raises(DatasetError, match="both classes"):
        choose_threshold(held, held, np.array(positive), PseudoSettings())


def test_validation_clips_of_one_class_have_no_auc():
    one = ValidationClips(VALIDATION.pairs, np.ones(4, bool))
    with pytest.raises(DatasetError, match="both classes"):
        train_with_pseudo_labels(clips(5.0), clips(1.0), one, recorded([]))


def test_no_unlabelled_clip_or_none_above_the_threshold_is_told():
    with pytest.raises(DatasetError, match="no unlabelled clip"):
        train_with_pseudo_labels(clips(5.0), [], VALIDATION, recorded([]))
    with pytest.raises(DatasetError, match="none of 1 unlabelled clips reaches"):
        train_with_pseudo_labels(clips(5.0), clips(0.0), VALIDATION, recorded([]))
