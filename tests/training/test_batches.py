import numpy as np
import pytest
import torch

from stepline.errors import ShapeError
from stepline.models.training.batches import LazySamples, Sample, collate, pad_rows, plan_batches


def make(seconds=3, texts=2, width=4, name="v", **changes):
    values = {"video": np.ones((seconds, width), np.float32), "ordered": True}
    values["text"] = np.full((texts, width), 2, np.float32)
    values["positive"] = np.ones((texts, seconds), bool)
    return Sample(name, **(values | changes))


def test_padding_is_true_past_each_end_and_holds_zeros():
    batch = collate([make(3, 1), make(1, 2, ordered=False)])
    assert batch.video_pad.tolist() == [[False, False, False], [False, True, True]]
    assert batch.text_pad.tolist() == [[False, True], [False, False]]
    assert batch.video[1, 1:].abs().sum() == 0
    assert batch.text[0, 1].abs().sum() == 0
    assert batch.positive.tolist() == [[[True] * 3, [False] * 3], [[True, False, False]] * 2]
    assert batch.ordered.tolist() == [True, False]


def test_a_long_video_is_cut_with_its_labels():
    labels = np.zeros((1, 6), bool)
    labels[0, 3:5] = True
    batch = collate([make(6, 1, positive=labels)], max_rows=4)
    assert batch.video.shape == (1, 4, 4)
    assert batch.positive.tolist() == [[[False, False, False, True]]]


def test_a_video_without_texts_keeps_its_place():
    batch = collate([make(2, 0), make(2, 1)])
    assert batch.text_pad.tolist() == [[True], [False]]
    assert collate([make(2, 0)]).text.shape == (1, 0, 4)


def test_features_that_are_read_in_place_from_disk_are_taken(tmp_path):
    np.save(tmp_path / "video.npy", np.ones((3, 4), np.float32))
    batch = collate([make(3, video=np.load(tmp_path / "video.npy", mmap_mode="r"))])
    batch.video.zero_()
    assert np.load(tmp_path / "video.npy").sum() == 12


def test_to_keeps_every_field():
    batch = collate([make()])
    moved = batch.to("cpu")
    assert moved.ids == ("v",)
    assert torch.equal(moved.video, batch.video)


ONES = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"video": ONES[:0], "positive": np.ones((2, 0), bool)}, "no feature row"),
        ({"video": np.nan * ONES}, "video features hold NaN"),
        ({"text": np.inf * ONES[:2]}, "text features hold NaN or infinity"),
        ({"positive": np.ones((2, 5), bool)}, r"labels must be bool \(2, 3\)"),
        ({"positive": np.ones((2, 3), np.float32)}, "labels must be bool"),
        ({"video": np.ones((3, 4))}, "float32"),
        ({"text": np.ones(4, np.float32)}, "float32"),
    ],
)
def test_a_bad_sample_is_refused_by_name(changes, message):
    with pytest.raises(ShapeError, match=f"clip7: .*{message}"):
        make(name="clip7", **changes)


def test_a_batch_of_nothing_or_of_two_widths_is_refused():
    with pytest.raises(ShapeError, match="at least one video"):
        collate([])
    with pytest.raises(ShapeError, match=r"one width, not \[4, 5\]"):
        pad_rows([np.ones((1, 4), np.float32), np.ones((2, 5), np.float32)])


def test_shuffling_keeps_texts_with_their_labels_and_loses_their_order():
    text = np.arange(5, dtype=np.float32)[:, None].repeat(4, axis=1)
    positive = np.eye(5, 6, dtype=bool)
    shuffled = make(6, 5, text=text, positive=positive).shuffle_texts(np.random.default_rng(3))
    assert not shuffled.ordered
    assert shuffled.text[:, 0].tolist() != [0, 1, 2, 3, 4]
    assert shuffled.positive.argmax(axis=1).tolist() == shuffled.text[:, 0].tolist()


def test_buckets_hold_every_video_once_and_hardly_pad():
    lengths = np.random.default_rng(0).integers(60, 1200, 333).tolist()
    batches = list(plan_batches(lengths, 8, seed=5, epoch=1))
    assert sorted(index for batch in batches for index in batch) == list(range(333))
    assert max(map(len, batches)) == 8
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)


def test_buckets_depend_on_seed_and_epoch_alone():
    lengths = list(range(40))
    first = list(plan_batches(lengths, 4, seed=5, epoch=1))
    assert list(plan_batches(lengths, 4, seed=5, epoch=1)) == first
    assert list(plan_batches(lengths, 4, seed=5, epoch=2)) != first
    assert list(plan_batches(lengths, 4, seed=6, epoch=1)) != first
    assert list(plan_batches([], 4, seed=5, epoch=1)) == []


def test_lazy_samples_are_made_when_they_are_asked_for():
    made = []
    samples = LazySamples(lambda index: made.append(index) or make(seconds=index + 1), [1, 2, 3])
    assert (len(samples), samples.lengths, made) == (3, [1, 2, 3], [])
    assert len(samples[-1].video) == 3
    assert [len(each.video) for each in samples[:2]] == [1, 2]
    assert made == [2, 0, 1]
    with pytest.raises(IndexError):
        samples[3]


def test_an_epoch_goes_through_a_few_shards_at_a_time():
    shards = np.repeat(np.arange(10), 13)[np.random.default_rng(3).permutation(130)].tolist()
    lengths = list(range(130))
    batches = list(plan_batches(lengths, 4, seed=5, epoch=1, shards=shards, window=3))
    assert sorted(index for batch in batches for index in batch) == lengths
    assert [len(batch) for batch in batches].count(4) == 32  # as many steps as of any other order
    met = [shards[index] for batch in batches for index in batch]
    # a window of three shards is 39 videos; its last ones share a batch with the next
    for first in range(0, 130, 39):
        assert len(set(met[first : first + 36])) <= 3
    last = {shard: number for number, shard in enumerate(met)}
    assert max(last[shard] - met.index(shard) for shard in range(10)) < 39 + 4


def test_windows_of_shards_differ_from_epoch_to_epoch():
    shards = np.repeat(np.arange(12), 5).tolist()
    epochs = [
        list(plan_batches([1] * 60, 5, seed=0, epoch=e, shards=shards, window=3)) for e in (0, 0, 1)
    ]
    assert epochs[0] == epochs[1] != epochs[2]
    together = [{frozenset(shards[i] for i in batch) for batch in epoch} for epoch in epochs]
    assert together[0] != together[2]


def test_few_shards_are_shuffled_as_if_there_were_one():
    plan = {"seed": 5, "epoch": 1}
    plain = list(plan_batches(range(70), 4, shards=(), **plan))
    known = list(plan_batches(range(70), 4, shards=[1] * 30 + [2] * 40, **plan))
    assert plain == known
