"""Measures the simulated world: its statistics next to those of real data, its recall, its cost.

    python benchmarks/world_statistics.py

CPU seconds are of this process with one thread. Where a world has several sources, NaSVA's figure
is before WhenAct's and the prototype's (its W9 world).
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Before numpy: its threads would be counted as CPU seconds.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from research.simulate import (
    BACKBONE_SETTINGS,
    SHORT_WORLD,
    WORLD_SETTINGS,
    SimulatedVideo,
    SimulationSettings,
    make_world,
    statistics,
    stream,
    zero_shot_recall,
)
from research.simulate.narration import TEXT_STYLES
from research.simulate.settings import RECOGNISER_SETTINGS

RESULT_PATH = Path(__file__).resolve().parent / "results" / "world_statistics.json"
WORLD_SEEDS = (0, 1, 2)
SEED_VIDEOS = 300  # per seed
RECALL_VIDEOS = 100  # per seed, whose recall is measured
TIMED_VIDEOS = 300  # whose cost is measured
SHOWN_WORLDS = ("short", "short-2", "youcook2")

# Figures of real data, papers and the prototype.
REAL_FIGURES = {
    "duration": "W9 129; YouCook2 318",
    "windows": "YouCook2 7.8",
    "window_s": "W9 10.8; YouCook2 19.6",
    "gap_s": "YouCook2 9.4",
    "covered": "W9 0.48; YouCook2 0.487",
    "first_start": "YouCook2 0.166",
    "last_end": "YouCook2 0.839",
    "narrations": "W9 27.4",
    "narrations_alignable": "NaSVA 0.301; W9 0.31",
    "narrations_well_aligned": "NaSVA 0.15-0.22; W9 0.125",
    "steps": "W9 9.6",
    "steps_alignable": "NaSVA 0.606; W9 0.576",
    "recipe_lines": "HT-Step 11.5; W9 11.1",
    "recipe_present": "W9 0.51",
    "inversions_in_a_minute": "WhenAct 0.152, windows apart",
    "inversions_in_the_video": "WhenAct 0.231, all pairs",
    "offset_p5": "WhenAct -23.0",
    "offset_p25": "WhenAct -3.6",
    "offset_p50": "WhenAct 1.0",
    "offset_p75": "WhenAct 5.0",
    "offset_p95": "WhenAct 22.0",
    "abs_offset_p50": "WhenAct 4.5",
    "abs_offset_p75": "WhenAct 11.0",
    "abs_offset_p95": "WhenAct 28.8",
}

Figures = dict[str, dict[str, float]]


def mean_spread(rows: Sequence[dict[str, float]]) -> Figures:
    """Return name -> mean over the rows, least and most."""
    figures = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        figures[name] = {
            "mean": sum(values) / len(values),
            "least": min(values),
            "most": max(values),
        }
    return figures


def statistics_of(settings: SimulationSettings) -> Figures:
    """Return a world's statistics over all seeds."""
    rows = []
    for seed in WORLD_SEEDS:
        rows.append(statistics(stream(seed, settings, count=SEED_VIDEOS)))
    return mean_spread(rows)


def recall_of(settings: SimulationSettings, backbone: str | None = None) -> Figures:
    """Return a world's zero-shot recall over all seeds."""
    rows = []
    for seed in WORLD_SEEDS:
        rows.append(zero_shot_recall(stream(seed, settings, count=RECALL_VIDEOS), backbone))
    return mean_spread(rows)


def recalls() -> dict[str, Figures]:
    """Return the recall of every backbone, recogniser and world."""
    recall = {f"short, {name}": recall_of(SHORT_WORLD, name) for name in BACKBONE_SETTINGS}
    for grade in RECOGNISER_SETTINGS:
        settings = SHORT_WORLD.model_copy(update={"recogniser": grade})
        recall[f"short, usual, {grade} recogniser"] = recall_of(settings)
    for world in ("youcook2", "short-2", "easy"):
        recall[f"{world}, usual"] = recall_of(WORLD_SETTINGS[world])
    return recall


def videos_a_second(settings: SimulationSettings, use: Callable[[SimulatedVideo], object]) -> float:
    """Return how many videos of a world are used per CPU second."""
    start = time.process_time()
    for sample in stream(0, settings, count=TIMED_VIDEOS):
        use(sample)
    return TIMED_VIDEOS / (time.process_time() - start)


def arrays(sample: SimulatedVideo) -> None:
    """Make all arrays of a video."""
    sample.features()
    for style in TEXT_STYLES:
        sample.vectors(style)
        sample.shown(style)
    sample.embeddings("step")
    sample.embeddings("narration")


def costs() -> Figures:
    uses: dict[str, Callable[[SimulatedVideo], object]] = {
        "features": lambda sample: sample.features(),
        "features, all vectors, truth": arrays,
        "records": lambda sample: sample.record,
    }
    speeds: Figures = {}
    for world in SHOWN_WORLDS:
        speeds[world] = {
            name: videos_a_second(WORLD_SETTINGS[world], use) for name, use in uses.items()
        }
    start = time.process_time()
    make_world(0)
    speeds["world"] = {"CPU s": time.process_time() - start}
    return speeds


def table_line(*cells: str) -> str:
    """Return a line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def show(statistics: dict[str, Figures], recall: dict[str, Figures], cost: Figures) -> None:
    """Print the three tables."""
    print(table_line("statistic", "real, papers, prototype", *SHOWN_WORLDS))
    print("|---" * (2 + len(SHOWN_WORLDS)) + "|")
    for name, real in REAL_FIGURES.items():
        cells = []
        for world in SHOWN_WORLDS:
            spread = statistics[world][name]
            cells.append(f"{spread['mean']:.3g} ({spread['least']:.3g} to {spread['most']:.3g})")
        print(table_line(name, real, *cells))

    columns = (*TEXT_STYLES, "chance")
    print("\n" + table_line("world", *columns) + "\n|---|---|---|---|---|")
    for world, figures in recall.items():
        print(table_line(world, *(f"{100 * figures[name]['mean']:.1f}" for name in columns)))

    print("\n" + table_line("videos a CPU second", *SHOWN_WORLDS))
    print("|---" * (1 + len(SHOWN_WORLDS)) + "|")
    for use in cost[SHOWN_WORLDS[0]]:
        print(table_line(use, *(f"{cost[world][use]:.0f}" for world in SHOWN_WORLDS)))
    print(f"\nthe world itself: {cost['world']['CPU s']:.3f} CPU s")


def main() -> None:
    figures = {name: statistics_of(WORLD_SETTINGS[name]) for name in SHOWN_WORLDS}
    recall = recalls()
    cost = costs()
    show(figures, recall, cost)
    settings = {
        "seeds": list(WORLD_SEEDS),
        "videos": SEED_VIDEOS,
        "recalled": RECALL_VIDEOS,
        "timed": TIMED_VIDEOS,
    }
    tree = {"settings": settings, "statistics": figures, "recall": recall, "videos_a_second": cost}
    RESULT_PATH.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
