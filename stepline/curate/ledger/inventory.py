"""What a run works on, beside its results: its recipe and its videos, for `status`, reports and other machines."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stepline import __version__
from stepline.curate.items import Collection, Item, Refused
from stepline.curate.recipe import Recipe
from stepline.errors import StoreError
from stepline.settings import validate
from stepline.store import atomic_path

if TYPE_CHECKING:
    from stepline.curate.places import Place

T = TypeVar("T", Item, Refused)

RUN, ITEMS, REFUSED = "run.json", "items.jsonl", "refused.jsonl"


def write_inventory(out: "Place", recipe: Recipe, collection: Collection, source: str) -> None:
    """Write what a run is, its items and its refused items below OUT. source: as it was named."""
    about = {"source": source, "version": __version__, "stages": list(recipe.stages)}
    counts = {"items": len(collection.items), "refused": len(collection.refused)}
    (out / RUN).write(json.dumps({**about, **counts, "recipe": recipe.model_dump(mode="json")}, indent=1))
    _write_lines(out / ITEMS, collection.items)
    _write_lines(out / REFUSED, collection.refused)


def _write_lines(place: "Place", things: Iterable[Item | Refused]) -> None:
    """Write a line a thing, without holding them all."""
    with tempfile.TemporaryDirectory(prefix="stepline-") as beside:
        with atomic_path(place.local or Path(beside) / "lines") as partial, partial.open("w", encoding="utf-8") as file:
            file.writelines(to_line(one) + "\n" for one in things)
        if place.local is None:
            place.put(Path(beside) / "lines")


def read_recipe(out: "Place") -> Recipe:
    """Return the recipe of the last run on OUT. Raises StoreError where there was none."""
    place = out / RUN
    if not place.exists():
        raise StoreError(f"{out.shown}: no run of `stepline curate` has begun here; give the folder that --out named")
    return validate(Recipe, json.loads(place.read())["recipe"])


def read_items(out: "Place") -> Iterator[Item]:
    """Yield the items of the last run on OUT, sorted by id."""
    with (out / ITEMS).open() as file:
        yield from (from_line(Item, line) for line in file)


def read_refused(out: "Place") -> Iterator[Refused]:
    """Yield what the source of the last run on OUT refused."""
    with (out / REFUSED).open() as file:
        yield from (from_line(Refused, line) for line in file)


def to_line(one: Item | Refused) -> str:
    """Return an item as one line of JSON, without what is not known of it."""
    return json.dumps({name: value for name, value in asdict(one).items() if value is not None}, ensure_ascii=False)


def from_line(kind: type[T], line: bytes | str) -> T:
    """Return the item of a line."""
    try:
        return kind(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{ITEMS}: a line is none that Stepline wrote ({error}); run again") from error
