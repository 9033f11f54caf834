"""The rows of ProcX's tables, with the paper's values. This file imports nothing heavy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lab.study import Row, Trial
from stepline.models.procx.settings import QueryForm, QueryStart
from stepline.settings import Count, CountOrZero, NonNegative, Positive, Settings

PositiveFraction: TypeAlias = Annotated[float, Field(gt=0.0, le=1.0)]
Wording: TypeAlias = Literal["raw", "only-sieve", "swap", "mix", "refined", "true"]
Form: TypeAlias = Literal["youcook2", "tasty"]
# How steps are chosen. "oracle" knows where they are.
Selection: TypeAlias = Literal["surest", "apart", "tile", "oracle"]
Baseline: TypeAlias = Literal[
    "uniform, common", "uniform, nearest", "prior, common", "prior, nearest", "nearest video"
]
System: TypeAlias = Literal["procx", "pdvc", "vid2seq"]
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
    captioned_share: PositiveFraction = 1.0  # of the captioned videos
    zero_shot: bool = False  # not fine-tuned
    speech: bool = False  # what is said is read, in training and in writing
    captioner: Literal["transformer", "lstm"] = "transformer"
    confidence: Literal["varifocal", "focal"] = "varifocal"
    encoder: Attention = "key-aware"
    decoder: Attention = "key-aware"
    # in fine-tuning. "multiple" in pre-training unless "none"
    contrast: Literal["none", "pair", "multiple"] = "pair"
    # of the loss. None: the system's. 0: captions are not learnt
    caption_weight: NonNegative | None = None
    query_start: QueryStart = "xavier"  # of the query projections of key-aware attention
    offset_rate: Positive = 1.0  # of the rate, for sampling offsets
    network_seed: SeedOrNone = None  # of fresh weights and the order of videos; None: the world's
    query_form: QueryForm = "shared"
    role_weight: NonNegative = 0.0  # of the contrast between roles
    overlap_weight: NonNegative = 0.0  # of what boxes overlap
    # validation scores without a better one after which training ends. 0: no validation
    patience: CountOrZero = 0
    rate: Positive | None = None  # of its last training; None: the size's
    steps: Count | None = None  # of the same; None: the size's
    size: ProcxSize = ProcxSize()

    @property
    def start(self) -> "ProcxTrial | None":
        """The pre-training that it goes on from.

        None where it is a pre-training itself, or starts from fresh weights.
        """
        if self.pretraining is None or self.zero_shot:
            return None
        contrast = "none" if self.contrast == "none" else "multiple"
        return self.changed(
            form="youcook2",
            captioned_share=1.0,
            zero_shot=True,
            contrast=contrast,
            patience=0,
            rate=None,
            steps=None,
        )

    @property
    def predecessors(self) -> tuple["ProcxTrial", ...]:
        """The pre-training, where it has one."""
        return () if self.start is None else (self.start,)


# As the paper's tables have them.
METRIC_COLUMNS = ("SODA-C", "METEOR", "CIDEr", "BLEU-4", "SODA-D")

TABLE_TITLES = {
    "baselines": (
        "Without a look at the video: places even or usual, "
        "captions common or of the nearest training video"
    ),
    "1": "Table 1: pre-training on raw speech, or on Sieve & Swap; fine-tuned on the YouCook2 form",
    "3": "Table 3: without and with pre-training on Sieve & Swap, both forms",
    "4": "Table 4: zero-shot, pre-trained alone",
    "5": "Table 5: what the steps of the narrated videos say; YouCook2 form",
    "2a": "Table 2a: captioner and confidence loss, vanilla attention, no pre-training",
    "2b": "Table 2b: where attention looks at keys, no pre-training",
    "contrast": "The contrastive loss of fine-tuning, no pre-training",
    "7b": "Figure 7b: share of the narrated videos; fine-tuned on all captioned ones",
    "data": "Share of the captioned videos; pre-trained on Sieve & Swap",
    "decoding": (
        "Which proposals are steps: the surest, the surest without overlap, or by an oracle"
    ),
    "speech": "With what is said read beside the pictures",
}

# They fit half an hour of two cores, three worlds.
USUAL_TABLES = ("baselines", "2a", "2b", "5", "contrast", "decoding", "speech")


@dataclass(frozen=True)
class ProcxRow(Row[ProcxTrial]):
    """A row: how steps are selected, and the benchmark's form that is scored.

    baseline: a guess without a network. Its trial then only names the world.
    """

    selection: Selection = "surest"
    form: Form = "youcook2"
    baseline: Baseline | None = None

    @property
    def subject(self) -> str:
        """The name by which claims refer to it."""
        return f"{self.table}: {self.name}"

    def as_json(self) -> dict[str, object]:
        """Return the row as tables.json has it. A baseline has no trial."""
        trial = None
        if self.baseline is None:
            trial = self.trial.model_dump(mode="json", exclude={"size", "seed"})
        tree = super().as_json()
        tree["form"] = self.form
        tree["chosen"] = self.selection
        tree["baseline"] = self.baseline
        tree["trial"] = trial
        return tree


PROCX_TRIAL = ProcxTrial()
PDVC_TRIAL = ProcxTrial(system="pdvc")
VID2SEQ_TRIAL = ProcxTrial(system="vid2seq")
SYSTEM_TRIALS = {"Vid2Seq": VID2SEQ_TRIAL, "PDVC": PDVC_TRIAL, "ProcX": PROCX_TRIAL}
WORDING_NAMES: Mapping[Wording, str] = {
    "raw": "raw speech",
    "only-sieve": "only sieved",
    "swap": "Sieve & Swap",
    "mix": "mixed",
    "refined": "Sieve & Swap, refined places",
    "true": "Sieve & Swap, true places",
}
DATA_FRACTIONS = (0.1, 0.25, 0.5)
BASELINE_NAMES: Mapping[Baseline, str] = {
    "uniform, common": "even parts, the commonest sentence",
    "uniform, nearest": "even parts, sentences of the nearest training video",
    "prior, common": "usual places, the commonest sentence",
    "prior, nearest": "usual places, sentences of the nearest training video",
    "nearest video": "places and sentences of the nearest training video",
}


def columns(*values: float | None) -> dict[str, float]:
    """Return published values by the paper's columns, those that it gives."""
    published = {}
    for name, value in zip(METRIC_COLUMNS, values, strict=False):
        if value is not None:
            published[name] = value
    return published


def pretrained(trial: ProcxTrial, wording: Wording, **changes: object) -> ProcxTrial:
    """Return a trial that is pre-trained on steps in this wording."""
    return trial.changed(pretraining=wording, **changes)


def procx_rows() -> tuple[ProcxRow, ...]:
    """Return all rows."""
    return (
        *_baselines(),
        *_table_1(),
        *_table_3(),
        *_table_4(),
        *_table_5(),
        *_table_2(),
        *_contrast(),
        *_shares(),
        *_decoding(),
        *_speech(),
    )


def _baselines() -> list[ProcxRow]:
    rows = []
    for form in BENCHMARK_FORMS:
        for baseline, name in BASELINE_NAMES.items():
            row = ProcxRow(
                "baselines", f"{name}, {form}", PROCX_TRIAL, form=form, baseline=baseline
            )
            rows.append(row)
    return rows


def _table_1() -> list[ProcxRow]:
    published = {
        ("Vid2Seq", "raw"): (3.65, 3.89, 14.57, 0.52, 29.64),
        ("Vid2Seq", "swap"): (4.21, 4.19, 15.86, 0.61, 29.71),
        ("PDVC", "raw"): (5.81, 6.27, 32.44, 1.26, 32.71),
        ("PDVC", "swap"): (6.16, 6.85, 36.27, 1.61, 32.80),
        ("ProcX", "raw"): (6.97, 6.34, 38.23, 1.71, 37.08),
        ("ProcX", "swap"): (7.29, 6.76, 40.57, 1.92, 37.61),
    }
    wordings: Sequence[Wording] = ("raw", "swap")
    rows = []
    for system, trial in SYSTEM_TRIALS.items():
        for wording in wordings:
            name = f"{system}, {WORDING_NAMES[wording]}"
            values = columns(*published[system, wording])
            rows.append(ProcxRow("1", name, pretrained(trial, wording), published=values))
    return rows


def _table_3() -> list[ProcxRow]:
    published: Mapping[tuple[str, bool, Form], tuple[float, ...]] = {
        ("Vid2Seq", False, "youcook2"): (3.61, 3.83, 14.24, 0.42, 27.16),
        ("Vid2Seq", False, "tasty"): (2.58, 3.03, 9.48, 0.38, 35.88),
        ("PDVC", False, "youcook2"): (5.43, 5.40, 27.42, 0.85, 31.63),
        ("PDVC", False, "tasty"): (7.18, 7.87, 37.32, 2.61, 43.51),
        ("ProcX", False, "youcook2"): (6.03, 5.35, 30.84, 1.27, 34.63),
        ("ProcX", False, "tasty"): (10.83, 10.55, 70.90, 6.26, 51.36),
        ("Vid2Seq", True, "youcook2"): (4.21, 4.19, 15.86, 0.61, 29.71),
        ("Vid2Seq", True, "tasty"): (7.28, 8.57, 46.29, 4.78, 38.94),
        ("PDVC", True, "youcook2"): (6.16, 6.85, 36.27, 1.61, 32.80),
        ("PDVC", True, "tasty"): (7.64, 8.31, 40.97, 2.84, 44.94),
        ("ProcX", True, "youcook2"): (7.29, 6.76, 40.57, 1.92, 37.61),
        ("ProcX", True, "tasty"): (11.66, 11.24, 78.13, 7.09, 52.16),
    }
    rows = []
    for (system, is_swapped, form), values in published.items():
        pretraining = "swap" if is_swapped else None
        pretraining_name = "Sieve & Swap" if is_swapped else "no pre-training"
        name = f"{system}, {pretraining_name}, {form}"
        trial = SYSTEM_TRIALS[system].changed(form=form, pretraining=pretraining)
        rows.append(ProcxRow("3", name, trial, form=form, published=columns(*values)))
    return rows


def _table_4() -> list[ProcxRow]:
    published: Mapping[tuple[str, Wording], tuple[tuple[float, ...], tuple[float, ...]]] = {
        ("Vid2Seq", "raw"): ((0.25, 0.35, 0.64, 0.01, 4.63), (0.91, 1.28, 1.78, 0.01, 25.12)),
        ("Vid2Seq", "swap"): ((1.33, 1.73, 3.83, 0.04, 17.52), (3.32, 4.52, 12.52, 0.56, 37.55)),
        ("PDVC", "raw"): ((0.72, 0.78, 2.39, 0.00, 10.51), (2.27, 2.78, 6.82, 0.13, 31.32)),
        ("PDVC", "swap"): ((2.01, 2.99, 9.78, 0.17, 21.70), (2.64, 4.18, 12.94, 0.58, 25.52)),
        ("ProcX", "raw"): ((1.10, 1.14, 2.86, 0.02, 17.83), (2.65, 3.41, 7.93, 0.35, 35.34)),
        ("ProcX", "swap"): ((2.03, 3.15, 7.75, 0.27, 22.37), (2.82, 6.24, 19.19, 1.36, 24.97)),
    }
    forms: Sequence[Form] = ("youcook2", "tasty")
    rows = []
    for (system, wording), by_form in published.items():
        trial = zero_shot(SYSTEM_TRIALS[system], wording)
        for form, values in zip(forms, by_form, strict=True):
            name = f"{system}, {WORDING_NAMES[wording]}, {form}"
            rows.append(ProcxRow("4", name, trial, form=form, published=columns(*values)))
    return rows


def zero_shot(trial: ProcxTrial, wording: Wording) -> ProcxTrial:
    """Return the pre-training alone: the trial that fine-tunings start from."""
    start = pretrained(trial, wording).start
    return start if start is not None else trial


def _table_5() -> list[ProcxRow]:
    published: Mapping[Wording, float] = {"raw": 6.97, "only-sieve": 6.93, "swap": 7.29}
    rows = [ProcxRow("5", "ProcX, no pre-training", PROCX_TRIAL, published=columns(6.03))]
    for wording, name in WORDING_NAMES.items():
        values = columns(published.get(wording))
        trial = pretrained(PROCX_TRIAL, wording)
        rows.append(ProcxRow("5", f"ProcX, {name}", trial, published=values))
    return rows


def _table_2() -> list[ProcxRow]:
    plain = {"encoder": "vanilla", "decoder": "vanilla"}
    lstm = PROCX_TRIAL.changed(captioner="lstm", confidence="focal", contrast="none", **plain)
    focal = PROCX_TRIAL.changed(confidence="focal", **plain)
    vanilla = PROCX_TRIAL.changed(**plain)
    encoder = vanilla.changed(encoder="key-aware")

    # published
    lstm_values = columns(5.43, 5.40, 27.42, 0.85, 31.48)
    focal_values = columns(4.94, 5.67, 28.88, 1.19, 28.64)
    vanilla_values = columns(5.84, 5.34, 30.83, 1.28, 33.33)
    encoder_values = columns(5.95, 5.40, 31.20, 1.29, 33.26)
    procx_values = columns(6.03, 5.35, 30.84, 1.27, 34.63)
    return [
        ProcxRow("2a", "LSTM, focal", lstm, published=lstm_values),
        ProcxRow("2a", "transformer, focal", focal, published=focal_values),
        ProcxRow("2a", "transformer, gVFL", vanilla, published=vanilla_values),
        ProcxRow("2a", "PDVC in full", PDVC_TRIAL),
        ProcxRow("2b", "nowhere", vanilla, published=vanilla_values),
        ProcxRow("2b", "encoder", encoder, published=encoder_values),
        ProcxRow("2b", "encoder and decoder", PROCX_TRIAL, published=procx_values),
    ]


def _contrast() -> list[ProcxRow]:
    return [
        ProcxRow("contrast", "none", PROCX_TRIAL.changed(contrast="none")),
        ProcxRow("contrast", "InfoNCE", PROCX_TRIAL),
        ProcxRow("contrast", "MIL-InfoNCE", PROCX_TRIAL.changed(contrast="multiple")),
    ]


def _shares() -> list[ProcxRow]:
    swapped = pretrained(PROCX_TRIAL, "swap")
    narrated = [
        ProcxRow("7b", f"{100 * fraction:g} %", swapped.changed(narrated_share=fraction))
        for fraction in DATA_FRACTIONS
    ]
    captioned = [
        ProcxRow("data", f"{100 * fraction:g} %", swapped.changed(captioned_share=fraction))
        for fraction in (*DATA_FRACTIONS, 1.0)
    ]
    return [
        ProcxRow("7b", "none", PROCX_TRIAL),
        *narrated,
        ProcxRow("7b", "100 %", swapped),
        *captioned,
    ]


SELECTION_NAMES: Mapping[Selection, str] = {
    "surest": "the surest, as many as counted",
    "apart": "the surest without overlap",
    "tile": "those that fill the video",
    "oracle": "oracle",
}


def _decoding() -> list[ProcxRow]:
    swapped = pretrained(PROCX_TRIAL, "swap")
    named = {"PDVC": PDVC_TRIAL, "ProcX": PROCX_TRIAL, "ProcX, Sieve & Swap": swapped}
    rows = []
    for system, trial in named.items():
        for selection, name in SELECTION_NAMES.items():
            rows.append(ProcxRow("decoding", f"{system}: {name}", trial, selection=selection))
    return rows


def _speech() -> list[ProcxRow]:
    rows = []
    for system, trial in (("Vid2Seq", VID2SEQ_TRIAL), ("ProcX", PROCX_TRIAL)):
        rows.append(ProcxRow("speech", f"{system}, pictures alone", trial.changed(speech=False)))
        rows.append(
            ProcxRow("speech", f"{system}, pictures and speech", trial.changed(speech=True))
        )
    return rows
