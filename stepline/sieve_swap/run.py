"""Sieve & Swap over a whole collection: in parts of a few hundred videos, each done once, whatever
interrupts it.

The videos are gone through three times, one part in memory at a time: to count categories; to pair
(after which the documents that anything was paired with are known: R2 in the paper); to sieve and
swap. Each part's files are named by all that decides them, so that a rerun after kill -9 finds them
and ends with the bytes of an undisturbed run.
"""

import hashlib
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.atomic_files import check_writable, write_atomic
from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import SettingsError, StoreError
from stepline.progress import trim_memory
from stepline.records import Record, Rejected, Video
from stepline.sieve_swap import output as shards
from stepline.sieve_swap import output as statistics
from stepline.sieve_swap.content_words import (
    DocumentWords,
    content_words,
    document_words,
    title_words,
)
from stepline.sieve_swap.match import DocumentIds
from stepline.sieve_swap.output import (
    LEFT_OUT,
    PAIRS,
    PARTS,
    TRAIN,
    VALIDATION,
    PairedVideo,
    Statistics,
)
from stepline.sieve_swap.pairing import PairFinder, WordSets
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.swap import Embed, sieve_and_swap
from stepline.sieve_swap.videos import VideoFilter, VideoOrRejected, read_videos
from stepline.text_base.base import TextBase
from stepline.version import __version__

log = logging.getLogger(__name__)

WORDS = "words"
NAMED = 3  # unreadable videos whose reason is said
UNPAIRED = "no document goes with it"
SAID = Callable[[str], None]
Part: TypeAlias = tuple[int, list[VideoOrRejected]]


@dataclass(frozen=True)
class Job:
    """One run. videos: what `read_videos` takes. embed: texts to vectors, None = the base's
    encoder. say: progress."""

    videos: Path
    base: TextBase
    out: Path
    settings: SieveSwapSettings = field(default_factory=SieveSwapSettings)
    excluded: ExcludedVideos = field(default_factory=ExcludedVideos)
    embed: Embed | None = None
    say: SAID = log.info


@dataclass(frozen=True)
class RunResult:
    """What a run made: the sums over its parts, its parts' files, and how many parts an earlier run
    had done."""

    statistics: Statistics
    parts: tuple[Path, ...]
    pairs: tuple[Path, ...]
    earlier: int


def run(job: Job) -> RunResult:
    """Sieve and swap every video of a job and return what there is to report; files appear in
    `job.out`.

    Raises SettingsError where `out` holds a run with other settings, and what the readers raise.
    """
    if not job.base.step_count:
        raise StoreError(
            f"{job.base.folder}: the text base holds no step; build it from texts that have some"
        )
    check_writable(job.out)
    _same_run(job)
    shards.remove_leftovers(job.out, _words_folder(job))
    words = document_words(job.base, _words_folder(job), job.settings)
    job.say(f"{len(words.titles)} documents with {len(words.vocabulary)} different content words")
    video_filter = VideoFilter(job.settings.pairing, job.excluded)
    job.say(f"{video_filter.count(_told(job))} videos to go through")
    pairs = _pair(job, words, video_filter)
    retained = _retained(pairs) if _paired_at_all(job.settings) else None
    parts, earlier = _swap(job, words, pairs, retained)
    files = [*pairs, *parts, *(file for part in parts for file in _files_of(job, part.stem))]
    stale = shards.keep_only(job.out, files)
    job.say(f"{len(parts)} parts, {earlier} of them done before, {stale} stale files removed")
    sums = statistics.add([Statistics.model_validate_json(part.read_bytes()) for part in parts])
    return RunResult(sums, tuple(parts), tuple(pairs), earlier)


def _told(job: Job) -> Iterator[VideoOrRejected]:
    """Yield every video, saying why the first few are not readable; the records of `left_out` say
    it of each."""
    unread = 0
    for video in read_videos(job.videos):
        if isinstance(video, Rejected):
            unread += 1
            if unread <= NAMED:
                job.say(f"left out: {video.location}: {video.reason}")
        yield video


def _same_run(job: Job) -> None:
    """Write what decides the run into `out`, or raise where another run's stands there."""
    kept = job.settings.model_dump(mode="json", exclude={"run": {"words"}, "text_base": True})
    text = f"stepline {__version__}\n" + "".join(
        f"{key}: {value}\n" for key, value in sorted(kept.items())
    )
    note = job.out / "settings.txt"
    if note.is_file() and note.read_text() != text:
        cure = "give another --out or remove it"
        raise SettingsError(f"{job.out}: holds a run with other settings ({note.name}); {cure}")
    if not note.is_file():
        write_atomic(note, text)


def _words_folder(job: Job) -> Path:
    """Return where the documents' words are kept: beside the base, for all runs; in `out` where
    that is not allowed."""
    base = job.base.folder
    return base / WORDS if base.is_dir() and os.access(base, os.W_OK) else job.out / WORDS


def _paired_at_all(settings: SieveSwapSettings) -> bool:
    return settings.match.scope != "all" or settings.match.method == "monotone"


def _parts(job: Job) -> Iterator[Part]:
    videos = read_videos(job.videos)
    for number in itertools.count():
        part = list(itertools.islice(videos, job.settings.run.shard))
        if not part:
            return
        yield number, part


def _digest(part: Sequence[VideoOrRejected]) -> str:
    return shards.digest(
        *(v.model_dump_json() if isinstance(v, Record) else (v.location, v.reason) for v in part)
    )


# ---------------------------------------------------------------- pairing


def _pair(job: Job, words: DocumentWords, video_filter: VideoFilter) -> list[Path]:
    """Return the files of pairs, one a part; those not there yet are made."""
    ready: PairFinder | None = None
    files = []
    settings = job.settings.pairing.model_dump(mode="json")
    for number, part in _parts(job):
        refused = [(video, video_filter.rejection_reason(video)) for video in part]
        reasons = [reason for _, reason in refused]
        stem = shards.name(
            number, _digest(part), words.digest, settings, reasons, _paired_at_all(job.settings)
        )
        file = job.out / PAIRS / f"{stem}.parquet"
        if not file.is_file():
            if ready is None:
                ready = PairFinder(words.titles, words.contents, len(words.vocabulary))
            shards.write_pairs(_pair_part(job, refused, words, ready), file)
            job.say(f"part {number} paired")
        files.append(file)
    return files


def _pair_part(
    job: Job,
    refused: Sequence[tuple[VideoOrRejected, str | None]],
    words: DocumentWords,
    ready: PairFinder,
) -> list[PairedVideo]:
    """Return a row a video: why it stays out, or its split and its documents, the best first."""
    rows = []
    for video, reason in refused:
        held_out = job.excluded.sets_with(video.video.id) if isinstance(video, Record) else ()
        rows.append(PairedVideo(_id(video), reason, None, evaluation=list(held_out)))
    places = [place for place, (_, reason) in enumerate(refused) if reason is None]
    if not _paired_at_all(job.settings):
        return [row if row.reason else replace(row, split=TRAIN) for row in rows]
    records = [video for video, reason in refused if reason is None and isinstance(video, Record)]
    settings = job.settings.pairing
    titles = [record.video.title or record.video.task or "" for record in records]
    speech = [
        " ".join(s.text for s in record.transcript.sentences) if record.transcript else ""
        for record in records
    ]
    find = words.vocabulary.find
    title_sets = WordSets.of(find(found) for found in title_words(titles))
    speech_sets = WordSets.of(
        find(sorted(set(w))) for w in content_words(speech, numerals=settings.numerals)
    )
    for place, pairs in zip(
        places, ready.all_pairs(title_sets, speech_sets, settings), strict=True
    ):
        best = np.lexsort((pairs.documents, -pairs.recall, -pairs.iou))
        found = {"documents": pairs.documents, "iou": pairs.iou, "recall": pairs.recall}
        row = replace(
            rows[place], split=pairs.split(settings), reason=None if len(pairs) else UNPAIRED
        )
        rows[place] = replace(row, **{key: value[best].tolist() for key, value in found.items()})
    return rows


def _id(video: VideoOrRejected) -> str:
    return video.id if isinstance(video, Record) else video.location


def _retained(files: Sequence[Path]) -> DocumentIds:
    """Return the documents that any video was paired with, ascending."""
    held = np.empty(0, dtype=np.int64)
    for file in files:
        numbers = [number for row in shards.read_pairs(file) for number in row.documents]
        held = np.union1d(held, np.asarray(numbers, dtype=np.int64))
    return held


# ---------------------------------------------------------------- sieving and swapping


def _swap(
    job: Job, words: DocumentWords, pairs: Sequence[Path], retained: DocumentIds | None
) -> tuple[list[Path], int]:
    """Return the files of counts, one a part, and how many were there; a part's counts are written
    last."""
    match = job.settings.match.model_dump(mode="json")
    searched = None if retained is None else hashlib.sha256(retained.tobytes()).hexdigest()
    made_with = shards.digest(match, searched, words.digest, job.base.encoder, job.base.step_count)
    files, earlier = [], 0
    for (number, part), paired in zip(_parts(job), pairs, strict=True):
        stem = shards.name(number, paired.stem, made_with)
        file = job.out / PARTS / f"{stem}.json"
        if file.is_file():
            earlier += 1
        else:
            counts = _swap_part(job, stem, part, shards.read_pairs(paired), retained)
            write_atomic(file, counts.model_dump_json(indent=1))
            trim_memory()
            job.say(f"part {number} swapped: {len(part)} videos")
        files.append(file)
    return files, earlier


def _swap_part(
    job: Job,
    stem: str,
    part: Sequence[VideoOrRejected],
    rows: Sequence[PairedVideo],
    retained: DocumentIds | None,
) -> Statistics:
    """Write the records of one part, one file a split that has any, and return its counts."""
    taken = [
        (video, row)
        for video, row in zip(part, rows, strict=True)
        if row.reason is None and isinstance(video, Record)
    ]
    paired = (
        [np.asarray(row.documents, dtype=np.int64) for _, row in taken]
        if _paired_at_all(job.settings)
        else None
    )
    swapped = sieve_and_swap(
        [video for video, _ in taken],
        job.base,
        job.settings.match,
        paired=paired,
        retained=retained,
        embed=job.embed,
    )
    by_split: dict[str, list[Record]] = {TRAIN: [], VALIDATION: [], LEFT_OUT: []}
    for record, (_, row) in zip(swapped, taken, strict=True):
        by_split[row.split or TRAIN].append(_signed(record, row, job))
    by_split[LEFT_OUT] = [
        _left_out(v, row.reason) for v, row in zip(part, rows, strict=True) if row.reason
    ]
    for split, records in by_split.items():
        if records:
            shards.write_records(records, split, job.out / split / f"{stem}.parquet")
    counts = statistics.count(swapped, [row.split or TRAIN for _, row in taken])
    return statistics.add([counts, _of_those_left_out(rows)])


def _of_those_left_out(rows: Sequence[PairedVideo]) -> Statistics:
    reasons = Counter(row.reason for row in rows if row.reason)
    held = Counter(dataset for row in rows for dataset in row.evaluation)
    return Statistics(videos=dict(reasons), excluded=dict(held))


def _signed(record: Record, row: PairedVideo, job: Job) -> Record:
    """Return the record with what made its steps."""
    best = (
        {"iou": row.iou[0], "recall": row.recall[0], "documents": len(row.documents)}
        if row.documents
        else None
    )
    match = job.settings.match.model_dump(mode="json")
    settings = record.settings | {
        "sieve_swap": {"match": match, "split": row.split, "pairing": best}
    }
    models = record.models | {
        "sieve_swap": {"stepline": __version__, "encoder": str(job.base.encoder)}
    }
    return record.model_copy(update={"settings": settings, "models": models})


def _left_out(video: VideoOrRejected, reason: str | None) -> Record:
    """Return the record of a video that stays out: its id and the reason, without its
    transcript."""
    why = video.reason if isinstance(video, Rejected) else reason or ""
    identity = _id(video) or "unnamed"
    known = video.video if isinstance(video, Record) else Video(id=identity)
    return Record(
        id=identity, video=known, dropped=(Rejected(what="video", text=identity, reason=why),)
    )


def _files_of(job: Job, stem: str) -> list[Path]:
    return [job.out / split / f"{stem}.parquet" for split in (TRAIN, VALIDATION, LEFT_OUT)]
