"""Settings of Sieve & Swap: what is paired, sieved, swapped, and how much is held together."""

from typing import Literal, TypeAlias

from pydantic import Field

from stepline.settings import Count, Fraction, Positive, Settings
from stepline.sieve_swap.text_base.settings import TextBaseSettings

Variant: TypeAlias = Literal["raw", "only-sieve", "swap", "mix"]
Scope: TypeAlias = Literal["retained", "paired", "all"]
Method: TypeAlias = Literal["nearest", "line-model"]

# of MiniLM, calibrated on hand-made pairs (docs/sieve_swap.md)
FLOOR_COSINES = {"wording": 0.55, "similarity": 0.6}


class PairingSettings(Settings):
    """Settings of pairing videos with documents of the text base (section 4.2, eq. 5)."""

    longest_video: Positive = Field(
        600.0, description="seconds; a longer video is left out (10 minutes in the paper)"
    )
    smallest_category: Count = Field(
        5, description="videos of one task that there must be; 1 = a task may be alone"
    )
    category: str = Field(
        "",
        description='only HowTo100M\'s videos of this category_1 ("Food and Entertaining"). "" = '
        "all",
    )
    iou: Fraction = Field(0.1, description="least token-IoU of a transcript and a document")
    recall: Fraction = Field(0.3, description="least token-recall")
    recall_of: Literal["document", "transcript"] = Field(
        "document", description="whose words the recall is a share of"
    )
    validation_iou: Fraction = Field(
        0.2, description="a video whose best pair reaches it goes to the validation split"
    )
    numerals: bool = Field(
        False, description="count numerals and units among the content words, as appendix A.1 does"
    )


class SwapSettings(Settings):
    """Settings of sieving sentences and replacing them with written steps (section 4.2, eq. 6)."""

    variant: Variant = Field(
        "swap",
        description="raw: every sentence, only-sieve: the kept ones, swap: their steps, mix: both",
    )
    scope: Scope = Field(
        "retained",
        description="steps of all paired documents, of the video's own, or of the whole base",
    )
    method: Method = Field(
        "nearest",
        description="nearest: each sentence by itself. line-model: in the order of one paired "
        "document, more or less, by what `--texts` uses (MiniLM alone)",
    )
    sieve: Literal["wording", "similarity"] = Field(
        "wording", description="wording: a sentence must sound like an instruction, too"
    )
    similarity: Fraction | None = Field(
        None,
        description="least cosine to a step of what is kept (0.75 in the paper). None: by `sieve`",
    )
    swap_similarity: Fraction = Field(
        0.6,
        description="least cosine at which a kept sentence is swapped. 0: as soon as it is kept",
    )
    unswapped: Literal["own words", "drop"] = Field(
        "own words", description="what becomes of a kept sentence without a step to swap"
    )
    merge: Literal["before", "after"] = Field(
        "after", description="short neighbours before retrieval, or hits on one step after"
    )
    longest_merged: Positive = Field(
        8.0, description="seconds; only shorter sentences merge before retrieval"
    )
    merge_gap: Positive = Field(4.0, description="seconds; only neighbours closer than this merge")
    candidates: Count = Field(
        5, description="nearest steps tried until one keeps numbers, units and negation"
    )
    check: bool = Field(
        True, description="refuse a step that changes a number, a unit or a negation"
    )

    @property
    def floor(self) -> float:
        """Least cosine at which a sentence passes the sieve."""
        return FLOOR_COSINES[self.sieve] if self.similarity is None else self.similarity

    @property
    def needs_pairs(self) -> bool:
        """Whether videos must be paired with documents."""
        return self.scope != "all" or self.is_ordered

    @property
    def is_ordered(self) -> bool:
        """Whether the line model aligns the steps of one document in their order."""
        return self.method != "nearest"


class RunSettings(Settings):
    """Settings of running over a collection of videos. They do not change the result of a video."""

    shard: Count = Field(256, description="videos held together, and videos per file")


class SieveSwapSettings(Settings):
    """All settings of `stepline sieve-swap`."""

    text_base: TextBaseSettings = Field(
        TextBaseSettings(), description="how a base is built from texts that are not one yet"
    )
    pairing: PairingSettings = PairingSettings()
    match: SwapSettings = SwapSettings()
    run: RunSettings = RunSettings()
