"""A vision-language model as evidence: it is asked where steps are shown, and weighed by how often it
was right."""

from stepline.grounding.vision_language.ask import GroundedVideo, VisualAnswers, ask_about_steps

__all__ = ["GroundedVideo", "VisualAnswers", "ask_about_steps"]
