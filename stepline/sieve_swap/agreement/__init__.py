"""Does a step say the same as the narration it replaces, as far as numbers, units and negation go?
Any domain."""

from stepline.sieve_swap.agreement.check import CHANGE_REASONS, Polarity, change, polarity
from stepline.writing.quantities import Quantity, quantities

__all__ = ["CHANGE_REASONS", "Polarity", "Quantity", "change", "polarity", "quantities"]
