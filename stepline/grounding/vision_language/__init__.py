"""A vision-language model as evidence of where steps are shown, weighted by its inferred reliability."""

from stepline.grounding.vision_language.ask import GroundedVideo, VisualAnswers, ask_about_steps

__all__ = ["GroundedVideo", "VisualAnswers", "ask_about_steps"]
