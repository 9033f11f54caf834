"""ProcX's arms, and which of them the paper orders. lab/procx/arms.py trains and compares
them. This file imports nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.procx.rows import PDVC_TRIAL, PROCX_TRIAL, ProcxTrial, pretrained, zero_shot

ARM_TRIALS: Mapping[str, ProcxTrial] = {
    "ProcX": PROCX_TRIAL,
    "ProcX, Sieve & Swap": pretrained(PROCX_TRIAL, "swap"),
    "PDVC": PDVC_TRIAL,
    "ProcX, roles": PROCX_TRIAL.changed(query_form="roles"),
    "PDVC, roles": PDVC_TRIAL.changed(query_form="roles"),
    "ProcX, raw speech": pretrained(PROCX_TRIAL, "raw"),
    "ProcX, only sieved": pretrained(PROCX_TRIAL, "only-sieve"),
    "ProcX, mixed": pretrained(PROCX_TRIAL, "mix"),
    "vanilla attention": PROCX_TRIAL.changed(encoder="vanilla", decoder="vanilla"),
    "vanilla attention, focal": PROCX_TRIAL.changed(
        encoder="vanilla", decoder="vanilla", confidence="focal"
    ),
    "vanilla attention, focal, LSTM": PROCX_TRIAL.changed(
        encoder="vanilla", decoder="vanilla", confidence="focal", captioner="lstm", contrast="none"
    ),
    "PDVC, raw speech": pretrained(PDVC_TRIAL, "raw"),
    "PDVC, Sieve & Swap": pretrained(PDVC_TRIAL, "swap"),
    "PDVC, a tenth of Sieve & Swap": pretrained(PDVC_TRIAL, "swap", narrated_share=0.1),
    "PDVC, half of Sieve & Swap": pretrained(PDVC_TRIAL, "swap", narrated_share=0.5),
    "ProcX, Tasty": PROCX_TRIAL.changed(form="tasty"),
    "ProcX, Sieve & Swap, Tasty": pretrained(PROCX_TRIAL, "swap", form="tasty"),
    "ProcX, zero-shot, raw speech": zero_shot(PROCX_TRIAL, "raw"),
    "ProcX, zero-shot, Sieve & Swap": zero_shot(PROCX_TRIAL, "swap"),
    "PDVC, zero-shot, Sieve & Swap": zero_shot(PDVC_TRIAL, "swap"),
}
TUNED_ARMS = (
    "ProcX",
    "ProcX, Sieve & Swap",
    "PDVC",
    "PDVC, Sieve & Swap",
    "ProcX, roles",
    "PDVC, roles",
)


def tuned_as(arm: str) -> str:
    """Return the arm whose rate and steps `arm` takes.

    It is of the same system, and fine-tuned from pre-trained weights if `arm` is.
    """
    trial = ARM_TRIALS[arm]
    system = {"procx": "ProcX", "pdvc": "PDVC"}[trial.system]
    if trial.query_form == "roles":
        return f"{system}, roles"
    return system if trial.start is None else f"{system}, Sieve & Swap"


@dataclass(frozen=True)
class Comparison:
    """An ordering of the paper: one arm is above another.

    published: the paper's difference, by metric.
    """

    statement: str
    more: str
    less: str
    published: Mapping[str, float]


ARM_COMPARISONS = (
    Comparison("ProcX: queries by role above shared", "ProcX, roles", "ProcX", {}),
    Comparison("PDVC: queries by role above shared", "PDVC, roles", "PDVC", {}),
    Comparison("ProcX with queries by role above PDVC", "ProcX, roles", "PDVC", {}),
    Comparison("queries by role: ProcX above PDVC", "ProcX, roles", "PDVC, roles", {}),
    Comparison(
        "pre-training on Sieve & Swap above none",
        "ProcX, Sieve & Swap",
        "ProcX",
        {"SODA-C": 1.26, "SODA-D": 2.98},
    ),
    Comparison(
        "ProcX above PDVC, no pre-training", "ProcX", "PDVC", {"SODA-C": 0.60, "SODA-D": 3.00}
    ),
    Comparison(
        "ProcX above PDVC, both on Sieve & Swap",
        "ProcX, Sieve & Swap",
        "PDVC, Sieve & Swap",
        {"SODA-C": 1.13, "SODA-D": 4.81},
    ),
    Comparison(
        "pre-training on raw speech above none",
        "ProcX, raw speech",
        "ProcX",
        {"SODA-C": 0.94, "SODA-D": 2.45},
    ),
    Comparison(
        "Sieve & Swap above raw speech",
        "ProcX, Sieve & Swap",
        "ProcX, raw speech",
        {"SODA-C": 0.32, "SODA-D": 0.53},
    ),
    Comparison(
        "Sieve & Swap above only sieved",
        "ProcX, Sieve & Swap",
        "ProcX, only sieved",
        {"SODA-C": 0.36},
    ),
    Comparison("mixed above Sieve & Swap", "ProcX, mixed", "ProcX, Sieve & Swap", {}),
    Comparison(
        "PDVC: Sieve & Swap above raw speech",
        "PDVC, Sieve & Swap",
        "PDVC, raw speech",
        {"SODA-C": 0.35, "SODA-D": 0.09},
    ),
    Comparison(
        "PDVC: Sieve & Swap above none",
        "PDVC, Sieve & Swap",
        "PDVC",
        {"SODA-C": 0.73, "SODA-D": 1.17},
    ),
    Comparison(
        "PDVC: all narrated videos above half",
        "PDVC, Sieve & Swap",
        "PDVC, half of Sieve & Swap",
        {},
    ),
    Comparison(
        "PDVC: half of the narrated videos above a tenth",
        "PDVC, half of Sieve & Swap",
        "PDVC, a tenth of Sieve & Swap",
        {},
    ),
    Comparison(
        "Tasty: Sieve & Swap above none",
        "ProcX, Sieve & Swap, Tasty",
        "ProcX, Tasty",
        {"SODA-C": 0.83, "SODA-D": 0.80},
    ),
    Comparison(
        "gVFL above focal confidence",
        "vanilla attention",
        "vanilla attention, focal",
        {"SODA-C": 0.90, "SODA-D": 4.69},
    ),
    Comparison(
        "transformer above LSTM, focal",
        "vanilla attention, focal",
        "vanilla attention, focal, LSTM",
        {"SODA-C": -0.49, "SODA-D": -2.84, "CIDEr": 1.46},
    ),
    Comparison(
        "key-aware above vanilla", "ProcX", "vanilla attention", {"SODA-C": 0.19, "SODA-D": 1.30}
    ),
)
