"""The rows of ProcX's tables, with the paper's values; nothing heavy is imported here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from research.procx.corpus import FORMS, Form, Guess, ProcxTrial, View, Words, alike

COLUMNS = ("SODA-C", "METEOR", "CIDEr", "BLEU-4", "SODA-D")  # as the paper's tables have them

TITLES = {
    "baselines": "Without a look at the video: places even or usual, captions common or of the nearest training video",
    "1": "Table 1: pre-training on raw speech, or on Sieve & Swap; fine-tuned on the YouCook2 form",
    "3": "Table 3: without and with pre-training on Sieve & Swap, both forms",
    "4": "Table 4: zero-shot, pre-trained alone",
    "5": "Table 5: what the steps of the narrated videos say; YouCook2 form",
    "2a": "Table 2a: captioner and confidence loss, vanilla attention, no pre-training",
    "2b": "Table 2b: where attention looks at keys, no pre-training",
    "contrast": "The contrastive loss of fine-tuning, no pre-training",
    "7b": "Figure 7b: share of the narrated videos; fine-tuned on all captioned ones",
    "data": "Share of the captioned videos; pre-trained on Sieve & Swap",
    "decoding": "Which proposals are steps: the surest, the surest without overlap, or by an oracle",
    "speech": "With what is said read beside the pictures",
}

USUAL = ("baselines", "2a", "2b", "5", "contrast", "decoding", "speech")  # fit half an hour of two cores, three worlds


@dataclass(frozen=True)
class ProcxRow:
    """A row: its words, its trial with seed 0, how steps are chosen, the form scored, the paper's values by column.

    guess: of a baseline; the trial then says of which world alone.
    """

    table: str
    words: str
    trial: ProcxTrial
    view: View = "surest"
    form: Form = "youcook2"
    published: Mapping[str, float] = field(default_factory=dict)
    guess: Guess | None = None

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return f"{self.table}: {self.words}"


PROCX = ProcxTrial()
PDVC = ProcxTrial(system="pdvc")
VID2SEQ = ProcxTrial(system="vid2seq")
SYSTEMS = {"Vid2Seq": VID2SEQ, "PDVC": PDVC, "ProcX": PROCX}
WORDS: Mapping[Words, str] = {"raw": "raw speech", "only-sieve": "only sieved", "swap": "Sieve & Swap", "mix": "mixed"}
SHARES = (0.1, 0.25, 0.5)
GUESSES: Mapping[Guess, str] = {
    "uniform, common": "even parts, the commonest sentence",
    "uniform, nearest": "even parts, sentences of the nearest training video",
    "prior, common": "usual places, the commonest sentence",
    "prior, nearest": "usual places, sentences of the nearest training video",
    "nearest video": "places and sentences of the nearest training video",
}
BEST_PLACES, BEST_WORDS = (f"{GUESSES[name]}, youcook2" for name in ("uniform, common", "uniform, nearest"))


def columns(*values: float | None) -> dict[str, float]:
    """Return published values by the paper's columns, those that it gives."""
    return {name: value for name, value in zip(COLUMNS, values, strict=False) if value is not None}


def pretrained(trial: ProcxTrial, words: Words, **changes: object) -> ProcxTrial:
    """Return a trial that is pre-trained on those words."""
    return alike(trial, pretraining=words, **changes)


def procx_rows() -> tuple[ProcxRow, ...]:
    """Return all rows."""
    return (
        *_baselines(), *_table_1(), *_table_3(), *_table_4(), *_table_5(), *_table_2(), *_contrast(), *_shares(),
        *_decoding(), *_speech(),
    )  # fmt: skip


def _baselines() -> list[ProcxRow]:
    return [
        ProcxRow("baselines", f"{words}, {form}", PROCX, form=form, guess=guess)
        for form in FORMS
        for guess, words in GUESSES.items()
    ]


def _table_1() -> list[ProcxRow]:
    published = {
        ("Vid2Seq", "raw"): (3.65, 3.89, 14.57, 0.52, 29.64), ("Vid2Seq", "swap"): (4.21, 4.19, 15.86, 0.61, 29.71),
        ("PDVC", "raw"): (5.81, 6.27, 32.44, 1.26, 32.71), ("PDVC", "swap"): (6.16, 6.85, 36.27, 1.61, 32.80),
        ("ProcX", "raw"): (6.97, 6.34, 38.23, 1.71, 37.08), ("ProcX", "swap"): (7.29, 6.76, 40.57, 1.92, 37.61),
    }  # fmt: skip
    chosen: Sequence[Words] = ("raw", "swap")
    return [
        ProcxRow("1", f"{name}, {WORDS[words]}", pretrained(trial, words), published=columns(*published[name, words]))
        for name, trial in SYSTEMS.items()
        for words in chosen
    ]


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
    for (name, swapped, form), values in published.items():
        words = f"{name}, {'Sieve & Swap' if swapped else 'no pre-training'}, {form}"
        changes = {"form": form, "pretraining": "swap" if swapped else None}
        rows.append(ProcxRow("3", words, alike(SYSTEMS[name], **changes), form=form, published=columns(*values)))
    return rows


def _table_4() -> list[ProcxRow]:
    published: Mapping[tuple[str, Words], tuple[tuple[float, ...], tuple[float, ...]]] = {
        ("Vid2Seq", "raw"): ((0.25, 0.35, 0.64, 0.01, 4.63), (0.91, 1.28, 1.78, 0.01, 25.12)),
        ("Vid2Seq", "swap"): ((1.33, 1.73, 3.83, 0.04, 17.52), (3.32, 4.52, 12.52, 0.56, 37.55)),
        ("PDVC", "raw"): ((0.72, 0.78, 2.39, 0.00, 10.51), (2.27, 2.78, 6.82, 0.13, 31.32)),
        ("PDVC", "swap"): ((2.01, 2.99, 9.78, 0.17, 21.70), (2.64, 4.18, 12.94, 0.58, 25.52)),
        ("ProcX", "raw"): ((1.10, 1.14, 2.86, 0.02, 17.83), (2.65, 3.41, 7.93, 0.35, 35.34)),
        ("ProcX", "swap"): ((2.03, 3.15, 7.75, 0.27, 22.37), (2.82, 6.24, 19.19, 1.36, 24.97)),
    }
    forms: Sequence[Form] = ("youcook2", "tasty")
    return [
        ProcxRow(
            "4", f"{name}, {WORDS[words]}, {form}", zero_shot(SYSTEMS[name], words), form=form,
            published=columns(*published[name, words][place]),
        )
        for name, words in published
        for place, form in enumerate(forms)
    ]  # fmt: skip


def zero_shot(trial: ProcxTrial, words: Words) -> ProcxTrial:
    """Return the pre-training alone; the same trial as that which fine-tunings start from."""
    start = pretrained(trial, words).start
    return start if start is not None else trial


def _table_5() -> list[ProcxRow]:
    published = {"raw": 6.97, "only-sieve": 6.93, "swap": 7.29}
    none = ProcxRow("5", "ProcX, no pre-training", PROCX, published=columns(6.03))
    return [none] + [
        ProcxRow(
            "5", f"ProcX, {said}", pretrained(PROCX, words),
            published=columns(published[words]) if words in published else {},
        )
        for words, said in WORDS.items()
    ]  # fmt: skip


def _table_2() -> list[ProcxRow]:
    plain = {"encoder": "vanilla", "decoder": "vanilla"}
    lstm = alike(PROCX, captioner="lstm", confidence="focal", contrast="none", **plain)
    focal, vanilla = alike(PROCX, confidence="focal", **plain), alike(PROCX, **plain)
    encoder = alike(vanilla, encoder="key-aware")
    return [
        ProcxRow("2a", "LSTM, focal", lstm, published=columns(5.43, 5.40, 27.42, 0.85, 31.48)),
        ProcxRow("2a", "transformer, focal", focal, published=columns(4.94, 5.67, 28.88, 1.19, 28.64)),
        ProcxRow("2a", "transformer, gVFL", vanilla, published=columns(5.84, 5.34, 30.83, 1.28, 33.33)),
        ProcxRow("2a", "PDVC in full", PDVC),
        ProcxRow("2b", "nowhere", vanilla, published=columns(5.84, 5.34, 30.83, 1.28, 33.33)),
        ProcxRow("2b", "encoder", encoder, published=columns(5.95, 5.40, 31.20, 1.29, 33.26)),
        ProcxRow("2b", "encoder and decoder", PROCX, published=columns(6.03, 5.35, 30.84, 1.27, 34.63)),
    ]


def _contrast() -> list[ProcxRow]:
    return [
        ProcxRow("contrast", "none", alike(PROCX, contrast="none")),
        ProcxRow("contrast", "InfoNCE", PROCX),
        ProcxRow("contrast", "MIL-InfoNCE", alike(PROCX, contrast="multiple")),
    ]


def _shares() -> list[ProcxRow]:
    swapped = pretrained(PROCX, "swap")
    narrated = [ProcxRow("7b", f"{100 * share:g} %", alike(swapped, narrated_share=share)) for share in SHARES]
    captioned = [
        ProcxRow("data", f"{100 * share:g} %", alike(swapped, captioned_share=share)) for share in (*SHARES, 1.0)
    ]
    return [ProcxRow("7b", "none", PROCX), *narrated, ProcxRow("7b", "100 %", swapped), *captioned]


VIEWS: Mapping[View, str] = {
    "surest": "the surest, as many as counted",
    "apart": "the surest without overlap",
    "oracle": "oracle",
}


def _decoding() -> list[ProcxRow]:
    swapped = pretrained(PROCX, "swap")
    named = {"PDVC": PDVC, "ProcX": PROCX, "ProcX, Sieve & Swap": swapped}
    return [
        ProcxRow("decoding", f"{name}: {said}", trial, view)
        for name, trial in named.items()
        for view, said in VIEWS.items()
    ]


def _speech() -> list[ProcxRow]:
    return [
        ProcxRow("speech", f"{name}, {said}", alike(trial, speech=heard))
        for name, trial in (("Vid2Seq", VID2SEQ), ("ProcX", PROCX))
        for said, heard in (("pictures alone", False), ("pictures and speech", True))
    ]
