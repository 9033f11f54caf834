"""Counts of a dataset that grow by a few numbers for each record: texts, seconds, reasons."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from stepline.records import Record, Step, Transcript

Counts: TypeAlias = Counter[str]


@dataclass
class ScoreSums:
    """Of each kept video: how many texts have a calibrated score, and the sum of those scores. Both
    are lists of V numbers."""

    texts: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, scores: Iterable[float | None]) -> None:
        """Count a video's texts. Those without a score are left out."""
        values = []
        for score in scores:
            if score is not None:
                values.append(score)
        # Only videos with scores, so that each has a mean.
        if values:
            self.texts.append(len(values))
            self.sums.append(sum(values))


@dataclass
class DatasetCounts:
    """The counts of a dataset. Steps and sentences are those of kept videos, `left_out` has the
    others."""

    videos: int = 0
    kept_videos: int = 0
    hours: float = 0.0  # of kept videos whose duration is known
    timed_videos: int = 0  # those videos
    sentences: int = 0  # heard in kept videos
    cited: int = 0  # of them, sentences that a kept step rests on
    spoken_words: int = 0
    spoken_seconds: float = 0.0  # from the first word of each video to its last
    steps: int = 0
    step_words: int = 0
    step_seconds: float = 0.0
    placed: int = 0  # steps with a span
    neighbours: int = 0  # pairs of placed steps, one written after the other
    out_of_order: int = 0  # of them, pairs whose later one is shown first
    left_out: Counts = field(default_factory=Counter)  # videos by reason
    dropped_sentences: Counts = field(default_factory=Counter)  # by reason
    dropped_steps: Counts = field(default_factory=Counter)  # by reason
    statuses: Counts = field(default_factory=Counter)
    languages: Counts = field(default_factory=Counter)  # kept videos
    licences: Counts = field(default_factory=Counter)  # steps of a text base
    recognisers: Counts = field(default_factory=Counter)  # kept videos
    tasks: Counts = field(default_factory=Counter)  # kept videos
    warnings: Counts = field(default_factory=Counter)
    # the judge's P(shown) of each sentence
    narration_shown: ScoreSums = field(default_factory=ScoreSums)
    # the aligner's P(shown at all) of each step
    steps_shown: ScoreSums = field(default_factory=ScoreSums)

    def add(self, record: Record) -> bool:
        """Count a record. Return whether its video is in the dataset."""
        self.videos += 1
        # A video that is left out counts by its reason alone.
        for rejected in record.dropped:
            if rejected.what == "video":
                self.left_out[rejected.reason] += 1
                return False
        self.kept_videos += 1
        video = record.video
        if video.duration is not None:
            self.hours += video.duration / 3600
            self.timed_videos += 1
        if video.task is not None:
            self.tasks[video.task] += 1
        self.warnings.update(record.warnings)
        for rejected in record.dropped:
            if rejected.what == "sentence":
                self.dropped_sentences[rejected.reason] += 1
            elif rejected.what == "step":
                self.dropped_steps[rejected.reason] += 1
        self._add_speech(record)
        self._add_steps(record)
        return True

    def _add_speech(self, record: Record) -> None:
        transcript = record.transcript or Transcript()
        sentences = record.sentences
        self.languages[transcript.language or "not known"] += 1
        self.recognisers[transcript.recogniser or "none"] += 1
        self.sentences += len(sentences)
        # Several steps may cite one sentence, which counts once.
        cited: set[int] = set()
        for step in record.steps:
            cited.update(step.sources)
        self.cited += len(cited)
        self.narration_shown.add(sentence.shown for sentence in sentences)
        if sentences:
            self.spoken_words += sum(len(sentence.text.split()) for sentence in sentences)
            end = max(sentence.span.end for sentence in sentences)
            self.spoken_seconds += end - sentences[0].span.start

    def _add_steps(self, record: Record) -> None:
        for step in record.steps:
            self._add_step(step)
        # Steps without a place have no order among the others.
        starts = [step.spans[0].start for step in record.steps if step.spans]
        for earlier, later in pairwise(starts):
            self.neighbours += 1
            self.out_of_order += later < earlier
        self.steps_shown.add(step.score for step in record.steps)

    def _add_step(self, step: Step) -> None:
        self.steps += 1
        self.step_words += len(step.text.split())
        self.statuses[step.status or "not judged"] += 1
        # A licence is that of a text that people wrote. Steps made here have none.
        if step.source_text is not None:
            self.licences[step.licence or "not stated"] += 1
        if step.spans:
            self.placed += 1
            self.step_seconds += step.spans[0].duration
