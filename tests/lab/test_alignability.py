"""A detector's embeddings as features, and the alignability head on features."""

import numpy as np
import pytest
import torch

from lab.wys2.alignability import (
    AlignabilityHead,
    AlignabilitySample,
    embed_seconds,
    embed_sentences,
    predict_alignability,
    train_head,
)
from stepline.errors import DatasetError, ShapeError
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.detector import Detector, score_pairs
from stepline.models.wys2.settings import DetectorSettings
from stepline.records import FeatureSequence

DETECTOR = DetectorSettings(
    video_width=6, text_width=6, hidden=8, width=5, score="cosine", temperature=1.0
)


def told(seed, count=4, rows=9):
    """A video whose first half of the sentences are rows of it."""
    chance = np.random.default_rng(seed)
    video = chance.normal(size=(rows, 6)).astype(np.float32)
    text = chance.normal(size=(count, 6)).astype(np.float32)
    alignable = np.arange(count) < count // 2
    text[alignable] = video[: count // 2]
    return AlignabilitySample(str(seed), video, text, alignable)


def test_products_of_embeddings_are_the_detectors_scores():
    torch.manual_seed(0)
    network = Detector(DETECTOR)
    video = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    # three rows: the clip of three seconds around the middle one
    pair = ClipTextPair("0", video, video[:1])
    seconds = embed_seconds(network, FeatureSequence(pair.video, 1.0, "x"))
    assert seconds.values.shape == (3, 5)
    product = seconds.values[1] @ embed_sentences(network, pair.text)[0]
    assert product == pytest.approx(score_pairs(network, [pair])[0], abs=1e-5)
    np.testing.assert_allclose(np.linalg.norm(seconds.values, axis=1), 1.0, rtol=1e-5)
    with pytest.raises(ShapeError, match="feature rows are 4 wide"):
        embed_seconds(network, FeatureSequence(np.ones((3, 4), np.float32), 1.0, "x"))


def test_the_head_learns_which_sentences_a_video_shows(tmp_path):
    samples = [told(seed) for seed in range(60)]
    settings = TrainSettings(epochs=40, batch=16, learning_rate=1e-2)
    head = train_head(samples[:50], tmp_path, settings=settings)
    for unseen in samples[50:]:
        scores = predict_alignability(head, unseen.video, unseen.text)
        assert scores[unseen.alignable].min() > scores[~unseen.alignable].max()


def test_padding_changes_no_score():
    torch.manual_seed(0)
    head, one = AlignabilityHead(6).eval(), told(0)
    longer = torch.from_numpy(np.concatenate([one.video, one.video * 9]))[None]
    pad = torch.arange(18)[None] >= 9
    with torch.inference_mode():
        padded = head(longer, torch.from_numpy(one.text)[None], pad)[0].numpy()
    np.testing.assert_allclose(padded, predict_alignability(head, one.video, one.text), atol=1e-5)


def test_what_cannot_teach_a_head_is_named(tmp_path):
    one = told(0)
    for samples in ([], [AlignabilitySample("v", one.video, one.text, np.ones(4, bool))]):
        with pytest.raises(
            DatasetError, match="sentences are alignable; give videos with both kinds"
        ):
            train_head(samples, tmp_path)
    with pytest.raises(ShapeError, match="of one D"):
        AlignabilitySample("v", one.video, one.text[:, :3], one.alignable)
    with pytest.raises(ShapeError, match="a label per sentence"):
        AlignabilitySample("v", one.video, one.text, one.alignable[:2])
    with pytest.raises(ShapeError, match="the head 5"):
        predict_alignability(AlignabilityHead(5), one.video, one.text)
