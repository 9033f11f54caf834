"""Placing steps in the video without a trained network: where they are said, and where they are
shown."""

from stepline.grounding.ground import Grounding, GroundReport, ground
from stepline.grounding.said_to_shown import ShownPrior, load_prior
from stepline.grounding.speech import coarse_spans, steps_from_texts

__all__ = [
    "GroundReport",
    "Grounding",
    "ShownPrior",
    "coarse_spans",
    "ground",
    "load_prior",
    "steps_from_texts",
]
