"""A store gives back what was put in, from many shards, and tells what is damaged."""

import numpy as np
import pyarrow.parquet as parquet
import pytest
from feature_rows import rows
from numpy.testing import assert_allclose

from stepline.errors import ShapeError, StoreError
from stepline.features import FeatureStore, FeatureWriter, RowTexts
from stepline.features import store as feature_store
from stepline.features.store import index_path, shard_path
from stepline.models.nasva.dataset import match_vector_rows
from stepline.models.training.sources import LabelledTexts


def fill(folder, count=7, **options):
    with FeatureWriter(folder, **options) as writer:
        for number in range(count):
            writer.add(f"v{number}", rows(number, number + 1), rate=1.0, backbone="clip")
    return FeatureStore(folder)


def test_items_come_back_from_their_shards(tmp_path):
    store = fill(tmp_path, shard_bytes=60)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert list(store) == [f"v{number}" for number in range(7)]
    for number in range(7):
        assert store[f"v{number}"].rows == number + 1
        assert_allclose(store.matrix(f"v{number}"), rows(number, number + 1), atol=2e-3)
    assert store.matrix("v3").dtype == np.float32
    assert store.widths == (4,)
    assert list(store.check()) == []


def test_a_store_names_its_backbone_unless_two_made_it(tmp_path):
    with FeatureWriter(tmp_path) as writer:
        writer.add("a", rows(), rate=1.0, backbone="unknown")
        assert FeatureStore(fill(tmp_path / "clip").folder).backbone == "clip"
    assert FeatureStore(tmp_path).backbone == ""
    with FeatureWriter(tmp_path) as writer:
        writer.add("b", rows(), rate=1.0, backbone="clip")
        writer.add("c", rows(), rate=1.0, backbone="s3d")
    with pytest.raises(StoreError, match="features of clip and s3d"):
        _ = FeatureStore(tmp_path).backbone


def test_any_safetensors_reader_reads_a_shard(tmp_path):
    from safetensors.numpy import load_file

    fill(tmp_path)
    assert load_file(shard_path(tmp_path, 0))["values"].shape == (28, 4)


def test_a_store_grows_and_refuses_an_id_twice(tmp_path):
    fill(tmp_path, 2)
    with FeatureWriter(tmp_path) as writer:
        assert "v1" in writer
        with pytest.raises(StoreError, match="v1: its id came before"):
            writer.add("v1", rows(), rate=1.0, backbone="clip")
        writer.add("late", rows(), rate=1.0, backbone="clip")
    assert list(FeatureStore(tmp_path)) == ["v0", "v1", "late"]


@pytest.mark.parametrize(
    ("id", "values", "kind", "message"),
    [
        ("v", np.full((2, 4), np.nan, np.float32), ShapeError, "NaN or infinity .row 0"),
        ("v", rows(0, 0), ShapeError, "it has no row"),
        ("v", rows(0, 2, 3), ShapeError, "its width is another .3, not 4"),
        ("v", np.ones((2, 4), np.int64), ShapeError, "float numbers"),
        ("", rows(), StoreError, "its id is not a plain name"),
        ("a/b", rows(), StoreError, "its id is not a plain name"),
    ],
)
def test_what_is_not_features_is_refused_by_name(tmp_path, id, values, kind, message):
    with FeatureWriter(tmp_path, width=4) as writer, pytest.raises(kind, match=message):
        writer.add(id, values, rate=1.0, backbone="clip")
    with pytest.raises(StoreError, match="no feature store"):
        FeatureStore(tmp_path)
    texts = RowTexts(("one", "two"))
    with FeatureWriter(tmp_path) as writer, pytest.raises(ShapeError, match="not one per row"):
        writer.add("v", rows(), rate=1.0, backbone="clip", texts=texts)


def test_what_is_missing_or_damaged_is_reported(tmp_path):
    store = fill(tmp_path, shard_bytes=60)
    with pytest.raises(StoreError, match="no features of 'w'; import them"):
        store.read("w")
    path = shard_path(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-2])
    damaged = FeatureStore(tmp_path)
    lost = {fault.id for fault in damaged.check()}
    assert lost == {id for id, stored in damaged.items() if stored.shard == 1}
    with pytest.raises(StoreError, match="not a whole shard of features"):
        damaged.read(sorted(lost)[0])
    index_path(tmp_path, 2).write_bytes(b"damaged")
    with pytest.raises(StoreError, match="cannot be read"):
        FeatureStore(tmp_path)


def test_a_shard_without_its_index_does_not_count(tmp_path):
    fill(tmp_path, shard_bytes=60)
    held = len(FeatureStore(tmp_path))
    last = max(tmp_path.glob("shard-*.parquet"))
    last.unlink()  # as a process killed between the two leaves it
    assert len(FeatureStore(tmp_path)) < held
    with FeatureWriter(tmp_path) as writer:
        for number in range(7):
            if f"v{number}" not in writer:
                writer.add(f"v{number}", rows(number, number + 1), rate=1.0, backbone="clip")
    assert len(FeatureStore(tmp_path)) == 7
    assert list(FeatureStore(tmp_path).check()) == []


def test_two_widths_are_no_one_store(tmp_path):
    fill(tmp_path, 2)
    with pytest.raises(ShapeError, match="4 wide, not 5"):
        FeatureWriter(tmp_path, width=5)


def test_a_video_whose_rows_turn_nan_on_disk_is_named(tmp_path):
    store = fill(tmp_path, 2)
    path = shard_path(tmp_path, 0)
    # the last number of the last video
    path.write_bytes(path.read_bytes()[:-2] + np.float16(np.nan).tobytes())
    assert len(store.read("v0").values) == 1
    with pytest.raises(ShapeError, match="v1: .*NaN or infinity"):
        FeatureStore(tmp_path).read("v1")


def test_texts_are_matched_in_any_order_with_each_shard_read_once(tmp_path, monkeypatch):
    words = ("chop", "fry", "serve")
    said = {f"v{n:02d}": tuple(f" {word} {n}" for word in words) for n in range(24)}
    with FeatureWriter(tmp_path, shard_bytes=48) as writer:  # two items a shard
        for id, texts in said.items():
            writer.add(id, rows(count=3), rate=1.0, backbone="clip", texts=RowTexts(texts))
        writer.add("mute", rows(count=3), rate=1.0, backbone="clip")
    store, read, columns = FeatureStore(tmp_path), [], feature_store._read_columns

    def counted(folder, shard, names):
        read.append(shard)
        return columns(folder, shard, names)

    def matched(id, *texts):
        return match_vector_rows(LabelledTexts(id, "step", texts, ((),) * len(texts)), store)

    monkeypatch.setattr(feature_store, "_read_columns", counted)
    for id in np.random.default_rng(0).permutation(sorted(said)).tolist():
        first, last = (text.strip() for text in said[id][::2])  # the reader left one out
        assert matched(id, first, last).tolist() == [0, 2]
        assert matched(id, last, first) is None
    assert matched("mute", "a", "b", "c").tolist() == [0, 1, 2]
    assert sorted(read) == list(range(13))


def test_check_finds_every_changed_byte_of_a_shard_that_has_a_digest(tmp_path):
    fill(tmp_path)
    (path, *_) = sorted(tmp_path.glob("*.safetensors"))
    assert list(FeatureStore(tmp_path).check()) == []
    data = path.read_bytes()
    for place in (-1, -2, len(data) - 17):  # of numbers, which stay finite
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        faults = list(FeatureStore(tmp_path).check())
        assert faults
        assert {fault.reason for fault in faults} == {"its shard is damaged"}
        assert "its bytes are not those that were written; import" in faults[0].value
    path.write_bytes(data)
    for index in tmp_path.glob("*.parquet"):
        table = parquet.read_table(index)
        metadata = {b"stepline_features": b"1"}  # as of a release before
        parquet.write_table(table.replace_schema_metadata(metadata), index)
    assert list(FeatureStore(tmp_path).check()) == []
