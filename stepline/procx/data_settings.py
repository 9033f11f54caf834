"""Settings of what ProcX is trained on; nothing heavy is imported here."""

from typing import Literal, TypeAlias

from stepline.settings import Count, Fraction, NonNegative, Settings

Target: TypeAlias = Literal["reference", "captions", "steps", "narration"]
Wording: TypeAlias = Literal["own", "said", "any"]


class DataSettings(Settings):
    """Which videos become samples, and what of them is to be found and said."""

    target: Target | None = None  # what a video's steps are; None: what its dataset gives, of other records the steps
    wording: Wording = "own"  # "said": of swapped steps what was said (only-sieve); "any": drawn anew each epoch
    speech: Fraction = 0.0  # chance of a video to come with what is said; 0: pictures alone
    around: NonNegative = 10.0  # s before and after a step whose speech is read with it
    slack: NonNegative = 5.0  # seconds that a video's stated length may differ from its features'
    held_out: Fraction = 0.0  # share of the videos, by their ids, that are not trained on but choose the best
    held_out_most: Count = 500  # samples of them that are looked at
