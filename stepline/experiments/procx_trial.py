"""What one training of ProcX's tables is; nothing heavy is imported here.

A trial is named by its content, so that rows share trainings, fine-tunings share their pre-training, and a rerun finds
them done.
"""

import hashlib
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.settings import Count, Positive, Settings

Share: TypeAlias = Annotated[float, Field(gt=0.0, le=1.0)]
Words: TypeAlias = Literal["raw", "only-sieve", "swap", "mix"]
Form: TypeAlias = Literal["youcook2", "tasty"]
View: TypeAlias = Literal["surest", "apart", "oracle"]  # how steps are chosen; "oracle" knows where they are
Guess: TypeAlias = Literal["uniform, common", "uniform, nearest", "prior, common", "prior, nearest", "nearest video"]
System: TypeAlias = Literal["procx", "pdvc", "vid2seq"]
Attention: TypeAlias = Literal["key-aware", "vanilla"]

FORMS: tuple[Form, ...] = ("youcook2", "tasty")
VERSION = 1  # of what a trial does; another makes all trials new


class ProcxSize(Settings):
    """How large the experiment is."""

    narrated: Count = 300  # videos to pre-train on
    captioned: Count = 400  # to fine-tune on, of each form; YouCook2: 840
    withheld: Count = 80  # to score on, of each form
    features: Count = 128  # C of a feature row, the simulated encoder's
    rows: Count = 64  # of features a video; the paper's 256
    width: Count = 64  # D; PDVC's 512
    heads: Count = 2  # PDVC's 8
    layers: Count = 2  # encoder and decoder each; the paper's 4
    queries: Count = 20  # PDVC's 100; a video has 6 or 9 steps, and 11 pieces of narration
    pretraining_steps: Count = 200
    finetuning_steps: Count = 600
    batch: Count = 8  # section E.2, fine-tuning
    learning_rate: Positive = 3e-3  # the paper's 1e-4, for a network 100 times as large
    clip: Positive = 1.0  # the paper's 0.1


class ProcxTrial(Settings):
    """One training: pre-trained on narrated videos, fine-tuned on captioned ones, or one of the two alone."""

    seed: int = 0  # of the world, of the network and of the order of videos
    form: Form = "youcook2"  # of the captioned videos that it is fine-tuned on
    system: System = "procx"
    pretraining: Words | None = None  # what the steps of the narrated videos say; None: fresh weights
    narrated_share: Share = 1.0  # of the narrated videos
    captioned_share: Share = 1.0  # of the captioned videos
    zero_shot: bool = False  # not fine-tuned
    speech: bool = False  # what is said is read, in training and in writing
    captioner: Literal["transformer", "lstm"] = "transformer"
    confidence: Literal["varifocal", "focal"] = "varifocal"
    encoder: Attention = "key-aware"
    decoder: Attention = "key-aware"
    contrast: Literal["none", "pair", "multiple"] = "pair"  # in fine-tuning; "multiple" in pre-training unless "none"
    size: ProcxSize = ProcxSize()

    @property
    def key(self) -> str:
        """The name under which its result is kept."""
        return hashlib.sha256(f"{VERSION} {self.model_dump_json()}".encode()).hexdigest()[:20]

    @property
    def start(self) -> "ProcxTrial | None":
        """The pre-training that it goes on from; None where it is one itself, or starts from fresh weights."""
        if self.pretraining is None or self.zero_shot:
            return None
        contrast = "none" if self.contrast == "none" else "multiple"
        return alike(self, form="youcook2", captioned_share=1.0, zero_shot=True, contrast=contrast)


def alike(trial: ProcxTrial, **changes: object) -> ProcxTrial:
    """Return a trial that differs in some fields."""
    fields = {name: getattr(trial, name) for name in type(trial).model_fields}
    return ProcxTrial.model_validate({**fields, **changes})
