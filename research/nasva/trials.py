"""Running trials: each trained once, scored, and kept on disk under the name of its content.

From the lessons of a corpus and labels to training samples, as a trial's plan says.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from research.nasva.corpus import PAPER_SIZE, Corpus, LabelPlan, Lesson, Size, Trial, simulated
from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import coarse_spans
from stepline.nasva.checkpoint import read_aligner, write_aligner
from stepline.nasva.model import Aligner
from stepline.nasva.network_settings import LossSettings, ModelSettings, RefineSettings
from stepline.nasva.pseudo_labels import (
    Places,
    Written,
    alignable_logits,
    alignment_matrices,
    alikeness,
    best_scores,
    inside_share,
    kept_share,
    refine,
    step_samples,
    unplaced,
    written,
)
from stepline.nasva.train import train_aligner
from stepline.records import Matrix, Span
from stepline.storage import write_atomic
from stepline.training.batches import LazySamples, Mask, Sample
from stepline.training.settings import TrainSettings

log = logging.getLogger(__name__)

VIDEO_LABELS = RefineSettings(threshold=0.0, position="center", seconds=None)  # grown around the likest second


def first_labels(lessons: Sequence[Lesson], plan: LabelPlan) -> tuple[Places, ...]:
    """Return the labels of the written steps before any network is trained.

    Raises DatasetError when the planted truth is asked for where there is none.
    """
    if plan.first == "video":
        likeness = [alikeness(lesson.features.values, lesson.step_vectors) for lesson in lessons]
        return refine([likeness], [lesson.features.rate for lesson in lessons], VIDEO_LABELS)
    if plan.first == "planted":
        return tuple(planted(lesson, lesson.truth) for lesson in lessons)
    return tuple(_said(lesson, CoarseSettings(floor=plan.floor)) for lesson in lessons)


def planted(lesson: Lesson, truth: Mask | None) -> Places:
    """Return the first window in which each text is really shown."""
    if truth is None:
        raise DatasetError(f"{lesson.id}: no planted truth; only simulated videos have it")
    return tuple(_first_window(row, lesson.features.rate) for row in truth)


def lessons_written(lessons: Sequence[Lesson]) -> list[Written]:
    """Return the lessons' written steps, none of them placed."""
    return [written(one.id, one.features, one.step_vectors, (None,) * len(one.steps)) for one in lessons]


def narration_samples(lessons: Sequence[Lesson], *, really: bool) -> LazySamples:
    """Return the sentences as samples, each labelled where it is spoken, or where it is really shown."""
    places = [
        planted(one, one.sentence_truth) if really else tuple(each.span for each in one.sentences) for one in lessons
    ]
    said = [written(one.id, one.features, one.sentence_vectors, (None,) * len(one.sentences)) for one in lessons]
    return step_samples(said, places)


def _said(lesson: Lesson, settings: CoarseSettings) -> Places:
    """Return where each step is said, by its likeness to the narration (Step-ASR)."""
    duration = len(lesson.features.values) / lesson.features.rate
    kept, _ = coarse_spans(lesson.steps, lesson.sentences, lesson.likeness, duration=duration, settings=settings)
    said = {step.id: step.said for step in kept}
    return tuple(said.get(step.id) for step in lesson.steps)


def _first_window(row: Mask, rate: float) -> Span | None:
    shown = np.flatnonzero(row)
    if not len(shown):
        return None
    gaps = np.flatnonzero(np.diff(shown) > 1)
    last = shown[gaps[0]] if len(gaps) else shown[-1]
    return Span(float(shown[0] / rate), float((last + 1) / rate))


SECOND_SEED = 1000  # of a teacher beside the first


@dataclass(frozen=True)
class Outcome:
    """What a trial gave: scores by name, in per cent; CPU seconds of its own training, without its teachers'."""

    scores: Mapping[str, float]
    cpu_seconds: float


@dataclass(frozen=True)
class Laboratory:
    """Where trials are run and kept."""

    folder: Path
    corpus: Callable[[Trial], Corpus] = lambda trial: simulated(
        trial.seed, trial.backbone, trial.recogniser, trial.size
    )

    def outcome(self, trial: Trial) -> Outcome:
        """Return what a trial gives, from disk where it has been run. Raises ShapeError where it cannot be trained."""
        path = self.folder / trial.key / "outcome.json"
        if not path.exists():
            self._run(trial)
        tree = json.loads(path.read_text(encoding="utf-8"))
        return Outcome(tree["scores"], tree["cpu_seconds"])

    def network(self, trial: Trial) -> Aligner:
        """Return the network that a trial trained."""
        self.outcome(trial)
        return read_aligner(self.folder / trial.key / "aligner.safetensors")

    def cost(self, trial: Trial) -> float:
        """Return the CPU seconds of a trial and of all teachers before it."""
        return self.outcome(trial).cpu_seconds + sum(self.cost(teacher) for teacher in trial.teachers)

    def labels(self, trial: Trial, corpus: Corpus) -> tuple[Places, ...]:
        """Return the labels of the written steps that a trial trains on."""
        if not trial.teachers:
            return first_labels(corpus.lessons, trial.labels)
        steps = unplaced(lessons_written(corpus.lessons))
        matrices = [alignment_matrices(self.network(teacher), steps) for teacher in trial.teachers]
        rates = [lesson.features.rate for lesson in corpus.lessons]
        return refine(matrices, rates, trial.labels.rounds[-1].refine)

    def _run(self, trial: Trial) -> None:
        corpus = self.corpus(trial)
        labels = self.labels(trial, corpus) if trial.texts != "W" else ()
        place = self.folder / trial.key
        began = time.process_time()
        network = train_aligner(
            _samples(trial, corpus, labels), place / "training", model=_model(trial, corpus), loss=_loss(trial),
            settings=_training(trial),
        )  # fmt: skip
        seconds = time.process_time() - began
        write_aligner(network, place / "aligner.safetensors")
        shutil.rmtree(place / "training")
        scores = score(network, corpus.tests) | _quality(corpus.lessons, labels)
        tree = {"trial": trial.model_dump(mode="json"), **asdict(Outcome(scores, seconds))}
        write_atomic(place / "outcome.json", json.dumps(tree, indent=1) + "\n")
        log.info("%s: %.0f CPU s, %s", trial.key, seconds, {name: round(value, 1) for name, value in scores.items()})


def score(network: Aligner, tests: Mapping[str, Sequence[Sample]]) -> dict[str, float]:
    """Return R@1 of each kind of text, and how well scores tell texts that are shown (ROC-AUC), in per cent."""
    found: dict[str, float] = {}
    for kind, samples in tests.items():
        matrices = alignment_matrices(network, samples)
        truths = [sample.positive for sample in samples]
        found[f"{kind} R@1"] = 100 * recall_at_one(matrices, truths)
        shown = np.concatenate([truth.any(axis=1) for truth in truths])
        if len(np.unique(shown)) == 2:
            best = np.concatenate([best_scores(matrix) for matrix in matrices])
            found[f"{kind} AUC cosine"] = 100 * roc_auc(shown, best)
            if network.alignable is not None:
                head = np.concatenate(alignable_logits(network, samples))
                found[f"{kind} AUC head"] = 100 * roc_auc(shown, head)
    return found


def recall_at_one(matrices: Sequence[Matrix], truths: Sequence[Mask]) -> float:
    """Return the share of texts that are shown whose best row is one of those that show them.

    Raises DatasetError when no text is shown.
    """
    hits: list[bool] = []
    for matrix, truth in zip(matrices, truths, strict=True):
        shown = truth.any(axis=1)
        hits += truth[shown, matrix[shown].argmax(axis=1)].tolist()
    if not hits:
        raise DatasetError("no text is shown in any held-out video; R@1 needs at least one")
    return float(np.mean(hits))


def _samples(trial: Trial, corpus: Corpus, labels: Sequence[Places]) -> list[Sample]:
    given = lessons_written(corpus.lessons)
    steps = step_samples(given, labels, keep_all=trial.head is not None) if labels else []
    narrations = narration_samples(corpus.lessons, really=trial.planted) if "W" in trial.texts else []
    return [*steps, *narrations]


def _quality(lessons: Sequence[Lesson], labels: Sequence[Places]) -> dict[str, float]:
    """Return how good labels are by the planted truth, where there is one."""
    truths = [lesson.truth for lesson in lessons if lesson.truth is not None]
    if not labels or len(truths) != len(lessons):
        return {}
    inside, shown = inside_share(labels, truths, [lesson.features.rate for lesson in lessons])
    return {"labels kept": 100 * kept_share(labels), "labels inside": 100 * inside, "labels shown": 100 * shown}


def _model(trial: Trial, corpus: Corpus) -> ModelSettings:
    size, first = _network_size(trial), corpus.lessons[0]
    return ModelSettings(
        video_width=first.features.values.shape[1], text_width=first.step_vectors.shape[1], width=size.width,
        heads=size.heads, encoder_layers=size.layers, decoder_layers=size.layers, feed_forward=size.feed_forward,
        projection=size.projection, attention_dropout=trial.attention_dropout, alignability=trial.head is not None,
    )  # fmt: skip


def _network_size(trial: Trial) -> Size:
    """Return the trial's size, with the paper's network in it where the trial has that."""
    if not trial.paper_network:
        return trial.size
    lasting = ("videos", "held_out", "epochs", "teacher_epochs")
    return PAPER_SIZE.model_copy(update={name: getattr(trial.size, name) for name in lasting})


def _loss(trial: Trial) -> LossSettings:
    return LossSettings() if trial.head is None else LossSettings(alignability=trial.head)


def _training(trial: Trial) -> TrainSettings:
    size = _network_size(trial)
    epochs = size.teacher_epochs if trial.early else size.epochs
    seed = trial.seed + SECOND_SEED * trial.again
    return TrainSettings(epochs=epochs, learning_rate=size.learning_rate, seed=seed, save_every=10_000)
