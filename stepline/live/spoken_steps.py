"""The steps of a live run as they are said: written from the last sentences, or lines of a recipe
that are found in the sentences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.grounding.speech import TaskGraph, line_steps, steps_from_texts
from stepline.live.events import EmitEvent, LiveLog, LiveStep
from stepline.pipeline.request import StepsSettings
from stepline.records import Step, Transcript
from stepline.text import embed
from stepline.writing import write_steps

OPEN_SENTENCES = 4  # last sentences, whose steps may still be written or revised
# last sentences that the writer reads together, so that it can resolve pronouns
CONTEXT_SENTENCES = 24


def cached_vectors(
    texts: Sequence[str], cache: dict[str, Any], encode: Callable[[Sequence[str]], Any]
) -> Any:
    """Return the vectors of N texts, (N, D).

    Args:
        texts: N texts, at least one.
        cache: text -> vector (D,), which is extended by new texts.
        encode: function from N texts to vectors (N, D).
    """
    new = [text for text in dict.fromkeys(texts) if text not in cache]
    if new:
        cache |= dict(zip(new, encode(new), strict=True))
    return np.stack([cache[text] for text in texts])


class SpokenSteps:
    """Emits events about the steps that the speaker says.

    Without a recipe, steps are written from the last sentences. With a recipe, its lines are found
    in the sentences.
    """

    def __init__(
        self,
        log: LiveLog,
        emit_event: EmitEvent,
        settings: StepsSettings,
        texts: Sequence[str] = (),
        graph: TaskGraph | None = None,
    ) -> None:
        """Start with the sentences and steps in a log.

        Args:
            log: log of the run.
            emit_event: `LiveSession.emit_event`, which adds an event to the log and emits it.
            settings: settings of `stepline steps`.
            texts: lines of a recipe to find, () to write steps instead.
            graph: comparison of videos that the lines come from, None for other lines.
        """
        self._log = log
        self._emit_event = emit_event
        self._settings = settings
        self._texts = texts
        self._graph = graph
        self._vectors: dict[str, Any] = {}  # MiniLM vector (384,) of each line and sentence
        self._lines: tuple[Step, ...] = ()  # lines of the recipe, with where each is said
        # P(the sentence describes a step) by its start and text
        self._step_probabilities: dict[tuple[float, str], float] = {}

    def open_steps(self, begin: float) -> list[Step]:
        """Return the steps to ground: all lines of a recipe, or the steps that are not withdrawn.

        begin: second of the source. Written steps that have ended and were said before it are left
            out.
        """
        # A recipe's lines may be shown at any time, so all of them stay.
        if self._lines:
            return list(self._lines)
        steps = []
        for live_step in self._log.present_steps:
            span = live_step.step.said
            if self._texts or not live_step.ended or span is None or span.end >= begin:
                steps.append(live_step.step)
        return steps

    def announce_lines(self) -> None:
        """Emit the lines of a recipe at the start of the run."""
        for line in line_steps(self._texts, self._graph):
            if line.id not in self._log.steps:
                self._emit_event(
                    "step_said", step=line.id, text=line.text, kind=line.kind, reason="given"
                )

    def update(self, language: str | None) -> None:
        """Emit new and revised steps of the last sentences, or lines of the recipe that are now said.

        language: ISO 639-1 code of the speech, None if unknown.
        """
        if self._texts:
            self.find_lines(language)
        else:
            self._write_steps(language)

    def _write_steps(self, language: str | None) -> None:
        """Write steps of the last sentences, and emit those that are new or revised.

        language: ISO 639-1 code of the speech, None if unknown.
        """
        sentences = self._log.sentences
        first = max(0, len(sentences) - CONTEXT_SENTENCES)
        first_open = len(sentences) - OPEN_SENTENCES
        transcript = Transcript(language=language, sentences=tuple(sentences[first:]))

        # steps that rest on sentences which are still open
        written = []
        for new in write_steps(transcript, self._settings.writing).steps:
            # The writer counts from the first sentence that it was given.
            sources = tuple(source + first for source in new.sources)
            if sources and max(sources) >= first_open:
                written.append(new.model_copy(update={"sources": sources}))
        emitted = [
            live_step
            for live_step in self._log.present_steps
            if max(live_step.step.sources, default=-1) >= first_open
        ]

        # new, revised and withdrawn steps
        for step, earlier in match_steps(written, emitted):
            if earlier is None:
                assert step is not None
                self._emit_said(str(len(self._log.steps) + 1), step)
            elif earlier.revised or earlier.ended:
                # A step is not revised twice, and not once it has ended.
                continue
            elif step is None:
                self._emit_event(
                    "revised", step=earlier.step.id, reason="what follows says otherwise"
                )
            elif earlier.step.text != step.text:
                self._emit_said(earlier.step.id, step, reason="the speaker went on")

    def _emit_said(self, id: str, step: Step, reason: str | None = None) -> None:
        """Emit a spoken step.

        Args:
            id: id of the step in the log.
            step: the step.
            reason: why it is revised, None for a new step.
        """
        self._emit_event(
            "step_said" if reason is None else "revised",
            step=id,
            text=step.text,
            kind=step.kind,
            said=step.said,
            sources=step.sources,
            reason=reason,
        )

    def find_lines(self, language: str | None) -> None:
        """Find the lines of a recipe in all sentences, and emit those that are now said.

        language: ISO 639-1 code of the speech, None if unknown.
        """
        # All sentences count again, since a later one may say a line better.
        transcript = self._log.transcript
        sentence_vectors = self._embed([sentence.text for sentence in transcript.sentences])
        self._lines = steps_from_texts(
            self._texts,
            transcript,
            sentence_vectors,
            self._embed(self._texts),
            so_far=True,
            step_probabilities=self._read_step_probabilities(transcript, language),
            graph=self._graph,
        )
        # Lines that are now said for the first time.
        for line in self._lines:
            if line.said is not None and self._log.steps[line.id].step.said is None:
                self._emit_said(line.id, line)

    def _read_step_probabilities(
        self, transcript: Transcript, language: str | None
    ) -> npt.NDArray[np.float64] | None:
        """Return P(the sentence describes a step), (S,). None if the scorer lacks the language.

        A sentence is scored again until OPEN_SENTENCES have followed.

        Args:
            transcript: all S sentences so far.
            language: ISO 639-1 code of the speech, None if unknown.
        """
        from stepline.writing.extractive.writer import transcript_step_probabilities

        keys = [(sentence.span.start, sentence.text) for sentence in transcript.sentences]
        # From the first sentence that was never read, or is still open.
        begin = max(0, len(keys) - OPEN_SENTENCES)
        for n, key in enumerate(keys[:begin]):
            if key not in self._step_probabilities:
                begin = n
                break
        # The sentences before it are its context.
        first = max(0, begin - CONTEXT_SENTENCES)
        recent = Transcript(language=language, sentences=transcript.sentences[first:])
        probabilities = transcript_step_probabilities(recent, self._settings.writing)
        if probabilities is None:
            return None
        new_probabilities = probabilities[begin - first :].tolist()
        self._step_probabilities |= dict(zip(keys[begin:], new_probabilities, strict=True))
        return np.array([self._step_probabilities[key] for key in keys])

    def _embed(self, texts: Sequence[str]) -> Any:
        return cached_vectors(texts, self._vectors, embed)


def match_steps(
    written: Sequence[Step], emitted: Sequence[LiveStep]
) -> list[tuple[Step | None, LiveStep | None]]:
    """Return (written step, step in the log) pairs that are the same step.

    They cite a common sentence. Steps with the same text are matched first. The pair of a new step
    is (step, None), that of a step that is no longer written (None, step).

    Args:
        written: steps that the writer now writes.
        emitted: steps in the log.
    """
    unmatched = list(emitted)
    log_step_of: dict[int, LiveStep] = {}
    # The same text first, so that a step that stays is not taken for another.
    for same_text in (True, False):
        for index, step in enumerate(written):
            if index in log_step_of:
                continue
            for candidate in unmatched:
                is_same = candidate.step.text == step.text or not same_text
                if is_same and not set(candidate.step.sources).isdisjoint(step.sources):
                    log_step_of[index] = candidate
                    unmatched.remove(candidate)
                    break
    # All that is written, then what is not written any more.
    pairs = [(step, log_step_of.get(index)) for index, step in enumerate(written)]
    return [*pairs, *((None, candidate) for candidate in unmatched)]
