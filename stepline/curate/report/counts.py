"""The numbers of a dataset, which its card and its report share.

DatasetCounts: counts of texts, seconds and reasons that grow with each record. count_stage_losses:
videos that each stage left out, by reason. describe_biases: sentences about what the dataset has
too much or too little of. compute_means: steps per video, words and seconds per step, rate of
speech, length of the videos.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from stepline.curate.stage import StageFailure
from stepline.outputs.verdict import step_verdict
from stepline.records import Record, Transcript
from stepline.sieve_swap.statistics import sort_counts

Counts = Counter[str]


@dataclass
class ScoreSums:
    """Sums of calibrated scores per video, from which their mean is estimated.

    Attributes:
        texts: number of texts with a score, for each of V videos.
        sums: sum of their scores, for each of V videos.
    """

    texts: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, scores: Iterable[float | None]) -> None:
        """Add the scores of the texts of one video. None is a text without a score."""
        values = [score for score in scores if score is not None]
        # Only videos with scores, so that each has a mean.
        if values:
            self.texts.append(len(values))
            self.sums.append(sum(values))


@dataclass
class DatasetCounts:
    """Counts of a dataset. All but `videos` and `left_out` are of the kept videos.

    Attributes:
        videos: all videos.
        kept_videos: videos that are not left out.
        hours: duration in hours of the videos whose duration is known.
        timed_videos: number of videos whose duration is known.
        sentences: sentences heard.
        spoken_words: words of the sentences.
        spoken_seconds: seconds from the start of the first sentence to the last end, summed over
            videos.
        steps: steps.
        step_words: words of the steps.
        step_seconds: duration in seconds of the steps with a span.
        steps_with_span: steps with a span.
        successive_pairs: pairs of successive steps with a span.
        reversed_pairs: pairs of `successive_pairs` whose second step is shown first.
        left_out: videos that are left out, by reason, # for each number and repeated video.
        dropped_sentences: dropped sentences by reason, # for each number.
        dropped_steps: dropped steps by reason, likewise.
        statuses: steps by verdict: their status, "doubtful" for a placed step with a doubt, or
            "unjudged".
        languages: videos by language of the speech.
        licences: steps from a text base, by licence of their text.
        recognisers: videos by speech recogniser.
        tasks: videos by task, such as "make soup".
        warnings: warnings by text.
        narration_shown: P(shown) of each sentence in its seconds, by the judge.
        steps_shown: P(shown anywhere in the video) of each step, by a calibrated network.
    """

    videos: int = 0
    kept_videos: int = 0
    hours: float = 0.0
    timed_videos: int = 0
    sentences: int = 0
    spoken_words: int = 0
    spoken_seconds: float = 0.0
    steps: int = 0
    step_words: int = 0
    step_seconds: float = 0.0
    steps_with_span: int = 0
    successive_pairs: int = 0
    reversed_pairs: int = 0
    left_out: Counts = field(default_factory=Counter)
    dropped_sentences: Counts = field(default_factory=Counter)
    dropped_steps: Counts = field(default_factory=Counter)
    statuses: Counts = field(default_factory=Counter)
    languages: Counts = field(default_factory=Counter)
    licences: Counts = field(default_factory=Counter)
    recognisers: Counts = field(default_factory=Counter)
    tasks: Counts = field(default_factory=Counter)
    warnings: Counts = field(default_factory=Counter)
    narration_shown: ScoreSums = field(default_factory=ScoreSums)
    steps_shown: ScoreSums = field(default_factory=ScoreSums)

    def add(self, record: Record) -> bool:
        """Count a record. Return False if its video is left out of the dataset."""
        self.videos += 1
        # A video that is left out counts by its reason alone.
        for rejected in record.dropped:
            if rejected.what == "video":
                self.left_out[VARYING_PATTERN.sub("#", rejected.reason)] += 1
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
            reason = VARYING_PATTERN.sub("#", rejected.reason)
            if rejected.what == "sentence":
                self.dropped_sentences[reason] += 1
            elif rejected.what == "step":
                self.dropped_steps[reason] += 1
        self._add_speech(record)
        self._add_steps(record)
        return True

    def _add_speech(self, record: Record) -> None:
        transcript = record.transcript or Transcript()
        sentences = record.sentences
        self.languages[transcript.language or "not known"] += 1
        self.recognisers[transcript.recogniser or "none"] += 1
        self.sentences += len(sentences)
        self.narration_shown.add(sentence.shown for sentence in sentences)
        if sentences:
            self.spoken_words += sum(len(sentence.text.split()) for sentence in sentences)
            end = max(sentence.span.end for sentence in sentences)
            self.spoken_seconds += end - sentences[0].span.start

    def _add_steps(self, record: Record) -> None:
        for step in record.steps:
            self.steps += 1
            self.step_words += len(step.text.split())
            self.statuses[step_verdict(step)] += 1
            # A licence is that of a text that people wrote. Steps made here have none.
            if step.source_text is not None:
                self.licences[step.licence or "not stated"] += 1
            if step.spans:
                self.steps_with_span += 1
                self.step_seconds += step.spans[0].duration
        # Steps without a place have no order among the others.
        starts = [step.spans[0].start for step in record.steps if step.spans]
        for earlier, later in pairwise(starts):
            self.successive_pairs += 1
            self.reversed_pairs += later < earlier
        # Any other score is no P(shown), such as the best cosine of an uncalibrated network.
        if _has_calibrated_scores(record):
            self.steps_shown.add(step.score for step in record.steps)


def _has_calibrated_scores(record: Record) -> bool:
    """Return whether a calibrated network gave the scores of all steps that have one."""
    # The last network that placed the steps.
    report = record.models.get("placing") or record.models.get("grounding")
    if isinstance(report, dict) and report.get("calibrated"):
        return True
    # Sentences that a detector judged, as steps.
    return all(step.basis == "network" for step in record.steps)


SOURCE_STAGE = "source"  # the name in losses of what comes before the first stage
# Of a reason, what differs between videos: the video that another one repeats, and numbers, but no
# part of a word, as in mp4.
VARYING_PATTERN = re.compile(
    r"(?<=it is a copy of ).+|(?<=it says the same as ).+|(?<![A-Za-z\d])\d+(?:[.,:]\d+)*"
)


@dataclass(frozen=True)
class StageLosses:
    """The videos that a stage left out.

    Attributes:
        stage: name of the stage.
        entered: number of videos before the stage.
        dropped: number of videos by reason, the most frequent first.
    """

    stage: str
    entered: int
    dropped: Mapping[str, int]

    @property
    def passed(self) -> int:
        """Number of videos after the stage."""
        return self.entered - sum(self.dropped.values())


def count_stage_losses(
    left_out: Iterable[StageFailure], videos: int, stages: Sequence[str]
) -> list[StageLosses]:
    """Return the videos that each stage left out, in the order of the recipe.

    Numbers in reasons, and the videos that others repeat, are replaced by #, so that equal reasons
    count together.

    Args:
        left_out: failures of the videos that are left out.
        videos: number of videos in the dataset.
        stages: names of the stages of the recipe.
    """
    lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for failure in left_out:
        # As the reason reads for every video: without the video's id.
        reason = failure.reason.removeprefix(f"{failure.id}: ")
        lost[failure.stage][VARYING_PATTERN.sub("#", reason)] += 1
    losses = []
    # Each stage sees what the ones before it let through.
    entered = videos + sum(map(Counter.total, lost.values()))
    # The stages in the recipe's order, then those of earlier recipes.
    for stage in dict.fromkeys([SOURCE_STAGE, *stages, *sorted(lost)]):
        loss = StageLosses(stage, entered, sort_counts(lost[stage]))
        losses.append(loss)
        entered = loss.passed
    return losses


LEADING_SHARE = 0.5  # of the videos, from which one language is said to lead
TOP_TASKS = 10  # that are counted together
# Biases of every dataset.
JUDGE_BIAS = (
    "P(shown) comes from models that judge words and pictures; "
    "where they err, the dataset errs with them."
)
SPEECH_BIAS = (
    "Steps are what is said: what is shown in silence has no step, "
    "unless a recipe describes pictures."
)


def describe_biases(counts: DatasetCounts) -> list[str]:
    """Return sentences about the biases of a dataset, such as a prevailing language."""
    sentences = []
    videos = counts.kept_videos
    # What counts give away, each sentence only where there is something to say.
    for language, count in counts.languages.most_common(1):
        if count >= LEADING_SHARE * videos:
            percent = 100 * count / videos
            sentences.append(f"{percent:.0f} % of the videos have one language: {language}.")
    if counts.tasks:
        top = counts.tasks.most_common(TOP_TASKS)
        percent = 100 * sum(count for _, count in top) / counts.tasks.total()
        sentences.append(
            f"The {len(top)} commonest of {len(counts.tasks)} tasks "
            f"have {percent:.0f} % of the videos."
        )
    elif videos:
        sentences.append("No video names its task, so how the tasks are spread is not known.")
    if counts.left_out:
        percent = 100 * (counts.videos - videos) / counts.videos
        reason, count = counts.left_out.most_common(1)[0]
        sentences.append(
            f"{percent:.0f} % of the videos are left out. "
            f"The most common reason (videos: {count:,}) is: {reason}."
        )
    if counts.successive_pairs:
        percent = 100 * counts.reversed_pairs / counts.successive_pairs
        sentences.append(
            f"{percent:.0f} % of neighbouring steps have their spans in another order than they are written."
        )
    unjudged = counts.steps - sum(counts.steps_shown.texts)
    if unjudged:
        sentences.append(
            f"{unjudged:,} of {counts.steps:,} steps have no P(shown): "
            "no calibrated network judged them, and their `step_scores` are no probabilities."
        )
    sentences.append(SPEECH_BIAS)
    if counts.steps_shown.texts or counts.narration_shown.texts:
        sentences.append(JUDGE_BIAS)
    return sentences


def compute_means(counts: DatasetCounts) -> list[tuple[str, str, str]]:
    """Return rows (name, mean in this dataset, mean in HowToStep) of the kept videos as text.

    The means are of steps per video, words per step and similar. "" if NaSVA's appendix states
    none.
    """
    minutes = counts.spoken_seconds / 60
    return [
        ("steps per video", _format_mean(counts.steps, counts.kept_videos), "10.6"),
        ("words per step", _format_mean(counts.step_words, counts.steps), "8.0"),
        (
            "seconds per step, where placed",
            _format_mean(counts.step_seconds, counts.steps_with_span),
            "",
        ),
        ("spoken words per minute", _format_mean(counts.spoken_words, minutes), ""),
        ("seconds per video", _format_mean(3600 * counts.hours, counts.timed_videos), ""),
    ]


def _format_mean(total: float, count: float) -> str:
    return f"{total / count:,.1f}" if count else "none"
