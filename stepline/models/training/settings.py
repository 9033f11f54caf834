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
    """How long and how fast a network learns. The defaults are those of NaSVA, section 4.2, and of
    its released code."""

    epochs: Count = Field(12, description="NaSVA section 4.2; its released configuration has 20")
    batch: Batch = Field(8, description="videos per step; supplement")
    learning_rate: Positive = Field(
        1e-4, description="at the start; falls to 0 as a cosine; section 4.2"
    )
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0, description="share of the steps in which it first rises from 0 (0: none)"
    )
    weight_decay: NonNegative = Field(5e-5, description="AdamW's, of matrices alone; released code")
    clip: Positive = Field(1.0, description="greatest norm of a gradient; released code")
    patience: CountOrZero = Field(
        0,
        description="held-out scores without a better one after which training ends. 0: it takes "
        "all epochs",
    )
    score_every: Count = Field(1, description="epochs between held-out scores")
    seed: Seed = Field(
        0, description="of the order of videos, of dropout and of whatever a batch draws"
    )
    bf16: bool = Field(
        False, description="mixed precision; twice as slow on a CPU without its own bf16 units"
    )
    save_every: Count = Field(
        200, description="steps between checkpoints: what a killed run loses at most"
    )
    readers: ThreadsOrZero = Field(
        2, description="threads that read the next batches. 0: none, each step reads its own"
    )
    device: DeviceName = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps. --device wins"
    )
