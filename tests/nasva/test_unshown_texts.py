"""Which texts of other videos stand for what a video does not show."""

import numpy as np

from stepline.models.nasva.fit_calibration import (
    choose_foreign_texts,
    choose_other_videos,
    find_least_similar,
)

EYE = np.eye(6, dtype=np.float32)
VIDEOS = [EYE[[0, 1]], EYE[[0, 2]], EYE[[3, 4]], EYE[[3, 5]], EYE[[1, 2]]]
TASKS = ["tea", "tea", "soup", "soup", "tea"]


def read(index):
    return VIDEOS[index]


def test_the_same_task_goes_round_its_videos():
    assert choose_other_videos(TASKS, read) == [1, 4, 3, 2, 0]


def test_a_video_without_a_task_takes_the_one_whose_texts_are_most_like_its_own():
    assert choose_other_videos([None] * 4, read) == [1, 0, 3, 2]
    assert choose_other_videos(["tea", "tea", "cake", None], read) == [1, 0, 3, 2]
    assert choose_other_videos([None], read) == [0]


def test_unlike_texts_are_the_half_that_says_nothing_the_video_says():
    assert find_least_similar(EYE[[0, 1]], EYE[[1, 4, 0, 5]]).tolist() == [1, 3]
    assert find_least_similar(EYE[[0]], EYE[[0]]).tolist() == [0]
    assert find_least_similar(EYE[:0], EYE[:3]).tolist() == [0, 1, 2]
    chosen = [(other, rows.tolist()) for other, rows in choose_foreign_texts(TASKS, read)]
    assert chosen == [(1, [1]), (4, [0]), (3, [1]), (2, [1]), (0, [0])]


def test_a_video_that_is_alone_has_none_but_its_own():
    assert [rows.tolist() for _, rows in choose_foreign_texts(["tea"], read)] == [[]]
