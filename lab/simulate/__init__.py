"""Planted truth at the level of features: many narrated videos per second, with everything about
them known.

    simulation = simulate(seed=0)                    # or simulate(0, YOUCOOK2_WORLD), or stream(0, count=1000)
    simulation.records[0]                            # transcript, written steps, recipe, captions, truth
    simulation.videos[0].features("usual")          # (T, C) as a FeatureSequence
    simulation.videos[0].vectors("narration")       # (S, C) of the same backbone; also "step" and "recipe"
    simulation.videos[0].embeddings("step")         # (K, D) for linking steps with narration
    simulation.videos[0].shown("step")              # (K, T) bool, the planted truth
    write_dataset(simulation, folder)                # the same in the public datasets' formats

What the world holds and how it was measured: docs/world.md.
"""

from lab.simulate.narration import Lines, Style
from lab.simulate.settings import (
    BACKBONE_SETTINGS,
    EASY_WORLD,
    RECOGNISER_SETTINGS,
    SHORT_2,
    SHORT_WORLD,
    TASTY_WORLD,
    WORLD_SETTINGS,
    YOUCOOK2_WORLD,
    BackboneSettings,
    RecogniserSettings,
    SimulationSettings,
)
from lab.simulate.simulation import Simulation, make_world, recipes, simulate, stream
from lab.simulate.video import SimulatedVideo, World
from lab.simulate.write import write_dataset, write_videos

__all__ = [
    "BACKBONE_SETTINGS",
    "EASY_WORLD",
    "RECOGNISER_SETTINGS",
    "SHORT_2",
    "SHORT_WORLD",
    "TASTY_WORLD",
    "WORLD_SETTINGS",
    "YOUCOOK2_WORLD",
    "BackboneSettings",
    "Lines",
    "RecogniserSettings",
    "SimulatedVideo",
    "Simulation",
    "SimulationSettings",
    "Style",
    "World",
    "make_world",
    "recipes",
    "simulate",
    "stream",
    "write_dataset",
    "write_videos",
]
