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

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from stepline.features import FeatureStore, RowTexts
from stepline.features.shard_index import FeatureLocation
from stepline.records import Matrix, Record, Sentence, Span, Transcript, Video
from stepline.training.settings import TrainSettings
from stepline.training.sources import LabelledTexts
from stepline.wys2.clips import ClipTextPair
from stepline.wys2.dataset import gather_clips
from stepline.wys2.detector import Detector
from stepline.wys2.pseudo_labels import ValidationClips, choose_clips
from stepline.wys2.settings import ClipSettings, DetectorSettings, PseudoSettings
from stepline.wys2.train import train_detector
from stepline.wys2.unlabelled import ClipStream

OUT = Path(__file__).resolve().parent / "results" / "unlabelled_memory.json"
WIDTH, ROWS, CLIPS = 16, 400, 110  # HowTo100M: 136 million clips in 1.2 million videos
WHOLE = 1_240_000
SIZES, LISTED = (100, 400, 1_600), (100, 400)
MOST = 5_000  # of the reservoir, so that it is full at every size
SENTENCES = tuple(f"now we chop the onion {number}" for number in range(CLIPS))
STEPS = 10


def record(number: int) -> Record:
    """Return a video in which someone speaks for 3 s at a time."""
    said = tuple(
        Sentence.model_construct(text=text, span=Span(3.0 * k, 3.0 * k + 3.0))
        for k, text in enumerate(SENTENCES)
    )
    transcript = Transcript.model_construct(language="en", sentences=said)
    video = Video.model_construct(id=f"v{number:07d}", duration=float(ROWS), task=None)
    return Record.model_construct(
        id=video.id, video=video, transcript=transcript, steps=(), reference=()
    )


class DrawnStore(FeatureStore):
    """A store whose index is as large as that of that many videos, and whose rows are drawn when
    they are read."""

    def __init__(self, videos: int, rows: int) -> None:
        self.folder, a_shard = Path("drawn"), 640
        self._locations = {
            f"v{number:07d}": FeatureLocation(
                f"v{number:07d}",
                number // a_shard,
                number % a_shard * rows,
                rows,
                WIDTH,
                1.0,
                "drawn",
            )
            for number in range(videos)
        }

    def texts(self, id: str) -> RowTexts:  # noqa: ARG002
        """Return what is said in a video."""
        return RowTexts(SENTENCES)

    def matrix(self, id: str, rows: slice = slice(None)) -> Matrix:
        """Return rows that differ from video to video."""
        first, stop, _ = rows.indices(self[id].rows)
        rng = np.random.default_rng([int(id[1:]), first])
        return rng.standard_normal((stop - first, WIDTH), np.float32)


def vectors(texts: list[str]) -> Matrix:
    """Return a vector for each text."""
    return np.ones((len(texts), WIDTH), np.float32)


def streamed(videos: int, folder: Path) -> int:
    """Go through all clips, choose among them, train a few steps. Return how many clips there
    were."""

    def store(texts: Iterable[LabelledTexts]) -> DrawnStore:
        # what a pass over the records takes. Vectors are not written, which would fill a disk
        for _ in texts:
            pass
        return DrawnStore(videos, CLIPS)

    records, features = partial(map, record, range(videos)), DrawnStore(videos, ROWS)
    stream = ClipStream(records, features, store, ClipSettings(resolve=False))
    pairs = [
        ClipTextPair(str(k), np.full((3, WIDTH), k, np.float32), vectors([""])) for k in range(4)
    ]
    held = ValidationClips(pairs, np.array([False, True, False, True]))
    settings = PseudoSettings(threshold="share", share=0.1, most=MOST)
    network = Detector(DetectorSettings(video_width=WIDTH, text_width=WIDTH))
    _, kept = choose_clips(network, stream, held, settings, np.random.default_rng(0))
    few = stream.pairs(kept)[: 128 * STEPS]
    training = TrainSettings(epochs=1, batch=128, readers=0)
    train_detector(few, folder, detector=network.settings, settings=training)
    return len(stream)


def listed(videos: int, _: Path) -> int:
    """Hold all clips, as it was."""
    records: Iterator[Record] = map(record, range(videos))
    return len(
        gather_clips(records, DrawnStore(videos, ROWS), vectors, ClipSettings(resolve=False)).pairs
    )


def measure(way: str, videos: int) -> dict[str, object]:
    """Return what one size takes in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--videos", str(videos)]
    told = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}
    )
    row: dict[str, object] = json.loads(told.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def main() -> None:
    """Print and keep what each size holds, and what the slope says of HowTo100M."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=("streamed", "listed"))
    parser.add_argument("--videos", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.way:
        with tempfile.TemporaryDirectory() as scratch:
            count = (streamed if chosen.way == "streamed" else listed)(chosen.videos, Path(scratch))
        used = resource.getrusage(resource.RUSAGE_SELF)
        row = {
            "way": chosen.way,
            "videos": chosen.videos,
            "clips": count,
            "MiB": round(used.ru_maxrss / 1024, 1),
        }
        print(json.dumps(row | {"cpu_seconds": round(used.ru_utime + used.ru_stime, 1)}))
        return
    rows = [
        measure(way, size)
        for way, sizes in (("streamed", SIZES), ("listed", LISTED))
        for size in sizes
    ]
    told: dict[str, object] = {"rows": rows, "reservoir": MOST}
    for way in ("streamed", "listed"):
        few, many = [row for row in rows if row["way"] == way][-2:]
        each = (many["MiB"] - few["MiB"]) * 2**20 / (many["videos"] - few["videos"])  # type: ignore[operator]
        told[way] = {
            "bytes a video": round(each),
            f"GiB at {WHOLE}": round(
                (few["MiB"] * 2**20 + each * (WHOLE - few["videos"])) / 2**30, 2
            ),  # type: ignore[operator]
        }
    # rows of S3D's width and MiniLM's vectors of a video's clips
    wide = (3 * 512 + 384) * 4 * CLIPS
    told["listed at 512 and 384 wide"] = {"GiB of arrays alone": round(wide * WHOLE / 2**30)}
    print(json.dumps(told, indent=1))
    OUT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
