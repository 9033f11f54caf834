"""Every video's results in one dataset: records, and a store of features. Videos that came before
are left out.

What the dataset stages pass on, one folder each:

    records.parquet    Records sorted by id, as `stepline.storage.read_parquet` reads them
    left_out.jsonl     a line an item that is not among them: id, stage, kind, reason; sorted by id
    features           a feature store of the videos (of `gather`, and of `features`, which makes nothing else)

A video came before where it is the same file, the same speech, or the same pictures encoded once
more. Each becomes a signature of fixed size. Only those that share a bucket are compared, so that a
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
from pydantic import JsonValue

from stepline.curate.settings import GatherSettings
from stepline.curate.stage import DatasetContext, StageFailure, VideoItem
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    FeatureHeader,
    GroundedSteps,
    JudgedTranscript,
    ProbeResult,
    from_bytes,
    unpack,
)
from stepline.errors import StoreError
from stepline.features import FeatureWriter
from stepline.files.atomic_files import write_atomic
from stepline.limits import parse_json
from stepline.models.training.sources import OmitReason
from stepline.pipeline.pictures import NO_PICTURE
from stepline.records import Matrix, Record, Transcript, Video
from stepline.storage import read_parquet, write_parquet
from stepline.version import __version__

# In a stage's folder.
RECORDS_FILE = "records.parquet"
LEFT_OUT_FILE = "left_out.jsonl"
FEATURES_FOLDER = "features"
# Stages with records. A stage reads those of the first of these in the recipe.
RECORD_STAGES = ("visible", "clean", "refine", "sieve-swap", "gather")


def write_dataset(
    folder: Path, records: Iterable[Record], left_out: Mapping[str, StageFailure]
) -> int:
    """Write records, sorted by id already, and what was left out. Return how many records.

    Lines do not say how often a video was tried: a run that was retried makes the same dataset.
    """
    count = write_parquet(records, folder / RECORDS_FILE)
    _write_left_out(folder, left_out)
    return count


def _write_left_out(folder: Path, left_out: Mapping[str, StageFailure]) -> None:
    lines = []
    for _, failure in sorted(left_out.items()):
        row = asdict(failure)
        del row["attempts"]
        line = json.dumps(row, ensure_ascii=False)
        lines.append(f"{line}\n")
    write_atomic(folder / LEFT_OUT_FILE, "".join(lines))


def read_left_out(folder: Path) -> dict[str, StageFailure]:
    """Return what a stage's folder leaves out, by id. Raises StoreError for a damaged file."""
    path = folder / LEFT_OUT_FILE
    failures = {}
    try:
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line:
                failure = StageFailure(**parse_json(line))
                failures[failure.id] = failure
    except (OSError, ValueError, TypeError) as error:
        what = f"{path}: not a list of what is left out ({error})"
        raise StoreError(f"{what}; remove the stage's folder") from error
    return failures


def last_folder(dataset: DatasetContext) -> Path:
    """Return the folder whose records a dataset stage goes on with."""
    # The first of the table that ran is the last that ran.
    stages = [name for name in RECORD_STAGES if name in dataset.folders]
    return dataset.folders[stages[0]]


def last_records(dataset: DatasetContext) -> Iterator[Record]:
    """Yield the records that a dataset stage goes on with."""
    return read_parquet(last_folder(dataset) / RECORDS_FILE)


Row: TypeAlias = dict[str, bytes]  # stage -> its stored result, of one item


def gather(dataset: DatasetContext) -> None:
    """Write the records and features of all videos but the repeated ones."""
    # Repeated videos are known before anything is written.
    repeated = _find_repeated(dataset)
    left_out = _failures(dataset) | repeated
    writer = dataset.recipe.steps.writing.writer
    with FeatureWriter(dataset.folder / FEATURES_FOLDER) as store:
        rows = ((item, row) for item, row in _rows(dataset) if item.id not in repeated)
        count = write_dataset(dataset.folder, _records(rows, store, writer), left_out)
    counts = f"{count} videos gathered, {len(repeated)} that came before"
    dataset.say(f"{counts}, {len(left_out)} left out in all")


def _failures(dataset: DatasetContext) -> dict[str, StageFailure]:
    """Return what the source refused, and what failed before."""
    failures = {}
    for item in dataset.refused:
        failures[item.id] = StageFailure(item.id, "source", "left out", item.reason)
    return {**failures, **dataset.failures}


def features(dataset: DatasetContext) -> None:
    """Write the features of all videos as a store, the same bytes that `stepline features extract`
    makes of them."""
    left_out = _failures(dataset)
    count = 0
    with FeatureWriter(dataset.folder / FEATURES_FOLDER) as store:
        for item, data in dataset.results("encode"):
            flaw = _add_features(store, item.id, data)
            if flaw is None:
                count += 1
            else:
                reason = " ".join(flaw).rstrip()
                left_out[item.id] = StageFailure(item.id, "features", "left out", reason)
    _write_left_out(dataset.folder, left_out)
    dataset.say(f"features of {count} videos, {len(left_out)} left out")


def _add_features(store: FeatureWriter, id: str, data: bytes) -> OmitReason | None:
    """Add what `encode` made of a video to a store. Return why it cannot be added, or None where it
    was."""
    header, arrays = unpack(FeatureHeader, data)
    if "features" not in arrays or header.backbone is None:
        return NO_PICTURE, ""
    # Halves, as the store keeps them, so that both give the same bytes.
    values = arrays["features"].astype(np.float16)
    flaw = store.rejection_reason(id, values)
    if flaw is None:
        store.add(id, values, rate=header.rate, backbone=header.backbone)
    return flaw


def _rows(dataset: DatasetContext) -> Iterator[tuple[VideoItem, Row]]:
    """Yield each item with its results, sorted by id. One item is in memory at a time."""
    names = ("probe", "transcribe", "encode", "coarse", "ground", "judge")
    stages = [name for name in names if name in dataset.recipe.stages]
    results_by_stage = [dataset.results(stage) for stage in stages]
    # All stages yield the same items in the same order.
    for results in zip(*results_by_stage, strict=True):
        item, _ = results[0]
        cells = [cell for _, cell in results]
        yield item, dict(zip(stages, cells, strict=True))


def _find_repeated(dataset: DatasetContext) -> dict[str, StageFailure]:
    duplicates = DuplicateFinder(dataset.recipe.gather)
    repeated: dict[str, StageFailure] = {}
    for item, row in _rows(dataset):
        file = from_bytes(ProbeResult, row["probe"])
        coarse = from_bytes(CoarseSteps, row["coarse"])
        _, arrays = unpack(FeatureHeader, row["encode"])
        # Thumbnails, which `encode` measured with the motion.
        looks: Matrix | None = None
        if "looks" in arrays:
            looks = arrays["looks"].astype(np.float32)
        signature = duplicates.signature(
            item.id, coarse.duration, file.digest, coarse.transcript, looks
        )
        reason = duplicates.reason(signature)
        if reason is not None:
            repeated[item.id] = StageFailure(item.id, "gather", "left out", reason)
    return repeated


def _records(
    rows: Iterable[tuple[VideoItem, Row]], store: FeatureWriter, writer: str
) -> Iterator[Record]:
    """Yield the records, adding the features of each to the store. What cannot be added is a
    warning of its record."""
    for item, row in rows:
        record = record_of(item, row, writer)
        flaw = _add_features(store, item.id, row["encode"])
        if flaw is not None and flaw[0] != NO_PICTURE:
            warning = f"its features are left out: {' '.join(flaw)}".rstrip()
            warnings = (*record.warnings, warning)
            record = record.model_copy(update={"warnings": warnings})
        yield record


def record_of(item: VideoItem, row: Row, writer: str) -> Record:
    """Return the record of a video from its results. Its path is left to what publishes it."""
    file = from_bytes(ProbeResult, row["probe"])
    coarse = from_bytes(CoarseSteps, row["coarse"])
    header, _ = unpack(FeatureHeader, row["encode"])
    transcript = coarse.transcript
    steps = coarse.steps
    warnings = coarse.warnings
    # Who made what: later stages replace what earlier ones say.
    models: dict[str, JsonValue] = {
        "stepline": __version__,
        "asr": None,
        "writer": writer,
        "vision": header.backbone,
        "grounding": None,
        "judge": None,
    }
    if "ground" in row:
        grounded, _ = unpack(GroundedSteps, row["ground"])
        steps = grounded.steps
        warnings += grounded.doubts
        models["grounding"] = grounded.report
        if grounded.vlm:
            models["witness"] = grounded.vlm
    if "judge" in row:
        judged = from_bytes(JudgedTranscript, row["judge"])
        transcript = judged.transcript
        models["judge"] = judged.judge
    models["asr"] = transcript.recogniser
    # The record, with what the source knows of the video.
    video = Video(
        id=item.id,
        duration=coarse.duration,  # of the sound and the pictures, in seconds
        title=item.title,
        task=item.task,
        sha256=file.digest,
    )
    return Record(
        id=item.id,
        video=video,
        transcript=transcript,
        steps=steps,
        dropped=coarse.dropped,
        warnings=warnings,
        models=models,
    )


# Reasons of videos that are left out.
SAME_FILE = "it is a copy of {}"
SAME_WORDS = "it says the same as {}"
SAME_PICTURE = "it shows the same as {}"

HASH_COUNT = 64  # of a video's words
BAND_COUNT = 16  # that make the buckets
PART_COUNT = 8  # of a video, each with its thumbnail
THUMBNAIL_SIDE = 8  # pixels
PLANES_PER_BAND = 12  # of pictures
RUN_WORDS = 3  # of a run, by which two videos say the same
MIN_RUNS = 8  # of words, below which speech says nothing about likeness
MIN_COMMON_SHARE = 0.5  # of runs, below which two videos that look alike are two
# Share by which two encodings of one video may differ in length, or half a second.
LENGTH_TOLERANCE = 0.02
# Videos of a bucket that one is compared with: black pictures would fill a single one.
MAX_COMPARED = 50
HASH_PRIME = (1 << 31) - 1
RANDOM_SEED = 2008

Hashes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Signature:
    """What a video is compared by. words: (64,) or None where hardly anything is said. look: (8,
    64) or None."""

    id: str
    duration: float
    digest: str | None
    words: Hashes | None
    look: Matrix | None


class DuplicateFinder:
    """Takes videos in the order of their ids, and finds which earlier one each is the same as, if
    any."""

    def __init__(self, settings: GatherSettings) -> None:
        rng = np.random.default_rng(RANDOM_SEED)
        self._settings = settings
        # Fixed factors and planes: the same videos meet in the same buckets everywhere.
        factors = rng.integers(1, HASH_PRIME, size=(2, HASH_COUNT), dtype=np.int64)
        self._factors = factors
        plane_count = BAND_COUNT * PLANES_PER_BAND
        planes = rng.standard_normal((plane_count, PART_COUNT * THUMBNAIL_SIDE**2))
        self._planes = planes.astype(np.float32)
        self._videos: list[Signature] = []
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
        """Return a video's signature. looks: (T, 192) thumbnails of 8 x 8 RGB, NaN where one is
        missing, or None."""
        words = self._minhash(transcript)
        return Signature(id, duration, digest, words, mean_thumbnails(looks))

    def reason(self, video: Signature) -> str | None:
        """Return why a video is one that came before, or None, and remember it."""
        # The same file needs no comparison.
        if video.digest is not None and video.digest in self._digests:
            return SAME_FILE.format(self._digests[video.digest])
        # The videos that share a bucket with it.
        keys = self._bucket_keys(video)
        for key in keys:
            for row in self._buckets.get(key, [])[:MAX_COMPARED]:
                earlier = self._videos[row]
                reason = same_video(earlier, video, self._settings)
                if reason is not None:
                    return reason.format(earlier.id)
        # It is new: later videos are compared with it.
        own_row = len(self._videos)
        for key in keys:
            self._buckets.setdefault(key, []).append(own_row)
        if video.digest is not None:
            self._digests[video.digest] = video.id
        self._videos.append(video)
        return None

    def _minhash(self, transcript: Transcript) -> Hashes | None:
        words: list[str] = []
        for sentence in transcript.sentences:
            words += re.findall(r"\w+", sentence.text.lower())
        # Runs of words as a set: how often one comes does not count.
        shifted = [words[start:] for start in range(RUN_WORDS)]
        runs = {" ".join(run) for run in zip(*shifted, strict=False)}
        if len(runs) < MIN_RUNS:
            return None
        # A number below the prime for each run. Each hash function keeps its least value.
        checksums = [zlib.crc32(run.encode()) % HASH_PRIME for run in runs]
        codes = np.array(sorted(checksums), np.int64)
        multiplier, offset = self._factors
        hashes = multiplier * codes[:, None] + offset  # (runs, 64)
        hashes = hashes % HASH_PRIME
        least: Hashes = hashes.min(axis=0)
        return least

    def _bucket_keys(self, video: Signature) -> list[tuple[str, int, bytes]]:
        keys: list[tuple[str, int, bytes]] = []
        if video.words is not None and self._settings.same_words < 1:
            # Videos share a bucket where all hashes of a band agree.
            word_bands = video.words.reshape(BAND_COUNT, -1)
            for band, part in enumerate(word_bands):
                keys.append(("words", band, part.tobytes()))
        if video.look is not None and self._settings.same_picture > 0:
            # On which side of each plane it is, once its brightness is taken out.
            centred = video.look - video.look.mean()
            sign_bands = (self._planes @ centred.ravel() > 0).reshape(BAND_COUNT, -1)
            for band, part in enumerate(sign_bands):
                bits = np.packbits(part)
                keys.append(("look", band, bits.tobytes()))
        return keys


def same_video(first: Signature, second: Signature, settings: GatherSettings) -> str | None:
    """Return how two videos are the same, as a reason that names the first, or None where they are
    not."""
    # Copies of a video have about its length.
    longest = max(first.duration, second.duration)
    tolerance = max(0.5, LENGTH_TOLERANCE * longest)
    if abs(first.duration - second.duration) > tolerance:
        return None
    if first.words is not None and second.words is not None:
        # The share of equal hashes estimates the Jaccard likeness of the runs.
        is_common = first.words == second.words  # (64,)
        common = float(is_common.mean())
        if settings.same_words < 1 and common >= settings.same_words:
            return SAME_WORDS
        if common < MIN_COMMON_SHARE:
            return None
    if first.look is None or second.look is None or settings.same_picture <= 0:
        return None
    differences = np.abs(first.look - second.look)
    return SAME_PICTURE if float(differences.mean()) <= settings.same_picture else None


def mean_thumbnails(looks: Matrix | None) -> Matrix | None:
    """Return (8, 64): the mean grey thumbnail of each eighth of a video, None where too little was
    seen."""
    pixels = THUMBNAIL_SIDE**2
    if looks is None or looks.shape[1:] != (3 * pixels,):
        return None
    # Means over colours and time: an encoding changes them little.
    colours = looks.reshape(len(looks), pixels, 3)
    grey = colours.mean(axis=2)  # (T, 64)
    grey = grey[np.isfinite(grey).all(axis=1)]
    if len(grey) < PART_COUNT:
        return None
    parts: Sequence[Matrix] = np.array_split(grey, PART_COUNT)
    means = np.stack([part.mean(axis=0) for part in parts])
    return means.astype(np.float32)
