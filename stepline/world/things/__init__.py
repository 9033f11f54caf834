"""Everyday things that the world can draw, by name."""

from stepline.world.things.craft import CRAFT
from stepline.world.things.food import FOOD
from stepline.world.things.garden import GARDEN
from stepline.world.things.kitchen import KITCHEN
from stepline.world.things.produce import PRODUCE
from stepline.world.things.thing import Thing
from stepline.world.things.tools import TOOLS

THINGS: dict[str, Thing] = {**KITCHEN, **FOOD, **PRODUCE, **TOOLS, **CRAFT, **GARDEN}
