"""Materials and tools of the work, with amounts, how long it takes and how much it makes, from what
is said in the whole narration."""

from stepline.writing.materials.collect import (
    NeededThings,
    find_materials,
    materials_of_first_sentences,
)
from stepline.writing.materials.times_and_yields import (
    find_times,
    find_yields,
    times_of_first_sentences,
)

__all__ = [
    "NeededThings",
    "find_materials",
    "find_times",
    "find_yields",
    "materials_of_first_sentences",
    "times_of_first_sentences",
]
