"""Which of a user's own lines a narration speaks of: their own video's, and another's (`--texts`,
`live`, grounding/line_model.py).

    python benchmarks/said_lines.py [--clips CLIPS --cache DIR]

TutorialVQA's headings were written by people for transcripts that are its own. Real clips (CLIPS
and DIR as `real_clips.py` has them) have their labelled steps that are said. Nothing of the line
model was fitted on either. Lines of a video are sought in its own narration and in those of other
makers, and half of each in one list. A line is said "at the end" when all is heard, and "as it goes
on" after any sentence. Of own lines that are believed said, "right" are those whose sentences
are in the tutorial's part, or overlap what is spoken in the clip.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import real_clips

from stepline.grounding.speech import place_texts
from stepline.records import Matrix, Sentence, Span, Step, Transcript
from stepline.text import embed
from stepline.writing.extractive.writer import sentence_step_probabilities

DATA_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
DATA_PATH = DATA_FOLDER / "tutorialvqa" / "tutorials.json.gz"
RESULT_PATH = Path(__file__).resolve().parent / "results" / "said_lines.json"
OTHER_COUNT = 3  # other videos whose lines are looked for in one
SECONDS_PER_SENTENCE = 4.0  # of a tutorial, whose sentences have no times
SLACK_SECONDS = 1.0  # either way of what is spoken in a clip


@dataclass(frozen=True)
class NarratedLines:
    """What a video says, (S,), and lines that are said in it, (K,).

    maker: no other list of this maker is taken. places: (K,) where each line is said.
    """

    maker: str
    sentences: tuple[Sentence, ...]
    vectors: Matrix
    step_probabilities: np.ndarray
    lines: tuple[str, ...]
    line_vectors: Matrix
    places: tuple[Span, ...]


def read_narration(
    maker: str, sentences: Sequence[Sentence], lines: Sequence[str], places: Sequence[Span]
) -> NarratedLines:
    """Return a narration with its vectors and P(it describes a step) of its sentences."""
    texts = [sentence.text for sentence in sentences]
    return NarratedLines(
        maker=maker,
        sentences=tuple(sentences),
        vectors=embed(texts),
        step_probabilities=np.array(sentence_step_probabilities(texts)),
        lines=tuple(lines),
        line_vectors=embed(lines),
        places=tuple(places),
    )


def read_tutorials() -> Iterator[NarratedLines]:
    """Yield the tutorials that have headings."""
    tutorials = json.loads(gzip.decompress(DATA_PATH.read_bytes()))
    for name, tutorial in tutorials.items():
        sentences = []
        for number, text in enumerate(tutorial["transcript"]):
            start = SECONDS_PER_SENTENCE * number
            sentences.append(Sentence(text=text, span=Span(start, start + SECONDS_PER_SENTENCE)))
        lines = []
        places = []
        for part in tutorial["segments"]:
            rows = part["sentence_indexes"]
            start = int(rows["start"]) * SECONDS_PER_SENTENCE
            end = (int(rows["end"]) + 1) * SECONDS_PER_SENTENCE
            lines.append(part["title"])
            places.append(Span(start, end))
        if lines:
            yield read_narration(name, sentences, lines, places)


def read_clips(folder: Path, cache: Path) -> Iterator[NarratedLines]:
    """Yield the clips in English whose labelled steps are said."""
    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    names = []
    for name, label in labels.items():
        if any(step.get("spoken") for step in label["steps"]):
            names.append(name)
    for name, record in real_clips.records(folder, names, cache).items():
        transcript = record.transcript or Transcript()
        if transcript.language not in (None, "en") or not transcript.sentences:
            continue
        lines = []
        places = []
        for step in labels[name]["steps"]:
            if not step.get("spoken"):
                continue
            start, end = step["spoken"]
            lines.append(step["text"])
            places.append(Span(max(0.0, start - SLACK_SECONDS), end + SLACK_SECONDS))
        yield read_narration(name.partition("_")[0], transcript.sentences, lines, places)


def placed_lines(
    video: NarratedLines,
    lines: Sequence[str],
    vectors: Matrix,
    *,
    sentences_so_far: int | None = None,
    knows_steps: bool = True,
) -> tuple[Step, ...]:
    """Return lines where the product has them said. sentences_so_far: of a narration that goes
    on."""
    count = len(video.sentences)
    if sentences_so_far is not None:
        count = sentences_so_far
    probabilities = video.step_probabilities[:count] if knows_steps else None
    return place_texts(
        lines,
        Transcript(sentences=video.sentences[:count]),
        video.vectors[:count],
        vectors,
        so_far=sentences_so_far is not None,
        step_probabilities=probabilities,
    ).steps


def first_places(
    video: NarratedLines, lines: Sequence[str], vectors: Matrix, *, knows_steps: bool
) -> list[Span | None]:
    """Return where each line was said when it was first believed said, None where it never was."""
    places: list[Span | None] = [None] * len(lines)
    for count in range(1, len(video.sentences) + 1):
        steps = placed_lines(video, lines, vectors, sentences_so_far=count, knows_steps=knows_steps)
        for number, step in enumerate(steps):
            if places[number] is None:
                places[number] = step.said
    return places


@dataclass
class SaidCounts:
    """Lines added up."""

    own: int = 0
    own_said: int = 0
    own_right: int = 0
    other: int = 0
    other_said: int = 0

    def add_own(self, places: Sequence[Span | None], truths: Sequence[Span]) -> None:
        """Count a video's own lines."""
        for place, truth in zip(places, truths, strict=True):
            self.own += 1
            self.own_said += place is not None
            self.own_right += place is not None and place.overlap(truth) > 0

    def add_other(self, places: Sequence[Span | None]) -> None:
        """Count lines of another video."""
        self.other += len(places)
        self.other_said += sum(place is not None for place in places)

    def figures(self) -> dict[str, float]:
        """Return shares."""
        values = {
            "own lines said": self.own_said / self.own,
            "right, of those": self.own_right / max(1, self.own_said),
            "another's lines said": self.other_said / self.other,
        }
        return {name: round(value, 3) for name, value in values.items()}


def measure(videos: Sequence[NarratedLines]) -> dict[str, dict[str, float]]:
    """Return the shares of lines that count as said, by when and by what is known."""
    rng = np.random.default_rng(0)
    counts: dict[str, SaidCounts] = {}
    for video in videos:
        strangers = [other for other in videos if other.maker != video.maker]
        count = min(OTHER_COUNT, len(strangers))
        others = [strangers[index] for index in rng.choice(len(strangers), count, replace=False)]
        for knows_steps in (False, True):
            suffix = "" if knows_steps else ", without P(it tells a step)"
            whole = counts.setdefault(f"at the end{suffix}", SaidCounts())
            live = counts.setdefault(f"as it goes on{suffix}", SaidCounts())
            whole_places, live_places = both_places(video, video, knows_steps=knows_steps)
            whole.add_own(whole_places, video.places)
            live.add_own(live_places, video.places)
            for other in others:
                whole_places, live_places = both_places(video, other, knows_steps=knows_steps)
                whole.add_other(whole_places)
                live.add_other(live_places)
    return {name: count.figures() for name, count in counts.items()}


def both_places(
    video: NarratedLines, source: NarratedLines, *, knows_steps: bool
) -> tuple[list[Span | None], list[Span | None]]:
    """Return where the lines of `source` are said in a video: at the end, and as it goes on."""
    lines = source.lines
    vectors = source.line_vectors
    steps = placed_lines(video, lines, vectors, knows_steps=knows_steps)
    live_places = first_places(video, lines, vectors, knows_steps=knows_steps)
    return [step.said for step in steps], live_places


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    if (options.clips is None) != (options.cache is None):
        parser.error("give --clips and --cache together")
    result: dict[str, object] = {"tutorials": measure(list(read_tutorials()))}
    if options.clips is not None:
        result["clips"] = measure(list(read_clips(options.clips, options.cache)))
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
