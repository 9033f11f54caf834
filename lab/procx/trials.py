"""Running ProcX's trials: networks, losses, training, and scores as `stepline evaluate` gives them.

Described videos are scored as `stepline evaluate youcook2` and `tasty` do: SODA-C, SODA-D and
densevid_eval. The convention is "stepline": every withheld video counts, one without a prediction
0. All in per cent.
"""

import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from lab.procx.corpus import ProcxCorpus, first_fraction, procx_corpus
from lab.procx.rows import BENCHMARK_FORMS, Attention, Form, ProcxTrial
from lab.study import Outcome, TrialStore
from stepline.evaluate.dense_captioning import densevid
from stepline.evaluate.events import Event, event_times, segment_iou
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.soda import soda
from stepline.files.atomic_files import write_atomic
from stepline.models.procx.batch import StepSample
from stepline.models.procx.inference import Description, VideoToDescribe, describe_videos
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
    ProcxTrainSettings,
)
from stepline.models.procx.train import SCORING_BATCH, train_procx
from stepline.models.procx.vocabulary import Vocabulary
from stepline.models.training.loop import HeldOutScorer, Progress

VALIDATION_STEPS = 300  # between two validation scores, about
MAX_CAPTION_TOKENS = 32  # of a sentence; a spoken one has 20
SAVE_STEPS = 1_000_000  # between two saved states: a trial is never taken up half way


def model_of(trial: ProcxTrial) -> ModelSettings:
    """Return ProcX's network, or PDVC's in full, of the trial's size."""
    size = trial.size
    is_pdvc = trial.system == "pdvc"
    encoder: Attention = "vanilla" if is_pdvc else trial.encoder
    decoder: Attention = "vanilla" if is_pdvc else trial.decoder
    # what reads the rows
    attention = AttentionSettings(width=size.width, heads=size.heads, form=encoder)
    # what writes the sentences
    captioner = CaptionerSettings(
        kind="lstm" if is_pdvc else trial.captioner,
        width=size.width,
        heads=size.heads,
        text_layers=1,
        joint_layers=1,
        feed_forward=2 * size.width,
        projection=size.width // 2,
        longest=MAX_CAPTION_TOKENS,
    )
    return ModelSettings(
        features=size.features,
        rows=size.rows,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        attention=attention,
        decoder_form=decoder,
        feed_forward=2 * size.width,
        queries=size.queries,
        query_form=trial.query_form,
        most_steps=size.queries,
        fuse=not is_pdvc,
        captioner=captioner,
    )


def loss_of(trial: ProcxTrial) -> LossSettings:
    """Return the loss of a trial: section E.2's parts and weights, or PDVC's."""
    if trial.system == "pdvc":
        # as PDVC's release trains YouCook2
        return LossSettings(
            confidence="focal",
            text_layers="every",
            caption_mean="captions",
            l1_weight=0.0,
            caption_weight=2.0,
            contrast_weight=0.0,
            label_smoothing=0.0,
        )
    own: dict[str, object] = {"confidence": trial.confidence}
    if trial.contrast == "none":
        own["contrast_weight"] = 0.0
    else:
        own["contrast"] = trial.contrast
    return LossSettings.model_validate(own)


def fresh_network(trial: ProcxTrial, corpus: ProcxCorpus) -> ProcX:
    """Return the trial's network with fresh weights."""
    return ProcX(model_of(trial), len(corpus.vocabulary))


# The order of the paper's columns.
METRIC_NAMES = ("SODA-C", "METEOR", "CIDEr", "BLEU-4", "SODA-D", "F1")

Events = Mapping[str, Sequence[Event]]


def score_events(reference: Events, predicted: Events) -> dict[str, float]:
    """Return the metrics of `METRIC_NAMES`, "steps" and "texts".

    Both arguments are id -> (start, end, sentence). steps: predicted per video. texts: METEOR of
    the sentences alone. The steps are paired one to one by IoU, however little it is.
    """
    words = densevid(reference, predicted, meteor=_meteor()).mean
    scores = {
        "SODA-C": 100 * soda(reference, predicted, kind="c", meteor=_meteor()).f1,
        "SODA-D": 100 * soda(reference, predicted, kind="d").f1,
    }
    for name in ("METEOR", "CIDEr", "BLEU-4", "F1"):
        scores[name] = 100 * words[name]
    counts = [len(predicted.get(video, ())) for video in reference]
    scores["steps"] = float(np.mean(counts))
    scores["texts"] = 100 * _meteor_of_pairs(reference, predicted)
    return scores


def _meteor_of_pairs(reference: Events, predicted: Events) -> float:
    """Return the mean METEOR of paired sentences, 0 without a pair. Roles as officially in SODA."""
    pairs: list[tuple[list[str], str]] = []
    for video, truth in reference.items():
        predictions = list(predicted.get(video, ()))
        iou = segment_iou(
            event_times(list(truth)), event_times(predictions)
        )  # (steps, predictions)
        for step, prediction in zip(*linear_sum_assignment(-iou), strict=True):
            if iou[step, prediction] > 0:
                _, _, sentence = predictions[prediction]
                pairs.append(([sentence], truth[step][2]))
    if not pairs:
        return 0.0
    return float(np.mean(_meteor().compare(pairs).segments))


@lru_cache(maxsize=1)
def _meteor() -> Meteor:
    return Meteor()


def write_reference(path: Path, reference: Events, durations: Mapping[str, float]) -> None:
    """Write the truth in YouCook2's flat form, as `stepline evaluate --reference` reads it."""
    tree = {}
    for video, events in reference.items():
        tree[video] = {
            "duration": durations[video],
            "timestamps": [(start, end) for start, end, _ in events],
            "sentences": [sentence for _, _, sentence in events],
        }
    write_atomic(path, json.dumps(tree) + "\n")


def write_predictions(path: Path, predicted: Events) -> None:
    """Write described videos as `stepline evaluate --predictions` reads them."""
    tree = {}
    for video, events in predicted.items():
        tree[video] = [
            {"timestamp": (start, end), "sentence": sentence} for start, end, sentence in events
        ]
    write_atomic(path, json.dumps({"results": tree}) + "\n")


def score_name(form: str, metric: str) -> str:
    """Return the name under which an outcome holds a metric."""
    return f"{form} {metric}"


@dataclass
class BestWeights:
    """The weights of the network that scored best on validation videos, empty before the first score."""

    weights: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, network: nn.Module) -> None:
        """Copy the network's weights over those that were kept."""
        self.weights = {name: weight.clone() for name, weight in network.state_dict().items()}

    def restore(self, network: nn.Module) -> None:
        """Load the kept weights. Without a score the network stays as it is."""
        if self.weights:
            network.load_state_dict(self.weights)


@dataclass(frozen=True)
class ProcxTrials(TrialStore[ProcxTrial]):
    """Trials kept with their networks and with what these described.

    forms: what a pre-training alone is scored on.
    """

    forms: Sequence[Form] = BENCHMARK_FORMS

    def run(self, trial: ProcxTrial, folder: Path) -> Outcome:
        """Train and score a trial, on from the network of its pre-training where it has one."""
        corpus = procx_corpus(trial.seed, trial.size, self.folder)
        began = time.process_time()
        start = None if trial.start is None else self.network(trial.start, corpus)
        curve: list[Progress] = []
        network = _trained(trial, corpus, start, folder / "training", curve)
        seconds = time.process_time() - began
        save_file(network.state_dict(), folder / "network.safetensors")
        forms = self.forms if trial.zero_shot else (trial.form,)
        scores, counted = _scored(trial, network, corpus, folder, forms)
        for progress in curve:
            if progress.score is not None:
                scores[f"validation {progress.step}"] = 100 * progress.score
        return Outcome(scores, seconds, counted)

    def network(self, trial: ProcxTrial, corpus: ProcxCorpus) -> ProcX:
        """Return the network that a trial trained, in evaluation mode."""
        self.outcome(trial)
        network = fresh_network(trial, corpus)
        network.load_state_dict(load_file(self.folder / trial.key / "network.safetensors"))
        network.eval()
        return network


def words_scorer(
    samples: Sequence[StepSample], keep: Callable[[nn.Module], None], vocabulary: Vocabulary
) -> HeldOutScorer[StepSample]:
    """Return the scorer of validation videos: the mean of SODA-D and SODA-C of the steps that are
    described."""

    def measure(network: nn.Module, batch: Sequence[StepSample]) -> tuple[float, float]:
        truth: dict[str, list[Event]] = {}
        for sample in batch:
            rows = zip(sample.spans, sample.sentences, strict=True)
            truth[sample.id] = [(start, end, sentence) for (start, end), sentence in rows]
        videos = [
            VideoToDescribe(sample.values, sample.duration, sample.duration) for sample in batch
        ]
        events: dict[str, list[Event]] = {}
        for sample, description in zip(
            batch, describe_videos(network, vocabulary, videos), strict=True
        ):
            spans = [(step.spans[0], step.text) for step in description.steps]
            events[sample.id] = [(span.start, span.end, text) for span, text in spans]
        score = (soda(truth, events, kind="d").f1 + soda(truth, events, kind="c").f1) / 2
        return score * len(batch), float(len(batch))

    return HeldOutScorer(samples, SCORING_BATCH, measure, keep)


def _trained(
    trial: ProcxTrial, corpus: ProcxCorpus, start: ProcX | None, folder: Path, curve: list[Progress]
) -> ProcX:
    """Return the trained network, the best on validation videos where it has `patience`.

    curve: gets the progress of every step.
    """
    samples = training_samples(trial, corpus)
    best = BestWeights()
    scorer = None
    if trial.patience:
        validation = corpus.captioned[trial.form].validation
        scorer = words_scorer(validation, best.keep, corpus.vocabulary)
    try:
        network = train_procx(
            samples,
            folder,
            vocabulary=corpus.vocabulary,
            model=model_of(trial),
            loss=loss_of(trial),
            settings=training(trial, len(samples)),
            start=start,
            scorer=scorer,
            report=curve.append,
        )
        best.restore(network)
        return network
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def training_samples(trial: ProcxTrial, corpus: ProcxCorpus) -> list[StepSample]:
    """Return what a trial is trained on itself."""
    samples = corpus.captioned[trial.form].train
    if trial.zero_shot:
        samples = first_fraction(corpus.narrated[trial.pretraining or "raw"], trial.narrated_share)
    return list(samples)


def training(trial: ProcxTrial, count: int) -> ProcxTrainSettings:
    """Return a training of about the size's steps, in whole epochs, for any number of samples."""
    size = trial.size
    steps = size.steps
    rate = size.learning_rate
    if trial.start is not None:
        steps = size.finetuning_steps
        rate = size.finetuning_rate
    if trial.zero_shot:
        steps = size.pretraining_steps
    steps = trial.steps or steps
    # whole epochs
    batches = math.ceil(count / size.batch)
    epochs = max(1, round(steps / batches))
    own = {
        "epochs": epochs,
        "batch": size.batch,
        "learning_rate": trial.rate or rate,
        "clip": size.clip,
        "seed": trial.seed if trial.network_seed is None else trial.network_seed,
        "readers": 0,
        "save_every": SAVE_STEPS,
        "device": "cpu",
        "patience": trial.patience,
        "score_every": max(1, round(VALIDATION_STEPS / batches)),
    }
    return ProcxTrainSettings().model_copy(update=own)


def _scored(
    trial: ProcxTrial, network: ProcX, corpus: ProcxCorpus, folder: Path, forms: Sequence[Form]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the metrics on the withheld videos, and what is counted. It also writes what was described."""
    scores: dict[str, float] = {}
    counted: Counter[str] = Counter()
    settings = DescribeSettings(caption_weight=1.0 if trial.system == "pdvc" else 0.0)
    for form in forms:
        part = corpus.captioned[form]
        durations = {sample.id: sample.duration for sample in part.test}
        write_reference(folder / f"{form}.json", part.reference, durations)
        clips = [
            VideoToDescribe(sample.values, sample.duration, sample.duration) for sample in part.test
        ]
        descriptions = describe_videos(network, corpus.vocabulary, clips, settings)
        events = events_by_video(part.test, descriptions)
        write_predictions(folder / f"{form}-predicted.json", events)
        for metric, value in score_events(part.reference, events).items():
            scores[score_name(form, metric)] = value
        counted["chosen, no step"] += sum(len(each.dropped) for each in descriptions)
    counted["samples"] = len(training_samples(trial, corpus))
    return scores, dict(counted)


def events_by_video(
    samples: Sequence[StepSample], descriptions: Sequence[Description]
) -> dict[str, list[Event]]:
    """Return the described steps of every sample: id -> (start, end, sentence)."""
    events: dict[str, list[Event]] = {}
    for sample, description in zip(samples, descriptions, strict=True):
        events[sample.id] = []
        for step in description.steps:
            span = step.spans[0]
            events[sample.id].append((span.start, span.end, step.text))
    return events
