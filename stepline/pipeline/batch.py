"""The main job on one video or many, and Stepline's public functions `steps`, `scores`, `batch` and `transcribe`.

`run_video` is what `stepline steps` does with each video: it takes the result of an earlier run, or
runs the main job and writes its files. `VideoPool` does that in several processes.
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
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stepline.errors import MediaError, SettingsError, SteplineError, StoreError, format_error_line
from stepline.features.files import is_feature_file
from stepline.files.atomic_files import check_writable, remove_partial_files
from stepline.files.digests import sha256
from stepline.files.locks import lock_output
from stepline.grounding.speech import TaskGraph
from stepline.limits import MAX_LINES_BYTES, MAX_TEXTS, LimitError, read_limited
from stepline.networks.device import (
    ComputeType,
    core_count,
    cpu_threads,
    current_device,
    set_device,
)
from stepline.numeric import limit_blas_to_one_thread
from stepline.outputs import (
    CLIPS_SUFFIX,
    OUTPUTS,
    USUAL,
    clip_spans,
    foreign_outputs,
    missing_outputs,
    safe_stem,
    write_outputs,
)
from stepline.pipeline.describe import describe_features
from stepline.pipeline.networks import Networks, describe_inputs, load_networks, shared_recognisers
from stepline.pipeline.output_files import OutputOptions, write_files
from stepline.pipeline.part import media_info_of_part, to_whole_video_times
from stepline.pipeline.request import Request, SourceOptions, StepsSettings
from stepline.pipeline.sources import (
    VideoSource,
    find_sources,
    is_name_taken,
    open_single_source,
    read_media_info,
    require_utf8_name,
)
from stepline.pipeline.speech import recognise_speech
from stepline.pipeline.understand import understand
from stepline.processes import thread_limit_variables
from stepline.progress import Progress
from stepline.records import Matrix, Record, Span, Video
from stepline.settings import validate
from stepline.speech.captions import no_sentence_error
from stepline.speech.hallucinations import is_low_confidence_reason
from stepline.speech.settings import AsrSettings
from stepline.speech.whisper import find_model
from stepline.storage import read_record
from stepline.version import __version__
from stepline.workers import Reply, Send, WorkerDeath, WorkerPool, WorkerProcess

NO_SPEECH = "no speech to write steps from"  # begins the warning of a record without any
UNFOUND_LINES = (
    "no speech to find the lines by, and the pictures alone place none of them; give captions, or "
    "a model that sees (docs/eyes.md)"
)
# in a warning: a deadline or a silent server made this result, so it is done again
PROVISIONAL_MARK = "provisional"


@dataclass(frozen=True)
class VideoResult:
    """The record of one video, and the files that this run wrote.

    Attributes:
        record: the steps, sentences and materials that were found.
        files: the files that this run wrote. Empty if an earlier run had written them.
        is_from_earlier_run: whether an earlier run made the record.
    """

    record: Record
    files: tuple[Path, ...]
    is_from_earlier_run: bool


def steps(
    video: Path | str,
    *,
    texts: "Sequence[str] | str | TaskGraph" = (),
    captions: Path | str | None = None,
    settings: StepsSettings | None = None,
    language: str | None = None,
    out: Path | str | None = None,
    formats: Sequence[str] | str | None = None,
    part: Span | None = None,
    title: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Record:
    """Find the steps of a video: what to do, and the seconds in which each is shown.

    Args:
        video: a file or an http(s) address.
        texts: lines to find, instead of steps that are written from the speech. A str is split into
            lines. A TaskGraph holds steps of other videos of the task, and comes from
            `compare.read_task_graph`.
        captions: a caption file, used instead of speech recognition. None: speech is recognised.
        settings: settings of all stages. None: the defaults.
        language: language of the speech, a code of ISO 639-1 such as "es". None: that of the
            settings.
        out: folder for the files that `stepline steps` writes. A result of an earlier run in it is
            reused. None: no files are written.
        formats: outputs to write to `out` next to the JSON, such as "html". None: those of
            `stepline steps`.
        part: start and end in seconds of the part to use. Times still count from the video's start.
            None: the whole video.
        title: the title of the video. None: the title of its page or file, or one from the speech.
        device: where networks run from now on in this process: auto, cpu, cuda, cuda:N or mps.
            None: unchanged.
        progress: called with the stage's name, the second reached and the video's duration in
            seconds.

    Raises MediaError, CaptionError, ModelError or SettingsError. Each message says how to cure the
    error.
    """
    if device is not None:
        set_device(device)

    # what is asked
    settings = _with_language(settings, language)
    folder = None if out is None else Path(out)
    if folder is None and formats is not None:
        raise SettingsError(f"formats={formats!r}: no folder to write them to; give out=FOLDER")
    options = _source_options(texts, captions, part, title)
    opened = open_single_source(video, settings, folder, **options)

    # the record, and in a folder its files
    with opened as request:
        networks = load_networks(settings, several=True)  # another call may follow
        if folder is None:
            record = understand(request, settings, networks=networks, progress=progress).record
            return _add_advice(request, record, settings)
        outputs = OutputOptions(folder, _output_names(formats))
        return run_video(request, settings, outputs, networks=networks, progress=progress).record


class VideoScores(NamedTuple):
    """Scores of a user's texts per second of a video.

    Attributes:
        values: (K texts, T seconds) float32. values[k, t] is P(text k is being shown at second t).
        times: (T,) the second of the video at which each column of `values` begins.
    """

    values: Matrix
    times: npt.NDArray[np.float64]


def scores(
    video: Path | str,
    texts: "Sequence[str] | str | TaskGraph",
    *,
    captions: Path | str | None = None,
    settings: StepsSettings | None = None,
    language: str | None = None,
    part: Span | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> VideoScores:
    """Return P(line k is shown at second t) of a video for K given lines, with the columns' times.

    `steps(video, texts=...)` finds the lines by the same values, or by their words where the
    pictures do not confirm them. All are 0 if the video has no picture.

    Args:
        video: a file or an http(s) address.
        texts: K lines, or a str that is split into lines, or a TaskGraph from
            `compare.read_task_graph`.
        captions: a caption file, used instead of speech recognition. None: speech is recognised.
        settings: settings of all stages. None: the defaults.
        language: language of the speech, a code of ISO 639-1 such as "es". None: that of the
            settings.
        part: start and end in seconds of the part to use. None: the whole video.
        device: where networks run: auto, cpu, cuda, cuda:N or mps. None: unchanged.
        progress: called with the stage's name, the second reached and the video's duration in
            seconds.

    Raises SettingsError if there is no line, and MediaError, CaptionError or ModelError.
    """
    options = _source_options(texts, captions, part)
    lines = options["texts"]
    if not lines:
        raise SettingsError("no lines to score; give at least one text")
    if device is not None:
        set_device(device)

    # the lines, placed as `steps` places them
    settings = _with_language(settings, language)
    with open_single_source(video, settings, None, **options) as request:
        networks = load_networks(settings, several=True)  # another call may follow
        result = understand(request, settings, networks=networks, progress=progress)

    # the scores that place them
    alignment = result.alignment
    if alignment is None:
        seconds = math.ceil(result.record.video.duration or 0.0)
        return VideoScores(np.zeros((len(lines), seconds), np.float32), np.arange(float(seconds)))
    columns = np.arange(alignment.scores.shape[1])  # (T,)
    return VideoScores(alignment.scores, columns / alignment.rate)


def _with_language(settings: StepsSettings | None, language: str | None) -> StepsSettings:
    settings = settings or StepsSettings()
    if language is None:
        return settings
    asr = validate(AsrSettings, {**settings.asr.model_dump(mode="json"), "language": language})
    return settings.model_copy(update={"asr": asr})


def _output_names(formats: Sequence[str] | str | None) -> tuple[str, ...]:
    if formats is None:
        return USUAL
    names = (formats,) if isinstance(formats, str) else formats
    return tuple(dict.fromkeys((*names, "json")))


def _source_options(
    texts: "Sequence[str] | str | TaskGraph",
    captions: Path | str | None = None,
    part: Span | None = None,
    title: str | None = None,
) -> SourceOptions:
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
    """The result of one video of `batch`.

    Attributes:
        path: the video file.
        record: the steps and all else that was found. None if an error occurred.
        error: the error that stopped the work on the video. None if it succeeded.
        number: position of the video among all videos, from 1 on.
        total: the number of all videos.
    """

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
    language: str | None = None,
    out: Path | str = "out",
    formats: Sequence[str] | str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Iterator[BatchResult]:
    """Find the steps of many videos. The networks are loaded once.

    Args:
        videos: files, folders and http(s) addresses, one or several.
        texts: lines to find in each video, instead of steps that are written from the speech.
        settings: settings of all stages. None: the defaults.
        language: language of the speech, a code of ISO 639-1 such as "es". None: that of the
            settings.
        out: folder for the files. Results of an earlier run in it are reused.
        formats: keys of `outputs.OUTPUTS` to write. None: the usual ones.
        device: where networks run: auto, cpu, cuda, cuda:N or mps. None: unchanged.
        progress: called with the stage's name, the second reached and the video's duration in
            seconds.

    Yields the result of each video. A video that cannot be read does not stop the others. Raises
    MediaError for a folder without videos, SettingsError and ModelError for errors that concern all
    videos.
    """
    if device is not None:
        set_device(device)

    # what all videos share
    settings = _with_language(settings, language)
    if isinstance(videos, Path | str):
        videos = (videos,)
    options = OutputOptions(Path(out), _output_names(formats))
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


@limit_blas_to_one_thread()
def transcribe(
    video: Path | str,
    *,
    captions: Path | str | None = None,
    settings: StepsSettings | None = None,
    language: str | None = None,
    part: Span | None = None,
    progress: Progress | None = None,
) -> Record:
    """Transcribe the speech of a video, or read its captions, into a record without steps.

    Args:
        video: a file or an http(s) address.
        captions: a caption file, used instead of speech recognition. None: speech is recognised.
        settings: settings of all stages. None: the defaults.
        language: language of the speech, a code of ISO 639-1 such as "es". None: that of the
            settings.
        part: start and end in seconds of the part to use. None: the whole video.
        progress: called with the stage's name, the second reached and the video's duration in
            seconds.

    Raises MediaError or CaptionError if a file cannot be read.
    """
    settings = _with_language(settings, language)

    # what is said
    options = _source_options((), captions, part)
    with open_single_source(video, settings, None, **options) as request:
        path = request.path
        whole = read_media_info(request, settings)
        info = media_info_of_part(whole, part)
        models = shared_recognisers(settings.asr, current_device())
        speech = recognise_speech(request, info, settings, models=models, progress=progress)

    # a record without steps. That of captions alone has no warning about steps
    warnings = () if request.is_captions_only else info.warnings
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
        warnings=(*warnings, *speech.warnings),
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
    """Find the steps of one video and write its files, or return the result of an earlier run.

    Args:
        request: the video, and the captions, lines, part and title that the user gave.
        settings: settings of all stages.
        options: which files are written, and to which folder.
        networks: networks that were loaded by the same settings, to share between videos. None:
            they are loaded.
        progress: called with the stage's name, the second reached and the video's duration in
            seconds.

    The JSON is written last, and no file is half-written. If another process works on the same
    video and folder, this process waits. It reuses that result if the inputs and settings are the
    same. Raises a SteplineError.
    """
    require_utf8_name(request.path)
    # what an earlier run has made is taken
    stem = safe_stem(request.id)
    check_overwriting(request, options)
    if is_feature_file(request.path):
        return _describe_feature_file(request, settings, options)
    networks = networks or load_networks(settings)
    earlier = _load_earlier_result(request, settings, options, networks)
    if earlier is not None:
        return earlier
    check_writable(options.out)  # before the minutes of work that would be lost

    # one process at a time
    taken_before = is_name_taken(request.path, options.out)
    with lock_video(request.id, options.out):
        if is_name_taken(request.path, options.out) and not taken_before:
            raise SettingsError(
                f"{options.out / stem}: another process has now written a video of that name "
                "there; run again"
            )
        earlier = _load_earlier_result(request, settings, options, networks)
        if earlier is not None:
            return earlier
        # What a killed run left half-written goes.
        for folder in (options.out, options.out / f"{stem}{CLIPS_SUFFIX}"):
            remove_partial_files(folder)

        # the work
        result = understand(request, settings, networks=networks, progress=progress)
        result = replace(result, record=_add_advice(request, result.record, settings))
        files = write_files(request, result, options)
        return VideoResult(result.record, files, is_from_earlier_run=False)


def _describe_feature_file(
    request: Request, settings: StepsSettings, options: OutputOptions
) -> VideoResult:
    if options.clips or request.part is not None:
        raise SettingsError(
            f"{request.path}: holds features, which have no picture and are used whole; leave "
            "--clips, --from and --to out"
        )
    with lock_video(request.id, options.out):
        record = describe_features(request, settings)
        files = write_outputs(record, options.out, formats=options.formats)
        return VideoResult(record, tuple(files), is_from_earlier_run=False)


def lock_video(id: str, out: Path) -> AbstractContextManager[bool]:
    """Lock the outputs of a video in a folder for this process, after other processes finish.

    The context yields whether the previous process with the lock was killed.

    Args:
        id: the id of the video's record.
        out: the folder of the outputs.
    """
    return lock_output(video_lock(id, out), out / safe_stem(id), wait=True)


def video_lock(id: str, out: Path) -> Path:
    """Return the path of the lock file of a video's outputs. Arguments as for `lock_video`."""
    return out / f".{safe_stem(id)}.lock"


def _load_earlier_result(
    request: Request, settings: StepsSettings, options: OutputOptions, networks: Networks
) -> VideoResult | None:
    """Return the result of an earlier run of this version on the same video with the same settings.

    None if it is provisional, or if an output that is asked for is missing.
    """
    if options.force:
        return None
    try:
        record = read_record(options.out / f"{safe_stem(request.id)}.json")
    except StoreError:
        return None
    is_same = (
        record.models.get("stepline") == __version__
        and record.settings == describe_inputs(request, settings, networks)
        and not any(PROVISIONAL_MARK in warning for warning in record.warnings)
        and request.path.is_file()
        and record.video.sha256 == sha256(request.path)
        and not missing_outputs(record, options.out, options.formats, options.web)
    )
    clips = clip_spans(record, options.out) if is_same and options.clips else ()
    if not is_same or not all(clip.is_file() for clip in clips):
        return None
    return VideoResult(record, (), is_from_earlier_run=True)


def check_overwriting(request: Request, options: OutputOptions) -> None:
    """Raise SettingsError if an output would overwrite a file of the user.

    Such a file is an input of this run, or no earlier run wrote it, or it was changed after that
    run.
    """
    inputs = [path for path in (request.path, request.captions) if path is not None]
    # The user's own files are never overwritten, not even with --overwrite.
    own_files = set(map(os.path.realpath, inputs))
    for name in options.formats:
        path = os.path.realpath(options.out / f"{safe_stem(request.id)}{OUTPUTS[name].suffix}")
        if path in own_files:
            cure = "give another folder with --out"
            raise SettingsError(f"{path}: an output would be written over this file; {cure}")
    if options.overwrite:
        return
    record = options.out / f"{safe_stem(request.id)}.json"
    for foreign in foreign_outputs(request.id, options.out, options.formats):
        reason = "which is not as this release left it"
        if not record.exists():
            reason = f"and there is no record {record.name} by which to recognise it as an output"
        raise SettingsError(
            f"{foreign}: an output would be written over this file, {reason}; "
            "give another --out, or --overwrite to replace it"
        )


def _add_advice(request: Request, record: Record, settings: StepsSettings) -> Record:
    """Return the record with a warning that says what helps if no step was found without speech.

    Raises CaptionError if given captions hold no sentence, MediaError if the pictures are to be
    described and there are none.
    """
    has_speech = record.transcript is not None and bool(record.transcript.sentences)
    if has_speech or any(step.spans for step in record.steps) or record.models.get("describer"):
        return record
    if request.texts:
        return record.model_copy(update={"warnings": (*record.warnings, UNFOUND_LINES)})
    if settings.procx.when == "alone":
        reason = "no picture in it can be seen, so nothing can be described"
        raise MediaError(f"{request.path}: {reason}; give another")

    if request.captions is not None:
        raise no_sentence_error(request.captions, record.dropped)

    # what was left out
    count = sum(item.what == "sentence" for item in record.dropped)
    left_out = ""
    if count:
        left_out = f" ({count} doubtful sentence{'' if count == 1 else 's'} left out)"

    reason = NO_SPEECH
    if any(is_low_confidence_reason(item.reason) for item in record.dropped):
        language = record.transcript.language if record.transcript else None
        named = f" (language {language!r})" if language else ""
        reason = f"there is speech{named}, but it could not be recognised reliably"
    advice = (
        f"{reason}{left_out}; give its words (--captions), a model that sees (docs/eyes.md), or "
        "--describe with a network that you trained"
    )
    return record.model_copy(update={"warnings": (*record.warnings, advice)})


def read_texts(path: Path) -> tuple[str, ...]:
    """Read the lines of a recipe: those with a letter, without list numbers and bullets.

    Raises SettingsError when the file cannot be read as text or holds no line.
    """
    try:
        text = read_limited(path, MAX_LINES_BYTES).decode("utf-8-sig")
    except LimitError as error:
        raise SettingsError(f"--texts {path}: {error}; give fewer lines") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"--texts {path}: cannot be read as UTF-8 text; give a file with one line per step"
        ) from error
    bullet = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
    lines = [bullet.sub("", line).strip() for line in text.splitlines()]
    texts = tuple(line for line in lines if any(letter.isalpha() for letter in line))
    if not texts:
        raise SettingsError(f"--texts {path}: holds no line of text; write one line per step")
    if len(texts) > MAX_TEXTS:
        raise SettingsError(
            f"--texts {path}: {len(texts)} lines are more than {MAX_TEXTS}; give those of this "
            "video"
        )
    return texts


# bytes of a process; 731 MB at most were measured with the default settings
MIN_WORKER_BYTES = 2**30
MODEL_MEMORY_FACTOR = 2  # times the size of a model's file that it takes in memory, at most
POLL_SECONDS = 0.5  # s between two looks while no worker has news
END_SECONDS = 10.0  # s that workers have to clean up after an interrupt
CGROUP_FOLDER = Path("/sys/fs/cgroup")  # where a container sees what memory it may use
LOGGER_NAMES = ("", "faster_whisper")  # whose levels a worker has from the process that started it


@dataclass(frozen=True)
class VideoWorkerSetup:
    """The data that each worker process of `VideoPool` receives when it starts.

    Attributes:
        settings: settings of all stages of finding steps.
        output: which files are written, and to which folder.
        request_parts: keyword arguments of `VideoSource.open`.
        device: where networks run: auto, cpu, cuda, cuda:N or mps.
        compute: numeric precision of the networks, as `set_device` takes it.
        log_levels: levels of the loggers in LOGGER_NAMES, in the same order.
    """

    settings: StepsSettings
    output: OutputOptions
    request_parts: Mapping[str, Any]
    device: str = "auto"
    compute: ComputeType = "auto"
    log_levels: tuple[int, ...] = (logging.WARNING, logging.ERROR)


@dataclass(frozen=True)
class VideoOutcome:
    """The result of a video, or the error that ended it.

    Attributes:
        label: the video's name in messages.
        result: None if it failed.
        error: None if it succeeded.
    """

    label: str
    result: VideoResult | None = None
    error: Exception | None = None


def max_parallel_videos(settings: StepsSettings) -> int:
    """Return how many videos this machine can process at the same time.

    Each takes a core (or OMP_NUM_THREADS cores) and memory. The number is 1 if the videos would
    share a GPU or a local language model.
    """
    # What cannot be shared between processes: a GPU, or a model that fills the memory.
    has_local_writer = settings.writing.writer == "llm" and settings.writing.llm.base_url is None
    is_local_model = has_local_writer or settings.vision.vlm.gguf is not None
    if is_local_model or current_device().device_type != "cpu":
        return 1
    cores_per_video = cpu_threads() if os.environ.get("OMP_NUM_THREADS") else 1
    by_memory = available_memory() // estimate_video_memory(settings)
    return max(1, min(core_count() // cores_per_video, by_memory))


def estimate_video_memory(settings: StepsSettings) -> int:
    """Return the bytes of memory needed to find the steps of one video, with a reserve.

    If the speech recogniser that the settings name is missing, it is downloaded here, once for all
    processes.
    """
    # MIN_WORKER_BYTES was measured with the default models. Those that are named may be far larger.
    files: list[Path] = []
    if settings.asr.model is not None and settings.asr.recogniser == "whisper":
        files += find_model(settings.asr.model).glob("*.bin")
    weights = settings.vision.path
    if weights is not None and settings.vision.backbone != "precomputed":
        files += weights.rglob("*.safetensors") if weights.is_dir() else [weights]
    return MIN_WORKER_BYTES + MODEL_MEMORY_FACTOR * sum(file.stat().st_size for file in files)


def available_memory(cgroup: Path = CGROUP_FOLDER) -> int:
    """Return the bytes of memory that are free on this machine, or within the container's limit.

    cgroup: the folder in which the container states its limit.
    """
    import psutil

    # A container's limit counts as well, and psutil reports the machine's memory.
    free = int(psutil.virtual_memory().available)
    files = (cgroup / "memory.max", cgroup / "memory.current")
    limit, usage = (file.read_text().strip() if file.is_file() else "" for file in files)
    # The limit is "max" where there is none.
    if not (limit.isdecimal() and usage.isdecimal()):
        return free
    return min(free, max(0, int(limit) - int(usage)))


class VideoPool(WorkerPool[WorkerProcess]):
    """Worker processes that find the steps of videos, at most `size` videos at the same time."""

    def __init__(self, setup: VideoWorkerSetup, size: int) -> None:
        variables = thread_limit_variables(max(1, core_count() // size))

        def start(_: int) -> WorkerProcess:
            target = f"{__name__}:start_worker"
            return WorkerProcess(target, setup, variables=variables, show_output=True)

        super().__init__(start, size, END_SECONDS)

    def run(self, sources: Sequence[VideoSource]) -> Iterator[VideoOutcome | None]:
        """Yield the outcome of each video as it ends, and None while waiting.

        Raises SteplineError if no worker can start.
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
            return VideoOutcome(
                source.label,
                error=SteplineError(f"{what}; try it alone, or fewer --jobs where memory is short"),
            )
        return None


def start_worker(setup: VideoWorkerSetup, send: Send) -> Callable[[VideoSource], VideoOutcome]:
    """Load the networks in this worker process. Return a function that processes one video.

    Args:
        setup: settings, outputs and device of the worker.
        send: function that sends a message to the main process.
    """
    faulthandler.enable()
    # The queue of this handler is the pipe to the parent.
    queue: Any = SimpleNamespace(put_nowait=send)
    # The parent adds the level, time and name of the logger.
    logging.basicConfig(handlers=[QueueHandler(queue)], format="%(message)s")
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
            return VideoOutcome(source.label, error=make_picklable(error))
        return VideoOutcome(source.label, result)

    return run


def make_picklable(error: Exception) -> Exception:
    """Return an error that can be sent to another process, with its stack trace as a note.

    An error whose class cannot be pickled becomes a RuntimeError with its name and message.
    """
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        # An error that cannot be copied would break the pipe, so it is tried here.
        copy: object = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001   whatever a library's own error does when it is copied
        copy = None
    if not isinstance(copy, Exception):
        copy = RuntimeError(format_error_line(f"{type(error).__name__}: {error}"))
    copy.add_note(trace)
    return copy
