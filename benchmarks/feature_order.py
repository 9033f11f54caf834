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
from stepline.remote import RemotePath, cache
from stepline.training.batches import length_buckets

OUT = Path(__file__).resolve().parent / "results" / "feature_order.json"
SHARDS, VIDEOS_A_SHARD, WIDTH, ROOM, WINDOW, BATCH = 48, 20, 768, 8, 4, 8
RUNS = 2
ORDERS = {"shuffled as a whole": SHARDS, "a few shards at a time": WINDOW}


def write_store(folder: Path) -> FeatureStore:
    """Write the store, and have it on disk."""
    rng = np.random.default_rng(0)
    with FeatureWriter(folder) as writer:
        for number in range(SHARDS * VIDEOS_A_SHARD):
            values = rng.standard_normal((int(rng.integers(60, 241)), WIDTH), np.float32)
            writer.add(f"v{number:05d}", values, rate=1.0, backbone="drawn")
            if (number + 1) % VIDEOS_A_SHARD == 0:
                writer.flush()
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return FeatureStore(folder)


def epoch(store: FeatureStore, window: int) -> Iterator[str]:
    """Yield the videos in the order of an epoch."""
    ids = list(store)
    lengths, shards = ([getattr(store[id], name) for id in ids] for name in ("rows", "shard"))
    for batch in length_buckets(lengths, BATCH, seed=0, epoch=0, shards=shards, window=window):
        yield from (ids[index] for index in batch)


def drop(path: Path) -> None:
    """Let the system forget what it holds of a file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """Return the bytes that this process has had read from disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


def from_disk(folder: Path, window: int) -> dict[str, float]:
    """Read an epoch from a disk, where ROOM shards of it fit into memory."""
    store, used = FeatureStore(folder), OrderedDict[int, None]()
    for path in folder.glob("*.safetensors"):
        drop(path)
    before, began, wall = bytes_read(), time.process_time(), time.monotonic()
    for id in epoch(store, window):
        store.matrix(id)
        used[store[id].shard] = None
        used.move_to_end(store[id].shard)
        if len(used) > ROOM:
            drop(shard_path(folder, used.popitem(last=False)[0]))
    took = {"MB from disk": (bytes_read() - before) / 1e6, "CPU s": time.process_time() - began}
    return took | {"wall s": time.monotonic() - wall}


def from_bucket(folder: Path, scratch: Path, window: int) -> dict[str, float]:
    """Read an epoch from a store elsewhere, whose cache holds ROOM shards."""
    os.environ["STEPLINE_CACHE"], cache.IN_USE_SECONDS, cache.NOTE_SECONDS = str(scratch), 0.0, 0.0
    fetched, fetch = [], RemotePath.fetch

    def counted(self: RemotePath, path: Path) -> str:
        fetched.append(self.name)
        return fetch(self, path)

    room = ROOM * max(path.stat().st_size for path in folder.glob("*.safetensors"))
    RemotePath.fetch = counted  # type: ignore[method-assign]
    store, began, wall = (
        RemoteFeatureStore("memory://order/store", most=room),
        time.process_time(),
        time.monotonic(),
    )
    for id in epoch(store, window):
        store.matrix(id)
    RemotePath.fetch = fetch  # type: ignore[method-assign]
    shards = sum(name.endswith(".safetensors") for name in fetched)
    return {
        "shards fetched": shards,
        "CPU s": time.process_time() - began,
        "wall s": time.monotonic() - wall,
    }


def main() -> None:
    """Print and keep the mean of each order's runs."""
    rows: dict[str, dict[str, object]] = {name: {} for name in ORDERS}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name) / "store"
        store = write_store(folder)
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        for path in folder.iterdir():
            (RemotePath("memory://order/store") / path.name).put(path)
        runs: dict[str, dict[str, list[dict[str, float]]]] = {
            name: {"disk": [], "bucket": []} for name in ORDERS
        }
        for run in range(RUNS):
            for name, window in ORDERS.items():
                runs[name]["disk"].append(from_disk(folder, window))
                runs[name]["bucket"].append(
                    from_bucket(folder, Path(name_of(folder, run, window)), window)
                )
        for name, places in runs.items():
            for place, told in places.items():
                rows[name][place] = {
                    key: round(fmean(each[key] for each in told), 2) for key in told[0]
                }
        found = {
            "videos": len(store),
            "shards": SHARDS,
            "that fit": ROOM,
            "MB": round(size / 1e6, 1),
            "orders": rows,
        }
    print(json.dumps(found, indent=1))
    OUT.write_text(json.dumps(found, indent=1) + "\n")


def name_of(folder: Path, run: int, window: int) -> str:
    """Return a cache folder of one run's own."""
    return str(folder.parent / f"cache-{run}-{window}")


if __name__ == "__main__":
    main()
