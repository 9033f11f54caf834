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
from stepline.sieve_swap.text_base.split_steps import single_steps
from stepline.text import embed

BENCHMARK_FOLDER = Path(__file__).resolve().parent
RECIPES_PATH = BENCHMARK_FOLDER.parents[1] / "shared" / "data" / "recipes_json" / "recipes.json.gz"
RESULT_PATH = BENCHMARK_FOLDER / "results" / "sieve_swap_scale.json"
ROUND_COUNT = 2
TEXT_COUNTS = (40, 80, 160)
SEARCHED_COUNTS = (5_000, 10_000, 20_000)  # steps
VECTOR_WIDTH = 384  # of MiniLM's vectors


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
    recipe_words = scale.recipes * scale.words_a_recipe
    transcript_words = scale.videos * scale.words_a_video
    report_words = scale.kept_videos * scale.words_a_video * 2  # before and after
    seconds = {
        "content words of recipes and transcripts": (recipe_words + transcript_words) * slopes.word,
        "pairing": scale.videos * (slopes.video + slopes.pair * scale.recipes),
        "embedding the base": steps * slopes.step,
        "embedding the segments": scale.segments * slopes.step,
        "exact search of all steps": scale.segments * steps * slopes.cosine,
        "cross-check": scale.segments * slopes.checked,
        "the report's words": report_words * slopes.word,
    }
    return {stage: value / 3600 for stage, value in seconds.items()}


def slope(call: Callable[[int], object], sizes: Sequence[int]) -> float:
    """Return CPU seconds per unit of size, from a straight line through the sizes."""
    call(sizes[0])
    seconds = [min(_cpu(call, size) for _ in range(ROUND_COUNT)) for size in sizes]
    return float(np.polyfit(sizes, seconds, 1)[0])


def _cpu(call: Callable[[int], object], size: int) -> float:
    start = time.process_time()
    call(size)
    return time.process_time() - start


def main() -> None:
    with gzip.open(RECIPES_PATH) as file:
        recipes = list(json.load(file).values())[: TEXT_COUNTS[-1]]
    texts = [" ".join(recipe["steps"]) for recipe in recipes]
    steps: list[str] = []
    for recipe in recipes:
        for paragraph in recipe["steps"]:
            steps += single_steps(paragraph)
    words_per_text = float(np.mean([len(text.split()) for text in texts]))
    scale = Scale(
        words_a_recipe=words_per_text,
        steps_a_recipe=len(steps) / len(recipes),
        words_a_step=float(np.mean([len(step.split()) for step in steps])),
    )
    slopes = measure_slopes(texts, words_per_text, steps)
    hours = project(slopes, scale)
    all_hours = sum(hours.values())
    report = {
        "slopes, CPU s": slopes.__dict__,
        "scale": scale.__dict__,
        "core hours": hours,
        "core hours together": all_hours,
        "hours on 2 cores": all_hours / 2,
        "hours on 16 cores": all_hours / 16,
    }
    RESULT_PATH.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def measure_slopes(texts: list[str], words_per_text: float, steps: list[str]) -> Slopes:
    """Return the slopes of all stages. Those of pairing are read from its results."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((20_000, VECTOR_WIDTH)).astype(np.float32)
    queries = rng.standard_normal((1_000, VECTOR_WIDTH)).astype(np.float32)

    def search(size: int) -> object:
        return (queries @ vectors[:size].T).argmax(axis=1)

    def check(size: int) -> object:
        return [change(first, second) for first, second in itertools.pairwise(steps[: size + 1])]

    pairing = json.loads((BENCHMARK_FOLDER / "results" / "pairing.json").read_text())
    growth = pairing["growth"]
    text_slope = slope(lambda size: list(content_words(texts[:size])), TEXT_COUNTS)
    return Slopes(
        word=text_slope / words_per_text,
        step=slope(lambda size: embed(steps[:size]), TEXT_COUNTS),
        pair=growth["ns a video and document"] / 1e9,
        video=max(0.0, growth["us a video"]) / 1e6,
        cosine=slope(search, SEARCHED_COUNTS) / len(queries),
        checked=slope(check, TEXT_COUNTS),
    )


if __name__ == "__main__":
    main()
