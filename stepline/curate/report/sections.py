"""What a dataset is one-sided about, in sentences that its own counts give; the card and the report say the same.

What each stage kept and dropped: of videos, then of what is said and written in the kept ones.

How much of a dataset is right: from calibrated scores, from an audit, and from the two together.

The histograms of a dataset: steps a video, words a step, seconds a step, rate of speech, length of the videos.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepline.curate.audit.sample import Kind
from stepline.curate.audit.verdicts import Verdict, means, rows
from stepline.curate.report.collect import FAST, HALF, LONG, PACE, Counts, Findings, Shares, plain
from stepline.curate.sampling import Share, corrected, share
from stepline.plots import WaterfallLevel, histogram

LEADING = 0.5  # share from which one task or language is said to lead
TOP = 10  # tasks that are looked at together
JUDGES = "P(shown) comes from models that judge words and pictures; where they err, the dataset errs with them."
HEARD = "Steps are what is said: what is shown in silence has no step, unless a recipe describes pictures."


def biases(counts: Counts) -> list[str]:
    """Return one sentence a bias. Those that always hold come last."""
    found = [
        _leading(counts.languages, "language", counts.kept),
        _few_tasks(counts),
        _left_out(counts),
        _order(counts),
        _unjudged(counts),
    ]
    return [sentence for sentence in found if sentence] + [HEARD, JUDGES]


def _leading(values: Counter[str], noun: str, total: int) -> str:
    for value, count in values.most_common(1):
        if count >= LEADING * total:
            return f"{100 * count / total:.0f} % of the videos have one {noun}: {value}."
    return ""


def _few_tasks(counts: Counts) -> str:
    known = sum(counts.tasks.values())
    if not known:
        return "No video names its task, so how the tasks are spread is not known." if counts.kept else ""
    top = sum(count for _, count in counts.tasks.most_common(TOP))
    tasks = f"The {min(TOP, len(counts.tasks))} commonest of {len(counts.tasks)} tasks"
    return f"{tasks} have {100 * top / known:.0f} % of the videos."


def _left_out(counts: Counts) -> str:
    out = counts.videos - counts.kept
    if not out:
        return ""
    reason, count = counts.left_out.most_common(1)[0]
    share = 100 * out / counts.videos
    return f"{share:.0f} % of the videos are left out; the commonest reason ({count:,} videos) is: {reason}."


def _order(counts: Counts) -> str:
    if not counts.neighbours:
        return ""
    share = 100 * counts.out_of_order / counts.neighbours
    return f"{share:.0f} % of neighbouring steps are shown in another order than they are written."


def _unjudged(counts: Counts) -> str:
    unjudged = counts.steps - sum(counts.steps_shown.texts)
    return f"{unjudged:,} of {counts.steps:,} steps have no P(shown)." if unjudged else ""


REASONS = 6  # named at a level; the rest stand together


def video_levels(findings: Findings) -> list[WaterfallLevel]:
    """Return a level for each stage that lost videos, then what is in the dataset."""
    counts = findings.counts
    left = counts.videos
    levels = []
    by_stage: dict[str, Counter[str]] = {}
    for row in findings.reasons:
        by_stage.setdefault(row.stage, Counter())[row.reason] += row.count
    for stage, lost in by_stage.items():
        levels.append(WaterfallLevel(f"videos before {stage}", left, commonest(lost)))
        left -= sum(lost.values())
    return [*levels, WaterfallLevel("videos in the dataset", counts.kept)]


def text_levels(counts: Counts) -> list[WaterfallLevel]:
    """Return the levels of sentences, and of steps, in kept videos."""
    dropped = _plain(counts.dropped_steps)
    written = counts.steps + sum(dropped.values())
    timeless = Counter({"without a time": counts.steps - counts.placed})
    silent = Counter({"no step rests on it": counts.sentences - counts.told})
    return [
        WaterfallLevel("sentences heard", counts.sentences, commonest(silent)),
        WaterfallLevel("sentences with a step", counts.told),
        WaterfallLevel("steps written", written, commonest(dropped)),
        WaterfallLevel("steps in the dataset", counts.steps, commonest(timeless)),
        WaterfallLevel("steps with a time", counts.placed),
    ]


def commonest(reasons: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Return the reasons with their counts, the commonest first, all after the first few as one."""
    ordered = sorted(((r, c) for r, c in reasons.items() if c), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(count for _, count in ordered[REASONS:])
    named = ordered[:REASONS]
    return (*named, (f"{len(ordered) - REASONS} other reasons", rest)) if rest else tuple(named)


def _plain(reasons: Iterable[tuple[str, int]] | Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for reason, count in dict(reasons).items():
        found[plain(reason)] += count
    return found


NONE = share((), ())


@dataclass(frozen=True)
class Estimate:
    """A share of one kind of text, by three ways; note: what the scores are."""

    name: str
    question: str
    scored: Share
    audited: Share
    both: Share
    note: str


def estimates(findings: Findings, verdicts: Sequence[Verdict]) -> list[Estimate]:
    """Return four shares: raw narration and steps, alignable and well aligned.

    The judge's P(shown) of a sentence is about its own seconds: it answers "well aligned". The aligner's P(shown) of a
    step is about the whole video: it answers "alignable". The other two are known from an audit alone.
    """
    narration, steps = rows(findings.sample, verdicts)
    judged = _scored(findings.counts.narration_shown)
    shown = _scored(findings.counts.steps_shown)
    return [
        Estimate(narration.name, "alignable", NONE, narration.alignable, NONE, ""),
        Estimate(narration.name, "well aligned", judged, narration.aligned,
                 _both(findings, verdicts, "well aligned", "narration", judged), "the judge's P(shown)"),
        Estimate(steps.name, "alignable", shown, steps.alignable,
                 _both(findings, verdicts, "alignable", "step", shown), "the aligner's P(shown)"),
        Estimate(steps.name, "well aligned", NONE, steps.aligned, NONE, ""),
    ]  # fmt: skip


def _scored(shares: Shares) -> Share:
    return share(shares.sums, shares.texts)


def _both(findings: Findings, verdicts: Sequence[Verdict], question: str, kind: Kind, scored: Share) -> Share:
    texts = [text for text in findings.sample.asked if text.kind == kind]
    scores = {text.id: text.score for text in texts if text.score is not None}
    owner = {text.id: text.video for text in texts}
    return corrected(scores, means(findings.sample, verdicts, question, kind), owner, scored.value)


@dataclass(frozen=True)
class Figure:
    """One histogram. note: the mean, and the paper's where it states one (NaSVA, appendix on HowToStep)."""

    title: str
    svg: str
    note: str


def figures(counts: Counts) -> list[Figure]:
    """Return the figures of a dataset's kept videos."""
    steps = _mean(counts.steps, counts.kept, "steps")
    words = _mean(counts.step_words, counts.steps, "words")
    seconds = _mean(counts.step_seconds, counts.placed, "s")
    return [
        Figure("Steps a video", _bars(counts.steps_a_video, "steps", last=LONG), f"{steps}; HowToStep has 10.6"),
        Figure("Words a step", _bars(counts.words_a_step, "words", last=LONG), f"{words}; HowToStep has 8.0"),
        Figure("Seconds a step", _bars(counts.seconds_a_step, "seconds", last=LONG), f"{seconds}, where placed"),
        Figure("Rate of speech", _bars(counts.words_a_minute, "words a minute", bar=PACE, last=FAST // PACE), ""),
        Figure("Length of the videos", _bars(counts.durations, f"seconds, bars of {HALF}", bar=HALF), ""),
    ]


def _bars(counts: Mapping[str, int], unit: str, *, bar: float = 1.0, last: int | None = None) -> str:
    return histogram(counts, unit, bar=bar, last=last)


def _mean(total: float, count: int, unit: str) -> str:
    return f"mean {total / count:.1f} {unit}" if count else "none"
