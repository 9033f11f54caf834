"""What ProcX's tables are made of: narrated videos, and videos with people's captions in two forms.

    narrated   videos of the simulated world whose sentences are the steps, at the seconds of the speech: raw, only
               sieved, or swapped for lines of the world's text base by Sieve & Swap as it is (MiniLM, its defaults,
               but short neighbours merged before: appendix A.2); the swapped also at refined and at true places
    youcook2   videos of two minutes, 5.6 steps that cover half of them, narrated
    tasty      videos of 56 s with 8.9 steps, one after the other

No video is in two of them. All are of the same tasks, and seen by the same encoder.

What a network must beat: steps placed without a look at the video, with captions that are common or
near.

    spans      uniform   as many equal parts as training videos have steps on average
               prior     as many; each where training videos of so many steps have theirs on average
    captions   common    the commonest sentence of the training data, for every step
               nearest   those of the training video whose mean feature row is the likest, in order
    nearest video        the likest training video's steps with their sentences, stretched to the length

Letters: K steps.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lab.procx.places import narration_towers, refined_record, true_record
from lab.procx.rows import Baseline, Form, ProcxSize, Wording
from lab.simulate import (
    SHORT_WORLD,
    TASTY_WORLD,
    SimulatedVideo,
    SimulationSettings,
    make_world,
    recipes,
    stream,
)
from stepline.errors import ShapeError
from stepline.evaluate.events import Event
from stepline.files.atomic_files import write_atomic
from stepline.files.storage import from_json, to_json
from stepline.models.procx.batch import StepSample, resize_rows
from stepline.models.procx.dataset import gather_samples
from stepline.models.procx.settings import DataSettings, VocabularySettings
from stepline.models.procx.vocabulary import Vocabulary, train_vocabulary
from stepline.records import FeatureSequence, Matrix, Record, Sentence
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.sieve_swap.text_base.build import build_base
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
    placed: narrated videos with swapped steps at "refined" or "true" places, made on request.
    swap_quality: how right Sieve & Swap was, by the truth.
    """

    narrated: Mapping[Wording, tuple[StepSample, ...]]
    placed: Callable[[Wording], tuple[StepSample, ...]]
    captioned: Mapping[Form, Captioned]
    vocabulary: Vocabulary
    swap_quality: Mapping[str, float]

    def samples(self, wording: Wording) -> tuple[StepSample, ...]:
        """Return the narrated videos whose steps have this wording and its places."""
        if wording in self.narrated:
            return self.narrated[wording]
        return self.placed(wording)


def events_of(sample: StepSample) -> list[Event]:
    """Return a sample's steps in the order of time."""
    return [(*sample.spans[step], sample.sentences[step]) for step in sample.order]


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

    @cache
    def placed(wording: Wording) -> tuple[StepSample, ...]:
        pairs = zip(videos, records["swap"], strict=True)
        if wording == "true":
            moved = [true_record(video, record) for video, record in pairs]
        else:
            towers = narration_towers(videos, seed)
            moved = [refined_record(video, record, towers) for video, record in pairs]
        return _samples(moved, features, "steps", size.rows)

    # captioned videos, and one vocabulary of all
    captioned = {form: _captioned(seed, form, size) for form in WORLD_SETTINGS}
    vocabulary = _vocabulary(narrated, captioned)
    quality = swap_quality(videos, records["swap"])
    return ProcxCorpus(narrated, placed, captioned, vocabulary, quality)


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
    for sample in gather_samples(records, features, DataSettings(target=target, speech=1.0)):
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


SpanBaseline: TypeAlias = Literal["uniform", "prior"]
CaptionBaseline: TypeAlias = Literal["common", "nearest"]
SpanFractions: TypeAlias = npt.NDArray[np.float64]  # (K, 2) start and end as fractions of a video


def baseline_steps(
    train: Sequence[StepSample], test: Sequence[StepSample], baseline: Baseline
) -> dict[str, list[Event]]:
    """Return what a baseline says of each test video, by its id."""
    if baseline == "nearest video":
        return nearest_video_steps(train, test)
    spans: SpanBaseline = "uniform" if baseline.startswith("uniform") else "prior"
    captions: CaptionBaseline = "common" if baseline.endswith("common") else "nearest"
    return unseen_steps(train, test, spans, captions)


def unseen_steps(
    train: Sequence[StepSample],
    test: Sequence[StepSample],
    spans: SpanBaseline,
    captions: CaptionBaseline,
) -> dict[str, list[Event]]:
    """Return the steps of each test video, by its id.

    Raises ShapeError without a training video that has a step.
    """
    count = typical_count(train)
    fractions = uniform_spans(count) if spans == "uniform" else prior_spans(train, count)
    sentence_counts: Counter[str] = Counter()
    for sample in train:
        sentence_counts.update(sample.sentences)
    common, _ = sentence_counts.most_common(1)[0]

    # spans in seconds of every test video, with a sentence each
    steps = {}
    for sample in test:
        sentences = [common] * count
        if captions == "nearest":
            sentences = evenly_spaced(nearest_video(train, sample), count)
        seconds = (fractions * sample.duration).tolist()
        events = []
        for (start, end), sentence in zip(seconds, sentences, strict=True):
            events.append((start, end, sentence))
        steps[sample.id] = events
    return steps


def nearest_video_steps(
    train: Sequence[StepSample], test: Sequence[StepSample]
) -> dict[str, list[Event]]:
    """Return for each test video the steps of the most similar training video, stretched to fit."""
    steps = {}
    for sample in test:
        similar = nearest_video(train, sample)
        scale = sample.duration / similar.duration
        events = []
        for start, end, text in events_of(similar):
            events.append((start * scale, end * scale, text))
        steps[sample.id] = events
    return steps


def typical_count(train: Sequence[StepSample]) -> int:
    """Return how many steps a training video has on average, rounded.

    Raises ShapeError where no video has a step.
    """
    counts = [len(sample.spans) for sample in train]
    if not sum(counts):
        raise ShapeError("no training video has a step; a baseline needs one at least")
    return max(1, round(float(np.mean(counts))))


def uniform_spans(count: int) -> SpanFractions:
    """Return a video cut into equal parts."""
    cuts = np.linspace(0.0, 1.0, count + 1)
    return np.stack((cuts[:-1], cuts[1:]), axis=1)


def prior_spans(train: Sequence[StepSample], count: int) -> SpanFractions:
    """Return where the first, second, ... of K steps is on average in training videos.

    Only the videos count that have K steps, or nearest to K.
    """
    videos = [sample for sample in train if sample.spans]
    distances = [abs(len(sample.spans) - count) for sample in videos]
    nearest = min(distances)
    ranks = []
    for sample, distance in zip(videos, distances, strict=True):
        if distance == nearest:
            ranks.append(_at_rank(sample, count))
    fractions: SpanFractions = np.mean(ranks, axis=0)
    return fractions


def _at_rank(sample: StepSample, count: int) -> SpanFractions:
    """Return a sample's steps as fractions in the order of time, read at K evenly spaced ranks."""
    fractions = np.array(sorted(sample.spans)) / sample.duration  # (steps, 2)
    steps = np.arange(len(fractions))
    ranks = np.linspace(0, len(fractions) - 1, count)
    columns = [np.interp(ranks, steps, column) for column in fractions.T]
    return np.stack(columns, axis=1)


def nearest_video(train: Sequence[StepSample], sample: StepSample) -> StepSample:
    """Return the training video with steps that is most similar by its mean feature row."""
    candidates = [candidate for candidate in train if candidate.spans]
    own = _mean_feature(sample)
    return max(candidates, key=lambda candidate: float(_mean_feature(candidate) @ own))


def evenly_spaced(sample: StepSample, count: int) -> list[str]:
    """Return K of a video's sentences, evenly chosen in the order of time.

    A video with fewer sentences repeats some.
    """
    texts = [text for _, _, text in events_of(sample)]
    chosen_texts = []
    for step in range(count):
        middle = (step + 0.5) * len(texts) / count
        chosen_texts.append(texts[int(middle)])
    return chosen_texts


def _mean_feature(sample: StepSample) -> Matrix:
    row = sample.values.mean(axis=0)
    unit: Matrix = row / max(float(np.linalg.norm(row)), 1e-12)
    return unit
