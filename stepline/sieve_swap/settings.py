"""Settings of Sieve & Swap: what is paired, sieved, swapped, and how much is held together."""

from typing import Literal

from pydantic import Field

from stepline.settings import Count, Fraction, Positive, Settings
from stepline.sieve_swap.text_base.settings import TextBaseSettings

Scope = Literal["retained", "paired", "all"]

# of MiniLM, calibrated on hand-made pairs (docs/sieve_swap.md)
FLOOR_COSINES = {"wording": 0.55, "similarity": 0.6}


class PairingSettings(Settings):
    """Settings of pairing videos with documents of the text base (section 4.2, eq. 5)."""

    longest_video: Positive = 600.0
    """seconds; a longer video is left out (10 minutes in the paper)"""
    smallest_category: Count = 5
    """least number of videos of a task; videos of rarer tasks are left out"""
    category: str = ""
    """only videos of this category_1 of HowTo100M, such as "Food and Entertaining". "": all videos"""
    iou: Fraction = 0.1
    """least token-IoU of a transcript and a document"""
    recall: Fraction = 0.3
    """least token-recall of a transcript and a document"""
    recall_of: Literal["document", "transcript"] = "document"
    """whose words the recall is a share of"""
    validation_iou: Fraction = 0.2
    """token-IoU of the best pair from which a video is in the validation split"""
    numerals: bool = False
    """count numerals and units among the content words, as appendix A.1 does"""


class SwapSettings(Settings):
    """Settings of sieving sentences and replacing them with written steps (section 4.2, eq. 6)."""

    variant: Literal["raw", "only-sieve", "swap", "mix"] = Field(
        "swap",
        description="text of the steps. raw: every sentence. only-sieve: the kept sentences. swap: the "
        "written steps instead of them. mix: both",
    )
    scope: Scope = Field(
        "retained",
        description="steps that are searched. retained: those of all documents that any video is paired "
        "with. paired: those of the video's own documents. all: the whole base",
    )
    method: Literal["nearest", "line-model"] = Field(
        "nearest",
        description="nearest: the most similar step of each sentence. line-model: aligns the sentences "
        "with the steps of one paired document, roughly in order; needs MiniLM vectors",
    )
    sieve: Literal["wording", "similarity"] = Field(
        "wording",
        description="similarity: a sentence is kept if it is similar to a step. wording: if its words also "
        "sound like an instruction",
    )
    similarity: Fraction | None = None
    """least cosine of a kept sentence with a step (0.75 in the paper). None: the one that fits `sieve`"""
    swap_similarity: Fraction = 0.6
    """least cosine at which a kept sentence is swapped. 0: every kept sentence"""
    unswapped: Literal["own words", "drop"] = "own words"
    """whether a kept sentence without a fitting step stays as it is, or goes"""
    merge: Literal["before", "after"] = Field(
        "after",
        description="before: adjacent short sentences merge before the search. after: adjacent sentences "
        "merge that are swapped for the same step",
    )
    longest_merged: Positive = 8.0
    """seconds; only shorter sentences merge before the search"""
    merge_gap: Positive = 4.0
    """seconds of pause below which adjacent sentences merge"""
    candidates: Count = 5
    """nearest steps that are tried, until one keeps numbers, units and negations"""
    check: bool = True
    """refuse a step that changes a number, a unit or a negation"""

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
    """Size of the parts of a run. It does not change the result of a video."""

    shard: Count = 256
    """number of videos per output file; they are in memory together"""


class SieveSwapSettings(Settings):
    """All settings of `stepline sieve-swap`."""

    text_base: TextBaseSettings = TextBaseSettings()
    """how a base is built from texts that are not one yet"""
    pairing: PairingSettings = PairingSettings()
    match: SwapSettings = SwapSettings()
    run: RunSettings = RunSettings()
