"""The Penn Treebank tokenizer of the caption metrics, without Java."""

from stepline.evaluate.ptb.tokenizer import Tokenizer, only_ascii

__all__ = ["Tokenizer", "only_ascii"]
