"""Clips that nobody labelled: gone through without being held, and chosen by a reservoir."""

from functools import partial

import numpy as np
import pytest

from lab.simulate import SimulationSettings, simulate
from lab.wys2.listed_clips import ListedClips
from stepline.errors import DatasetError
from stepline.features import FeatureStore, FeatureWriter
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import SEEN_TWICE, store_text_vectors, with_transcripts
from stepline.models.wys2 import unlabelled
from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.dataset import gather_clips
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.pseudo_labels import ValidationClips, choose_clips
from stepline.models.wys2.settings import ClipSettings, DetectorSettings, PseudoSettings
from stepline.models.wys2.train import train_detector
from stepline.models.wys2.unlabelled import ClipStream, Reservoir
from stepline.records import Transcript, count_reasons

PLAIN = ClipSettings(resolve=False)


def words(texts):
    """Sentences as vectors that half precision holds."""
    rows = [
        np.random.default_rng([ord(letter) for letter in text]).integers(-8, 8, 16)
        for text in texts
    ]
    return np.array(rows, dtype=np.float32)


def kept_in(folder):
    """Keep the vectors of sentences in a folder."""
    return partial(store_text_vectors, encode=words, folder=folder, name="words")


@pytest.fixture(scope="module")
def world():
    return simulate(0, SimulationSettings(videos=12))


@pytest.fixture(scope="module")
def store(world, tmp_path_factory):
    """Features in another order than the records', two or three videos a shard."""
    folder = tmp_path_factory.mktemp("store")
    with FeatureWriter(folder, shard_bytes=100_000) as writer:
        for sample in world.videos[::-1]:
            writer.add(sample.id, sample.features().values, rate=1.0, backbone="world")
    return FeatureStore(folder)


@pytest.fixture
def stream(world, store, tmp_path):
    return ClipStream(world.records, store, kept_in(tmp_path / "vectors"), PLAIN)


def equal(one, other):
    assert one.id == other.id
    np.testing.assert_array_equal(one.video, other.video)
    np.testing.assert_array_equal(one.text, other.text)


def test_a_stream_gives_the_clips_that_a_list_holds(world, store, stream):
    listed = {
        pair.id: pair
        for pair in gather_clips(world.records, store, words, PLAIN).pairs_of_own_text()
    }
    assert len(stream) == len(listed) > 100
    for _ in range(2):
        blocks = list(stream.blocks())
        streamed = [pair for _, pairs in blocks for pair in pairs]
        assert len(streamed) == len(listed)
        for pair in streamed:
            equal(pair, listed[pair.id])
    references = np.concatenate([found for found, _ in blocks])
    again = stream.pairs(references[::7])
    for one, other in zip(again, streamed[::7], strict=True):
        equal(one, other)
    assert again.lengths == [len(pair.video) for pair in streamed[::7]]
    assert again.shards == [store[pair.id.split()[0]].shard for pair in streamed[::7]]


def test_features_are_read_in_the_order_of_their_store_and_each_once_a_pass(
    store, stream, monkeypatch
):
    read, own = [], FeatureStore.read
    monkeypatch.setattr(
        FeatureStore, "read", lambda self, id, *rows: read.append(id) or own(self, id, *rows)
    )
    for _ in stream.blocks():
        pass
    assert read == list(store)


def test_a_small_window_still_gives_every_clip_once(stream, monkeypatch):
    every = sorted(pair.id for _, pairs in stream.blocks() for pair in pairs)
    monkeypatch.setattr(unlabelled, "VIDEOS_PER_WINDOW", 5)
    monkeypatch.setattr(unlabelled, "CLIPS_PER_BLOCK", 7)
    assert sorted(pair.id for _, pairs in stream.blocks() for pair in pairs) == every


def test_a_video_that_comes_twice_counts_once(world, store, tmp_path):
    stream = ClipStream([*world.records, world.records[3]], store, kept_in(tmp_path), PLAIN)
    assert count_reasons(stream.omitted) == {SEEN_TWICE: 1}
    assert len({pair.id for _, pairs in stream.blocks() for pair in pairs}) == len(stream)


def test_narration_of_another_source_is_joined(world, store, tmp_path):
    mute = [record.model_copy(update={"transcript": None}) for record in world.records]
    said = {record.video.id: record.transcript for record in world.records[:2]}
    stream = ClipStream(list(with_transcripts(mute, said)), store, kept_in(tmp_path), PLAIN)
    assert {pair.id.split()[0] for _, pairs in stream.blocks() for pair in pairs} == set(said)
    assert sum(count_reasons(stream.omitted).values()) == 10


def test_records_that_change_between_passes_are_reported(world, store, tmp_path):
    given = list(world.records)
    stream = ClipStream(given, store, kept_in(tmp_path), PLAIN)
    del given[4]
    with pytest.raises(DatasetError, match="have changed during the run"):
        list(stream.blocks())
    said = world.records[0].transcript.sentences
    other = Transcript(sentences=(said[0].model_copy(update={"text": "another"}), *said[1:]))
    again = [world.records[0].model_copy(update={"transcript": other})]
    # finds the vectors of what was said before
    changed = ClipStream(again, store, kept_in(tmp_path), PLAIN)
    with pytest.raises(DatasetError, match=r"are of other sentences; give another --out"):
        list(changed.blocks())


def test_without_a_narrated_video_there_is_no_clip(world, store, tmp_path):
    mute = [record.model_copy(update={"transcript": None}) for record in world.records]
    stream = ClipStream(mute, store, kept_in(tmp_path / "vectors"), PLAIN)
    assert len(stream) == 0
    assert list(stream.blocks()) == []


def test_a_detector_learns_from_streamed_clips_what_it_learns_from_listed_ones(stream, tmp_path):
    references, pairs = (
        np.concatenate([b[0] for b in stream.blocks()]),
        [p for _, b in stream.blocks() for p in b],
    )
    settings = TrainSettings(epochs=1, batch=32, learning_rate=1e-3)
    sizes = DetectorSettings(video_width=pairs[0].video.shape[1], text_width=16, hidden=8, width=4)
    for name, given in (("listed", pairs), ("streamed", stream.pairs(references))):
        train_detector(given, tmp_path / name, detector=sizes, settings=settings)
    listed, streamed = (
        (tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("listed", "streamed")
    )
    assert len(listed) > 3
    assert streamed == listed


class FirstNumber(Detector):
    """Scores a clip by the first number of its first row."""

    def __init__(self):
        super().__init__(DetectorSettings(video_width=1, text_width=1))

    def matched_pair_scores(self, batch):
        return batch.video[:, 0, 0]


def numbered(numbers):
    one = np.ones((1, 1), np.float32)
    return [
        ClipTextPair(str(number), np.full((1, 1), number, np.float32), one) for number in numbers
    ]


HELD = ValidationClips(numbered([10.0, 400.0, 700.0]), np.array([False, True, True]))


def test_more_clips_than_are_held_are_drawn_evenly():
    clips = ListedClips(numbered(range(1000)))
    threshold, kept = choose_clips(
        FirstNumber(), clips, HELD, PseudoSettings(most=200), np.random.default_rng(0)
    )
    assert threshold == 400
    assert len(set(kept.tolist())) == 200
    # the threshold is known before, so that the sample is of those that reach it
    assert kept.min() >= 400
    assert 660 < kept.mean() < 740
    share = PseudoSettings(threshold="share", share=0.25, most=200)
    threshold, kept = choose_clips(FirstNumber(), clips, HELD, share, np.random.default_rng(0))
    assert len(kept) == 50  # a quarter of the sample
    assert 680 < threshold < 820
    assert kept.min() >= threshold


def test_while_all_have_room_all_are_kept_in_order():
    clips = ListedClips(numbered(range(1000)))
    _, kept = choose_clips(
        FirstNumber(), clips, HELD, PseudoSettings(most=600), np.random.default_rng(0)
    )
    assert kept.tolist() == list(range(400, 1000))


def test_a_reservoir_draws_each_row_as_often_as_any_other():
    counts = np.zeros(60)
    for seed in range(600):
        sample = Reservoir(20, np.random.default_rng(seed))
        for first in range(0, 60, 7):
            rows = np.arange(first, min(60, first + 7))
            sample.add(rows, 2 * rows)
        rows, doubled = sample.columns
        assert len(set(rows.tolist())) == 20
        assert (doubled == 2 * rows).all()
        counts[rows] += 1
    assert abs(counts - 200).max() < 4.5 * np.sqrt(600 * (1 / 3) * (2 / 3))  # a third of 600 draws
