"""Measures the slope of every stage of Sieve & Swap, and projects the paper's full scale from the
slopes.

    python benchmarks/sieve_swap_scale.py

Each stage runs at three sizes. The slope is that of the straight line through CPU seconds against
size (one thread, minimum of two rounds). So loading a model is not counted as work. Pairing's
slopes are read from results/pairing.json (benchmarks/pairing.py). The scale is the paper's: 241,000
videos go into pairing, 2 M recipes are compared with them, 52,000 videos with 2.75 M segments are
swapped. Words per recipe, steps per recipe and words per segment are those of
../shared/data/recipes_json, cut into single steps. A transcript's words are 310 s at 2.5 words per
second: the paper's mean video, and an ordinary rate of speech. This rate is the one number here
that was not measured.
"""

import gzip
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.content_words import content_words
from stepline.text import embed
from stepline.text_base.split_steps import single_steps

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "shared" / "data" / "recipes_json" / "recipes.json.gz"
OUT = HERE / "results" / "sieve_swap_scale.json"
ROUNDS = 2
SIZES = (40, 80, 160)  # texts
WIDTH = 384  # of MiniLM's vectors


@dataclass(frozen=True)
class Scale:
    """How large the whole job is."""

    videos: int = 241_000
    recipes: int = 2_000_000
    kept_videos: int = 52_000
    segments: int = 2_750_000
    words_a_video: float = 775.0
    words_a_recipe: float = 0.0
    steps_a_recipe: float = 0.0
    words_a_step: float = 0.0


@dataclass(frozen=True)
class Slopes:
    """CPU seconds of one more: word tagged, step embedded, video and document, video paired,
    cosine, swap checked."""

    word: float
    step: float
    pair: float
    video: float
    cosine: float
    checked: float


def project(slopes: Slopes, scale: Scale) -> dict[str, float]:
    """Return the hours of one core for each stage."""
    steps = scale.recipes * scale.steps_a_recipe
    tagged = scale.recipes * scale.words_a_recipe + scale.videos * scale.words_a_video
    counted = scale.kept_videos * scale.words_a_video * 2  # the report's words, before and after
    seconds = {
        "content words of recipes and transcripts": tagged * slopes.word,
        "pairing": scale.videos * (slopes.video + slopes.pair * scale.recipes),
        "embedding the base": steps * slopes.step,
        "embedding the segments": scale.segments * slopes.step,
        "exact search of all steps": scale.segments * steps * slopes.cosine,
        "cross-check": scale.segments * slopes.checked,
        "the report's words": counted * slopes.word,
    }
    return {stage: value / 3600 for stage, value in seconds.items()}


def slope(call: Callable[[int], object], sizes: Sequence[int]) -> float:
    """Return CPU seconds a unit of size, from a straight line through the sizes."""
    call(sizes[0])
    seconds = [min(_cpu(call, size) for _ in range(ROUNDS)) for size in sizes]
    return float(np.polyfit(sizes, seconds, 1)[0])


def _cpu(call: Callable[[int], object], size: int) -> float:
    start = time.process_time()
    call(size)
    return time.process_time() - start


def main() -> None:
    with gzip.open(DATA) as file:
        recipes = list(json.load(file).values())[: SIZES[-1]]
    texts = [" ".join(recipe["steps"]) for recipe in recipes]
    steps = [step for recipe in recipes for text in recipe["steps"] for step in single_steps(text)]
    words = float(np.mean([len(text.split()) for text in texts]))
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((20_000, WIDTH)).astype(np.float32)
    queries = chance.standard_normal((1_000, WIDTH)).astype(np.float32)
    paired = json.loads((HERE / "results" / "pairing.json").read_text())
    slopes = Slopes(
        word=slope(lambda size: list(content_words(texts[:size])), SIZES) / words,
        step=slope(lambda size: embed(steps[:size]), SIZES),
        pair=paired["growth"]["ns a video and document"] / 1e9,
        video=max(0.0, paired["growth"]["us a video"]) / 1e6,
        cosine=slope(
            lambda size: (queries @ vectors[:size].T).argmax(axis=1), (5_000, 10_000, 20_000)
        )
        / len(queries),
        checked=slope(
            lambda size: [change(a, b) for a, b in itertools.pairwise(steps[: size + 1])], SIZES
        ),
    )
    scale = Scale(
        words_a_recipe=words,
        steps_a_recipe=len(steps) / len(recipes),
        words_a_step=float(np.mean([len(step.split()) for step in steps])),
    )
    hours = project(slopes, scale)
    report = {
        "slopes, CPU s": slopes.__dict__,
        "scale": scale.__dict__,
        "core hours": hours,
        "core hours together": sum(hours.values()),
        "hours on 2 cores": sum(hours.values()) / 2,
        "hours on 16 cores": sum(hours.values()) / 16,
    }
    OUT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
