"""Clips that nobody labelled: read without being held, and chosen by their scores."""

from functools import partial

import numpy as np
import pytest
from wys2_samples import FirstNumber

from lab.simulate import SimulationSettings, simulate
from lab.wys2.listed_clips import ListedClips
from stepline.errors import DatasetError
from stepline.features import FeatureStore, FeatureWriter
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import SEEN_TWICE, fill_in_transcripts, store_text_vectors
from stepline.models.wys2 import train
from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.dataset import gather_clips
from stepline.models.wys2.settings import ClipSettings, DetectorSettings, PseudoSettings
from stepline.models.wys2.train import (
    ClipStream,
    ValidationClips,
    choose_pseudo_labelled_clips,
    train_detector,
)
from stepline.records import Transcript, count_reasons

PLAIN = ClipSettings(resolve=False)


def words(texts):
    """Sentences as vectors that half precision holds."""
    seeds = [[ord(letter) for letter in text] for text in texts]
    rows = [np.random.default_rng(seed).integers(-8, 8, 16) for seed in seeds]
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
    pairs = gather_clips(world.records, store, words, PLAIN).get_pairs_with_own_text()
    listed = {pair.id: pair for pair in pairs}
    assert len(stream) == len(listed) > 100
    for _ in range(2):
        blocks = list(stream.iterate_blocks())
        streamed = [pair for _, pairs in blocks for pair in pairs]
        assert len(streamed) == len(listed)
        for pair in streamed:
            equal(pair, listed[pair.id])
    references = np.concatenate([found for found, _ in blocks])
    again = stream.get_pairs(references[::7])
    for one, other in zip(again, streamed[::7], strict=True):
        equal(one, other)
    assert again.lengths == [len(pair.video) for pair in streamed[::7]]
    assert again.shards == [store[pair.id.split()[0]].shard for pair in streamed[::7]]


def test_small_blocks_still_give_every_clip_once(stream, monkeypatch):
    every = sorted(pair.id for _, pairs in stream.iterate_blocks() for pair in pairs)
    monkeypatch.setattr(train, "CLIPS_PER_BLOCK", 7)
    assert sorted(pair.id for _, pairs in stream.iterate_blocks() for pair in pairs) == every


def test_a_video_that_comes_twice_counts_once(world, store, tmp_path):
    stream = ClipStream([*world.records, world.records[3]], store, kept_in(tmp_path), PLAIN)
    assert count_reasons(stream.omitted) == {SEEN_TWICE: 1}
    assert len({pair.id for _, pairs in stream.iterate_blocks() for pair in pairs}) == len(stream)


def test_narration_of_another_source_is_joined(world, store, tmp_path):
    mute = [record.model_copy(update={"transcript": None}) for record in world.records]
    said = {record.video.id: record.transcript for record in world.records[:2]}
    stream = ClipStream(list(fill_in_transcripts(mute, said)), store, kept_in(tmp_path), PLAIN)
    assert {pair.id.split()[0] for _, pairs in stream.iterate_blocks() for pair in pairs} == set(
        said
    )
    assert sum(count_reasons(stream.omitted).values()) == 10


def test_records_that_change_between_passes_are_reported(world, store, tmp_path):
    given = list(world.records)
    stream = ClipStream(given, store, kept_in(tmp_path), PLAIN)
    del given[4]
    with pytest.raises(DatasetError, match="have changed during the run"):
        list(stream.iterate_blocks())
    said = world.records[0].transcript.sentences
    other = Transcript(sentences=(said[0].model_copy(update={"text": "another"}), *said[1:]))
    again = [world.records[0].model_copy(update={"transcript": other})]
    # finds the vectors of what was said before
    changed = ClipStream(again, store, kept_in(tmp_path), PLAIN)
    with pytest.raises(DatasetError, match=r"are of other sentences; give another --out"):
        list(changed.iterate_blocks())


def test_without_a_narrated_video_there_is_no_clip(world, store, tmp_path):
    mute = [record.model_copy(update={"transcript": None}) for record in world.records]
    stream = ClipStream(mute, store, kept_in(tmp_path / "vectors"), PLAIN)
    assert len(stream) == 0
    assert list(stream.iterate_blocks()) == []


def test_a_detector_learns_from_streamed_clips_what_it_learns_from_listed_ones(stream, tmp_path):
    references = np.concatenate([b[0] for b in stream.iterate_blocks()])
    pairs = [p for _, b in stream.iterate_blocks() for p in b]
    settings = TrainSettings(epochs=1, batch=32, learning_rate=1e-3)
    sizes = DetectorSettings(video_width=pairs[0].video.shape[1], text_width=16, hidden=8, width=4)
    for name, given in (("listed", pairs), ("streamed", stream.get_pairs(references))):
        train_detector(given, tmp_path / name, detector=sizes, settings=settings)
    listed, streamed = (
        (tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("listed", "streamed")
    )
    assert len(listed) > 3
    assert streamed == listed


def numbered(numbers):
    one = np.ones((1, 1), np.float32)
    return [
        ClipTextPair(str(number), np.full((1, 1), number, np.float32), one) for number in numbers
    ]


HELD = ValidationClips(numbered([10.0, 400.0, 700.0]), np.array([False, True, True]))


def test_clips_from_the_threshold_on_are_kept_in_order():
    clips = ListedClips(numbered(range(1000)))
    threshold, kept = choose_pseudo_labelled_clips(FirstNumber(1), clips, HELD, PseudoSettings())
    assert threshold == 400
    assert kept.tolist() == list(range(400, 1000))
    share = PseudoSettings(threshold="share", share=0.25)
    threshold, kept = choose_pseudo_labelled_clips(FirstNumber(1), clips, HELD, share)
    assert kept.tolist() == list(range(750, 1000))
