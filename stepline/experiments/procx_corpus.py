"""What ProcX's tables are made of: narrated videos to pre-train on, and videos with people's captions in two forms.

    narrated   videos of the simulated world whose sentences are the steps, at the seconds of the speech: raw, only
               sieved, or swapped for lines of the world's text base by Sieve & Swap as it is (MiniLM, its defaults,
               but short neighbours merged before: appendix A.2)
    youcook2   videos of two minutes, 5.6 steps that cover half of them, narrated
    tasty      videos of 56 s with 8.9 steps, one after the other

No video is in two of them. All are of the same tasks, and seen by the same encoder.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from stepline.evaluate.events import Event
from stepline.experiments.procx_trial import Form, ProcxSize, Words
from stepline.procx.batch import Sample
from stepline.procx.data_settings import DataSettings
from stepline.procx.resize import resize
from stepline.procx.samples import gather_samples
from stepline.procx.text_settings import VocabularySettings
from stepline.procx.tokens import Vocabulary, train_vocabulary
from stepline.records import FeatureSequence, Matrix, Record, Sentence
from stepline.sieve_swap.settings import MatchSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.sieve_swap.text_base.build import build_base
from stepline.store import from_json, to_json, write_atomic
from stepline.text import embed
from stepline.world.simulate import SHORT, TASTY, SimulationSettings, make_world, recipes, stream
from stepline.world.simulate import Sample as Simulated

DIFFICULTY = 0.5  # factor of the noise in the features, so that a few hundred steps suffice
WORLDS: Mapping[Form, SimulationSettings] = {
    "youcook2": SHORT.model_copy(update={"difficulty": DIFFICULTY}),
    "tasty": TASTY.model_copy(update={"difficulty": DIFFICULTY}),
}
FIRST: Mapping[Form, int] = {"youcook2": 100_000, "tasty": 200_000}  # numbers of their first videos
WORDINGS: tuple[Literal["raw", "only-sieve", "swap"], ...] = ("raw", "only-sieve", "swap")
VERSION = 2  # of what is kept of Sieve & Swap's work


@dataclass(frozen=True)
class Captioned:
    """Videos with people's captions: to train on, and withheld; speech: what is said in each, by id."""

    train: tuple[Sample, ...]
    test: tuple[Sample, ...]
    speech: Mapping[str, tuple[Sentence, ...]]

    @property
    def reference(self) -> dict[str, list[Event]]:
        """The truth about the withheld videos: id -> (start, end, sentence)."""
        return {one.id: events_of(one) for one in self.test}


@dataclass(frozen=True)
class ProcxCorpus:
    """narrated: by their words; a mix has every video twice. swapping: how right Sieve & Swap was, by the truth."""

    narrated: Mapping[Words, tuple[Sample, ...]]
    captioned: Mapping[Form, Captioned]
    vocabulary: Vocabulary
    swapping: Mapping[str, float]


def events_of(sample: Sample) -> list[Event]:
    """Return a sample's steps in the order of time."""
    return [(*sample.spans[step], sample.sentences[step]) for step in sample.order]


@lru_cache(maxsize=3)  # tables go from world to world, row by row
def procx_corpus(seed: int, size: ProcxSize, folder: Path) -> ProcxCorpus:
    """Return the videos of one world; what Sieve & Swap made of them is kept in `folder`."""
    videos = list(stream(seed, WORLDS["youcook2"], count=size.narrated))
    seen = {video.id: video.features() for video in videos}
    records = _reworded(videos, seed, folder)
    narrated: dict[Words, tuple[Sample, ...]] = {
        words: _samples(told, seen, "steps", size.rows) for words, told in records.items()
    }  # fmt: skip
    narrated["mix"] = (*narrated["only-sieve"], *narrated["swap"])
    captioned = {form: _captioned(seed, form, size) for form in WORLDS}
    known = [sample for part in narrated.values() for sample in part]
    known += [sample for part in captioned.values() for sample in part.train]
    sentences = sorted({text for sample in known for text in sample.sentences})
    speech = {one.text for part in captioned.values() for said in part.speech.values() for one in said}
    vocabulary = train_vocabulary([*sentences, *sorted(speech)], VocabularySettings(size=2000))
    return ProcxCorpus(narrated, captioned, vocabulary, swapping(videos, records["swap"]))


def _captioned(seed: int, form: Form, size: ProcxSize) -> Captioned:
    count = size.captioned + size.withheld
    videos = list(stream(seed, WORLDS[form], start=FIRST[form], count=count))
    records = [video.record for video in videos]
    samples = _samples(records, {video.id: video.features() for video in videos}, "captions", size.rows)
    speech = {one.id: one.transcript.sentences for one in records if one.transcript}
    return Captioned(samples[: size.captioned], samples[size.captioned :], speech)


def _samples(
    records: Sequence[Record], features: Mapping[str, FeatureSequence], target: Literal["steps", "captions"], rows: int
) -> tuple[Sample, ...]:
    """Return the samples, their features at the length that the networks take, so that they are resized once.

    Rows have norm sqrt(C) instead of 1: at a hundredth of a network's other numbers, biases would drown them.
    """
    found = gather_samples(records, features, DataSettings(target=target, speech=1.0))
    return tuple(replace(one, values=_unit_numbers(resize(one.values, rows))) for one in found)


def _unit_numbers(rows: Matrix) -> Matrix:
    """Return unit rows (T, C) at the length at which their numbers are about 1."""
    scaled: Matrix = rows * np.float32(rows.shape[1] ** 0.5)
    return scaled


def _reworded(videos: Sequence[Simulated], seed: int, folder: Path) -> dict[Words, list[Record]]:
    """Return the videos with their sentences as steps, by wording, from the folder where it has been done."""
    path = folder / f"sieve-swap-{VERSION}-{seed}-{len(videos)}.json"
    if not path.exists():
        records = [video.record for video in videos]
        with tempfile.TemporaryDirectory() as place:
            write_atomic(Path(place, "recipes.json"), json.dumps(recipes(make_world(seed, SHORT))))
            base = build_base([Path(place, "recipes.json")], Path(place, "base"))
            known = Known()
            told = {
                words: sieve_and_swap(records, base, MatchSettings(variant=words, merge="before"), embed=known)
                for words in WORDINGS
            }
        trees = {words: [json.loads(to_json(one)) for one in found] for words, found in told.items()}
        write_atomic(path, json.dumps(trees) + "\n")
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {words: [from_json(json.dumps(tree), str(path)) for tree in kept[words]] for words in WORDINGS}


class Known:
    """MiniLM vectors of sentences, each sentence embedded once however often it is said."""

    def __init__(self) -> None:
        self._vectors: dict[str, Matrix] = {}

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return (len(texts), 384) unit rows."""
        new = sorted({text for text in texts if text not in self._vectors})
        self._vectors |= dict(zip(new, embed(new), strict=True)) if new else {}
        return np.stack([self._vectors[text] for text in texts])


def swapping(videos: Sequence[Simulated], records: Sequence[Record]) -> dict[str, float]:
    """Return shares, by the planted truth: of kept pieces that tell a step and that tell one in view, of swapped ones,
    and of swaps that are the step told; recall: of the sentences that tell a step, those kept."""
    found = [row for video, record in zip(videos, records, strict=True) for row in _judged(video, record)]
    columns = (np.array(column, dtype=np.float64) for column in zip(*found, strict=True))
    tells, shown, swapped, right, sentences = columns
    told = sum(int((video.narration.step >= 0).sum()) for video in videos)
    return {
        "pieces kept": float(len(found)),
        "tell a step": float(tells.mean()),
        "tell a step in view": float(shown.mean()),
        "swapped": float(swapped.mean()),
        "swaps right": float(right.sum() / max(1.0, swapped.sum())),
        "recall of telling sentences": float((tells * sentences).sum() / max(1, told)),
    }


def _judged(video: Simulated, record: Record) -> Iterator[tuple[bool, bool, bool, bool, int]]:
    lines, article = video.narration, dict(zip(video.record.recipe, video.recipe.step.tolist(), strict=True))
    for step in record.steps:
        told = {int(lines.step[source]) for source in step.sources} - {-1}
        shown = any(lines.window[source] >= 0 for source in step.sources)
        swapped = step.source_text is not None
        yield bool(told), shown, swapped, swapped and article.get(step.text) in told, len(step.sources)


def share(samples: Sequence[Sample], part: float) -> tuple[Sample, ...]:
    """Return the first share of the samples, at least one."""
    return tuple(islice(samples, max(1, round(part * len(samples)))))
