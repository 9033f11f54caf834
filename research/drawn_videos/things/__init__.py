"""Everyday things that the world can draw, by name."""

from research.drawn_videos.things.craft import CRAFT
from research.drawn_videos.things.food import FOOD
from research.drawn_videos.things.garden import GARDEN
from research.drawn_videos.things.kitchen import KITCHEN
from research.drawn_videos.things.produce import PRODUCE
from research.drawn_videos.things.thing import Thing
from research.drawn_videos.things.tools import TOOLS

THINGS: dict[str, Thing] = {**KITCHEN, **FOOD, **PRODUCE, **TOOLS, **CRAFT, **GARDEN}
