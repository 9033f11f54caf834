"""A refit of a few parameters of grounding and judge to videos that people corrected."""
