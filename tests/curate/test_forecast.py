"""The forecast's arithmetic on made timings, and a dry run of stages that cost nothing."""

import json

import numpy as np
import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.forecast.costs import read_costs
from stepline.curate.forecast.dry_run import (
    dry_run,
    forecast_json,
    format_bytes,
    format_forecast,
    format_seconds,
)
from stepline.curate.forecast.extrapolation import (
    Resamples,
    extrapolate_runs,
    extrapolate_totals,
    fit_line,
    resample,
    size_predicts,
)
from stepline.curate.forecast.model import (
    Forecast,
    Interval,
    StageForecast,
    forecast,
    half_width,
    next_sample,
)
from stepline.curate.forecast.video_sample import draw_stratified, known_sizes
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem
from stepline.curate.store.run_log import read_timings
from stepline.errors import DatasetError
from stepline.files.remote import RemotePath

SETTINGS = ForecastSettings(
    sample=6, most=6, cores=(1, 4), core_hour=1.0, million_tokens=2.0, gigabyte_month=0.0
)


def end(at, id, stage, cpu, *, key=None, first=False, ok=True, **more):
    known = {
        "event": "end",
        "at": at,
        "id": id,
        "stage": stage,
        "key": key or f"{stage} {id}",
        "first": first,
    }
    return known | {"ok": ok, "cpu": cpu, "wall": 2 * cpu, "bytes": 100, "kind": "done"} | more


def journal(seconds):
    """A run of one worker over videos v0, v1, ...; hearing costs 1 + .5 s a second of video, the
    first 7 s more."""
    lines = [{"event": "run", "at": 10.0, "seconds": 2.0, "videos": len(seconds)}]
    at = 13.0
    for number, length in enumerate(seconds):
        unit = {
            "event": "start",
            "at": at,
            "id": f"v{number}",
            "stage": "hear",
            "key": f"hear v{number}",
            "worker": 7,
        }
        cpu = 1 + 0.5 * length + (7 if number == 0 else 0)
        lines += [
            unit,
            end(at + 1, f"v{number}", "hear", cpu, first=number == 0, tokens=1000.0, requests=2.0),
        ]
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
    # the first video's 10 s against the others' mean
    assert hear.load["cpu"] == pytest.approx(10 - 5.4)
    assert list(hear.spent["cpu"]) == pytest.approx([5.4, 5, 5, 7, 3, 7])
    assert (costs.lead, costs.gap) == (5.0, pytest.approx(0.25))
    assert (hear.load["tokens"], hear.spent["tokens"].sum()) == (0.0, 6000.0)
    assert hear.spent["requests"].sum() == 12.0


def test_the_unit_that_pays_for_models_is_the_one_whose_stage_says_so():
    lines = [
        end(1, "silent", "hear", 0.1, first=True, loaded=0),
        end(2, "a", "hear", 9.0, loaded=1),
        end(3, "b", "hear", 3.0, loaded=0),
        end(4, "c", "hear", 2.0, loaded=0),
        end(5, "d", "hear", 7.0, loaded=1),
    ]
    hear = read_costs(lines, ["silent", "a", "b", "c", "d"]).stages["hear"]
    assert hear.load["cpu"] == pytest.approx(8 - 1.7)  # 9 and 7 s against the mean of the others
    assert list(hear.spent["cpu"]) == pytest.approx([0.1, 2.7, 3.0, 2.0, 0.7])
    assert hear.load["bytes"] == 0.0


def test_a_unit_tried_again_counts_twice_and_one_under_two_keys_once():
    lines = [
        end(1, "a", "fit", 3.0, again=True),
        end(2, "a", "fit", 4.0),
        end(1, "b", "fit", 2.0, key="one"),
        end(2, "b", "fit", 4.0, key="two"),
    ]
    assert list(read_costs(lines, ["a", "b"]).stages["fit"].spent["cpu"]) == [7.0, 3.0]


def test_sizes_that_tell_nothing_are_not_asked():
    x = np.array([1.0, 2, 3, 4, 5, 6])
    assert size_predicts(x, 2 + x)
    assert not size_predicts(x, np.array([3.0, 1, 3, 1, 3, 1]))
    once = Resamples(np.arange(6)[None], np.zeros((1, 6)), np.ones(1))
    # a file of a thousand times the bytes counts as the largest that was seen; the flat one as the
    # mean
    everything = np.array([*x, 6000.0])
    assert extrapolate_totals(2 + x, x, everything, once) == pytest.approx(2 * 7 + 21 + 6)
    assert extrapolate_totals(np.array([3.0, 1, 3, 1, 3, 1]), x, everything, once) == pytest.approx(
        14
    )


def test_what_the_sampled_videos_took_is_known_and_the_others_are_estimated():
    once = Resamples(np.arange(4)[None], np.zeros((1, 4)), np.ones(1))
    # no line foretells these: 12 s, 3 s each
    sizes, spent = np.array([1.0, 2, 3, 4]), np.array([5.0, 1, 1, 5])
    assert extrapolate_totals(spent, sizes, np.array([*sizes, 1, 9]), once) == pytest.approx(
        12 + 2 * 3
    )
    # 2 s a size: the six sizes that are known, and 1 and 4 for the one that is beyond them
    assert extrapolate_totals(2 * sizes, sizes, np.array([*sizes, 1, 9]), once) == pytest.approx(
        20 + 2 * (1 + 4)
    )
    everything = resample(4, 4, 50, np.random.default_rng(0))
    assert extrapolate_totals(spent, sizes, sizes, everything) == pytest.approx(np.full(50, 12.0))


def test_the_interval_is_that_of_a_sample_without_replacement():
    rng = np.random.default_rng(0)
    spent = rng.normal(10, 3, size=100)
    alike = np.ones(100)
    for count in (101, 125, 200, 1000, 100_000):
        totals = extrapolate_totals(spent, alike, np.ones(count), resample(100, count, 20_000, rng))
        variance = count**2 * (1 - 100 / count) * spent.var(ddof=1) / 100  # Cochran, section 2.6
        # 99 / 97: of Student's t
        assert totals.std() == pytest.approx(np.sqrt(variance * 99 / 97), rel=0.03)


@pytest.mark.parametrize(
    ("population", "count"), [(31, 12), (48, 24), (60, 6), (400, 24), (200, 100)]
)
def test_the_interval_holds_the_truth_of_small_populations_too(population, count):
    rng = np.random.default_rng(population + count)
    held, tries = 0, 200
    for seed in range(tries):
        length = rng.uniform(16, 60, size=population)
        hears = rng.random(population) < 0.75  # a quarter is silent, which nobody knows before
        spent = hears * 0.06 * length * rng.lognormal(0, 0.4, size=population)
        chosen = draw_stratified(length, count, seed)
        totals = extrapolate_totals(
            spent[chosen], length[chosen], length, resample(count, population, 200, rng)
        )
        low, high = np.percentile(totals, [2.5, 97.5])
        held += low <= spent.sum() <= high
    assert 0.89 <= held / tries <= 0.995


def test_a_sample_grows_until_its_interval_is_narrow():
    def told(half, sampled=24, population=1000):
        hours, none = Interval(10.0, 10 - 10 * half, 10 + 10 * half), Interval(0, 0, 0)
        return Forecast(population, sampled, "bytes", (), hours, hours, {}, none, none, none)

    assert half_width(told(0.25).cpu_hours) == pytest.approx(0.25)
    usual = ForecastSettings()
    assert next_sample(told(0.25), usual) == 48
    assert next_sample(told(0.1), usual) == 24
    assert next_sample(told(0.25, 192), usual) == usual.most == 200
    assert next_sample(told(0.25, 24, 31), usual) == 31
    assert next_sample(told(0.25, 300), usual) == 300  # `sample` may be above `most`
    assert next_sample(told(0.25), ForecastSettings(most=24)) == 24
    assert next_sample(told(0.0001), ForecastSettings(within=0)) == 48


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
    # the six are done: 3, 5, 7, 9, 11 and 13 s
    assert told.cpu_left.value * 3600 == pytest.approx(3614 - 48)
    # one worker: 600 videos of 12 s and 600 gaps of a quarter; the models; 5 s before the first
    # unit
    assert told.hours[1].value * 3600 == pytest.approx(7200 + 150 + 14 + 5)
    assert told.hours[4].value * 3600 == pytest.approx(7350 / 4 + 14 + 5)
    assert told.tokens.value == pytest.approx(600_000)
    assert told.requests.value == pytest.approx(1200)
    assert "requests to language models: 1,200 [" in format_forecast(told)
    assert told.money.value == pytest.approx(3614 / 3600 + 0.6 * 2)
    assert hear.cpu.low <= hear.cpu.value <= hear.cpu.high
    whole = forecast(costs, seconds, seconds, SETTINGS, workers=2)
    assert (whole.stages[0].cpu.low, whole.stages[0].cpu.high) == pytest.approx((48, 48))
    assert whole.cpu_hours.value * 3600 == pytest.approx(48 + 14)
    assert whole.cpu_left.value == pytest.approx(0)


def test_a_stage_over_the_dataset_grows_from_two_sizes_and_pays_its_imports_once():
    # a first run of 8 videos took 30 s, one of 24 took 28, another of 8 took 12: 4 + 1 s a video,
    # 18 s once
    assert extrapolate_runs(
        np.array([8.0, 24, 8]), np.array([[30.0, 28, 12]]), np.array([300.0])
    ) == pytest.approx(18 + 4 + 300)
    assert extrapolate_runs(
        np.array([8.0]), np.array([[12.0]]), np.array([300.0])
    ) == pytest.approx(450)
    # a fourth run was of all there are: what it took, and what only a first run pays
    seen = extrapolate_runs(
        np.array([8.0, 24, 8, 60]), np.array([[30.0, 28, 12, 70]]), np.array([60.0])
    )
    assert seen == pytest.approx(18 + 70)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    held = 0
    for seed in range(60):
        x = rng.uniform(10, 100, size=400)
        y = (2 + 0.3 * x) * rng.lognormal(0, 0.3, size=400)
        chosen = draw_stratified(x, 24, seed)
        lines = [end(n, f"v{n}", "hear", float(y[place])) for n, place in enumerate(chosen)]
        told = forecast(
            read_costs(lines, [f"v{n}" for n in range(24)]),
            x[chosen],
            x,
            ForecastSettings(draws=200, cores=(1,)),
        )
        held += told.stages[0].cpu.low <= y.sum() <= told.stages[0].cpu.high
    assert held >= 51  # 57 expected of 60; fewer than 51 has a chance below one in a hundred


def test_sizes_are_durations_else_bytes_else_alike():
    assert (
        known_sizes([VideoItem("a", duration=3.0), VideoItem("b", duration=4.0)]).kind == "duration"
    )
    by_bytes = known_sizes(
        [VideoItem("a", stamp="100-9"), VideoItem("b", stamp="50-8", duration=1.0)]
    )
    assert (by_bytes.kind, list(by_bytes.values)) == ("bytes", [100.0, 50.0])
    assert list(known_sizes([VideoItem("a", stamp="100-9"), VideoItem("b", stamp="")]).values) == [
        1.0,
        1.0,
    ]


def test_every_third_of_a_sample_holds_small_and_large_videos():
    chosen = draw_stratified(np.arange(300.0), 24, seed=3)
    assert len(set(chosen)) == 24
    for third in (chosen[:8], chosen[8:16], chosen[16:]):
        assert sum(place < 150 for place in third) == 4
    assert sorted(draw_stratified(np.arange(4.0), 24, seed=0)) == [0, 1, 2, 3]


def test_a_sample_that_grows_keeps_what_it_had_and_stays_in_proportion():
    values = np.arange(1000.0)[::-1]
    for seed in range(20):
        drawn = draw_stratified(values, 200, seed)
        assert draw_stratified(values, 24, seed) == drawn[:24]
        for count in (24, 48, 96, 200):
            quarters = np.bincount([row // 250 for row in drawn[:count]], minlength=4)
            assert quarters.max() - quarters.min() <= 1
    for count in (1, 5, 8, 13):
        assert sorted(draw_stratified(np.ones(count), 24, seed=1)) == list(range(count))


def test_every_video_is_as_likely_to_be_sampled():
    counts = np.zeros(7)
    for seed in range(4000):
        counts[draw_stratified(np.arange(7.0), 3, seed)] += 1
    assert counts / 4000 == pytest.approx(np.full(7, 3 / 7), abs=0.035)


def test_the_run_after_a_dry_run_makes_nothing_of_the_sample_again(tmp_path):
    items = videos(tmp_path / "in", {f"v{n}": "word " * (n + 1) for n in range(12)})
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES)
    told = dry_run(job, items, SETTINGS)
    assert (told.videos, told.sampled, told.size) == (12, 6, "bytes")
    assert {stage.name for stage in told.stages} == set(job.recipe.stages)
    assert not (tmp_path / "out" / "dataset").exists()
    run_recipe(job, items)
    made = [
        line["id"]
        for line in read_timings(RemotePath(job.out))
        if line["event"] == "end" and line["stage"] == "read"
    ]
    assert len(made) == 6


def test_a_dry_run_takes_in_more_videos_while_its_interval_is_wide(tmp_path):
    items = videos(tmp_path / "in", {f"v{n:02}": "word " * (n + 1) for n in range(30)})
    said: list[str] = []
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES, say=said.append)
    told = dry_run(job, items, SETTINGS.model_copy(update={"within": 0.0, "most": 20}))
    assert told.sampled == 20
    grown = [line for line in said if "forecast.within=0" in line]
    assert ["6 more" in grown[0], "8 more" in grown[1], len(grown)] == [True, True, 2]
    run_recipe(job, items)
    made = [
        line["id"]
        for line in read_timings(RemotePath(job.out))
        if line["event"] == "end" and line["stage"] == "read"
    ]
    assert len(made) == 10


def test_a_sample_with_nothing_left_to_train_on_grows(tmp_path, monkeypatch):
    def run(job, items):
        if len(items) < 4:
            raise DatasetError("train: no video is left")
        return run_recipe(job, items)

    monkeypatch.setitem(dry_run.__globals__, "run_recipe", run)
    said: list[str] = []
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES, say=said.append)
    told = dry_run(
        job,
        videos(tmp_path / "in", {f"v{n:02}": "word" for n in range(20)}),
        SETTINGS.model_copy(update={"most": 12}),
    )
    assert told.sampled == 12
    assert (
        "the sample did not go through (train: no video is left): 12 videos are processed" in said
    )
    few = videos(tmp_path / "few", {f"v{n}": "word" for n in range(3)})
    with pytest.raises(DatasetError, match="no video is left"):
        dry_run(job, few, SETTINGS)


def test_a_dry_run_of_one_video_reports_what_it_takes(tmp_path):
    items = videos(tmp_path / "in", {"v0": "word"})
    told = dry_run(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items, SETTINGS)
    assert (told.videos, told.sampled) == (1, 1)
    assert "1 videos, from 1 of them" in format_forecast(told)


def test_a_forecast_reads_in_large_units():
    one = Interval(7200.0, 60.0, 9000.0)
    stage = StageForecast(
        "hear", "video", one, one, Interval(2e9, 1e9, 3e9), Interval(0, 0, 0), load=3.0, failed=0.25
    )
    hours = Interval(2.0, 1.0, 3.0)
    told = Forecast(
        1000,
        24,
        "bytes",
        (stage,),
        hours,
        hours,
        {1: hours, 16: Interval(0.01, 0.005, 0.02)},
        Interval(5e8, 4e8, 6e8),
        Interval(0, 0, 0),
        Interval(1.5, 1.0, 2.0),
    )
    text = format_forecast(told)
    assert "hear   2.0 h  60.0 s to 2.5 h  2.0 GB  25 %" in text
    assert "with 16 workers: 36.0 s [18.0 s, 72.0 s]" in text
    assert "tokens" not in text
    assert json.loads(forecast_json(told))["stages"][0]["load"] == 3.0
    assert (
        format_seconds(119.0),
        format_seconds(7199.0),
        format_bytes(999),
        format_bytes(1e18),
    ) == ("119.0 s", "120.0 min", "999.0 B", "1000.0 PB")
