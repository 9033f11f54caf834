"""Running NaSVA's trials: labels (planted, by likeness or by teachers), training and scores."""

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab.nasva.corpus import Corpus, TrainingVideo, simulated
from lab.nasva.matrices import alignment_matrices, relabel, step_video
from lab.nasva.rows import LabelPlan, NasvaTrial
from lab.study import Outcome, TrialStore
from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import coarse_spans
from stepline.models.nasva.checkpoint import read_aligner, write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.pseudo_labels import (
    StepSpans,
    StepVideo,
    compute_labelled_fraction,
    find_best_scores,
    make_step_samples,
    make_unlabelled_samples,
)
from stepline.models.nasva.settings import (
    AlignerLossSettings,
    AlignerNetworkSettings,
    RefineSettings,
)
from stepline.models.nasva.train import train_aligner
from stepline.models.training.batches import LazySamples, Mask, Sample
from stepline.models.training.settings import TrainSettings
from stepline.numeric import cosine_matrix
from stepline.records import Matrix, Span

# Labels grow around the most similar second.
VIDEO_LABELS = RefineSettings(threshold=0.0, position="center", seconds=None)


def first_labels(videos: Sequence[TrainingVideo], plan: LabelPlan) -> tuple[StepSpans, ...]:
    """Return the labels of the written steps before any network is trained."""
    if plan.first == "video":
        likeness = [cosine_matrix(video.step_vectors, video.features.values) for video in videos]
        rates = [video.features.rate for video in videos]
        return relabel([likeness], rates, VIDEO_LABELS)
    if plan.first == "planted":
        return tuple(planted(video, video.truth) for video in videos)
    return tuple(_spoken_spans(video, CoarseSettings(floor=plan.floor)) for video in videos)


def planted(video: TrainingVideo, truth: Mask) -> StepSpans:
    """Return the first window in which each text is really shown."""
    return tuple(_first_window(row, video.features.rate) for row in truth)


def step_videos(videos: Sequence[TrainingVideo]) -> list[StepVideo]:
    """Return the videos' written steps, none of them placed."""
    unplaced = []
    for video in videos:
        spans = (None,) * len(video.steps)
        unplaced.append(step_video(video.id, video.features, video.step_vectors, spans))
    return unplaced


def narration_samples(videos: Sequence[TrainingVideo], *, really: bool) -> LazySamples[Sample]:
    """Return the sentences as samples, each labelled where it is spoken.

    really: labelled where it is shown, by the planted truth.
    """
    labels: list[StepSpans] = []
    narrations = []
    for video in videos:
        if really:
            labels.append(planted(video, video.sentence_truth))
        else:
            labels.append(tuple(sentence.span for sentence in video.sentences))
        spans = (None,) * len(video.sentences)
        narrations.append(step_video(video.id, video.features, video.sentence_vectors, spans))
    return make_step_samples(narrations, labels)


def _spoken_spans(video: TrainingVideo, settings: CoarseSettings) -> StepSpans:
    """Return where each step is said, by its likeness to the narration (Step-ASR)."""
    duration = len(video.features.values) / video.features.rate
    placed_steps, _ = coarse_spans(
        video.steps, video.sentences, video.likeness, duration=duration, settings=settings
    )
    spans = {step.id: step.said for step in placed_steps}
    return tuple(spans.get(step.id) for step in video.steps)


def _first_window(row: Mask, rate: float) -> Span | None:
    seconds = np.flatnonzero(row)
    if not len(seconds):
        return None
    first = seconds[0]
    gaps = np.flatnonzero(np.diff(seconds) > 1)
    last = seconds[gaps[0]] if len(gaps) else seconds[-1]
    return Span(float(first / rate), float((last + 1) / rate))


SECOND_SEED = 1000  # of a teacher next to the first


@dataclass(frozen=True)
class NasvaTrials(TrialStore[NasvaTrial]):
    """Trials kept with their networks."""

    def run(self, trial: NasvaTrial, folder: Path) -> Outcome:
        """Train and score a trial. Raises ShapeError where no label is left to train on."""
        corpus = simulated(trial.seed, trial.backbone, trial.recogniser, trial.size, trial.world)
        labels = self.labels(trial, corpus) if trial.texts != "W" else ()
        began = time.process_time()
        network = self.train(trial, corpus, labels, folder / "training")
        seconds = time.process_time() - began
        write_aligner(network, folder / "aligner.safetensors")
        shutil.rmtree(folder / "training")
        scores = label_scores(corpus.videos, labels)
        return Outcome(score(network, corpus.tests) | scores, seconds)

    def train(
        self, trial: NasvaTrial, corpus: Corpus, labels: Sequence[StepSpans], folder: Path
    ) -> Aligner:
        """Return the network that a trial's labels train."""
        samples = _samples(trial, corpus, labels)
        return train_aligner(
            samples,
            folder,
            model=_model(trial, corpus),
            loss=AlignerLossSettings(),
            settings=_training(trial),
        )

    def matrices(self, trial: NasvaTrial, corpus: Corpus) -> list[list[Matrix]]:
        """Return the cosines (K, T) of every video, of each of the trial's teachers."""
        steps = make_unlabelled_samples(step_videos(corpus.videos))
        return [alignment_matrices(self.network(teacher), steps) for teacher in trial.predecessors]

    def network(self, trial: NasvaTrial) -> Aligner:
        """Return the network that a trial trained."""
        self.outcome(trial)
        return read_aligner(self.folder / trial.key / "aligner.safetensors")

    def labels(self, trial: NasvaTrial, corpus: Corpus) -> tuple[StepSpans, ...]:
        """Return the labels of the written steps that a trial trains on."""
        if not trial.predecessors:
            return first_labels(corpus.videos, trial.labels)
        last = trial.labels.rounds[-1]
        matrices = self.matrices(trial, corpus)
        rates = [video.features.rate for video in corpus.videos]
        return relabel(matrices, rates, last.refine)


def score(network: Aligner, tests: Mapping[str, Sequence[Sample]]) -> dict[str, float]:
    """Return R@1 of each kind of text, and the ROC-AUC of texts that are shown, in per cent."""
    scores: dict[str, float] = {}
    for kind, samples in tests.items():
        matrices = alignment_matrices(network, samples)
        truths = [sample.positive for sample in samples]
        scores[f"{kind} R@1"] = 100 * recall_at_one(matrices, truths)
        is_shown = np.concatenate([truth.any(axis=1) for truth in truths])
        # an AUC needs texts of both kinds
        if len(np.unique(is_shown)) < 2:
            continue
        best = np.concatenate([find_best_scores(matrix) for matrix in matrices])
        scores[f"{kind} AUC cosine"] = 100 * roc_auc(is_shown, best)
    return scores


def recall_at_one(matrices: Sequence[Matrix], truths: Sequence[Mask]) -> float:
    """Return the fraction of texts that are shown whose best row is one of those that show them.

    Raises DatasetError when no text is shown.
    """
    hits: list[bool] = []
    for matrix, truth in zip(matrices, truths, strict=True):
        is_shown = truth.any(axis=1)
        best = matrix[is_shown].argmax(axis=1)
        hits += truth[is_shown, best].tolist()
    if not hits:
        raise DatasetError("no text is shown in any held-out video; R@1 needs at least one")
    return float(np.mean(hits))


def _samples(trial: NasvaTrial, corpus: Corpus, labels: Sequence[StepSpans]) -> list[Sample]:
    samples: list[Sample] = []
    if labels:
        samples += make_step_samples(step_videos(corpus.videos), labels)
    if "W" in trial.texts:
        samples += narration_samples(corpus.videos, really=trial.planted)
    return samples


# share of a label that must be in the planted window. NaSVA's table 5 judges by eye
INSIDE_FRACTION = 0.5


def fraction_inside(
    labels: Sequence[StepSpans], truth: Sequence[Mask], rates: Sequence[float]
) -> tuple[float, float]:
    """Return, of the kept labels, the share that lies by half or more in the planted window, and
    that has one at all.

    truth: (K, T) of each video, True where the text is shown. NaN without labels.
    """
    inside_flags = []
    shown_flags = []
    for spans, rows, rate in zip(labels, truth, rates, strict=True):
        for span, row in zip(spans, rows, strict=True):
            if span is None:
                continue
            shown_flags.append(bool(row.any()))
            # A label shorter than a row still covers one.
            start = int(span.start * rate)
            end = max(start + 1, math.ceil(span.end * rate))
            part = row[start:end]
            inside_flags.append(part.size > 0 and part.mean() >= INSIDE_FRACTION)
    if not inside_flags:
        return math.nan, math.nan
    return float(np.mean(inside_flags)), float(np.mean(shown_flags))


def label_scores(videos: Sequence[TrainingVideo], labels: Sequence[StepSpans]) -> dict[str, float]:
    """Return how good labels are by the planted truth."""
    if not labels:
        return {}
    truths = [video.truth for video in videos]
    rates = [video.features.rate for video in videos]
    inside, estimate_shown_fraction = fraction_inside(labels, truths, rates)
    return {
        "labels kept": 100 * compute_labelled_fraction(labels),
        "labels inside": 100 * inside,
        "labels shown": 100 * estimate_shown_fraction,
    }


def _model(trial: NasvaTrial, corpus: Corpus) -> AlignerNetworkSettings:
    size = trial.size
    first = corpus.videos[0]
    return AlignerNetworkSettings(
        video_width=first.features.values.shape[1],
        text_width=first.step_vectors.shape[1],
        width=size.width,
        heads=size.heads,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        feed_forward=size.feed_forward,
        projection=size.projection,
    )


def _training(trial: NasvaTrial) -> TrainSettings:
    size = trial.size
    epochs = size.teacher_epochs if trial.early else size.epochs
    seed = trial.seed + SECOND_SEED * trial.again
    return TrainSettings(
        epochs=epochs, learning_rate=size.learning_rate, seed=seed, save_every=10_000
    )
