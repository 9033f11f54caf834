"""Measures the grounding network against the same network from PyTorch's own layers.

    python benchmarks/nasva_speed.py [--quick] [--threads N]

Released sizes (D 256, FFN 2048, 3 + 3 layers, batch 8), the released loss on all sides, AdamW. Variants take turns
in one process, minima and medians; memory is the peak of a process of its own. Three references (plain_transformer.py):
dropout as released; attention dropout 0; equal function. Then an epoch of mixed lengths, shuffled on the references'
side and bucketed on ours. Writes benchmarks/results/nasva_speed.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as the command line sets it

import numpy as np
import torch
from media import peak_mib
from plain_transformer import EqualAligner, PlainAligner
from torch import nn

from stepline.batches import Batch, Sample, bucketed, collate
from stepline.nasva.loss import grounding_loss
from stepline.nasva.model import Aligner
from stepline.nasva.model_settings import LossSettings, ModelSettings

RESULTS = Path(__file__).parent / "results" / "nasva_speed.json"
SHAPES = {"T 400, K 50": (8, 400, 50), "T 1200, K 100": (8, 1200, 100)}
OURS = "stepline"
RELEASE = LossSettings(form="release")
REFERENCES = ("as released", "attention dropout 0", "equal function")


def build(name: str) -> nn.Module:
    """Return a network with fresh weights, the same for equal functions."""
    torch.manual_seed(0)
    released = ModelSettings(attention_dropout=0.1)
    makers: dict[str, Callable[[], nn.Module]] = {
        OURS: lambda: Aligner(ModelSettings()),
        f"{OURS}, attention dropout 0.1": lambda: Aligner(released),
        "as released": lambda: PlainAligner(released),
        "attention dropout 0": lambda: PlainAligner(ModelSettings()),
        "equal function": lambda: EqualAligner.of(Aligner(ModelSettings())),
    }
    return makers[name]()


VARIANTS = (OURS, *REFERENCES, f"{OURS}, attention dropout 0.1")


def sample(seconds: int, texts: int, seed: int = 0) -> Sample:
    """Return a random video whose texts are shown for 8 seconds each."""
    chance = np.random.default_rng(seed)
    positive = np.zeros((texts, seconds), bool)
    for row, start in zip(positive, chance.integers(0, seconds - 8, texts), strict=True):
        row[start : start + 8] = True
    rows = chance.standard_normal((seconds + texts, 768), dtype=np.float32)
    return Sample(str(seed), rows[:seconds], rows[seconds:], positive, ordered=True)


def batch(size: int, seconds: int, texts: int) -> Batch:
    """Return a batch whose videos are between 80 % and all of the length."""
    shares = np.linspace(0.8, 1.0, size)
    return collate([sample(round(seconds * share), texts, seed) for seed, share in enumerate(shares)])


class Trainer:
    """A network in training or at rest, with what one step of either does."""

    def __init__(self, name: str) -> None:
        self.model = build(name)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=5e-5)

    def train(self, data: Batch) -> None:
        """Take one step: forward, loss, backward, clip, update."""
        self.model.train()
        grounding_loss(self.model(data), data, RELEASE).mean.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def infer(self, data: Batch) -> None:
        """Score one batch."""
        self.model.eval()
        with torch.inference_mode():
            self.model(data).scores  # noqa: B018 (computed on access)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU seconds of some work."""
    wall, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - used


def alternate(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Return what each side takes, all in turn in each round, after one that does not count."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, work in sides.items():
            seconds = timed(work)
            if number:
                taken[name].append(seconds)
    return {
        name: {
            "wall_min_s": min(wall for wall, _ in pairs),
            "wall_median_s": statistics.median(wall for wall, _ in pairs),
            "cpu_min_s": min(used for _, used in pairs),
        }
        for name, pairs in taken.items()
    }


def peak_rate() -> float:
    """Return the best GFLOP/s of a 2048 x 2048 matmul in float32 at the present number of threads."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return 2 * 2048**3 / min(timed(partial(torch.mm, a, b))[0] for _ in range(6)) / 1e9


def floating_operations(size: int, seconds: int, texts: int, settings: ModelSettings) -> float:
    """Return the multiplications and additions of one forward pass."""
    width, inner = settings.width, settings.feed_forward
    self_layer = 8 * width**2 + 4 * width * inner  # a row: four D x D projections, two D x F
    encode = settings.encoder_layers * seconds * (self_layer + 4 * seconds * width)
    cross = texts * (4 * width**2 + 4 * seconds * width) + seconds * 4 * width**2
    decode = settings.decoder_layers * (texts * (self_layer + 4 * texts * width) + cross)
    project = 2 * (seconds + texts) * width * settings.video_width
    return size * float(encode + decode + project)


def steps(shape: tuple[int, int, int], names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Return times of training steps and of inference, and ours as a share of the machine's matmul peak."""
    data = batch(*shape)
    work = {name: Trainer(name) for name in names}
    before = peak_rate()
    train = alternate({name: partial(trainer.train, data) for name, trainer in work.items()}, rounds)
    infer = alternate({name: partial(trainer.infer, data) for name, trainer in work.items()}, rounds)
    peak = max(before, peak_rate())
    operations = floating_operations(*shape, ModelSettings()) / 1e9
    return {
        "train": train,
        "infer": infer,
        "peak_gflops": peak,
        "train_share_of_peak": 3 * operations / train[OURS]["wall_min_s"] / peak,
        "infer_share_of_peak": operations / infer[OURS]["wall_min_s"] / peak,
    }


def mixed_videos(count: int) -> list[Sample]:
    """Return videos of 60 to 1200 s with one text in 12 s, give or take a half, 5 to 100."""
    chance = np.random.default_rng(1)
    lengths = chance.integers(60, 1201, count)
    texts = np.clip(lengths / 12 * chance.uniform(0.5, 1.5, count), 5, 100).astype(int)
    return [sample(int(t), int(k), seed) for seed, (t, k) in enumerate(zip(lengths, texts, strict=True))]


def shuffled(count: int) -> Iterator[tuple[int, ...]]:
    """Yield batches of 8 in random order, as the released loader does."""
    order = np.random.default_rng(2).permutation(count).tolist()
    yield from (tuple(order[start : start + 8]) for start in range(0, count, 8))


def epoch(trainer: Trainer, videos: Sequence[Sample], batches: Sequence[Sequence[int]], *, train: bool) -> None:
    """Go over all videos once."""
    for chosen in batches:
        data = collate([videos[index] for index in chosen])
        trainer.train(data) if train else trainer.infer(data)


def epochs(count: int, rounds: int) -> dict[str, Any]:
    """Return the times of an epoch of mixed lengths: ours bucketed, ours shuffled, the references shuffled."""
    videos = mixed_videos(count)
    bucketed_batches = list(bucketed([len(video.video) for video in videos], 8, seed=0, epoch=0))
    shuffled_batches = list(shuffled(count))
    sides = {f"{OURS}, shuffled": (OURS, shuffled_batches), OURS: (OURS, bucketed_batches)}
    sides |= {name: (name, shuffled_batches) for name in REFERENCES[:2]}
    work = {name: partial(epoch, Trainer(who), videos, batches) for name, (who, batches) in sides.items()}
    return {
        "videos": count,
        "train": alternate({name: partial(one, train=True) for name, one in work.items()}, rounds),
        "infer": alternate({name: partial(one, train=False) for name, one in work.items()}, rounds),
    }


def memory(name: str, shape: str) -> float:
    """Return the MiB that two training steps need at their peak, above the idle process, in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, shape]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def report_memory(name: str, shape: str) -> None:
    """Print the MiB of two training steps; the process ends after it."""
    trainer, data = Trainer(name), batch(*SHAPES[shape])
    idle = peak_mib()
    trainer.train(data)
    trainer.train(data)
    print(peak_mib() - idle)


def difference() -> float:
    """Return how far the equal function's scores are from ours."""
    data = batch(2, 50, 9)
    with torch.inference_mode():
        ours, theirs = (build(name).eval()(data).scores for name in (OURS, "equal function"))
    return float((ours - theirs).abs().max())


def show(title: str, times: dict[str, dict[str, float]]) -> None:
    """Print a table with ours as the measure."""
    print(f"\n{title}")
    for name, row in times.items():
        ratio = row["wall_min_s"] / times[OURS]["wall_min_s"]
        cells = f"{row['wall_min_s']:8.3f} {row['wall_median_s']:8.3f} {row['cpu_min_s']:8.3f} {ratio:6.2f}x"
        print(f"  {name:32s}{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds, one thread left out, no epoch")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory-of", nargs=2, metavar=("VARIANT", "SHAPE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory_of:
        report_memory(*given.memory_of)
        return
    rounds = 2 if given.quick else 5
    results: dict[str, Any] = {"torch": torch.__version__, "difference_of_equal_function": difference(), "steps": {}}
    print(f"equal function differs by {results['difference_of_equal_function']:.1e}")
    for threads in (given.threads,) if given.quick else (given.threads, 1):
        torch.set_num_threads(threads)
        for shape, sizes in SHAPES.items():
            found = results["steps"][f"{shape}, {threads} threads"] = steps(sizes, VARIANTS, rounds)
            title = f"{shape}, batch {sizes[0]}, {threads} threads; wall min, median, CPU min (s), against ours"
            show(f"training step, {title}", found["train"])
            show(f"inference, {title}", found["infer"])
            shares = found["train_share_of_peak"], found["infer_share_of_peak"]
            print(f"  of {found['peak_gflops']:.0f} GFLOP/s: training {shares[0]:.0%}, inference {shares[1]:.0%}")
    results["memory_mib"] = {shape: {name: memory(name, shape) for name in VARIANTS} for shape in SHAPES}
    print("\npeak memory of training (MiB)", json.dumps(results["memory_mib"], indent=2))
    if not given.quick:
        torch.set_num_threads(given.threads)
        results["epoch"] = epochs(64, 2)
        show("training epoch of mixed lengths (s)", results["epoch"]["train"])
        show("inference over mixed lengths (s)", results["epoch"]["infer"])
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
