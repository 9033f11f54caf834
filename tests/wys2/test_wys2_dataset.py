import numpy as np
import pytest
from wys2_samples import clip

from stepline.errors import DatasetError, ShapeError
from stepline.models.wys2.dataset import (
    compute_key_step_similarity,
    label_by_modality_consensus,
    label_by_sentence_similarity,
    label_by_visual_relevance,
    predict_task_log_probabilities,
)
from stepline.models.wys2.settings import LabelSettings

NAN = float("nan")


def test_similarity_compares_a_clips_words_with_its_own_key_step(monkeypatch):
    vectors = {"cut": [1.0, 0.0], "slice": [0.6, 0.8], "fry": [0.0, 1.0], "away": [-1.0, 0.0]}
    clips = [clip("cut", "slice"), clip("cut", "away"), clip("fry", None), clip("fry", "fry")]
    monkeypatch.setattr(
        "stepline.models.wys2.dataset.embed",
        lambda texts: np.array([vectors[t] for t in texts], np.float32),
    )
    found = compute_key_step_similarity(clips)
    np.testing.assert_allclose(found, [0.6, 0.0, NAN, 1.0], atol=1e-6)


def test_ss_keeps_what_is_at_least_as_similar_as_c():
    given = np.array([0.49, 0.5, NAN, 0.9])
    labels = label_by_sentence_similarity(given, LabelSettings())
    assert labels.astype(int).tolist() == [0, 1, 0, 1]


def test_a_quantile_keeps_a_share_of_the_clips_with_a_key_step():
    given = np.array([0.1, 0.2, 0.3, 0.4, NAN, NAN])
    labels = label_by_sentence_similarity(given, LabelSettings(quantile=0.5))
    assert labels.astype(int).tolist() == [0, 0, 1, 1, 0, 0]


def test_ss_with_minilm_finds_what_is_the_same():
    clips = [
        clip("chop the onion into small pieces", "cut the onion"),
        clip("thanks for watching", "cut the onion"),
    ]
    assert label_by_sentence_similarity(
        compute_key_step_similarity(clips), LabelSettings()
    ).tolist() == [True, False]


def test_vr_keeps_every_clip_with_a_key_step():
    assert label_by_visual_relevance([clip(), clip(key_step=None)]).tolist() == [True, False]


def test_labels_without_any_key_step_are_an_error():
    with pytest.raises(DatasetError, match="none of 2 clips has a key-step"):
        label_by_sentence_similarity(np.array([NAN, NAN]), LabelSettings())
    with pytest.raises(DatasetError, match="none of 1 clips has a key-step"):
        label_by_visual_relevance([clip(key_step=None)])
    with pytest.raises(
        DatasetError, match=r"no narration reaches similarity 0.5, the most similar has 0.30"
    ):
        label_by_sentence_similarity(np.array([0.3, NAN]), LabelSettings())


def test_mc_by_clips_wants_the_clip_among_the_best_of_its_task_in_both():
    tasks = np.array([0, 0, 0, 0, 1, 1])
    video = np.array([[9.0, 0], [8, 0], [1, 0], [0, 0], [0, 2], [0, 1]])
    text = np.array([[9.0, 0], [0, 0], [8, 0], [1, 0], [0, 2], [0, 1]])
    half = LabelSettings(kind="mc", rank=0.5)
    labels = label_by_modality_consensus(tasks, video, text, half)
    assert labels.astype(int).tolist() == [1, 0, 0, 0, 1, 0]


def test_mc_without_any_consensus_or_with_other_shapes_is_an_error():
    swapped = np.array([[0.0, 1.0], [1.0, 0.0]])
    first = LabelSettings(kind="mc", rank=0.5)
    with pytest.raises(DatasetError, match="no clip ranks"):
        label_by_modality_consensus(np.array([0, 1]), swapped, swapped, first)
    with pytest.raises(ShapeError):
        label_by_modality_consensus(np.array([0, 1]), swapped, swapped[:1], first)


def test_task_classifiers_know_the_task_of_videos_they_never_saw():
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(3), 40)
    rows = (
        np.eye(3)[tasks] @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((120, 8))
    ).astype(np.float32)
    videos = [f"{task}-{number % 4}" for number, task in enumerate(tasks)]
    scores = predict_task_log_probabilities(rows, tasks, videos)
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1)
    assert (scores.argmax(axis=1) == tasks).mean() > 0.95


def test_task_classifiers_learn_nothing_of_a_video_by_heart():
    rng = np.random.default_rng(0)
    videos = [str(number // 5) for number in range(100)]
    # a video looks alike throughout
    rows = (rng.standard_normal((20, 16))[np.arange(100) // 5]).astype(np.float32)
    tasks = (np.arange(100) // 5) % 4  # and has a task that its look does not tell
    assert (
        predict_task_log_probabilities(rows, tasks, videos).argmax(axis=1) == tasks
    ).mean() < 0.6


def test_one_task_or_one_video_cannot_be_told_apart():
    rows = np.ones((4, 2), np.float32)
    with pytest.raises(DatasetError, match="two of each"):
        predict_task_log_probabilities(rows, np.zeros(4, np.int64), ["a", "b", "c", "d"])
    with pytest.raises(DatasetError, match="two of each"):
        predict_task_log_probabilities(rows, np.array([0, 1, 0, 1]), ["a"] * 4)
