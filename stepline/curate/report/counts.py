"""What a dataset holds, counted in one pass over its records; memory grows by a few numbers a video.

Steps that count are those of kept videos. "Left out" videos are records whose `dropped` names a video.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from stepline.records import Record, Step

LONG = 40  # words a step, seconds a step and steps a video from which all share the last bar
MINUTE = 60.0  # s
FAST = 400  # words a minute from which all share the last bar
PACE = 20  # words a minute that a bar of speech rate is wide
HALF = 30  # s that a bar of video durations is wide


@dataclass
class Shares:
    """Of each kept video: how many texts have a calibrated score, and the sum of those scores; lists of V numbers."""

    videos: list[str] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, video: str, scores: Iterable[float | None]) -> None:
        """Count a video's texts; those without a score are left out."""
        known = [score for score in scores if score is not None]
        if known:
            self.videos.append(video)
            self.texts.append(len(known))
            self.sums.append(sum(known))


@dataclass
class Counts:
    """The counts of a dataset. Histograms map the lower end of a bar, as text, to how many lie in it."""

    videos: int = 0
    kept: int = 0
    hours: float = 0.0  # of kept videos whose duration is known
    sentences: int = 0  # heard in kept videos
    told: int = 0  # of them, sentences that a kept step rests on
    steps: int = 0
    step_words: int = 0
    step_seconds: float = 0.0
    placed: int = 0  # steps with a span
    neighbours: int = 0  # pairs of placed steps, one written after the other
    out_of_order: int = 0  # of them, pairs of which the later is shown first
    left_out: Counter[str] = field(default_factory=Counter)  # videos by reason
    dropped_sentences: Counter[str] = field(default_factory=Counter)  # by reason
    dropped_steps: Counter[str] = field(default_factory=Counter)  # by reason
    statuses: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)  # kept videos
    licences: Counter[str] = field(default_factory=Counter)  # steps of a text base
    recognisers: Counter[str] = field(default_factory=Counter)  # kept videos
    tasks: Counter[str] = field(default_factory=Counter)  # kept videos
    task_steps: Counter[str] = field(default_factory=Counter)  # placed steps
    steps_a_video: Counter[str] = field(default_factory=Counter)
    words_a_step: Counter[str] = field(default_factory=Counter)
    seconds_a_step: Counter[str] = field(default_factory=Counter)
    words_a_minute: Counter[str] = field(default_factory=Counter)  # kept videos with speech
    durations: Counter[str] = field(default_factory=Counter)  # kept videos
    warnings: Counter[str] = field(default_factory=Counter)
    narration_shown: Shares = field(default_factory=Shares)  # the judge's P(shown) of each sentence
    steps_shown: Shares = field(default_factory=Shares)  # the aligner's P(shown at all) of each step

    def add(self, record: Record) -> bool:
        """Count a record; return whether its video is in the dataset."""
        self.videos += 1
        out = [dropped.reason for dropped in record.dropped if dropped.what == "video"]
        if out:
            self.left_out[out[0]] += 1
            return False
        self.kept += 1
        self._add_video(record)
        self._add_speech(record)
        for step in record.steps:
            self._add_step(step, record.video.task)
        starts = [step.spans[0].start for step in record.steps if step.spans]
        self.neighbours += max(0, len(starts) - 1)
        self.out_of_order += sum(later < earlier for earlier, later in itertools.pairwise(starts))
        self.steps_a_video[str(min(LONG, len(record.steps)))] += 1
        self.steps_shown.add(record.id, (step.score for step in record.steps))
        return True

    def _add_video(self, record: Record) -> None:
        video = record.video
        if video.duration is not None:
            self.hours += video.duration / 3600
            self.durations[str(int(video.duration / HALF))] += 1
        if video.task is not None:
            self.tasks[video.task] += 1
        self.warnings.update(record.warnings)
        self.dropped_sentences.update(dropped.reason for dropped in record.dropped if dropped.what == "sentence")
        self.dropped_steps.update(dropped.reason for dropped in record.dropped if dropped.what == "step")

    def _add_speech(self, record: Record) -> None:
        sentences = record.transcript.sentences if record.transcript is not None else ()
        self.languages[(record.transcript.language if record.transcript else None) or "not known"] += 1
        self.recognisers[(record.transcript.recogniser if record.transcript else None) or "none"] += 1
        self.sentences += len(sentences)
        self.told += len({source for step in record.steps for source in step.sources})
        self.narration_shown.add(record.id, (sentence.shown for sentence in sentences))
        if sentences:
            spoken = sum(len(sentence.text.split()) for sentence in sentences)
            talked = max(sentence.span.end for sentence in sentences) - sentences[0].span.start
            self.words_a_minute[str(min(FAST, int(MINUTE * spoken / talked)) // PACE)] += 1

    def _add_step(self, step: Step, task: str | None) -> None:
        words = len(step.text.split())
        self.steps += 1
        self.step_words += words
        self.words_a_step[str(min(LONG, words))] += 1
        self.statuses[step.status or "not judged"] += 1
        if step.source_text is not None:
            self.licences[step.licence or "not stated"] += 1
        if step.spans:
            self.placed += 1
            self.step_seconds += step.spans[0].duration
            self.seconds_a_step[str(min(LONG, int(step.spans[0].duration)))] += 1
            if task is not None:
                self.task_steps[task] += 1
