"""A small network over MiniLM that reads narration.

It says where sentences end, which of them describes a step and of what kind, and which words make
the step.
"""

from stepline.text.narration.tagger import NarrationTagger, SentenceTags, load_tagger

__all__ = ["NarrationTagger", "SentenceTags", "load_tagger"]
