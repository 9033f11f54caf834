"""Videos and the how-to documents that tell of the same thing, found by the words they share (eq. 5)."""

from stepline.sieve_swap.pairing.pair import Pairing, Pairs
from stepline.sieve_swap.pairing.table import ThresholdRow, threshold_table
from stepline.sieve_swap.pairing.word_sets import Vocabulary, WordSets

__all__ = ["Pairing", "Pairs", "ThresholdRow", "Vocabulary", "WordSets", "threshold_table"]
