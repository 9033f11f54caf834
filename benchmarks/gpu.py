"""Measures every network on one GPU: recognition, backbones, training steps and inference, in bf16
and float32.

    python benchmarks/gpu.py [--device cuda|cpu] [--seconds S] [--only WORD ...] [--compile]
    [--json] [--small]

A row a network, work and precision: units a second, peak memory, TFLOP/s, and their share of a
large matrix product's on the same device. Operations are counted as they are done, padding and all.
CTranslate2 (recognition) reports none. Sizes are the papers': NaSVA batch 8 of T 400 / K 50 (near
the mean of its videos) and T 1200 / K 100. ProcX batch 8 (fine-tuning) and 64 (pre-training), 7.7
steps per video, its matching on the CPU. WYS2's detector on ready features, and end to end on 16
frames per clip. CLIP is ViT-L/14, its weights random as those of S3D. Projected are hours of the
papers' trainings at a row's speed. NaSVA has 340,000 + 370,000 samples x 12 epochs (the authors:
about 20 h on an RTX 3090). ProcX has 48,000 videos x 10 epochs (about 32 h on A100). Decoding and
reading from disk are in no row. --compile adds torch.compile of NaSVA. About --seconds (3) a row
and its warm-up: under 10 minutes in all. --device cpu --small goes through every line, and proves
that alone. Writes benchmarks/results/gpu.json, with --small nothing. Without a GPU it ends.
"""

import argparse
import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from media import peak_mib
from nasva_data import batch as aligner_batch
from procx_model import STEP_COUNTS, WORD_COUNT
from procx_model import Trainer as ProcxTrainer
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from stepline.asr import AsrSettings, transcribe
from stepline.device import ComputeType, current_device, set_device
from stepline.media import AudioBlock, read_sound
from stepline.nasva.loss import grounding_loss
from stepline.nasva.model import Aligner
from stepline.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.procx.settings import PROCX_MODEL, AttentionSettings, CaptionerSettings, ModelSettings
from stepline.text import embed
from stepline.weights import weights_fetched
from stepline.wys2.clips import ClipTextPair, collate_pairs
from stepline.wys2.detector import Detector, contrastive_loss
from stepline.wys2.settings import ContrastSettings, DetectorSettings, SummarizerSettings
from stepline.wys2.summarizer import Summarizer

RESULTS = Path(__file__).parent / "results" / "gpu.json"
DEMO = Path(__file__).parents[1] / "stepline" / "demo" / "demo.mp4"
NASVA_SAMPLES, PROCX_VIDEOS = (340_000 + 370_000) * 12, 48_000 * 10  # seen in the papers' trainings
PRECISIONS: tuple[ComputeType, ...] = ("bf16", "float32")
WARM = 3  # calls before the clock starts; the first compiles, or chooses kernels
SMALL_ALIGNER = AlignerNetworkSettings(
    width=32, heads=4, encoder_layers=1, decoder_layers=1, feed_forward=64, projection=16
)
SMALL_PROCX = ModelSettings(
    features=16,
    rows=32,
    attention=AttentionSettings(width=32, heads=4),
    encoder_layers=1,
    decoder_layers=2,
    feed_forward=32,
    queries=12,
    captioner=CaptionerSettings(
        width=32, heads=4, text_layers=1, joint_layers=1, feed_forward=32, projection=16
    ),
)


@dataclass(frozen=True)
class Work:
    """What is measured. units: of `unit` that one call does. paper: units of the paper's whole
    training.

    plain: the same with every operation to be seen, where a compiler hides them.
    """

    network: str
    kind: str  # "training" or "inference"
    unit: str
    units: float
    call: Callable[[], object]
    paper: int | None = None
    plain: Callable[[], object] | None = None


@dataclass(frozen=True)
class Row:
    """What a work came to. `tflops` and its share of the device's peak are None where operations
    are not reported."""

    network: str
    kind: str
    precision: str
    unit: str
    per_second: float
    peak_mib: float
    tflops: float | None
    share_of_peak: float | None
    hours_of_the_papers_training: float | None


def step_of(
    network: nn.Module, loss: Callable[[], torch.Tensor], precision: str
) -> Callable[[], torch.Tensor]:
    """Return one step of training: forward, loss, backward, clipping, AdamW."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

    def step() -> torch.Tensor:
        with torch.autocast(current_device().kind, torch.bfloat16, enabled=precision == "bf16"):
            value = loss()
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return value.detach()

    return step


def at_rest(network: nn.Module, forward: Callable[[], object]) -> Callable[[], object]:
    """Return inference: the same forward pass, without gradients."""

    def infer() -> object:
        network.eval()
        with torch.inference_mode(), current_device().autocast():
            return forward()

    return infer


def recognition(model: str, *, small: bool) -> Iterator[Work]:
    """Speech of the demo, again and again: seconds of sound a second, with voice detection and word
    times."""
    samples = np.concatenate([block.samples for block in read_sound(DEMO)])
    sound = np.tile(samples, 1 if small else 10)
    seconds = len(sound) / 16_000
    settings = AsrSettings(model=model, compute="int8")
    yield Work(
        model,
        "inference",
        "s of sound",
        seconds,
        lambda: transcribe([AudioBlock(0.0, sound)], settings),
    )


def backbones(*, small: bool) -> Iterator[Work]:
    """Pictures, clips and texts to vectors, from uint8 in main memory to float32 in main memory."""
    from stepline.vision import VisionSettings, load_backbone
    from stepline.vision.clip import CLIPBackbone
    from stepline.vision.s3d import S3DBackbone, TextTower, WordDictionary
    from stepline.vision.s3d_network import S3D, FoldedS3D

    rng, count = np.random.default_rng(0), 2 if small else 64
    pictures = rng.integers(0, 256, (count, 256, 256, 3), dtype=np.uint8)
    conse = load_backbone(VisionSettings())
    yield Work(
        "ConSE (EfficientNet-Lite0)",
        "inference",
        "pictures",
        count,
        lambda: conse.encode_images(pictures),
    )
    texts = [
        f"cut the onion into {number} thin rings and fry them"
        for number in range(8 if small else 2048)
    ]
    yield Work("MiniLM", "inference", "texts", len(texts), lambda: embed(texts))
    device = current_device().name
    clips = np.broadcast_to(
        pictures[: count // 2, None], (count // 2, 2 if small else 16, 256, 256, 3)
    )
    network, words = S3D().eval().to(device), TextTower(4).eval().to(device)
    s3d = S3DBackbone(FoldedS3D(network), words, WordDictionary(["cut", "fry"]), "released")
    yield Work("S3D", "inference", "clips of 16", len(clips), lambda: s3d.encode_clips(clips))
    if importlib.util.find_spec("transformers") is not None:
        from transformers import CLIPConfig, CLIPModel

        text, sight = (
            {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
            {
                "hidden_size": 1024,
                "num_attention_heads": 16,
                "num_hidden_layers": 24,
                "intermediate_size": 4096,
                "patch_size": 14,
            },
        )
        if small:
            text, sight = [
                {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
            ] * 2
        model = CLIPModel(
            CLIPConfig(text_config=text, vision_config=sight, projection_dim=768)
        ).eval()
        clip = CLIPBackbone(model, _Processor(), batch=64)
        yield Work(
            "CLIP ViT-L/14", "inference", "pictures", count, lambda: clip.encode_images(pictures)
        )


class _Inputs(dict[str, torch.Tensor]):
    def to(self, device: str) -> "_Inputs":
        return _Inputs({name: value.to(device) for name, value in self.items()})


class _Processor:
    """Replaces a checkpoint's own: the middle of each picture. One token per text."""

    @staticmethod
    def image_processor(images: list[np.ndarray], return_tensors: str) -> _Inputs:  # noqa: ARG004
        cut = torch.from_numpy(np.stack(images)[:, 16:240, 16:240]).permute(0, 3, 1, 2)
        return _Inputs(pixel_values=cut.float() / 255)

    @staticmethod
    def tokenizer(texts: list[str], **_: object) -> _Inputs:
        return _Inputs(input_ids=torch.ones(len(texts), 4, dtype=torch.int64))


def nasva(precision: str, *, small: bool, compiled: bool) -> Iterator[Work]:
    """The grounding network at two lengths of video, by the released loss."""
    shapes = (
        {"T 40, K 5": (2, 40, 5)}
        if small
        else {"T 400, K 50": (8, 400, 50), "T 1200, K 100": (8, 1200, 100)}
    )
    loss = AlignerLossSettings(form="release")
    for name, shape in shapes.items():
        plain: dict[str, Callable[[], object]] = {}
        for way in (False, True) if compiled else (False,):
            torch.manual_seed(0)
            model = (
                Aligner(SMALL_ALIGNER if small else AlignerNetworkSettings())
                .to(current_device().name)
                .train()
            )
            # a CPU is to show that it runs
            backend = "inductor" if current_device().kind == "cuda" else "eager"
            network = torch.compile(model, backend=backend, dynamic=False) if way else model
            data = aligner_batch(*shape).to(current_device().name)

            def trained(network: nn.Module = network, data: object = data) -> torch.Tensor:
                return grounding_loss(network(data), data, loss).mean

            title = f"NaSVA, {name}" + (", compiled" if way else "")
            step = step_of(model, trained, precision)
            infer = at_rest(model, lambda n=network, d=data: n(d).scores)
            yield Work(
                title,
                "training",
                "samples",
                shape[0],
                step,
                NASVA_SAMPLES,
                plain.setdefault("training", step),
            )
            yield Work(
                title,
                "inference",
                "samples",
                shape[0],
                infer,
                plain=plain.setdefault("inference", infer),
            )


def procx(precision: str, *, small: bool) -> Iterator[Work]:
    """The network that describes, key-aware attention: training with matching and captions,
    proposals at rest."""
    for videos in (2,) if small else (8, 64):
        counts = (COUNTS * videos)[:videos]
        made = ProcxTrainer(
            SMALL_PROCX if small else PROCX_MODEL,
            device=current_device().name,
            words=100 if small else WORDS,
            counts=counts,
        )

        def step(made: ProcxTrainer = made) -> torch.Tensor:
            return made.step(bf16=precision == "bf16")

        title = f"ProcX, batch {videos}"
        yield Work(title, "training", "videos", videos, step, PROCX_VIDEOS)
        yield Work(
            title,
            "inference",
            "videos",
            videos,
            at_rest(made.model, lambda m=made: m.model(m.batch.videos)),
        )


def wys2(precision: str, *, small: bool) -> Iterator[Work]:
    """The detector on ready features, and on frames through S3D. The summarizer."""
    rng, device = np.random.default_rng(0), current_device().name
    contrast, width = ContrastSettings(), 512
    for title, count, shape, settings in (
        ("WYS2 detector, features", 16 if small else 512, (3, width), DetectorSettings()),
        (
            "WYS2 detector, S3D end to end",
            2 if small else 16,
            (2, 64, 64, 3) if small else (16, 224, 224, 3),
            DetectorSettings(video="s3d", text="frozen", score="dot"),
        ),
    ):
        rows = [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(count)]
        if settings.video == "head":
            rows = [row.astype(np.float32) for row in rows]
        texts = rng.standard_normal((count, 1, width)).astype(np.float32)
        pairs = [
            ClipTextPair(str(k), row, text)
            for k, (row, text) in enumerate(zip(rows, texts, strict=True))
        ]
        network, data = Detector(settings).to(device).train(), collate_pairs(pairs).to(device)

        def loss(network: Detector = network, data: object = data) -> torch.Tensor:
            return contrastive_loss(network(data), contrast).mean

        yield Work(title, "training", "clips", count, step_of(network, loss, precision))
        infer = at_rest(network, lambda n=network, d=data: n.own_scores(d))
        yield Work(title, "inference", "clips", count, infer)
    videos, segments = (2, 20) if small else (16, 240)  # 240 segments of 2 s: 8 minutes
    summarizer = (
        Summarizer(SummarizerSettings(video_width=width, text_width=width)).to(device).train()
    )
    inputs = [torch.randn(videos, segments, width, device=device) for _ in range(2)]
    pad = torch.zeros(videos, segments, dtype=torch.bool, device=device)
    matters = torch.rand(videos, segments, device=device).round()

    def entropy() -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(summarizer(*inputs, pad), matters)

    yield Work("summarizer", "training", "videos", videos, step_of(summarizer, entropy, precision))
    yield Work(
        "summarizer",
        "inference",
        "videos",
        videos,
        at_rest(summarizer, lambda: summarizer(*inputs, pad)),
    )


def works(precision: str, *, small: bool, compiled: bool, only: Sequence[str]) -> Iterator[Work]:
    """Yield what is measured, one after another: the next is made when the last is done with."""
    parts: dict[str, Callable[[], Iterator[Work]]] = {
        **{
            name: lambda name=name: recognition(name, small=small)
            for name in ("whisper-tiny.en", "whisper-base")
        },
        "backbones": lambda: backbones(small=small),
        "nasva": lambda: nasva(precision, small=small, compiled=compiled),
        "procx": lambda: procx(precision, small=small),
        "wys2": lambda: wys2(precision, small=small),
    }
    for name, part in parts.items():
        chosen = not only or any(word in name for word in only)
        if chosen and (not name.startswith("whisper") or weights_fetched(name)):
            yield from part()
            gc.collect()


class Operations(TorchDispatchMode):
    """Counts multiplications and additions of matrix products, convolutions and attention, forward
    and backward."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Do an operation and count it."""
        given = kwargs or {}
        count = flop_registry.get(func.overloadpacket)
        if count is None and func is not torch.ops.prim.device.default:
            with self:  # without gradients, torch shows `linear` whole
                parts = func.decompose(*args, **given)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **given)
        self.total += 0 if count is None else count(*args, **given, out_val=result)
        return result


def wait() -> None:
    """Return when the device has done what it was given."""
    if current_device().kind == "cuda":
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object], budget: float) -> float:
    """Return the seconds of one call, over as many as fit into the budget, two at least."""
    began, count = time.perf_counter(), 0
    while count < 2 or time.perf_counter() - began < budget:
        call()
        count += 1
        wait()
    return (time.perf_counter() - began) / count


def measure(work: Work, precision: str, peak: float, budget: float) -> Row:
    """Return what a work comes to."""
    told = work.network.startswith("whisper")
    counter = Operations()
    with nullcontext() if told else counter:
        (work.plain or work.call)()
    for _ in range(1 if told else WARM):
        work.call()
    wait()
    on_gpu = current_device().kind == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    taken = seconds_of(work.call, budget)
    tflops = None if told else counter.total / taken / 1e12
    return Row(
        work.network,
        work.kind,
        precision,
        work.unit,
        per_second=work.units / taken,
        peak_mib=torch.cuda.max_memory_allocated() / 2**20 if on_gpu else peak_mib(),
        tflops=tflops,
        share_of_peak=None if tflops is None else tflops / peak,
        hours_of_the_papers_training=None
        if work.paper is None
        else work.paper * taken / work.units / 3600,
    )


def peak_tflops(precision: str, size: int) -> float:
    """Return the TFLOP/s of a large matrix product, what this device reaches at most. float32
    without TF32."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(size, size, device=current_device().name, dtype=dtype)
    return 2 * size**3 / min(seconds_of(lambda: a @ a, 0.0) for _ in range(5)) / 1e12


def line(row: Row) -> str:
    """Return a row as text."""
    share = (
        ""
        if row.share_of_peak is None
        else f"{row.tflops:8.2f} TFLOP/s {row.share_of_peak:6.1%} of peak"
    )
    hours = row.hours_of_the_papers_training
    ends = "" if hours is None else f"  the paper's training in {hours:.1f} h"
    speed = f"{row.per_second:11.1f} {row.unit}/s"
    return f"{row.network:32s} {row.kind:9s} {row.precision:8s} {speed:26s} {row.peak_mib:7.0f} MiB {share}{ends}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for. Return 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured, a row")
    parser.add_argument(
        "--only", nargs="*", default=[], help="whisper, backbones, nasva, procx, wys2"
    )
    parser.add_argument(
        "--compile", action="store_true", help="NaSVA through torch.compile as well"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--small",
        action="store_true",
        help="tiny networks and batches: whether it runs, not how fast",
    )
    given = parser.parse_args(arguments)
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU here: nothing is measured; --device cpu --small goes through the lines")
        return 0
    began, rows, peaks = time.monotonic(), [], {}
    for precision in PRECISIONS:
        set_device(given.device, precision)
        peaks[precision] = peak_tflops(precision, 256 if given.small else 8192)
        for work in works(precision, small=given.small, compiled=given.compile, only=given.only):
            rows.append(
                measure(work, precision, peaks[precision], 0.0 if given.small else given.seconds)
            )
            print(line(rows[-1]), file=sys.stderr if given.json else sys.stdout, flush=True)
    on_gpu = current_device().kind == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else "none (CPU)"
    about = {"device": name, "torch": torch.__version__, "seconds": round(time.monotonic() - began)}
    text = (
        json.dumps({**about, "peak_tflops": peaks, "rows": [asdict(row) for row in rows]}, indent=2)
        + "\n"
    )
    if given.json:
        print(text, end="")
    if not given.small:
        RESULTS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
