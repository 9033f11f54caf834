"""A whole run of `stepline live`: its sources, the files that grow, and the record at its end."""

import hashlib
import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from stepline.errors import MediaError, SettingsError
from stepline.files.atomic_files import check_writable, remove_file
from stepline.files.remote.addresses import display_url
from stepline.live.events import LiveEvent, LiveLog, LiveOptions, RunFiles
from stepline.live.recording import StreamRecorder, join_recordings
from stepline.live.session import LiveSession
from stepline.live.source import LiveSource, PictureRate, parse_sources
from stepline.live.speech import Recognise
from stepline.media.container import LiveInput
from stepline.numeric import limit_blas_to_one_thread
from stepline.outputs import USUAL, safe_stem
from stepline.pipeline.batch import lock_video, run_video
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.pictures import FRAMES_PER_ROW
from stepline.pipeline.request import Request, StepsSettings
from stepline.vision import frames_per_row, load_backbone

# endings of file names, after the source's name
EVENTS_SUFFIX = ".events.jsonl"
VTT_SUFFIX = ".live.vtt"
ROWS_SUFFIX = ".live.features"
RECORDING_SUFFIX = ".live"
SCRYPT_COST = 2**14  # N of scrypt: 16 MiB and some 50 ms


@dataclass(frozen=True)
class LiveJob:
    """Arguments of a live run.

    Attributes:
        source: file, address or devices, as on the command line.
        out: folder of the files that are written during the run.
        at_end: folder of the record that is written at the end, None for no record.
        speed: factor at which a file is played.
        restart: whether the results of an earlier run are discarded.
        options: lag of the reports, and lines of a recipe.
    """

    source: str
    out: Path
    at_end: Path | None = None
    speed: float = 1.0
    restart: bool = False
    options: LiveOptions = field(default_factory=LiveOptions)


@limit_blas_to_one_thread()
def run_live(
    job: LiveJob,
    settings: StepsSettings,
    emit: Callable[[LiveEvent], None],
    *,
    stop: Event | None = None,
    recognise: Recognise | None = None,
) -> tuple[Path, ...]:
    """Follow a source to its end, and return the files written.

    A run that was killed resumes where its log ends. What a stream sent in between is lost.

    Args:
        job: source, folders and options.
        settings: settings of `stepline steps`.
        emit: called with each event once it is on disk.
        stop: ends the run when it is set. None: the run ends with the source.
        recognise: transcribes a window of audio. None: the recogniser in the settings.

    Raises a SteplineError, also if another run in `job.out` follows the same source.
    """
    inputs = parse_sources(job.source)
    stem = safe_stem(source_id(inputs))
    check_writable(job.out)
    with lock_video(f"{stem}{RECORDING_SUFFIX}", job.out):
        # where the run begins or resumes
        log = _open_log(job, inputs, stem)
        is_stream = isinstance(inputs[0], LiveInput)
        start = log.resume_second if log.count else 0.0
        # A stream continues without a run: its second follows from the time of the first start.
        if is_stream and log.first is not None and log.first.wall is not None:
            start = max(start, time.time() - log.first.wall)
        backbone = None
        files = RunFiles(stem, log, job.out / f"{stem}{VTT_SUFFIX}")
        pictures = PictureRate()
        if settings.vision.backbone != "none":
            backbone = load_backbone(settings.vision)
            files.rows = job.out / f"{stem}{ROWS_SUFFIX}"
            # as many pictures as the backbone and the meter of motion need
            rate = settings.vision.rate * max(FRAMES_PER_ROW, frames_per_row(backbone))
            pictures = PictureRate(rate, settings.vision.frame_size)
        stop = stop or Event()
        session = LiveSession(files, settings, emit, job.options, backbone, recognise, stop)
        if not log.count:
            source, digest = display_source(job, inputs), source_digest(inputs)
            emit(log.add("started", 0.0, source=source, digest=digest, wall=time.time()))
        elif is_stream:
            seconds = round(start - log.resume_second, 3)
            emit(log.add("gap", start, seconds=seconds, reason="Stepline did not run"))

        # the run
        recordings: Sequence[StreamRecorder] = ()
        if is_stream and job.at_end is not None:
            recordings = _recordings(job, stem)[: len(inputs)]
        sources = [
            LiveSource(
                live_input,
                pictures=pictures,
                media=settings.media,
                links=settings.links,
                speed=job.speed,
                start=start,
                recording=recording,
                stop=session.stop,
            )
            for live_input, recording in itertools.zip_longest(inputs, recordings)
        ]
        session.warm_up()
        session.run(sources)
        for recording in recordings:
            recording.close()

        files_written = [job.out / f"{stem}{VTT_SUFFIX}", log.path]
        if job.at_end is not None:
            files_written += _write_record(job, inputs[0], stem, settings, recordings)
    return tuple(path for path in files_written if path.is_file())


def source_id(inputs: Sequence[Path | LiveInput]) -> str:
    """Return the id of a source: a file's stem, an address's host and path, or the devices.

    inputs: inputs of one source, from `parse_sources`.
    """
    names = []
    for source in inputs:
        if isinstance(source, Path):
            return source.stem
        names.append(source.label.split("://")[-1])
    return re.sub(r"[^\w.+-]+", "-", "+".join(names)).strip("-.") or "live"


def display_source(job: LiveJob, inputs: Sequence[Path | LiveInput]) -> str:
    """Return a source as text for messages and the log. An address has no password and query.

    Args:
        job: arguments of the run.
        inputs: inputs of its source.
    """
    first = inputs[0]
    return first.label if isinstance(first, LiveInput) and first.is_address else job.source


def source_digest(inputs: Sequence[Path | LiveInput]) -> str | None:
    """Return a hash, 4 hexadecimal digits, of an address with its password and query.

    It distinguishes addresses that look the same without them. None for a source without password
    and query. It is slow to compute and short, so that it reveals no password.

    inputs: inputs of one source, from `parse_sources`.
    """
    first = inputs[0]
    if not isinstance(first, LiveInput) or not first.is_address or first.url == first.label:
        return None
    digest = hashlib.scrypt(first.url.encode(), salt=first.label.encode(), n=SCRYPT_COST, r=8, p=1)
    return digest.hex()[:4]


def _open_log(job: LiveJob, inputs: Sequence[Path | LiveInput], stem: str) -> LiveLog:
    """Return the log of a run that was killed, or a new log that replaces that of a finished run.

    Args:
        job: arguments of the run.
        inputs: inputs of its source.
        stem: start of the names of all files of the run.
    """
    path = job.out / f"{stem}{EVENTS_SUFFIX}"
    if not job.restart:
        log = LiveLog(path)
        first = log.first
        source = (display_source(job, inputs), source_digest(inputs))
        if first is not None and (first.source, first.digest) != source:
            name = first.source or ""
            if "://" in name:  # logs of earlier releases hold the password of an address
                name = display_url(name)
            raise SettingsError(
                f"{path}: holds a run of {name}; give another --out, or --force to lose it"
            )
        if log.last is None or log.last.event != "finished":
            return log

    # a new run begins without the files of the last one
    for suffix in (EVENTS_SUFFIX, VTT_SUFFIX, ROWS_SUFFIX):
        remove_file(job.out / f"{stem}{suffix}")
    for recording in _recordings(job, stem):
        for part in recording.parts:
            remove_file(part)
    return LiveLog(path)


def _recordings(job: LiveJob, stem: str) -> tuple[StreamRecorder, StreamRecorder]:
    """Return a recorder for each of two inputs, such as a camera and a microphone.

    Args:
        job: arguments of the run.
        stem: start of the names of the files.
    """
    name = f"{stem}{RECORDING_SUFFIX}"
    return StreamRecorder(job.out, name), StreamRecorder(job.out, f"{name}2")


def _write_record(
    job: LiveJob,
    first: Path | LiveInput,
    stem: str,
    settings: StepsSettings,
    recordings: Sequence[StreamRecorder],
) -> list[Path]:
    """Write the outputs of `stepline steps` in `job.at_end`, and return their paths.

    Args:
        job: arguments of the run.
        first: the file, which is the video, or the first live input.
        stem: name of the recorded video, without suffix.
        settings: settings of `stepline steps`.
        recordings: recorders of a live source, whose files are joined into the video.
    """
    assert job.at_end is not None
    files: list[Path] = []
    if isinstance(first, Path):
        video = first
    else:
        parts = [part for recording in recordings for part in recording.parts]
        if not parts:
            raise MediaError(
                f"{first.label}: sent nothing that could be kept; no record is written"
            )
        video = job.at_end / f"{stem}.mkv"
        join_recordings(parts, video, settings.media)
        files.append(video)
    options = job.options
    request = Request(video, video.stem, texts=options.texts, graph=options.graph)
    result = run_video(request, settings, OutputOptions(job.at_end, USUAL))
    return [*files, *result.files]
