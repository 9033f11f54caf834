"""Settings of the stages that only `curate` has; those of the others are their packages' own."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stepline.nasva.aligner_settings import AlignerSettings
from stepline.settings import CountOrZero, Fraction, NonNegative, Settings
from stepline.sieve_swap.settings import MatchSettings, PairingSettings


class FilterSettings(Settings):
    """Which videos are left out, as soon as what is said of them is known."""

    languages: tuple[str, ...] = ("en",)  # ISO 639-1 codes; none: any language
    shortest: NonNegative = 5.0  # s of a video
    longest: NonNegative | None = 1200.0  # s; NaSVA trains on at most 1200, Sieve & Swap takes 600; none: any
    words: CountOrZero = 10  # least words that are said
    words_a_minute: NonNegative = 15.0  # least words a minute; narration has 60 and more
    steps: CountOrZero = 2  # least steps that are written


class CoarseStageSettings(Settings):
    """Where a step is said; how, is in `steps.nasva.coarse`."""

    said: Literal["cited", "likeness"] = "likeness"  # "cited": where the sentences lie that its writer cites


class GatherSettings(Settings):
    """Which videos count as the same; the one whose id comes first is kept."""

    same_words: Fraction = 0.9  # share of common runs of words at which two videos say the same; 1: never
    same_picture: Fraction = 0.02  # mean difference of thumbnails, of 1, at which two show the same; 0: never
    run: Annotated[int, Field(ge=1, le=10)] = 3  # words a run of the first


class PlacingSettings(Settings):
    """How the refined network places the steps for good."""

    calibrate: bool = True  # P(shown) against texts of other videos; false: every labelled step counts as shown
    shown_rate: Fraction | None = 0.6  # share of the steps that is shown; NaSVA table 5: 0.606; none: estimated
    aligner: AlignerSettings = AlignerSettings()


class SwapStageSettings(Settings):
    """Sieve & Swap over what was gathered."""

    base: Path | None = None  # folder of a text base, which `stepline text-base build` makes
    pairing: PairingSettings = PairingSettings()
    match: MatchSettings = MatchSettings()


class CleanSettings(Settings):
    """Which steps stay in the end: written, supported by what is said, shown, and placed."""

    written: Fraction = 0.5  # least P(it tells a step), by its wording
    supported: Fraction = 0.4  # least cosine to a sentence that it rests on; MiniLM, as the writers' own floor
    shown: Fraction = 0.5  # least P(shown)
    placed: Fraction = 0.3  # least overlap (IoU) of what grounding and network say; 0: they need not agree
    spans: Literal["grounding", "network"] = "grounding"  # whose span a step gets; the grounding knows where shots end
    least: CountOrZero = 1  # steps that a video must keep to stay


class VisibleSettings(Settings):
    """Which narrations count as shown."""

    shown: Fraction = 0.5  # least P(the picture shows what is said while it is said)
    least: CountOrZero = 1  # such sentences that a video must have to stay
