"""Does training ever wait for features? Samples per second from a store on disk, and the share of
the time waited.

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
from stepline.models.nasva.dataset import AlignerSamples, gather_samples
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.models.nasva.train import aligner_task, shuffle_texts
from stepline.models.training.batches import Sample
from stepline.models.training.loop import PrefetchingLoader, TrainingTask, fit
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import LabelledTexts
from stepline.records import Span

FEATURE_WIDTH = 768
BATCH_SIZE = 8
TEXT_WIDTH = 8  # of the store whose texts are matched
TEXT_SHARDS = 40
RESULT_PATH = Path(__file__).parent / "results" / "feature_loading.json"
# On the authors' RTX 3090: 20 h, NaSVA section 4.2
AUTHORS_SAMPLES_PER_SECOND = (340_000 + 370_000) * 12 / (20 * 3600)


def write_stores(folder: Path, videos: int) -> list[LabelledTexts]:
    """Write the features of videos and of their texts, and return the labels."""
    rng = np.random.default_rng(0)
    labels = []
    with FeatureWriter(folder / "video") as video, FeatureWriter(folder / "step") as texts:
        for number in range(videos):
            rows = int(rng.integers(60, 1201))
            count = int(rng.integers(5, 101))
            for writer, size in ((video, rows), (texts, count)):
                values = rng.normal(size=(size, FEATURE_WIDTH)).astype(np.float32)
                writer.add(f"v{number}", values, rate=1.0, backbone="drawn")
            starts = np.sort(rng.uniform(0, rows - 8, count)).tolist()
            spans = tuple((Span(start, start + 8),) for start in starts)
            ids = tuple(map(str, range(count)))
            labels.append(LabelledTexts(f"v{number}", "step", ids, spans))
    return labels


def opened(folder: Path, labels: list[LabelledTexts], *, cold: bool) -> AlignerSamples:
    """Return the samples of a store. cold: the system's memory has none of it."""
    if cold:
        for path in folder.rglob("*.safetensors"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    step_stores = {"step": FeatureStore(folder / "step")}
    return gather_samples(labels, FeatureStore(folder / "video"), step_stores)


def alone(samples: AlignerSamples, readers: int) -> dict[str, float]:
    """Read every sample once, with nothing else to do."""
    count = len(samples)
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    for _ in PrefetchingLoader(range(count), lambda index: samples[index], readers):
        pass
    wall_seconds = time.perf_counter() - wall_start
    cpu_seconds = time.process_time() - cpu_start
    return {"samples_a_second": count / wall_seconds, "cpu_ms_a_sample": 1000 * cpu_seconds / count}


def with_a_step(
    samples: AlignerSamples, readers: int, seconds: float, folder: Path
) -> dict[str, float]:
    """Train something that takes `seconds` per batch, and say what share of the time it waited."""
    model = nn.Linear(1, 1)

    def losses(network: nn.Module, _: object) -> list[object]:
        time.sleep(seconds)
        part = type("Part", (), {"total": network.weight.sum(), "count": torch.tensor(1)})
        return [part()]

    def draw(batch: list[Sample], rng: np.random.Generator) -> list[Sample]:
        return shuffle_texts(batch, AlignerLossSettings(), rng)

    task = TrainingTask(samples, lambda sample: len(sample.video), draw, losses)
    return trained(model, task, readers, folder)


def with_the_network(samples: AlignerSamples, readers: int, folder: Path) -> dict[str, float]:
    """Train the network of the released size on this processor."""
    network = Aligner(AlignerNetworkSettings(video_width=FEATURE_WIDTH, text_width=FEATURE_WIDTH))
    return trained(network, aligner_task(samples, AlignerLossSettings()), readers, folder)


def matched(folder: Path, videos: int, texts: int) -> dict[str, object]:
    """Match the texts of videos with those of a store of many shards, in another order than the
    store's."""
    ids = [f"v{number}" for number in range(videos)]
    shard_bytes = 2 * TEXT_WIDTH * texts * videos // TEXT_SHARDS
    values = np.zeros((texts, TEXT_WIDTH), np.float32)
    with FeatureWriter(folder, shard_bytes=shard_bytes) as writer:
        for number, id in enumerate(ids):
            lines = tuple(f"chop {number} of {text} things" for text in range(texts))
            writer.add(id, values, rate=1.0, backbone="drawn", texts=RowTexts(lines))
    order = np.random.default_rng(0).permutation(ids).tolist()
    row: dict[str, object] = {
        "what": "texts in another order",
        "videos": videos,
        "texts": texts,
        "shards": TEXT_SHARDS,
    }
    # As it was, and as it is
    for name in ("texts", "text_digests"):
        store = FeatureStore(folder)
        read_texts = store.texts if name == "texts" else store.text_digests
        start = time.process_time()
        for id in order:
            assert read_texts(id) is not None
        row[f"{name}, videos a CPU second"] = videos / (time.process_time() - start)
    return row


def trained(model: nn.Module, task: TrainingTask, readers: int, folder: Path) -> dict[str, float]:
    """Train for an epoch, and return what share of the time it waited, and its speed."""
    reports = []
    settings = TrainSettings(epochs=1, batch=BATCH_SIZE, readers=readers, save_every=10_000)
    fit(model, task, settings, folder, reports.append)
    last = reports[-1]
    rate = last.steps_taken * BATCH_SIZE / last.seconds
    return {"waited_share": last.waited / last.seconds, "samples_a_second": rate}


def measure(videos: int, network_videos: int) -> list[dict[str, object]]:
    """Return a row per case."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labels = write_stores(folder, videos)
        for cold in (True, False):
            for readers in (0, 1, 2):
                case = {"cold": cold, "readers": readers}
                samples = opened(folder, labels, cold=cold)
                rows.append({"what": "reading alone", **case, **alone(samples, readers)})
                for seconds in (0.02, 0.05):
                    samples = opened(folder, labels, cold=cold)
                    run = folder / f"{cold}-{readers}-{seconds}"
                    figures = with_a_step(samples, readers, seconds, run)
                    rows.append({"what": f"step {1000 * seconds:.0f} ms", **case, **figures})
        for readers in (0, 2):
            samples = opened(folder, labels[:network_videos], cold=True)
            row = {"what": "the network, one thread", "cold": True, "readers": readers}
            figures = with_the_network(samples, readers, folder / f"network-{readers}")
            rows.append({**row, **figures})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=400)
    parser.add_argument("--network-videos", type=int, default=48)
    parser.add_argument(
        "--texts", action="store_true", help="only match texts in another order, and write nothing"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.texts:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(matched(Path(name), 4000, 30)))
        return
    rows = measure(options.videos, options.network_videos)
    result = {
        "videos": options.videos,
        "authors_samples_a_second": AUTHORS_SAMPLES_PER_SECOND,
        "rows": rows,
    }
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        cells = []
        for name, value in row.items():
            number = f"{value:.3g}" if isinstance(value, float) else value
            cells.append(f"{name} {number}")
        print("  ".join(cells))


if __name__ == "__main__":
    main()
