"""The written recipes that videos are made from: titles, ingredients and single steps, read where
they lie."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.sieve_swap.text_base.split_steps import split_into_steps
from stepline.writing.extractive.english import word_set

DATA_FOLDER = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
RECIPE_FOLDERS = ("recipes_json", "recipes_based_cooking")
MEASURE_WORDS = word_set(
    """
    cup cups tablespoon tablespoons teaspoon teaspoons ounce ounces pound pounds oz lb lbs tbsp tsp can cans jar bunch
    package packages packet container clove cloves stick sticks slice slices pinch dash sprig sprigs large small medium
    fresh freshly dried ground chopped minced sliced diced grated shredded packed quart quarts pint pints g kg ml l
    kosher unsalted boneless skinless whole ripe bottle box bag head of for and or to taste frozen canned cooked finely
    thinly plus extra about inch thick heaping level cold hot warm peeled cubed crushed toasted hard lean all-purpose
    extra-virgin your favorite optional optional: into a an the with s
    """
)


@dataclass(frozen=True)
class Recipe:
    """One recipe. id: unlike any other's, folders apart. steps: single steps, in order."""

    id: str
    title: str
    ingredients: tuple[str, ...]
    steps: tuple[str, ...]
    url: str = ""


def read_recipes(
    data: Path = DATA_FOLDER, *, folders: Sequence[str] = RECIPE_FOLDERS
) -> list[Recipe]:
    """Return all the recipes in the folders, by folder and name."""
    recipes = []
    for folder in folders:
        table = json.loads(gzip.decompress((data / folder / "recipes.json.gz").read_bytes()))
        for slug in sorted(table):
            row = table[slug]
            steps: list[str] = []
            for paragraph in row["steps"]:
                steps += split_into_steps(paragraph)
            recipe = Recipe(
                id=f"{folder}/{slug}",
                title=row["title"].strip(),
                ingredients=tuple(row["ingredients"]),
                steps=tuple(steps),
                url=row.get("url", f"based.cooking/{slug}"),
            )
            recipes.append(recipe)
    return recipes


def short_name(ingredient: str) -> str:
    """Return what a cook calls an ingredient: its last two plain words. Empty when none is left."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", ingredient)
    head, *_ = re.split(r"[,(;–]| and | or ", without_links)
    words = re.findall(r"[a-zéñ'-]+", head.lower())
    plain_words = [word for word in words if word not in MEASURE_WORDS]
    return " ".join(plain_words[-2:])
