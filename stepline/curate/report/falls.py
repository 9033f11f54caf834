"""What each stage kept and dropped: of videos, then of what is said and written in the kept ones."""

from collections import Counter
from collections.abc import Iterable

from stepline.curate.report.counts import Counts
from stepline.curate.report.findings import Findings, plain
from stepline.plots import Level

REASONS = 6  # named at a level; the rest stand together


def video_levels(findings: Findings) -> list[Level]:
    """Return a level for each stage that lost videos, then what is in the dataset."""
    counts = findings.counts
    left = counts.videos
    levels = []
    by_stage: dict[str, Counter[str]] = {}
    for row in findings.reasons:
        by_stage.setdefault(row.stage, Counter())[row.reason] += row.count
    for stage, lost in by_stage.items():
        levels.append(Level(f"videos before {stage}", left, commonest(lost)))
        left -= sum(lost.values())
    return [*levels, Level("videos in the dataset", counts.kept)]


def text_levels(counts: Counts) -> list[Level]:
    """Return the levels of sentences, and of steps, in kept videos."""
    dropped = _plain(counts.dropped_steps)
    written = counts.steps + sum(dropped.values())
    timeless = Counter({"without a time": counts.steps - counts.placed})
    silent = Counter({"no step rests on it": counts.sentences - counts.told})
    return [
        Level("sentences heard", counts.sentences, commonest(silent)),
        Level("sentences with a step", counts.told),
        Level("steps written", written, commonest(dropped)),
        Level("steps in the dataset", counts.steps, commonest(timeless)),
        Level("steps with a time", counts.placed),
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
