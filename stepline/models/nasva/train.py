"""Training of NaSVA's network (sections 3.3 and 4.2): its task for the training loop, its held-out
score, and whole runs.

The folder of a run has the files of `training.run`, and:

vectors/{kind}        text vectors that the run made itself
best.safetensors      the network with the best held-out score, where samples are held out
aligner.safetensors   the final network
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, ShapeError
from stepline.features import FeatureStore, open_video_store
from stepline.models.nasva.checkpoint import NETWORK, read_aligner, write_aligner
from stepline.models.nasva.dataset import AlignerSamples, gather_samples, omitted_to_row
from stepline.models.nasva.loss import alignability_loss, grounding_loss
from stepline.models.nasva.model import Aligner, AlignerOutput
from stepline.models.nasva.settings import (
    AlignerLossSettings,
    AlignerNetworkSettings,
    AlignerRunSettings,
)
from stepline.models.training.batches import Batch, Sample, collate
from stepline.models.training.distributed import call_first_then_all, start_processes
from stepline.models.training.loop import HeldOutScorer, Loss, Progress, TrainingTask, train_network
from stepline.models.training.run import (
    KeepBest,
    TrainingRun,
    fine_tuning_settings,
    package_versions,
    result_settings,
    run_training,
)
from stepline.models.training.settings import TextKind, TrainSettings
from stepline.models.training.sources import (
    LabelledTexts,
    explain_empty_source,
    is_feature_store,
    open_or_store_text_vectors,
    read_labelled_texts,
)
from stepline.networks.device import device_of

BEST_FILE, FINAL_FILE = NETWORK.file_names
TEXT_KINDS: tuple[TextKind, ...] = ("narration", "step")
# settings of a network that may change when it is trained on
CHANGEABLE_SETTINGS = ("dropout", "attention_dropout")
HELD_OUT_SAMPLES = 8  # that are scored together
BELOW_ANY_COSINE = -2.0  # of padding, so that it is never the best row


def train_aligner(
    samples: Sequence[Sample],
    folder: Path,
    *,
    model: AlignerNetworkSettings,
    loss: AlignerLossSettings = AlignerLossSettings(),
    settings: TrainSettings,
    report: Callable[[Progress], None] | None = None,
    scorer: HeldOutScorer[Sample] | None = None,
) -> Aligner:
    """Return a fresh network trained on samples, in evaluation mode. A run in `folder` that was
    stopped is resumed.

    Args:
        samples: videos with texts and labels.
        folder: folder of the checkpoint and the log.
        model: settings of the network.
        loss: settings of the loss.
        settings: settings of the training loop.
        report: called with the progress after each step. None: no reports.
        scorer: scores held-out samples and keeps the best network. None: nothing is held out.

    Raises ShapeError when there is nothing to train on.
    """
    return train_network(
        lambda: Aligner(model),
        make_aligner_task(samples, loss),
        settings,
        folder,
        report,
        scorer=scorer,
    )


def make_aligner_task(
    samples: Sequence[Sample], settings: AlignerLossSettings
) -> TrainingTask[Sample]:
    """Return the training task of NaSVA's network: samples of similar length share a batch, and
    some have their texts shuffled."""

    def losses(network: nn.Module, batch_samples: Sequence[Sample]) -> list[Loss]:
        batch = collate(batch_samples).to(device_of(network))
        alignment = network(batch)
        terms = [grounding_loss(alignment, batch, settings)]
        if alignment.alignability_logits is not None:
            terms.append(alignability_loss(alignment, batch))
        return terms

    def augment(batch_samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
        return shuffle_texts(batch_samples, settings, rng)

    return TrainingTask(samples, lambda sample: len(sample.video), augment, losses)


def shuffle_texts(
    samples: Sequence[Sample], settings: AlignerLossSettings, rng: np.random.Generator
) -> list[Sample]:
    """Return the samples, some of them with their texts in random order (NaSVA, supplement 6.3).

    Args:
        samples: the samples of a batch.
        settings: chance of the random order, and whether it is drawn once per sample or per batch.
        rng: source of the random numbers.
    """
    count = len(samples) if settings.drawn == "sample" else 1
    is_shuffled_flags = np.broadcast_to(rng.random(count) < settings.shuffled, len(samples))
    return [
        sample.shuffle_texts(rng) if is_shuffled else sample
        for sample, is_shuffled in zip(samples, is_shuffled_flags, strict=True)
    ]


def make_aligner_scorer(
    samples: Sequence[Sample], keep: Callable[[nn.Module], None]
) -> HeldOutScorer[Sample]:
    """Return the scorer of held-out samples. Its score is R@1: the fraction of labelled texts whose
    best feature row is one of their labelled rows.

    Args:
        samples: the held-out samples.
        keep: called with the network whenever its score is higher than every score before.
    """

    def score_batch(network: nn.Module, batch_samples: Sequence[Sample]) -> tuple[float, float]:
        batch = collate(batch_samples).to(device_of(network))
        hits, labelled = count_recall(network(batch), batch)
        return float(hits), float(labelled)

    return HeldOutScorer(samples, HELD_OUT_SAMPLES, score_batch, keep)


def count_recall(aligned: AlignerOutput, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return two scalar tensors: the number of labelled texts whose best row has their label, and
    the number of labelled texts.

    Args:
        aligned: output of the network, with scores (B, K, T).
        batch: labels (B, K, T) of the same videos.
    """
    positive = batch.positive_without_padding()  # (B, K, T)
    scores = aligned.scores.masked_fill(batch.video_pad[:, None], BELOW_ANY_COSINE)  # (B, K, T)
    best = scores.argmax(dim=2, keepdim=True)  # (B, K, 1)
    return positive.gather(2, best).sum(), positive.any(dim=2).sum()


@dataclass(frozen=True)
class AlignerSources:
    """What a training run reads.

    Attributes:
        features: path or URL of a store of video features.
        narrations: source of spoken sentences for `read_labelled_texts`. None: no sentences.
        steps: source of steps for `read_labelled_texts`. None: no steps.
        narration_vectors: a store of the sentences' vectors, or an encoder's name for
            `load_text_encoder`. None: the store in `narrations` if it is one, else MiniLM.
        step_vectors: the same for the steps.
        excluded: files of excluded videos, written by `stepline curate excluded`.
    """

    features: Path | str
    narrations: str | None = None
    steps: str | None = None
    narration_vectors: str | None = None
    step_vectors: str | None = None
    excluded: tuple[Path, ...] = ()

    def get_text_source(self, kind: TextKind) -> str | None:
        """Return the source of the texts of a kind, or None if no such texts are read."""
        return self.narrations if kind == "narration" else self.steps

    def get_vector_source(self, kind: TextKind) -> str:
        """Return the source of the vectors of a kind: the option, else the store of the texts, else
        MiniLM."""
        option = self.narration_vectors if kind == "narration" else self.step_vectors
        source = self.get_text_source(kind) or ""
        return option or (source if is_feature_store(source) else "minilm")


@dataclass(frozen=True)
class PreparedAligner:
    """A training run before its first step.

    Attributes:
        samples: the training samples.
        held_out: samples whose score chooses the best network. There may be none.
        network: the network before its training.
    """

    samples: AlignerSamples
    held_out: AlignerSamples
    network: Aligner


def train_aligner_run(
    sources: AlignerSources,
    folder: Path,
    settings: AlignerRunSettings,
    *,
    start: Path | None = None,
    report: Callable[[Progress], None] | None = None,
    on_prepared: Callable[[PreparedAligner], None] | None = None,
) -> Aligner:
    """Train a network, or resume its training, and return it.

    Under torchrun the processes share the work and the first one writes.

    Args:
        sources: features, texts and text vectors.
        folder: folder of the run.
        settings: settings of the run.
        start: file of a network that is fine-tuned, ours or the authors' .pth. None: fresh weights.
        report: called with the progress after each step. None: no reports.
        on_prepared: called with the samples and the network before the first step.

    Raises SettingsError when `folder` holds another run, ShapeError when nothing is left to train
    on, and what the sources raise.
    """
    start_processes(settings.train.device)
    prepared = prepare_aligner_run(sources, folder, settings, start)
    samples = prepared.samples
    held_out = prepared.held_out

    def write(network: Aligner, path: Path) -> None:
        write_aligner(network, path, samples.get_space())

    def train(keep_best: KeepBest) -> Aligner:
        if on_prepared is not None:
            on_prepared(prepared)
        scorer = make_aligner_scorer(held_out, keep_best) if len(held_out) else None
        task = make_aligner_task(samples, settings.loss)
        return train_network(
            lambda: prepared.network, task, settings.train, folder, report, scorer=scorer
        )

    whole = settings.model_copy(update={"model": prepared.network.settings})
    counts: dict[str, Any] = {
        "videos": len(samples.videos),
        "samples": len(samples),
        "texts": samples.texts,
        "labelled": samples.labelled,
        "held_out": len(held_out),
        "omitted": samples.count_reasons(),
    }
    run = TrainingRun(
        folder,
        NETWORK,
        # by these the folder refuses another run
        {"settings": result_settings(whole), "sources": asdict(sources) | {"start": start}},
        write,
        facts={"versions": package_versions(), "data": counts},
        omitted=map(omitted_to_row, samples.omitted),
    )
    return run_training(run, train)


def prepare_aligner_run(
    sources: AlignerSources, folder: Path, settings: AlignerRunSettings, start: Path | None = None
) -> PreparedAligner:
    """Read the sources of a run, and return its samples and its network.

    Args:
        sources: features, texts and text vectors.
        folder: folder of the run, where text vectors are stored.
        settings: settings of the run.
        start: file of a network that is fine-tuned. None: fresh weights.

    Raises DatasetError without a source of texts, ShapeError if a source gives no sample.
    """
    kinds = [kind for kind in TEXT_KINDS if sources.get_text_source(kind) is not None]
    if not kinds:
        raise DatasetError("no texts to train on; give --narrations, --steps or both")
    features = open_video_store(sources.features)

    def read_texts(kind: TextKind) -> Iterator[LabelledTexts]:
        return read_labelled_texts(
            sources.get_text_source(kind) or "", kind, settings.data.step_place
        )

    def open_vectors(kind: TextKind) -> FeatureStore:
        return open_or_store_text_vectors(
            sources.get_vector_source(kind), read_texts(kind), folder / "vectors" / kind
        )

    # One process makes the vectors, the others find them on disk.
    vectors = {kind: call_first_then_all(partial(open_vectors, kind)) for kind in kinds}
    texts = chain.from_iterable(map(read_texts, kinds))
    excluded = read_excluded(sources.excluded)
    samples = gather_samples(texts, features, vectors, settings.data, excluded=excluded)
    # Each source that is named must teach something.
    for kind in kinds:
        if len(samples) and kind not in samples.kinds:
            omitted = [row for row in samples.omitted if row.what == kind]
            raise ShapeError(f"{sources.get_text_source(kind)}: {explain_empty_source(omitted)}")
    network = make_starting_network(settings, samples.get_widths(), start)
    return PreparedAligner(*samples.split(settings.data.held_out), network)


def make_starting_network(
    settings: AlignerRunSettings, widths: tuple[int, int], start: Path | None
) -> Aligner:
    """Return a network with fresh weights, or the network in a file.

    Args:
        settings: settings of the run. A network from a file keeps its own model settings, except the
            dropout rates that the user set.
        widths: widths of the video feature rows and of the text vectors.
        start: file of the network. None: fresh weights.

    Raises ShapeError if the network does not take features of these widths.
    """
    if start is None:
        # Fresh, and as wide as the features.
        sizes = dict(zip(("video_width", "text_width"), widths, strict=True))
        for name in sizes.keys() & settings.model.model_fields_set:
            option = getattr(settings.model, name)
            if option != sizes[name]:
                raise ShapeError(
                    f"model.{name}={option}, the features have {sizes[name]}; leave the setting out"
                )
        torch.manual_seed(settings.train.seed)  # of fresh weights
        return Aligner(settings.model.model_copy(update=sizes))
    # From a file, with its own settings except the dropout.
    network = read_aligner(start)
    merged = fine_tuning_settings(network.settings, settings.model, CHANGEABLE_SETTINGS, start)
    if (merged.video_width, merged.text_width) != widths:
        raise ShapeError(
            f"{start}: takes video and text features {merged.video_width} and {merged.text_width} wide, "
            f"not {widths[0]} and {widths[1]}; give the features that it was trained on"
        )
    if merged == network.settings:
        return network
    # Another dropout is another network with the same weights.
    changed = Aligner(merged)
    changed.load_state_dict(network.state_dict())
    return changed
