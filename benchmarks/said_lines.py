"""Which of a user's own lines a narration speaks of: their own video's, and another's (`--texts`;
grounding/speech.py).

    python benchmarks/said_lines.py [--clips CLIPS]

Fitted on TutorialVQA, whose headings were written by people for transcripts that are its own: the
mean and the standard deviation of a line's best cosine with any sentence, of its own video and of
six others. Tested on real clips (CLIPS, as `real_clips.py` reads them, recognised by Whisper
tiny.en), whose makers and subjects are others: their labelled steps as lines of their own clip, of
every clip of another maker, and both lists as one.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.asr import AsrSettings, transcribe
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import MIN_SAID_PROBABILITY, said_probabilities
from stepline.media import read_sound
from stepline.records import Matrix
from stepline.text import embed

DATA = (
    Path(__file__).resolve().parents[1]
    / ".."
    / "shared"
    / "data"
    / "tutorialvqa"
    / "tutorials.json.gz"
)
RESULT = Path(__file__).resolve().parent / "results" / "said_lines.json"
OTHERS = 6  # other videos whose lines are looked for in one

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Narration:
    """What a video says, (S, D), and lines that are said in it, (K, D). maker: of whom no other
    list is taken."""

    maker: str
    sentences: Matrix
    lines: Matrix

    def best(self, lines: Matrix) -> Matrix:
        """Return each line's greatest cosine with a sentence."""
        return np.asarray((lines @ self.sentences.T).max(axis=1))


def tutorials() -> list[Narration]:
    """Return the tutorials that have headings."""
    found = json.loads(gzip.decompress(DATA.read_bytes()))
    return [
        Narration(
            name, embed(one["transcript"]), embed([part["title"] for part in one["segments"]])
        )
        for name, one in found.items()
        if one["segments"]
    ]


def narrated_clips(folder: Path) -> Iterator[Narration]:
    """Yield the clips in English whose labelled steps are said."""
    for name, label in json.loads((folder / "labels.json").read_text(encoding="utf-8")).items():
        said = [step["text"] for step in label.get("steps", []) if step.get("spoken")]
        transcript = transcribe(read_sound(folder / name), AsrSettings()).transcript
        if said and transcript.sentences and transcript.language in (None, "en"):
            sentences = embed([sentence.text for sentence in transcript.sentences])
            yield Narration(name.partition("_")[0], sentences, embed(said))


def others(videos: list[Narration], count: int | None) -> Iterator[tuple[Narration, Narration]]:
    """Yield pairs of videos by two makers: all, or so many of each."""
    rng = np.random.default_rng(0)
    for video in videos:
        strangers = [one for one in videos if one.maker != video.maker]
        chosen = (
            range(len(strangers))
            if count is None
            else rng.choice(len(strangers), count, replace=False)
        )
        yield from ((video, strangers[index]) for index in chosen)


def by_likeness(best: Matrix) -> Mask:
    """Return which lines count as said by the least cosine alone."""
    return np.asarray(best >= CoarseSettings().likeness)


def by_list(best: Matrix) -> Mask:
    """Return which lines count as said by that and by the chance that the whole list gives."""
    return by_likeness(best) & (said_probabilities(best) >= MIN_SAID_PROBABILITY)


def shares(videos: list[Narration], count: int | None = None) -> dict[str, dict[str, float]]:
    """Return the shares of lines that count as said: of the own video, of another's, and of both in
    one list."""
    found = {}
    for name, rule in (("likeness", by_likeness), ("list", by_list)):
        pairs = [
            (video.best(video.lines), video.best(other.lines))
            for video, other in others(videos, count)
        ]
        both = [(rule(np.concatenate(pair)), len(pair[0])) for pair in pairs]
        parts = {
            "own": [rule(video.best(video.lines)) for video in videos],
            "another's": [rule(strange) for _, strange in pairs],
            "own, in one list with another's": [kept[:own] for kept, own in both],
            "another's, in one list with own": [kept[own:] for kept, own in both],
        }
        found[name] = {
            part: round(float(np.concatenate(kept).mean()), 3) for part, kept in parts.items()
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clips", type=Path)
    clips = parser.parse_args().clips
    videos = tutorials()
    result: dict[str, object] = {
        "tutorials": len(videos),
        "headings": sum(len(one.lines) for one in videos),
    }
    cosines = (
        ("said", [video.best(video.lines) for video in videos]),
        ("unsaid", [video.best(other.lines) for video, other in others(videos, OTHERS)]),
    )
    for name, best in cosines:
        every = np.concatenate(best)
        result[name] = [round(float(every.mean()), 3), round(float(every.std()), 3)]
    result["of tutorials"] = shares(videos, OTHERS)
    if clips is not None:
        result["of clips"] = shares(list(narrated_clips(clips)))
    print(json.dumps(result, indent=1))
    if clips is not None:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
