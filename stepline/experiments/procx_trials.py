"""Running ProcX's trials: each trained once, its result and its network kept on disk under the name of its content."""

import json
import logging
import math
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from safetensors.torch import load_file, save_file

from stepline.evaluate.events import Event
from stepline.experiments.procx_corpus import Captioned, ProcxCorpus, events_of, procx_corpus, share
from stepline.experiments.procx_networks import fresh, loss_of, model_of, vid2seq_of
from stepline.experiments.procx_scores import oracle, score_events, view_name, write_predictions, write_reference
from stepline.experiments.procx_trial import FORMS, ProcxTrial, View
from stepline.procx.batch import Sample
from stepline.procx.describe import Clip, describe_many
from stepline.procx.describe_settings import DescribeSettings
from stepline.procx.model import ProcX
from stepline.procx.run_settings import PROCX_TRAINING
from stepline.procx.train import train_procx
from stepline.procx.vid2seq import Vid2Seq
from stepline.procx.vid2seq_sequence import Alphabet
from stepline.procx.vid2seq_train import Watched, sequences, tell, told, train_vid2seq
from stepline.store import write_atomic
from stepline.training_settings import TrainSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcxOutcome:
    """What a trial gave: metrics by form, view and name; CPU seconds of its own training; what else was counted."""

    scores: Mapping[str, float]
    cpu_seconds: float
    counted: Mapping[str, int] = field(default_factory=dict)


def run_trial(trial: ProcxTrial, folder: Path) -> ProcxOutcome:
    """Return what a trial gives, from disk where it has been run; its pre-training is run before it."""
    path = folder / trial.key / "outcome.json"
    if not path.exists():
        if trial.start is not None:
            run_trial(trial.start, folder)
        corpus = procx_corpus(trial.seed, trial.size, folder)
        began = time.process_time()
        network = _trained(trial, corpus, folder)
        seconds = time.process_time() - began
        save_file(network.state_dict(), folder / trial.key / "network.safetensors")
        scores, counted = _scored(trial, network, corpus, folder / trial.key)
        tree = {"trial": trial.model_dump(mode="json"), **asdict(ProcxOutcome(scores, seconds, counted))}
        write_atomic(path, json.dumps(tree, indent=1) + "\n")
        log.info("%s: %.0f CPU s, %s", trial.key, seconds, {name: round(value, 1) for name, value in scores.items()})
    tree = json.loads(path.read_text(encoding="utf-8"))
    return ProcxOutcome(tree["scores"], tree["cpu_seconds"], tree["counted"])


def has_run(trial: ProcxTrial, folder: Path) -> bool:
    """Tell whether a trial's result, and that of its pre-training, are there."""
    every = (trial, *([trial.start] if trial.start is not None else ()))
    return all((folder / one.key / "outcome.json").exists() for one in every)


def network_of(trial: ProcxTrial, corpus: ProcxCorpus, folder: Path) -> ProcX | Vid2Seq:
    """Return the network that a trial trained, at rest."""
    run_trial(trial, folder)
    network = fresh(trial, corpus)
    network.load_state_dict(load_file(folder / trial.key / "network.safetensors"))
    network.eval()
    return network


def _trained(trial: ProcxTrial, corpus: ProcxCorpus, folder: Path) -> ProcX | Vid2Seq:
    """Return the network, trained on from that of its pre-training where it has one."""
    start = None if trial.start is None else network_of(trial.start, corpus, folder)
    samples = lessons(trial, corpus)
    place = folder / trial.key / "training"
    settings = training(trial, len(samples))
    try:
        if isinstance(start, Vid2Seq) or trial.system == "vid2seq":
            speech = corpus.captioned[trial.form].speech if trial.speech else None
            given = [told(one, None if speech is None else speech[one.id]) for one in samples]
            alphabet = Alphabet(corpus.vocabulary, vid2seq_of(trial).bins)
            return train_vid2seq(
                given, place, alphabet=alphabet, model=vid2seq_of(trial), settings=settings,
                start=start if isinstance(start, Vid2Seq) else None,
            )  # fmt: skip
        return train_procx(
            samples, place, vocabulary=corpus.vocabulary, model=model_of(trial), loss=loss_of(trial),
            settings=settings, start=start,
        )  # fmt: skip
    finally:
        shutil.rmtree(place, ignore_errors=True)


def lessons(trial: ProcxTrial, corpus: ProcxCorpus) -> list[Sample]:
    """Return what a trial is trained on itself; what is said goes with it only where that is read."""
    if trial.zero_shot:
        samples = share(corpus.narrated[trial.pretraining or "raw"], trial.narrated_share)
    else:
        samples = share(corpus.captioned[trial.form].train, trial.captioned_share)
    return [one if trial.speech else replace(one, said=None) for one in samples]


def training(trial: ProcxTrial, count: int) -> TrainSettings:
    """Return a training of about the size's steps, in whole epochs, whatever the number of samples."""
    size = trial.size
    steps = size.pretraining_steps if trial.zero_shot else size.finetuning_steps
    epochs = max(1, round(steps / math.ceil(count / size.batch)))
    own = {
        "epochs": epochs, "batch": size.batch, "learning_rate": size.learning_rate, "clip": size.clip,
        "seed": trial.seed, "readers": 0, "save_every": 1_000_000, "device": "cpu",
    }  # fmt: skip
    return PROCX_TRAINING.model_copy(update=own)


def _scored(
    trial: ProcxTrial, network: ProcX | Vid2Seq, corpus: ProcxCorpus, place: Path
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the metrics of every view of the withheld videos; what was described is written beside."""
    scores: dict[str, float] = {}
    counted: Counter[str] = Counter()
    for form in FORMS if trial.zero_shot else (trial.form,):
        part = corpus.captioned[form]
        write_reference(place / f"{form}.json", part.reference, {one.id: one.duration for one in part.test})
        for view, given in _views(trial, network, corpus, part, counted).items():
            write_predictions(place / f"{form}-{view}.json", given)
            found = score_events(part.reference, given)
            scores |= {view_name(form, view, metric): value for metric, value in found.items()}
    counted["samples"] = len(lessons(trial, corpus))
    return scores, dict(counted)


def _views(
    trial: ProcxTrial, network: ProcX | Vid2Seq, corpus: ProcxCorpus, part: Captioned, counted: Counter[str]
) -> dict[View, dict[str, list[Event]]]:
    """Return the described videos, by how their steps were chosen."""
    if isinstance(network, Vid2Seq):
        return {"surest": _told(trial, network, corpus, part, counted)}
    clips = [
        Clip(one.values, one.duration, one.duration, tuple(part.speech[one.id]) if trial.speech else ())
        for one in part.test
    ]
    truth = [events_of(one) for one in part.test]
    found: dict[View, dict[str, list[Event]]] = {}
    for view in ("surest", "apart", "oracle"):
        settings = DescribeSettings(
            choose="apart" if view == "apart" else "surest", speech=trial.speech,
            caption_weight=1.0 if trial.system == "pdvc" and view == "surest" else 0.0,   # as PDVC ranks
        )  # fmt: skip
        chooser = oracle(truth) if view == "oracle" else None
        described = describe_many(network, corpus.vocabulary, clips, settings, chooser=chooser)
        found[view] = {
            one.id: [(step.spans[0].start, step.spans[0].end, step.text) for step in each.steps]
            for one, each in zip(part.test, described, strict=True)
        }
        counted[f"{view}: chosen, no step"] += sum(len(each.dropped) for each in described)
    return found


def _told(
    trial: ProcxTrial, network: Vid2Seq, corpus: ProcxCorpus, part: Captioned, counted: Counter[str]
) -> dict[str, list[Event]]:
    """Return what the sequence baseline writes; what was malformed is counted by its reason."""
    alphabet = Alphabet(corpus.vocabulary, network.settings.bins)
    watched = [
        Watched(one.values, one.duration, tuple(part.speech[one.id]) if trial.speech else None) for one in part.test
    ]
    parsed = tell(network, alphabet, watched)
    counted.update(f"malformed: {row.reason}" for one in parsed for row in one.dropped)
    longest = network.settings.longest
    counted["sequences cut"] = sequences([told(one) for one in lessons(trial, corpus)], alphabet, longest).cut
    return {one.id: list(each.events) for one, each in zip(part.test, parsed, strict=True)}
