"""Every video's results in one dataset: records, and a store of features. Videos that came before
are left out.

What the dataset stages pass on, one folder each:

    records.parquet    Records sorted by id, as `stepline.storage.read_parquet` reads them
    left_out.jsonl     a line an item that is not among them: id, stage, kind, reason; sorted by id
    features           a feature store of the videos (of `gather`, and of `features`, which makes nothing else)

A video came before where it is the same file or says the same. Its speech becomes a signature of
fixed size: the MinHash (Broder 1997) of its runs of three words. Only videos that share a bucket
are compared, so that a million videos cost no million squares. The random numbers are fixed, so
that the same videos give the same answer.
"""

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from stepline.curate.stage import DatasetContext, StageFailure, VideoItem
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    FeatureHeader,
    GroundedSteps,
    JudgedTranscript,
    ProbeResult,
    load_result,
    unpack_arrays,
)
from stepline.curate.store.results import STAGE_FAILURES_FILE, parse_stage_failures
from stepline.features import FeatureWriter
from stepline.files.atomic_files import write_atomic
from stepline.models.nasva.predict import UNCALIBRATED_NOTE
from stepline.models.training.sources import OmitReason
from stepline.pipeline.pictures import NO_PICTURE
from stepline.pipeline.placing import JUDGED_BY_DETECTOR, decide_by_detector
from stepline.records import Record, Transcript, Video
from stepline.storage import read_parquet, write_parquet
from stepline.version import __version__

# In a stage's folder.
RECORDS_FILE = "records.parquet"
FEATURES_FOLDER = "features"
# Stages with records. A stage reads those of the first of these in the recipe.
RECORD_STAGES = ("visible", "clean", "refine", "sieve-swap", "gather")


def write_dataset(
    folder: Path, records: Iterable[Record], left_out: Mapping[str, StageFailure]
) -> int:
    """Write records and the failures of videos that are left out. Return the number of records.

    The number of attempts is not written, so a run with retries gives equal bytes.

    Args:
        folder: folder of the stage.
        records: the records, sorted by id. They are read one at a time, and may add to `left_out`.
        left_out: first failure of each video that is left out, by id.
    """
    count = write_parquet(records, folder / RECORDS_FILE)
    _write_stage_failures(folder, left_out)
    return count


def _write_stage_failures(folder: Path, left_out: Mapping[str, StageFailure]) -> None:
    lines = []
    for _, failure in sorted(left_out.items()):
        row = asdict(failure)
        del row["attempts"]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    write_atomic(folder / STAGE_FAILURES_FILE, "".join(lines))


def read_stage_failures(folder: Path) -> dict[str, StageFailure]:
    """Return the failures of the videos that a stage left out, by id.

    folder: folder of the stage.

    Raises StoreError for a damaged file.
    """
    path = folder / STAGE_FAILURES_FILE
    return parse_stage_failures(path.read_bytes(), str(path))


def preceding_stage_folder(dataset: DatasetContext) -> Path:
    """Return the result folder of the preceding stage that wrote records."""
    # The first of the table that ran is the last that ran.
    return next(dataset.folders[name] for name in RECORD_STAGES if name in dataset.folders)


def preceding_stage_records(dataset: DatasetContext) -> Iterator[Record]:
    """Yield the records of the preceding stage that wrote records, sorted by id."""
    return read_parquet(preceding_stage_folder(dataset) / RECORDS_FILE)


Row = dict[str, bytes]  # stage -> its stored result, of one item


def run_gather(dataset: DatasetContext) -> None:
    """Write the records and visual features of all videos except duplicates (the stage `gather`)."""
    # Repeated videos are known before anything is written.
    repeated = _find_duplicates(dataset)
    left_out = _list_failures(dataset) | repeated
    with FeatureWriter(dataset.folder / FEATURES_FOLDER) as store:
        rows = ((item, row) for item, row in _iterate_rows(dataset) if item.id not in repeated)
        count = write_dataset(
            dataset.folder,
            _make_records(rows, store, dataset.recipe.steps.writing.writer),
            left_out,
        )
    # A record holds its network's warning. It is printed once, not for each video.
    if dataset.recipe.steps.nasva.aligner.path is not None and any(
        UNCALIBRATED_NOTE in record.warnings
        for record in read_parquet(dataset.folder / RECORDS_FILE)
    ):
        dataset.say(UNCALIBRATED_NOTE)
    dataset.say(
        f"{count} videos gathered, {len(repeated)} that came before, "
        f"{len(left_out)} left out in all"
    )


def _list_failures(dataset: DatasetContext) -> dict[str, StageFailure]:
    """Return the entries that the source refused and the failures of earlier stages, by id."""
    return {
        **{r.id: StageFailure(r.id, "source", "left out", r.reason) for r in dataset.refused},
        **dataset.failures,
    }


def run_features(dataset: DatasetContext) -> None:
    """Write the visual features of all videos as a store, as `stepline features extract` does."""
    left_out = _list_failures(dataset)
    count = 0
    with FeatureWriter(dataset.folder / FEATURES_FOLDER) as store:
        for item, data in dataset.results("encode"):
            flaw = _add_features(store, item.id, data)
            if flaw is None:
                count += 1
            else:
                left_out[item.id] = StageFailure(
                    item.id, "features", "left out", " ".join(flaw).rstrip()
                )
    _write_stage_failures(dataset.folder, left_out)
    dataset.say(f"features of {count} videos, {len(left_out)} left out")


def _add_features(store: FeatureWriter, id: str, data: bytes) -> OmitReason | None:
    """Add the visual features of a video to a store. Return why they cannot be added, or None.

    Args:
        store: the store.
        id: id of the video.
        data: stored result of the stage `encode`.
    """
    header, arrays = unpack_arrays(FeatureHeader, data)
    if "features" not in arrays or header.backbone is None:
        return NO_PICTURE, ""
    # Halves, as the store keeps them, so that both give the same bytes.
    values = arrays["features"].astype(np.float16)
    flaw = store.rejection_reason(id, values)
    if flaw is None:
        store.add(id, values, rate=header.rate, backbone=header.backbone)
    return flaw


def _iterate_rows(dataset: DatasetContext) -> Iterator[tuple[VideoItem, Row]]:
    """Yield each video with its results by stage. One video is in memory at a time."""
    names = ("probe", "transcribe", "encode", "coarse", "ground", "judge")
    stages = [name for name in names if name in dataset.recipe.stages]
    # All stages yield the same items in the same order.
    for results in zip(*map(dataset.results, stages), strict=True):
        yield results[0][0], dict(zip(stages, [cell for _, cell in results], strict=True))


def _find_duplicates(dataset: DatasetContext) -> dict[str, StageFailure]:
    duplicates = DuplicateFinder(dataset.recipe.gather.same_words)
    repeated = {}
    for item, row in _iterate_rows(dataset):
        coarse = load_result(CoarseSteps, row["coarse"])
        reason = duplicates.find_duplicate_reason(
            VideoSignature(
                item.id,
                coarse.duration,
                load_result(ProbeResult, row["probe"]).digest,
                duplicates.minhash(coarse.transcript),
            )
        )
        if reason is not None:
            repeated[item.id] = StageFailure(item.id, "gather", "left out", reason)
    return repeated


def _make_records(
    rows: Iterable[tuple[VideoItem, Row]], store: FeatureWriter, writer: str
) -> Iterator[Record]:
    """Yield the records, and add the features of each video to the store.

    Args:
        rows: each video with its results by stage.
        store: the feature store.
        writer: name of the step writer.
    """
    for item, row in rows:
        record = make_record(item, row, writer)
        flaw = _add_features(store, item.id, row["encode"])
        if flaw is not None and flaw[0] != NO_PICTURE:
            warning = f"its features are left out: {' '.join(flaw)}".rstrip()
            record = record.model_copy(update={"warnings": (*record.warnings, warning)})
        yield record


def make_record(item: VideoItem, row: Row, writer: str) -> Record:
    """Return the record of a video from the results of its stages, without the path of its file.

    Args:
        item: the video.
        row: results of the stages, by stage.
        writer: name of the step writer.
    """
    file = load_result(ProbeResult, row["probe"])
    coarse = load_result(CoarseSteps, row["coarse"])
    header, _ = unpack_arrays(FeatureHeader, row["encode"])
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
        grounded, _ = unpack_arrays(GroundedSteps, row["ground"])
        steps = grounded.steps
        warnings += grounded.doubts
        models["grounding"] = grounded.report
        if grounded.vlm:
            models["witness"] = grounded.vlm
    if "judge" in row:
        judged = load_result(JudgedTranscript, row["judge"])
        transcript = judged.transcript
        models["judge"] = judged.judge
        if judged.judge == JUDGED_BY_DETECTOR:
            steps = decide_by_detector(steps, transcript)
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

HASH_COUNT = 64  # of a video's words
BAND_COUNT = 16  # bands of hashes, each of which makes a bucket
RUN_WORDS = 3  # words of a run, by which two videos say the same
MIN_RUNS = 8  # runs of words, below which speech says nothing about likeness
# Share by which two encodings of one video may differ in length, or half a second.
LENGTH_TOLERANCE = 0.02
MAX_COMPARED = 50  # videos of a bucket with which a further one is compared
HASH_PRIME = (1 << 31) - 1
RANDOM_SEED = 2008

Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class VideoSignature:
    """What a video is compared by, to find duplicates.

    Attributes:
        id: id of the video.
        duration: length of the video in seconds.
        digest: sha256 of its file, None without a file.
        words: (64,) MinHash of its speech, None if hardly anything is said.
    """

    id: str
    duration: float
    digest: str | None
    words: Hashes | None


class DuplicateFinder:
    """Finds videos that are copies of earlier ones. The videos come in the order of their ids.

    same_words: share of common three-word sequences from which two videos say the same. 1: never.
    """

    def __init__(self, same_words: float) -> None:
        rng = np.random.default_rng(RANDOM_SEED)
        self._same_words = same_words
        # Fixed factors: the same videos meet in the same buckets everywhere.
        self._factors = rng.integers(1, HASH_PRIME, size=(2, HASH_COUNT), dtype=np.int64)
        self._ids_by_digest: dict[str, str] = {}
        self._buckets: dict[tuple[int, bytes], list[VideoSignature]] = defaultdict(list)

    def find_duplicate_reason(self, video: VideoSignature) -> str | None:
        """Return why a video is a duplicate of an earlier one. None if it is new.

        Later videos are compared with each new video.
        """
        # The same file needs no comparison.
        if video.digest is not None and video.digest in self._ids_by_digest:
            return SAME_FILE.format(self._ids_by_digest[video.digest])
        # The videos that share a bucket with it: all hashes of a band agree.
        buckets = []
        if video.words is not None and self._same_words < 1:
            bands = video.words.reshape(BAND_COUNT, -1)
            buckets = [self._buckets[number, band.tobytes()] for number, band in enumerate(bands)]
        for bucket in buckets:
            for earlier in bucket[:MAX_COMPARED]:
                if self._says_the_same(earlier, video):
                    return SAME_WORDS.format(earlier.id)
        # It is new: later videos are compared with it.
        for bucket in buckets:
            bucket.append(video)
        if video.digest is not None:
            self._ids_by_digest[video.digest] = video.id
        return None

    def minhash(self, transcript: Transcript) -> Hashes | None:
        """Return the MinHash (64,) of a transcript. None if it has too few three-word sequences."""
        text = " ".join(sentence.text for sentence in transcript.sentences)
        words = re.findall(r"\w+", text.lower())
        # Runs of words as a set: how often a run comes does not count.
        shifted = (words[start:] for start in range(RUN_WORDS))
        runs = set(map(" ".join, zip(*shifted, strict=False)))
        if len(runs) < MIN_RUNS:
            return None
        # A number below the prime for each run. Each hash function keeps its least value.
        codes = np.array(sorted(zlib.crc32(run.encode()) % HASH_PRIME for run in runs), np.int64)
        multiplier, offset = self._factors
        hashes = (multiplier * codes[:, None] + offset) % HASH_PRIME  # (runs, 64)
        least: Hashes = hashes.min(axis=0)
        return least

    def _says_the_same(self, first: VideoSignature, second: VideoSignature) -> bool:
        # Copies of a video have about its length.
        tolerance = max(0.5, LENGTH_TOLERANCE * max(first.duration, second.duration))
        if abs(first.duration - second.duration) > tolerance:
            return False
        # The share of equal hashes estimates the Jaccard likeness of the runs.
        return float(np.mean(first.words == second.words)) >= self._same_words
