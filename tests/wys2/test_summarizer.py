"""The trained summarizer: its segments, its network, and that it learns."""

import numpy as np
import pytest
import torch

from stepline.errors import ModelError, ShapeError
from stepline.records import FeatureSequence, Record, Sentence, Span, Step, Transcript, Video
from stepline.training.settings import TrainSettings
from stepline.wys2.summarizer import (
    SegmentedVideo,
    Summarizer,
    SummarizerSettings,
    predict_importance,
    read_summarizer,
    segment_video,
    train_summarizer,
    write_summarizer,
)

TINY = SummarizerSettings(video_width=6, width=16, heads=2, layers=1, dropout=0.0)


def made(seed, segments=8, said=0):
    """A video whose segments 2 and 5 matter, and look alike."""
    chance = np.random.default_rng(seed)
    seen = chance.normal(size=(segments, 6)).astype(np.float32)
    matters = np.zeros(segments, np.float32)
    matters[[2, 5]] = 1.0
    seen[[2, 5]] += np.array([4, 0, 0, -4, 0, 0], np.float32)
    return SegmentedVideo(f"v{seed}", seen, np.zeros((segments, said), np.float32), matters)


def record(*steps, sentences=()):
    spoken = Transcript(sentences=tuple(Sentence(text="x", span=Span(a, b)) for a, b in sentences))
    shown = tuple(Step(id=str(k), text="x", spans=(Span(a, b),)) for k, (a, b) in enumerate(steps))
    return Record(id="v", video=Video(id="v"), transcript=spoken, reference=shown)


def test_segments_hold_means_and_shares_by_hand():
    features = FeatureSequence(np.arange(10, dtype=np.float32)[:, None], 1.0, "x")
    settings = SummarizerSettings(video_width=1, text_width=2, seconds=4.0)
    vectors = np.array([[1, 0], [0, 1]], np.float32)
    one = segment_video(record((2.0, 5.0), (4.0, 6.0), sentences=((0.0, 1.0), (3.0, 5.0))), features, vectors, settings)
    assert one.seen[:, 0].tolist() == [1.5, 5.5, 8.5]
    assert one.said.tolist() == [[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]]
    assert one.matters.tolist() == [0.5, 0.5, 0.0]  # 2 of 4 s; 4..6 once, though two steps show it


def test_speech_that_is_needed_and_lacks_is_an_error():
    features = FeatureSequence(np.zeros((4, 1), np.float32), 1.0, "x")
    with pytest.raises(ShapeError, match=r"sentence vectors must be \(0, 2\), not None"):
        segment_video(record((0.0, 2.0)), features, None, SummarizerSettings(video_width=1, text_width=2))
    with pytest.raises(ShapeError, match="no segment"):
        segment_video(record(), FeatureSequence(np.zeros((0, 1), np.float32), 1.0, "x"), None, TINY)
    with pytest.raises(ShapeError, match="NaN"):
        SegmentedVideo("v", np.full((1, 1), np.nan, np.float32), np.zeros((1, 0), np.float32), np.zeros(1, np.float32))


def test_one_batch_can_be_overfitted_and_gives_a_number_a_second(tmp_path):
    samples = [made(seed) for seed in range(4)]
    settings = TrainSettings(epochs=150, learning_rate=1e-2)
    network = train_summarizer(samples, tmp_path, summarizer=TINY, settings=settings)
    scores = predict_importance(network, samples[0])
    assert scores.shape == (32,)  # 8 segments of 4 s
    assert (scores.reshape(8, 4).mean(axis=1) > 0.5).tolist() == (samples[0].matters > 0.5).tolist()
    unseen = predict_importance(network, made(9)).reshape(8, 4).mean(axis=1)
    assert set(unseen.argsort()[-2:]) == {2, 5}


def test_padding_changes_no_score():
    torch.manual_seed(0)
    network = Summarizer(TINY).eval()
    seen = torch.randn(1, 5, 6)
    longer = torch.cat([seen, torch.randn(1, 3, 6)], dim=1)
    pad = torch.tensor([[False] * 5 + [True] * 3])
    with torch.inference_mode():
        alone = network(seen, seen[..., :0], pad[:, :5])
        padded = network(longer, longer[..., :0], pad)[:, :5]
    torch.testing.assert_close(alone, padded, atol=1e-6, rtol=0)


def test_nothing_to_learn_from_is_an_error(tmp_path):
    flat = SegmentedVideo("v", np.ones((3, 6), np.float32), np.zeros((3, 0), np.float32), np.zeros(3, np.float32))
    for samples in ([], [flat]):
        with pytest.raises(ShapeError, match="teach nothing"):
            train_summarizer(samples, tmp_path, summarizer=TINY)


def test_a_network_is_read_as_written_and_other_files_are_refused(tmp_path):
    network = Summarizer(TINY).eval()
    write_summarizer(network, tmp_path / "s.safetensors", video="conse", text="minilm")
    again = read_summarizer(tmp_path / "s.safetensors")
    assert (again.video, again.text) == ("conse", "minilm")
    np.testing.assert_array_equal(predict_importance(network, made(1)), predict_importance(again.network, made(1)))
    (tmp_path / "t.safetensors").write_bytes(b"junk")
    with pytest.raises(ModelError, match="not a summarizer of Stepline"):
        read_summarizer(tmp_path / "t.safetensors")
    with pytest.raises(ShapeError, match="same backbone"):
        predict_importance(network, made(1, said=3))
