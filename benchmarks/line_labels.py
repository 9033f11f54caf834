"""The line model against the papers' own rules, where each system asks which sentence describes a
step.

    python benchmarks/line_labels.py NARRATION.json.gz --step-probabilities FILE [--folds FILE]
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from fit_line_model import FEATURE_NAMES, FOLDS, LAG_SECONDS, NarrationReader, all_lists, fit
from narration import transcript_of

from stepline.grounding.line_model import LineWeights, load_line_weights
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import place_steps, place_texts
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.text import embed
from stepline.text_base.base import TextBase
from stepline.text_base.build import build_base
from stepline.text_base.settings import TextBaseSettings

RESULT = Path(__file__).resolve().parent / "results/line_labels.json"
OTHER_DOCUMENTS = 19  # of other videos that are tried with a video's own
LIVE_VIDEOS = 3  # every so many-th video is followed sentence by sentence


@dataclass
class NarratedVideo:
    """A video's sentences and lines with what people marked. spans: (K,) of its own lines."""

    name: str
    dish: str
    transcript: Transcript
    tells_step: tuple[bool, ...]
    lines: tuple[str, ...]
    spans: tuple[Span, ...]
    step_probabilities: np.ndarray
    other_lines: tuple[str, ...] = ()  # of another dish
    documents: tuple[str, ...] = ()  # the videos whose lists are tried, its own among them

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """Return what is said."""
        return self.transcript.sentences


class VectorCache:
    """MiniLM vectors of texts, each text embedded once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._rows: dict[str, np.ndarray] = {}
        self(texts)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the rows of the texts, (N, D)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new:
            self._rows |= dict(zip(new, embed(new), strict=True))
        return np.stack([self._rows[text] for text in texts])


def vectors_of(video: NarratedVideo) -> VectorCache:
    """Return the vectors of a video's sentences and lines."""
    sentences = [sentence.text for sentence in video.sentences]
    return VectorCache([*sentences, *video.lines, *video.other_lines])


Folds: TypeAlias = Sequence[tuple[frozenset[str], LineWeights]]


def each_left_out(videos: Sequence[NarratedVideo], folds: Folds) -> Iterator[NarratedVideo]:
    """Yield the videos, each while the line model has the weights that left its dish out."""
    target = "stepline.grounding.line_model.load_line_weights"
    for dishes, weights in folds:
        with patch(target, return_value=weights):
            yield from (video for video in videos if video.dish in dishes)


def read_videos(reader: NarrationReader, chances: dict[str, list[float]]) -> list[NarratedVideo]:
    """Return the videos with steps, each with the lines of another dish."""
    rng = random.Random(0)
    videos = []
    for name, row in reader.videos.items():
        video = NarratedVideo(
            name=name,
            dish=row["title"],
            transcript=transcript_of(row),
            tells_step=tuple(sentence["is_step"] for sentence in row["sentences"]),
            lines=tuple(step["text"] for step in row["steps"]),
            spans=tuple(Span(*step["span"]) for step in row["steps"]),
            step_probabilities=np.array(chances[name]),
        )
        videos.append(video)
    names = [video.name for video in videos]
    for video in videos:
        others = [other for other in videos if other.dish != video.dish]
        video.other_lines = rng.choice(others).lines
        rest = [name for name in names if name != video.name]
        video.documents = tuple(sorted([video.name, *rng.sample(rest, OTHER_DOCUMENTS)]))
    return videos


def is_right(label: Span, span: Span) -> bool:
    """Say whether the middle of a label, a little later, is in the span that people marked."""
    return span.start <= label.center + LAG_SECONDS <= span.end


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
        return {name: round(value, 3) for name, value in values.items()}


COARSE_RULES: dict[str, tuple[CoarseSettings, bool]] = {
    "softmax (paper)": (CoarseSettings(), False),
    "line-model": (CoarseSettings(matching="line-model"), False),
    "line-model, P(it tells a step)": (CoarseSettings(matching="line-model"), True),
}


def measure_coarse(videos: Sequence[NarratedVideo], folds: Folds) -> dict[str, Any]:
    """Return what NaSVA's coarse labels come to by each rule, of own and of mixed lists."""
    rng = random.Random(1)
    counts: dict[str, dict[str, LabelCounts]] = {}
    for video in each_left_out(videos, folds):
        vectors = vectors_of(video)
        own = list(zip(video.lines, video.spans, strict=True))
        mixed: list[tuple[str, Span | None]] = list(own)
        strange = rng.sample(video.other_lines, min(len(video.other_lines), (len(own) + 1) // 2))
        for line in strange:
            mixed.insert(rng.randrange(len(mixed) + 1), (line, None))
        for kind, lines in (("own", own), ("mixed", mixed)):
            for rule, (settings, knows_steps) in COARSE_RULES.items():
                count = counts.setdefault(kind, {}).setdefault(rule, LabelCounts())
                labels = coarse_labels(video, lines, settings, vectors, knows_steps=knows_steps)
                for number, (_, span) in enumerate(lines):
                    count.add(labels.get(str(number)), span)
    return figures_of(counts)


def figures_of(counts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of counts by kind and rule."""
    figures: dict[str, Any] = {}
    for kind, rules in counts.items():
        figures[kind] = {rule: count.figures() for rule, count in rules.items()}
    return figures


def coarse_labels(
    video: NarratedVideo,
    lines: Sequence[tuple[str, Span | None]],
    settings: CoarseSettings,
    vectors: VectorCache,
    *,
    knows_steps: bool,
) -> dict[str, Span | None]:
    """Return the label of each line that has one, by its number."""
    steps = [Step(id=str(number), text=text) for number, (text, _) in enumerate(lines)]
    placed, _ = place_steps(
        steps,
        video.sentences,
        vectors([text for text, _ in lines]),
        vectors([sentence.text for sentence in video.sentences]),
        duration=video.sentences[-1].span.end,
        settings=settings,
        step_probabilities=video.step_probabilities if knows_steps else None,
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
    lines_found: int = 0
    kept: int = 0
    kept_steps: int = 0
    step_sentences: int = 0

    def add(self, video: NarratedVideo, record: Record, lines_of: dict[str, list[int]]) -> None:
        """Count a video. lines_of: the numbers of its own lines by the id of the base's step."""
        found = set()
        kept = set()
        for step in record.steps:
            kept.update(step.sources)
            if step.source_text is None or step.said is None:
                continue
            self.windows += 1
            numbers = lines_of.get(step.source_text, [])
            right = {number for number in numbers if is_right(step.said, video.spans[number])}
            self.right += bool(right)
            found |= right
        self.lines += len(video.lines)
        self.lines_found += len(found)
        self.kept += len(kept)
        self.kept_steps += sum(video.tells_step[number] for number in kept)
        self.step_sentences += sum(video.tells_step)

    def figures(self) -> dict[str, float]:
        """Return the shares that docs/results has."""
        values = {
            "windows": self.windows,
            "windows right": self.right / max(1, self.windows),
            "own lines with a right window": self.lines_found / self.lines,
            "sieve: precision": self.kept_steps / max(1, self.kept),
            "sieve: recall": self.kept_steps / self.step_sentences,
        }
        return {name: round(value, 3) for name, value in values.items()}


def measure_windows(videos: Sequence[NarratedVideo], folds: Folds) -> dict[str, Any]:
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
            tried = np.array([numbers[name] for name in names], dtype=np.int64)
            for rule, settings in SWAP_RULES.items():
                count = counts.setdefault(kind, {}).setdefault(rule, WindowCounts())
                (swapped,) = sieve_and_swap([record], base, settings, paired=[tried], embed=vectors)
                count.add(video, swapped, lines_of)
    return counts


@dataclass
class LiveCounts:
    """Lines of a narration that goes on, added up."""

    lines: int = 0
    believed: int = 0
    right: int = 0
    early: int = 0
    foreign_lines: int = 0
    foreign_believed: int = 0

    def add(self, video: NarratedVideo, vectors: VectorCache, *, knows_steps: bool) -> None:
        """Follow a video sentence by sentence with its own lines, and with another dish's."""
        own = first_places(video, video.lines, vectors, knows_steps=knows_steps)
        for place, span in zip(own, video.spans, strict=True):
            self.lines += 1
            if place is not None:
                self.believed += 1
                self.right += is_right(place, span)
                self.early += place.end + LAG_SECONDS < span.start
        others = first_places(video, video.other_lines, vectors, knows_steps=knows_steps)
        self.foreign_lines += len(others)
        self.foreign_believed += sum(place is not None for place in others)

    def figures(self) -> dict[str, float]:
        """Return the shares that docs/results has."""
        values = {
            "own lines believed": self.believed / self.lines,
            "right, of those believed": self.right / max(1, self.believed),
            "right, of all own lines": self.right / self.lines,
            "believed before they are shown": self.early / self.lines,
            "another dish's lines believed": self.foreign_believed / self.foreign_lines,
        }
        return {name: round(value, 3) for name, value in values.items()}


def first_places(
    video: NarratedVideo, lines: Sequence[str], vectors: VectorCache, *, knows_steps: bool
) -> list[Span | None]:
    """Return where each line was said when it was first believed said, None where it never was."""
    places: list[Span | None] = [None] * len(lines)
    for count in range(1, len(video.sentences) + 1):
        heard = video.sentences[:count]
        probabilities = video.step_probabilities[:count] if knows_steps else None
        placed = place_texts(
            lines,
            Transcript(sentences=heard),
            vectors([sentence.text for sentence in heard]),
            vectors(lines),
            so_far=True,
            step_probabilities=probabilities,
        )
        for number, step in enumerate(placed.steps):
            if places[number] is None:
                places[number] = step.said
    return places


def measure_live(videos: Sequence[NarratedVideo], folds: Folds) -> dict[str, Any]:
    """Return what becomes of lines as narrations go on, with and without P(it describes a step)."""
    counts = {"live": {"without P(it tells a step)": LiveCounts(), "with it": LiveCounts()}}
    for video in each_left_out(videos[::LIVE_VIDEOS], folds):
        vectors = vectors_of(video)
        for rule, knows_steps in (("without P(it tells a step)", False), ("with it", True)):
            counts["live"][rule].add(video, vectors, knows_steps=knows_steps)
    return figures_of(counts)


MEASURES = {"coarse": measure_coarse, "windows": measure_windows, "live": measure_live}


def fold_weights(reader: NarrationReader, path: Path | None) -> Folds:
    """Return dishes, and weights that were fitted without them. path: where they are kept."""
    if path is None:
        dishes = frozenset(video["title"] for video in reader.videos.values())
        return [(dishes, load_line_weights())]
    if not path.is_file():
        lists = reader.lists()
        dishes_in_order = sorted({item.dish for item in lists["own"]})
        random.Random(0).shuffle(dishes_in_order)
        rows = []
        for fold in range(FOLDS):
            held_out = dishes_in_order[fold::FOLDS]
            train = [item for item in all_lists(lists) if item.dish not in held_out]
            rows.append([held_out, asdict(fit(train, [True] * len(FEATURE_NAMES)))])
        path.write_text(json.dumps(rows), encoding="utf-8")
    folds = []
    for held_out, content in json.loads(path.read_text(encoding="utf-8")):
        for name, value in content.items():
            if isinstance(value, list):
                content[name] = tuple(value)
        folds.append((frozenset(held_out), LineWeights(**content)))
    return folds


def made_base(videos: Sequence[NarratedVideo], folder: Path) -> tuple[TextBase, dict[str, int]]:
    """Return a text base of the lists of all videos, and the number of each video's document."""
    source = folder / "lists.json"
    rows = []
    for video in videos:
        rows.append({"id": video.name, "title": video.dish, "steps": list(video.lines)})
    source.write_text(json.dumps(rows), encoding="utf-8")
    base = build_base([source], folder / "base", TextBaseSettings(merge=1.0), licence="none")
    # documents are numbered in reading order
    numbers = {video.name: number for number, video in enumerate(videos)}
    return base, numbers


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("narration", type=Path)
    parser.add_argument("--step-probabilities", type=Path, required=True)
    parser.add_argument("--folds", type=Path)
    parser.add_argument("--only", choices=("coarse", "windows", "live"))
    options = parser.parse_args()
    chances = json.loads(options.step_probabilities.read_text(encoding="utf-8"))
    reader = NarrationReader(options.narration, chances)
    videos = read_videos(reader, chances)
    result: dict[str, Any] = {}
    if RESULT.is_file():
        result = json.loads(RESULT.read_text(encoding="utf-8"))
    folds = fold_weights(reader, options.folds)
    parts = (options.only,) if options.only else ("coarse", "windows", "live")
    for part in parts:
        result[part] = MEASURES[part](videos, folds)
        print(json.dumps(result[part], indent=1), flush=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
