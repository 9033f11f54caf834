"""The simulated world is like the data it stands for: docs/results/world.md has the table, and
where each number is from."""

import math

import numpy as np
import pytest

from lab.simulate import (
    SHORT_WORLD,
    TASTY_WORLD,
    YOUCOOK2_WORLD,
    SimulationSettings,
    statistics,
    stream,
    zero_shot_recall,
)
from lab.simulate.settings import BACKBONE_SETTINGS, WORLD_SETTINGS
from stepline.settings import validate

SEEDS = (0, 1, 2)
VIDEOS = 120  # a seed


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, float]]:
    """World -> the statistics of all seeds together."""
    return {
        name: statistics(
            sample for seed in SEEDS for sample in stream(seed, WORLD_SETTINGS[name], count=VIDEOS)
        )
        for name in ("short", "youcook2")
    }


@pytest.fixture(scope="module")
def recalls() -> dict[str, dict[str, float]]:
    """Backbone -> its R@1 by plain cosine, all seeds together."""
    every = [
        [zero_shot_recall(stream(seed, SHORT_WORLD, count=60), name) for name in BACKBONE_SETTINGS]
        for seed in SEEDS
    ]
    return {
        name: {
            style: float(np.mean([seed[row][style] for seed in every])) for style in every[0][row]
        }
        for row, name in enumerate(BACKBONE_SETTINGS)
    }


@pytest.mark.parametrize(
    ("name", "expected", "tolerance"),
    [
        ("duration", 129.0, 12.0),  # prototype: 129 s
        ("covered", 0.48, 0.03),  # prototype: 0.48; YouCook2: 0.487
        ("window_s", 10.8, 0.8),  # prototype: 10.8 s
        ("narrations", 27.4, 3.0),  # prototype: 27.4
        ("narrations_alignable", 0.30, 0.03),  # NaSVA: 0.301
        ("narrations_well_aligned", 0.14, 0.03),  # NaSVA: 0.15; prototype: 0.125
        ("steps", 9.6, 1.0),  # prototype: 9.6
        ("steps_alignable", 0.58, 0.05),  # prototype: 0.576; NaSVA: 0.606
        ("recipe_lines", 11.1, 0.6),  # prototype: 11.1; HT-Step: 11.45
        ("recipe_present", 0.51, 0.03),  # prototype: 0.51
        ("inversions_in_the_video", 0.23, 0.04),  # WhenAct: 0.231 of all pairs
        # WhenAct: 0.152 of the pairs whose windows do not overlap
        ("inversions_in_a_minute", 0.15, 0.04),
        ("offset_p50", 0.0, 1.5),  # WhenAct: 1.0 s
        ("abs_offset_p50", 4.5, 1.0),  # WhenAct: 4.5 s
        ("abs_offset_p75", 11.0, 3.5),  # WhenAct: 11 s
        ("abs_offset_p95", 28.8, 4.0),  # WhenAct: 28.8 s
    ],
)
def test_short_simulated_videos_have_the_statistics_of_real_ones(
    measured: dict[str, dict[str, float]], name: str, expected: float, tolerance: float
):
    assert measured["short"][name] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "expected", "tolerance"),
    [
        ("duration", 317.7, 25.0),  # YouCook2, as all that follow up to the last window
        ("windows", 7.76, 0.6),
        ("window_s", 19.6, 1.5),
        ("gap_s", 9.4, 1.2),
        ("covered", 0.487, 0.03),
        ("first_start", 0.166, 0.03),
        ("last_end", 0.839, 0.03),
        ("narrations_alignable", 0.30, 0.04),  # NaSVA: 0.301
        ("recipe_present", 0.5, 0.04),
        ("inversions_in_the_video", 0.23, 0.04),  # WhenAct
        ("abs_offset_p50", 4.5, 1.0),  # WhenAct
    ],
)
def test_long_simulated_videos_have_the_statistics_of_youcook2(
    measured: dict[str, dict[str, float]], name: str, expected: float, tolerance: float
):
    assert measured["youcook2"][name] == pytest.approx(expected, abs=tolerance)


def test_durations_and_windows_of_long_videos_spread_as_youcook2() -> None:
    samples = list(stream(0, YOUCOOK2_WORLD, count=300))
    windows = np.concatenate(
        [np.diff(sample.timeline.windows, axis=1).ravel() for sample in samples]
    )
    assert np.percentile(windows, [25, 50, 75]) == pytest.approx([8.0, 14.0, 25.0], rel=0.2)
    durations = np.array([sample.duration for sample in samples])
    assert np.percentile(durations, [25, 50, 75]) == pytest.approx([209.0, 292.0, 402.0], rel=0.2)
    assert 60.0 <= durations.min() < durations.max() <= 600.0


def test_offsets_have_heavy_tails(measured: dict[str, dict[str, float]]) -> None:
    for world in measured.values():
        # WhenAct: 6.4; a Gaussian: 2.9
        assert world["abs_offset_p95"] / world["abs_offset_p50"] > 5.0


def test_cosine_alone_ranks_articles_over_written_steps_over_narration(
    recalls: dict[str, dict[str, float]],
) -> None:
    usual = recalls["usual"]
    assert usual["recipe"] == pytest.approx(0.39, abs=0.05)  # prototype
    assert usual["step"] == pytest.approx(0.34, abs=0.05)
    assert usual["narration"] == pytest.approx(0.29, abs=0.05)
    assert usual["chance"] == pytest.approx(0.086, abs=0.01)
    assert usual["recipe"] > usual["step"] > usual["narration"] > usual["chance"]


def test_backbones_differ_in_what_they_see(recalls: dict[str, dict[str, float]]) -> None:
    for style in ("narration", "step", "recipe"):
        assert recalls["sharp"][style] > recalls["usual"][style] + 0.05
        assert recalls["usual"][style] > recalls["dull"][style] + 0.05


def test_recall_falls_as_the_difficulty_rises() -> None:
    found = [
        zero_shot_recall(stream(0, SHORT_WORLD.model_copy(update={"difficulty": dial}), count=60))[
            "recipe"
        ]
        for dial in (0.5, 1, 2)
    ]
    assert found[0] > found[1] + 0.1 > found[2] + 0.2


def test_a_worse_recogniser_leaves_steps_that_say_less() -> None:
    found = {
        grade: list(stream(0, SHORT_WORLD.model_copy(update={"recogniser": grade}), count=60))
        for grade in ("clean", "noisy")
    }
    recall = {grade: zero_shot_recall(samples) for grade, samples in found.items()}
    assert recall["clean"]["narration"] > recall["noisy"]["narration"]
    assert recall["clean"]["step"] > recall["noisy"]["step"]
    assert recall["clean"]["recipe"] == recall["noisy"]["recipe"]
    assert (
        statistics(found["noisy"])["narrations_well_aligned"]
        < statistics(found["clean"])["narrations_well_aligned"]
    )


def test_nothing_counted_is_nan() -> None:
    empty = statistics([])
    assert all(math.isnan(value) for value in empty.values())
    silent = validate(
        SimulationSettings,
        {"writer": {"step_kept": 0.0, "object_chat_kept": 0.0, "chat_kept": 0.0}},
    )
    assert math.isnan(zero_shot_recall(stream(0, silent, count=2))["step"])


def test_tasty_videos_are_short_and_full_of_steps() -> None:
    found = statistics(sample for seed in SEEDS for sample in stream(seed, TASTY_WORLD, count=60))
    assert found["duration"] == pytest.approx(54, abs=8)  # ProcX section E.1: 54 s
    assert found["windows"] == pytest.approx(9, abs=1)  # nine instructions
    assert found["window_s"] == pytest.approx(6, abs=0.6)  # section 7.2: six seconds
