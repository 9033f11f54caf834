"""Measures the simulated world: its statistics next to those of the data it stands for, its recall,
its cost.

    python benchmarks/world_statistics.py

CPU seconds are of this process with one thread. Where a world has several sources, NaSVA's figure
is before WhenAct's and the prototype's (its W9 world).
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# before numpy: its threads would be counted as CPU seconds
os.environ.setdefault("OMP_NUM_THREADS", "1")

from research.simulate import (
    BACKBONES,
    SHORT,
    WORLDS,
    SimulatedVideo,
    SimulationSettings,
    make_world,
    statistics,
    stream,
    zero_shot_recall,
)
from research.simulate.narration import STYLES
from research.simulate.settings import RECOGNISERS

OUT = Path(__file__).resolve().parent / "results" / "world_statistics.json"
SEEDS = (0, 1, 2)
VIDEOS = 300  # a seed
RECALLED = 100  # videos per seed whose recall is measured
TIMED = 300  # videos whose cost is measured
SHOWN = ("short", "short-2", "youcook2")

REAL = {
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
    return {
        name: {
            "mean": sum(r[name] for r in rows) / len(rows),
            "least": min(r[name] for r in rows),
            "most": max(r[name] for r in rows),
        }
        for name in rows[0]
    }


def measured(settings: SimulationSettings) -> Figures:
    return mean_spread([statistics(stream(seed, settings, count=VIDEOS)) for seed in SEEDS])


def recalled(settings: SimulationSettings, backbone: str | None = None) -> Figures:
    return mean_spread(
        [zero_shot_recall(stream(seed, settings, count=RECALLED), backbone) for seed in SEEDS]
    )


def recalls() -> dict[str, Figures]:
    found = {f"short, {name}": recalled(SHORT, name) for name in BACKBONES}
    for grade in RECOGNISERS:
        found[f"short, usual, {grade} recogniser"] = recalled(
            SHORT.model_copy(update={"recogniser": grade})
        )
    found["youcook2, usual"] = recalled(WORLDS["youcook2"])
    found["short-2, usual"] = recalled(WORLDS["short-2"])
    return found | {"easy, usual": recalled(WORLDS["easy"])}


def videos_a_second(settings: SimulationSettings, use: Callable[[SimulatedVideo], object]) -> float:
    start = time.process_time()
    for sample in stream(0, settings, count=TIMED):
        use(sample)
    return TIMED / (time.process_time() - start)


def arrays(sample: SimulatedVideo) -> None:
    sample.features()
    for style in STYLES:
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
    found = {
        name: {use: videos_a_second(WORLDS[name], each) for use, each in uses.items()}
        for name in SHOWN
    }
    start = time.process_time()
    make_world(0)
    return found | {"world": {"CPU s": time.process_time() - start}}


def show(statistics: dict[str, Figures], recall: dict[str, Figures], cost: Figures) -> None:
    print("| statistic | real, papers, prototype | " + " | ".join(SHOWN) + " |")
    print("|---" * (2 + len(SHOWN)) + "|")
    for name, real in REAL.items():
        cells = [statistics[world][name] for world in SHOWN]
        said = " | ".join(f"{c['mean']:.3g} ({c['least']:.3g} to {c['most']:.3g})" for c in cells)
        print(f"| {name} | {real} | {said} |")
    print("\n| world | " + " | ".join((*STYLES, "chance")) + " |\n|---|---|---|---|---|")
    for world, figures in recall.items():
        print(
            f"| {world} | "
            + " | ".join(f"{100 * figures[s]['mean']:.1f}" for s in (*STYLES, "chance"))
            + " |"
        )
    print(
        "\n| videos a CPU second | "
        + " | ".join(SHOWN)
        + " |"
        + "\n|---"
        + "|---" * len(SHOWN)
        + "|"
    )
    for use in cost[SHOWN[0]]:
        print(f"| {use} | " + " | ".join(f"{cost[world][use]:.0f}" for world in SHOWN) + " |")
    print(f"\nthe world itself: {cost['world']['CPU s']:.3f} CPU s")


def main() -> None:
    found, recall, cost = {name: measured(WORLDS[name]) for name in SHOWN}, recalls(), costs()
    show(found, recall, cost)
    settings = {"seeds": list(SEEDS), "videos": VIDEOS, "recalled": RECALLED, "timed": TIMED}
    tree = {"settings": settings, "statistics": found, "recall": recall, "videos_a_second": cost}
    OUT.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
