"""Placing steps in the video: where they are said, and where they are shown (NaSVA, and speech-and-vision fusion)."""

from stepline.grounding.evidence import Activity
from stepline.grounding.ground import Grounding, GroundReport, ground
from stepline.grounding.said_to_shown import ShownPrior, load_prior
from stepline.grounding.speech import coarse_scores, coarse_spans, steps_from_texts
from stepline.text.visibility import predict_visibility

__all__ = [
    "Activity",
    "GroundReport",
    "Grounding",
    "ShownPrior",
    "coarse_scores",
    "coarse_spans",
    "ground",
    "load_prior",
    "predict_visibility",
    "steps_from_texts",
]
