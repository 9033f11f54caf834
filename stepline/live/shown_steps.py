"""Grounding of the steps of a live run, once per second. Events say when a step is shown and ends."""

import math
from collections.abc import Sequence
from typing import Any

from stepline.grounding.correspondence import PICTURES_DO_NOT_FIT, load_weights
from stepline.grounding.inputs import GroundingWindow, cut_steps, to_video_time
from stepline.grounding.online import OnlineGrounder
from stepline.limits import MAX_SECOND
from stepline.live.events import EmitEvent, LiveOptions, RunFiles
from stepline.live.pictures import LiveEvidence, LiveVision
from stepline.live.spoken_steps import SpokenSteps, cached_vectors
from stepline.pipeline.request import StepsSettings
from stepline.records import Span, Step
from stepline.vision import Backbone

# after its words, in which a step may still be shown. WhenAct: 5 % are shown more than 29 s later
UNSEEN_SECONDS = 30.0
# of rows that are dropped at once, when they are too old for grounding
FORGET_SECONDS = 600
MAX_LAG_SECONDS = 30.0  # largest `--lag`

# `PICTURES_DO_NOT_FIT` in a live run
NOT_CONFIRMED_YET = (
    "the pictures so far do not confirm its words; a live run does not read text on screen"
)

# fields of a step that grounding sets
UNPLACED_FIELDS = dict.fromkeys(("at", "status", "basis", "doubt", "score")) | {"spans": ()}


class ShownSteps:
    """Grounds the steps of a live run in the pictures so far, and emits when they are shown and end.

    Attributes:
        vision: visual features of the source so far, None without pictures.
        grounded: the steps that the grounder has, with their spoken seconds of the source.
        begin: second of the source before which rows and sentences are dropped from memory.
        memory_seconds: seconds before now that grounding may need.
    """

    def __init__(
        self,
        spoken: SpokenSteps,
        files: RunFiles,
        emit_event: EmitEvent,
        settings: StepsSettings,
        options: LiveOptions,
        backbone: "Backbone | None",
    ) -> None:
        """Start without pictures.

        Args:
            spoken: the steps that the speaker has said.
            files: files of the run.
            emit_event: `LiveSession.emit_event`, which adds an event to the log and emits it.
            settings: settings of `stepline steps`.
            options: lag of the reports, and lines of a recipe.
            backbone: network that encodes the pictures, None without pictures.
        """
        self._spoken = spoken
        self._files = files
        self._log = files.log
        self._emit_event = emit_event
        self._settings = settings
        self._options = options
        self._backbone = backbone
        self.vision = LiveVision(backbone, settings.vision) if backbone is not None else None
        self._grounder = OnlineGrounder(settings.nasva.ground, written=not options.texts)
        self.grounded: tuple[Step, ...] = ()
        self._vectors: dict[str, Any] = {}  # vector (D,) of each encoded text
        self.begin = 0
        self._until = 0.0  # second up to which pictures were grounded
        self.memory_seconds = 1.5 * settings.nasva.ground.window + MAX_LAG_SECONDS

    def restore(self) -> None:
        """Load the feature rows of a killed run, up to where its log ends."""
        if self.vision is None or not self._log.count:
            return
        rate = self._settings.vision.rate
        position = self._log.resume_second
        # Whole periods are dropped, so that a resumed run begins at the same second.
        dropped_periods = (position - self.memory_seconds) // FORGET_SECONDS
        begin = max(0, int(dropped_periods * FORGET_SECONDS))
        values = self._files.read_rows(
            math.floor(begin * rate), math.floor(position * rate), self.vision.width
        )
        if values is not None:
            self.begin = begin
            self.vision.restore(values, float(begin))

    def update_speech(self) -> None:
        """Give the grounder the steps and sentences so far, without those that are too old."""
        # steps and sentences, from second `begin` on
        open_steps = self._spoken.open_steps(self.begin)
        steps = [step.model_copy(update=UNPLACED_FIELDS) for step in open_steps]
        transcript = self._log.transcript
        self.grounded = tuple(steps)
        if self.begin:
            steps, recent_transcript = cut_steps(steps, self._recent_window(), transcript)
            transcript = recent_transcript or transcript
        backbone = self._backbone
        if backbone is None or not steps:
            self._grounder.update_steps(steps, transcript)
            return
        # vectors, computed for new texts only
        texts = [step.text for step in steps]
        sentences = [sentence.text for sentence in transcript.sentences]
        vectors = cached_vectors(texts, self._vectors, backbone.encode_texts)
        sentence_vectors = None
        if sentences and backbone.name in load_weights().mean_pictures:
            sentence_vectors = cached_vectors(sentences, self._vectors, backbone.encode_texts)
        self._grounder.update_steps(
            steps, transcript, vectors=vectors, sentence_vectors=sentence_vectors
        )
        # Vectors of texts that are no longer used are freed.
        used = {*texts, *sentences}
        self._vectors = {text: row for text, row in self._vectors.items() if text in used}

    def update_pictures(self) -> None:
        """Ground the steps in the new pictures, once per second, and emit the changes."""
        if self.vision is None:
            # Without pictures a step ends as soon as it is said.
            for present in self._log.present_steps:
                if not present.ended and not self._options.texts:
                    self._emit_event(
                        "step_ended", step=present.step.id, status="said_only", score=0.0
                    )
                    self._files.write_vtt()
            return
        if self.vision.known_end < self._until + 1.0:
            return
        picture = self.vision.snapshot()
        self._until = picture.end
        # A killed run resumes with the rows on disk.
        if picture.features is not None:
            first = round(self.begin * self._settings.vision.rate)
            self._files.append_rows(first, picture.features.values)
        self._ground(picture)
        for step in self._in_source_time(self._grounder.steps):
            self._emit_changes(step, picture.end - self._options.lag)
        if self._options.texts:
            # The line whose words ended last, where it is another one than before.
            end_seconds = {
                step.id: step.said.end for step in self._grounder.steps if step.said is not None
            }
            line = max(end_seconds, key=end_seconds.__getitem__, default=None)
            last = self._log.line
            if line is not None and (last is None or last.step != line):
                self._emit_event("line", step=line, text=self._log.steps[line].step.text)
        # Grounding looks at a bounded past, so memory and time per second stay bounded.
        if picture.end >= self.begin + self.memory_seconds + FORGET_SECONDS:
            self._drop_old_rows()

    def _ground(self, picture: LiveEvidence) -> None:
        self._grounder.update_pictures(
            picture.end - picture.start, features=picture.features, activity=picture.activity
        )

    def _recent_window(self) -> GroundingWindow:
        steps = tuple(range(len(self.grounded)))
        return GroundingWindow(Span(float(self.begin), MAX_SECOND), steps, frozenset())

    def _in_source_time(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return grounded steps with their times in seconds of the source.

        steps: the steps of the grounder, in seconds after `begin`.
        """
        if not self.begin:
            return steps
        window = self._recent_window()
        return [to_video_time(*pair, window) for pair in zip(steps, self.grounded, strict=True)]

    def _drop_old_rows(self) -> None:
        """Drop rows that are too old for grounding. They stay on disk."""
        assert self.vision is not None
        self.begin += FORGET_SECONDS
        self.vision.drop_before(float(self.begin))
        self._grounder.forget(FORGET_SECONDS)
        # The grounder's clock begins later now, so all is given to it again.
        self.update_speech()
        self._ground(self.vision.snapshot())

    def _emit_changes(self, step: Step, second: float) -> None:
        """Emit that a step is shown or has ended, if it did so before a second.

        Args:
            step: the grounded step, in seconds of the source.
            second: second of the source: now, minus the lag.
        """
        present = self._log.steps.get(step.id)
        # A step that has ended stays ended.
        if present is None or present.ended or present.withdrawn:
            return
        if step.spans and step.doubt is None:
            # Each event waits until its second is `lag` ago.
            span = step.spans[0]
            if not present.shown and span.start <= second:
                self._emit_event(
                    "step_shown",
                    step=step.id,
                    second=round(step.at or span.start, 3),
                    status=step.status,
                    basis=step.basis,
                    score=step.score,
                )
            if span.end <= second:
                self._end_step(step)
        elif step.said is not None and step.said.end + UNSEEN_SECONDS <= second:
            # It was not shown, and now it is too late.
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
            doubt=NOT_CONFIRMED_YET if step.doubt == PICTURES_DO_NOT_FIT else step.doubt,
            score=score,
        )
        self._files.write_vtt()

    def finish(self, end: float) -> None:
        """Ground the steps a last time, and emit the end of every step that has not ended.

        end: second at which the source ends.
        """
        if self.vision is not None and self._until > 0:
            end = max(end, self._until)
            grounding = self._grounder.finish(end - self.begin)
            for step in self._in_source_time(grounding.steps):
                present = self._log.steps[step.id]
                if not present.ended and not present.withdrawn:
                    self._end_step(step)
        self._files.write_vtt()
