"""One live run: speech is recognised, steps are written and grounded, and both are emitted as events.
A run that was killed resumes.

sources -> frames -> LiveVision (their threads)
        -> sound  -> LiveTranscriber -> sentences -> SpokenSteps    (the caller's thread)
                                    steps, rows -> ShownSteps -> shown, ended
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stepline.live.events import LiveEvent, LiveLog, LiveOptions, RunFiles
from stepline.live.shown_steps import ShownSteps
from stepline.live.source import Gap, LiveSource
from stepline.live.speech import LiveTranscriber, Recognise, RecognisedSentences
from stepline.live.spoken_steps import SpokenSteps
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.frames import Frame
from stepline.pipeline.request import StepsSettings
from stepline.records import Sentence, Span, Transcript
from stepline.speech.audio_windows import FRAME_SAMPLES, AudioWindow
from stepline.speech.recogniser import RecogniserSwitch
from stepline.writing import check_writer, write_steps

if TYPE_CHECKING:
    from stepline.vision import Backbone

log = logging.getLogger(__name__)

# An item that a source's thread queues for the caller's thread. None at the end of the source.
QueuedItem: TypeAlias = AudioBlock | Gap | Exception | None

MIN_PASS_INTERVAL_SECONDS = 1.0  # of new sound, before the next pass of recognition
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
    options: LiveOptions = field(default_factory=LiveOptions)
    backbone: "Backbone | None" = None
    recognise: Recognise | None = None
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
        self.shown.update_pictures()
        self.shown.finish(self._end)
        reasons = dict.fromkeys(source.reason for source in self.sources if source.reason)
        reason = "; ".join(reasons)
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
            else:
                self.emit_event("gap", at=item.at, seconds=item.seconds, reason=item.reason)
        # One pass for all new sound, not one per block.
        if self._speech.end >= self._recognised_until + MIN_PASS_INTERVAL_SECONDS:
            self._emit_sentences(self._speech.advance())
            self._recognised_until = self._speech.end
        self.shown.update_pictures()

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
