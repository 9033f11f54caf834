"""Comparisons with several seeds: what is tuned, paired and kept, not what is measured."""

import json

import pytest

from lab.procx import arms
from lab.procx.comparisons import ARM_COMPARISONS, ARM_TRIALS, TUNED_ARMS, tuned_as
from lab.procx.rows import ProcxSize
from lab.study import interval

COUNTS = {"narrated": 3, "captioned": 4, "withheld": 2, "validated": 2}
NETWORK = {"rows": 16, "width": 16, "heads": 2, "layers": 1, "queries": 30}
TINY = ProcxSize(**COUNTS, **NETWORK, pretraining_steps=1, finetuning_steps=1, steps=1)


def cell(arm, world, seed, value):
    scores = dict.fromkeys(("SODA-D", "SODA-C", "CIDEr"), value)
    return {"arm": arm, "world": world, "seed": seed, "scores": scores}


@pytest.fixture
def study(tmp_path):
    return arms.ArmStudy(tmp_path, tmp_path / "arms.json", "here", TINY)


def written(study):
    return json.loads(study.result.read_text())


def test_differences_are_of_one_world_and_seed():
    cells = [cell("ProcX", world, seed, 10.0 * world + seed) for world in (2, 3) for seed in (0, 1)]
    cells += [cell("PDVC", world, seed, 10.0 * world) for world in (2, 3) for seed in (0, 1)]
    cells.append(cell("PDVC", 4, 0, 99.0))  # without a partner
    (claim,) = (one for one in arms.claims_of(cells) if one["metric"] == "SODA-D")
    assert claim["claim"] == "ProcX above PDVC, no pre-training, SODA-D"
    assert claim["mean"] == 0.5
    assert claim["world_means"] == [0.5, 0.5]
    assert claim["gains"] == [0.0, 1.0, 0.0, 1.0]
    assert claim["places"] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    assert claim["worlds"] == (0.5, 0.5)


def test_an_interval_is_students():
    low, high = interval([1.0, 2.0, 3.0])
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - 2.0 == pytest.approx(4.302653 / 3**0.5)


def test_every_comparison_is_between_arms_whose_rate_is_tuned():
    assert all({one.more, one.less} <= set(ARM_TRIALS) for one in ARM_COMPARISONS)
    assert {tuned_as(arm) for arm in ARM_TRIALS} == set(TUNED_ARMS)
    assert all(tuned_as(arm) == arm for arm in TUNED_ARMS)
    assert tuned_as("ProcX, mixed") == "ProcX, Sieve & Swap"
    assert tuned_as("PDVC, raw speech") == "PDVC, Sieve & Swap"
    # a pre-training starts from fresh weights
    assert tuned_as("PDVC, zero-shot, Sieve & Swap") == "PDVC"


def test_arms_take_the_rate_that_was_best_and_cells_are_run_once(study):
    study.tune(["ProcX"], [0], [(1e-3, 1), (3e-3, 1)])
    rates = {one["rate"]: one["SODA-D"] for one in written(study)["tuned"]}
    best = (max(rates, key=rates.get), 1)
    both = ["ProcX", "vanilla attention"]
    assert [study.option_of(arm) for arm in both] == [best, best]
    study.compare(both, [0], [0, 1])
    tree = written(study)
    cells = [(one["arm"], one["seed"]) for one in tree["comparison"]]
    assert cells == [(arm, seed) for seed in (0, 1) for arm in both]
    claims = {f"key-aware above vanilla, {metric}" for metric in arms.METRIC_NAMES}
    assert {one["claim"] for one in tree["claims"]} == claims
    before = study.result.stat().st_mtime_ns
    study.compare(both, [0], [0, 1])
    assert study.result.stat().st_mtime_ns == before


def at_rate(arm, rate, score=0.0):
    return {**cell(arm, 2, 0, score), "rate": rate, "steps": 3000}


def test_cells_at_another_than_the_tuned_rate_are_apart():
    tuning = [at_rate("ProcX", 1e-3, 10.0), at_rate("ProcX", 2e-3, 20.0)]
    first, second = at_rate("ProcX", 1e-3), at_rate("ProcX", 2e-3)
    # an arm that has no training at the tuned rate yet keeps what it has
    lagging = at_rate("vanilla attention", 1e-3)
    assert arms.split_by_rate([first, second, lagging], tuning) == ([second, lagging], [first])
    assert arms.split_by_rate([first], []) == ([first], [])


def test_a_better_rate_takes_the_place_of_the_one_before(study):
    old, new = at_rate("ProcX", 1e-3), at_rate("ProcX", 2e-3)
    slow, fast = at_rate("ProcX", 1e-3, 1.0), at_rate("ProcX", 2e-3, 2.0)
    study.write({"tuning": [slow], "comparison": [old, new], arms.OTHER_RATES: []})
    assert written(study)["comparison"] == [old]
    study.write({"tuning": [slow, fast], "comparison": [old], arms.OTHER_RATES: [new]})
    assert written(study)["comparison"] == [new]
    assert written(study)[arms.OTHER_RATES] == study.cells(arms.OTHER_RATES) == [old]


@pytest.mark.parametrize("arm", ["PDVC, roles", "ProcX"])
def test_with_patience_a_rate_is_chosen_and_a_network_kept_by_the_validation_score(tmp_path, arm):
    study = arms.ArmStudy(tmp_path, tmp_path / "arms.json", "here", TINY, patience=1)
    study.tune([arm], [0], [(1e-3, 2), (3e-3, 2)])
    tree = written(study)
    for cell, tuned in zip(tree["tuning"], tree["tuned"], strict=True):
        best = max(score for _, score in cell["validation"])
        assert tuned["validation"] == best
        assert [step for step, _ in cell["validation"]] == [2]
    best = max(tree["tuned"], key=lambda tuned: tuned["validation"])
    assert study.option_of(arm) == (best["rate"], 2)
    assert "| validation |" in arms.as_markdown(tree)


def test_a_pre_training_alone_has_its_steps_and_is_scored_on_both_forms(tmp_path):
    study = arms.ArmStudy(tmp_path, tmp_path / "arms.json", "here", TINY, patience=1)
    study.compare(["ProcX, zero-shot, Sieve & Swap"], [0], [0], (1e-3, 3))
    (own,) = study.cells("comparison")
    assert [step for step, _ in own["validation"]] == [3]
    tasty = {f"Tasty, {metric}" for metric in arms.METRIC_NAMES}
    assert set(own["scores"]) == {*arms.METRIC_NAMES, *arms.CELL_FACTS, *tasty}


def test_a_plateau_is_reached_where_the_last_third_rises_no_more():
    for validation, rise in (
        ([(300, 50.0), (600, 70.0), (900, 69.0)], 0.0),
        ([(300, 50.0), (600, 60.0), (900, 64.5)], 4.5),
        ([], 0.0),
    ):
        assert arms.rise_at_end(validation) == rise
