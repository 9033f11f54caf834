"""Everyday things that the world can draw, by name."""

from lab.drawn_videos.things.craft import CRAFT_THINGS
from lab.drawn_videos.things.food import FOOD_THINGS
from lab.drawn_videos.things.garden import GARDEN_THINGS
from lab.drawn_videos.things.kitchen import KITCHEN_THINGS
from lab.drawn_videos.things.produce import PRODUCE_THINGS
from lab.drawn_videos.things.thing import Thing
from lab.drawn_videos.things.tools import TOOLS_THINGS

THINGS_BY_NAME: dict[str, Thing] = {
    **KITCHEN_THINGS,
    **FOOD_THINGS,
    **PRODUCE_THINGS,
    **TOOLS_THINGS,
    **CRAFT_THINGS,
    **GARDEN_THINGS,
}
