"""Does training ever wait for features? Samples a second from a store on disk, and the share of the
time waited.

    python benchmarks/feature_loading.py        # writes benchmarks/results/feature_loading.json

Videos of 60 to 1200 rows and 5 to 100 texts, 768 wide (0.97 MB per video on average). They come in
batches of 8, as in NaSVA's training. `cold`: the shards are dropped from the system's memory first,
so that every row comes from disk. `step`: a stand-in for a GPU that takes that long per batch and
leaves the processor free.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from torch import nn

from stepline.features import FeatureStore, FeatureWriter, RowTexts
from stepline.nasva.dataset import AlignerSamples, gather_samples
from stepline.nasva.model import Aligner
from stepline.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.nasva.train import aligner_task, shuffle_texts
from stepline.records import Span
from stepline.training.batches import Sample
from stepline.training.loop import PrefetchingLoader, TrainingTask, fit
from stepline.training.settings import TrainSettings
from stepline.training.sources import LabelledTexts

WIDTH, BATCH = 768, 8
SHARDS = 40  # of the store whose texts are matched
# samples a second on their RTX 3090: 20 h, NaSVA section 4.2
AUTHORS = (340_000 + 370_000) * 12 / (20 * 3600)


def write_stores(folder: Path, videos: int) -> list[LabelledTexts]:
    chance = np.random.default_rng(0)
    told = []
    with FeatureWriter(folder / "video") as video, FeatureWriter(folder / "step") as texts:
        for number in range(videos):
            rows, count = int(chance.integers(60, 1201)), int(chance.integers(5, 101))
            for writer, size in ((video, rows), (texts, count)):
                values = chance.normal(size=(size, WIDTH)).astype(np.float32)
                writer.add(f"v{number}", values, rate=1.0, backbone="drawn")
            starts = np.sort(chance.uniform(0, rows - 8, count)).tolist()
            spans = tuple((Span(start, start + 8),) for start in starts)
            told.append(LabelledTexts(f"v{number}", "step", tuple(map(str, range(count))), spans))
    return told


def opened(folder: Path, told: list[LabelledTexts], *, cold: bool) -> AlignerSamples:
    if cold:
        for path in folder.rglob("*.safetensors"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return gather_samples(
        told, FeatureStore(folder / "video"), {"step": FeatureStore(folder / "step")}
    )


def alone(samples: AlignerSamples, readers: int) -> dict[str, float]:
    """Read every sample once, with nothing else to do."""
    began, used = time.perf_counter(), time.process_time()
    for _ in PrefetchingLoader(range(len(samples)), lambda index: samples[index], readers):
        pass
    wall, used = time.perf_counter() - began, time.process_time() - used
    return {"samples_a_second": len(samples) / wall, "cpu_ms_a_sample": 1000 * used / len(samples)}


def with_a_step(
    samples: AlignerSamples, readers: int, seconds: float, folder: Path
) -> dict[str, float]:
    """Train something that takes `seconds` a batch, and say what share of the time it waited."""
    model = nn.Linear(1, 1)

    def losses(network: nn.Module, _: object) -> list[object]:
        time.sleep(seconds)
        part = type("Part", (), {"total": network.weight.sum(), "count": torch.tensor(1)})
        return [part()]

    def draw(chosen: list[Sample], chance: np.random.Generator) -> list[Sample]:
        return shuffle_texts(chosen, AlignerLossSettings(), chance)

    task = TrainingTask(samples, lambda sample: len(sample.video), draw, losses)
    return trained(model, task, readers, folder)


def with_the_network(samples: AlignerSamples, readers: int, folder: Path) -> dict[str, float]:
    """Train the network of the released size on this processor."""
    network = Aligner(AlignerNetworkSettings(video_width=WIDTH, text_width=WIDTH))
    return trained(network, aligner_task(samples, AlignerLossSettings()), readers, folder)


def matched(folder: Path, videos: int, texts: int) -> dict[str, object]:
    """Match the texts of videos with those of a store of many shards, in another order than the
    store's."""
    chance = np.random.default_rng(0)
    said = {
        f"v{number}": tuple(f"chop {number} of {text} things" for text in range(texts))
        for number in range(videos)
    }
    with FeatureWriter(folder, shard_bytes=2 * 8 * texts * videos // SHARDS) as writer:
        for id, lines in said.items():
            writer.add(
                id,
                np.zeros((texts, 8), np.float32),
                rate=1.0,
                backbone="drawn",
                texts=RowTexts(lines),
            )
    order, took = chance.permutation(list(said)).tolist(), {}
    for name in ("texts", "text_digests"):  # as it was, and as it is
        store = FeatureStore(folder)
        read = store.texts if name == "texts" else store.text_digests
        began = time.process_time()
        for id in order:
            assert read(id) is not None
        took[f"{name}, videos a CPU second"] = videos / (time.process_time() - began)
    return {
        "what": "texts in another order",
        "videos": videos,
        "texts": texts,
        "shards": SHARDS,
    } | took


def trained(model: nn.Module, task: TrainingTask, readers: int, folder: Path) -> dict[str, float]:
    seen = []
    settings = TrainSettings(epochs=1, batch=BATCH, readers=readers, save_every=10_000)
    fit(model, task, settings, folder, seen.append)
    last = seen[-1]
    rate = last.steps_taken * BATCH / last.seconds
    return {"waited_share": last.waited / last.seconds, "samples_a_second": rate}


def measure(videos: int, network_videos: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told = write_stores(folder, videos)
        for cold in (True, False):
            for readers in (0, 1, 2):
                row = {"what": "reading alone", "cold": cold, "readers": readers}
                rows.append(row | alone(opened(folder, told, cold=cold), readers))
                for seconds in (0.02, 0.05):
                    row = {
                        "what": f"step {1000 * seconds:.0f} ms",
                        "cold": cold,
                        "readers": readers,
                    }
                    place = folder / f"{cold}-{readers}-{seconds}"
                    rows.append(
                        row | with_a_step(opened(folder, told, cold=cold), readers, seconds, place)
                    )
        for readers in (0, 2):
            samples = opened(folder, told[:network_videos], cold=True)
            row = {"what": "the network, one thread", "cold": True, "readers": readers}
            rows.append(row | with_the_network(samples, readers, folder / f"network-{readers}"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=400)
    parser.add_argument("--network-videos", type=int, default=48)
    parser.add_argument(
        "--texts", action="store_true", help="only match texts in another order; writes nothing"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.texts:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(matched(Path(name), 4000, 30)))
        return
    rows = measure(chosen.videos, chosen.network_videos)
    found = {"videos": chosen.videos, "authors_samples_a_second": AUTHORS, "rows": rows}
    path = Path(__file__).parent / "results" / "feature_loading.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    for row in rows:
        numbers = {
            name: f"{value:.3g}" if isinstance(value, float) else value
            for name, value in row.items()
        }
        print("  ".join(f"{name} {value}" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
