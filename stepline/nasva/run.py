"""A training run as one folder: what went in, how it went, and the networks that came out.

run.json              settings, sources, versions, counts; another run does not go on in this folder
omitted.jsonl         the videos that are no sample, each with its reason
vectors/{kind}        text vectors that the run made itself
log.jsonl, events     loss, learning rate and held-out score a step
last.safetensors      what the next step needs; best.safetensors, aligner.safetensors: networks, best and final
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, SettingsError, ShapeError
from stepline.features import FeatureStore
from stepline.nasva.checkpoint import read_aligner, write_aligner
from stepline.nasva.held_out import aligner_judge
from stepline.nasva.model import Aligner
from stepline.nasva.model_settings import ModelSettings
from stepline.nasva.official import import_official
from stepline.nasva.run_settings import RunSettings
from stepline.nasva.samples import AlignerSamples, gather_samples
from stepline.nasva.text_vectors import store_vectors, text_encoder
from stepline.nasva.told import Told, is_store, read_told
from stepline.nasva.train import train_aligner
from stepline.store import write_atomic
from stepline.training import Judge, Progress, first_then_all, is_first, start_processes
from stepline.training.run_file import claim_run, lasting
from stepline.training_settings import Kind

OMITTED, BEST, FINAL = "omitted.jsonl", "best.safetensors", "aligner.safetensors"
KINDS: tuple[Kind, ...] = ("narration", "step")
DROPS = ("dropout", "attention_dropout")  # settings of a network that may change when it is trained on


@dataclass(frozen=True)
class Sources:
    """What a run reads. features: a store; narrations, steps: as `read_told` takes them; each one's vectors: a store of
    text features, or an encoder as `text_encoder` takes it; excluded: lists that `stepline excluded` wrote.
    """

    features: Path
    narrations: str | None = None
    steps: str | None = None
    narration_vectors: str | None = None
    step_vectors: str | None = None
    excluded: tuple[Path, ...] = ()

    def of(self, kind: Kind) -> str | None:
        """Return where the texts of a kind come from."""
        return self.narrations if kind == "narration" else self.steps

    def vectors(self, kind: Kind) -> str:
        """Return where their vectors come from: the store itself where texts come from one, else MiniLM."""
        source = self.of(kind) or ""
        given = self.narration_vectors if kind == "narration" else self.step_vectors
        return given or (source if is_store(Path(source)) else "minilm")


@dataclass(frozen=True)
class Prepared:
    """A run before its first step: samples to train on and held out, and the network that starts."""

    samples: AlignerSamples
    held_out: AlignerSamples
    network: Aligner


def train_run(
    sources: Sources,
    folder: Path,
    settings: RunSettings,
    *,
    start: Path | None = None,
    report: Callable[[Progress], None] | None = None,
    told: Callable[[Prepared], None] | None = None,
) -> Aligner:
    """Train, or go on training, and return the network; start: one to train on, ours or the authors' .pth.

    told: is called before the first step. Under torchrun the processes share the work; the first one writes.
    Raises SettingsError when `folder` holds another run, ShapeError when nothing is left to train on, and what the
    sources raise.
    """
    device = start_processes(settings.train.device)
    prepared = prepare(sources, folder, settings, start)
    if is_first():
        _claim(sources, folder, settings, start, prepared)
    if told is not None:
        told(prepared)
    network = train_aligner(
        prepared.samples,
        folder,
        start=prepared.network,
        loss=settings.loss,
        settings=settings.train,
        report=report,
        judge=_judge(prepared, folder, settings),
        device=device,
    )
    if is_first():
        write_aligner(network, folder / FINAL, prepared.samples.space())
    return network


def prepare(sources: Sources, folder: Path, settings: RunSettings, start: Path | None = None) -> Prepared:
    """Return all that a run starts from."""
    kinds = [kind for kind in KINDS if sources.of(kind) is not None]
    if not kinds:
        raise DatasetError("no texts to train on; give --narrations, --steps or both")
    features = _video_features(sources.features)
    vectors = {kind: first_then_all(partial(_vectors, sources, kind, settings, folder)) for kind in kinds}
    told = (each for kind in kinds for each in _told(sources, kind, settings))
    samples = gather_samples(told, features, vectors, settings.data, excluded=read_excluded(sources.excluded))
    widths = samples.widths()
    kept, held_out = samples.split(settings.data.held_out)
    return Prepared(kept, held_out, starting_network(settings, widths, start))


def _video_features(path: Path) -> FeatureStore:
    features = FeatureStore(path)
    if features.lines(next(iter(features))) is not None:
        raise DatasetError(f"{path}: holds features of texts, not of videos; give the store of the videos' features")
    return features


def starting_network(settings: RunSettings, widths: tuple[int, int], start: Path | None) -> Aligner:
    """Return a fresh network for features of these widths, or the one in a file. Raises where they do not fit."""
    asked = {name: getattr(settings.model, name) for name in settings.model.model_fields_set}
    if start is None:
        sizes = dict(zip(("video_width", "text_width"), widths, strict=True))
        for name in sizes.keys() & asked.keys():
            if asked[name] != sizes[name]:
                raise ShapeError(f"model.{name}={asked[name]}, the features have {sizes[name]}; leave the setting out")
        torch.manual_seed(settings.train.seed)  # of fresh weights
        return Aligner(settings.model.model_copy(update=sizes))
    network = read_start(start)
    found = network.settings
    for name, value in asked.items():
        if name not in DROPS and getattr(found, name) != value:
            cure = "it is the checkpoint's own; leave it out, or leave --start out"
            raise SettingsError(f"model.{name}={value}, {start} has {getattr(found, name)}; {cure}")
    if (found.video_width, found.text_width) != widths:
        takes = f"{found.video_width} and {found.text_width} wide"
        cure = "give the features that it was trained on"
        raise ShapeError(f"{start}: takes video and text features {takes}, not {widths[0]} and {widths[1]}; {cure}")
    return _with_drops(network, {name: value for name, value in asked.items() if name in DROPS})


def read_start(path: Path) -> Aligner:
    """Return a network to train on: one of ours, or a .pth of NaSVA's authors. Raises ModelError for other files."""
    if path.name.endswith((".pth", ".pt", ".pth.tar")):
        settings, weights = import_official(path)
        network = Aligner(settings)
        network.load_state_dict(weights)
        return network
    return read_aligner(path)


def _with_drops(network: Aligner, drops: dict[str, Any]) -> Aligner:
    if not drops:
        return network
    changed = Aligner(ModelSettings.model_validate(network.settings.model_dump() | drops))
    changed.load_state_dict(network.state_dict())
    return changed


def _told(sources: Sources, kind: Kind, settings: RunSettings) -> Iterable[Told]:
    return read_told(sources.of(kind) or "", kind, settings.data.step_place)


def _vectors(sources: Sources, kind: Kind, settings: RunSettings, folder: Path) -> FeatureStore:
    given = sources.vectors(kind)
    if is_store(Path(given)):
        return FeatureStore(Path(given))
    return store_vectors(_told(sources, kind, settings), text_encoder(given), folder / "vectors" / kind, name=given)


def _judge(prepared: Prepared, folder: Path, settings: RunSettings) -> Judge | None:
    if not len(prepared.held_out):
        return None

    def keep(_: nn.Module) -> None:
        write_aligner(prepared.network, folder / BEST, prepared.samples.space())

    return aligner_judge(prepared.held_out, settings.data.held_out_score, settings.loss, keep)


def _claim(sources: Sources, folder: Path, settings: RunSettings, start: Path | None, prepared: Prepared) -> None:
    """Write what the run is. Raises SettingsError when the folder holds another one."""
    whole = settings.model_copy(update={"model": prepared.network.settings})
    given = asdict(sources) | {"start": start}
    claim_run(folder, {"settings": lasting(whole), "sources": given}, {"data": _counts(prepared)})
    lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in prepared.samples.omitted)
    write_atomic(folder / OMITTED, "".join(lines))


def _counts(prepared: Prepared) -> dict[str, Any]:
    samples = prepared.samples
    return {
        "videos": len(samples.videos), "samples": len(samples), "texts": samples.texts, "labelled": samples.labelled,
        "held_out": len(prepared.held_out), "omitted": samples.reasons(),
    }  # fmt: skip
