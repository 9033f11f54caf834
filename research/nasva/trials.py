"""Running NaSVA's trials: labels from the planted truth, from likeness or from teachers, training,
scores."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from research.nasva.corpus import Corpus, TrainingVideo, simulated
from research.nasva.matrices import alignable_logits, alignment_matrices, relabel, step_video
from research.nasva.rows import AFTER_START, PAPER_SIZE, LabelPlan, NasvaSize, NasvaTrial
from research.study import Outcome, TrialStore
from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import coarse_spans
from stepline.nasva.calibration import SCORE_TEMPERATURE
from stepline.nasva.checkpoint import read_aligner, write_aligner
from stepline.nasva.dataset import label_matrix, labelled_sample
from stepline.nasva.model import Aligner
from stepline.nasva.pseudo_labels import (
    StepSpans,
    StepVideo,
    best_scores,
    fraction_inside,
    labelled_fraction,
    step_samples,
    unlabelled_samples,
)
from stepline.nasva.settings import (
    AlignerLossSettings,
    AlignerNetworkSettings,
    RefineSettings,
    UnshownTexts,
)
from stepline.nasva.train import aligner_task, train_aligner
from stepline.nasva.unshown_texts import unshown_texts
from stepline.numeric import cosine_matrix, softmax
from stepline.records import Matrix, Span
from stepline.training.batches import LazySamples, Mask, Sample
from stepline.training.loop import TrainingTask, fit
from stepline.training.settings import TrainSettings

# grown around the most similar second
VIDEO_LABELS = RefineSettings(threshold=0.0, position="center", seconds=None)


def first_labels(videos: Sequence[TrainingVideo], plan: LabelPlan) -> tuple[StepSpans, ...]:
    """Return the labels of the written steps before any network is trained.

    Raises DatasetError when the planted truth is asked for where there is no truth.
    """
    if plan.first == "video":
        likeness = [cosine_matrix(video.step_vectors, video.features.values) for video in videos]
        return relabel([likeness], [video.features.rate for video in videos], VIDEO_LABELS)
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
    return [
        step_video(video.id, video.features, video.step_vectors, (None,) * len(video.steps))
        for video in videos
    ]


def narration_samples(videos: Sequence[TrainingVideo], *, really: bool) -> LazySamples[Sample]:
    """Return the sentences as samples, each labelled where it is spoken, or where it is really
    shown."""
    places = [
        planted(video, video.sentence_truth)
        if really
        else tuple(sentence.span for sentence in video.sentences)
        for video in videos
    ]
    said = [
        step_video(video.id, video.features, video.sentence_vectors, (None,) * len(video.sentences))
        for video in videos
    ]
    return step_samples(said, places)


def _spoken_spans(video: TrainingVideo, settings: CoarseSettings) -> StepSpans:
    """Return where each step is said, by its likeness to the narration (Step-ASR)."""
    duration = len(video.features.values) / video.features.rate
    kept, _ = coarse_spans(
        video.steps, video.sentences, video.likeness, duration=duration, settings=settings
    )
    said = {step.id: step.said for step in kept}
    return tuple(said.get(step.id) for step in video.steps)


def _first_window(row: Mask, rate: float) -> Span | None:
    shown = np.flatnonzero(row)
    if not len(shown):
        return None
    gaps = np.flatnonzero(np.diff(shown) > 1)
    last = shown[gaps[0]] if len(gaps) else shown[-1]
    return Span(float(shown[0] / rate), float((last + 1) / rate))


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
        scores = (
            corpus.benchmarks.score(network, folder)
            if corpus.benchmarks
            else score(network, corpus.tests)
        )
        return Outcome(scores | label_scores(corpus.videos, labels), seconds)

    def train(
        self, trial: NasvaTrial, corpus: Corpus, labels: Sequence[StepSpans], folder: Path
    ) -> Aligner:
        """Return the network that a trial's labels train."""
        model, settings = _model(trial, corpus), _training(trial)
        if not trial.labels.soft:
            samples = _samples(trial, corpus, labels)
            return train_aligner(samples, folder, model=model, loss=_loss(trial), settings=settings)
        torch.manual_seed(settings.seed)  # of fresh weights, as `train_aligner` has it
        network = Aligner(model)
        places = soft_labels(self.matrices(trial, corpus))
        fit(
            network,
            soft_task(unlabelled_samples(step_videos(corpus.videos)), places, _loss(trial)),
            settings,
            folder,
        )
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
            return small_loss_labels(
                first_labels(corpus.videos, trial.labels), matrices, corpus.videos, last.small_loss
            )
        return relabel(matrices, [video.features.rate for video in corpus.videos], last.refine)


def small_loss_labels(
    labels: Sequence[StepSpans],
    matrices: Sequence[Sequence[Matrix]],
    videos: Sequence[TrainingVideo],
    kept: float,
) -> tuple[StepSpans, ...]:
    """Return the labels on which the teachers' loss is smallest, a fraction `kept` of them. The
    others are dropped.

    Networks learn what is right before what is wrong by heart. Source: co-teaching (Han et al.
    2018).
    """
    losses = [
        label_losses(np.mean(each, axis=0), places, video)
        for each, places, video in zip(zip(*matrices, strict=True), labels, videos, strict=True)
    ]
    limit = np.nanquantile(np.concatenate(losses), kept)
    return tuple(
        tuple(
            span if loss <= limit else None for span, loss in zip(places, row.tolist(), strict=True)
        )
        for places, row in zip(labels, losses, strict=True)
    )


def label_losses(scores: Matrix, places: StepSpans, video: TrainingVideo) -> Matrix:
    """Return the InfoNCE of each text's label (K,) by cosines (K, T). NaN where a text has none."""
    # (K, T)
    shown = label_matrix([[span] if span is not None else [] for span in places], video.features)
    p = softmax(np.asarray(scores, dtype=np.float64) / SCORE_TEMPERATURE)
    mass = (p * shown).sum(axis=1)
    return np.where(shown.any(axis=1), -np.log(np.maximum(mass, 1e-12)), np.nan)


def soft_labels(matrices: Sequence[Sequence[Matrix]]) -> list[Matrix]:
    """Return P(second) of every text (K, T), summed up along the seconds: the softmax of its
    teachers' mean cosines."""
    means = (
        np.asarray(np.mean(each, axis=0), dtype=np.float64) for each in zip(*matrices, strict=True)
    )
    return [
        np.cumsum(softmax(mean / SCORE_TEMPERATURE), axis=1).astype(np.float32) for mean in means
    ]


def soft_task(
    samples: LazySamples[Sample], places: Sequence[Matrix], loss: AlignerLossSettings
) -> TrainingTask[Sample]:
    """Return the training whose labels are drawn again at every sight, each text's second at its
    probability.

    places: (K, T) of every sample's texts, summed up along the seconds. The mean loss is the
    cross-entropy with P.
    """
    known = {sample.id: rows for sample, rows in zip(samples, places, strict=True)}
    plain = aligner_task(samples, loss)

    def augment(chosen: Sequence[Sample], rng: np.random.Generator) -> Sequence[Sample]:
        drawn = [replace(sample, positive=one_second(known[sample.id], rng)) for sample in chosen]
        return plain.augment(drawn, rng)

    return replace(plain, augment=augment)


def one_second(sums: Matrix, rng: np.random.Generator) -> Mask:
    """Return (K, T), one second per text, drawn by probabilities summed up along the seconds."""
    at = (rng.random((len(sums), 1)) * sums[:, -1:] >= sums).sum(axis=1)
    positive = np.zeros(sums.shape, np.bool_)
    positive[np.arange(len(sums)), np.minimum(at, sums.shape[1] - 1)] = True
    return positive


def with_unshown_texts(
    videos: Sequence[TrainingVideo],
    labels: Sequence[StepSpans],
    kind: UnshownTexts,
    rng: np.random.Generator,
) -> list[Sample]:
    """Return each video's labelled steps among texts that it does not show, as many where there are
    enough.

    Both kinds keep their order. The places of the unshown ones among the others are random.
    """
    chosen = unshown_texts(
        [video.task for video in videos], lambda index: videos[index].linking, kind
    )
    samples = []
    for video, places, (other, rows) in zip(videos, labels, chosen, strict=True):
        own = [row for row, span in enumerate(places) if span is not None]
        if not own:
            continue
        some = np.sort(rng.permutation(rows)[: len(own)])
        vectors = np.concatenate([video.step_vectors[own], videos[other].step_vectors[some]])
        spans = [[span] for span in places if span is not None] + [[] for _ in some]
        order = np.argsort(
            np.concatenate([np.sort(rng.random(len(part))) for part in (own, some)]), kind="stable"
        )
        placed = [spans[at] for at in order]
        samples.append(
            labelled_sample(video.id, video.features, vectors[order], placed, ordered=True)
        )
    return samples


def score(network: Aligner, tests: Mapping[str, Sequence[Sample]]) -> dict[str, float]:
    """Return R@1 of each kind of text, and how well scores tell texts that are shown (ROC-AUC), in
    per cent."""
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
    """Return the fraction of texts that are shown whose best row is one of those that show them.

    Raises DatasetError when no text is shown.
    """
    hits: list[bool] = []
    for matrix, truth in zip(matrices, truths, strict=True):
        shown = truth.any(axis=1)
        hits += truth[shown, matrix[shown].argmax(axis=1)].tolist()
    if not hits:
        raise DatasetError("no text is shown in any held-out video; R@1 needs at least one")
    return float(np.mean(hits))


def _samples(trial: NasvaTrial, corpus: Corpus, labels: Sequence[StepSpans]) -> list[Sample]:
    given = step_videos(corpus.videos)
    steps: Sequence[Sample] = []
    if trial.unshown is not None:
        steps = with_unshown_texts(
            corpus.videos, labels, trial.unshown, np.random.default_rng(trial.seed)
        )
    elif labels:
        steps = step_samples(given, labels, keep_all=trial.head is not None)
    narrations = (
        narration_samples(corpus.videos, really=trial.planted) if "W" in trial.texts else []
    )
    return [*steps, *narrations]


def label_scores(videos: Sequence[TrainingVideo], labels: Sequence[StepSpans]) -> dict[str, float]:
    """Return how good labels are by the planted truth, where there is one."""
    truths = [video.truth for video in videos if video.truth is not None]
    if not labels or len(truths) != len(videos):
        return {}
    rates = [video.features.rate for video in videos]
    inside, shown = fraction_inside(labels, truths, rates)
    return {
        "labels kept": 100 * labelled_fraction(labels),
        "labels inside": 100 * inside,
        "labels shown": 100 * shown,
        AFTER_START: median_after_start(labels, truths, rates),
    }


def median_after_start(
    labels: Sequence[StepSpans], truths: Sequence[Mask], rates: Sequence[float]
) -> float:
    """Return the median seconds from the start of the nearest window that shows a text to that of
    its label.

    NaN where no labelled text is shown.
    """
    after = []
    for places, rows, rate in zip(labels, truths, rates, strict=True):
        for span, row in zip(places, rows, strict=True):
            if span is not None and row.any():
                starts = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0) == 1) / rate
                gaps = span.start - starts
                after.append(float(gaps[np.abs(gaps).argmin()]))
    return float(np.median(after)) if after else float("nan")


def _model(trial: NasvaTrial, corpus: Corpus) -> AlignerNetworkSettings:
    size, first = _network_size(trial), corpus.videos[0]
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
    return (
        AlignerLossSettings()
        if trial.head is None
        else AlignerLossSettings(alignability=trial.head)
    )


def _training(trial: NasvaTrial) -> TrainSettings:
    size = _network_size(trial)
    epochs = size.teacher_epochs if trial.early else size.epochs
    seed = trial.seed + SECOND_SEED * trial.again
    return TrainSettings(
        epochs=epochs, learning_rate=size.learning_rate, seed=seed, save_every=10_000
    )
