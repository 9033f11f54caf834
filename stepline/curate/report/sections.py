"""The sections of a report, from what `collect` found; the dataset's card shares the biases.

biases        what a dataset is one-sided about, in sentences that its own counts give
levels        what each stage kept and dropped: of videos, then of what is said and written in the kept ones
estimates     how much of a dataset is right: from calibrated scores, from an audit, and from the two together
histograms    steps a video, words and seconds a step, rate of speech, length of the videos
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.curate.audit.sample import TextKind
from stepline.curate.audit.verdicts import Verdict, audit_table, mean_answers
from stepline.curate.report.collect import (
    FAST,
    HALF,
    LONG,
    PACE,
    DatasetCounts,
    ReportFindings,
    without_numbers,
)
from stepline.curate.sampling import UNKNOWN, Proportion, audited_mean, proportion
from stepline.plots import WaterfallLevel, histogram

LEADING = 0.5  # fraction of the videos from which one language is said to lead
TOP = 10  # tasks that are looked at together
JUDGES = "P(shown) comes from models that judge words and pictures; where they err, the dataset errs with them."
HEARD = "Steps are what is said: what is shown in silence has no step, unless a recipe describes pictures."


def biases(counts: DatasetCounts) -> list[str]:
    """Return one sentence a bias. Those that always hold come last."""
    sentences = []
    for language, count in counts.languages.most_common(1):
        if count >= LEADING * counts.kept:
            sentences.append(
                f"{100 * count / counts.kept:.0f} % of the videos have one language: {language}."
            )
    if known := counts.tasks.total():
        top = sum(count for _, count in counts.tasks.most_common(TOP))
        tasks = f"The {min(TOP, len(counts.tasks))} commonest of {len(counts.tasks)} tasks"
        sentences.append(f"{tasks} have {100 * top / known:.0f} % of the videos.")
    elif counts.kept:
        sentences.append("No video names its task, so how the tasks are spread is not known.")
    if out := counts.videos - counts.kept:
        reason, count = counts.left_out.most_common(1)[0]
        percent = 100 * out / counts.videos
        sentences.append(
            f"{percent:.0f} % of the videos are left out; the commonest reason ({count:,} videos) is: {reason}."
        )
    if counts.neighbours:
        percent = 100 * counts.out_of_order / counts.neighbours
        sentences.append(
            f"{percent:.0f} % of neighbouring steps are shown in another order than they are written."
        )
    if unjudged := counts.steps - sum(counts.steps_shown.texts):
        sentences.append(f"{unjudged:,} of {counts.steps:,} steps have no P(shown).")
    return [*sentences, HEARD, JUDGES]


REASONS = 6  # named at a level; the rest stand together


def video_levels(findings: ReportFindings) -> list[WaterfallLevel]:
    """Return a level for each stage that lost videos, then what is in the dataset."""
    counts = findings.counts
    left = counts.videos
    levels = []
    reasons: dict[str, Counter[str]] = {}
    for row in findings.reasons:
        reasons.setdefault(row.stage, Counter())[row.reason] += row.count
    for stage, lost in reasons.items():
        levels.append(WaterfallLevel(f"videos before {stage}", left, commonest(lost)))
        left -= sum(lost.values())
    return [*levels, WaterfallLevel("videos in the dataset", counts.kept)]


def text_levels(counts: DatasetCounts) -> list[WaterfallLevel]:
    """Return the levels of sentences, and of steps, in kept videos."""
    dropped: Counter[str] = Counter()
    for reason, count in counts.dropped_steps.items():
        dropped[without_numbers(reason)] += count
    written = counts.steps + sum(dropped.values())
    timeless = Counter({"without a time": counts.steps - counts.placed})
    silent = Counter({"no step rests on it": counts.sentences - counts.cited})
    return [
        WaterfallLevel("sentences heard", counts.sentences, commonest(silent)),
        WaterfallLevel("sentences with a step", counts.cited),
        WaterfallLevel("steps written", written, commonest(dropped)),
        WaterfallLevel("steps in the dataset", counts.steps, commonest(timeless)),
        WaterfallLevel("steps with a time", counts.placed),
    ]


def commonest(reasons: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Return the reasons with their counts, the commonest first, all after the first few as one."""
    ordered = sorted(
        ((r, c) for r, c in reasons.items() if c), key=lambda pair: (-pair[1], pair[0])
    )
    rest = sum(count for _, count in ordered[REASONS:])
    named = ordered[:REASONS]
    return (*named, (f"{len(ordered) - REASONS} other reasons", rest)) if rest else tuple(named)


@dataclass(frozen=True)
class QualityEstimate:
    """A proportion of one kind of text, by three ways; note: what the scores are."""

    name: str
    question: str
    scored: Proportion
    audited: Proportion
    both: Proportion
    note: str


def quality_estimates(
    findings: ReportFindings, verdicts: Sequence[Verdict]
) -> list[QualityEstimate]:
    """Return four proportions: raw narration and steps, alignable and well aligned.

    The judge's P(shown) of a sentence is about its own seconds: it answers "well aligned". The
    aligner's P(shown) of a step is about the whole video: it answers "alignable". The other two are
    known from an audit alone.
    """
    narration, steps = audit_table(findings.sample, verdicts)
    by_model = (findings.counts.narration_shown, findings.counts.steps_shown)
    judged, shown = (proportion(scores.sums, scores.texts) for scores in by_model)
    return [
        QualityEstimate(narration.name, "alignable", UNKNOWN, narration.alignable, UNKNOWN, ""),
        QualityEstimate(
            narration.name,
            "well aligned",
            judged,
            narration.well_aligned,
            _corrected(findings, verdicts, "well aligned", "narration", judged),
            "the judge's P(shown)",
        ),
        QualityEstimate(
            steps.name,
            "alignable",
            shown,
            steps.alignable,
            _corrected(findings, verdicts, "alignable", "step", shown),
            "the aligner's P(shown)",
        ),
        QualityEstimate(steps.name, "well aligned", UNKNOWN, steps.well_aligned, UNKNOWN, ""),
    ]


def _corrected(
    findings: ReportFindings,
    verdicts: Sequence[Verdict],
    question: str,
    kind: TextKind,
    scored: Proportion,
) -> Proportion:
    texts = findings.sample.of_kind(kind)
    scores = {text.id: text.score for text in texts if text.score is not None}
    videos = {text.id: text.video for text in texts}
    return audited_mean(
        scores, mean_answers(findings.sample, verdicts, question, kind), videos, scored.value
    )


def histograms(counts: DatasetCounts) -> list[tuple[str, str, str]]:
    """Return (title, SVG, note) of each histogram of a dataset's kept videos.

    note: the mean, and the paper's where it states one (NaSVA, appendix on HowToStep).
    """
    steps = _mean(counts.steps, counts.kept, "steps")
    words = _mean(counts.step_words, counts.steps, "words")
    seconds = _mean(counts.step_seconds, counts.placed, "s")
    pace = histogram(counts.words_a_minute, "words a minute", bar=PACE, last=FAST // PACE)
    return [
        (
            "Steps a video",
            histogram(counts.steps_a_video, "steps", last=LONG),
            f"{steps}; HowToStep has 10.6",
        ),
        (
            "Words a step",
            histogram(counts.words_a_step, "words", last=LONG),
            f"{words}; HowToStep has 8.0",
        ),
        (
            "Seconds a step",
            histogram(counts.seconds_a_step, "seconds", last=LONG),
            f"{seconds}, where placed",
        ),
        ("Rate of speech", pace, ""),
        (
            "Length of the videos",
            histogram(counts.durations, f"seconds, bars of {HALF}", bar=HALF),
            "",
        ),
    ]


def _mean(total: float, count: int, unit: str) -> str:
    return f"mean {total / count:.1f} {unit}" if count else "none"
