"""What the pictures of a live run show of its steps. They are grounded once per second, and emitted
when they are shown and when they have ended."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepline.grounding.inputs import GroundingWindow, cut_steps, to_video_time
from stepline.grounding.online import OnlineGrounder
from stepline.limits import MAX_SECOND
from stepline.live.events import EmitEvent, LiveOptions, RunFiles
from stepline.live.pictures import LivePicture, LiveVision
from stepline.live.spoken_steps import SpokenSteps
from stepline.pipeline.request import StepsSettings
from stepline.records import Span, Step

if TYPE_CHECKING:
    from stepline.vision import Backbone

# after its words, in which a step may still be shown. WhenAct: 5 % are farther off than 29 s
UNSEEN_SECONDS = 30.0
# of the past that are forgotten together, when grounding looks back to them no more
FORGET_SECONDS = 600
MAX_LAG_SECONDS = 30.0  # of `--lag`, back to which the pictures are remembered

# of a step that is grounded again
UNPLACED_FIELDS = {"spans": (), "at": None, "status": None, "basis": None, "score": None}


class ShownSteps:
    """Grounds the steps in the pictures so far. backbone: None where no picture is looked at."""

    def __init__(
        self,
        spoken: SpokenSteps,
        files: RunFiles,
        emit_event: EmitEvent,
        settings: StepsSettings,
        options: LiveOptions,
        backbone: "Backbone | None",
    ) -> None:
        self._spoken = spoken
        self._files = files
        self._log = files.log
        self._emit_event = emit_event
        self._settings = settings
        self._options = options
        self._backbone = backbone
        self.vision = LiveVision(backbone, settings.vision) if backbone is not None else None
        self._grounder = OnlineGrounder(settings.nasva.ground, written=not options.texts)
        # as the grounder knows them, but in the source's seconds
        self.grounded: tuple[Step, ...] = ()
        self._vectors: dict[str, Any] = {}  # of the texts that were encoded
        self.begin = 0  # s before which what was said and shown is forgotten
        self._until = 0.0  # s of pictures that were grounded
        # s that grounding looks back
        self.memory = 1.5 * settings.nasva.ground.window + MAX_LAG_SECONDS

    def restore(self) -> None:
        """Begin with the features that a killed run kept, where its log ends."""
        if self.vision is None or not self._log.count:
            return
        rate = self._settings.vision.rate
        position = self._log.position
        # Whole periods were forgotten, so that a run goes on from the same second.
        forgotten_periods = (position - self.memory) // FORGET_SECONDS
        begin = max(0, int(forgotten_periods * FORGET_SECONDS))
        rows = math.floor(begin * rate), math.floor(position * rate)
        values = self._files.read_rows(*rows, self.vision.width)
        if values is not None:
            self.begin = begin
            self.vision.restore(values, float(begin))

    def update_speech(self) -> None:
        """Update the grounder with the sentences that are not dropped."""
        # what is said, up to where the grounder remembers it
        open_steps = self._spoken.open_steps(self.begin)
        steps = [step.model_copy(update=UNPLACED_FIELDS) for step in open_steps]
        transcript = self._log.transcript
        self.grounded = tuple(steps)
        if self.begin:
            steps, kept_sentences = cut_steps(steps, self._remembered_sentences(), transcript)
            transcript = kept_sentences or transcript
        if self._backbone is None or not steps:
            self._grounder.update_steps(steps, transcript)
            return
        from stepline.grounding.correspondence import load_weights

        # vectors, of new texts alone
        texts = [step.text for step in steps]
        sentences = [sentence.text for sentence in transcript.sentences]
        vectors = self._encode(texts)
        sentence_vectors = None
        if sentences and self._backbone.name in load_weights().mean_pictures:
            sentence_vectors = self._encode(sentences)
        self._grounder.update_steps(
            steps, transcript, vectors=vectors, sentence_vectors=sentence_vectors
        )
        # Vectors of texts that are gone are let go.
        used = {*texts, *sentences}
        self._vectors = {text: row for text, row in self._vectors.items() if text in used}

    def _encode(self, texts: Sequence[str]) -> Any:
        assert self._backbone is not None
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            vectors = self._backbone.encode_texts(new)  # (N, D)
            self._vectors |= dict(zip(new, vectors, strict=True))
        return np.stack([self._vectors[text] for text in texts])

    def update_pictures(self) -> None:
        """Ground what was shown since the last time, once per second, and emit what it shows."""
        if self.vision is None:
            # Without pictures a step ends as soon as it is said.
            for present in self._log.present_steps:
                if not present.ended and not self._options.texts:
                    self._emit_event("step_ended", step=present.step.id, status="said", score=0.0)
                    self._files.write_vtt()
            return
        if self.vision.until < self._until + 1.0:
            return
        picture = self.vision.snapshot()
        self._until = picture.until
        # A killed run goes on from the rows on disk.
        if picture.features is not None:
            first = round(self.begin * self._settings.vision.rate)
            self._files.append_rows(first, picture.features.values)
        self._ground(picture)
        for step in self._in_source_time(self._grounder.steps):
            self._follow_step(step, picture.until - self._options.lag)
        if self._options.texts:
            # The line whose words ended last, where it is another one than before.
            end_seconds = {s.id: s.said.end for s in self._grounder.steps if s.said is not None}
            line = max(end_seconds, key=end_seconds.__getitem__, default=None)
            last = self._log.line
            if line is not None and (last is None or last.step != line):
                self._emit_event("line", step=line, text=self._log.steps[line].step.text)
        # Grounding looks at a bounded past, so memory and time per second stay bounded.
        if picture.until >= self.begin + self.memory + FORGET_SECONDS:
            self._drop_old_rows()

    def _ground(self, picture: LivePicture) -> None:
        self._grounder.update_pictures(
            picture.until - picture.begin, features=picture.features, activity=picture.activity
        )

    def _remembered_sentences(self) -> GroundingWindow:
        steps = tuple(range(len(self.grounded)))
        return GroundingWindow(Span(float(self.begin), MAX_SECOND), steps, frozenset())

    def _in_source_time(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return grounded steps with the times of the source."""
        if not self.begin:
            return steps
        window = self._remembered_sentences()
        return [to_video_time(*pair, window) for pair in zip(steps, self.grounded, strict=True)]

    def _drop_old_rows(self) -> None:
        """Drop rows that are too old for grounding. They stay on disk."""
        assert self.vision is not None
        self.begin += FORGET_SECONDS
        self.vision.forget(float(self.begin))
        self._grounder.forget(FORGET_SECONDS)
        # The grounder's clock begins later now, so all is given to it again.
        self.update_speech()
        self._ground(self.vision.snapshot())

    def _follow_step(self, step: Step, second: float) -> None:
        """Emit of a step what is known by the second that is `lag` ago."""
        present = self._log.steps.get(step.id)
        # What was emitted as ended stays so.
        if present is None or present.ended or present.withdrawn:
            return
        if step.spans and step.status == "shown":
            # Each event waits until its second is `lag` ago.
            span = step.spans[0]
            if not present.shown and span.start <= second:
                at = step.at or span.start
                self._emit_event(
                    "step_shown",
                    step=step.id,
                    second=round(at, 3),
                    basis=step.basis,
                    score=step.score,
                )
            if span.end <= second:
                self._end_step(step)
        elif step.said is not None and step.said.end + UNSEEN_SECONDS <= second:
            # It has not been shown, and now it is too late for that.
            self._end_step(step)

    def _end_step(self, step: Step) -> None:
        spans = tuple(Span(round(span.start, 3), round(span.end, 3)) for span in step.spans)
        score = None if step.score is None else round(step.score, 4)
        self._emit_event(
            "step_ended",
            step=step.id,
            spans=spans or None,
            second=step.at,
            status=step.status,
            basis=step.basis,
            score=score,
        )
        self._files.write_vtt()

    def finish(self, end: float) -> None:
        """End every step that has not ended, by all that is known. end: second of the source."""
        if self.vision is not None and self._until > 0:
            end = max(end, self._until)
            # Without a lag, since no more evidence comes.
            grounding = self._grounder.finish(end - self.begin)
            for step in self._in_source_time(grounding.steps):
                present = self._log.steps[step.id]
                if not present.ended and not present.withdrawn:
                    self._end_step(step)
        self._files.write_vtt()
