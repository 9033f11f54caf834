"""An epoch over a store larger than memory: in the order of training, and shuffled as a whole, as
it was.

    python benchmarks/feature_order.py        # writes benchmarks/results/feature_order.json

A store of 48 shards of 20 videos (60 to 240 rows, 768 wide). 8 shards fit into memory, from
which the pages of any other shard are dropped (posix_fadvise) as if there were no more. 8 fit into
the cache of a bucket's files. Training goes through 4 shards at a time (16 in earnest). Both orders
in the same run, each twice, one after the other. Counted are bytes that came from disk
(/proc/self/io), shards fetched, CPU seconds, and seconds of the wall.
"""

import json
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from stepline.features import FeatureStore, FeatureWriter
from stepline.features.shard_index import shard_path
from stepline.features.store import RemoteFeatureStore
from stepline.files.remote import RemotePath, cache
from stepline.models.training.batches import length_buckets

RESULT_PATH = Path(__file__).resolve().parent / "results" / "feature_order.json"
BUCKET_URL = "memory://order/store"
SHARD_COUNT = 48
VIDEOS_PER_SHARD = 20
FEATURE_WIDTH = 768
SHARDS_IN_MEMORY = 8
SHARDS_AT_A_TIME = 4
BATCH_SIZE = 8
RUN_COUNT = 2
# Order -> shards whose videos are mixed
SHARDS_OF_ORDERS = {"shuffled as a whole": SHARD_COUNT, "a few shards at a time": SHARDS_AT_A_TIME}


def write_store(folder: Path) -> FeatureStore:
    """Write the store, and have it on disk."""
    rng = np.random.default_rng(0)
    with FeatureWriter(folder) as writer:
        for number in range(SHARD_COUNT * VIDEOS_PER_SHARD):
            rows = int(rng.integers(60, 241))
            values = rng.standard_normal((rows, FEATURE_WIDTH), np.float32)
            writer.add(f"v{number:05d}", values, rate=1.0, backbone="drawn")
            if (number + 1) % VIDEOS_PER_SHARD == 0:
                writer.flush()
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return FeatureStore(folder)


def epoch(store: FeatureStore, window: int) -> Iterator[str]:
    """Yield the videos in the order of an epoch."""
    ids = list(store)
    lengths = [store[id].rows for id in ids]
    shards = [store[id].shard for id in ids]
    batches = length_buckets(lengths, BATCH_SIZE, seed=0, epoch=0, shards=shards, window=window)
    for batch in batches:
        for index in batch:
            yield ids[index]


def drop(path: Path) -> None:
    """Let the system forget what it holds of a file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """Return the bytes that this process has had read from disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    line = next(line for line in lines if line.startswith("read_bytes"))
    return int(line.split()[1])


def from_disk(folder: Path, window: int) -> dict[str, float]:
    """Read an epoch from a disk, where SHARDS_IN_MEMORY shards of it fit into memory."""
    store = FeatureStore(folder)
    recent_shards = OrderedDict[int, None]()  # the oldest first
    for path in folder.glob("*.safetensors"):
        drop(path)
    bytes_before = bytes_read()
    cpu_start = time.process_time()
    wall_start = time.monotonic()
    for id in epoch(store, window):
        store.matrix(id)
        shard = store[id].shard
        recent_shards[shard] = None
        recent_shards.move_to_end(shard)
        if len(recent_shards) > SHARDS_IN_MEMORY:
            oldest, _ = recent_shards.popitem(last=False)
            drop(shard_path(folder, oldest))
    return {
        "MB from disk": (bytes_read() - bytes_before) / 1e6,
        "CPU s": time.process_time() - cpu_start,
        "wall s": time.monotonic() - wall_start,
    }


def from_bucket(folder: Path, scratch: Path, window: int) -> dict[str, float]:
    """Read an epoch from a store elsewhere, whose cache holds SHARDS_IN_MEMORY shards."""
    os.environ["STEPLINE_CACHE"] = str(scratch)
    cache.IN_USE_SECONDS = 0.0
    cache.NOTE_SECONDS = 0.0
    fetched_names = []
    fetch = RemotePath.fetch

    def counted_fetch(self: RemotePath, path: Path) -> str:
        fetched_names.append(self.name)
        return fetch(self, path)

    largest = max(path.stat().st_size for path in folder.glob("*.safetensors"))
    RemotePath.fetch = counted_fetch  # type: ignore[method-assign]
    store = RemoteFeatureStore(BUCKET_URL, most=SHARDS_IN_MEMORY * largest)
    cpu_start = time.process_time()
    wall_start = time.monotonic()
    for id in epoch(store, window):
        store.matrix(id)
    RemotePath.fetch = fetch  # type: ignore[method-assign]
    return {
        "shards fetched": sum(name.endswith(".safetensors") for name in fetched_names),
        "CPU s": time.process_time() - cpu_start,
        "wall s": time.monotonic() - wall_start,
    }


def means(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over runs."""
    return {name: round(fmean(run[name] for run in runs), 2) for name in runs[0]}


def main() -> None:
    """Print and keep the mean of each order's runs."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        folder = Path(scratch) / "store"
        store = write_store(folder)
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        for path in folder.iterdir():
            (RemotePath(BUCKET_URL) / path.name).put(path)
        disk_runs: dict[str, list[dict[str, float]]] = {name: [] for name in SHARDS_OF_ORDERS}
        bucket_runs: dict[str, list[dict[str, float]]] = {name: [] for name in SHARDS_OF_ORDERS}
        for run in range(RUN_COUNT):
            for name, window in SHARDS_OF_ORDERS.items():
                # Each run has a cache of its own.
                cache_folder = Path(scratch) / f"cache-{run}-{window}"
                disk_runs[name].append(from_disk(folder, window))
                bucket_runs[name].append(from_bucket(folder, cache_folder, window))
        rows = {}
        for name in SHARDS_OF_ORDERS:
            rows[name] = {"disk": means(disk_runs[name]), "bucket": means(bucket_runs[name])}
        result = {
            "videos": len(store),
            "shards": SHARD_COUNT,
            "that fit": SHARDS_IN_MEMORY,
            "MB": round(size / 1e6, 1),
            "orders": rows,
        }
    text = json.dumps(result, indent=1)
    print(text)
    RESULT_PATH.write_text(text + "\n")


if __name__ == "__main__":
    main()
