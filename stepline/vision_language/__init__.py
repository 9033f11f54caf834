"""A vision-language model as evidence: it is asked where steps are shown, and weighed by how often it
was right."""

from stepline.vision_language.ask import VisualAnswers, ask_about_steps

__all__ = ["VisualAnswers", "ask_about_steps"]
