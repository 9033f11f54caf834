"""The field's evaluators, equal to the official ones, with explicit rules where those are
undefined.
"""
