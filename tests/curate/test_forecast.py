"""The forecast's arithmetic on made timings, and a dry run of stages that cost nothing."""

import json

import numpy as np
import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.forecast.costs import read_costs
from stepline.curate.forecast.dry_run import dry_run, forecast_json, format_bytes, format_forecast, format_seconds
from stepline.curate.forecast.model import (
    Forecast,
    Interval,
    StageForecast,
    draw_stratified,
    extrapolate_runs,
    extrapolate_totals,
    fit_line,
    forecast,
    known_sizes,
    size_predicts,
)
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem
from stepline.curate.store.run_log import read_timings
from stepline.remote import RemotePath

SETTINGS = ForecastSettings(sample=6, cores=(1, 4), core_hour=1.0, million_tokens=2.0, gigabyte_month=0.0)


def end(at, id, stage, cpu, *, key=None, first=False, ok=True, **more):
    known = {"event": "end", "at": at, "id": id, "stage": stage, "key": key or f"{stage} {id}", "first": first}
    return known | {"ok": ok, "cpu": cpu, "wall": 2 * cpu, "bytes": 100, "kind": "done"} | more


def journal(seconds):
    """A run of one worker over videos v0, v1, ...; hearing costs 1 + .5 s a second of video, the first 7 s more."""
    lines = [{"event": "run", "at": 10.0, "seconds": 2.0, "videos": len(seconds)}]
    at = 13.0
    for number, length in enumerate(seconds):
        unit = {"event": "start", "at": at, "id": f"v{number}", "stage": "hear", "key": f"hear v{number}", "worker": 7}
        cpu = 1 + 0.5 * length + (7 if number == 0 else 0)
        lines += [unit, end(at + 1, f"v{number}", "hear", cpu, first=number == 0, tokens=1000.0, requests=2.0)]
        at += 1.25
    return lines


def test_a_line_has_no_part_below_zero():
    x = np.array([1.0, 2.0, 3.0])
    fixed, slope = fit_line(np.stack([x] * 3), np.stack([2 + 3 * x, 3 * x - 2, 5 - x]))
    assert list(fixed) == pytest.approx([2.0, 0.0, 3.0])
    assert list(slope) == pytest.approx([3.0, (1 + 8 + 21) / 14, 0.0])
    assert fit_line(np.ones((1, 2)), np.array([[1.0, 3.0]])) == (2.0, 0.0)


def test_costs_tell_models_waiting_and_starting_apart():
    costs = read_costs(journal([4, 8, 8, 12, 4, 12]), [f"v{n}" for n in range(6)])
    hear = costs.stages["hear"]
    assert hear.load["cpu"] == pytest.approx(10 - 5)  # the first video's 10 s against the others' median of 5
    assert list(hear.spent["cpu"]) == pytest.approx([5, 5, 5, 7, 3, 7])
    assert (costs.lead, costs.gap) == (5.0, pytest.approx(0.25))
    assert (hear.load["tokens"], hear.spent["tokens"].sum()) == (0.0, 6000.0)
    assert hear.spent["requests"].sum() == 12.0


def test_a_unit_tried_again_counts_twice_and_one_under_two_keys_once():
    lines = [
        end(1, "a", "fit", 3.0, again=True), end(2, "a", "fit", 4.0),
        end(1, "b", "fit", 2.0, key="one"), end(2, "b", "fit", 4.0, key="two"),
    ]  # fmt: skip
    assert list(read_costs(lines, ["a", "b"]).stages["fit"].spent["cpu"]) == [7.0, 3.0]


def test_sizes_that_tell_nothing_are_not_asked():
    x = np.array([1.0, 2, 3, 4, 5, 6])
    assert size_predicts(x, 2 + x)
    assert not size_predicts(x, np.array([3.0, 1, 3, 1, 3, 1]))
    once, rng = np.arange(6)[None], np.random.default_rng(0)
    # a file of a thousand times the bytes counts as the largest that was seen; the flat one as the mean
    everything = np.array([*x, 6000.0])
    assert extrapolate_totals(2 + x, x, everything, once, rng) == pytest.approx(2 * 7 + 21 + 6)
    assert extrapolate_totals(np.array([3.0, 1, 3, 1, 3, 1]), x, everything, once, rng) == pytest.approx(14)


def test_all_videos_by_hand():
    seconds = np.array([4.0, 8, 12, 16, 20, 24])
    costs = read_costs(journal([*seconds]), [f"v{n}" for n in range(6)])
    costs.stages["hear"].spent["cpu"] = 1 + 0.5 * seconds
    costs.stages["hear"].load = {"cpu": 7.0, "wall": 14.0, "bytes": 0.0, "tokens": 0.0}
    costs.stages["hear"].spent["wall"] = 2 + seconds
    told = forecast(costs, seconds, np.full(600, 10.0), SETTINGS, workers=2)
    (hear,) = told.stages
    assert hear.cpu.value == pytest.approx(600 * 6)
    assert told.cpu_hours.value == pytest.approx((3600 + 2 * 7) / 3600)
    assert told.cpu_left.value * 3600 == pytest.approx(3614 - 48)  # the six are done: 3, 5, 7, 9, 11 and 13 s
    # one worker: 600 videos of 12 s and 600 gaps of a quarter; the models; 5 s before the first unit
    assert told.hours[1].value * 3600 == pytest.approx(7200 + 150 + 14 + 5)
    assert told.hours[4].value * 3600 == pytest.approx(7350 / 4 + 14 + 5)
    assert told.tokens.value == pytest.approx(600_000)
    assert told.requests.value == pytest.approx(1200)
    assert "requests to language models: 1,200 [" in format_forecast(told)
    assert told.money.value == pytest.approx(3614 / 3600 + 0.6 * 2)
    assert hear.cpu.low <= hear.cpu.value <= hear.cpu.high


def test_a_stage_over_the_dataset_grows_from_two_sizes_and_pays_its_imports_once():
    # a first run of 8 videos took 30 s, one of 24 took 28, another of 8 took 12: 4 + 1 s a video, 18 s once
    assert extrapolate_runs(np.array([8.0, 24, 8]), np.array([[30.0, 28, 12]]), np.array([300.0])) == pytest.approx(
        18 + 4 + 300
    )
    assert extrapolate_runs(np.array([8.0]), np.array([[12.0]]), np.array([300.0])) == pytest.approx(450)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    held = 0
    for seed in range(60):
        x = rng.uniform(10, 100, size=400)
        y = (2 + 0.3 * x) * rng.lognormal(0, 0.3, size=400)
        chosen = draw_stratified(x, 24, seed)
        lines = [end(n, f"v{n}", "hear", float(y[place])) for n, place in enumerate(chosen)]
        told = forecast(
            read_costs(lines, [f"v{n}" for n in range(24)]), x[chosen], x, ForecastSettings(draws=200, cores=(1,))
        )
        held += told.stages[0].cpu.low <= y.sum() <= told.stages[0].cpu.high
    assert held >= 51  # 57 expected of 60; fewer than 51 has a chance below one in a hundred


def test_sizes_are_durations_else_bytes_else_alike():
    assert known_sizes([VideoItem("a", duration=3.0), VideoItem("b", duration=4.0)]).kind == "duration"
    by_bytes = known_sizes([VideoItem("a", stamp="100-9"), VideoItem("b", stamp="50-8", duration=1.0)])
    assert (by_bytes.kind, list(by_bytes.values)) == ("bytes", [100.0, 50.0])
    assert list(known_sizes([VideoItem("a", stamp="100-9"), VideoItem("b", stamp="")]).values) == [1.0, 1.0]


def test_every_third_of_a_sample_holds_small_and_large_videos():
    chosen = draw_stratified(np.arange(300.0), 24, seed=3)
    assert len(set(chosen)) == 24
    for third in (chosen[:8], chosen[8:16], chosen[16:]):
        assert sum(place < 150 for place in third) == 4
    assert sorted(draw_stratified(np.arange(4.0), 24, seed=0)) == [0, 1, 2, 3]


def test_the_run_after_a_dry_run_makes_nothing_of_the_sample_again(tmp_path):
    items = videos(tmp_path / "in", {f"v{n}": "word " * (n + 1) for n in range(12)})
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES)
    told = dry_run(job, items, SETTINGS)
    assert (told.videos, told.sampled, told.size) == (12, 6, "bytes")
    assert {stage.name for stage in told.stages} == set(job.recipe.stages)
    assert not (tmp_path / "out" / "dataset").exists()
    run_recipe(job, items)
    made = [
        line["id"] for line in read_timings(RemotePath(job.out)) if line["event"] == "end" and line["stage"] == "read"
    ]
    assert len(made) == 6


def test_a_dry_run_of_one_video_tells_what_it_takes(tmp_path):
    items = videos(tmp_path / "in", {"v0": "word"})
    told = dry_run(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items, SETTINGS)
    assert (told.videos, told.sampled) == (1, 1)
    assert "1 videos, from 1 of them" in format_forecast(told)


def test_a_forecast_reads_in_large_units():
    one = Interval(7200.0, 60.0, 9000.0)
    stage = StageForecast("hear", "video", one, one, Interval(2e9, 1e9, 3e9), Interval(0, 0, 0), load=3.0, failed=0.25)
    hours = Interval(2.0, 1.0, 3.0)
    told = Forecast(
        1000, 24, "bytes", (stage,), hours, hours, {1: hours, 16: Interval(0.01, 0.005, 0.02)}, Interval(5e8, 4e8, 6e8),
        Interval(0, 0, 0), Interval(1.5, 1.0, 2.0),
    )  # fmt: skip
    text = format_forecast(told)
    assert "hear   2.0 h  60.0 s to 2.5 h  2.0 GB  25 %" in text
    assert "with 16 workers: 36.0 s [18.0 s, 72.0 s]" in text
    assert "tokens" not in text
    assert json.loads(forecast_json(told))["stages"][0]["load"] == 3.0
    assert (format_seconds(119.0), format_seconds(7199.0), format_bytes(999), format_bytes(1e18)) == (
        "119.0 s",
        "120.0 min",
        "999.0 B",
        "1000.0 PB",
    )
