"""Running ProcX's trials: their networks and losses, training, and scores as `stepline evaluate`
gives them.

Described videos are scored as `stepline evaluate youcook2` and `tasty` do: SODA-C, SODA-D and
densevid_eval. The convention is "stepline": every withheld video counts, one without a prediction
0. All in per cent.

How attention spreads over the points that it samples, with and without a look at the keys (ProcX,
figure 3). A query and head spreads over exp(entropy of its weights) points, 1 where one point has
all, 16 where all are alike. Letters: B videos, N queries, H heads, L levels, P points, D width of a
head.
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
import torch
from safetensors.torch import load_file, save_file
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from research.procx.corpus import Captioned, ProcxCorpus, events_of, first_fraction, procx_corpus
from research.procx.rows import (
    BENCHMARK_FORMS,
    SELECTION_NAMES,
    Attention,
    Form,
    ProcxTrial,
    Selection,
)
from research.procx.tiling import tiling_selector
from research.procx.vid2seq import (
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
from research.study import Outcome, TrialStore
from stepline.atomic_files import write_atomic
from stepline.evaluate.bootstrap import Floats
from stepline.evaluate.dense_captioning import densevid
from stepline.evaluate.events import Event, segment_iou, times
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.soda import soda
from stepline.plots import grouped_histogram, plot_style
from stepline.procx.batch import StepSample, stack_videos
from stepline.procx.deformable_attention import (
    DeformableAttention,
    gather_dot_products,
    sampling_points,
)
from stepline.procx.inference import Proposals, ProposalSelector, VideoToDescribe, describe_many
from stepline.procx.model import ProcX
from stepline.procx.settings import (
    PDVC_LOSSES,
    PROCX_TRAINING,
    AttentionSettings,
    CaptionerSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
    ProcxTrainSettings,
)
from stepline.procx.train import soda_scorer, train_procx
from stepline.training.loop import HeldOutScorer, Progress

VALIDATION_STEPS = 300  # about how many steps are between two validation scores
MAX_CAPTION_TOKENS = 32  # tokens of a sentence; what is said has 20


def model_of(trial: ProcxTrial) -> ModelSettings:
    """Return ProcX's network, or PDVC's in full, of the trial's size."""
    size, pdvc = trial.size, trial.system == "pdvc"
    kind = "lstm" if pdvc else trial.captioner
    encoder: Attention = "vanilla" if pdvc else trial.encoder
    decoder: Attention = "vanilla" if pdvc else trial.decoder
    return ModelSettings(
        features=size.features,
        rows=size.rows,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        attention=AttentionSettings(
            width=size.width, heads=size.heads, form=encoder, query_start=trial.query_start
        ),
        decoder_form=decoder,
        feed_forward=2 * size.width,
        queries=size.queries,
        query_form=trial.query_form,
        most_steps=size.queries,
        fuse=not pdvc,
        captioner=CaptionerSettings(
            kind=kind,
            width=size.width,
            heads=size.heads,
            text_layers=1,
            joint_layers=1,
            feed_forward=2 * size.width,
            projection=size.width // 2,
            longest=MAX_CAPTION_TOKENS,
        ),
    )


def loss_of(trial: ProcxTrial) -> LossSettings:
    """Return what a trial lowers: section E.2's parts and weights, or PDVC's."""
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


# the order of the paper's columns
METRIC_NAMES = ("SODA-C", "METEOR", "CIDEr", "BLEU-4", "SODA-D", "F1")

Events = Mapping[str, Sequence[Event]]


def score_events(reference: Events, given: Events) -> dict[str, float]:
    """Return the metrics of `METRICS`, "steps" and "texts". Both: id -> (start, end, sentence).

    steps: how many a video was given. texts: METEOR of the sentences alone. The steps are
    paired one to one by IoU, however little it is.
    """
    words = densevid([reference], given, meteor=_meteor()).mean
    return {
        "SODA-C": 100 * soda(reference, given, kind="c", meteor=_meteor()).f1,
        "SODA-D": 100 * soda(reference, given, kind="d").f1,
        **{name: 100 * words[name] for name in ("METEOR", "CIDEr", "BLEU-4", "F1")},
        "steps": float(np.mean([len(given.get(video, ())) for video in reference])),
        "texts": 100 * _meteor_of_pairs(reference, given),
    }


def _meteor_of_pairs(reference: Events, given: Events) -> float:
    """Return the mean METEOR of paired sentences, 0 without a pair. Roles as officially in SODA."""
    pairs: list[tuple[list[str], str]] = []
    for video, truth in reference.items():
        told = list(given.get(video, ()))
        agree = segment_iou(times(list(truth)), times(told))  # (steps, told)
        for step, other in zip(*linear_sum_assignment(-agree), strict=True):
            if agree[step, other] > 0:
                pairs.append(([told[other][2]], truth[step][2]))
    return float(np.mean(_meteor().compare(pairs).segments)) if pairs else 0.0


@lru_cache(maxsize=1)
def _meteor() -> Meteor:
    return Meteor()


def write_reference(path: Path, reference: Events, durations: Mapping[str, float]) -> None:
    """Write the truth in YouCook2's flat form, as `stepline evaluate --reference` reads it."""
    tree = {
        video: {
            "duration": durations[video],
            "timestamps": [event[:2] for event in events],
            "sentences": [event[2] for event in events],
        }
        for video, events in reference.items()
    }
    write_atomic(path, json.dumps(tree) + "\n")


def write_predictions(path: Path, given: Events) -> None:
    """Write described videos as `stepline evaluate --predictions` reads them."""
    tree = {
        video: [{"timestamp": event[:2], "sentence": event[2]} for event in events]
        for video, events in given.items()
    }
    write_atomic(path, json.dumps({"results": tree}) + "\n")


def oracle_selection(truth: Sequence[Sequence[Event]]) -> ProposalSelector:
    """Return the selector that knows where the steps are: for each the proposal of a one-to-one
    pairing by IoU.

    ProcX section 5 measures with it how much ranking by confidence loses.
    """

    def selector(number: int, proposals: Proposals) -> tuple[list[int], Floats]:
        wanted = times(list(truth[number]))
        agree = segment_iou(wanted, proposals.boxes)  # (steps, queries)
        _, queries = linear_sum_assignment(-agree)
        ordered = sorted(queries.tolist(), key=lambda query: (*proposals.boxes[query], query))
        return ordered, proposals.boxes[ordered]

    return selector


def selector_of(selection: Selection, truth: Sequence[Sequence[Event]]) -> ProposalSelector | None:
    """Return what chooses the steps. None: the settings do. truth: of each video, for the
    oracle."""
    if selection == "oracle":
        return oracle_selection(truth)
    return tiling_selector() if selection == "tile" else None


def score_name(form: str, selection: Selection, metric: str) -> str:
    """Return the name under which an outcome holds a metric."""
    return f"{form} {selection} {metric}"


@dataclass(frozen=True)
class ProcxTrials(TrialStore[ProcxTrial]):
    """Trials kept with their networks and with what these described.

    selections: how steps are chosen for scoring. forms: those that a pre-training alone is scored
    on.
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


def _validation(
    trial: ProcxTrial, corpus: ProcxCorpus, best: dict[str, Tensor]
) -> HeldOutScorer[StepSample]:
    """Return the scorer of the validation videos, places and words. `best` gets the weights of the
    best network."""

    def keep(network: nn.Module) -> None:
        best.update({name: weight.clone() for name, weight in network.state_dict().items()})

    return soda_scorer(corpus.captioned[trial.form].validation, keep, corpus.vocabulary)


def _trained(
    trial: ProcxTrial,
    corpus: ProcxCorpus,
    start: ProcX | Vid2Seq | None,
    folder: Path,
    curve: list[Progress],
) -> ProcX | Vid2Seq:
    """Return the trained network, the best on validation videos where it has `patience`. `curve`
    gets every step."""
    samples = training_samples(trial, corpus)
    settings = training(trial, len(samples))
    try:
        if isinstance(start, Vid2Seq) or trial.system == "vid2seq":
            speech = corpus.captioned[trial.form].speech if trial.speech else None
            given = [
                vid2seq_sample(one, None if speech is None else speech[one.id]) for one in samples
            ]
            vocabulary = TimedVocabulary(corpus.vocabulary, vid2seq_of(trial).bins)
            return train_vid2seq(
                given,
                folder,
                vocabulary=vocabulary,
                model=vid2seq_of(trial),
                settings=settings,
                start=start if isinstance(start, Vid2Seq) else None,
            )
        best: dict[str, Tensor] = {}
        scorer = _validation(trial, corpus, best) if trial.patience else None
        network = train_procx(
            samples,
            folder,
            vocabulary=corpus.vocabulary,
            model=model_of(trial),
            loss=loss_of(trial),
            settings=settings,
            start=start,
            scorer=scorer,
            report=curve.append,
        )
        if best:
            network.load_state_dict(best)
        return network
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def training_samples(trial: ProcxTrial, corpus: ProcxCorpus) -> list[StepSample]:
    """Return what a trial is trained on itself. What is said goes with it only where that is
    read."""
    if trial.zero_shot:
        samples = first_fraction(corpus.samples(trial.pretraining or "raw"), trial.narrated_share)
    else:
        samples = first_fraction(corpus.captioned[trial.form].train, trial.captioned_share)
    return [one if trial.speech else replace(one, speech=None) for one in samples]


def training(trial: ProcxTrial, count: int) -> ProcxTrainSettings:
    """Return a training of about the size's steps, in whole epochs, whatever the number of
    samples."""
    size, pretrained = trial.size, trial.start is not None
    steps = trial.steps or (size.finetuning_steps if pretrained else size.steps)
    rate = size.finetuning_rate if pretrained else size.learning_rate
    batches = math.ceil(count / size.batch)
    epochs = max(1, round((size.pretraining_steps if trial.zero_shot else steps) / batches))
    own = {
        "epochs": epochs,
        "batch": size.batch,
        "learning_rate": trial.rate or rate,
        "clip": size.clip,
        "seed": trial.seed if trial.network_seed is None else trial.network_seed,
        "readers": 0,
        "save_every": 1_000_000,
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
    """Return the metrics of every selection of steps in the withheld videos. What was described is
    also written."""
    scores: dict[str, float] = {}
    counted: Counter[str] = Counter()
    for form in forms:
        part = corpus.captioned[form]
        write_reference(
            folder / f"{form}.json", part.reference, {one.id: one.duration for one in part.test}
        )
        for selection, given in _described(
            trial, network, corpus, part, selections, counted
        ).items():
            write_predictions(folder / f"{form}-{selection}.json", given)
            found = score_events(part.reference, given)
            scores |= {
                score_name(form, selection, metric): value for metric, value in found.items()
            }
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
    clips = [
        VideoToDescribe(
            one.values,
            one.duration,
            one.duration,
            tuple(part.speech[one.id]) if trial.speech else (),
        )
        for one in part.test
    ]
    truth = [events_of(one) for one in part.test]
    found: dict[Selection, dict[str, list[Event]]] = {}
    for selection in selections:
        # as PDVC ranks
        by_captions = (
            trial.system == "pdvc" and selection == "surest" and trial.caption_weight != 0.0
        )
        settings = DescribeSettings(
            choose="apart" if selection == "apart" else "surest",
            speech=trial.speech,
            caption_weight=1.0 if by_captions else 0.0,
        )
        selector = selector_of(selection, truth)
        described = describe_many(network, corpus.vocabulary, clips, settings, selector=selector)
        found[selection] = {
            one.id: [(step.spans[0].start, step.spans[0].end, step.text) for step in each.steps]
            for one, each in zip(part.test, described, strict=True)
        }
        counted[f"{selection}: chosen, no step"] += sum(len(each.dropped) for each in described)
    return found


def _described_by_vid2seq(
    trial: ProcxTrial, network: Vid2Seq, corpus: ProcxCorpus, part: Captioned, counted: Counter[str]
) -> dict[str, list[Event]]:
    """Return what the sequence baseline writes. What was malformed is counted by its reason."""
    vocabulary = TimedVocabulary(corpus.vocabulary, network.settings.bins)
    watched = [
        VideoInput(one.values, one.duration, tuple(part.speech[one.id]) if trial.speech else None)
        for one in part.test
    ]
    parsed = predict_steps(network, vocabulary, watched)
    counted.update(f"malformed: {row.reason}" for one in parsed for row in one.dropped)
    longest = network.settings.longest
    counted["sequences cut"] = pack_sequences(
        [vid2seq_sample(one) for one in training_samples(trial, corpus)], vocabulary, longest
    ).truncated
    return {one.id: list(each.events) for one, each in zip(part.test, parsed, strict=True)}


BATCH_VIDEOS = 16  # videos


@torch.no_grad()  # type: ignore[untyped-decorator]   # torch is untyped to mypy here
def spread_points(network: ProcX, samples: Sequence[StepSample]) -> Floats:
    """Return over how many points each query and head of the last decoder layer spreads, (videos N
    H,)."""
    found: list[Tensor] = []

    def look(
        module: DeformableAttention, given: tuple[Tensor, Tensor, Tensor, Sequence[int]], _: Tensor
    ) -> None:
        weights = point_weights(module, *given[:4])
        found.append(torch.special.entr(weights).sum(dim=-1).exp().flatten())

    handle = network.decoder[-1].attention.register_forward_hook(look)
    try:
        for first in range(0, len(samples), BATCH_VIDEOS):
            part = samples[first : first + BATCH_VIDEOS]
            network(
                stack_videos(
                    [one.values for one in part],
                    [one.duration for one in part],
                    network.settings.rows,
                )
            )
    finally:
        handle.remove()
    spread: Floats = torch.cat(found).double().numpy()
    return spread


def point_weights(
    module: DeformableAttention,
    query: Tensor,
    references: Tensor,
    memory: Tensor,
    lengths: Sequence[int],
) -> Tensor:
    """Return what each sampled point counts, (B, N, H, L P), summing to 1: equation 10 or 12."""
    heads = module.settings.heads
    if module.settings.form == "vanilla":
        weights: Tensor = module.weights(query).unflatten(-1, (heads, -1)).softmax(dim=-1)
        return weights
    read = sampling_points(
        module.locations(query, references, lengths),
        lengths,
        module.settings.padding,
        backward=False,
    )
    key, asked = (
        part.unflatten(-1, (heads, -1)) for part in (module.key(memory), module.query(query))
    )
    return (gather_dot_products(asked, key, read) / math.sqrt(asked.shape[-1])).softmax(dim=-1)


def spread_plot(spreads: dict[str, Floats]) -> str:
    """Return the histograms of several networks as one self-contained SVG file."""
    series = {
        name: Counter(np.rint(2 * points).astype(int).tolist()) for name, points in spreads.items()
    }
    counts = {
        name: {str(key): count for key, count in sorted(found.items())}
        for name, found in series.items()
    }
    svg = grouped_histogram(counts, "points over which a query and head spreads", bar=0.5)
    opened, rest = svg.split(">", 1)
    return f'{opened} xmlns="http://www.w3.org/2000/svg"><style>{plot_style()}</style>{rest}\n'
