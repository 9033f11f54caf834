"""What ProcX's tables are made of: narrated videos, and videos with people's captions in two forms.

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
from typing import Literal, NamedTuple

import numpy as np

from lab.procx.rows import Form, ProcxSize, Wording
from lab.simulate import (
    SHORT_WORLD,
    TASTY_WORLD,
    SimulatedVideo,
    SimulationSettings,
    make_world,
    recipes,
    stream,
)
from stepline.evaluate.events import Event
from stepline.files.atomic_files import write_atomic
from stepline.models.procx.batch import StepSample, resize_rows
from stepline.models.procx.settings import DataSettings, VocabularySettings
from stepline.models.procx.train import gather_samples
from stepline.models.procx.vocabulary import Vocabulary, train_vocabulary
from stepline.records import FeatureSequence, Matrix, Record, Sentence
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.sieve_swap.text_base.build import build_base
from stepline.storage import from_json, to_json
from stepline.text import embed

NOISE_FACTOR = 0.5  # factor of the noise in the features, so that a few hundred steps suffice
WORLD_SETTINGS: Mapping[Form, SimulationSettings] = {
    "youcook2": SHORT_WORLD.model_copy(update={"difficulty": NOISE_FACTOR}),
    "tasty": TASTY_WORLD.model_copy(update={"difficulty": NOISE_FACTOR}),
}
FIRST_VIDEO: Mapping[Form, int] = {
    "youcook2": 100_000,
    "tasty": 200_000,
}  # numbers of their first videos
MADE_WORDINGS: tuple[Literal["raw", "only-sieve", "swap"], ...] = ("raw", "only-sieve", "swap")
VOCABULARY_TOKENS = 2000
CORPUS_VERSION = 2  # of what is kept of Sieve & Swap's work


@dataclass(frozen=True)
class Captioned:
    """Videos with people's captions: to train on, withheld, and to validate on.

    speech: the sentences of the first two parts, by the video's id.
    """

    train: tuple[StepSample, ...]
    test: tuple[StepSample, ...]
    validation: tuple[StepSample, ...]
    speech: Mapping[str, tuple[Sentence, ...]]

    @property
    def reference(self) -> dict[str, list[Event]]:
        """The truth about the withheld videos: id -> (start, end, sentence)."""
        return {sample.id: events_of(sample) for sample in self.test}


@dataclass(frozen=True)
class ProcxCorpus:
    """The videos of one world.

    narrated: by their wording. A mix has every video twice.
    swap_quality: how right Sieve & Swap was, by the truth.
    """

    narrated: Mapping[Wording, tuple[StepSample, ...]]
    captioned: Mapping[Form, Captioned]
    vocabulary: Vocabulary
    swap_quality: Mapping[str, float]


def events_of(sample: StepSample) -> list[Event]:
    """Return a sample's steps in the order of time."""
    steps = zip(sample.spans, sample.sentences, strict=True)
    return sorted((*span, sentence) for span, sentence in steps)


# Tables go from world to world, row by row.
@lru_cache(maxsize=3)
def procx_corpus(seed: int, size: ProcxSize, folder: Path) -> ProcxCorpus:
    """Return the videos of one world. What Sieve & Swap made of them is kept in `folder`."""
    videos = list(stream(seed, WORLD_SETTINGS["youcook2"], count=size.narrated))
    features = {video.id: video.features() for video in videos}

    # narrated videos, whose steps are sentences
    records = _by_wording(videos, seed, folder)
    narrated: dict[Wording, tuple[StepSample, ...]] = {}
    for wording, own_records in records.items():
        narrated[wording] = _samples(own_records, features, "steps", size.rows)
    narrated["mix"] = (*narrated["only-sieve"], *narrated["swap"])

    # captioned videos, and one vocabulary of all
    captioned = {form: _captioned(seed, form, size) for form in WORLD_SETTINGS}
    vocabulary = _vocabulary(narrated, captioned)
    quality = swap_quality(videos, records["swap"])
    return ProcxCorpus(narrated, captioned, vocabulary, quality)


def _vocabulary(
    narrated: Mapping[Wording, Sequence[StepSample]], captioned: Mapping[Form, Captioned]
) -> Vocabulary:
    """Return the vocabulary of all sentences to train on and of all captioned videos' speech."""
    training = [*narrated.values(), *(part.train for part in captioned.values())]
    sentences: set[str] = set()
    for samples in training:
        for sample in samples:
            sentences.update(sample.sentences)
    speech: set[str] = set()
    for part in captioned.values():
        for narration in part.speech.values():
            speech.update(sentence.text for sentence in narration)
    texts = [*sorted(sentences), *sorted(speech)]
    return train_vocabulary(texts, VocabularySettings(size=VOCABULARY_TOKENS))


def _captioned(seed: int, form: Form, size: ProcxSize) -> Captioned:
    count = size.captioned + size.withheld
    videos = list(
        stream(seed, WORLD_SETTINGS[form], start=FIRST_VIDEO[form], count=count + size.validated)
    )
    records = [video.record for video in videos]
    features = {video.id: video.features() for video in videos}
    samples = _samples(records, features, "captions", size.rows)
    speech = {}
    for record in records[:count]:
        if record.transcript:
            speech[record.id] = record.transcript.sentences
    train = samples[: size.captioned]
    test = samples[size.captioned : count]
    return Captioned(train, test, samples[count:], speech)


def _samples(
    records: Sequence[Record],
    features: Mapping[str, FeatureSequence],
    target: Literal["steps", "captions"],
    rows: int,
) -> tuple[StepSample, ...]:
    """Return the samples, their features resized once to the length that the networks take.

    Rows have norm sqrt(C) instead of 1. With norm 1 their numbers are a hundredth of a network's
    other numbers, and biases would drown them.
    """
    samples = []
    for sample in gather_samples(records, features, DataSettings(target=target)):
        values = _unit_numbers(resize_rows(sample.values, rows))
        samples.append(replace(sample, values=values))
    return tuple(samples)


def _unit_numbers(rows: Matrix) -> Matrix:
    """Return unit rows (T, C) at the length at which their numbers are about 1."""
    scaled: Matrix = rows * np.float32(rows.shape[1] ** 0.5)
    return scaled


def _by_wording(
    videos: Sequence[SimulatedVideo], seed: int, folder: Path
) -> dict[Wording, list[Record]]:
    """Return the videos with their sentences as steps, by wording.

    They are read from the folder where Sieve & Swap has already run.
    """
    path = folder / f"sieve-swap-{CORPUS_VERSION}-{seed}-{len(videos)}.json"
    if not path.exists():
        _write_wordings(path, videos, seed)
    trees = json.loads(path.read_text(encoding="utf-8"))
    records: dict[Wording, list[Record]] = {}
    for wording in MADE_WORDINGS:
        records[wording] = [from_json(json.dumps(tree), str(path)) for tree in trees[wording]]
    return records


def _write_wordings(path: Path, videos: Sequence[SimulatedVideo], seed: int) -> None:
    """Run Sieve & Swap in every wording on the world's own text base, and write its records."""
    records = [video.record for video in videos]
    trees = {}
    with tempfile.TemporaryDirectory() as scratch:
        recipe_path = Path(scratch, "recipes.json")
        write_atomic(recipe_path, json.dumps(recipes(make_world(seed, SHORT_WORLD))))
        base = build_base([recipe_path], Path(scratch, "base"))
        embedder = CachedEmbedder()
        for wording in MADE_WORDINGS:
            settings = SwapSettings(variant=wording, merge="before")
            swapped = sieve_and_swap(records, base, settings, embed=embedder)
            trees[wording] = [json.loads(to_json(record)) for record in swapped]
    write_atomic(path, json.dumps(trees) + "\n")


class PieceFacts(NamedTuple):
    """What is true of one piece that Sieve & Swap kept."""

    describes: bool  # a step
    in_view: bool  # it describes a step that is shown
    is_swapped: bool
    is_right: bool  # it is swapped for the step that it describes
    sentences: int


class CachedEmbedder:
    """MiniLM vectors of sentences, each sentence embedded once however often it is said."""

    def __init__(self) -> None:
        self._vectors: dict[str, Matrix] = {}

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return (len(texts), 384) unit rows."""
        new = sorted(set(texts) - self._vectors.keys())
        if new:
            self._vectors.update(zip(new, embed(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])


def swap_quality(videos: Sequence[SimulatedVideo], records: Sequence[Record]) -> dict[str, float]:
    """Return how right Sieve & Swap was by the planted truth.

    Fractions: of kept pieces that describe a step, that describe one in view, that are swapped. Of
    swaps: those that are the step described. recall: of the sentences that describe a step, those
    kept.
    """
    pieces: list[PieceFacts] = []
    for video, record in zip(videos, records, strict=True):
        pieces += _piece_facts(video, record)
    columns = (np.array(column, dtype=np.float64) for column in zip(*pieces, strict=True))
    describes, in_view, swapped, is_right, sentences = columns
    describing = sum(int((video.narration.step >= 0).sum()) for video in videos)
    kept_sentences = (describes * sentences).sum()
    return {
        "pieces kept": float(len(pieces)),
        "tell a step": float(describes.mean()),
        "tell a step in view": float(in_view.mean()),
        "swapped": float(swapped.mean()),
        "swaps right": float(is_right.sum() / max(1.0, swapped.sum())),
        "recall of telling sentences": float(kept_sentences / max(1, describing)),
    }


def _piece_facts(video: SimulatedVideo, record: Record) -> Iterator[PieceFacts]:
    lines = video.narration
    step_of_text = dict(zip(video.record.recipe, video.recipe.step.tolist(), strict=True))
    for step in record.steps:
        described = {int(lines.step[source]) for source in step.sources} - {-1}
        is_swapped = step.source_text is not None
        yield PieceFacts(
            describes=bool(described),
            in_view=any(lines.window[source] >= 0 for source in step.sources),
            is_swapped=is_swapped,
            is_right=is_swapped and step_of_text.get(step.text) in described,
            sentences=len(step.sources),
        )


def first_fraction(samples: Sequence[StepSample], fraction: float) -> tuple[StepSample, ...]:
    """Return the first fraction of the samples, at least one."""
    return tuple(islice(samples, max(1, round(fraction * len(samples)))))
