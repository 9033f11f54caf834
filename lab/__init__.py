"""Whole tables of a paper, remade: what is trained, with what, and how its scores compare with the
published ones."""
