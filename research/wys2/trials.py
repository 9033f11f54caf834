"""Running WYS2's trials: each once, its result kept on disk under the name of its content.

WYS2's tables as trials in the simulated world; nothing heavy is imported here.

The simulated sentence encoder is not InferSent: its cosines are lower, so that c is a quantile unless a row says
"c = 0.5". Every training takes about as many steps, whatever it is trained on.

What WYS2's tables are made of: clips of simulated videos, with key-steps as people label them, and the truth.

Letters: N clips, C width of the features.
"""

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from research.simulate import Sample, SimulationSettings, stream
from research.simulate.scene import DROPPED, NONE, SAID
from research.simulate.settings import EMBEDDER
from stepline.evaluate.ranking import roc_auc
from stepline.records import Matrix, Span
from stepline.settings import Count, Positive, Settings
from stepline.storage import write_atomic
from stepline.training.batches import Mask
from stepline.training.settings import TrainSettings
from stepline.wys2.clips import ClipTextPair, clip_text_pair, narrated_clips, split_videos
from stepline.wys2.dataset import (
    Array,
    fit_softmax_regression,
    map_cosine,
    modality_consensus_labels,
    require_key_steps,
    sentence_similarity_labels,
    standardise_columns,
    task_log_probabilities,
)
from stepline.wys2.detector import Detector
from stepline.wys2.settings import (
    ClipSettings,
    ContrastSettings,
    DetectorSettings,
    LabelSettings,
    PseudoSettings,
    Score,
)
from stepline.wys2.train import ValidationClips, score_pairs, train_detector, train_with_pseudo_labels

log = logging.getLogger(__name__)

Positives: TypeAlias = Literal["labels", "all", "planted"]
Untrained: TypeAlias = Literal["zero-shot", "objects"]

VERSION = 1  # of what a trial does; another makes all trials new


class Wys2Size(Settings):
    """How large the experiment is."""

    labelled: Count = 400  # videos with key-steps; 20 % withheld, the rest split 80:20
    unlabelled: Count = 1500  # videos without
    steps: Count = 300  # of every training, about
    batch: Count = 128  # WYS2, section 4
    learning_rate: Positive = 1e-3  # the paper's 1e-5 is for S3D with released weights


class Wys2Trial(Settings):
    """One detector, or what stands for one."""

    seed: int = 0  # of the world, the split, the network
    kind: Literal["detector", "text"] | Untrained = "detector"  # "text": words alone, a logistic regression
    positives: Positives = "labels"  # by the labels, every clip, or by the planted truth
    labels: LabelSettings = LabelSettings(quantile=0.35)
    resolved: bool = True  # pronouns are resolved before texts are compared
    score: Score = "cosine"
    contrast: ContrastSettings = ContrastSettings()
    overlapping: bool = False  # trained on clips of 16 s
    pseudo: PseudoSettings | None = None
    everything: bool = False  # all unlabelled clips are taken for positive
    size: Wys2Size = Wys2Size()

    @property
    def key(self) -> str:
        """The name under which its result is kept."""
        return hashlib.sha256(f"{VERSION} {self.model_dump_json()}".encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Wys2Row:
    """A row of a table: its words, its trial with seed 0, and the paper's ROC-AUC where it has the row."""

    table: str
    words: str
    trial: Wys2Trial
    published: float | None = None


@dataclass(frozen=True)
class Wys2Claim:
    """An ordering: how much higher `more` must score than `less`, in ROC-AUC; None: told, not asserted."""

    words: str
    more: Wys2Trial
    less: Wys2Trial
    least: float | None


SS = Wys2Trial()
VR = Wys2Trial(labels=LabelSettings(kind="vr"))
MC = Wys2Trial(labels=LabelSettings(kind="mc"))
RAW = {"score": "dot"}
PSEUDO = Wys2Trial(pseudo=PseudoSettings())
BEST = Wys2Trial(pseudo=PseudoSettings(threshold="share"))
EVERYTHING = Wys2Trial(everything=True)
WORDS = Wys2Trial(kind="text")
OBJECTS = Wys2Trial(kind="objects")
ZERO_SHOT = Wys2Trial(kind="zero-shot")


def alike(trial: Wys2Trial, **changes: object) -> Wys2Trial:
    """Return a trial that differs in some fields."""
    return Wys2Trial.model_validate({**{name: getattr(trial, name) for name in type(trial).model_fields}, **changes})


def wys2_rows() -> tuple[Wys2Row, ...]:
    """Return all rows."""
    return (*_labels(), *_baselines(), *_pseudo(), *_options())


def _labels() -> list[Wys2Row]:
    return [
        Wys2Row("labels", "SS, the likest 35 %", SS, 62.7),
        Wys2Row("labels", "SS, c = 0.5", alike(SS, labels=LabelSettings())),
        Wys2Row("labels", "SS, pronouns not resolved", alike(SS, resolved=False)),
        Wys2Row("labels", "VR", VR, 58.8),
        Wys2Row("labels", "MC, the best 35 % of a task's clips", MC, 59.3),
        Wys2Row("labels", "MC, own task first", alike(MC, labels=LabelSettings(kind="mc", ranking="tasks", rank=1.0))),
        Wys2Row("labels", "every clip with narration", alike(SS, positives="all")),
        Wys2Row("labels", "planted truth", alike(SS, positives="planted")),
    ]


def _baselines() -> list[Wys2Row]:
    every = alike(SS, positives="all")
    mil, released = ContrastSettings(objective="mil-nce"), ContrastSettings(objective="mil-nce-released")
    return [
        Wys2Row("baselines", "cosine without training (CLIP on short clips)", ZERO_SHOT),
        Wys2Row("baselines", "words alone", WORDS, 53.5),
        Wys2Row("baselines", "objects alone", OBJECTS, 51.0),
        Wys2Row("baselines", "MIL-NCE, 3 candidates, every clip", alike(every, contrast=mil), 59.6),
        Wys2Row("baselines", "MIL-NCE as released", alike(every, contrast=released)),
        Wys2Row("baselines", "VideoCLIP: clips of 16 s, every clip", alike(every, overlapping=True), 59.0),
        Wys2Row("baselines", "TAN: joint head, SS labels", alike(SS, score="joint")),
    ]


def _pseudo() -> list[Wys2Row]:
    return [
        Wys2Row("pseudo-labels", "none", SS, 62.7),
        Wys2Row("pseudo-labels", "threshold of best F1 on validation clips", PSEUDO, 76.2),
        Wys2Row("pseudo-labels", "the best 10 % of the unlabelled clips", BEST),
        Wys2Row("pseudo-labels", "two rounds, best F1", alike(SS, pseudo=PseudoSettings(rounds=2))),
        Wys2Row("pseudo-labels", "every unlabelled clip taken for shown", EVERYTHING),
        Wys2Row("pseudo-labels", "raw dot product, none", alike(SS, **RAW)),
        Wys2Row("pseudo-labels", "raw dot product, best F1", alike(PSEUDO, **RAW)),
        Wys2Row("pseudo-labels", "raw dot product, the best 10 %", alike(BEST, **RAW)),
    ]


def _options() -> list[Wys2Row]:
    return [
        Wys2Row("options", "raw dot product, SS", alike(SS, **RAW)),
        Wys2Row("options", "raw dot product, VR", alike(VR, **RAW)),
        Wys2Row("options", "raw dot product, MC", alike(MC, **RAW)),
        Wys2Row("options", "the whole batch as rivals", alike(SS, contrast=ContrastSettings(negatives=None))),
        Wys2Row("options", "2 texts and 2 clips as rivals", alike(SS, contrast=ContrastSettings(rivals="both"))),
        Wys2Row("options", "twice the steps", alike(SS, size=Wys2Size(steps=600))),
    ]


def wys2_claims() -> tuple[Wys2Claim, ...]:
    """Return the paper's orderings, and what the world's prototype made safe to assert of them."""
    return (
        Wys2Claim("SS above VR", SS, VR, 0.04),
        Wys2Claim("SS above MC", SS, MC, 0.04),
        Wys2Claim("SS above VR, raw dot product", alike(SS, **RAW), alike(VR, **RAW), 0.0),
        Wys2Claim("SS above MC, raw dot product", alike(SS, **RAW), alike(MC, **RAW), 0.0),
        Wys2Claim("pseudo-labels above none", PSEUDO, SS, 0.015),
        Wys2Claim("pseudo-labels above none, raw dot product", alike(PSEUDO, **RAW), alike(SS, **RAW), 0.0),
        Wys2Claim("pseudo-labels (the best 10 %) above none", BEST, SS, 0.015),  # the prototype's own form
        Wys2Claim("the same, raw dot product", alike(BEST, **RAW), alike(SS, **RAW), 0.0),
        Wys2Claim("pseudo-labels above taking everything", PSEUDO, EVERYTHING, 0.0),
        Wys2Claim("SS above words alone", SS, WORDS, 0.0),
        Wys2Claim("SS above objects alone", SS, OBJECTS, 0.0),
        Wys2Claim("SS above cosine without training", SS, ZERO_SHOT, 0.0),
        Wys2Claim("MC above VR", MC, VR, None),
    )


def grid() -> tuple[Wys2Row, ...]:
    """Return the supplement's grid in its small form: c, negatives, batch and learning rate, scored on validation."""
    rows = []
    for c in (0.4, 0.5, 0.6):
        for negatives in (3, 5, 7, 9):
            for batch in (64, 128):
                for rate in (3e-4, 1e-3):
                    trial = Wys2Trial(
                        labels=LabelSettings(similarity=c),
                        contrast=ContrastSettings(negatives=negatives),
                        size=Wys2Size(batch=batch, learning_rate=rate),
                    )
                    words = f"c {c}, {negatives} negatives, batch {batch}, rate {rate:g}"
                    rows.append(Wys2Row("grid", words, trial))
    return tuple(rows)


RESOLVED = 0.9  # share of the pronouns that resolution names; the simulated writer restores as many
OVERLAPPING = 16.0  # s of VideoCLIP's clips
CANDIDATES = 3  # of MIL-NCE; WYS2, section 4


@dataclass(frozen=True)
class Item:
    """A clip.

    pair: 3 s, three candidate texts; overlapping: the same with 16 s. similarity, unresolved: cosine of narration and
    key-step after and before pronouns are resolved, NaN without a key-step. truth: it shows what is said. object: how
    clearly the object that is named is in view, -1 where none is named.
    """

    pair: ClipTextPair
    overlapping: ClipTextPair
    video: str
    similarity: float
    unresolved: float
    task: int
    truth: bool
    object: float


@dataclass(frozen=True)
class Clips:
    """N clips; what is known of them as arrays (N,)."""

    items: tuple[Item, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def pairs(self) -> list[ClipTextPair]:
        """Clips of 3 s with their candidates."""
        return [item.pair for item in self.items]

    @property
    def videos(self) -> list[str]:
        """The video of each."""
        return [item.video for item in self.items]

    @property
    def truth(self) -> Mask:
        """Whether each shows what is said."""
        return np.array([item.truth for item in self.items], dtype=np.bool_)

    @property
    def tasks(self) -> npt.NDArray[np.int64]:
        """The task of each."""
        return np.array([item.task for item in self.items], dtype=np.int64)

    def cosine(self, *, resolved: bool = True) -> Array:
        """Return the cosine of each narration and its key-step, NaN without one."""
        return np.array([item.similarity if resolved else item.unresolved for item in self.items], dtype=np.float64)

    def where(self, chosen: Mask) -> "Clips":
        """Return the clips for which `chosen` (N,) is true."""
        return Clips(tuple(item for item, kept in zip(self.items, chosen.tolist(), strict=True) if kept))


@dataclass(frozen=True)
class Wys2Corpus:
    """Labelled videos, split as the paper does, and unlabelled ones; `test` has as many shown clips as others."""

    train: Clips
    validation: Clips
    test: Clips
    unlabelled: Clips


@lru_cache(maxsize=1)
def wys2_corpus(seed: int, labelled: int, unlabelled: int) -> Wys2Corpus:
    """Return the clips of that many simulated videos with and without key-steps."""
    videos = stream(seed, SimulationSettings(videos=labelled + unlabelled), count=labelled + unlabelled)
    known = clips_of(islice(videos, labelled))
    parts = [
        known.where(np.array([video in part for video in known.videos])) for part in split_videos(known.videos, seed)
    ]
    return Wys2Corpus(parts[0], parts[1], balanced(parts[2], seed), clips_of(videos))


def balanced(clips: Clips, seed: int) -> Clips:
    """Return all clips that show what is said, and as many others."""
    kept = clips.truth
    others = np.flatnonzero(~kept)
    kept[np.random.default_rng(seed).choice(others, min(int(kept.sum()), len(others)), replace=False)] = True
    return clips.where(kept)


def clips_of(videos: Iterable[Sample]) -> Clips:
    """Return the clips of simulated videos, the truth among them."""
    return Clips(tuple(item for video in videos for item in _items(video)))


def _items(video: Sample) -> Iterator[Item]:
    settings = ClipSettings(candidates=CANDIDATES, resolve=False)  # the words stand for vectors that know more
    features, vectors = video.features(), video.vectors("narration")
    shown = video.shown("narration")
    last = min(shown.shape[1], len(features.values)) - 1
    line = {text: row for row, text in enumerate(video.record.recipe)}
    steps, said, clear = video.embeddings("recipe"), video.embeddings("narration"), resolved(video)
    for clip in narrated_clips(video.record, settings):
        row, middle = clip.sentence, clip.span.center
        second = min(int(middle), last)
        step = None if clip.key_step is None else steps[line[clip.key_step]]
        id, texts = f"{video.id} {clip.span.start:.1f}", vectors[list(clip.candidates)]
        wide = Span(max(0.0, middle - OVERLAPPING / 2), middle + OVERLAPPING / 2)
        yield Item(
            clip_text_pair(id, features, clip.span, texts),
            clip_text_pair(id, features, wide, texts),
            video.id,
            np.nan if step is None else float(clear[row] @ step),
            np.nan if step is None else float(said[row] @ step),
            video.task.number,
            bool(shown[row, second]),
            _object(video, row, features.values[second]),
        )


def resolved(video: Sample) -> Matrix:
    """Return the embeddings of the narration after most dropped objects were named."""
    rng = np.random.default_rng([video.world.seed, video.index, 3])
    lines = video.narration
    named = (lines.said_object == DROPPED) & (rng.random(len(lines)) < RESOLVED)
    clear = replace(lines, said_object=np.where(named, SAID, lines.said_object).astype(np.int8))
    return video.world.encoders[EMBEDDER].lines(clear, video.world.domain, rng)


def _object(video: Sample, row: int, seen: Matrix) -> float:
    """Return how much of the named object a feature row (C,) holds: what a detector that knows all objects says."""
    lines, world = video.narration, video.world
    if lines.object[row] == NONE or lines.said_object[row] != SAID:
        return -1.0
    return float(world.domain.objects[lines.object[row]] @ world.encoder(None).object @ seen)


@dataclass(frozen=True)
class Wys2Outcome:
    """What a trial gave.

    auc: on the test clips' truth; validation: on the validation clips' SS labels; precision: of the positives it was
    trained on, by the truth; positives: how many; cpu_seconds: of its training.
    """

    auc: float
    validation: float
    precision: float
    positives: int
    cpu_seconds: float


def run_trial(trial: Wys2Trial, folder: Path) -> Wys2Outcome:
    """Return what a trial gives, from disk where it has been run."""
    path = folder / f"{trial.key}.json"
    if not path.exists():
        corpus = wys2_corpus(trial.seed, trial.size.labelled, trial.size.unlabelled)
        outcome = _trained(trial, corpus, folder / trial.key)
        tree = {"trial": trial.model_dump(mode="json"), "outcome": asdict(outcome)}
        write_atomic(path, json.dumps(tree, indent=1) + "\n")
        log.info("%s: ROC-AUC %.3f, %.1f CPU s", trial.key, outcome.auc, outcome.cpu_seconds)
    return Wys2Outcome(**json.loads(path.read_text(encoding="utf-8"))["outcome"])


def _trained(trial: Wys2Trial, corpus: Wys2Corpus, place: Path) -> Wys2Outcome:
    began = time.process_time()
    scores: Mapping[str, Matrix | Array]
    precision, positives = math.nan, 0
    if trial.kind == "detector":
        network, precision, positives = train_on(trial, corpus, place)
        scores = {name: score_pairs(network, _plain(clips)) for name, clips in _held(corpus).items()}
    else:
        scores = {name: _baseline(trial, corpus, clips) for name, clips in _held(corpus).items()}
    seconds = time.process_time() - began
    weak = labels_of(corpus.validation, LabelSettings(quantile=0.35))
    return Wys2Outcome(
        roc_auc(corpus.test.truth.astype(np.float64), scores["test"]),
        roc_auc(weak.astype(np.float64), scores["validation"]),
        precision,
        positives,
        seconds,
    )


def _held(corpus: Wys2Corpus) -> dict[str, Clips]:
    return {"test": corpus.test, "validation": corpus.validation}


def labels_of(clips: Clips, settings: LabelSettings, *, resolved: bool = True) -> Mask:
    """Return the labels of clips, inferred from their key-steps."""
    cosine = clips.cosine(resolved=resolved)
    if settings.kind == "ss":
        return sentence_similarity_labels(map_cosine(cosine, settings.mapping), settings)
    if settings.kind == "vr":
        return require_key_steps(np.isfinite(cosine))
    seen, said = (task_log_probabilities(rows, clips.tasks, clips.videos) for rows in (_seen(clips), _said(clips)))
    return modality_consensus_labels(clips.tasks, seen, said, settings)


def train_on(trial: Wys2Trial, corpus: Wys2Corpus, place: Path) -> tuple[Detector, float, int]:
    """Return the network, the precision of what it was trained on, and how many clips that was."""
    chosen = corpus.train.where(_positive(trial, corpus.train))
    pairs = [item.overlapping if trial.overlapping else item.pair for item in chosen.items]
    if trial.contrast.objective == "nce":
        pairs = [_first(pair) for pair in pairs]
    truth = chosen.truth.tolist()
    if trial.everything:
        pairs += _plain(corpus.unlabelled)
        truth += corpus.unlabelled.truth.tolist()

    def train(given: Sequence[ClipTextPair], number: int) -> Detector:
        return _train(given, trial, place / str(number))

    try:
        if trial.pseudo is None:
            return train(pairs, 0), float(np.mean(truth)), len(pairs)
        weak = labels_of(corpus.validation, trial.labels, resolved=trial.resolved)
        held = ValidationClips(_plain(corpus.validation), weak)
        made = train_with_pseudo_labels(
            pairs, _plain(corpus.unlabelled), held, train, trial.pseudo, corpus.unlabelled.truth
        )
        last = made.rounds[-1]
        shown = sum(truth) + (last.precision or 0.0) * last.kept
        return made.detector, shown / last.pairs, last.pairs
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _positive(trial: Wys2Trial, clips: Clips) -> Mask:
    if trial.positives == "planted":
        return clips.truth
    if trial.positives == "all":
        return np.ones(len(clips), dtype=np.bool_)
    return labels_of(clips, trial.labels, resolved=trial.resolved)


def _train(pairs: Sequence[ClipTextPair], trial: Wys2Trial, folder: Path) -> Detector:
    width = pairs[0].text.shape[1]
    detector = DetectorSettings(video_width=pairs[0].video.shape[1], text_width=width, score=trial.score)
    settings = training(trial.size, len(pairs), trial.seed)
    return train_detector(pairs, folder, detector=detector, contrast=trial.contrast, settings=settings)


def training(size: Wys2Size, pairs: int, seed: int) -> TrainSettings:
    """Return a training of about `size.steps` steps, in whole epochs."""
    epochs = max(1, round(size.steps / math.ceil(pairs / size.batch)))
    return TrainSettings(
        epochs=epochs, batch=size.batch, learning_rate=size.learning_rate, weight_decay=1e-4, seed=seed,
        save_every=1_000_000,
    )  # fmt: skip


def _baseline(trial: Wys2Trial, corpus: Wys2Corpus, clips: Clips) -> Matrix | Array:
    """Return the scores of what needs no detector."""
    if trial.kind == "objects":
        return np.array([item.object for item in clips.items])
    texts = _said(clips)
    if trial.kind == "zero-shot":
        video = _seen(clips)
        return np.asarray(np.einsum("nc,nc->n", video, texts) / np.linalg.norm(video, axis=1))
    known = _said(corpus.train)
    both = standardise_columns(np.concatenate([known, texts]))
    labels = labels_of(corpus.train, trial.labels, resolved=trial.resolved)
    weights = fit_softmax_regression(both[: len(known)], labels.astype(np.int64), 2)
    wide = np.column_stack([both[len(known) :], np.ones(len(texts))])
    return np.asarray(wide @ (weights[:, 1] - weights[:, 0]))


def _seen(clips: Clips) -> Matrix:
    """Return (N, C): the mean feature row of each clip."""
    return np.stack([pair.video.mean(axis=0, dtype=np.float32) for pair in clips.pairs])


def _said(clips: Clips) -> Matrix:
    """Return (N, C): the vector of what is said in each clip."""
    return np.stack([pair.text[0] for pair in clips.pairs])


def _plain(clips: Clips) -> list[ClipTextPair]:
    """Return clips of 3 s with their own text alone."""
    return [_first(pair) for pair in clips.pairs]


def _first(pair: ClipTextPair) -> ClipTextPair:
    return replace(pair, text=pair.text[:1])
