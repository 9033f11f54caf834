"""Sieve & Swap: narration replaced by human-written steps from a base of how-to texts (Batra et
al., section 4)."""
