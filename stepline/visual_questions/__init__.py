"""Visual questions: a vision-language model is asked where steps are shown, and weighed by how true
it has been."""

from stepline.visual_questions.ask import VisualAnswers, ask_about_steps

__all__ = ["VisualAnswers", "ask_about_steps"]
