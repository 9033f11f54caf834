"""Settings of the training loop. Importing this file does not import torch."""

from typing import Annotated, Final, Literal, TypeAlias

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

TextKind: TypeAlias = Literal["narration", "step"]
StepLabelSource: TypeAlias = Literal["shown_or_said", "shown", "said"]

CHECKPOINT_FILE: Final = "last.safetensors"  # in the folder of a run that is not finished
# on what is learnt: a run may be resumed with others
NO_EFFECT_ON_RESULT: Final = ("readers", "device", "save_every")


class TrainSettings(Settings):
    """Length, optimizer and checkpoints of a training run. The defaults are those of NaSVA, section
    4.2, and of its released code."""

    epochs: Count = Field(
        12,
        description="passes over all samples. NaSVA section 4.2; its released configuration has 20",
    )
    batch: Batch = Field(8, description="samples per step; NaSVA, supplement")
    learning_rate: Positive = Field(
        1e-4, description="highest learning rate; it falls to 0 as a cosine; NaSVA section 4.2"
    )
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0, description="fraction of the steps in which the learning rate rises linearly. 0: none"
    )
    weight_decay: NonNegative = Field(
        5e-5, description="weight decay of AdamW, on weight matrices only; released code"
    )
    clip: Positive = Field(1.0, description="gradients are scaled down to this norm; released code")
    patience: CountOrZero = Field(
        0,
        description="training ends after this many held-out scores without a better one. 0: it "
        "runs all epochs",
    )
    score_every: Count = Field(1, description="epochs between held-out scores")
    seed: Seed = Field(
        0, description="seed of fresh weights, sample order, dropout and augmentation"
    )
    bf16: bool = Field(
        False,
        description="mixed precision (bfloat16); twice as slow on a CPU without bfloat16 units",
    )
    save_every: Count = Field(
        200, description="steps between checkpoints: what a killed run loses at most"
    )
    readers: ThreadsOrZero = Field(
        2, description="threads that read the next batches. 0: each step reads its own batch"
    )
    device: DeviceName = Field(
        "auto",
        description="auto (a CUDA GPU if there is one), cpu, cuda, cuda:N or mps. --device overrides it",
    )
