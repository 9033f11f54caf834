"""Measures the grounding network against the same network from PyTorch's own layers.

    python benchmarks/nasva_speed.py [--only steps memory epoch loading] [--quick]

Released sizes (D 256, FFN 2048, 3 + 3 layers, batch 8) and the released loss on all sides. AdamW is
fused on our side, as stepline trains, and PyTorch's default on the references': 17 ms of a step.
Variants take turns in one process, minima and medians. Memory is the peak of a process of its own.
Three references (plain_transformer.py, with the loss as its formula reads): dropout as released,
attention dropout 0, equal function. One thread in CPU seconds, then two threads by the clock, which
means something on a quiet machine alone. An epoch of mixed lengths is shuffled on the references'
side and bucketed on ours. Writes benchmarks/results/nasva_speed.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as the command line sets it

import torch
from alternating import alternate, peak_rate, timed
from media import peak_mib
from nasva_data import FEATURE_WIDTH, batch, mixed_videos, shuffled
from plain_transformer import EqualAligner, PlainAligner, plain_loss
from torch import Tensor, nn

from stepline.features import FeatureStore, FeatureWriter
from stepline.models.nasva.loss import grounding_loss
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.models.training.batches import Batch, Sample, collate, length_buckets

RESULTS_PATH = Path(__file__).parent / "results" / "nasva_speed.json"
BATCH_SHAPES = {"T 400, K 50": (8, 400, 50), "T 1200, K 100": (8, 1200, 100)}
SHAPE_ROUNDS = {"T 400, K 50": 5, "T 1200, K 100": 2}
OUR_NAME = "stepline"
HALF_NAME = "stepline, bf16"
DROPOUT_NAME = "stepline, attention dropout 0.1"
REFERENCE_NAMES = ("as released", "attention dropout 0", "equal function")
RELEASE_LOSS = AlignerLossSettings(form="release")
PART_NAMES = ("steps", "memory", "epoch", "loading")
EPOCH_VIDEOS = 32  # of mixed lengths
Times = dict[str, dict[str, float]]  # variant -> what was timed -> seconds
Results = dict[str, Any]


def build(name: str) -> nn.Module:
    """Return a network with fresh weights, the same for equal functions."""
    torch.manual_seed(0)
    settings = AlignerNetworkSettings()
    released = AlignerNetworkSettings(attention_dropout=0.1)
    makers: dict[str, Callable[[], nn.Module]] = {
        OUR_NAME: lambda: Aligner(settings),
        HALF_NAME: lambda: Aligner(settings),
        DROPOUT_NAME: lambda: Aligner(released),
        "as released": lambda: PlainAligner(released),
        "attention dropout 0": lambda: PlainAligner(settings),
        "equal function": lambda: EqualAligner.of(Aligner(settings)),
    }
    return makers[name]()


class Trainer:
    """A network with what one step of training or of inference does. Warm."""

    def __init__(self, name: str) -> None:
        self.model = build(name)
        self.is_ours = name.startswith(OUR_NAME)
        self.is_half = name == HALF_NAME
        weights = self.model.parameters()
        fused = self.is_ours or None
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=5e-5, fused=fused)
        self.train(batch(2, 50, 9))
        self.infer(batch(2, 50, 9))

    def train(self, data: Batch) -> None:
        """Take one step: forward, loss, backward, clip, update."""
        self.model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
            loss = self._loss(data)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _loss(self, data: Batch) -> Tensor:
        aligned = self.model(data)
        if self.is_ours:
            return grounding_loss(aligned, data, RELEASE_LOSS).mean
        return plain_loss(aligned, data)

    def infer(self, data: Batch) -> None:
        """Score one batch."""
        self.model.eval()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
            self.model(data).scores  # noqa: B018 (computed on access)


def floating_operations(
    lengths: Sequence[tuple[int, int]], settings: AlignerNetworkSettings
) -> float:
    """Return the multiplications and additions of one forward pass without padding.

    lengths: (seconds, texts) of each video.
    """
    width = settings.width
    # of a row: a D x D projection, a product with another row, two D x F of the feed-forward part
    projection = 2 * width**2
    product = 4 * width
    feed_forward = 4 * width * settings.feed_forward
    self_layer = 4 * projection + feed_forward
    total = 0
    for seconds, texts in lengths:
        encoder_layer = seconds * (self_layer + seconds * product)
        cross = texts * (2 * projection + seconds * product) + seconds * 2 * projection
        decoder_layer = texts * (self_layer + texts * product) + cross
        total += settings.encoder_layers * encoder_layer
        total += settings.decoder_layers * decoder_layer
        total += 2 * (seconds + texts) * width * settings.video_width
    return float(total)


def real_lengths(data: Batch) -> list[tuple[int, int]]:
    """Return the seconds and texts of each video of a batch."""
    seconds = (~data.video_pad).sum(dim=1).tolist()
    texts = (~data.text_pad).sum(dim=1).tolist()
    return list(zip(seconds, texts, strict=True))


def steps(shape: tuple[int, int, int], names: Sequence[str], rounds: int) -> Results:
    """Return times of training steps and of inference, and ours as a share of the machine's matmul
    peak."""
    data = batch(*shape)
    trainers = {name: Trainer(name) for name in names}
    before = peak_rate()
    train_work = {name: partial(trainers[name].train, data) for name in names}
    infer_work = {name: partial(trainers[name].infer, data) for name in names}
    train = alternate(train_work, rounds)
    infer = alternate(infer_work, rounds + 1)
    peak = max(before, peak_rate())
    operations = floating_operations(real_lengths(data), AlignerNetworkSettings()) / 1e9
    clock = "cpu_min_s" if torch.get_num_threads() == 1 else "wall_min_s"
    return {
        "train": train,
        "infer": infer,
        "peak_gflops": peak,
        "train_share_of_peak": 3 * operations / train[OUR_NAME][clock] / peak,
        "infer_share_of_peak": operations / infer[OUR_NAME][clock] / peak,
    }


def epoch(
    trainer: Trainer, videos: Sequence[Sample], batches: Sequence[Sequence[int]], *, train: bool
) -> None:
    """Go over all videos once."""
    for indices in batches:
        data = collate([videos[index] for index in indices])
        if train:
            trainer.train(data)
        else:
            trainer.infer(data)


def bucketed(videos: Sequence[Sample]) -> list[Sequence[int]]:
    """Return batches of videos of like lengths."""
    lengths = [len(video.video) for video in videos]
    return list(length_buckets(lengths, 8, seed=0, epoch=0))


def epochs(rounds: int) -> Results:
    """Return the times of an epoch of mixed lengths: ours bucketed, ours shuffled, the references
    shuffled."""
    videos = mixed_videos(EPOCH_VIDEOS)
    mixed = list(shuffled(EPOCH_VIDEOS))
    trainers = {OUR_NAME: Trainer(OUR_NAME)}
    batches = {OUR_NAME: bucketed(videos)}
    for side, variant in (
        (f"{OUR_NAME}, shuffled", OUR_NAME),
        *((name, name) for name in REFERENCE_NAMES[:2]),
    ):
        trainers[side] = Trainer(variant)
        batches[side] = mixed
    results: Results = {"videos": EPOCH_VIDEOS}
    for kind in ("train", "infer"):
        work = {}
        for side, trainer in trainers.items():
            work[side] = partial(epoch, trainer, videos, batches[side], train=kind == "train")
        results[kind] = alternate(work, rounds)
    return results


def loading(rounds: int) -> dict[str, float]:
    """Return CPU seconds of reading an epoch of mixed lengths from a feature store and of padding
    it to batches."""
    videos = mixed_videos(EPOCH_VIDEOS)
    batches = bucketed(videos)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with FeatureWriter(path) as writer:
            for video in videos:
                writer.add(f"{video.id} video", video.video, rate=1.0, backbone="random")
                writer.add(f"{video.id} text", video.text, rate=1.0, backbone="random")
        store = FeatureStore(path)

        def read(video: Sample) -> Sample:
            rows = store.matrix(f"{video.id} video")
            texts = store.matrix(f"{video.id} text")
            return Sample(video.id, rows, texts, video.positive, video.ordered)

        def load() -> None:
            for indices in batches:
                collate([read(videos[index]) for index in indices])

        load()
        seconds = [timed(load)[1] for _ in range(rounds)]
        rows = sum(len(video.video) + len(video.text) for video in videos)
        mib = rows * FEATURE_WIDTH * 4 / 2**20
        return {"cpu_min_s": min(seconds), "mib_in_float32": mib}


def memory(name: str, shape: str) -> float:
    """Return the MiB that two training steps need at their peak, above the idle process, in a
    process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, shape]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(process.stdout)


def report_memory(name: str, shape: str) -> None:
    """Print the MiB of a training step. The process ends after it."""
    trainer = Trainer(name)
    data = batch(*BATCH_SHAPES[shape])
    idle = peak_mib()
    trainer.train(data)
    print(peak_mib() - idle)


def difference(name: str) -> float:
    """Return how far the scores of a variant are from ours at most."""
    data = batch(2, 50, 9)
    is_padding = data.text_pad[:, :, None] | data.video_pad[:, None]
    with torch.inference_mode():
        ours = build(OUR_NAME).eval()(data).scores
        with torch.autocast("cpu", torch.bfloat16, enabled=name == HALF_NAME):
            theirs = build(name).eval()(data).scores
    distances = (ours - theirs)[~is_padding].abs()
    return float(distances.max())


def show(title: str, times: Times, *, clock: str) -> None:
    """Print a table, each with its ratio to ours, by minima and by medians."""
    print(f"\n{title}, {clock} seconds: minimum, median; times ours by both", flush=True)
    ours = times[OUR_NAME]
    for name, row in times.items():
        seconds = []
        ratios = []
        for statistic in ("min", "median"):
            key = f"{clock}_{statistic}_s"
            seconds.append(f"{row[key]:8.3f}")
            ratios.append(f"{row[key] / ours[key]:7.2f}x")
        print(f"  {name:33s}{' '.join(seconds)}{' '.join(ratios)}", flush=True)


def measure_steps(quick: bool) -> Results:
    """Measure and print steps at one thread, then at two."""
    results: Results = {}
    first_shape = next(iter(BATCH_SHAPES))
    for threads, clock in ((1, "cpu"), (2, "wall")):
        if quick and threads > 1:
            continue
        torch.set_num_threads(threads)
        for shape, sizes in BATCH_SHAPES.items():
            names = [OUR_NAME, HALF_NAME, *REFERENCE_NAMES]
            if threads == 1 and shape == first_shape:
                names.append(DROPOUT_NAME)
            rounds = 1 if quick else SHAPE_ROUNDS[shape]
            times = steps(sizes, names, rounds)
            results[f"{shape}, {threads} threads"] = times
            show_steps(times, f"{shape}, batch {sizes[0]}, {threads} threads", clock)
    torch.set_num_threads(1)
    return results


def show_steps(times: Results, title: str, clock: str) -> None:
    """Print the tables of one shape, and ours as shares of the machine's peak."""
    show(f"training step, {title}", times["train"], clock=clock)
    show(f"inference, {title}", times["infer"], clock=clock)
    peak = times["peak_gflops"]
    train = times["train_share_of_peak"]
    infer = times["infer_share_of_peak"]
    print(f"  of {peak:.0f} GFLOP/s: training {train:.0%}, inference {infer:.0%}")


def measure_memory() -> Results:
    """Measure and print the peak memory of each variant at each shape."""
    mib: Results = {}
    for shape in BATCH_SHAPES:
        mib[shape] = {name: memory(name, shape) for name in (OUR_NAME, *REFERENCE_NAMES)}
    print("\npeak memory of a training step (MiB)", json.dumps(mib, indent=2), flush=True)
    return mib


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PART_NAMES,
        default=PART_NAMES,
        help="parts to measure. The rest stays as it is",
    )
    parser.add_argument("--quick", action="store_true", help="one round, one thread")
    parser.add_argument(
        "--memory-of", nargs=2, metavar=("VARIANT", "SHAPE"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
    torch.set_num_threads(1)
    if options.memory_of:
        report_memory(*options.memory_of)
        return

    # what is not measured this time stays as it is
    results: Results = json.loads(RESULTS_PATH.read_text()) if RESULTS_PATH.exists() else {}
    differences = {name: difference(name) for name in ("equal function", HALF_NAME)}
    results |= {"torch": torch.__version__, "differences": differences}
    print(f"scores differ from ours by at most {differences}", flush=True)
    if "steps" in options.only:
        results["steps"] = measure_steps(options.quick)
    if "memory" in options.only:
        results["memory_mib"] = measure_memory()
    if "epoch" in options.only:
        times = epochs(1 if options.quick else 2)
        results["epoch"] = times
        show("training epoch of mixed lengths, 1 thread", times["train"], clock="cpu")
        show("inference over mixed lengths, 1 thread", times["infer"], clock="cpu")
    if "loading" in options.only:
        load_times = loading(3)
        results["loading"] = load_times
        seconds = load_times["cpu_min_s"]
        mib = load_times["mib_in_float32"]
        print(f"\nloading that epoch: {seconds:.2f} CPU s for {mib:.0f} MiB")
    text = json.dumps(results, indent=2)
    RESULTS_PATH.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
