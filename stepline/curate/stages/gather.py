"""Every video's results in one dataset: records, and a store of features; videos that came before
are left out.

What the dataset stages hand on, one folder each:

    records.parquet    Records sorted by id, as `stepline.storage.read_parquet` reads them
    left_out.jsonl     a line an item that is not among them: id, stage, kind, reason; sorted by id
    features           a feature store of the videos (of `gather`, and of `features`, which makes nothing else)

A video came before where it is the same file, the same speech, or the same pictures encoded once
more. Each becomes a signature of fixed size; only those that share a bucket are compared, so that a
million videos cost no million squares. The random numbers are fixed, so that the same videos give
the same answer.

    words       MinHash (Broder 1997) of the runs of three words; 16 bands of 4 make the buckets
    pictures    the means of 8 parts of the video, 8 x 8 grey each; 16 bands of 12 random planes make the buckets
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.atomic_files import write_atomic
from stepline.curate.settings import GatherSettings
from stepline.curate.stage import DatasetContext, StageFailure, VideoItem
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    GroundedSteps,
    JudgedTranscript,
    ProbeResult,
)
from stepline.errors import StoreError
from stepline.features import FeatureWriter
from stepline.limits import parse_json
from stepline.pipeline.packed_features import FeatureHeader, from_bytes, unpack
from stepline.pipeline.pictures import NO_PICTURE
from stepline.records import Matrix, Record, Transcript, Video
from stepline.storage import read_parquet, write_parquet
from stepline.training.gather import Flaw
from stepline.version import __version__

RECORDS, LEFT_OUT, FEATURES = "records.parquet", "left_out.jsonl", "features"
# whose records a stage reads: the last of the recipe's
ORDER = ("visible", "clean", "refine", "sieve-swap", "gather")


def write_dataset(
    folder: Path, records: Iterable[Record], left_out: Mapping[str, StageFailure]
) -> int:
    """Write records, sorted by id already, and what was left out; return how many records.

    Lines do not say how often a video was tried: a run that was retried makes the same dataset.
    """
    count = write_parquet(records, folder / RECORDS)
    _write_left_out(folder, left_out)
    return count


def _write_left_out(folder: Path, left_out: Mapping[str, StageFailure]) -> None:
    rows = [asdict(left_out[id]) for id in sorted(left_out)]
    for row in rows:
        del row["attempts"]
    write_atomic(
        folder / LEFT_OUT, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    )


def read_left_out(folder: Path) -> dict[str, StageFailure]:
    """Return what a stage's folder leaves out, by id. Raises StoreError for a damaged file."""
    path = folder / LEFT_OUT
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        failures = [StageFailure(**parse_json(line)) for line in lines if line]
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path}: not a list of what is left out ({error}); remove the stage's folder"
        ) from error
    return {failure.id: failure for failure in failures}


def last_folder(dataset: DatasetContext) -> Path:
    """Return the folder whose records a dataset stage goes on with."""
    return next(dataset.folders[name] for name in ORDER if name in dataset.folders)


def last_records(dataset: DatasetContext) -> Iterator[Record]:
    """Yield the records that a dataset stage goes on with."""
    return read_parquet(last_folder(dataset) / RECORDS)


Row = dict[str, bytes]  # stage -> its stored result, of one item


def gather(dataset: DatasetContext) -> None:
    """Write the records and features of all videos but the repeated ones."""
    left_out = _refused(dataset)
    repeated = _find_repeated(dataset)
    left_out |= {**dataset.failures, **repeated}
    writer = dataset.recipe.steps.writing.writer
    with FeatureWriter(dataset.folder / FEATURES) as store:
        rows = ((item, row) for item, row in _rows(dataset) if item.id not in repeated)
        count = write_dataset(dataset.folder, _records(rows, store, writer), left_out)
    dataset.say(
        f"{count} videos gathered, {len(repeated)} that came before, {len(left_out)} left out in all"
    )


def _refused(dataset: DatasetContext) -> dict[str, StageFailure]:
    return {
        item.id: StageFailure(item.id, "source", "left out", item.reason)
        for item in dataset.refused
    }


def features(dataset: DatasetContext) -> None:
    """Write the features of all videos as a store, the same bytes that `stepline features extract`
    makes of them."""
    left_out, count = {**_refused(dataset), **dataset.failures}, 0
    with FeatureWriter(dataset.folder / FEATURES) as store:
        for item, data in dataset.results("encode"):
            flaw = _add_features(store, item.id, data)
            count += flaw is None
            if flaw is not None:
                left_out[item.id] = StageFailure(
                    item.id, "features", "left out", f"{flaw[0]} {flaw[1]}".rstrip()
                )
    _write_left_out(dataset.folder, left_out)
    dataset.say(f"features of {count} videos, {len(left_out)} left out")


def _add_features(store: FeatureWriter, id: str, data: bytes) -> Flaw | None:
    """Add what `encode` made of a video to a store; return why it cannot be added, None where it
    was."""
    header, arrays = unpack(FeatureHeader, data)
    if "features" not in arrays or header.backbone is None:
        return NO_PICTURE, ""
    values = arrays["features"].astype(np.float16)
    flaw = store.rejection_reason(id, values)
    if flaw is None:
        store.add(id, values, rate=header.rate, backbone=header.backbone)
    return flaw


def _rows(dataset: DatasetContext) -> Iterator[tuple[VideoItem, Row]]:
    """Yield each item with its results, sorted by id; one item in memory at a time."""
    names = ("probe", "transcribe", "encode", "coarse", "ground", "judge")
    stages = [name for name in names if name in dataset.recipe.stages]
    for results in zip(*(dataset.results(name) for name in stages), strict=True):
        yield results[0][0], {name: data for name, (_, data) in zip(stages, results, strict=True)}


def _find_repeated(dataset: DatasetContext) -> dict[str, StageFailure]:
    duplicates = DuplicateFinder(dataset.recipe.gather)
    repeated: dict[str, StageFailure] = {}
    for item, row in _rows(dataset):
        probed, said = from_bytes(ProbeResult, row["probe"]), from_bytes(CoarseSteps, row["coarse"])
        _, arrays = unpack(FeatureHeader, row["encode"])
        looks: Matrix | None = arrays["looks"].astype(np.float32) if "looks" in arrays else None
        signature = duplicates.signature(
            item.id, said.duration, probed.digest, said.transcript, looks
        )
        if (reason := duplicates.reason(signature)) is not None:
            repeated[item.id] = StageFailure(item.id, "gather", "left out", reason)
    return repeated


def _records(
    rows: Iterable[tuple[VideoItem, Row]], store: FeatureWriter, writer: str
) -> Iterator[Record]:
    """Yield the records, adding the features of each to the store; what cannot be added is a
    warning of its record."""
    for item, row in rows:
        record = record_of(item, row, writer)
        flaw = _add_features(store, item.id, row["encode"])
        if flaw is not None and flaw[0] != NO_PICTURE:
            warning = f"its features are left out: {flaw[0]} {flaw[1]}".rstrip()
            record = record.model_copy(update={"warnings": (*record.warnings, warning)})
        yield record


def record_of(item: VideoItem, row: Row, writer: str) -> Record:
    """Return the record of a video from its results. Its path is left to what publishes it."""
    probed, said = from_bytes(ProbeResult, row["probe"]), from_bytes(CoarseSteps, row["coarse"])
    header, _ = unpack(FeatureHeader, row["encode"])
    grounded = unpack(GroundedSteps, row["ground"])[0] if "ground" in row else None
    judged = from_bytes(JudgedTranscript, row["judge"]) if "judge" in row else None
    transcript = said.transcript if judged is None else judged.transcript
    return Record(
        id=item.id,
        video=Video(
            id=item.id,
            duration=said.duration,
            title=item.title,
            task=item.task,
            sha256=probed.digest,
        ),
        transcript=transcript,
        steps=said.steps if grounded is None else grounded.steps,
        dropped=said.dropped,
        warnings=(*said.warnings, *(grounded.doubts if grounded else ())),
        models={
            "stepline": __version__,
            "asr": transcript.recogniser,
            "writer": writer,
            "vision": header.backbone,
            "grounding": grounded.report if grounded else None,
            "judge": judged.judge if judged else None,
            **({"witness": grounded.witness} if grounded and grounded.witness else {}),
        },
    )


SAME_FILE, SAME_WORDS, SAME_PICTURE = (
    "it is a copy of {}",
    "it says the same as {}",
    "it shows the same as {}",
)

HASHES, BANDS = 64, 16
PARTS, SIDE = 8, 8
PLANES = 12  # a band of pictures
FEW_RUNS = 8  # runs of words below which speech says nothing about likeness
OTHER_WORDS = 0.5  # fraction of common runs below which two videos that look alike are two
SLACK = 0.02  # fraction by which two encodings of one video may differ in length, and half a second
# videos of a bucket that one is compared with: black pictures would fill a single one
COMPARED = 50
PRIME = (1 << 31) - 1

Hashes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Signature:
    """What tells a video from others. words: (64,) or None where hardly anything is said. look: (8,
    64) or None."""

    id: str
    duration: float
    digest: str | None
    words: Hashes | None
    look: Matrix | None


class DuplicateFinder:
    """Takes videos in the order of their ids, and tells of each which earlier one it is the same
    as, if any."""

    def __init__(self, settings: GatherSettings) -> None:
        rng = np.random.default_rng(2008)
        self._settings = settings
        self._factors = rng.integers(1, PRIME, size=(2, HASHES), dtype=np.int64)
        self._planes = rng.standard_normal((BANDS * PLANES, PARTS * SIDE * SIDE)).astype(np.float32)
        self._kept: list[Signature] = []
        self._digests: dict[str, str] = {}
        self._buckets: dict[tuple[str, int, bytes], list[int]] = {}

    def signature(
        self,
        id: str,
        duration: float,
        digest: str | None,
        transcript: Transcript,
        looks: Matrix | None,
    ) -> Signature:
        """Return a video's signature. looks: (T, 192) thumbnails of 8 x 8 RGB, NaN where there is
        none, or None."""
        return Signature(id, duration, digest, self._minhash(transcript), mean_thumbnails(looks))

    def reason(self, video: Signature) -> str | None:
        """Return why a video is one that came before, or None, and remember it."""
        if video.digest is not None and video.digest in self._digests:
            return SAME_FILE.format(self._digests[video.digest])
        keys = self._bucket_keys(video)
        for key in keys:
            for row in self._buckets.get(key, ())[:COMPARED]:
                if (reason := same_video(self._kept[row], video, self._settings)) is not None:
                    return reason.format(self._kept[row].id)
        for key in keys:
            self._buckets.setdefault(key, []).append(len(self._kept))
        if video.digest is not None:
            self._digests[video.digest] = video.id
        self._kept.append(video)
        return None

    def _minhash(self, transcript: Transcript) -> Hashes | None:
        words = [
            word
            for sentence in transcript.sentences
            for word in re.findall(r"\w+", sentence.text.lower())
        ]
        length = self._settings.run
        runs = {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}
        if len(runs) < FEW_RUNS:
            return None
        coded = np.array(sorted(zlib.crc32(run.encode()) % PRIME for run in runs), dtype=np.int64)
        hashed = (self._factors[0] * coded[:, None] + self._factors[1]) % PRIME  # (runs, 64)
        least: Hashes = hashed.min(axis=0)
        return least

    def _bucket_keys(self, video: Signature) -> list[tuple[str, int, bytes]]:
        keys: list[tuple[str, int, bytes]] = []
        if video.words is not None and self._settings.same_words < 1:
            keys += [
                ("words", band, part.tobytes())
                for band, part in enumerate(video.words.reshape(BANDS, -1))
            ]
        if video.look is not None and self._settings.same_picture > 0:
            middle = video.look - video.look.mean()
            signs = (self._planes @ middle.ravel() > 0).reshape(BANDS, PLANES)
            keys += [("look", band, np.packbits(part).tobytes()) for band, part in enumerate(signs)]
        return keys


def same_video(one: Signature, other: Signature, settings: GatherSettings) -> str | None:
    """Return how two videos are the same, as a reason that names the first; None where they are
    not."""
    if abs(one.duration - other.duration) > max(0.5, SLACK * max(one.duration, other.duration)):
        return None
    common = None
    if one.words is not None and other.words is not None:
        common = float((one.words == other.words).mean())
        if settings.same_words < 1 and common >= settings.same_words:
            return SAME_WORDS
    looked = one.look is not None and other.look is not None and settings.same_picture > 0
    if not looked or (common is not None and common < OTHER_WORDS):
        return None
    apart = float(np.abs(np.asarray(one.look) - np.asarray(other.look)).mean())
    return SAME_PICTURE if apart <= settings.same_picture else None


def mean_thumbnails(looks: Matrix | None) -> Matrix | None:
    """Return (8, 64): the mean grey thumbnail of each eighth of a video, None where too little was
    seen."""
    if looks is None or looks.shape[1:] != (3 * SIDE * SIDE,):
        return None
    grey = looks.reshape(len(looks), SIDE * SIDE, 3).mean(axis=2)  # (T, 64)
    grey = grey[np.isfinite(grey).all(axis=1)]
    if len(grey) < PARTS:
        return None
    parts: Sequence[Matrix] = np.array_split(grey, PARTS)
    return np.stack([part.mean(axis=0) for part in parts]).astype(np.float32)
