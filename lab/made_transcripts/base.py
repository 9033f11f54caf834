"""The text base that the made videos are looked up in: the recipes without those that a test takes
away."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

from made_transcripts.recipes import Recipe
from made_transcripts.videos import MadeVideo

from stepline.sieve_swap.text_base import build_base
from stepline.sieve_swap.text_base.base import TextBase

LICENCE_TEXT = "recipes_json and recipes_based_cooking, see their SOURCE.md"


def base_recipes(
    recipes: Sequence[Recipe], videos: Sequence[MadeVideo], others: int | None
) -> list[Recipe]:
    """Return the recipes of the base: those of videos that may be in it, and others.

    others: how many recipes of no video, drawn by seed. None: all.
    """
    sources = {video.recipe.id: video.in_base for video in videos}
    rest = [recipe for recipe in recipes if recipe.id not in sources]
    Random(0).shuffle(rest)
    in_base = [recipe for recipe in recipes if sources.get(recipe.id)]
    return in_base + rest[:others]


def made_base(recipes: Sequence[Recipe], folder: Path) -> TextBase:
    """Return a base of these recipes, built in the folder. A base that is there already is opened
    as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "recipes.jsonl"
    rows = [json.dumps(asdict(recipe)) + "\n" for recipe in recipes]
    text = "".join(rows)
    if not source.exists() or source.read_text(encoding="utf-8") != text:
        source.write_text(text, encoding="utf-8")
    return build_base([source], folder / "base", licence=LICENCE_TEXT)
