"""The memory that `train wys2 --unlabelled` needs: at growing numbers of videos, streamed and, as
it was, listed.

    python benchmarks/unlabelled_memory.py        # writes benchmarks/results/unlabelled_memory.json

Videos of 400 rows and 110 clips, records and features made as they are asked for, 16 wide instead
of 512. Of a listed clip the bytes at 512 and 384 are also computed. `streamed` goes through all
clips and scores them. It chooses among them by a reservoir that is full at every size, and takes
steps on what is chosen. Each size runs in a process of its own. Counted is the most that it has
held (ru_maxrss, everything in it), and CPU seconds.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from drawn_store import FEATURE_WIDTH, DrawnRows

from stepline.features import RowTexts
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import LabelledTexts, NarratedRecords
from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.dataset import gather_clips
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.pseudo_labels import ValidationClips, choose_clips
from stepline.models.wys2.settings import ClipSettings, DetectorSettings, PseudoSettings
from stepline.models.wys2.train import train_detector
from stepline.models.wys2.unlabelled import ClipStream
from stepline.records import Matrix, Record, Sentence, Span, Transcript, Video

RESULT_PATH = Path(__file__).resolve().parent / "results" / "unlabelled_memory.json"
VIDEO_ROWS = 400
VIDEO_CLIPS = 110  # HowTo100M: 136 million clips in 1.2 million videos
ALL_VIDEOS = 1_240_000
STREAMED_SIZES = (100, 400, 1_600)
LISTED_SIZES = (100, 400)
RESERVOIR_CLIPS = 5_000  # so that it is full at every size
SENTENCE_TEXTS = tuple(f"now we chop the onion {number}" for number in range(VIDEO_CLIPS))
TRAINING_STEPS = 10


def record(number: int) -> Record:
    """Return a video in which someone speaks for 3 s at a time."""
    sentences = []
    for index, text in enumerate(SENTENCE_TEXTS):
        span = Span(3.0 * index, 3.0 * index + 3.0)
        sentences.append(Sentence.model_construct(text=text, span=span))
    transcript = Transcript.model_construct(language="en", sentences=tuple(sentences))
    video = Video.model_construct(id=f"v{number:07d}", duration=float(VIDEO_ROWS), task=None)
    return Record.model_construct(
        id=video.id, video=video, transcript=transcript, steps=(), reference=()
    )


class DrawnStore(DrawnRows):
    """A store whose index is as large as that of that many videos, and whose rows are drawn when
    they are read."""

    def __init__(self, videos: int, rows: int) -> None:
        super().__init__(videos, rows)
        self.folder = Path("drawn")

    def texts(self, id: str) -> RowTexts:  # noqa: ARG002
        """Return what is said in a video."""
        return RowTexts(SENTENCE_TEXTS)


def vectors(texts: list[str]) -> Matrix:
    """Return a vector for each text."""
    return np.ones((len(texts), FEATURE_WIDTH), np.float32)


def streamed(videos: int, folder: Path) -> int:
    """Go through all clips, choose among them, train a few steps. Return how many clips there
    were."""

    def store(texts: Iterable[LabelledTexts]) -> DrawnStore:
        # what a pass over the records takes. Vectors are not written, which would fill a disk
        for _ in texts:
            pass
        return DrawnStore(videos, VIDEO_CLIPS)

    records = partial(map, record, range(videos))
    features = DrawnStore(videos, VIDEO_ROWS)
    stream = ClipStream(NarratedRecords(records), features, store, ClipSettings(resolve=False))

    # the clips that are chosen
    pairs = []
    for number in range(4):
        rows = np.full((3, FEATURE_WIDTH), number, np.float32)
        pairs.append(ClipTextPair(str(number), rows, vectors([""])))
    validation = ValidationClips(pairs, np.array([False, True, False, True]))
    settings = PseudoSettings(threshold="share", share=0.1, most=RESERVOIR_CLIPS)
    network = Detector(DetectorSettings(video_width=FEATURE_WIDTH, text_width=FEATURE_WIDTH))
    rng = np.random.default_rng(0)
    _, references = choose_clips(network, stream, validation, settings, rng)

    # a few steps on them
    training_pairs = stream.pairs(references)[: 128 * TRAINING_STEPS]
    training = TrainSettings(epochs=1, batch=128, readers=0)
    train_detector(training_pairs, folder, detector=network.settings, settings=training)
    return len(stream)


def listed(videos: int, _: Path) -> int:
    """Hold all clips, as it was."""
    records: Iterator[Record] = map(record, range(videos))
    features = DrawnStore(videos, VIDEO_ROWS)
    clips = gather_clips(records, features, vectors, ClipSettings(resolve=False))
    return len(clips.pairs)


def measure(way: str, videos: int) -> dict[str, object]:
    """Return what one size takes in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--videos", str(videos)]
    environment = os.environ | {"LC_ALL": "C"}
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    row: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def main() -> None:
    """Print and keep what each size holds, and what the slope says of HowTo100M."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=("streamed", "listed"))
    parser.add_argument("--videos", type=int, default=0)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(run(options.way, options.videos)))
        return
    sizes_by_way = {"streamed": STREAMED_SIZES, "listed": LISTED_SIZES}
    rows_by_way = {}
    for way, sizes in sizes_by_way.items():
        rows_by_way[way] = [measure(way, size) for size in sizes]
    result: dict[str, object] = {
        "rows": [row for rows in rows_by_way.values() for row in rows],
        "reservoir": RESERVOIR_CLIPS,
    }
    for way, rows in rows_by_way.items():
        result[way] = projection(*rows[-2:])
    # rows of S3D's width and MiniLM's vectors of a video's clips
    video_bytes = (3 * 512 + 384) * 4 * VIDEO_CLIPS
    gib = round(video_bytes * ALL_VIDEOS / 2**30)
    result["listed at 512 and 384 wide"] = {"GiB of arrays alone": gib}
    print(json.dumps(result, indent=1))
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n")


def run(way: str, videos: int) -> dict[str, object]:
    """Return what this process has held after one way."""
    with tempfile.TemporaryDirectory() as scratch:
        go_through = streamed if way == "streamed" else listed
        count = go_through(videos, Path(scratch))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "way": way,
        "videos": videos,
        "clips": count,
        "MiB": round(usage.ru_maxrss / 1024, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }


def projection(few: dict[str, Any], many: dict[str, Any]) -> dict[str, float]:
    """Return the bytes per video by the line through two sizes, and all of HowTo100M by it."""
    video_bytes = (many["MiB"] - few["MiB"]) * 2**20 / (many["videos"] - few["videos"])
    all_bytes = few["MiB"] * 2**20 + video_bytes * (ALL_VIDEOS - few["videos"])
    return {
        "bytes a video": round(video_bytes),
        f"GiB at {ALL_VIDEOS}": round(all_bytes / 2**30, 2),
    }


if __name__ == "__main__":
    main()
