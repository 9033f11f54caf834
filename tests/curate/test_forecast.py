"""The forecast of a run from a sample of its videos, with stages that cost nothing."""

import json

import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.forecast import Forecast, dry_run, forecast_json, format_forecast
from stepline.curate.store.run_log import read_timings
from stepline.files.remote import RemotePath


def end_lines(out, stage):
    lines = read_timings(RemotePath(out))
    return [line for line in lines if line["event"] == "end" and line["stage"] == stage]


def test_the_time_of_all_videos_is_the_mean_of_the_sample(tmp_path):
    entries = videos(tmp_path / "in", {f"v{n:02}": "slow .2" for n in range(12)})
    job = RunRequest(recipe(workers=2, forecast={"sample": 6}), str(tmp_path / "out"), STAGES)
    forecast = dry_run(job, entries)
    assert (forecast.videos, forecast.sampled, forecast.workers) == (12, 6, 2)
    seconds = sum(
        line["wall"] for stage in ("read", "count", "double") for line in end_lines(job.out, stage)
    )
    assert forecast.seconds_per_video == pytest.approx(seconds / 6)
    assert forecast.seconds_per_video >= 0.2
    assert forecast.hours == pytest.approx(12 * seconds / 6 / 2 / 3600)


def test_the_run_after_a_dry_run_makes_nothing_of_the_sample_again(tmp_path):
    entries = videos(tmp_path / "in", {f"v{n}": "word " * (n + 1) for n in range(12)})
    job = RunRequest(recipe(forecast={"sample": 6}), str(tmp_path / "out"), STAGES)
    first = dry_run(job, entries)
    assert not (tmp_path / "out" / "dataset").exists()
    assert dry_run(job, entries) == first  # by the log of the first one
    run_recipe(job, entries)
    assert len(end_lines(job.out, "read")) == 12


def test_a_forecast_reads_as_hours():
    forecast = Forecast(1000, 24, 7.2, 4, 0.5)
    assert format_forecast(forecast).splitlines()[:2] == [
        "1,000 videos, 7.2 s per video in a sample of 24",
        "with 4 workers at the same time: 0.50 h",
    ]
    assert json.loads(forecast_json(forecast))["seconds_per_video"] == 7.2
