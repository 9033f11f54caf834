"""The memory that `refine` needs: bytes a video at two sizes, and GiB at NaSVA's 340,000 by the slope between them.

    python benchmarks/refine_memory.py        # writes benchmarks/results/refine_memory.json

Records of 100 sentences and 10 steps, features of 400 rows, both on disk and narrow (32), for what is read of them is
gone after each batch; two untrained teachers. Counted are Python's and numpy's allocations at their highest
(tracemalloc), not what of the files the system keeps in memory; training itself holds one batch, at any size.
"""

import json
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
from curate_index import STEPS, record

from stepline.features import FeatureStore, FeatureWriter
from stepline.nasva.dataset import gather_samples
from stepline.nasva.model import Aligner
from stepline.nasva.refine import _VideoReader
from stepline.nasva.self_training import SelfTraining
from stepline.nasva.settings import AlignerNetworkSettings, RefineRunSettings, RefineSettings
from stepline.records import Span
from stepline.storage import read_parquet, write_parquet
from stepline.training.sources import labelled_texts

OUT = Path(__file__).resolve().parent / "results" / "refine_memory.json"
SIZES, WHOLE = (150, 450), 340_000
WIDTH, ROWS = 32, 400
MODEL = AlignerNetworkSettings(
    video_width=WIDTH, text_width=WIDTH, width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=16,
    projection=8, text_positions=128,
)  # fmt: skip


def sources(folder: Path, count: int) -> tuple[FeatureStore, FeatureStore, FeatureStore]:
    """Write records and features of so many videos, and return the stores of videos, steps and narrations."""
    rng, words = np.random.default_rng(0), [f"word{number}" for number in range(4000)]
    write_parquet((record(number, words) for number in range(count)), folder / "records.parquet")
    with FeatureWriter(folder / "video") as store:
        for number in range(count):
            store.add(f"v{number:07d}", rng.normal(size=(ROWS, WIDTH)), rate=1.0, backbone="drawn")
    made = []
    for kind in ("step", "narration"):
        texts = labelled_texts(read_parquet(folder / "records.parquet"), kind)  # type: ignore[arg-type]
        with FeatureWriter(folder / kind) as store:
            for labelled in texts:
                vectors = rng.normal(size=(len(labelled.texts), WIDTH))
                store.add(labelled.video, vectors, rate=1.0, backbone="drawn")
        made.append(FeatureStore(folder / kind))
    return FeatureStore(folder / "video"), *made


def untrained_teachers(training: SelfTraining, number: int) -> list[Aligner]:  # noqa: ARG001
    """Stand for the teachers of a round."""
    return [Aligner(MODEL), Aligner(MODEL)]


def peak(folder: Path, count: int) -> dict[str, float]:
    """Return the bytes held at the end of each part, the parts before it included, and the most of all."""
    (folder / str(count)).mkdir()
    folder = folder / str(count)
    sources(folder, count)
    held: dict[str, float] = {}
    tracemalloc.start()
    stores = [FeatureStore(folder / name) for name in ("video", "step", "narration")]
    held["indexes of features"] = tracemalloc.get_traced_memory()[0]
    settings = RefineRunSettings(said="given")
    reading = _VideoReader(stores[0], stores[1], settings)
    records = read_parquet(folder / "records.parquet")
    videos = [video for one in records if (video := reading.take(one)) is not None]
    held["videos"] = tracemalloc.get_traced_memory()[0]
    texts = labelled_texts(read_parquet(folder / "records.parquet"), "narration")
    narrations = gather_samples(texts, stores[0], {"narration": stores[2]}, settings.data)
    held["narrations"] = tracemalloc.get_traced_memory()[0]
    rounds = settings.rounds.model_copy(update={"refine": RefineSettings(threshold=0.0, agree=None)})
    training = SelfTraining(videos, folder / "out", narrations, MODEL, settings=rounds)
    training._claim()
    training._labels(0)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    SelfTraining._teachers = untrained_teachers  # type: ignore[method-assign]
    labels = training._labels(1)
    assert all(len(places) == STEPS and isinstance(places[0], Span) for places in labels)
    held["labels of a round"] = tracemalloc.get_traced_memory()[0] - before
    held["most while they are made"] = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return held


def main() -> None:
    """Print and keep what each part holds a video, and the most at WHOLE."""
    with tempfile.TemporaryDirectory() as scratch:
        few, many = (peak(Path(scratch), size) for size in SIZES)
    told: dict[str, object] = {"sizes": SIZES}
    for name in few:
        each = (many[name] - few[name]) / (SIZES[1] - SIZES[0])
        told[name] = {"bytes a video": round(each), f"GiB at {WHOLE}": round(each * WHOLE / 2**30, 2)}
    matrices = 4 * STEPS * ROWS * 2
    told["matrices that were held before"] = {"bytes a video": matrices, "GiB": round(matrices * WHOLE / 2**30, 2)}
    print(json.dumps(told, indent=1))
    OUT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
