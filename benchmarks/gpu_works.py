"""What gpu.py measures: every network with one call of its training or inference.

Sizes are the papers'. With `small` they are tiny, and prove only that every line runs.
"""

import gc
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nasva_data import batch as aligner_batch
from procx_model import STEP_COUNTS, WORD_COUNT
from procx_model import Trainer as ProcxTrainer
from torch import nn

from stepline.media import AudioBlock, read_sound
from stepline.models.nasva.loss import grounding_loss
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerLossSettings, AlignerNetworkSettings
from stepline.models.procx.settings import (
    PROCX_MODEL,
    AttentionSettings,
    CaptionerSettings,
    ModelSettings,
)
from stepline.models.wys2.clips import ClipTextPair, collate_pairs
from stepline.models.wys2.detector import Detector, contrastive_loss
from stepline.models.wys2.settings import ContrastSettings, DetectorSettings, SummarizerSettings
from stepline.models.wys2.summarizer import Summarizer
from stepline.networks.device import current_device
from stepline.networks.weights import weights_fetched
from stepline.speech import AsrSettings, transcribe
from stepline.text import embed

DEMO_PATH = Path(__file__).parents[1] / "stepline" / "demo" / "demo.mp4"
# seen in the papers' trainings
NASVA_SAMPLES = (340_000 + 370_000) * 12
PROCX_VIDEOS = 48_000 * 10
WHISPER_NAMES = ("whisper-tiny.en", "whisper-base")
WYS2_WIDTH = 512
ALIGNER_SHAPES = {"T 400, K 50": (8, 400, 50), "T 1200, K 100": (8, 1200, 100)}
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
# CLIP ViT-L/14
CLIP_TEXT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
CLIP_VISION = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "intermediate_size": 4096,
    "patch_size": 14,
}
SMALL_CLIP = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}

Call = Callable[[], object]
Loss = Callable[[], torch.Tensor]
BatchShape = tuple[int, int, int]  # videos, seconds, texts


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
    call: Call
    paper: int | None = None
    plain: Call | None = None


Works = Iterator[Work]


@dataclass(frozen=True)
class Setup:
    """How networks are measured. compiled: NaSVA through torch.compile as well."""

    precision: str
    small: bool
    compiled: bool

    @property
    def is_half(self) -> bool:
        """Whether forward passes are in bfloat16."""
        return self.precision == "bf16"


def inference(network: str, unit: str, units: float, call: Call) -> Work:
    """Return work without gradients."""
    return Work(network, "inference", unit, units, call)


def training(network: str, unit: str, units: float, call: Call, paper: int | None = None) -> Work:
    """Return work of one training step."""
    return Work(network, "training", unit, units, call, paper)


def step_of(network: nn.Module, loss: Loss, setup: Setup) -> Loss:
    """Return one step of training: forward, loss, backward, clipping, AdamW."""
    weights = list(network.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)

    def step() -> torch.Tensor:
        device = current_device().kind
        with torch.autocast(device, torch.bfloat16, enabled=setup.is_half):
            value = loss()
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return value.detach()

    return step


def at_rest(network: nn.Module, forward: Call) -> Call:
    """Return inference: the same forward pass, without gradients."""

    def infer() -> object:
        network.eval()
        with torch.inference_mode(), current_device().autocast():
            return forward()

    return infer


def recognition(model: str, setup: Setup) -> Works:
    """Speech of the demo, again and again: seconds of sound per second, with voice detection and
    word times."""
    blocks = [block.samples for block in read_sound(DEMO_PATH)]
    samples = np.concatenate(blocks)
    sound = np.tile(samples, 1 if setup.small else 10)
    seconds = len(sound) / 16_000
    settings = AsrSettings(model=model, compute="int8")

    def recognise() -> object:
        return transcribe([AudioBlock(0.0, sound)], settings)

    yield inference(model, "s of sound", seconds, recognise)


def backbones(setup: Setup) -> Works:
    """Pictures, clips and texts to vectors, from uint8 in main memory to float32 in main memory."""
    from stepline.vision import VisionSettings, load_backbone
    from stepline.vision.s3d import S3DBackbone, TextTower, WordDictionary
    from stepline.vision.s3d_network import S3D, FoldedS3D

    # pictures and texts
    rng = np.random.default_rng(0)
    count = 2 if setup.small else 64
    shape = (count, 256, 256, 3)
    pictures = rng.integers(0, 256, shape, dtype=np.uint8)
    conse = load_backbone(VisionSettings())
    name = "ConSE (EfficientNet-Lite0)"
    yield inference(name, "pictures", count, lambda: conse.encode_images(pictures))
    texts = []
    for number in range(8 if setup.small else 2048):
        texts.append(f"cut the onion into {number} thin rings and fry them")
    yield inference("MiniLM", "texts", len(texts), lambda: embed(texts))

    # clips
    device = current_device().name
    clip_count = count // 2
    frames = 2 if setup.small else 16
    clip_shape = (clip_count, frames, 256, 256, 3)
    clips = np.broadcast_to(pictures[:clip_count, None], clip_shape)
    network = S3D().eval().to(device)
    words = TextTower(4).eval().to(device)
    dictionary = WordDictionary(["cut", "fry"])
    s3d = S3DBackbone(FoldedS3D(network), words, dictionary, "released")
    yield inference("S3D", "clips of 16", clip_count, lambda: s3d.encode_clips(clips))
    if importlib.util.find_spec("transformers") is not None:
        yield from clip_backbone(pictures, setup)


def clip_backbone(pictures: np.ndarray, setup: Setup) -> Works:
    """Pictures to vectors by CLIP ViT-L/14, its weights random."""
    from transformers import CLIPConfig, CLIPModel

    from stepline.vision.clip import CLIPBackbone

    text = SMALL_CLIP if setup.small else CLIP_TEXT
    vision = SMALL_CLIP if setup.small else CLIP_VISION
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=768)
    model = CLIPModel(config).eval()
    clip = CLIPBackbone(model, _Processor(), batch=64)

    def encode() -> object:
        return clip.encode_images(pictures)

    yield inference("CLIP ViT-L/14", "pictures", len(pictures), encode)


class _Inputs(dict[str, torch.Tensor]):
    def to(self, device: str) -> "_Inputs":
        return _Inputs({name: value.to(device) for name, value in self.items()})


class _Processor:
    """Replaces a checkpoint's own: the middle of each picture. One token per text."""

    @staticmethod
    def image_processor(images: list[np.ndarray], return_tensors: str) -> _Inputs:  # noqa: ARG004
        middles = np.stack(images)[:, 16:240, 16:240]
        pixels = torch.from_numpy(middles).permute(0, 3, 1, 2)
        return _Inputs(pixel_values=pixels.float() / 255)

    @staticmethod
    def tokenizer(texts: list[str], **_: object) -> _Inputs:
        ids = torch.ones(len(texts), 4, dtype=torch.int64)
        return _Inputs(input_ids=ids)


def nasva(setup: Setup) -> Works:
    """The grounding network at two lengths of video, by the released loss."""
    shapes = ALIGNER_SHAPES
    if setup.small:
        shapes = {"T 40, K 5": (2, 40, 5)}
    for name, shape in shapes.items():
        yield from nasva_at(f"NaSVA, {name}", shape, setup)


def nasva_at(title: str, shape: BatchShape, setup: Setup) -> Works:
    """The grounding network at one shape of a batch, and the same compiled."""
    plain_works = list(aligner_works(title, shape, setup, compiled=False))
    yield from plain_works
    if setup.compiled:
        works = aligner_works(f"{title}, compiled", shape, setup, compiled=True)
        for work, plain_work in zip(works, plain_works, strict=True):
            # the compiler hides the operations, which the plain call shows
            yield replace(work, plain=plain_work.call)


def aligner_works(title: str, shape: BatchShape, setup: Setup, *, compiled: bool) -> Works:
    """Training and inference of the grounding network at one shape of a batch."""
    device = current_device()
    torch.manual_seed(0)
    settings = SMALL_ALIGNER if setup.small else AlignerNetworkSettings()
    model = Aligner(settings).to(device.name).train()
    network: Any = model
    if compiled:
        # on a CPU only to prove that it runs
        backend = "inductor" if device.kind == "cuda" else "eager"
        network = torch.compile(model, backend=backend, dynamic=False)
    data = aligner_batch(*shape).to(device.name)
    loss_settings = AlignerLossSettings(form="release")

    def loss() -> torch.Tensor:
        return grounding_loss(network(data), data, loss_settings).mean

    step = step_of(model, loss, setup)
    infer = at_rest(model, lambda: network(data).scores)
    samples = shape[0]
    yield training(title, "samples", samples, step, NASVA_SAMPLES)
    yield inference(title, "samples", samples, infer)


def procx(setup: Setup) -> Works:
    """The network that describes, key-aware attention: training with matching and captions,
    proposals at rest."""
    for videos in (2,) if setup.small else (8, 64):
        yield from procx_at(videos, setup)


def procx_at(videos: int, setup: Setup) -> Works:
    """The network that describes at one size of a batch."""
    settings = SMALL_PROCX if setup.small else PROCX_MODEL
    words = 100 if setup.small else WORD_COUNT
    counts = (STEP_COUNTS * videos)[:videos]
    device = current_device().name
    trainer = ProcxTrainer(settings, device=device, words=words, counts=counts)
    model = trainer.model

    def step() -> torch.Tensor:
        return trainer.step(bf16=setup.is_half)

    infer = at_rest(model, lambda: model(trainer.batch.videos))
    title = f"ProcX, batch {videos}"
    yield training(title, "videos", videos, step, PROCX_VIDEOS)
    yield inference(title, "videos", videos, infer)


def wys2(setup: Setup) -> Works:
    """The detector on ready features, and on frames through S3D. The summarizer."""
    rng = np.random.default_rng(0)
    feature_shape = (3, WYS2_WIDTH)
    frame_shape = (16, 224, 224, 3)
    feature_clips = 512
    frame_clips = 16
    if setup.small:
        frame_shape = (2, 64, 64, 3)
        feature_clips = 16
        frame_clips = 2
    settings = DetectorSettings()
    pairs = random_pairs(feature_clips, feature_shape, np.float32, rng)
    yield from detector("WYS2 detector, features", pairs, settings, setup)
    settings = DetectorSettings(video="s3d", text="frozen", score="dot")
    pairs = random_pairs(frame_clips, frame_shape, np.uint8, rng)
    yield from detector("WYS2 detector, S3D end to end", pairs, settings, setup)
    yield from summarizer(setup)


def random_pairs(
    count: int, shape: tuple[int, ...], kind: type[np.generic], rng: np.random.Generator
) -> list[ClipTextPair]:
    """Return clips of one shape and kind of numbers, each with a text."""
    rows = []
    for _ in range(count):
        row = rng.integers(0, 256, shape, dtype=np.uint8)
        rows.append(row.astype(kind))
    texts = rng.standard_normal((count, 1, WYS2_WIDTH)).astype(np.float32)
    return [ClipTextPair(str(number), rows[number], texts[number]) for number in range(count)]


def detector(
    title: str, pairs: list[ClipTextPair], settings: DetectorSettings, setup: Setup
) -> Works:
    """Training and inference of a detector."""
    device = current_device().name
    network = Detector(settings).to(device).train()
    data = collate_pairs(pairs).to(device)
    contrast = ContrastSettings()

    def loss() -> torch.Tensor:
        return contrastive_loss(network(data), contrast).mean

    step = step_of(network, loss, setup)
    infer = at_rest(network, lambda: network.matched_pair_scores(data))
    yield training(title, "clips", len(pairs), step)
    yield inference(title, "clips", len(pairs), infer)


def summarizer(setup: Setup) -> Works:
    """Training and inference of the summarizer."""
    # 240 segments of 2 s: 8 minutes
    videos = 2 if setup.small else 16
    segments = 20 if setup.small else 240
    device = current_device().name
    settings = SummarizerSettings(video_width=WYS2_WIDTH, text_width=WYS2_WIDTH)
    network = Summarizer(settings).to(device).train()
    shape = (videos, segments, WYS2_WIDTH)
    inputs = [torch.randn(shape, device=device) for _ in range(2)]
    pad = torch.zeros(videos, segments, dtype=torch.bool, device=device)
    labels = torch.rand(videos, segments, device=device).round()

    def entropy() -> torch.Tensor:
        logits = network(*inputs, pad)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)

    step = step_of(network, entropy, setup)
    infer = at_rest(network, lambda: network(*inputs, pad))
    yield training("summarizer", "videos", videos, step)
    yield inference("summarizer", "videos", videos, infer)


def works(setup: Setup, only: Sequence[str]) -> Works:
    """Yield what is measured, one after another: the next is made when the last is done with."""
    parts: dict[str, Callable[[], Works]] = {}
    for name in WHISPER_NAMES:
        if weights_fetched(name):
            parts[name] = partial(recognition, name, setup)
    parts["backbones"] = partial(backbones, setup)
    parts["nasva"] = partial(nasva, setup)
    parts["procx"] = partial(procx, setup)
    parts["wys2"] = partial(wys2, setup)
    for name, part in parts.items():
        if not only or any(word in name for word in only):
            yield from part()
            gc.collect()
