"""The line model against the papers' own rules, where each system asks which sentence describes a
step.

    python lab/line_labels.py NARRATION.json.gz --step-probabilities FILE [--folds FILE]
        [--only coarse|windows|live]

NARRATION: YouCook2's narrations with the seconds in which people marked the steps.
coarse: NaSVA's coarse labels of the video's own sentences, and of those with half as many of
another dish between them.
windows: Sieve & Swap with the lists of all videos as the text base. Each video's documents are its
own list, or that and those of 19 other videos.
live: the lines of the own list and of another dish's, sentence by sentence. A line counts as
believed from the first sentence on after which it counts as said. A label is right where its
middle, 2 s later, is in the span of its step.

The option --folds: weights of the line model with dishes left out, fitted once and kept there.
Without it those that are shipped, which saw these videos.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fit_line_model import LAG_SECONDS, NarrationReader
from narrated_videos import (
    Folds,
    NarratedVideo,
    VectorCache,
    each_left_out,
    fold_weights,
    read_videos,
    texts_of,
    vectors_of,
)

from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import place_steps, place_texts
from stepline.records import Record, Span, Step, Transcript, Video
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.sieve_swap.text_base.base import TextBase
from stepline.sieve_swap.text_base.build import build_base
from stepline.sieve_swap.text_base.settings import TextBaseSettings

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
RESULT_PATH = PROJECT_FOLDER / "lab/results/line_labels.json"
LIVE_STRIDE = 3  # one video of as many is followed sentence by sentence
PART_NAMES = ("coarse", "windows", "live")

Figures = dict[str, Any]
SpannedLine = tuple[str, Span | None]  # None for a line of another dish


def is_right(label: Span, span: Span) -> bool:
    """Say whether the middle of a label, a little later, is in the span that people marked."""
    return span.start <= label.center + LAG_SECONDS <= span.end


def rounded(values: dict[str, float]) -> dict[str, float]:
    """Return figures as docs/results has them."""
    return {name: round(value, 3) for name, value in values.items()}


@dataclass
class LabelCounts:
    """Labels of a rule, added up. lines: own lines. foreign_lines: of another dish."""

    lines: int = 0
    labels: int = 0
    right: int = 0
    seconds: float = 0.0
    seconds_inside: float = 0.0
    overlaps: list[float] = field(default_factory=list)
    foreign_lines: int = 0
    foreign_labels: int = 0

    def add(self, label: Span | None, span: Span | None) -> None:
        """Count the label of a line. span: None for a line of another dish."""
        if span is None:
            self.foreign_lines += 1
            self.foreign_labels += label is not None
            return
        self.lines += 1
        if label is None:
            return
        self.labels += 1
        self.right += is_right(label, span)
        self.seconds += label.duration
        self.seconds_inside += label.overlap(span)
        self.overlaps.append(label.iou(span))

    def figures(self) -> dict[str, float]:
        """Return the shares that docs/results has."""
        values = {
            "own lines labelled": self.labels / self.lines,
            "labels right": self.right / self.labels,
            "right, of all own lines": self.right / self.lines,
            "labelled seconds inside": self.seconds_inside / self.seconds,
            "IoU": float(np.mean(self.overlaps)),
            "seconds a label": self.seconds / self.labels,
        }
        if self.foreign_lines:
            values["another dish's lines labelled"] = self.foreign_labels / self.foreign_lines
        return rounded(values)


@dataclass(frozen=True)
class CoarseRule:
    """A way to label: settings, and whether P(a sentence describes a step) is used."""

    settings: CoarseSettings
    uses_steps: bool = False


_LINE_MODEL = CoarseSettings(matching="line-model")
COARSE_RULES = {
    "softmax (paper)": CoarseRule(CoarseSettings()),
    "line-model": CoarseRule(_LINE_MODEL),
    "line-model, P(it tells a step)": CoarseRule(_LINE_MODEL, uses_steps=True),
}


def measure_coarse(videos: Sequence[NarratedVideo], folds: Folds) -> Figures:
    """Return what NaSVA's coarse labels come to by each rule, of own and of mixed lists."""
    rng = random.Random(1)
    counts: dict[str, dict[str, LabelCounts]] = {}
    for video in each_left_out(videos, folds):
        vectors = vectors_of(video)
        own: list[SpannedLine] = list(zip(video.lines, video.spans, strict=True))
        lists = {"own": own, "mixed": mixed_lines(own, video.other_lines, rng)}
        for kind, lines in lists.items():
            for name, rule in COARSE_RULES.items():
                count = counts.setdefault(kind, {}).setdefault(name, LabelCounts())
                labels = coarse_labels(video, lines, rule, vectors)
                for number, (_, span) in enumerate(lines):
                    count.add(labels.get(str(number)), span)
    return figures_of(counts)


def mixed_lines(
    own: Sequence[SpannedLine], others: Sequence[str], rng: random.Random
) -> list[SpannedLine]:
    """Return the own lines with half as many others between them."""
    lines = list(own)
    count = min(len(others), (len(own) + 1) // 2)
    for line in rng.sample(others, count):
        number = rng.randrange(len(lines) + 1)
        lines.insert(number, (line, None))
    return lines


def figures_of(counts: dict[str, dict[str, Any]]) -> Figures:
    """Return the figures of counts by kind and rule."""
    figures: Figures = {}
    for kind, rules in counts.items():
        figures[kind] = {rule: count.figures() for rule, count in rules.items()}
    return figures


def coarse_labels(
    video: NarratedVideo, lines: Sequence[SpannedLine], rule: CoarseRule, vectors: VectorCache
) -> dict[str, Span | None]:
    """Return the label of each line that has one, by its number."""
    texts = [text for text, _ in lines]
    steps = [Step(id=str(number), text=text) for number, text in enumerate(texts)]
    placed, _ = place_steps(
        steps,
        video.sentences,
        vectors(texts),
        vectors(texts_of(video.sentences)),
        duration=video.sentences[-1].span.end,
        settings=rule.settings,
        step_probabilities=video.step_probabilities if rule.uses_steps else None,
    )
    return {step.id: step.said for step in placed}


SWAP_RULES: dict[str, SwapSettings] = {
    "nearest, .75 (paper's rule)": SwapSettings(
        scope="paired",
        sieve="similarity",
        similarity=0.75,
        swap_similarity=0.0,
        merge="before",
        candidates=1,
        check=False,
    ),
    "nearest, .60 (paper's rule for MiniLM)": SwapSettings(
        scope="paired",
        sieve="similarity",
        swap_similarity=0.0,
        merge="before",
        candidates=1,
        check=False,
    ),
    "nearest, the defaults": SwapSettings(scope="paired"),
    "nearest, similarity": SwapSettings(scope="paired", sieve="similarity"),
    "monotone": SwapSettings(method="monotone"),
    "monotone, similarity": SwapSettings(method="monotone", sieve="similarity"),
    "line-model": SwapSettings(method="line-model"),
    "line-model, similarity": SwapSettings(method="line-model", sieve="similarity"),
    "line-model, similarity, swaps all": SwapSettings(
        method="line-model", sieve="similarity", swap_similarity=0.0
    ),
}


@dataclass
class WindowCounts:
    """Windows of swapped steps, and sentences that pass the sieve, added up."""

    windows: int = 0
    right: int = 0
    lines: int = 0
    right_lines: int = 0
    sieved: int = 0
    sieved_steps: int = 0
    step_sentences: int = 0

    def add(self, video: NarratedVideo, record: Record, lines_of: dict[str, list[int]]) -> None:
        """Count a video. lines_of: the numbers of its own lines by the id of the base's step."""
        right_lines: set[int] = set()
        sources: set[int] = set()
        for step in record.steps:
            sources.update(step.sources)
            if step.source_text is None or step.said is None:
                continue
            self.windows += 1
            numbers = lines_of.get(step.source_text, [])
            right = {number for number in numbers if is_right(step.said, video.spans[number])}
            self.right += bool(right)
            right_lines |= right
        self.lines += len(video.lines)
        self.right_lines += len(right_lines)
        self.sieved += len(sources)
        self.sieved_steps += sum(video.tells_step[number] for number in sources)
        self.step_sentences += sum(video.tells_step)

    def figures(self) -> dict[str, float]:
        """Return the shares that docs/results has."""
        values = {
            "windows": self.windows,
            "windows right": self.right / max(1, self.windows),
            "own lines with a right window": self.right_lines / self.lines,
            "sieve: precision": self.sieved_steps / max(1, self.sieved),
            "sieve: recall": self.sieved_steps / self.step_sentences,
        }
        return rounded(values)


def measure_windows(videos: Sequence[NarratedVideo], folds: Folds) -> Figures:
    """Return what Sieve & Swap's windows come to by each rule, with one document and with more."""
    with tempfile.TemporaryDirectory() as folder:
        base, numbers = made_base(videos, Path(folder))
        counts = window_counts(videos, folds, base, numbers)
    return figures_of(counts)


def window_counts(
    videos: Sequence[NarratedVideo], folds: Folds, base: TextBase, numbers: dict[str, int]
) -> dict[str, dict[str, WindowCounts]]:
    """Return the counts of each rule. numbers: of each video's document in the base."""
    counts: dict[str, dict[str, WindowCounts]] = {}
    for video in each_left_out(videos, folds):
        vectors = vectors_of(video)
        rows = base.rows_of(numbers[video.name])
        lines_of: dict[str, list[int]] = {}
        for number, step in enumerate(base.steps(rows)):
            lines_of.setdefault(f"{step.source}: {step.id}", []).append(number)
        record = Record(id=video.name, video=Video(id=video.name), transcript=video.transcript)
        documents = {"own list": (video.name,), "own and 19 others": video.documents}
        for kind, names in documents.items():
            document_numbers = [numbers[name] for name in names]
            pairs = [np.array(document_numbers, dtype=np.int64)]
            for rule, settings in SWAP_RULES.items():
                count = counts.setdefault(kind, {}).setdefault(rule, WindowCounts())
                (swapped,) = sieve_and_swap([record], base, settings, paired=pairs, embed=vectors)
                count.add(video, swapped, lines_of)
    return counts


def made_base(videos: Sequence[NarratedVideo], folder: Path) -> tuple[TextBase, dict[str, int]]:
    """Return a text base of the lists of all videos, and the number of each video's document."""
    source = folder / "lists.json"
    rows = []
    for video in videos:
        row = {"id": video.name, "title": video.dish, "steps": list(video.lines)}
        rows.append(row)
    source.write_text(json.dumps(rows), encoding="utf-8")
    base = build_base([source], folder / "base", TextBaseSettings(merge=1.0), licence="none")
    # documents are numbered in reading order
    numbers = {video.name: number for number, video in enumerate(videos)}
    return base, numbers


@dataclass
class LiveCounts:
    """Lines of a narration that goes on, added up."""

    lines: int = 0
    believed: int = 0
    right: int = 0
    early: int = 0
    foreign_lines: int = 0
    foreign_believed: int = 0

    def add(self, video: NarratedVideo, vectors: VectorCache, *, uses_steps: bool) -> None:
        """Follow a video sentence by sentence with its own lines, and with another dish's."""
        own = first_places(video, video.lines, vectors, uses_steps=uses_steps)
        for words, span in zip(own, video.spans, strict=True):
            self.lines += 1
            if words is not None:
                self.believed += 1
                self.right += is_right(words, span)
                self.early += words.end + LAG_SECONDS < span.start
        others = first_places(video, video.other_lines, vectors, uses_steps=uses_steps)
        self.foreign_lines += len(others)
        self.foreign_believed += sum(words is not None for words in others)

    def figures(self) -> dict[str, float]:
        """Return the shares that docs/results has."""
        values = {
            "own lines believed": self.believed / self.lines,
            "right, of those believed": self.right / max(1, self.believed),
            "right, of all own lines": self.right / self.lines,
            "believed before they are shown": self.early / self.lines,
            "another dish's lines believed": self.foreign_believed / self.foreign_lines,
        }
        return rounded(values)


def first_places(
    video: NarratedVideo, lines: Sequence[str], vectors: VectorCache, *, uses_steps: bool
) -> list[Span | None]:
    """Return where each line was said when it was first believed said, None where it never was."""
    places: list[Span | None] = [None] * len(lines)
    for count in range(1, len(video.sentences) + 1):
        sentences = video.sentences[:count]
        probabilities = video.step_probabilities[:count] if uses_steps else None
        placed = place_texts(
            lines,
            Transcript(sentences=sentences),
            vectors(texts_of(sentences)),
            vectors(lines),
            so_far=True,
            step_probabilities=probabilities,
        )
        for number, step in enumerate(placed.steps):
            if places[number] is None:
                places[number] = step.said
    return places


LIVE_RULES = {"without P(it tells a step)": False, "with it": True}  # name -> whether it is used


def measure_live(videos: Sequence[NarratedVideo], folds: Folds) -> Figures:
    """Return what becomes of lines as narrations go on, with and without P(it describes a step)."""
    counts = {rule: LiveCounts() for rule in LIVE_RULES}
    for video in each_left_out(videos[::LIVE_STRIDE], folds):
        vectors = vectors_of(video)
        for rule, uses_steps in LIVE_RULES.items():
            counts[rule].add(video, vectors, uses_steps=uses_steps)
    return figures_of({"live": counts})


MEASURE_OF_PART = {"coarse": measure_coarse, "windows": measure_windows, "live": measure_live}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("narration", type=Path)
    parser.add_argument("--step-probabilities", type=Path, required=True)
    parser.add_argument("--folds", type=Path)
    parser.add_argument("--only", choices=PART_NAMES)
    options = parser.parse_args()
    probabilities = json.loads(options.step_probabilities.read_text(encoding="utf-8"))
    reader = NarrationReader(options.narration, probabilities)
    videos = read_videos(reader, probabilities)
    result: Figures = {}
    if RESULT_PATH.is_file():
        result = json.loads(RESULT_PATH.read_text(encoding="utf-8"))
    folds = fold_weights(reader, options.folds)
    parts = (options.only,) if options.only else PART_NAMES
    for part in parts:
        result[part] = MEASURE_OF_PART[part](videos, folds)
        print(json.dumps(result[part], indent=1), flush=True)
    text = json.dumps(result, indent=1)
    RESULT_PATH.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
