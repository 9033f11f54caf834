"""One training of ProcX or PDVC: its size and what it is trained on. This file imports nothing heavy."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lab.study import Trial
from stepline.models.procx.settings import QueryForm
from stepline.settings import Count, CountOrZero, Positive, Settings

PositiveFraction: TypeAlias = Annotated[float, Field(gt=0.0, le=1.0)]
Wording: TypeAlias = Literal["raw", "only-sieve", "swap", "mix"]
Form: TypeAlias = Literal["youcook2", "tasty"]
System: TypeAlias = Literal["procx", "pdvc"]
Attention: TypeAlias = Literal["key-aware", "vanilla"]

SeedOrNone: TypeAlias = CountOrZero | None
BENCHMARK_FORMS: tuple[Form, ...] = ("youcook2", "tasty")


class ProcxSize(Settings):
    """How large the experiment is."""

    narrated: Count = 300  # videos to pre-train on
    captioned: Count = 400  # to fine-tune on, of each form; YouCook2: 840
    withheld: Count = 80  # to score on, of each form
    validated: Count = 40  # that say when a training has reached its plateau, of each form
    features: Count = 128  # C of a feature row, the simulated encoder's
    rows: Count = 64  # of features a video; the paper's 256
    width: Count = 64  # D; PDVC's 512
    heads: Count = 2  # PDVC's 8
    layers: Count = 2  # encoder and decoder each; the paper's 4
    queries: Count = 20  # PDVC's 100; a video has 6 or 9 steps, and 11 pieces of narration
    pretraining_steps: Count = 200
    finetuning_steps: Count = 600  # from pre-trained weights
    steps: Count = 600  # on captioned videos, from fresh weights
    batch: Count = 8  # section E.2, fine-tuning
    # of fresh weights. The paper's 1e-4, for a network 100 times as large
    learning_rate: Positive = 3e-3
    finetuning_rate: Positive = 1e-3  # of pre-trained weights
    clip: Positive = 1.0  # the paper's 0.1


class ProcxTrial(Trial):
    """One training: on narrated videos, on captioned ones, or on the first and then the others."""

    form: Form = "youcook2"  # of the captioned videos that it is fine-tuned on
    system: System = "procx"
    # what the steps of the narrated videos say. None: fresh weights
    pretraining: Wording | None = None
    narrated_share: PositiveFraction = 1.0  # of the narrated videos
    zero_shot: bool = False  # not fine-tuned
    captioner: Literal["transformer", "lstm"] = "transformer"
    confidence: Literal["varifocal", "focal"] = "varifocal"
    encoder: Attention = "key-aware"
    decoder: Attention = "key-aware"
    # in fine-tuning. "multiple" in pre-training unless "none"
    contrast: Literal["none", "pair", "multiple"] = "pair"
    network_seed: SeedOrNone = None  # of fresh weights and the order of videos; None: the world's
    query_form: QueryForm = "shared"
    # validation scores without a better one after which training ends. 0: no validation
    patience: CountOrZero = 0
    rate: Positive | None = None  # of its last training; None: the size's
    steps: Count | None = None  # of the same; None: the size's
    size: ProcxSize = ProcxSize()

    @property
    def start(self) -> "ProcxTrial | None":
        """The pre-training that it continues, None where it starts from fresh weights."""
        if self.pretraining is None or self.zero_shot:
            return None
        contrast = "none" if self.contrast == "none" else "multiple"
        return self.changed(
            form="youcook2", zero_shot=True, contrast=contrast, patience=0, rate=None, steps=None
        )

    @property
    def predecessors(self) -> tuple["ProcxTrial", ...]:
        """The pre-training, where it has one."""
        return () if self.start is None else (self.start,)


PROCX_TRIAL = ProcxTrial()
PDVC_TRIAL = ProcxTrial(system="pdvc")


def pretrained(trial: ProcxTrial, wording: Wording, **changes: object) -> ProcxTrial:
    """Return a trial that is pre-trained on steps in this wording."""
    return trial.changed(pretraining=wording, **changes)


def zero_shot(trial: ProcxTrial, wording: Wording) -> ProcxTrial:
    """Return the pre-training alone: the trial that fine-tunings start from."""
    start = pretrained(trial, wording).start
    return start if start is not None else trial
