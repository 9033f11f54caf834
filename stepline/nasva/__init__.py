"""Placing steps in the video: where they are said, and where they are shown (NaSVA, and speech-and-vision fusion)."""

from stepline.nasva.coarse import coarse_scores, coarse_spans
from stepline.nasva.evidence import Activity
from stepline.nasva.ground import Grounding, GroundReport, ground
from stepline.nasva.place import place_texts
from stepline.nasva.prior import ShownPrior, load_prior
from stepline.text.visible import visible

__all__ = [
    "Activity",
    "GroundReport",
    "Grounding",
    "ShownPrior",
    "coarse_scores",
    "coarse_spans",
    "ground",
    "load_prior",
    "place_texts",
    "visible",
]
