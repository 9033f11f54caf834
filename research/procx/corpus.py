"""What ProcX's tables are made of: narrated videos to pre-train on, and videos with people's
captions in two forms.

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
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from research.procx.places import narration_towers, refined_record, true_record
from research.procx.rows import Baseline, Form, ProcxSize, Wording
from research.simulate import (
    SHORT,
    TASTY,
    SimulatedVideo,
    SimulationSettings,
    make_world,
    recipes,
    stream,
)
from stepline.atomic_files import write_atomic
from stepline.errors import ShapeError
from stepline.evaluate.events import Event
from stepline.procx.batch import StepSample, resize_rows
from stepline.procx.dataset import gather_samples
from stepline.procx.settings import DataSettings, VocabularySettings
from stepline.procx.vocabulary import Vocabulary, train_vocabulary
from stepline.records import FeatureSequence, Matrix, Record, Sentence
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.storage import from_json, to_json
from stepline.text import embed
from stepline.text_base.build import build_base

NOISE_FACTOR = 0.5  # factor of the noise in the features, so that a few hundred steps suffice
WORLD_SETTINGS: Mapping[Form, SimulationSettings] = {
    "youcook2": SHORT.model_copy(update={"difficulty": NOISE_FACTOR}),
    "tasty": TASTY.model_copy(update={"difficulty": NOISE_FACTOR}),
}
FIRST_VIDEO: Mapping[Form, int] = {
    "youcook2": 100_000,
    "tasty": 200_000,
}  # numbers of their first videos
MADE_WORDINGS: tuple[Literal["raw", "only-sieve", "swap"], ...] = ("raw", "only-sieve", "swap")
CORPUS_VERSION = 2  # of what is kept of Sieve & Swap's work


@dataclass(frozen=True)
class Captioned:
    """Videos with people's captions: to train on, withheld, and to validate on. speech: what is
    said in each of the first two, by id."""

    train: tuple[StepSample, ...]
    test: tuple[StepSample, ...]
    validation: tuple[StepSample, ...]
    speech: Mapping[str, tuple[Sentence, ...]]

    @property
    def reference(self) -> dict[str, list[Event]]:
        """The truth about the withheld videos: id -> (start, end, sentence)."""
        return {one.id: events_of(one) for one in self.test}


@dataclass(frozen=True)
class ProcxCorpus:
    """narrated: by their words. A mix has every video twice. swap_quality: how right Sieve & Swap
    was, by the truth.

    placed: the narrated videos with swapped steps at "refined" or "true" places, made when they are
    asked for.
    """

    narrated: Mapping[Wording, tuple[StepSample, ...]]
    placed: Callable[[Wording], tuple[StepSample, ...]]
    captioned: Mapping[Form, Captioned]
    vocabulary: Vocabulary
    swap_quality: Mapping[str, float]

    def samples(self, wording: Wording) -> tuple[StepSample, ...]:
        """Return the narrated videos whose steps say, and lie, so."""
        return self.narrated[wording] if wording in self.narrated else self.placed(wording)


def events_of(sample: StepSample) -> list[Event]:
    """Return a sample's steps in the order of time."""
    return [(*sample.spans[step], sample.sentences[step]) for step in sample.order]


@lru_cache(maxsize=3)  # tables go from world to world, row by row
def procx_corpus(seed: int, size: ProcxSize, folder: Path) -> ProcxCorpus:
    """Return the videos of one world. What Sieve & Swap made of them is kept in `folder`."""
    videos = list(stream(seed, WORLD_SETTINGS["youcook2"], count=size.narrated))
    seen = {video.id: video.features() for video in videos}
    records = _by_wording(videos, seed, folder)
    narrated: dict[Wording, tuple[StepSample, ...]] = {
        words: _samples(told, seen, "steps", size.rows) for words, told in records.items()
    }
    narrated["mix"] = (*narrated["only-sieve"], *narrated["swap"])
    captioned = {form: _captioned(seed, form, size) for form in WORLD_SETTINGS}
    known = [sample for part in narrated.values() for sample in part]
    known += [sample for part in captioned.values() for sample in part.train]
    sentences = sorted({text for sample in known for text in sample.sentences})
    speech = {
        one.text for part in captioned.values() for said in part.speech.values() for one in said
    }
    vocabulary = train_vocabulary([*sentences, *sorted(speech)], VocabularySettings(size=2000))

    @cache
    def placed(wording: Wording) -> tuple[StepSample, ...]:
        pairs = zip(videos, records["swap"], strict=True)
        if wording == "true":
            told = [true_record(video, record) for video, record in pairs]
        else:
            towers = narration_towers(videos, seed)
            told = [refined_record(video, record, towers) for video, record in pairs]
        return _samples(told, seen, "steps", size.rows)

    return ProcxCorpus(
        narrated, placed, captioned, vocabulary, swap_quality(videos, records["swap"])
    )


def _captioned(seed: int, form: Form, size: ProcxSize) -> Captioned:
    count = size.captioned + size.withheld
    videos = list(
        stream(seed, WORLD_SETTINGS[form], start=FIRST_VIDEO[form], count=count + size.validated)
    )
    records = [video.record for video in videos]
    samples = _samples(
        records, {video.id: video.features() for video in videos}, "captions", size.rows
    )
    speech = {one.id: one.transcript.sentences for one in records[:count] if one.transcript}
    train, test = samples[: size.captioned], samples[size.captioned : count]
    return Captioned(train, test, samples[count:], speech)


def _samples(
    records: Sequence[Record],
    features: Mapping[str, FeatureSequence],
    target: Literal["steps", "captions"],
    rows: int,
) -> tuple[StepSample, ...]:
    """Return the samples, their features at the length that the networks take, so that they are
    resized once.

    Rows have norm sqrt(C) instead of 1: at a hundredth of a network's other numbers, biases would
    drown them.
    """
    found = gather_samples(records, features, DataSettings(target=target, speech=1.0))
    return tuple(replace(one, values=_unit_numbers(resize_rows(one.values, rows))) for one in found)


def _unit_numbers(rows: Matrix) -> Matrix:
    """Return unit rows (T, C) at the length at which their numbers are about 1."""
    scaled: Matrix = rows * np.float32(rows.shape[1] ** 0.5)
    return scaled


def _by_wording(
    videos: Sequence[SimulatedVideo], seed: int, folder: Path
) -> dict[Wording, list[Record]]:
    """Return the videos with their sentences as steps, by wording, from the folder where it has
    been done."""
    path = folder / f"sieve-swap-{CORPUS_VERSION}-{seed}-{len(videos)}.json"
    if not path.exists():
        records = [video.record for video in videos]
        with tempfile.TemporaryDirectory() as scratch:
            write_atomic(
                Path(scratch, "recipes.json"), json.dumps(recipes(make_world(seed, SHORT)))
            )
            base = build_base([Path(scratch, "recipes.json")], Path(scratch, "base"))
            embedder = CachedEmbedder()
            told = {
                words: sieve_and_swap(
                    records, base, SwapSettings(variant=words, merge="before"), embed=embedder
                )
                for words in MADE_WORDINGS
            }
        trees = {
            words: [json.loads(to_json(one)) for one in found] for words, found in told.items()
        }
        write_atomic(path, json.dumps(trees) + "\n")
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {
        words: [from_json(json.dumps(tree), str(path)) for tree in kept[words]]
        for words in MADE_WORDINGS
    }


class CachedEmbedder:
    """MiniLM vectors of sentences, each sentence embedded once however often it is said."""

    def __init__(self) -> None:
        self._vectors: dict[str, Matrix] = {}

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """Return (len(texts), 384) unit rows."""
        new = sorted({text for text in texts if text not in self._vectors})
        self._vectors |= dict(zip(new, embed(new), strict=True)) if new else {}
        return np.stack([self._vectors[text] for text in texts])


def swap_quality(videos: Sequence[SimulatedVideo], records: Sequence[Record]) -> dict[str, float]:
    """Return how right Sieve & Swap was by the planted truth.

    Fractions: of kept pieces that describe a step, that describe one in view, that are swapped. Of
    swaps: those that are the step described. recall: of the sentences that describe a step, those
    kept.
    """
    found = [
        row
        for video, record in zip(videos, records, strict=True)
        for row in _piece_facts(video, record)
    ]
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


def _piece_facts(
    video: SimulatedVideo, record: Record
) -> Iterator[tuple[bool, bool, bool, bool, int]]:
    lines, article = (
        video.narration,
        dict(zip(video.record.recipe, video.recipe.step.tolist(), strict=True)),
    )
    for step in record.steps:
        told = {int(lines.step[source]) for source in step.sources} - {-1}
        shown = any(lines.window[source] >= 0 for source in step.sources)
        swapped = step.source_text is not None
        yield (
            bool(told),
            shown,
            swapped,
            swapped and article.get(step.text) in told,
            len(step.sources),
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
    return unseen_steps(train, test, spans, "common" if baseline.endswith("common") else "nearest")


def unseen_steps(
    train: Sequence[StepSample],
    test: Sequence[StepSample],
    spans: SpanBaseline,
    captions: CaptionBaseline,
) -> dict[str, list[Event]]:
    """Return the steps of each test video, by its id. Raises ShapeError without a training video
    that has a step."""
    count = typical_count(train)
    fractions = uniform_spans(count) if spans == "uniform" else prior_spans(train, count)
    common = Counter(text for one in train for text in one.sentences).most_common(1)[0][0]
    found = {}
    for one in test:
        sentences = (
            [common] * count
            if captions == "common"
            else evenly_spaced(nearest_video(train, one), count)
        )
        found[one.id] = [
            (*span, text)
            for span, text in zip((fractions * one.duration).tolist(), sentences, strict=True)
        ]
    return found


def nearest_video_steps(
    train: Sequence[StepSample], test: Sequence[StepSample]
) -> dict[str, list[Event]]:
    """Return for each test video the steps of the most similar training video, stretched to its own
    length."""
    found = {}
    for one in test:
        like = nearest_video(train, one)
        scale = one.duration / like.duration
        found[one.id] = [(start * scale, end * scale, text) for start, end, text in events_of(like)]
    return found


def typical_count(train: Sequence[StepSample]) -> int:
    """Return how many steps a training video has on average, rounded. Raises ShapeError where none
    has any."""
    counts = [len(one.spans) for one in train]
    if not sum(counts):
        raise ShapeError("no training video has a step; a baseline needs one at least")
    return max(1, round(float(np.mean(counts))))


def uniform_spans(count: int) -> SpanFractions:
    """Return a video cut into equal parts."""
    cuts = np.linspace(0.0, 1.0, count + 1)
    return np.stack((cuts[:-1], cuts[1:]), axis=1)


def prior_spans(train: Sequence[StepSample], count: int) -> SpanFractions:
    """Return where the first, second, ... of K steps is on average in training videos with K steps,
    or nearest to K."""
    apart = [abs(len(one.spans) - count) if one.spans else np.inf for one in train]
    like = [
        _at_rank(one, count) for one, far in zip(train, apart, strict=True) if far == min(apart)
    ]
    fractions: SpanFractions = np.mean(like, axis=0)
    return fractions


def _at_rank(sample: StepSample, count: int) -> SpanFractions:
    """Return a sample's steps as fractions in the order of time, read at K evenly spaced ranks."""
    own = np.array(sorted(sample.spans)) / sample.duration
    ranks = np.linspace(0, len(own) - 1, count)
    return np.stack([np.interp(ranks, np.arange(len(own)), column) for column in own.T], axis=1)


def nearest_video(train: Sequence[StepSample], sample: StepSample) -> StepSample:
    """Return the training video with steps whose mean feature row has the greatest cosine with the
    sample's."""
    able = [one for one in train if one.spans]
    own = _mean_feature(sample)
    return max(able, key=lambda one: float(_mean_feature(one) @ own))


def evenly_spaced(sample: StepSample, count: int) -> list[str]:
    """Return K of a video's sentences in the order of time, evenly chosen. Some twice where it has
    fewer."""
    texts = [text for _, _, text in events_of(sample)]
    return [texts[int((step + 0.5) * len(texts) / count)] for step in range(count)]


def _mean_feature(sample: StepSample) -> Matrix:
    row = sample.values.mean(axis=0)
    unit: Matrix = row / max(float(np.linalg.norm(row)), 1e-12)
    return unit
