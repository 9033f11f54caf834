"""A whole run of `stepline live`: its sources, the files that grow, and the record at its end.

`LiveSession` is one run: speech is recognised, steps are written and grounded, and both are emitted as events.
A run that was killed resumes.

sources -> frames -> LiveVision (their threads)
        -> sound  -> LiveTranscriber -> sentences -> SpokenSteps    (the caller's thread)
                                    steps, rows -> ShownSteps -> shown, ended
"""

import contextlib
import hashlib
import itertools
import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from stepline.errors import MediaError, SettingsError
from stepline.files.atomic_files import check_writable, remove_file
from stepline.files.remote.addresses import display_url
from stepline.live.events import LiveEvent, LiveLog, LiveOptions, RunFiles
from stepline.live.recording import StreamRecorder, join_recordings
from stepline.live.shown_steps import ShownSteps
from stepline.live.source import Gap, LiveSource, PictureRate, parse_sources
from stepline.live.speech import LiveTranscriber, Recognise, RecognisedSentences
from stepline.live.spoken_steps import SpokenSteps
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.container import LiveInput
from stepline.media.frames import Frame
from stepline.numeric import limit_blas_to_one_thread
from stepline.outputs import USUAL, safe_stem
from stepline.pipeline.batch import lock_video, run_video
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.pictures import FRAMES_PER_ROW
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Sentence, Span, Transcript
from stepline.speech.audio_windows import FRAME_SAMPLES, AudioWindow
from stepline.speech.recogniser import RecogniserSwitch
from stepline.vision import Backbone, frames_per_row, load_backbone
from stepline.writing import check_writer, write_steps

log = logging.getLogger(__name__)

# An item that a source's thread queues for the caller's thread. None at the end of the source.
QueuedItem = AudioBlock | Gap | Exception | None

MIN_PASS_INTERVAL_SECONDS = 1.0  # of new sound, before the next pass of recognition
MAX_PASS_INTERVAL_SECONDS = 8.0  # of new sound in a pass. With 20 s of old sound it fits Whisper
MAX_WAITING_BLOCKS = 30  # blocks of sound in the queue; then the source waits
MAX_JOIN_SECONDS = 5.0  # timeout for the end of a thread that reads from a silent server
WARM_UP_TEXT = "Now cut the onion and put it in the bowl and stir it."


@dataclass
class LiveSession:
    """Runs the sources of a live run to their end.

    Attributes:
        files: log and other files of the run.
        settings: settings of `stepline steps`.
        emit: called with each event once it is on disk.
        options: lag of the reports, and lines of a recipe.
        backbone: network that encodes the pictures, None without pictures.
        recognise: transcribes a window of audio. None: the recogniser in the settings.
        stop: ends the run when it is set.
        sources: the sources that are running.
        shown: grounds the steps in the pictures.
    """

    files: RunFiles
    settings: StepsSettings
    emit: Callable[[LiveEvent], None]
    options: LiveOptions
    backbone: "Backbone | None"
    recognise: Recognise | None
    stop: threading.Event = field(default_factory=threading.Event)
    sources: Sequence[LiveSource] = ()

    def __post_init__(self) -> None:
        settings = self.settings
        options = self.options
        self._items: queue.Queue[QueuedItem] = queue.Queue(MAX_WAITING_BLOCKS)
        self._recognised_until = 0.0  # second of the last pass of recognition
        recognise = self.recognise or RecogniserSwitch(settings.asr).read
        self._speech = LiveTranscriber(recognise, settings.asr)
        self._spoken = SpokenSteps(
            self.log, self.emit_event, settings, options.texts, options.graph
        )
        self.shown = ShownSteps(
            self._spoken, self.files, self.emit_event, settings, options, self.backbone
        )

        # resume where the log of a killed run ends
        if self.log.sentences:
            # The next sound may repeat the words of the last sentence.
            self._speech.resume(self.log.sentences[-1].words)
        self.shown.restore()
        if self.log.count:
            if self.options.texts and self.log.sentences:
                self._spoken.find_lines(self._speech.language)
            self.shown.update_speech()
            self.files.write_vtt()

    @property
    def log(self) -> LiveLog:
        """Log of the events so far."""
        return self.files.log

    @property
    def _end(self) -> float:
        return max((source.end for source in self.sources), default=0.0)

    def run(self, sources: Sequence[LiveSource]) -> str:
        """Run until all sources have ended or `stop` is set, and return why they ended, as text.

        sources: one or two sources, which are read at the same time.

        Raises the error of a source, such as MediaError if it cannot be opened.
        """
        self.sources = sources
        threads = [
            threading.Thread(target=self._queue_source_items, args=[source], daemon=True)
            for source in sources
        ]
        for thread in threads:
            thread.start()
        self.announce_lines()
        try:
            # Without sound, empty lists come, so that pictures are still processed.
            for items in self._queued_items(len(threads)):
                self.advance(items)
        finally:
            self._join_threads(threads)
        return self.finish()

    def announce_lines(self) -> None:
        """Emit the lines of a recipe as steps that are not said yet, if there is a recipe."""
        if self.options.texts:
            self._spoken.announce_lines()
            self.shown.update_speech()

    def finish(self) -> str:
        """Emit the last sentences and steps, and return why the sources ended."""
        # Words first, since the last steps may cite them. Then the pictures.
        self._emit_sentences(self._speech.finish())
        if not self._speech.end:
            log.warning("no sound came, so no step was heard; give a source with sound")
        self.shown.update_pictures()
        self.shown.finish(self._end)
        reason = "; ".join(dict.fromkeys(source.reason for source in self.sources if source.reason))
        self.emit_event("finished", reason=reason, seconds=round(self._end, 3))
        return reason

    def warm_up(self) -> None:
        """Run every network once, so that the first seconds do not wait for loading."""
        if not self.options.texts:
            check_writer(self.settings.writing)
            sentence = Sentence(text=WARM_UP_TEXT, span=Span(0.0, 1.0))
            write_steps(Transcript(language="en", sentences=(sentence,)), self.settings.writing)
        # Half a second marked as voice, so that the recogniser runs.
        silence = np.zeros(SAMPLE_RATE // 2, np.float32)
        frames = -(-len(silence) // FRAME_SAMPLES)
        window = AudioWindow(0.0, silence, np.ones(frames, np.float32), False)
        self._speech.recognise(window)
        if self.backbone is not None:
            self.backbone.encode_texts([WARM_UP_TEXT])

    def advance(self, items: Sequence[AudioBlock | Gap]) -> None:
        """Process new sound and the pictures added so far, ground the steps, and emit new events.

        items: new blocks of sound and gaps of the sources, in order.
        """
        for item in items:
            if isinstance(item, AudioBlock):
                self._emit_sentences(self._speech.add(item))
                # A run that fell behind reads long sound in parts, since a pass drops the rest.
                self._recognise_after(MAX_PASS_INTERVAL_SECONDS)
            else:
                self.emit_event("gap", at=item.at, seconds=item.seconds, reason=item.reason)
        # One pass for all new sound, not one per block.
        self._recognise_after(MIN_PASS_INTERVAL_SECONDS)
        self.shown.update_pictures()

    def _recognise_after(self, seconds: float) -> None:
        """Run a pass of recognition if there are so many seconds of new sound."""
        if self._speech.end >= self._recognised_until + seconds:
            self._emit_sentences(self._speech.advance())
            self._recognised_until = self._speech.end

    def add_frame(self, frame: Frame) -> None:
        """Add the next frame of the source to the visual features."""
        if self.shown.vision is not None:
            self.shown.vision.add(frame)

    def _emit_sentences(self, speech: RecognisedSentences) -> None:
        """Emit recognised sentences, and the steps or lines of a recipe that they say.

        speech: result of a pass of recognition.
        """
        for rejected in speech.dropped:
            log.info("left out: %r (%s)", rejected.text, rejected.reason)
        for sentence in speech.sentences:
            self.emit_event("heard", sentence=sentence)
            self._spoken.update(self._speech.language)
        if speech.sentences:
            self.shown.update_speech()

    def emit_event(self, event: Any, *, at: float | None = None, **fields: Any) -> None:
        """Append an event to the log, then emit it.

        Args:
            event: kind of the event, a `Kind`.
            at: second of the source at which it is emitted, None for now.
            fields: other fields of `LiveEvent`.
        """
        if at is None:
            at = max((source.now for source in self.sources), default=0.0)
        self.emit(self.log.add(event, at, settled=round(self._speech.settled, 3), **fields))

    # ---------------------------------------------------------------- threads

    def _queue_source_items(self, source: LiveSource) -> None:
        """Read a source: process its pictures and queue its sound."""
        try:
            for item in source:
                if isinstance(item, Frame):
                    self.add_frame(item)
                else:
                    self._items.put(item)
        # raised again by `_queued_items`, in the caller's thread
        except Exception as error:  # noqa: BLE001
            self._items.put(error)
        # The end mark comes after all items of this source.
        self._items.put(None)

    def _queued_items(self, open_sources: int) -> Iterator[list[AudioBlock | Gap]]:
        """Yield lists of the queued items, possibly empty, until the last source has ended.

        open_sources: number of running sources.

        Raises the error of a source.
        """
        while open_sources:
            waiting: list[QueuedItem] = []
            with contextlib.suppress(queue.Empty):
                # The timeout lets pictures be processed without sound.
                waiting.append(self._items.get(timeout=0.2))
                while not self._items.empty():
                    waiting.append(self._items.get())
            items: list[AudioBlock | Gap] = []
            for item in waiting:
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    open_sources -= 1
                else:
                    items.append(item)
            yield items

    def _join_threads(self, threads: Sequence[threading.Thread]) -> None:
        """Stop the threads and wait for each at most MAX_JOIN_SECONDS. Their last items are dropped."""
        self.stop.set()
        for thread in threads:
            until = time.monotonic() + MAX_JOIN_SECONDS
            while thread.is_alive() and time.monotonic() < until:
                thread.join(0.05)
                # Makes room for a thread that waits for the full queue, so that it can end.
                with contextlib.suppress(queue.Empty):
                    self._items.get_nowait()


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
