"""What ProcX's tables are made of: narrated videos to pre-train on, and videos with people's captions in two forms.

    narrated   videos of the simulated world whose sentences are the steps, at the seconds of the speech: raw, only
               sieved, or swapped for lines of the world's text base by Sieve & Swap as it is (MiniLM, its defaults,
               but short neighbours merged before: appendix A.2)
    youcook2   videos of two minutes, 5.6 steps that cover half of them, narrated
    tasty      videos of 56 s with 8.9 steps, one after the other

No video is in two of them. All are of the same tasks, and seen by the same encoder.

What a network must beat: steps placed without a look at the video, with captions that are common or near.

    places     uniform   as many equal parts as training videos have steps on average
               prior     as many; each where training videos of so many steps have theirs on average
    captions   common    the commonest sentence of the training data, for every step
               nearest   those of the training video whose mean feature row is the likest, in order
    nearest video        the likest training video's steps with their sentences, stretched to the length

Letters: K steps.

What one training of ProcX's tables is; nothing heavy is imported here.

A trial is named by its content, so that rows share trainings, fine-tunings share their pre-training, and a rerun finds
them done.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from research.simulate import SHORT, TASTY, SimulationSettings, make_world, recipes, stream
from research.simulate import Sample as Simulated
from stepline.errors import ShapeError
from stepline.evaluate.events import Event
from stepline.procx.batch import StepSample, resize_rows
from stepline.procx.dataset import gather_samples
from stepline.procx.settings import DataSettings, VocabularySettings
from stepline.procx.vocabulary import Vocabulary, train_vocabulary
from stepline.records import FeatureSequence, Matrix, Record, Sentence
from stepline.settings import Count, Positive, Settings
from stepline.sieve_swap.settings import MatchSettings
from stepline.sieve_swap.swap import sieve_and_swap
from stepline.storage import from_json, to_json, write_atomic
from stepline.text import embed
from stepline.text_base.build import build_base

Share: TypeAlias = Annotated[float, Field(gt=0.0, le=1.0)]
Words: TypeAlias = Literal["raw", "only-sieve", "swap", "mix"]
Form: TypeAlias = Literal["youcook2", "tasty"]
View: TypeAlias = Literal["surest", "apart", "oracle"]  # how steps are chosen; "oracle" knows where they are
Guess: TypeAlias = Literal["uniform, common", "uniform, nearest", "prior, common", "prior, nearest", "nearest video"]
System: TypeAlias = Literal["procx", "pdvc", "vid2seq"]
Attention: TypeAlias = Literal["key-aware", "vanilla"]

FORMS: tuple[Form, ...] = ("youcook2", "tasty")
TRIAL_VERSION = 1  # of what a trial does; another makes all trials new


class ProcxSize(Settings):
    """How large the experiment is."""

    narrated: Count = 300  # videos to pre-train on
    captioned: Count = 400  # to fine-tune on, of each form; YouCook2: 840
    withheld: Count = 80  # to score on, of each form
    features: Count = 128  # C of a feature row, the simulated encoder's
    rows: Count = 64  # of features a video; the paper's 256
    width: Count = 64  # D; PDVC's 512
    heads: Count = 2  # PDVC's 8
    layers: Count = 2  # encoder and decoder each; the paper's 4
    queries: Count = 20  # PDVC's 100; a video has 6 or 9 steps, and 11 pieces of narration
    pretraining_steps: Count = 200
    finetuning_steps: Count = 600
    batch: Count = 8  # section E.2, fine-tuning
    learning_rate: Positive = 3e-3  # the paper's 1e-4, for a network 100 times as large
    clip: Positive = 1.0  # the paper's 0.1


class ProcxTrial(Settings):
    """One training: pre-trained on narrated videos, fine-tuned on captioned ones, or one of the two alone."""

    seed: int = 0  # of the world, of the network and of the order of videos
    form: Form = "youcook2"  # of the captioned videos that it is fine-tuned on
    system: System = "procx"
    pretraining: Words | None = None  # what the steps of the narrated videos say; None: fresh weights
    narrated_share: Share = 1.0  # of the narrated videos
    captioned_share: Share = 1.0  # of the captioned videos
    zero_shot: bool = False  # not fine-tuned
    speech: bool = False  # what is said is read, in training and in writing
    captioner: Literal["transformer", "lstm"] = "transformer"
    confidence: Literal["varifocal", "focal"] = "varifocal"
    encoder: Attention = "key-aware"
    decoder: Attention = "key-aware"
    contrast: Literal["none", "pair", "multiple"] = "pair"  # in fine-tuning; "multiple" in pre-training unless "none"
    size: ProcxSize = ProcxSize()

    @property
    def key(self) -> str:
        """The name under which its result is kept."""
        return hashlib.sha256(f"{TRIAL_VERSION} {self.model_dump_json()}".encode()).hexdigest()[:20]

    @property
    def start(self) -> "ProcxTrial | None":
        """The pre-training that it goes on from; None where it is one itself, or starts from fresh weights."""
        if self.pretraining is None or self.zero_shot:
            return None
        contrast = "none" if self.contrast == "none" else "multiple"
        return alike(self, form="youcook2", captioned_share=1.0, zero_shot=True, contrast=contrast)


def alike(trial: ProcxTrial, **changes: object) -> ProcxTrial:
    """Return a trial that differs in some fields."""
    fields = {name: getattr(trial, name) for name in type(trial).model_fields}
    return ProcxTrial.model_validate({**fields, **changes})


DIFFICULTY = 0.5  # factor of the noise in the features, so that a few hundred steps suffice
WORLDS: Mapping[Form, SimulationSettings] = {
    "youcook2": SHORT.model_copy(update={"difficulty": DIFFICULTY}),
    "tasty": TASTY.model_copy(update={"difficulty": DIFFICULTY}),
}
FIRST: Mapping[Form, int] = {"youcook2": 100_000, "tasty": 200_000}  # numbers of their first videos
WORDINGS: tuple[Literal["raw", "only-sieve", "swap"], ...] = ("raw", "only-sieve", "swap")
CORPUS_VERSION = 2  # of what is kept of Sieve & Swap's work


@dataclass(frozen=True)
class Captioned:
    """Videos with people's captions: to train on, and withheld; speech: what is said in each, by id."""

    train: tuple[StepSample, ...]
    test: tuple[StepSample, ...]
    speech: Mapping[str, tuple[Sentence, ...]]

    @property
    def reference(self) -> dict[str, list[Event]]:
        """The truth about the withheld videos: id -> (start, end, sentence)."""
        return {one.id: events_of(one) for one in self.test}


@dataclass(frozen=True)
class ProcxCorpus:
    """narrated: by their words; a mix has every video twice. swapping: how right Sieve & Swap was, by the truth."""

    narrated: Mapping[Words, tuple[StepSample, ...]]
    captioned: Mapping[Form, Captioned]
    vocabulary: Vocabulary
    swapping: Mapping[str, float]


def events_of(sample: StepSample) -> list[Event]:
    """Return a sample's steps in the order of time."""
    return [(*sample.spans[step], sample.sentences[step]) for step in sample.order]


@lru_cache(maxsize=3)  # tables go from world to world, row by row
def procx_corpus(seed: int, size: ProcxSize, folder: Path) -> ProcxCorpus:
    """Return the videos of one world; what Sieve & Swap made of them is kept in `folder`."""
    videos = list(stream(seed, WORLDS["youcook2"], count=size.narrated))
    seen = {video.id: video.features() for video in videos}
    records = _reworded(videos, seed, folder)
    narrated: dict[Words, tuple[StepSample, ...]] = {
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
) -> tuple[StepSample, ...]:
    """Return the samples, their features at the length that the networks take, so that they are resized once.

    Rows have norm sqrt(C) instead of 1: at a hundredth of a network's other numbers, biases would drown them.
    """
    found = gather_samples(records, features, DataSettings(target=target, speech=1.0))
    return tuple(replace(one, values=_unit_numbers(resize_rows(one.values, rows))) for one in found)


def _unit_numbers(rows: Matrix) -> Matrix:
    """Return unit rows (T, C) at the length at which their numbers are about 1."""
    scaled: Matrix = rows * np.float32(rows.shape[1] ** 0.5)
    return scaled


def _reworded(videos: Sequence[Simulated], seed: int, folder: Path) -> dict[Words, list[Record]]:
    """Return the videos with their sentences as steps, by wording, from the folder where it has been done."""
    path = folder / f"sieve-swap-{CORPUS_VERSION}-{seed}-{len(videos)}.json"
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


def share(samples: Sequence[StepSample], part: float) -> tuple[StepSample, ...]:
    """Return the first share of the samples, at least one."""
    return tuple(islice(samples, max(1, round(part * len(samples)))))


Places: TypeAlias = Literal["uniform", "prior"]
Texts: TypeAlias = Literal["common", "nearest"]
Shares: TypeAlias = npt.NDArray[np.float64]  # (K, 2) start and end as fractions of a video


def guessed(train: Sequence[StepSample], test: Sequence[StepSample], guess: Guess) -> dict[str, list[Event]]:
    """Return what a baseline says of each test video, by its id."""
    if guess == "nearest video":
        return nearest_videos(train, test)
    places: Places = "uniform" if guess.startswith("uniform") else "prior"
    return placed(train, test, places, "common" if guess.endswith("common") else "nearest")


def placed(
    train: Sequence[StepSample], test: Sequence[StepSample], places: Places, texts: Texts
) -> dict[str, list[Event]]:
    """Return the steps of each test video, by its id. Raises ShapeError without a training video that has a step."""
    count = typical_count(train)
    shares = even(count) if places == "uniform" else usual(train, count)
    common = Counter(text for one in train for text in one.sentences).most_common(1)[0][0]
    found = {}
    for one in test:
        sentences = [common] * count if texts == "common" else spread(nearest(train, one), count)
        found[one.id] = [(*span, text) for span, text in zip((shares * one.duration).tolist(), sentences, strict=True)]
    return found


def nearest_videos(train: Sequence[StepSample], test: Sequence[StepSample]) -> dict[str, list[Event]]:
    """Return for each test video the steps of the likest training video, stretched to its own length."""
    found = {}
    for one in test:
        like = nearest(train, one)
        scale = one.duration / like.duration
        found[one.id] = [(start * scale, end * scale, text) for start, end, text in events_of(like)]
    return found


def typical_count(train: Sequence[StepSample]) -> int:
    """Return how many steps a training video has on average, rounded. Raises ShapeError where none has any."""
    counts = [len(one.spans) for one in train]
    if not sum(counts):
        raise ShapeError("no training video has a step; a baseline needs one at least")
    return max(1, round(float(np.mean(counts))))


def even(count: int) -> Shares:
    """Return a video cut into equal parts."""
    cuts = np.linspace(0.0, 1.0, count + 1)
    return np.stack((cuts[:-1], cuts[1:]), axis=1)


def usual(train: Sequence[StepSample], count: int) -> Shares:
    """Return where the first, second, ... of K steps is on average in training videos with K steps, or nearest to K."""
    apart = [abs(len(one.spans) - count) if one.spans else np.inf for one in train]
    like = [_at_rank(one, count) for one, far in zip(train, apart, strict=True) if far == min(apart)]
    shares: Shares = np.mean(like, axis=0)
    return shares


def _at_rank(sample: StepSample, count: int) -> Shares:
    """Return a sample's steps as fractions in the order of time, read at K evenly spaced ranks."""
    own = np.array(sorted(sample.spans)) / sample.duration
    ranks = np.linspace(0, len(own) - 1, count)
    return np.stack([np.interp(ranks, np.arange(len(own)), column) for column in own.T], axis=1)


def nearest(train: Sequence[StepSample], sample: StepSample) -> StepSample:
    """Return the training video with steps whose mean feature row has the greatest cosine with the sample's."""
    able = [one for one in train if one.spans]
    own = _mean(sample)
    return max(able, key=lambda one: float(_mean(one) @ own))


def spread(sample: StepSample, count: int) -> list[str]:
    """Return K of a video's sentences in the order of time, evenly chosen; some twice where it has fewer."""
    texts = [text for _, _, text in events_of(sample)]
    return [texts[int((place + 0.5) * len(texts) / count)] for place in range(count)]


def _mean(sample: StepSample) -> Matrix:
    row = sample.values.mean(axis=0)
    unit: Matrix = row / max(float(np.linalg.norm(row)), 1e-12)
    return unit
