"""The sections of a report, from what `collect` found. The dataset's card shares the biases.

biases        what a dataset is one-sided about, in sentences that its own counts give
losses        what each stage kept and dropped: of videos, then of what is said and written in the kept ones
estimates     how much of a dataset is right: from calibrated scores, from an audit, and from the two together
means         steps per video, words and seconds per step, rate of speech, length of the videos
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.curate.audit.sample import TextKind
from stepline.curate.audit.verdicts import audit_table, mean_answers
from stepline.curate.report.collect import ReportFindings, without_numbers
from stepline.curate.report.counts import DatasetCounts
from stepline.curate.sampling import NOT_KNOWN, Proportion, audited_mean, proportion
from stepline.review.answers import Answer

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


def biases(counts: DatasetCounts) -> list[str]:
    """Return one sentence a bias. Those that always hold come last."""
    sentences = []
    videos = counts.kept_videos
    # What counts give away, each sentence only where there is something to say.
    for language, count in counts.languages.most_common(1):
        if count >= LEADING_SHARE * videos:
            percent = 100 * count / videos
            sentences.append(f"{percent:.0f} % of the videos have one language: {language}.")
    if counts.tasks:
        tasks = f"The {min(TOP_TASKS, len(counts.tasks))} commonest of {len(counts.tasks)} tasks"
        count = sum(count for _, count in counts.tasks.most_common(TOP_TASKS))
        percent = 100 * count / counts.tasks.total()
        sentences.append(f"{tasks} have {percent:.0f} % of the videos.")
    elif videos:
        sentences.append("No video names its task, so how the tasks are spread is not known.")
    if counts.left_out:
        percent = 100 * (counts.videos - videos) / counts.videos
        reason, count = counts.left_out.most_common(1)[0]
        share = f"{percent:.0f} % of the videos are left out"
        sentences.append(f"{share}. The most common reason ({count:,} videos) is: {reason}.")
    if counts.neighbours:
        percent = 100 * counts.out_of_order / counts.neighbours
        share = f"{percent:.0f} % of neighbouring steps"
        sentences.append(f"{share} are shown in another order than they are written.")
    unjudged = counts.steps - sum(counts.steps_shown.texts)
    if unjudged:
        sentences.append(f"{unjudged:,} of {counts.steps:,} steps have no P(shown).")
    return [*sentences, SPEECH_BIAS, JUDGE_BIAS]


MAX_REASONS = 6  # named at a level; the rest are one


@dataclass(frozen=True)
class FunnelLevel:
    """How many a stage began with, and what it dropped: (reason, count)."""

    name: str
    count: int
    dropped: tuple[tuple[str, int], ...] = ()


def video_levels(findings: ReportFindings) -> list[FunnelLevel]:
    """Return a level for each stage that lost videos, then what is in the dataset."""
    counts = findings.counts
    # What is left before each stage, as the stages took it away.
    remaining = counts.videos
    levels = []
    reasons: dict[str, Counter[str]] = {}
    for row in findings.reasons:
        reasons.setdefault(row.stage, Counter())[row.reason] += row.count
    for stage, lost in reasons.items():
        levels.append(FunnelLevel(f"videos before {stage}", remaining, commonest(lost)))
        remaining -= lost.total()
    return [*levels, FunnelLevel("videos in the dataset", counts.kept_videos)]


def text_levels(counts: DatasetCounts) -> list[FunnelLevel]:
    """Return the levels of sentences, and of steps, in kept videos."""
    # Reasons that differ by numbers alone are one here too.
    dropped: Counter[str] = Counter()
    for reason, count in counts.dropped_steps.items():
        dropped[without_numbers(reason)] += count
    written = counts.steps + dropped.total()
    timeless = Counter({"without a time": counts.steps - counts.placed})
    silent = Counter({"no step rests on it": counts.sentences - counts.cited})
    return [
        FunnelLevel("sentences heard", counts.sentences, commonest(silent)),
        FunnelLevel("sentences with a step", counts.cited),
        FunnelLevel("steps written", written, commonest(dropped)),
        FunnelLevel("steps in the dataset", counts.steps, commonest(timeless)),
        FunnelLevel("steps with a time", counts.placed),
    ]


def commonest(reasons: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Return the reasons with their counts, the commonest first, all after the first few as one."""
    # + drops the reasons that count nothing.
    ordered = sorted((+reasons).items(), key=lambda pair: (-pair[1], pair[0]))
    if len(ordered) > MAX_REASONS:
        others = ordered[MAX_REASONS:]
        count = sum(count for _, count in others)
        ordered[MAX_REASONS:] = [(f"{len(others)} other reasons", count)]
    return tuple(ordered)


@dataclass(frozen=True)
class QualityEstimate:
    """A proportion of one kind of text, by three ways. note: what the scores are."""

    name: str
    question: str
    scored: Proportion
    audited: Proportion
    both: Proportion
    note: str


def quality_estimates(
    findings: ReportFindings, verdicts: Sequence[Answer]
) -> list[QualityEstimate]:
    """Return four proportions: raw narration and steps, alignable and well aligned.

    The judge's P(shown) of a sentence is about its own seconds: it answers "well aligned". The
    aligner's P(shown) of a step is about the whole video: it answers "alignable". The other two are
    known from an audit alone.
    """
    # What people found, and what the models believe of all texts.
    narration, steps = audit_table(findings.sample, verdicts)
    judge, aligner = findings.counts.narration_shown, findings.counts.steps_shown
    by_judge = proportion(judge.sums, judge.texts)
    by_aligner = proportion(aligner.sums, aligner.texts)
    return [
        QualityEstimate(narration.name, "alignable", NOT_KNOWN, narration.alignable, NOT_KNOWN, ""),
        QualityEstimate(
            narration.name,
            "well aligned",
            by_judge,
            narration.well_aligned,
            _corrected(findings, verdicts, "well aligned", "narration", by_judge),
            "the judge's P(shown)",
        ),
        QualityEstimate(
            steps.name,
            "alignable",
            by_aligner,
            steps.alignable,
            _corrected(findings, verdicts, "alignable", "step", by_aligner),
            "the aligner's P(shown)",
        ),
        QualityEstimate(steps.name, "well aligned", NOT_KNOWN, steps.well_aligned, NOT_KNOWN, ""),
    ]


def _corrected(
    findings: ReportFindings,
    verdicts: Sequence[Answer],
    question: str,
    kind: TextKind,
    scored: Proportion,
) -> Proportion:
    # People's verdicts correct the models' scores, on the texts that have both.
    texts = findings.sample.of_kind(kind)
    scores = {text.id: text.score for text in texts if text.score is not None}
    videos = {text.id: text.video for text in texts}
    answers = mean_answers(findings.sample, verdicts, question, kind)
    return audited_mean(scores, answers, videos, scored.value)


def mean_values(counts: DatasetCounts) -> list[tuple[str, str, str]]:
    """Return (name, mean, the paper's mean or "") of a dataset's kept videos (NaSVA, appendix on
    HowToStep)."""
    minutes = counts.spoken_seconds / 60
    return [
        ("steps per video", _mean(counts.steps, counts.kept_videos), "10.6"),
        ("words per step", _mean(counts.step_words, counts.steps), "8.0"),
        ("seconds per step, where placed", _mean(counts.step_seconds, counts.placed), ""),
        ("spoken words per minute", _mean(counts.spoken_words, minutes), ""),
        ("seconds per video", _mean(3600 * counts.hours, counts.timed_videos), ""),
    ]


def _mean(total: float, count: float) -> str:
    return f"{total / count:,.1f}" if count else "none"
