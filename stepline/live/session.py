"""One live run: what comes is heard, written and grounded, and told as events; it goes on where a
killed run stopped.

sources -> frames -> LiveVision (their threads)
        -> sound  -> LiveTranscriber -> sentences -> writer -> steps     (the caller's thread)
                                  steps, rows -> OnlineGrounder -> shown, ended
"""

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stepline.asr.audio_windows import AudioWindow
from stepline.asr.recogniser import RecogniserSwitch
from stepline.asr.vad import FRAME
from stepline.errors import StoreError
from stepline.grounding.online import MAX_LAG_SECONDS, OnlineGrounder
from stepline.grounding.recipe_filter import MAX_LINES
from stepline.grounding.windows import GroundingWindow, cut_steps, to_video_time
from stepline.limits import LATEST
from stepline.live.events import GrowingVtt, LiveEvent, LiveLog, LiveStep
from stepline.live.hearing import Heard, LiveTranscriber, Read
from stepline.live.looking import LiveVision
from stepline.live.source import Gap, LiveSource
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.frames import Frame
from stepline.pipeline.request import StepsSettings
from stepline.records import Sentence, Span, Step, Transcript
from stepline.writing import write_steps

if TYPE_CHECKING:
    from pathlib import Path

    from stepline.vision import Backbone

log = logging.getLogger(__name__)

PASS = 1.0  # s of new sound from which it is read again
QUEUE = 30  # blocks of sound that may wait; then the source does
NEW = 4  # sentences at the end in which steps may still be written or revised
CONTEXT = 24  # sentences that the writer reads at once, so that a pronoun finds its noun
# s after its words in which a step may still be shown; WhenAct: 5 % lie farther off than 29 s
UNSEEN = 30.0
PATIENCE = 5.0  # s that a thread is waited for which reads from a silent server
# s of the past that are forgotten at once, when grounding looks back to them no more
FORGOTTEN = 600
FINISHED = 0.5  # P(done) from which the picture counts as a sign that a step is finished


@dataclass(frozen=True)
class LiveOptions:
    """How a live run tells. lag: s that what is shown waits for more evidence. texts: a recipe's
    lines to follow.

    until_next: hold a paced source at the end of each step until there is a sign that it is
    finished; of a source that watches somebody work, tell the next step at such a sign.
    """

    lag: float = 2.0
    texts: tuple[str, ...] = ()
    until_next: bool = False


@dataclass
class LiveSession:
    """Runs sources to their end. emit: called with each event once it is on disk; signs: hands that
    say "done".

    backbone: None where no picture is looked at. read: stands for the recogniser. rows: file of the
    features so far.
    """

    id: str
    settings: StepsSettings
    log: LiveLog
    emit: Callable[[LiveEvent], None]
    options: LiveOptions = field(default_factory=LiveOptions)
    backbone: "Backbone | None" = None
    read: Read | None = None
    vtt: GrowingVtt | None = None
    rows: "Path | None" = None
    signs: "queue.SimpleQueue[str]" = field(default_factory=queue.SimpleQueue)
    stop: threading.Event = field(default_factory=threading.Event)
    sources: Sequence[LiveSource] = ()

    def __post_init__(self) -> None:
        self._items: queue.Queue[AudioBlock | Gap | Exception | None] = queue.Queue(QUEUE)
        self._hearing = LiveTranscriber(
            self.read or RecogniserSwitch(self.settings.asr).read, self.settings.asr
        )
        self._grounder = OnlineGrounder(
            self.settings.nasva.ground, lag=self.options.lag, written=not self.options.texts
        )
        self._vision = (
            LiveVision(self.backbone, self.settings.vision) if self.backbone is not None else None
        )
        self._vectors: dict[str, Any] = {}  # of the texts that were encoded
        self._meanings: dict[str, Any] = {}  # of a recipe's lines and of what was said, (384,) each
        self._begin = 0  # s before which what was said and shown is forgotten
        # s that grounding looks back
        self._memory = 1.5 * self.settings.nasva.ground.window + MAX_LAG_SECONDS
        self._read_to = self._seen = 0.0  # s of sound that was read, of pictures that were grounded
        self._kept = 0  # rows in the file
        self._at_hand: str | None = None  # the step that `next` told last
        self._signed = ""  # a sign that no step has followed yet
        self._restore()

    # ---------------------------------------------------------------- the run

    def run(self, sources: Sequence[LiveSource]) -> str:
        """Follow the sources until all have ended or `stop` is set; return why the last one ended.

        Raises what a source raises, MediaError where it cannot be opened.
        """
        self.sources = sources
        threads = [
            threading.Thread(target=self._pump, args=[source], daemon=True) for source in sources
        ]
        for thread in threads:
            thread.start()
        self._tell_lines()
        try:
            for items in self._arriving(len(threads)):
                self.advance(items)
        finally:
            self._join(threads)
        return self.finish()

    def finish(self) -> str:
        """Tell what is known at the end; return why the sources ended."""
        self._take(self._hearing.finish())
        self._look()
        self._end_all()
        reason = "; ".join(dict.fromkeys(source.reason for source in self.sources if source.reason))
        self._tell("finished", reason=reason, seconds=round(self._end, 3))
        return reason

    def warm_up(self) -> None:
        """Load every network before the first second comes, which would wait for it."""
        nothing = np.zeros(SAMPLE_RATE // 2, np.float32)
        self._hearing.read(
            AudioWindow(0.0, nothing, np.ones(-(-len(nothing) // FRAME), np.float32), False)
        )
        heard = Sentence(
            text="Now cut the onion and put it in the bowl and stir it.", span=Span(0.0, 1.0)
        )
        if not self.options.texts:
            write_steps(Transcript(language="en", sentences=(heard,)), self.settings.writing)
        if self.backbone is not None:
            self.backbone.encode_texts([heard.text])

    def advance(self, items: Sequence[AudioBlock | Gap]) -> None:
        """Take what has come meanwhile, read it, look at what the pictures show by now, and tell
        what is new."""
        for item in items:
            if isinstance(item, AudioBlock):
                self._take(self._hearing.add(item))
            else:
                self._tell(item.kind, at=item.at, seconds=item.seconds, reason=item.reason)
        if self._hearing.end >= self._read_to + PASS:
            self._take(self._hearing.advance())
            self._read_to = self._hearing.end
        self._look()
        self._go_on()

    def look(self, frame: Frame) -> None:
        """Take a picture."""
        if self._vision is not None:
            self._vision.add(frame)

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        """Have the threads end, at most PATIENCE seconds after one another; what they still bring
        is not taken."""
        self.stop.set()
        for thread in threads:
            until = time.monotonic() + PATIENCE
            while thread.is_alive() and time.monotonic() < until:
                thread.join(0.05)
                with contextlib.suppress(queue.Empty):
                    self._items.get_nowait()

    @property
    def _end(self) -> float:
        return max([source.end for source in self.sources], default=0.0)

    @property
    def _now(self) -> float:
        return max([source.now for source in self.sources], default=0.0)

    def _pump(self, source: LiveSource) -> None:
        """Take what a source brings: look at its pictures, pass its sound on."""
        try:
            for item in source:
                if isinstance(item, Frame):
                    self.look(item)
                else:
                    self._items.put(item)
        except Exception as error:  # noqa: BLE001   raised again by `_arriving`, in the caller's thread
            self._items.put(error)
        self._items.put(None)

    def _arriving(self, open_sources: int) -> Iterator[list[AudioBlock | Gap]]:
        """Yield what has come, all that waits at once, or nothing now and then, until the last
        source has ended."""
        while open_sources:
            items: list[AudioBlock | Gap] = []
            try:
                coming = [self._items.get(timeout=0.2)]
                while not self._items.empty():
                    coming.append(self._items.get())
            except queue.Empty:
                coming = []
            for item in coming:
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    open_sources -= 1
                else:
                    items.append(item)
            yield items

    def _tell(self, event: Any, *, at: float | None = None, **fields: Any) -> None:
        settled = round(self._hearing.settled, 3)
        self.emit(self.log.add(event, self._now if at is None else at, settled=settled, **fields))

    # ---------------------------------------------------------------- what is said

    def _take(self, heard: Heard) -> None:
        for rejected in heard.dropped:
            log.info("left out: %r (%s)", rejected.text, rejected.reason)
        for sentence in heard.sentences:
            self._tell("heard", sentence=sentence)
            self._write()
        if heard.sentences:
            self._ground_again()

    def _write(self) -> None:
        """Write the steps of what was said lately, and tell the new ones and those that read
        otherwise now."""
        if self.options.texts:
            self._find_lines()
            return
        sentences = self.log.sentences
        first = max(0, len(sentences) - CONTEXT)
        heard = Transcript(language=self._hearing.language, sentences=tuple(sentences[first:]))
        fresh = len(sentences) - NEW
        written = [
            step.model_copy(update={"sources": tuple(source + first for source in step.sources)})
            for step in write_steps(heard, self.settings.writing).steps
            if step.sources
        ]
        known = [
            each for each in self.log.steps.values() if max(each.step.sources, default=-1) >= fresh
        ]
        known = [each for each in known if not each.withdrawn]
        for step, earlier in match_steps(
            [each for each in written if max(each.sources) >= fresh], known
        ):
            if step is None:
                assert earlier is not None
                if not (earlier.revised or earlier.ended):
                    self._tell(
                        "revised", step=earlier.step.id, reason="what follows says otherwise"
                    )
            elif earlier is None:
                number = str(len(self.log.steps) + 1)
                self._tell(
                    "step_said",
                    step=number,
                    text=step.text,
                    kind=step.kind,
                    said=step.said,
                    sources=step.sources,
                )
            elif earlier.step.text != step.text and not (earlier.revised or earlier.ended):
                self._tell(
                    "revised",
                    step=earlier.step.id,
                    text=step.text,
                    kind=step.kind,
                    said=step.said,
                    sources=step.sources,
                    reason="the speaker went on",
                )

    def _tell_lines(self) -> None:
        """Tell the lines of a recipe, which stand before anybody speaks."""
        for number, text in enumerate(self.options.texts, start=1):
            if str(number) not in self.log.steps:
                from stepline.writing.types import instruction_kind

                self._tell(
                    "step_said",
                    step=str(number),
                    text=text,
                    kind=instruction_kind(text),
                    reason="given",
                )
        if self.options.texts:
            self._ground_again()

    def _find_lines(self) -> None:
        """Find where the narration speaks of a recipe's lines."""
        from stepline.grounding.speech import steps_from_texts
        from stepline.text import embed

        transcript, texts = self.log.transcript, self.options.texts
        said = [sentence.text for sentence in transcript.sentences]
        if new := [text for text in dict.fromkeys([*said, *texts]) if text not in self._meanings]:
            self._meanings |= dict(zip(new, embed(new), strict=True))
        vectors = (np.stack([self._meanings[text] for text in each]) for each in (said, texts))
        self._lines = steps_from_texts(
            texts, transcript, *vectors, so_far=True, settings=self.settings.nasva.coarse
        )
        for line in self._lines:
            if line.said is not None and self.log.steps[line.id].step.said is None:
                self._tell(
                    "step_said",
                    step=line.id,
                    text=line.text,
                    kind=line.kind,
                    said=line.said,
                    sources=line.sources,
                )

    _lines: tuple[Step, ...] = ()

    # ---------------------------------------------------------------- what is shown

    def _told_steps(self) -> list[Step]:
        """Return the steps to ground: those told and not taken back, a recipe's where they are said
        by now."""
        if self._lines:
            return list(self._lines)
        known = [each for each in self.log.steps.values() if not each.withdrawn]
        if self.options.texts:
            return [each.step for each in known]
        past = (
            each.ended and each.step.said is not None and each.step.said.end < self._begin
            for each in known
        )
        return [each.step for each, over in zip(known, past, strict=True) if not over]

    def _remembered(self) -> GroundingWindow:
        return GroundingWindow(
            Span(float(self._begin), LATEST), tuple(range(len(self._grounded))), frozenset()
        )

    _grounded: tuple[Step, ...] = ()  # as the grounder knows them, but in the source's seconds

    def _ground_again(self) -> None:
        """Give the grounder all that is said by now and not forgotten."""
        steps = [each.model_copy(update=_UNPLACED) for each in self._told_steps()]
        self._grounded, transcript = tuple(steps), self.log.transcript
        if self._begin:
            steps, remembered = cut_steps(steps, self._remembered(), transcript)
            transcript = remembered or transcript
        if self.backbone is None or not steps:
            self._grounder.update_steps(steps, transcript)
            return
        from stepline.grounding.correspondence import load_weights

        vectors = self._encode([step.text for step in steps])
        said = [sentence.text for sentence in transcript.sentences]
        known = self.backbone.name in load_weights().mean_pictures and said
        self._grounder.update_steps(
            steps,
            transcript,
            vectors=vectors,
            sentence_vectors=self._encode(said) if known else None,
        )
        self._vectors = {
            text: self._vectors[text]
            for text in {*said, *(step.text for step in steps)}
            if text in self._vectors
        }

    def _encode(self, texts: Sequence[str]) -> Any:
        assert self.backbone is not None
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors |= dict(zip(new, self.backbone.encode_texts(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def _look(self) -> None:
        """Ground what was shown since the last look, once a second, and tell what it shows."""
        if self._vision is None:
            for each in list(self.log.steps.values()):
                if not (each.ended or each.withdrawn or self.options.texts):
                    self._tell("step_ended", step=each.step.id, status="said", score=0.0)
                    self._draw()
            return
        if self._vision.until < self._seen + 1.0:
            return
        picture = self._vision.snapshot()
        self._seen = picture.until
        self._keep_rows(picture.features.values if picture.features is not None else None)
        self._grounder.update_pictures(
            picture.until - picture.begin, features=picture.features, activity=picture.activity
        )
        for step in self._in_source_time(self._grounder.steps):
            self._follow(step, picture.until - self.options.lag)
        if 0 < len(self.options.texts) <= MAX_LINES:
            self._tell_line()
        if picture.until >= self._begin + self._memory + FORGOTTEN:
            self._forget()

    def _in_source_time(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return grounded steps with the times of the source."""
        if not self._begin:
            return steps
        window = self._remembered()
        return [
            to_video_time(step, known, window)
            for step, known in zip(steps, self._grounded, strict=True)
        ]

    def _forget(self) -> None:
        """Let go of what lies too far back for grounding to look at; it stays on disk."""
        assert self._vision is not None
        self._begin += FORGOTTEN
        self._vision.forget(float(self._begin))
        self._grounder.forget(FORGOTTEN)
        self._ground_again()
        picture = self._vision.snapshot()
        self._grounder.update_pictures(
            picture.until - picture.begin, features=picture.features, activity=picture.activity
        )

    def _tell_line(self) -> None:
        """Tell which line of the recipe is shown, `lag` seconds back, and which were skipped, where
        that is new."""
        state = self._grounder.follow(min(round(self.options.lag), MAX_LAG_SECONDS))
        ids = [step.id for step in self._grounder.steps]
        if state.line is None:
            return
        line, skipped, last = ids[state.line], tuple(ids[k] for k in state.skipped), self.log.line
        if last is None or (last.step, last.skipped or ()) != (line, skipped):
            self._tell(
                "line",
                step=line,
                text=self.log.steps[line].step.text,
                skipped=skipped or None,
                follows=ids[int(state.next.argmax())],
                score=round(float(state.now.max()), 4),
            )

    def _follow(self, step: Step, second: float) -> None:
        """Tell of a step what is known by the second that lies `lag` back."""
        told = self.log.steps.get(step.id)
        if told is None or told.ended or told.withdrawn:
            return
        span = step.spans[0] if step.spans and step.status == "shown" else None
        if span is not None and not told.shown and span.start <= second:
            self._tell(
                "step_shown", step=step.id, second=round(step.at or span.start, 3), score=step.score
            )
        over = span is not None and span.end <= second
        given_up = span is None and step.said is not None and step.said.end + UNSEEN <= second
        if over or given_up:
            self._end_step(step)

    def _end_step(self, step: Step) -> None:
        spans = tuple(Span(round(span.start, 3), round(span.end, 3)) for span in step.spans)
        self._tell(
            "step_ended",
            step=step.id,
            spans=spans or None,
            second=step.at,
            status=step.status,
            score=round(step.score, 4) if step.score is not None else None,
        )
        self._draw()

    def _end_all(self) -> None:
        """Tell of every step that has not ended what is known at the end."""
        if self._vision is not None and self._seen > 0:
            for step in self._in_source_time(
                self._grounder.finish(max(self._end, self._seen) - self._begin).steps
            ):
                if not (told := self.log.steps[step.id]).ended and not told.withdrawn:
                    self._end_step(step)
        self._draw()

    def _draw(self) -> None:
        if self.vtt is not None:
            self.vtt.update(self.id, self.log.steps.values(), self.log.sentences)

    # ---------------------------------------------------------------- until next

    def _go_on(self) -> None:
        """With `until_next`: hold a paced source where a step has ended; go on at a sign."""
        if not self.options.until_next:
            return
        with contextlib.suppress(queue.Empty):
            self._signed = self.signs.get_nowait()
        steps = [each for each in self.log.steps.values() if not each.withdrawn]
        ids = [each.step.id for each in steps]
        place = ids.index(self._at_hand) if self._at_hand in ids else -1
        current = steps[place] if place >= 0 else None
        paced = [source for source in self.sources if source.paced]
        if current is not None and not self._signed:
            if current.ended and paced and not any(source.held for source in paced):
                self._tell("waiting", step=current.step.id, text=current.step.text)
                for source in paced:
                    source.held = True
            if not self._done(current.step.id):
                return
        for source in paced:
            source.held = False
        if place + 1 < len(steps):
            after, reason = (
                steps[place + 1].step,
                self._signed or ("begin" if place < 0 else "picture"),
            )
            self._at_hand, self._signed = after.id, ""
            self._tell("next", step=after.id, text=after.text, reason=reason)

    def _done(self, step: str) -> bool:
        """Whether the picture of somebody at work says that a step is finished; a film that plays
        cannot."""
        if self._vision is None or self._seen == 0 or any(source.paced for source in self.sources):
            return False
        ids, state = [each.id for each in self._grounder.steps], self._grounder.smoothed()
        return step in ids and float(state.done[ids.index(step)]) >= FINISHED

    # ---------------------------------------------------------------- after a kill

    def _restore(self) -> None:
        """Begin where the log of a killed run ends."""
        if self.log.sentences:
            self._hearing.resume(self.log.sentences[-1].words)
        if (
            self._vision is not None
            and self.rows is not None
            and self.rows.is_file()
            and self.log.count
        ):
            width, rate = self._vision.width, self.settings.vision.rate
            self._kept = self.rows.stat().st_size // (4 * width)
            self._begin = max(0, int((self.log.position - self._memory) // FORGOTTEN * FORGOTTEN))
            first, last = (
                min(self._kept, math.floor(each * rate))
                for each in (self._begin, self.log.position)
            )
            values = np.fromfile(
                self.rows, np.float32, (last - first) * width, offset=4 * first * width
            )
            self._vision.restore(values.reshape(-1, width), float(self._begin))
        if self.log.count:
            self._find_lines() if self.options.texts and self.log.sentences else None
            self._ground_again()
            self._draw()

    def _keep_rows(self, values: Any) -> None:
        first = round(self._begin * self.settings.vision.rate)
        if self.rows is None or values is None or first + len(values) <= self._kept:
            return
        try:
            with self.rows.open("ab") as file:
                file.write(np.ascontiguousarray(values[self._kept - first :], np.float32).tobytes())
        except OSError as error:
            raise StoreError(
                f"{self.rows}: cannot be written ({error.strerror}); free some space"
            ) from error
        self._kept = first + len(values)


# of a step that is grounded anew
_UNPLACED = {"spans": (), "at": None, "status": None, "score": None}


def match_steps(
    written: Sequence[Step], known: Sequence[LiveStep]
) -> list[tuple[Step | None, LiveStep | None]]:
    """Return which written step is which known one: of the same text, else, in order, of a common
    sentence.

    (step, None): new. (None, known): not written any more.
    """
    left, pairs = list(known), {}
    for same_text in (True, False):
        for place, step in enumerate(written):
            fits = (
                each
                for each in left
                if place not in pairs
                and set(each.step.sources) & set(step.sources)
                and (not same_text or each.step.text == step.text)
            )
            if (twin := next(fits, None)) is not None:
                pairs[place] = twin
                left.remove(twin)
    return [
        *((step, pairs.get(place)) for place, step in enumerate(written)),
        *((None, each) for each in left),
    ]
