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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file
from scipy.optimize import linear_sum_assignment

from lab.procx.corpus import Captioned, ProcxCorpus, events_of, first_fraction, procx_corpus
from lab.procx.rows import BENCHMARK_FORMS, SELECTION_NAMES, Attention, Form, ProcxTrial, Selection
from lab.procx.tiling import tiling_selector
from lab.procx.validation import BestWeights
from lab.procx.vid2seq import (
    SMALL_VID2SEQ,
    TimedVocabulary,
    Vid2Seq,
    Vid2SeqSettings,
    VideoInput,
    pack_sequences,
    predict_steps,
    train_vid2seq,
    vid2seq_sample,
)
from lab.study import Outcome, TrialStore
from stepline.evaluate.bootstrap import Floats
from stepline.evaluate.dense_captioning import densevid
from stepline.evaluate.events import Event, segment_iou, times
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.soda import soda
from stepline.files.atomic_files import write_atomic
from stepline.models.procx.batch import StepSample
from stepline.models.procx.inference import (
    Description,
    Proposals,
    ProposalSelector,
    VideoToDescribe,
    describe_many,
)
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    PDVC_LOSSES,
    PROCX_TRAINING,
    AttentionSettings,
    CaptionerSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
    ProcxTrainSettings,
)
from stepline.models.procx.train import train_procx
from stepline.models.training.loop import Progress

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
    attention = AttentionSettings(
        width=size.width, heads=size.heads, form=encoder, query_start=trial.query_start
    )
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
    own: dict[str, object] = {
        "role_weight": trial.role_weight,
        "overlap_weight": trial.overlap_weight,
    }
    if trial.caption_weight is not None:
        own["caption_weight"] = trial.caption_weight
    if trial.system == "pdvc":
        return PDVC_LOSSES.model_copy(update=own)
    own["confidence"] = trial.confidence
    if trial.contrast == "none":
        own["contrast_weight"] = 0.0
    else:
        own["contrast"] = trial.contrast
    return LossSettings.model_validate(own)


def vid2seq_of(trial: ProcxTrial) -> Vid2SeqSettings:
    """Return the sequence baseline of the trial's size."""
    size = trial.size
    own = {
        "features": size.features,
        "rows": size.rows,
        "width": size.width,
        "heads": size.heads,
        "video_layers": size.layers,
        "writer_layers": size.layers,
        "feed_forward": 2 * size.width,
    }
    return SMALL_VID2SEQ.model_copy(update=own)


def fresh_network(trial: ProcxTrial, corpus: ProcxCorpus) -> ProcX | Vid2Seq:
    """Return the trial's network with fresh weights."""
    if trial.system == "vid2seq":
        settings = vid2seq_of(trial)
        return Vid2Seq(settings, len(TimedVocabulary(corpus.vocabulary, settings.bins)))
    return ProcX(model_of(trial), len(corpus.vocabulary))


# The order of the paper's columns.
METRIC_NAMES = ("SODA-C", "METEOR", "CIDEr", "BLEU-4", "SODA-D", "F1")

Events = Mapping[str, Sequence[Event]]


def score_events(reference: Events, predicted: Events) -> dict[str, float]:
    """Return the metrics of `METRIC_NAMES`, "steps" and "texts".

    Both arguments are id -> (start, end, sentence). steps: predicted per video. texts: METEOR of
    the sentences alone. The steps are paired one to one by IoU, however little it is.
    """
    words = densevid([reference], predicted, meteor=_meteor()).mean
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
        iou = segment_iou(times(list(truth)), times(predictions))  # (steps, predictions)
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


def oracle_selection(truth: Sequence[Sequence[Event]]) -> ProposalSelector:
    """Return the selector that reads the truth: proposals are paired with steps one to one by IoU.

    ProcX section 5 measures with it how much ranking by confidence loses.
    """

    def selector(number: int, proposals: Proposals) -> tuple[list[int], Floats]:
        true_spans = times(list(truth[number]))
        iou = segment_iou(true_spans, proposals.boxes)  # (steps, queries)
        _, queries = linear_sum_assignment(-iou)
        ordered = sorted(queries.tolist(), key=lambda query: (*proposals.boxes[query], query))
        return ordered, proposals.boxes[ordered]

    return selector


def selector_of(selection: Selection, truth: Sequence[Sequence[Event]]) -> ProposalSelector | None:
    """Return the selector of the steps, None where the settings select.

    truth: steps of every video, for the oracle.
    """
    if selection == "oracle":
        return oracle_selection(truth)
    return tiling_selector() if selection == "tile" else None


def score_name(form: str, selection: Selection, metric: str) -> str:
    """Return the name under which an outcome holds a metric."""
    return f"{form} {selection} {metric}"


@dataclass(frozen=True)
class ProcxTrials(TrialStore[ProcxTrial]):
    """Trials kept with their networks and with what these described.

    selections: how steps are chosen for scoring. forms: what a pre-training alone is scored on.
    """

    selections: Sequence[Selection] = tuple(SELECTION_NAMES)
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
        scores, counted = _scored(trial, network, corpus, folder, forms, self.selections)
        for progress in curve:
            if progress.score is not None:
                scores[f"validation {progress.step}"] = 100 * progress.score
        return Outcome(scores, seconds, counted)

    def network(self, trial: ProcxTrial, corpus: ProcxCorpus) -> ProcX | Vid2Seq:
        """Return the network that a trial trained, in evaluation mode."""
        self.outcome(trial)
        network = fresh_network(trial, corpus)
        network.load_state_dict(load_file(self.folder / trial.key / "network.safetensors"))
        network.eval()
        return network


def _trained(
    trial: ProcxTrial,
    corpus: ProcxCorpus,
    start: ProcX | Vid2Seq | None,
    folder: Path,
    curve: list[Progress],
) -> ProcX | Vid2Seq:
    """Return the trained network, the best on validation videos where it has `patience`.

    curve: gets the progress of every step.
    """
    samples = training_samples(trial, corpus)
    settings = training(trial, len(samples))
    best = BestWeights()
    network: ProcX | Vid2Seq
    try:
        if trial.system == "vid2seq" or isinstance(start, Vid2Seq):
            first = start if isinstance(start, Vid2Seq) else None
            network = _trained_vid2seq(trial, corpus, samples, settings, first, folder, best, curve)
        else:
            validation = corpus.captioned[trial.form].validation
            network = train_procx(
                samples,
                folder,
                vocabulary=corpus.vocabulary,
                model=model_of(trial),
                loss=loss_of(trial),
                settings=settings,
                start=start,
                scorer=best.scorer(validation, corpus.vocabulary) if trial.patience else None,
                report=curve.append,
            )
        best.restore(network)
        return network
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _trained_vid2seq(
    trial: ProcxTrial,
    corpus: ProcxCorpus,
    samples: Sequence[StepSample],
    settings: ProcxTrainSettings,
    start: Vid2Seq | None,
    folder: Path,
    best: BestWeights,
    curve: list[Progress],
) -> Vid2Seq:
    """Return the trained sequence baseline, on from `start` where there is one."""
    part = corpus.captioned[trial.form]
    own_samples = []
    for sample in samples:
        narration = part.speech[sample.id] if trial.speech else None
        own_samples.append(vid2seq_sample(sample, narration))
    model = vid2seq_of(trial)
    vocabulary = TimedVocabulary(corpus.vocabulary, model.bins)
    return train_vid2seq(
        own_samples,
        folder,
        vocabulary=vocabulary,
        model=model,
        settings=settings,
        start=start,
        scorer=best.vid2seq_scorer(part.validation, vocabulary) if trial.patience else None,
        report=curve.append,
    )


def training_samples(trial: ProcxTrial, corpus: ProcxCorpus) -> list[StepSample]:
    """Return what a trial is trained on itself. Speech goes with it only where it is read."""
    if trial.zero_shot:
        samples = first_fraction(corpus.samples(trial.pretraining or "raw"), trial.narrated_share)
    else:
        samples = first_fraction(corpus.captioned[trial.form].train, trial.captioned_share)
    if trial.speech:
        return list(samples)
    return [replace(sample, speech=None) for sample in samples]


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
        "offset_rate": trial.offset_rate,
        "patience": trial.patience,
        "score_every": max(1, round(VALIDATION_STEPS / batches)),
    }
    return PROCX_TRAINING.model_copy(update=own)


def _scored(
    trial: ProcxTrial,
    network: ProcX | Vid2Seq,
    corpus: ProcxCorpus,
    folder: Path,
    forms: Sequence[Form],
    selections: Sequence[Selection],
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the metrics of every selection of steps in the withheld videos, and what is counted.

    It also writes what was described.
    """
    scores: dict[str, float] = {}
    counted: Counter[str] = Counter()
    for form in forms:
        part = corpus.captioned[form]
        durations = {sample.id: sample.duration for sample in part.test}
        write_reference(folder / f"{form}.json", part.reference, durations)
        described = _described(trial, network, corpus, part, selections, counted)
        for selection, events in described.items():
            write_predictions(folder / f"{form}-{selection}.json", events)
            for metric, value in score_events(part.reference, events).items():
                scores[score_name(form, selection, metric)] = value
    counted["samples"] = len(training_samples(trial, corpus))
    return scores, dict(counted)


def _described(
    trial: ProcxTrial,
    network: ProcX | Vid2Seq,
    corpus: ProcxCorpus,
    part: Captioned,
    selections: Sequence[Selection],
    counted: Counter[str],
) -> dict[Selection, dict[str, list[Event]]]:
    """Return the described videos, by how their steps were chosen."""
    if isinstance(network, Vid2Seq):
        return {"surest": _described_by_vid2seq(trial, network, corpus, part, counted)}
    clips = []
    for sample in part.test:
        speech = tuple(part.speech[sample.id]) if trial.speech else ()
        clips.append(VideoToDescribe(sample.values, sample.duration, sample.duration, speech))
    truth = [events_of(sample) for sample in part.test]

    # PDVC ranks by its captions too, where it learns them
    learns_captions = trial.caption_weight != 0.0
    events: dict[Selection, dict[str, list[Event]]] = {}
    for selection in selections:
        by_captions = trial.system == "pdvc" and selection == "surest" and learns_captions
        settings = DescribeSettings(
            choose="apart" if selection == "apart" else "surest",
            speech=trial.speech,
            caption_weight=1.0 if by_captions else 0.0,
        )
        selector = selector_of(selection, truth)
        descriptions = describe_many(network, corpus.vocabulary, clips, settings, selector=selector)
        events[selection] = events_by_video(part.test, descriptions)
        dropped = sum(len(description.dropped) for description in descriptions)
        counted[f"{selection}: chosen, no step"] += dropped
    return events


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


def _described_by_vid2seq(
    trial: ProcxTrial, network: Vid2Seq, corpus: ProcxCorpus, part: Captioned, counted: Counter[str]
) -> dict[str, list[Event]]:
    """Return what the sequence baseline writes. What was malformed is counted by its reason."""
    vocabulary = TimedVocabulary(corpus.vocabulary, network.settings.bins)
    videos = []
    for sample in part.test:
        speech = tuple(part.speech[sample.id]) if trial.speech else None
        videos.append(VideoInput(sample.values, sample.duration, speech))
    events = {}
    for sample, parsed in zip(part.test, predict_steps(network, vocabulary, videos), strict=True):
        events[sample.id] = list(parsed.events)
        counted.update(f"malformed: {row.reason}" for row in parsed.dropped)

    # training sequences that are longer than the network's places
    samples = [vid2seq_sample(sample) for sample in training_samples(trial, corpus)]
    packed = pack_sequences(samples, vocabulary, network.settings.longest)
    counted["sequences cut"] = packed.truncated
    return events
