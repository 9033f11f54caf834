"""Remote files on this disk: fetched once, while there is room."""

import os
import threading

import numpy as np
import pytest

from stepline.errors import StoreError
from stepline.features import FeatureStore, FeatureWriter, RowTexts, open_store
from stepline.files.remote import RemotePath, cache
from stepline.files.remote.cache import CachedFolder, local_copy


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "USE_NOTE_SECONDS", 0.0)


def upload(folder, url):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            (RemotePath(url) / str(path.relative_to(folder))).put(path)


@pytest.fixture
def store(tmp_path, bucket):
    """A store of six items in three shards, on this disk and in a bucket."""
    rng = np.random.default_rng(0)
    with FeatureWriter(tmp_path / "store", shard_bytes=100) as writer:
        for number in range(6):
            values = rng.standard_normal((5, 8)).astype(np.float32)
            texts = RowTexts(tuple(f"text {number} {row}" for row in range(5)))
            writer.add(f"v{number}", values, rate=2.0, backbone="drawn", texts=texts)
    upload(tmp_path / "store", "s3://bucket/store")
    return FeatureStore(tmp_path / "store")


def rows_here(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").rglob("*.safetensors"))


def test_a_store_in_a_bucket_is_the_store_on_disk(store, tmp_path):
    remote = open_store("s3://bucket/store")
    assert dict(remote) == dict(store)
    assert remote.texts("v3") == store.texts("v3")
    assert rows_here(tmp_path) == []  # indexes alone
    np.testing.assert_array_equal(remote.matrix("v4"), store.matrix("v4"))
    np.testing.assert_array_equal(remote.read("v4", slice(1, 3)).values, store.matrix("v4")[1:3])
    assert rows_here(tmp_path) == [f"shard-{store['v4'].shard:05d}.safetensors"]
    for id in store:
        np.testing.assert_array_equal(remote.matrix(id), store.matrix(id))
    assert len(rows_here(tmp_path)) == len({stored.shard for stored in store.values()})


def test_what_is_here_is_not_fetched_again(store, bucket):
    for id in store:
        open_store("s3://bucket/store").matrix(id)
    again, asked = open_store("s3://bucket/store"), bucket.requests
    for id in store:
        again.matrix(id)
    assert bucket.requests == asked


def test_shards_make_room_for_others_and_come_again(store, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "IN_USE_SECONDS", 0.0)
    shard = (tmp_path / "store" / "shard-00000.safetensors").stat().st_size
    cached = CachedFolder("s3://bucket/store", max_bytes=2 * shard)
    for number in range(3):
        path = cached.path(f"shard-{number:05d}.safetensors")
        os.utime(path, (1000 + number, 1000 + number))
    assert rows_here(tmp_path) == ["shard-00001.safetensors", "shard-00002.safetensors"]
    cached.path("shard-00001.safetensors")  # asked for again, so that the third is the oldest
    cached.path("shard-00000.safetensors")
    assert rows_here(tmp_path) == ["shard-00000.safetensors", "shard-00001.safetensors"]


def test_a_shard_in_use_stays(store, tmp_path):
    cached = CachedFolder("s3://bucket/store", max_bytes=1)
    cached.fetch(name for name in cached.names if name.endswith(".safetensors"))
    assert len(rows_here(tmp_path)) == 3


def test_threads_that_ask_together_fetch_once(store, tmp_path, bucket, monkeypatch):
    fetched, own = [], RemotePath.fetch
    monkeypatch.setattr(
        RemotePath, "fetch", lambda self, path: fetched.append(self.name) or own(self, path)
    )
    remote = open_store("s3://bucket/store")
    threads = [threading.Thread(target=remote.matrix, args=("v0",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched.count("shard-00000.safetensors") == 1


def test_a_store_that_changes_is_another_and_one_that_changes_while_it_is_read_is_reported(
    store, tmp_path, bucket
):
    before = open_store("s3://bucket/store")
    with FeatureWriter(tmp_path / "store") as writer:
        writer.add("late", np.ones((2, 8), np.float32), rate=2.0, backbone="drawn")
    upload(tmp_path / "store", "s3://bucket/store")
    assert "late" in open_store("s3://bucket/store")
    RemotePath("s3://bucket/store/shard-00001.safetensors").write(b"another")
    with pytest.raises(
        StoreError, match=r"s3://bucket/store/shard-00001.safetensors: it changed while it was read"
    ):
        before.matrix("v2")
    assert before.folder.joinpath("shard-00001.safetensors").exists() is False


def test_what_is_not_a_store_is_reported(bucket):
    with pytest.raises(
        StoreError, match=r"s3://bucket/none: no feature store; `stepline features import"
    ):
        open_store("s3://bucket/none")


def test_files_and_folders_are_copied_once(tmp_path, bucket):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "a.json").write_text("{}")
    upload(tmp_path / "records", "s3://bucket/records")
    folder = local_copy("s3://bucket/records")
    assert [path.name for path in folder.glob("*.json")] == ["a.json"]
    file = local_copy("s3://bucket/records/a.json")
    assert file.read_text() == "{}"
    assert local_copy("s3://bucket/records/a.json") == file
    RemotePath("s3://bucket/records/a.json").write("[1]")
    assert local_copy("s3://bucket/records/a.json").read_text() == "[1]"
    with pytest.raises(StoreError):
        local_copy("s3://bucket/none.json")
