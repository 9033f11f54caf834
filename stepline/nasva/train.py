"""Training the grounding network: what `stepline.training.fit` learns here (NaSVA, sections 3.3 and 4.2).

A training run as one folder: what went in, how it went, and the networks that came out.

run.json              settings, sources, versions, counts; another run does not go on in this folder
omitted.jsonl         the videos that are no sample, each with its reason
vectors/{kind}        text vectors that the run made itself
log.jsonl, events     loss, learning rate and held-out score a step
last.safetensors      what the next step needs; best.safetensors, aligner.safetensors: networks, best and final

How good a network is on samples that it is not trained on: what chooses the best of a run's networks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, SettingsError, ShapeError
from stepline.features import FeatureStore
from stepline.nasva.checkpoint import import_official, read_aligner, write_aligner
from stepline.nasva.dataset import AlignerSamples, gather_samples, write_omitted
from stepline.nasva.loss import alignability_loss, grounding_loss
from stepline.nasva.model import Aligned, Aligner
from stepline.nasva.network_settings import HeldOutScore, LossSettings, ModelSettings, RunSettings
from stepline.training.batches import Batch, Sample, collate
from stepline.training.distributed import first_then_all, is_first, start_processes
from stepline.training.loop import Judge, Loss, Progress, Task, fit
from stepline.training.run_folder import claim_run, lasting
from stepline.training.settings import Kind, TrainSettings
from stepline.training.sources import Told, is_store, read_told, store_vectors, text_encoder


def train_aligner(
    samples: Sequence[Sample],
    folder: Path,
    *,
    model: ModelSettings | None = None,
    loss: LossSettings | None = None,
    settings: TrainSettings | None = None,
    start: Aligner | None = None,
    report: Callable[[Progress], None] | None = None,
    judge: Judge | None = None,
    device: str | torch.device = "cpu",
) -> Aligner:
    """Return a network trained on the samples, from fresh weights or on from those of `start`, at rest.

    A run in `folder` that was killed is taken up. Raises ShapeError when there is nothing to train on.
    """
    settings = settings or TrainSettings()
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Aligner(model or ModelSettings())
    network.to(device)
    fit(network, aligner_task(samples, loss or LossSettings()), settings, folder, report, judge=judge)
    return network


def aligner_task(samples: Sequence[Sample], settings: LossSettings) -> Task[Sample]:
    """Return what training learns: samples by the length of their videos, texts in order or not by a drawn chance."""

    def losses(network: nn.Module, chosen: Sequence[Sample]) -> list[Loss]:
        batch = collate(chosen).to(next(network.parameters()).device)
        aligned = network(batch)
        parts = [grounding_loss(aligned, batch, settings)]
        if aligned.alignable is not None:
            head = alignability_loss(aligned, batch, settings.alignability)
            parts.append(head.weighted(settings.alignability_weight))
        return parts

    def draw(chosen: Sequence[Sample], chance: np.random.Generator) -> list[Sample]:
        return draw_order(chosen, settings, chance)

    lengths = samples.lengths if hasattr(samples, "lengths") else None  # known without reading the samples
    return Task(samples, lambda sample: len(sample.video), draw, losses, lengths)


def draw_order(samples: Sequence[Sample], settings: LossSettings, chance: np.random.Generator) -> list[Sample]:
    """Return the samples, some with their texts shuffled and so marked; supplement 6.3: half, whatever the source."""
    draws = chance.random(len(samples) if settings.drawn == "sample" else 1)
    lost = np.broadcast_to(draws < settings.shuffled, len(samples))
    return [one.shuffled(chance) if shuffle else one for one, shuffle in zip(samples, lost, strict=True)]


AT_ONCE = 8  # samples


def aligner_judge(
    samples: Sequence[Sample], score: HeldOutScore, loss: LossSettings, keep: Callable[[nn.Module], None]
) -> Judge:
    """Return the judge of held-out samples; "recall": R@1 of their labels, "loss": what a text loses, negative."""

    def measure(network: nn.Module, rank: int, size: int) -> tuple[float, float]:
        total = count = 0.0
        for batch in _batches(samples, rank, size, next(network.parameters()).device):
            aligned = network(batch)
            more, over = hits(aligned, batch) if score == "recall" else _losses(aligned, batch, loss)
            total, count = total + float(more), count + float(over)
        return total, count

    return Judge(measure, keep)


def hits(aligned: Aligned, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return how many labelled texts have their best row among their labels, and how many there are."""
    shown = batch.positive & ~batch.video_pad[:, None] & ~batch.text_pad[:, :, None]  # (B, K, T)
    best = aligned.scores.masked_fill(batch.video_pad[:, None], -2.0).argmax(dim=2, keepdim=True)  # (B, K, 1)
    return shown.gather(2, best).sum(), shown.any(dim=2).sum()


def _losses(aligned: Aligned, batch: Batch, settings: LossSettings) -> tuple[Tensor, Tensor]:
    part = grounding_loss(aligned, batch, settings)
    return -part.total, part.count


def _batches(samples: Sequence[Sample], rank: int, size: int, device: object) -> Iterator[Batch]:
    mine = range(rank, len(samples), size)
    for first in range(0, len(mine), AT_ONCE):
        yield collate([samples[index] for index in mine[first : first + AT_ONCE]]).to(str(device))


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
    write_omitted(prepared.samples.omitted, folder / OMITTED)


def _counts(prepared: Prepared) -> dict[str, Any]:
    samples = prepared.samples
    return {
        "videos": len(samples.videos), "samples": len(samples), "texts": samples.texts, "labelled": samples.labelled,
        "held_out": len(prepared.held_out), "omitted": samples.reasons(),
    }  # fmt: skip
