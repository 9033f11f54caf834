"""Settings of Sieve & Swap: what is paired, sieved, swapped, and how much is held together."""

from typing import Literal, TypeAlias

from stepline.settings import Count, Fraction, Positive, Settings
from stepline.sieve_swap.text_base.settings import TextBaseSettings

Variant: TypeAlias = Literal["raw", "only-sieve", "swap", "mix"]
Scope: TypeAlias = Literal["retained", "paired", "all"]
Method: TypeAlias = Literal["nearest", "monotone", "line-model"]

# of MiniLM, calibrated on hand-made pairs (docs/sieve_swap.md)
FLOOR_COSINES = {"wording": 0.55, "similarity": 0.6}


class PairingSettings(Settings):
    """Which videos and documents belong together (section 4.2, eq. 5)."""

    longest_video: Positive = 600.0  # seconds; a longer video is left out (10 minutes in the paper)
    smallest_category: Count = 5  # videos of one task that there must be; 1 = a task may be alone
    # only HowTo100M's videos of this category_1 ("Food and Entertaining"). "" = all
    category: str = ""
    iou: Fraction = 0.1  # least token-IoU of a transcript and a document
    recall: Fraction = 0.3  # least token-recall
    # whose words the recall is a share of
    recall_of: Literal["document", "transcript"] = "document"
    # a video whose best pair reaches it goes to the validation split
    validation_iou: Fraction = 0.2
    numerals: bool = False  # count numerals and units among the content words, as appendix A.1 does


class SwapSettings(Settings):
    """Which step a sentence is replaced by, and when it is sieved (section 4.2, eq. 6)."""

    # raw: every sentence, only-sieve: the kept ones, swap: their steps, mix: both
    variant: Variant = "swap"
    # steps of all paired documents, of the video's own, or of the whole base
    scope: Scope = "retained"
    # monotone: in the order of one paired document. line-model: in its order more or less, by what
    # `--texts` uses (MiniLM alone)
    method: Method = "nearest"
    # paired documents, the most likely first, that "monotone" and "line-model" try
    ordered_documents: Count = 20
    # wording: a sentence must sound like an instruction, too
    sieve: Literal["wording", "similarity"] = "wording"
    instruction: Fraction = 0.5  # least P(it states a step), by its wording, for sieve "wording"
    # least cosine to a step of what is kept (0.75 in the paper). None: by `sieve`
    similarity: Fraction | None = None
    # least cosine at which a kept sentence is swapped. 0: as soon as it is kept
    swap_similarity: Fraction = 0.6
    # what becomes of a kept sentence without a step to swap
    unswapped: Literal["own words", "drop"] = "own words"
    # short neighbours before retrieval, or hits on one step after
    merge: Literal["before", "after"] = "after"
    longest_merged: Positive = 8.0  # seconds; only shorter sentences merge before retrieval
    merge_gap: Positive = 4.0  # seconds; only neighbours closer than this merge
    candidates: Count = 5  # nearest steps tried until one keeps numbers, units and negation
    check: bool = True  # refuse a step that changes a number, a unit or a negation
    new_numbers: bool = True  # a step may state a number that the sentence does not mention

    @property
    def floor(self) -> float:
        """Least cosine at which a sentence passes the sieve."""
        return FLOOR_COSINES[self.sieve] if self.similarity is None else self.similarity

    @property
    def needs_pairs(self) -> bool:
        """Whether videos are paired with documents at all."""
        return self.scope != "all" or self.is_ordered

    @property
    def is_ordered(self) -> bool:
        """Whether the steps of one document are looked for in their order."""
        return self.method != "nearest"


class RunSettings(Settings):
    """How a whole collection is gone through. None of them changes what a video gives."""

    shard: Count = 256  # videos held together, and videos per file
    words: Count = 20_000  # documents whose words are counted together


class SieveSwapSettings(Settings):
    """Every setting of `stepline sieve-swap`."""

    # how a base is built from texts that are not one yet
    text_base: TextBaseSettings = TextBaseSettings()
    pairing: PairingSettings = PairingSettings()
    match: SwapSettings = SwapSettings()
    run: RunSettings = RunSettings()
