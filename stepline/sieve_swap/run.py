"""Sieve & Swap over a whole collection, in parts of a few hundred videos.

The videos are read three times, one part in memory at a time: to count categories, to pair, and to
sieve and swap. After pairing it is known which documents any video was paired with (R2 in the
paper). Each part's files are named by a digest of all their inputs. So a rerun after kill -9 finds
the finished parts, and ends with the bytes of an undisturbed run.
"""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import DatasetError, SettingsError, StoreError
from stepline.files.atomic_files import check_writable, write_atomic
from stepline.processes import trim_memory
from stepline.records import Record, Rejected, Video
from stepline.sieve_swap.content_words import (
    DocumentWords,
    content_words,
    load_document_words,
    title_words,
)
from stepline.sieve_swap.match import DocumentIds
from stepline.sieve_swap.pairing import PairFinder, WordSets
from stepline.sieve_swap.part_files import (
    LEFT_OUT,
    PAIRS_FOLDER,
    PARTS_FOLDER,
    TRAIN_SPLIT,
    VALIDATION_SPLIT,
    PairedVideo,
    hash_values,
    part_file_stem,
    read_pairs,
    remove_leftovers,
    remove_stale_files,
    write_pairs,
    write_records,
)
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.statistics import (
    SwappedDatasetStatistics,
    add_statistics,
    count_statistics,
)
from stepline.sieve_swap.swap import EmbedTexts, sieve_and_swap
from stepline.sieve_swap.text_base.base import TextBase
from stepline.sieve_swap.videos import VIDEOS_FILE, VideoFilter, VideoOrRejected, read_videos
from stepline.version import __version__

log = logging.getLogger(__name__)

WORDS_FOLDER = "words"
IDENTITY_FILE = "settings.txt"  # in the folder of a run: what decides it
MAX_NAMED_VIDEOS = 3  # unreadable videos whose reason is reported
NO_DOCUMENT_FITS = "no document goes with it"


@dataclass(frozen=True)
class SieveSwapJob:
    """The inputs of one run of Sieve & Swap.

    Attributes:
        videos: file or folder of the videos, as `read_videos` takes it.
        base: the text base.
        out: folder for the results.
        settings: settings of pairing, sieve and swap.
        excluded: videos of evaluation sets, which are left out.
        embed: function from N texts to their (N, D) unit vectors. None: the encoder of the base.
        report: function that is called with progress messages.
    """

    videos: Path
    base: TextBase
    out: Path
    settings: SieveSwapSettings
    excluded: ExcludedVideos = field(default_factory=ExcludedVideos)
    embed: EmbedTexts | None = None
    report: Callable[[str], None] = log.info

    def read_parts(self) -> Iterator[list[VideoOrRejected]]:
        """Yield the videos as lists of `settings.run.shard` videos."""
        videos = read_videos(self.videos)
        while part := list(islice(videos, self.settings.run.shard)):
            yield part


@dataclass(frozen=True)
class SieveSwapResult:
    """The result of a run of Sieve & Swap.

    Attributes:
        statistics: counts of all parts in sum.
        parts: for each part, the file with its statistics.
        pairs: for each part, the file that says which documents its videos were paired with.
        resumed_count: number of parts that an earlier run had finished.
    """

    statistics: SwappedDatasetStatistics
    parts: tuple[Path, ...]
    pairs: tuple[Path, ...]
    resumed_count: int


def run_job(job: SieveSwapJob) -> SieveSwapResult:
    """Sieve and swap every video of a job. The files are written into `job.out`.

    Raises SettingsError if `job.out` holds a run with other settings. Raises DatasetError if the
    settings name a category and no video states one. Errors of the readers are raised too.
    """
    base_folder = job.base.folder
    if not job.base.step_count:
        raise StoreError(
            f"{base_folder}: the text base holds no step; build it from texts that have some"
        )
    check_writable(job.out)
    _check_same_run(job)
    # documents' words are stored next to the base, for all runs, or in `out` if that is not allowed
    words_folder = job.out / WORDS_FOLDER
    if base_folder.is_dir() and os.access(base_folder, os.W_OK):
        words_folder = base_folder / WORDS_FOLDER
    remove_leftovers(job.out, words_folder)
    words = load_document_words(job.base, words_folder, job.settings)
    job.report(
        f"{len(words.titles)} documents with {len(words.vocabulary)} different content words"
    )
    # count categories
    video_filter = VideoFilter(job.settings.pairing, job.excluded)
    video_count = video_filter.count_tasks(_videos_logging_errors(job))
    job.report(f"{video_count} videos to go through")
    category = job.settings.pairing.category
    if category and not video_filter.has_categories:
        raise DatasetError(
            f"{job.videos}: no video has a category, {category!r} is asked; put {VIDEOS_FILE} next "
            "to it, or give --set pairing.category="
        )
    write_atomic(job.out / IDENTITY_FILE, _format_run_identity(job))
    # pair, then sieve and swap
    pairs = _pair_videos(job, words, video_filter)
    retained = _retained_documents(pairs) if job.settings.match.needs_pairs else None
    parts, resumed_count = _swap_records(job, words, pairs, retained)
    # remove the files of other runs, and add up
    records = [
        job.out / split / f"{part.stem}.parquet"
        for part in parts
        for split in (TRAIN_SPLIT, VALIDATION_SPLIT, LEFT_OUT)
    ]
    removed_count = remove_stale_files(job.out, [*pairs, *parts, *records])
    job.report(
        f"{len(parts)} parts, {resumed_count} of them done before, {removed_count} stale files removed"
    )
    sums = add_statistics(
        SwappedDatasetStatistics.model_validate_json(part.read_bytes()) for part in parts
    )
    return SieveSwapResult(sums, tuple(parts), tuple(pairs), resumed_count)


def check_encoder(base: TextBase, settings: SieveSwapSettings) -> None:
    """Raise SettingsError if the base was embedded by another encoder than the settings name.

    The thresholds of the settings hold for the cosines of that encoder only.
    """
    encoder = settings.text_base.encoder
    if base.encoder == encoder:
        return
    raise SettingsError(
        f"{base.folder}: embedded by {base.encoder}, while match.similarity "
        f"{settings.match.floor:g} is for {encoder}; build it with text_base.encoder={encoder}, "
        f"or --set text_base.encoder={base.encoder} takes it as it is"
    )


def _videos_logging_errors(job: SieveSwapJob) -> Iterator[VideoOrRejected]:
    """Yield every video, and log the first few that cannot be read."""
    unreadable = 0
    for video in read_videos(job.videos):
        if isinstance(video, Rejected):
            unreadable += 1
            if unreadable <= MAX_NAMED_VIDEOS:
                job.report(f"left out: {video.location}: {video.reason}")
        yield video


def _format_run_identity(job: SieveSwapJob) -> str:
    """Return the version and the settings that identify a run, one line per section."""
    settings = job.settings.model_dump(mode="json", exclude={"text_base"})
    lines = [f"{section}: {value}\n" for section, value in sorted(settings.items())]
    return f"stepline {__version__}\n{''.join(lines)}"


def _check_same_run(job: SieveSwapJob) -> None:
    note = job.out / IDENTITY_FILE
    if note.is_file() and note.read_text() != _format_run_identity(job):
        raise SettingsError(
            f"{job.out}: holds a run with other settings ({note.name}); give another --out or "
            "remove it"
        )


# ---------------------------------------------------------------- pairing


def _pair_videos(job: SieveSwapJob, words: DocumentWords, video_filter: VideoFilter) -> list[Path]:
    """Pair the videos of each part with documents, and return one file of pairs per part.

    Files that exist are not written again.

    Args:
        job: the inputs of the run.
        words: content words of the documents.
        video_filter: decides which videos are excluded. Its counts of videos per task must be
            complete.
    """

    # Made only where a part is left to pair.
    @cache
    def build_finder() -> PairFinder:
        return PairFinder(words.titles, words.contents, len(words.vocabulary))

    files = []
    settings = job.settings.pairing.model_dump(mode="json")
    needs_pairs = job.settings.match.needs_pairs
    for number, part in enumerate(job.read_parts()):
        reasons = [video_filter.rejection_reason(video) for video in part]
        videos = hash_values(*map(_digest_input, part))
        stem = part_file_stem(number, videos, words.digest, settings, reasons, needs_pairs)
        file = job.out / PAIRS_FOLDER / f"{stem}.parquet"
        if not file.is_file():
            rows = _pair_videos_of_part(job, part, reasons, words, build_finder())
            write_pairs(rows, file)
            job.report(f"part {number} paired")
        files.append(file)
    return files


def _digest_input(video: VideoOrRejected) -> object:
    if isinstance(video, Record):
        return video.model_dump_json()
    return (video.location, video.reason)


def _pair_videos_of_part(
    job: SieveSwapJob,
    part: Sequence[VideoOrRejected],
    reasons: Sequence[str | None],
    words: DocumentWords,
    finder: PairFinder,
) -> list[PairedVideo]:
    """Return a row per video of a part.

    A row says why the video is excluded, or gives its split and its documents, the best one first.

    Args:
        job: the inputs of the run.
        part: the videos.
        reasons: why each video is excluded, or None.
        words: content words of the documents.
        finder: finds the documents of a video by their words.
    """
    rows: list[PairedVideo] = []
    records: dict[int, Record] = {}  # those that come in, by their row
    for video, reason in zip(part, reasons, strict=True):
        sets: Sequence[str] = ()
        if isinstance(video, Record):
            sets = job.excluded.datasets_with(video.video.id)
            if reason is None:
                records[len(rows)] = video
        rows.append(PairedVideo(_video_id(video), reason, None, evaluation=list(sets)))
    if not job.settings.match.needs_pairs:
        for number in records:
            rows[number] = replace(rows[number], split=TRAIN_SPLIT)
        return rows
    # the words of titles and of speech
    settings = job.settings.pairing
    videos = list(records.values())
    titles = [record.video.title or record.video.task or "" for record in videos]
    speech = [" ".join(sentence.text for sentence in record.sentences) for record in videos]
    find = words.vocabulary.find_words
    title_sets = WordSets.from_lists(map(find, title_words(titles)))
    spoken_words = content_words(speech, numerals=settings.numerals)
    speech_sets = WordSets.from_lists(
        find(sorted(set(words_of_video))) for words_of_video in spoken_words
    )
    # the documents that share enough of them
    pairs_of_videos = finder.find_pairs(title_sets, speech_sets, settings)
    for number, pairs in zip(records, pairs_of_videos, strict=True):
        # lexsort begins with its last key: IoU, then recall, then the number.
        best = np.lexsort((pairs.documents, -pairs.recall, -pairs.iou))
        rows[number] = replace(
            rows[number],
            reason=None if len(pairs) else NO_DOCUMENT_FITS,
            split=pairs.choose_split(settings),
            documents=pairs.documents[best].tolist(),
            iou=pairs.iou[best].tolist(),
            recall=pairs.recall[best].tolist(),
        )
    return rows


def _video_id(video: VideoOrRejected) -> str:
    return video.id if isinstance(video, Record) else video.location


def _retained_documents(files: Sequence[Path]) -> DocumentIds:
    """Return the numbers of the documents that any video was paired with, ascending. files: the
    files of paired videos."""
    retained = np.empty(0, dtype=np.int64)
    for file in files:
        numbers: list[int] = []
        for row in read_pairs(file):
            numbers += row.documents
        retained = np.union1d(retained, np.asarray(numbers, dtype=np.int64))
    return retained


# ---------------------------------------------------------------- sieving and swapping


def _swap_records(
    job: SieveSwapJob, words: DocumentWords, pairs: Sequence[Path], retained: DocumentIds | None
) -> tuple[list[Path], int]:
    """Sieve and swap the videos of each part that an earlier run has not finished. Return the
    statistics file of each part, and how many of them existed before.

    The statistics of a part are written after its records, so they show that it is finished.

    Args:
        job: the inputs of the run.
        words: content words of the documents.
        pairs: file of paired videos of each part.
        retained: numbers of the documents that any video was paired with. None: not needed.
    """
    match = job.settings.match.model_dump(mode="json")
    retained_digest = None if retained is None else hashlib.sha256(retained.tobytes()).hexdigest()
    swap_digest = hash_values(
        match, retained_digest, words.digest, job.base.encoder, job.base.step_count
    )
    files = []
    resumed_count = 0
    for number, (part, pairs_file) in enumerate(zip(job.read_parts(), pairs, strict=True)):
        stem = part_file_stem(number, pairs_file.stem, swap_digest)
        file = job.out / PARTS_FOLDER / f"{stem}.json"
        if file.is_file():
            resumed_count += 1
        else:
            counts = _swap_videos_of_part(job, stem, part, read_pairs(pairs_file), retained)
            write_atomic(file, counts.model_dump_json(indent=1))
            trim_memory()
            job.report(f"part {number} swapped: {len(part)} videos")
        files.append(file)
    return files, resumed_count


def _swap_videos_of_part(
    job: SieveSwapJob,
    stem: str,
    part: Sequence[VideoOrRejected],
    rows: Sequence[PairedVideo],
    retained: DocumentIds | None,
) -> SwappedDatasetStatistics:
    """Write the records of one part, one file per split, and return the statistics of the part.

    Args:
        job: the inputs of the run.
        stem: name of the files, without ending.
        part: the videos.
        rows: result of pairing each video.
        retained: numbers of the documents that scope "retained" searches. None: all documents.
    """
    by_split: dict[str, list[Record]] = {TRAIN_SPLIT: [], VALIDATION_SPLIT: [], LEFT_OUT: []}
    records: list[Record] = []
    record_rows: list[PairedVideo] = []
    for video, row in zip(part, rows, strict=True):
        if row.reason is not None:
            by_split[LEFT_OUT].append(_excluded_record(video, row.reason))
        elif isinstance(video, Record):
            records.append(video)
            record_rows.append(row)
    documents = [np.asarray(row.documents, dtype=np.int64) for row in record_rows]
    splits = [row.split or TRAIN_SPLIT for row in record_rows]
    swapped = sieve_and_swap(
        records,
        job.base,
        job.settings.match,
        paired=documents if job.settings.match.needs_pairs else None,
        retained=retained,
        embed=job.embed,
    )
    for record, row, split in zip(swapped, record_rows, splits, strict=True):
        by_split[split].append(_add_provenance(record, row, job))
    for split, split_records in by_split.items():
        if split_records:
            write_records(split_records, split, job.out / split / f"{stem}.parquet")
    # counts of those that came in, and of the others
    reasons: Counter[str] = Counter()
    evaluation_sets: Counter[str] = Counter()
    for row in rows:
        if row.reason:
            reasons[row.reason] += 1
        evaluation_sets.update(row.evaluation)
    left_out = SwappedDatasetStatistics(videos=dict(reasons), excluded=dict(evaluation_sets))
    return add_statistics([count_statistics(swapped, splits), left_out])


def _add_provenance(record: Record, row: PairedVideo, job: SieveSwapJob) -> Record:
    """Return the record with the settings and the encoder that its steps were made with."""
    best = None
    if row.documents:
        best = {"iou": row.iou[0], "recall": row.recall[0], "documents": len(row.documents)}
    match = job.settings.match.model_dump(mode="json")
    made_by = {"match": match, "split": row.split, "pairing": best}
    model = {"stepline": __version__, "encoder": str(job.base.encoder)}
    changes = {
        "settings": record.settings | {"sieve_swap": made_by},
        "models": record.models | {"sieve_swap": model},
    }
    return record.model_copy(update=changes)


def _excluded_record(video: VideoOrRejected, reason: str) -> Record:
    """Return a record with the id of an excluded video and the reason, without the transcript."""
    identity = _video_id(video) or "unnamed"
    if isinstance(video, Rejected):
        reason = video.reason
    rejection = Rejected(what="video", text=identity, reason=reason)
    facts = video.video if isinstance(video, Record) else Video(id=identity)
    return Record(id=identity, video=facts, dropped=(rejection,))
