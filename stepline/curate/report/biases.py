"""What a dataset is one-sided about, in sentences that its own counts give; the card and the report say the same."""

from collections import Counter

from stepline.curate.report.counts import Counts

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
