"""The histograms of a dataset: steps a video, words a step, seconds a step, rate of speech, length of the videos."""

from collections.abc import Mapping
from dataclasses import dataclass

from stepline.curate.report.counts import FAST, HALF, LONG, PACE, Counts
from stepline.plots import histogram


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
