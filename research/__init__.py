"""Whole tables of a paper, remade: what is trained, with what, and how its scores stand next to the
published ones."""
