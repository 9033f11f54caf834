"""One video to a record, or to all its files. Also many: which files, under which ids, what is done
already.

`steps` and `transcribe` are Stepline's public functions. `run_video` is what `stepline steps` does
with each video.
"""

import faulthandler
import logging
import math
import os
import pickle
import re
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil

from stepline.errors import (
    CaptionError,
    MediaError,
    SettingsError,
    SteplineError,
    StoreError,
    error_line,
)
from stepline.files.atomic_files import check_writable, remove_partial_files
from stepline.files.digests import sha256
from stepline.files.locks import lock_output
from stepline.limits import MAX_LINES_BYTES, MAX_TEXTS, LimitError, read_limited
from stepline.networks.device import (
    ComputeType,
    core_count,
    cpu_threads,
    current_device,
    set_device,
)
from stepline.numeric import one_blas_thread
from stepline.pipeline.networks import Networks, fingerprint, load_networks, shared_recognisers
from stepline.pipeline.output_files import KEYFRAME_PIXELS, OutputOptions, write_files
from stepline.pipeline.part import part_info, to_whole_video_times
from stepline.pipeline.request import Request, SourceOptions, StepsSettings
from stepline.pipeline.sources import (
    VideoSource,
    find_sources,
    is_taken,
    open_only_source,
    read_media_info,
    require_utf8_name,
)
from stepline.pipeline.speech import recognise_speech
from stepline.pipeline.understand import understand
from stepline.processes import worker_variables
from stepline.progress import Progress
from stepline.records import Matrix, Record, Span, Video
from stepline.storage import read_record
from stepline.version import __version__
from stepline.workers import Reply, Send, WorkerDeath, WorkerPool, WorkerProcess

if TYPE_CHECKING:
    from stepline.grounding.speech import TaskGraph

log = logging.getLogger(__name__)

NO_SPEECH = "no speech to write steps from"  # begins the warning of a record without any
# in a warning: a deadline or a silent server made this result, so it is done again
PROVISIONAL_MARK = "provisional"


@dataclass(frozen=True)
class VideoResult:
    """The record and files of a video, and whether an earlier run wrote them."""

    record: Record
    files: tuple[Path, ...]
    earlier: bool


def steps(
    video: Path | str,
    *,
    texts: "Sequence[str] | str | TaskGraph" = (),
    captions: Path | str | None = None,
    settings: StepsSettings | None = None,
    out: Path | str | None = None,
    part: Span | None = None,
    title: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Record:
    """Return the steps of a video, a file or an address of http(s): what to do, and the seconds in
    which it is shown.

    texts: your own lines to look for, instead of steps written from the speech. Of a text, its
    lines. Or the steps of other videos of the task, of `compare.read_task_graph`.
    captions: a file that replaces speech recognition.
    out: a folder for all that `stepline steps` writes. Its result of an earlier run is taken.
    part: the seconds of the video that are heard and looked at alone. Times are still of the whole.
    title: what to call the video. None: as its page, its file or its speaker does.
    device: where networks run from now on in this process: auto, cpu, cuda, cuda:N or mps.
    progress: called with the stage's name, the second reached and the video's seconds.
    Raises MediaError, CaptionError, ModelError or SettingsError, each with its cure.
    """
    if device is not None:
        set_device(device)

    # what is asked
    settings = settings or StepsSettings()
    folder = None if out is None else Path(out)
    options = _source_options(texts, captions, part, title)
    opened = open_only_source(video, settings, folder, **options)

    # the record, and in a folder its files
    with opened as request:
        networks = load_networks(settings, several=True)  # another call may follow
        if folder is None:
            record = understand(request, settings, networks=networks, progress=progress).record
            return _with_advice(request, record, settings)
        from stepline.outputs import USUAL

        outputs = OutputOptions(folder, USUAL)
        return run_video(request, settings, outputs, networks=networks, progress=progress).record


class VideoScores(NamedTuple):
    """Scores of a user's texts per second of a video.

    values: (K, T) float32, P(text k is being shown then), row = text.
    times: (T,), the second at which each column begins.
    """

    values: Matrix
    times: npt.NDArray[np.float64]


def scores(
    video: Path | str,
    texts: "Sequence[str] | str | TaskGraph",
    *,
    captions: Path | str | None = None,
    settings: StepsSettings | None = None,
    part: Span | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> VideoScores:
    """Return how each of your own lines fits each second of a video, as an array (K, T), and the
    times of its columns.

    The values are those that place the lines in `steps(video, texts=...)`: P(the line is being
    shown then), all 0 in a sound without a picture. The other arguments as of `steps`.
    Raises SettingsError without a line, MediaError, CaptionError or ModelError, each with its cure.
    """
    options = _source_options(texts, captions, part)
    lines = options["texts"]
    if not lines:
        raise SettingsError("no lines to score; give at least one text")
    if device is not None:
        set_device(device)

    # the lines, placed as `steps` places them
    settings = settings or StepsSettings()
    with open_only_source(video, settings, None, **options) as request:
        networks = load_networks(settings, several=True)  # another call may follow
        result = understand(request, settings, networks=networks, progress=progress)

    # the scores that place them
    alignment = result.alignment
    if alignment is None:
        seconds = math.ceil(result.record.video.duration or 0.0)
        values = np.zeros((len(lines), seconds), np.float32)
        return VideoScores(values, np.arange(float(seconds)))
    columns = np.arange(alignment.scores.shape[1])  # (T,)
    return VideoScores(alignment.scores, columns / alignment.rate)


def _source_options(
    texts: "Sequence[str] | str | TaskGraph" = (),
    captions: Path | str | None = None,
    part: Span | None = None,
    title: str | None = None,
) -> SourceOptions:
    """Return the request options. A single text is split into its lines that are not empty."""
    from stepline.grounding.speech import TaskGraph

    options: SourceOptions = {"part": part, "title": title}
    if captions is not None:
        options["captions"] = Path(captions)
    if isinstance(texts, TaskGraph):
        return {**options, "texts": texts.lines, "graph": texts}
    if isinstance(texts, str):
        texts = [line.strip() for line in texts.splitlines() if line.strip()]
    return {**options, "texts": tuple(texts)}


@dataclass(frozen=True)
class BatchResult:
    """One video of `batch`: its record, or the error that ended it. number: its place among
    `total`, from 1."""

    path: Path
    record: Record | None
    error: SteplineError | None
    number: int
    total: int


def batch(
    videos: Sequence[Path | str] | Path | str,
    *,
    texts: "Sequence[str] | str | TaskGraph" = (),
    settings: StepsSettings | None = None,
    out: Path | str = "out",
    formats: Sequence[str] | str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Iterator[BatchResult]:
    """Yield the result of each video: files, folders and links, as of `stepline steps`, one or
    several. Networks are loaded once.

    out, formats: as --out and --format. What an earlier run has made there is taken. The other
    arguments as of `steps`. A video that cannot be read ends itself, no other. Raises MediaError
    for a folder without videos, SettingsError and ModelError for what concerns all of them.
    """
    from stepline.outputs import USUAL

    if device is not None:
        set_device(device)

    # what all videos share
    settings = settings or StepsSettings()
    if isinstance(videos, Path | str):
        videos = (videos,)
    if isinstance(formats, str):
        formats = (formats,)
    names = USUAL if formats is None else (*formats, "json")
    options = OutputOptions(Path(out), tuple(dict.fromkeys(names)))
    sources = find_sources(videos, options.out, settings, captions=True)
    networks = load_networks(settings, several=len(sources) > 1)

    # each ends itself alone
    for number, source in enumerate(sources, start=1):
        record = None
        fault = None
        path = Path(source.label)
        try:
            with source.open(options.out, settings, **_source_options(texts)) as request:
                path = request.path
                result = run_video(request, settings, options, networks=networks, progress=progress)
                record = result.record
        except SteplineError as error:
            fault = error
        yield BatchResult(path, record, fault, number, len(sources))


@one_blas_thread()
def transcribe(
    video: Path | str,
    *,
    captions: Path | str | None = None,
    settings: StepsSettings | None = None,
    part: Span | None = None,
    progress: Progress | None = None,
) -> Record:
    """Return a record that holds only what is said in a video, by the recogniser or as given
    captions say it.

    part: as of `steps`. Raises MediaError or CaptionError where a file cannot be read.
    """
    settings = settings or StepsSettings()

    # what is said
    options = _source_options((), captions, part)
    with open_only_source(video, settings, None, **options) as request:
        path = request.path
        whole = read_media_info(request, settings)
        info = part_info(whole, part)
        models = shared_recognisers(settings.asr, current_device())
        speech = recognise_speech(request, info, settings, models=models, progress=progress)

    # a record without steps
    duration = speech.end if part is None else whole.duration
    record = Record(
        id=path.stem,
        video=Video(
            id=path.stem,
            path=str(path),
            duration=duration or info.duration or None,
            origin=request.origin,
        ),
        transcript=speech.transcript,
        dropped=speech.dropped,
        warnings=(*info.warnings, *speech.warnings),
    )
    if part is not None:
        record, _ = to_whole_video_times(record, None, part.start)
    return record


def run_video(
    request: Request,
    settings: StepsSettings,
    options: OutputOptions,
    *,
    networks: Networks | None = None,
    progress: Progress | None = None,
) -> VideoResult:
    """Understand one video and write its files, JSON last, or return what an earlier run wrote.

    networks: of the same settings, where several videos share them. Another process that works on a
    video of this name in the same folder is waited for. Where it has made the same, that is taken.
    Raises a SteplineError. Nothing is left half-written.
    """
    from stepline.media import Thumbnails
    from stepline.outputs import CLIPS_SUFFIX, safe_stem

    require_utf8_name(request.path)
    # what an earlier run has made is taken
    stem = safe_stem(request.id)
    refuse_overwriting(request, options)
    networks = networks or load_networks(settings)
    earlier = _earlier_result(request, settings, options, networks)
    if earlier is not None:
        return earlier
    check_writable(options.out)  # before the minutes of work that would be lost

    # one process at a time
    taken_before = is_taken(request.path, options.out)
    with lock_video(request.id, options.out):
        if is_taken(request.path, options.out) and not taken_before:
            reason = "another process has now written a video of that name there"
            raise SettingsError(f"{options.out / stem}: {reason}; run again")
        earlier = _earlier_result(request, settings, options, networks)
        if earlier is not None:
            return earlier
        # What a killed run left half-written goes.
        for folder in (options.out, options.out / f"{stem}{CLIPS_SUFFIX}"):
            remove_partial_files(folder)

        # the work
        thumbnails = Thumbnails(KEYFRAME_PIXELS) if options.pictured else None
        result = understand(
            request, settings, networks=networks, progress=progress, thumbnails=thumbnails
        )
        result = replace(result, record=_with_advice(request, result.record, settings))
        files = write_files(request, result, options, thumbnails)
        return VideoResult(result.record, files, earlier=False)


def lock_video(id: str, out: Path) -> AbstractContextManager[bool]:
    """Return what holds the outputs of a video in a folder for this process. Another's end is
    waited for."""
    from stepline.outputs import safe_stem

    return lock_output(out / f".{safe_stem(id)}.lock", out / safe_stem(id), wait=True)


def _earlier_result(
    request: Request, settings: StepsSettings, options: OutputOptions, networks: Networks
) -> VideoResult | None:
    """Return what another run of this version has made of the same video with the same settings,
    where it is final and all that is asked for is there."""
    from stepline.outputs import clip_spans, missing_outputs, safe_stem

    if options.force:
        return None
    try:
        record = read_record(options.out / f"{safe_stem(request.id)}.json")
    except StoreError:
        return None
    if record.models.get("stepline") != __version__:
        return None
    if record.settings != fingerprint(request, settings, networks):
        return None
    if any(PROVISIONAL_MARK in warning for warning in record.warnings):
        return None
    if not request.path.is_file() or record.video.sha256 != sha256(request.path):
        return None
    if missing_outputs(record, options.out, options.formats, options.web):
        return None
    clips = clip_spans(record, options.out) if options.clips else ()
    if not all(clip.is_file() for clip in clips):
        return None
    return VideoResult(record, (), earlier=True)


def refuse_overwriting(request: Request, options: OutputOptions) -> None:
    """Raise SettingsError where an output would take the place of a file that is the user's own.

    That is one that was given, whatever the options, and one that no earlier run wrote, or that was
    changed since.
    """
    from stepline.outputs import OUTPUTS, foreign_outputs, safe_stem

    inputs = [path for path in (request.path, request.captions) if path is not None]
    # The user's own files are never overwritten, not even with --overwrite.
    own_files = set(map(os.path.realpath, inputs))
    for row in OUTPUTS.values():
        path = os.path.realpath(options.out / f"{safe_stem(request.id)}{row.suffix}")
        if path in own_files:
            cure = "give another folder with --out"
            raise SettingsError(f"{path}: an output would be written over this file; {cure}")
    if options.overwrite:
        return
    for foreign in foreign_outputs(request.id, options.out, options.formats):
        reason = "an output would be written over this file, which is not as an earlier run left it"
        cure = "give another --out, or --overwrite to lose it"
        raise SettingsError(f"{foreign}: {reason}; {cure}")


def _with_advice(request: Request, record: Record, settings: StepsSettings) -> Record:
    """Return the record, with a warning that says what would help where nothing in the video could
    become a step.

    Raises CaptionError where the captions given hold no sentence, MediaError where pictures are
    asked for and none is.
    """
    has_speech = record.transcript is not None and bool(record.transcript.sentences)
    if request.texts or has_speech or record.models.get("describer"):
        return record
    if settings.procx.when == "alone":
        reason = "no picture in it can be seen, so nothing can be described"
        raise MediaError(f"{request.path}: {reason}; give another")

    # what was left out
    count = sum(item.what == "sentence" for item in record.dropped)
    left_out = ""
    if count:
        left_out = f" ({count} doubtful sentence{'' if count == 1 else 's'} left out)"
    if request.captions is not None:
        reason = f"holds no sentence to write steps from{left_out}"
        raise CaptionError(f"{request.captions}: {reason}; give other captions")
    from stepline.speech.hallucinations import is_low_confidence_reason

    reason = NO_SPEECH
    if any(is_low_confidence_reason(item.reason) for item in record.dropped):
        language = record.transcript.language if record.transcript else None
        named = f" (language {language!r})" if language else ""
        reason = f"there is speech{named}, but it could not be recognised reliably"
    cure = "give its words (--captions), your own lines (--texts), or --describe MODEL"
    advice = f"{reason}{left_out}; {cure}"
    return record.model_copy(update={"warnings": (*record.warnings, advice)})


def read_texts(path: Path) -> tuple[str, ...]:
    """Return the lines of a recipe: those that hold a letter, without list numbers and bullets.

    Raises SettingsError when the file cannot be read as text or holds no line.
    """
    try:
        text = read_limited(path, MAX_LINES_BYTES).decode("utf-8-sig")
    except LimitError as error:
        raise SettingsError(f"--texts {path}: {error}; give fewer lines") from error
    except (OSError, UnicodeDecodeError) as error:
        cure = "give a file with one line per step"
        raise SettingsError(f"--texts {path}: cannot be read as UTF-8 text; {cure}") from error
    bullet = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
    lines = [bullet.sub("", line).strip() for line in text.splitlines()]
    texts = tuple(line for line in lines if any(letter.isalpha() for letter in line))
    if not texts:
        raise SettingsError(f"--texts {path}: holds no line of text; write one line per step")
    if len(texts) > MAX_TEXTS:
        count = f"{len(texts)} lines are more than {MAX_TEXTS}"
        raise SettingsError(f"--texts {path}: {count}; give those of this video")
    return texts


MIN_WORKER_BYTES = (
    2**30
)  # bytes of a process; 731 MB at most were measured with the default settings
MODEL_COPIES = 2  # times the size of a recogniser's file that it takes in memory, at most
POLL_SECONDS = 0.5  # s between two looks while no worker has news
END_SECONDS = 10.0  # s that workers have to clean up after an interrupt
CGROUP_FOLDER = Path("/sys/fs/cgroup")  # where a container sees what memory it may use
LOGGER_NAMES = ("", "faster_whisper")  # whose levels a worker has from the process that started it


@dataclass(frozen=True)
class VideoWorkerSetup:
    """Settings that each worker process gets.

    Args:
        request_parts: arguments of `VideoSource.open`.
        device: as of `set_device`.
        compute: as of `set_device`.
        log_levels: of `LOGGER_NAMES`.
    """

    settings: StepsSettings
    output: OutputOptions
    request_parts: Mapping[str, Any]
    device: str = "auto"
    compute: ComputeType = "auto"
    log_levels: tuple[int, ...] = (logging.WARNING, logging.ERROR)


@dataclass(frozen=True)
class VideoOutcome:
    """The result of a video, or the error that ended it. label: what messages call the video."""

    label: str
    result: VideoResult | None = None
    error: Exception | None = None


def max_parallel_videos(settings: StepsSettings) -> int:
    """Return how many videos this machine carries at the same time: each takes a core and memory.

    OMP_NUM_THREADS: cores that each takes instead. One where they would share a GPU, or a local
    language model.
    """
    # What cannot be shared between processes: a GPU, or a model that fills the memory.
    has_local_writer = settings.writing.writer == "llm" and settings.writing.llm.gguf is not None
    is_local_model = has_local_writer or settings.vision.vlm.gguf is not None
    if is_local_model or current_device().kind != "cpu":
        return 1
    cores_per_video = cpu_threads() if os.environ.get("OMP_NUM_THREADS") else 1
    by_memory = available_bytes() // video_bytes(settings)
    return max(1, min(core_count() // cores_per_video, by_memory))


def video_bytes(settings: StepsSettings) -> int:
    """Return the memory that the main job takes on a video, with room to spare.

    A recogniser that the settings name is fetched here where it is missing, once for all processes.
    """
    if settings.asr.model is None or settings.asr.recogniser != "whisper":
        return MIN_WORKER_BYTES
    from stepline.speech.whisper import find_model

    # MIN_WORKER_BYTES was measured with the default model. A named one may be far larger.
    files = find_model(settings.asr.model).glob("*.bin")
    return MIN_WORKER_BYTES + MODEL_COPIES * sum(file.stat().st_size for file in files)


def available_bytes(cgroup: Path = CGROUP_FOLDER) -> int:
    """Return the memory that can still be used: of the machine, or of the container's limit.

    cgroup: folder of the container's numbers.
    """
    # A container's limit counts as well, and psutil reports the machine's memory.
    free = int(psutil.virtual_memory().available)
    files = (cgroup / "memory.max", cgroup / "memory.current")
    limit, usage = (file.read_text().strip() if file.is_file() else "" for file in files)
    # The limit is "max" where there is none.
    if not (limit.isdecimal() and usage.isdecimal()):
        return free
    return min(free, max(0, int(limit) - int(usage)))


class VideoPool(WorkerPool[WorkerProcess]):
    """Worker processes that do the main job, at most `size`."""

    def __init__(self, setup: VideoWorkerSetup, size: int) -> None:
        variables = worker_variables(max(1, core_count() // size))

        def start(_: int) -> WorkerProcess:
            target = f"{__name__}:start_worker"
            return WorkerProcess(target, setup, variables=variables, show_output=True)

        super().__init__(start, size, END_SECONDS)

    def run(self, sources: Sequence[VideoSource]) -> Iterator[VideoOutcome | None]:
        """Yield the outcome of each video as it ends, and None while waiting.

        Raises SteplineError where no worker can start.
        """
        waiting = deque(sources)
        while waiting or any(worker.is_busy for worker in self.workers):
            # Free workers first: a new process has to load its networks.
            for worker in self.workers:
                if waiting and worker.is_free:
                    worker.submit(waiting.popleft())
            # Those that still start will each take a video, so they count as workers to come.
            starting = sum(not worker.is_ready for worker in self.workers)
            self.grow(len(self.workers) + len(waiting) - starting)
            for worker, message in self.wait(POLL_SECONDS):
                outcome = self._outcome(worker, message)
                if outcome is not None:
                    yield outcome
            yield None

    def _outcome(self, worker: WorkerProcess, message: object) -> VideoOutcome | None:
        """Return the outcome in a worker's message, or log the log record in it."""
        source: VideoSource | None = worker.task if worker.is_busy else None
        if isinstance(message, Reply):
            outcome: VideoOutcome = message.value
            return outcome
        if isinstance(message, logging.LogRecord):
            # Lines of several videos mix, so each names its own.
            if source is not None:
                message.msg = f"{source.label}: {message.msg}"
            logging.getLogger(message.name).handle(message)
        if isinstance(message, WorkerDeath):
            if source is None:
                what = f"a worker process ended by itself ({message.cause})"
                raise SteplineError(f"{what}; try --jobs 1")
            self.workers.remove(worker)
            worker.close()
            what = f"{source.label}: its process was ended ({message.cause})"
            cure = "try it alone, or fewer --jobs where memory is short"
            return VideoOutcome(source.label, error=SteplineError(f"{what}; {cure}"))
        return None


class MessageHandler(QueueHandler):
    """Sends log records to the parent of this worker process."""

    def __init__(self, send: Send) -> None:
        super().__init__(SimpleQueue())
        self._send = send

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        self._send(record)


def start_worker(setup: VideoWorkerSetup, send: Send) -> Callable[[VideoSource], VideoOutcome]:
    """Return a function that processes one video, after loading the networks in this process."""
    faulthandler.enable()
    logging.basicConfig(handlers=[MessageHandler(send)])
    for name, level in zip(LOGGER_NAMES, setup.log_levels, strict=True):
        logging.getLogger(name).setLevel(level)
    set_device(setup.device, setup.compute)
    networks = load_networks(setup.settings, several=True)

    def run(source: VideoSource) -> VideoOutcome:
        try:
            opened = source.open(setup.output.out, setup.settings, **setup.request_parts)
            with opened as request:
                result = run_video(request, setup.settings, setup.output, networks=networks)
        except Exception as error:  # noqa: BLE001   sent to the parent, which prints it
            return VideoOutcome(source.label, error=portable_error(error))
        return VideoOutcome(source.label, result)

    return run


def portable_error(error: Exception) -> Exception:
    """Return the error as it can be sent to another process, its trace in a note. Where it cannot
    be, return a RuntimeError with its name and words."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        # An error that cannot be copied would break the pipe, so it is tried here.
        copy: object = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001   whatever a library's own error does when it is copied
        copy = None
    if not isinstance(copy, Exception):
        copy = RuntimeError(error_line(f"{type(error).__name__}: {error}"))
    copy.add_note(trace)
    return copy
