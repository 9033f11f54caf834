"""Settings of the training loop. Importing this file does not import torch."""

from typing import Annotated, Literal

from pydantic import Field

from stepline.networks.device import DeviceName
from stepline.settings import (
    Batch,
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    Seed,
    Settings,
    ThreadsOrZero,
)

TextKind = Literal["narration", "step"]
StepLabelSource = Literal["shown_or_said", "shown", "said"]

CHECKPOINT_FILE = "last.safetensors"  # in the folder of a run that is not finished
# on what is learnt: a run may be resumed with others
NO_EFFECT_ON_RESULT = ("readers", "device", "save_every")


class TrainSettings(Settings):
    """Length, optimizer and checkpoints of a training run. The defaults are those of NaSVA, section
    4.2, and of its released code."""

    epochs: Count = 12
    """passes over all samples. NaSVA section 4.2; its released configuration has 20"""
    batch: Batch = 8
    """samples per step; NaSVA, supplement"""
    learning_rate: Positive = 1e-4
    """highest learning rate; it falls to 0 as a cosine; NaSVA section 4.2"""
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """fraction of the steps in which the learning rate rises linearly. 0: none"""
    weight_decay: NonNegative = 5e-5
    """weight decay of AdamW, on weight matrices only; released code"""
    clip: Positive = 1.0
    """gradients are scaled down to this norm; released code"""
    patience: CountOrZero = 0
    """training ends after this many held-out scores without a better one. 0: it runs all epochs"""
    score_every: Count = 1
    """epochs between held-out scores"""
    seed: Seed = 0
    """seed of fresh weights, sample order, dropout and augmentation"""
    bf16: bool = False
    """mixed precision (bfloat16); twice as slow on a CPU without bfloat16 units"""
    save_every: Count = 200
    """steps between checkpoints: what a killed run loses at most"""
    readers: ThreadsOrZero = 2
    """threads that read the next batches. 0: each step reads its own batch"""
    device: DeviceName = "auto"
    """auto (a CUDA GPU if there is one), cpu, cuda, cuda:N or mps. --device overrides it"""
