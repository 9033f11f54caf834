"""Running NaSVA's trials: labels (planted, by likeness or by teachers), training and scores."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lab.nasva.corpus import Corpus, TrainingVideo, simulated
from lab.nasva.matrices import alignable_logits, alignment_matrices, relabel, step_video
from lab.nasva.rows import AFTER_START, PAPER_SIZE, LabelPlan, NasvaSize, NasvaTrial
from lab.study import Outcome, TrialStore
from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import coarse_spans
from stepline.models.nasva.calibration import SCORE_TEMPERATURE
from stepline.models.nasva.checkpoint import read_aligner, write_aligner
from stepline.models.nasva.dataset import label_matrix, labelled_sample
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.pseudo_labels import (
    StepSpans,
    StepVideo,
    best_scores,
    fraction_inside,
    labelled_fraction,
    step_samples,
    unlabelled_samples,
)
from stepline.models.nasva.settings import (
    AlignerLossSettings,
    AlignerNetworkSettings,
    RefineSettings,
    UnshownTexts,
)
from stepline.models.nasva.train import aligner_task, train_aligner
from stepline.models.nasva.unshown_texts import unshown_texts
from stepline.models.training.batches import LazySamples, Mask, Sample
from stepline.models.training.loop import TrainingTask, fit
from stepline.models.training.settings import TrainSettings
from stepline.numeric import cosine_matrix, softmax
from stepline.records import Matrix, Span

# Labels grow around the most similar second.
VIDEO_LABELS = RefineSettings(threshold=0.0, position="center", seconds=None)


def first_labels(videos: Sequence[TrainingVideo], plan: LabelPlan) -> tuple[StepSpans, ...]:
    """Return the labels of the written steps before any network is trained.

    Raises DatasetError when planted labels are asked for where there is no planted truth.
    """
    if plan.first == "video":
        likeness = [cosine_matrix(video.step_vectors, video.features.values) for video in videos]
        rates = [video.features.rate for video in videos]
        return relabel([likeness], rates, VIDEO_LABELS)
    if plan.first == "planted":
        return tuple(planted(video, video.truth) for video in videos)
    return tuple(_spoken_spans(video, CoarseSettings(floor=plan.floor)) for video in videos)


def planted(video: TrainingVideo, truth: Mask | None) -> StepSpans:
    """Return the first window in which each text is really shown."""
    if truth is None:
        raise DatasetError(f"{video.id}: no planted truth; only simulated videos have it")
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
    return step_samples(narrations, labels)


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

    corpus: Callable[[NasvaTrial], Corpus] = lambda trial: simulated(
        trial.seed, trial.backbone, trial.recogniser, trial.size, trial.world, trial.lag
    )

    def run(self, trial: NasvaTrial, folder: Path) -> Outcome:
        """Train and score a trial. Raises ShapeError where no label is left to train on."""
        corpus = self.corpus(trial)
        labels = self.labels(trial, corpus) if trial.texts != "W" else ()
        began = time.process_time()
        network = self.train(trial, corpus, labels, folder / "training")
        seconds = time.process_time() - began
        write_aligner(network, folder / "aligner.safetensors")
        shutil.rmtree(folder / "training")
        scores = label_scores(corpus.videos, labels)
        if corpus.benchmarks:
            return Outcome(corpus.benchmarks.score(network, folder) | scores, seconds)
        return Outcome(score(network, corpus.tests) | scores, seconds)

    def train(
        self, trial: NasvaTrial, corpus: Corpus, labels: Sequence[StepSpans], folder: Path
    ) -> Aligner:
        """Return the network that a trial's labels train."""
        model = _model(trial, corpus)
        settings = _training(trial)
        if not trial.labels.soft:
            samples = _samples(trial, corpus, labels)
            return train_aligner(samples, folder, model=model, loss=_loss(trial), settings=settings)
        # the seed of fresh weights, as `train_aligner` sets it
        torch.manual_seed(settings.seed)
        network = Aligner(model)
        sums = soft_labels(self.matrices(trial, corpus))
        samples_without_labels = unlabelled_samples(step_videos(corpus.videos))
        task = soft_task(samples_without_labels, sums, _loss(trial))
        fit(network, task, settings, folder)
        return network

    def matrices(self, trial: NasvaTrial, corpus: Corpus) -> list[list[Matrix]]:
        """Return the cosines (K, T) of every video, of each of the trial's teachers."""
        steps = unlabelled_samples(step_videos(corpus.videos))
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
        if last.labeller == "small loss":
            first = first_labels(corpus.videos, trial.labels)
            return small_loss_labels(first, matrices, corpus.videos, last.small_loss)
        rates = [video.features.rate for video in corpus.videos]
        return relabel(matrices, rates, last.refine)


def small_loss_labels(
    labels: Sequence[StepSpans],
    matrices: Sequence[Sequence[Matrix]],
    videos: Sequence[TrainingVideo],
    fraction: float,
) -> tuple[StepSpans, ...]:
    """Return a fraction of the labels, those with the teachers' smallest loss, and None for others.

    Networks learn what is right before they learn what is wrong by heart. Source: co-teaching (Han
    et al. 2018).
    """
    losses = []
    for of_video, spans, video in zip(zip(*matrices, strict=True), labels, videos, strict=True):
        losses.append(label_losses(np.mean(of_video, axis=0), spans, video))
    limit = np.nanquantile(np.concatenate(losses), fraction)

    small: list[StepSpans] = []
    for spans, row in zip(labels, losses, strict=True):
        pairs = zip(spans, row.tolist(), strict=True)
        small.append(tuple(span if loss <= limit else None for span, loss in pairs))
    return tuple(small)


def label_losses(scores: Matrix, labels: StepSpans, video: TrainingVideo) -> Matrix:
    """Return the InfoNCE of each text's label (K,) by cosines (K, T). NaN without a label."""
    spans = [[span] if span is not None else [] for span in labels]
    positive = label_matrix(spans, video.features)  # (K, T)
    p = softmax(np.asarray(scores, dtype=np.float64) / SCORE_TEMPERATURE)
    mass = (p * positive).sum(axis=1)
    loss = -np.log(np.maximum(mass, 1e-12))
    return np.where(positive.any(axis=1), loss, np.nan)


def soft_labels(matrices: Sequence[Sequence[Matrix]]) -> list[Matrix]:
    """Return P(second) of every text (K, T), summed up along the seconds.

    P is the softmax of the teachers' mean cosines.
    """
    sums = []
    for of_video in zip(*matrices, strict=True):
        mean = np.asarray(np.mean(of_video, axis=0), dtype=np.float64)
        p = softmax(mean / SCORE_TEMPERATURE)
        sums.append(np.cumsum(p, axis=1).astype(np.float32))
    return sums


def soft_task(
    samples: LazySamples[Sample], sums: Sequence[Matrix], loss: AlignerLossSettings
) -> TrainingTask[Sample]:
    """Return the training whose labels are drawn again in every epoch, by the seconds' probability.

    sums: P(second) (K, T) of every sample's texts, summed up along the seconds. The mean loss is
    the cross-entropy with P.
    """
    sums_by_id = {sample.id: rows for sample, rows in zip(samples, sums, strict=True)}
    plain = aligner_task(samples, loss)

    def augment(batch: Sequence[Sample], rng: np.random.Generator) -> Sequence[Sample]:
        drawn = []
        for sample in batch:
            positive = one_second(sums_by_id[sample.id], rng)
            drawn.append(replace(sample, positive=positive))
        return plain.augment(drawn, rng)

    return replace(plain, augment=augment)


def one_second(sums: Matrix, rng: np.random.Generator) -> Mask:
    """Return (K, T), one second per text, drawn by probabilities summed up along the seconds."""
    texts, seconds = sums.shape
    draws = rng.random((texts, 1)) * sums[:, -1:]
    at = (draws >= sums).sum(axis=1)
    positive = np.zeros(sums.shape, np.bool_)
    positive[np.arange(texts), np.minimum(at, seconds - 1)] = True
    return positive


def with_unshown_texts(
    videos: Sequence[TrainingVideo],
    labels: Sequence[StepSpans],
    kind: UnshownTexts,
    rng: np.random.Generator,
) -> list[Sample]:
    """Return each video's labelled steps among texts that it does not show.

    There are as many of these where there are enough. Both kinds keep their order. The places of
    the unshown ones among the others are random.
    """
    tasks = [video.task for video in videos]
    unshown = unshown_texts(tasks, lambda index: videos[index].linking, kind)
    samples = []
    for video, spans, (other, rows) in zip(videos, labels, unshown, strict=True):
        own = [row for row, span in enumerate(spans) if span is not None]
        if not own:
            continue
        foreign = np.sort(rng.permutation(rows)[: len(own)])
        vectors = np.concatenate([video.step_vectors[own], videos[other].step_vectors[foreign]])
        text_spans: list[list[Span]] = [[span] for span in spans if span is not None]
        text_spans += [[] for _ in foreign]

        # a random merge of the two that keeps the order within each
        positions = [np.sort(rng.random(len(part))) for part in (own, foreign)]
        order = np.argsort(np.concatenate(positions), kind="stable")
        ordered_spans = [text_spans[index] for index in order]
        sample = labelled_sample(
            video.id, video.features, vectors[order], ordered_spans, ordered=True
        )
        samples.append(sample)
    return samples


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
        best = np.concatenate([best_scores(matrix) for matrix in matrices])
        scores[f"{kind} AUC cosine"] = 100 * roc_auc(is_shown, best)
        if network.alignable is not None:
            head = np.concatenate(alignable_logits(network, samples))
            scores[f"{kind} AUC head"] = 100 * roc_auc(is_shown, head)
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
    if trial.unshown is not None:
        rng = np.random.default_rng(trial.seed)
        samples += with_unshown_texts(corpus.videos, labels, trial.unshown, rng)
    elif labels:
        videos = step_videos(corpus.videos)
        samples += step_samples(videos, labels, keep_all=trial.head is not None)
    if "W" in trial.texts:
        samples += narration_samples(corpus.videos, really=trial.planted)
    return samples


def label_scores(videos: Sequence[TrainingVideo], labels: Sequence[StepSpans]) -> dict[str, float]:
    """Return how good labels are by the planted truth, where there is one."""
    truths = [video.truth for video in videos if video.truth is not None]
    if not labels or len(truths) != len(videos):
        return {}
    rates = [video.features.rate for video in videos]
    inside, shown_fraction = fraction_inside(labels, truths, rates)
    return {
        "labels kept": 100 * labelled_fraction(labels),
        "labels inside": 100 * inside,
        "labels shown": 100 * shown_fraction,
        AFTER_START: median_after_start(labels, truths, rates),
    }


def median_after_start(
    labels: Sequence[StepSpans], truths: Sequence[Mask], rates: Sequence[float]
) -> float:
    """Return the median seconds from the start of a text's window to the start of its label.

    Of several windows that show the text, the nearest counts. NaN where no labelled text is shown.
    """
    delays = []
    for spans, rows, rate in zip(labels, truths, rates, strict=True):
        for span, row in zip(spans, rows, strict=True):
            if span is None or not row.any():
                continue
            changes = np.diff(row.astype(np.int8), prepend=0)
            starts = np.flatnonzero(changes == 1) / rate
            gaps = span.start - starts
            delays.append(float(gaps[np.abs(gaps).argmin()]))
    return float(np.median(delays)) if delays else float("nan")


def _model(trial: NasvaTrial, corpus: Corpus) -> AlignerNetworkSettings:
    size = _network_size(trial)
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
        attention_dropout=trial.attention_dropout,
        alignability=trial.head is not None,
    )


def _network_size(trial: NasvaTrial) -> NasvaSize:
    """Return the trial's size, with the paper's network in it where the trial has that."""
    if not trial.paper_network:
        return trial.size
    lasting = ("videos", "held_out", "epochs", "teacher_epochs")
    return PAPER_SIZE.model_copy(update={name: getattr(trial.size, name) for name in lasting})


def _loss(trial: NasvaTrial) -> AlignerLossSettings:
    if trial.head is None:
        return AlignerLossSettings()
    return AlignerLossSettings(alignability=trial.head)


def _training(trial: NasvaTrial) -> TrainSettings:
    size = _network_size(trial)
    epochs = size.teacher_epochs if trial.early else size.epochs
    seed = trial.seed + SECOND_SEED * trial.again
    return TrainSettings(
        epochs=epochs, learning_rate=size.learning_rate, seed=seed, save_every=10_000
    )
