"""The forecast's arithmetic on made timings, and a dry run of stages that cost nothing."""

import json

import numpy as np
import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate import forecast as module
from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.forecast import (
    dry_run,
    forecast,
    forecast_json,
    format_bytes,
    format_forecast,
    format_seconds,
)
from stepline.curate.settings import ForecastSettings
from stepline.curate.stage import VideoItem
from stepline.curate.store.run_log import read_timings
from stepline.errors import DatasetError
from stepline.files.remote import RemotePath

SETTINGS = ForecastSettings(
    sample=6, cores=(1, 4), core_hour=1.0, million_tokens=2.0, gigabyte_month=0.0
)


def end(id, stage, cpu, *, first=False, ok=True, **more):
    known = {"event": "end", "id": id, "stage": stage, "first": first, "ok": ok}
    return known | {"cpu": cpu, "wall": 2 * cpu, "bytes": 100} | more


def items(seconds):
    return [VideoItem(f"v{number}", duration=length) for number, length in enumerate(seconds)]


def test_costs_grow_with_the_seconds_of_the_videos():
    sampled = items([4.0, 8, 12])
    log = [end(item.id, "hear", item.duration, tokens_in=70.0, tokens_out=30.0) for item in sampled]
    log.append({"event": "dataset", "stage": "train", "cpu": 48.0, "wall": 24.0, "bytes": 9})
    told = forecast(log, sampled, items([4.0, 8, 12, 6, 18]), SETTINGS)
    hear, train = told.stages
    # 48 s of video in all, twice those of the sample
    assert (hear.cpu, hear.wall, hear.bytes, hear.tokens) == pytest.approx((48, 96, 600, 600))
    assert (train.cpu, train.wall, train.bytes) == pytest.approx((96, 48, 18))
    assert told.cpu_hours == pytest.approx((48 + 96) / 3600)
    assert told.cpu_interval == pytest.approx((told.cpu_hours, told.cpu_hours))  # all on one line
    assert told.hours[1] == pytest.approx((96 + 48) / 3600)
    assert told.hours[4] == pytest.approx((96 / 4 + 48) / 3600)
    assert (told.disk, told.tokens) == pytest.approx((618, 600))
    assert told.money == pytest.approx(144 / 3600 + 600 / 1e6 * 2)


def test_costs_grow_with_the_number_of_videos_where_a_length_is_not_known():
    sampled = items([4.0, 8.0])
    log = [end("v0", "hear", 3.0), end("v1", "hear", 5.0)]
    told = forecast(log, sampled, [*sampled, *items([None] * 8)], SETTINGS)
    assert told.cpu_hours == pytest.approx(40 / 3600)


def test_models_count_once_per_worker():
    """The unit that loads models is the one whose stage says so, else its worker's first."""
    log = [
        end("v0", "hear", 0.5, first=True, loaded=0),
        end("v1", "hear", 9.0, loaded=1),
        end("v2", "hear", 1.5, loaded=0),
        end("v0", "see", 5.0, first=True),
        end("v1", "see", 2.0),
        end("v2", "see", 2.0),
    ]
    sampled = items([1.0, 1, 1])
    told = forecast(log, sampled, items([1.0] * 30), SETTINGS, workers=4)
    hear, see = told.stages
    assert (hear.load, see.load) == (8.0, 3.0)  # beyond the mean of the others
    assert (hear.cpu, see.cpu) == pytest.approx((30, 60))
    assert told.cpu_hours * 3600 == pytest.approx(30 + 60 + 4 * (8 + 3))
    assert told.hours[4] * 3600 == pytest.approx(2 * (30 + 60) / 4 + 2 * (8 + 3))


def test_a_unit_tried_again_counts_twice_and_fails_by_its_last_try():
    log = [end("v0", "fit", 3.0, ok=False), end("v0", "fit", 4.0), end("v1", "fit", 1.0, ok=False)]
    (fit,) = forecast(log, items([1.0, 1]), items([1.0, 1]), SETTINGS).stages
    assert (fit.cpu, fit.failed) == (8.0, 0.5)


@pytest.mark.parametrize("population", [31, 60, 400])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(population):
    rng = np.random.default_rng(population)
    held = 0
    for _ in range(200):
        length = rng.uniform(16, 60, size=population)
        spent = 0.5 * length * rng.lognormal(0, 0.4, size=population)
        everything = items(length)
        sampled = everything[:24]  # any are as good, since all are drawn alike
        log = [end(item.id, "hear", spent[row]) for row, item in enumerate(sampled)]
        low, high = forecast(log, sampled, everything, SETTINGS).cpu_interval
        held += low <= spent.sum() / 3600 <= high
    assert 0.88 <= held / 200 <= 0.99


def test_only_stages_on_a_gpu_are_billed_for_one():
    log = [end(f"v{n}", stage, 18.0) for n in range(6) for stage in ("transcribe", "write")]
    log.append({"event": "dataset", "stage": "train", "cpu": 0.0, "wall": 3600.0, "bytes": 0})
    prices = ForecastSettings(core_hour=0, gpu_hour=2.0, million_tokens=0, gigabyte_month=0)
    sampled, everything = items([1.0] * 6), items([1.0] * 600)
    told = forecast(
        log, sampled, everything, prices, workers=4, gpus={"transcribe": 0.5, "train": 1.0}
    )
    # 600 videos of 36 s on half a GPU are 3 hours, whoever else works
    assert told.gpu_hours == pytest.approx(3.0 + 100.0)
    assert told.money == pytest.approx(2.0 * 103.0)
    assert forecast(log, sampled, everything, prices, workers=4).gpu_hours == 0.0


def test_the_run_after_a_dry_run_makes_nothing_of_the_sample_again(tmp_path):
    entries = videos(tmp_path / "in", {f"v{n}": "word " * (n + 1) for n in range(12)})
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES)
    told = dry_run(job, entries, SETTINGS)
    assert (told.videos, told.sampled) == (12, 6)
    assert {stage.name for stage in told.stages} == set(job.recipe.stages)
    assert not (tmp_path / "out" / "dataset").exists()
    run_recipe(job, entries)
    made = [
        line["id"]
        for line in read_timings(RemotePath(job.out))
        if line["event"] == "end" and line["stage"] == "read"
    ]
    assert len(made) == 6


def test_a_sample_with_nothing_left_to_train_on_names_the_cure(tmp_path, monkeypatch):
    def run(job, entries):
        raise DatasetError("train: no video is left")

    monkeypatch.setattr(module, "run_recipe", run)
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES)
    entries = videos(tmp_path / "in", {f"v{n:02}": "word" for n in range(20)})
    with pytest.raises(DatasetError, match=r"no video is left; a larger forecast.sample than 6"):
        dry_run(job, entries, SETTINGS)
    with pytest.raises(DatasetError, match="^train: no video is left$"):
        dry_run(job, entries[:3], SETTINGS)


def test_a_dry_run_of_one_video_reports_what_it_takes(tmp_path):
    entries = videos(tmp_path / "in", {"v0": "word"})
    told = dry_run(RunRequest(recipe(), str(tmp_path / "out"), STAGES), entries, SETTINGS)
    assert (told.videos, told.sampled) == (1, 1)
    assert "1 videos, from 1 of them" in format_forecast(told)


def test_a_forecast_reads_in_large_units():
    log = [end("v0", "hear", 7.2, ok=False, bytes=2e6), end("v1", "hear", 7.2, bytes=0)]
    told = forecast(log, items([1.0, 1]), items([1.0] * 1000), SETTINGS)
    text = format_forecast(told)
    assert "hear   2.0 h  1.0 GB  50 %" in text
    assert "CPU: 2.0 h, 95 % interval 2.0 h to 2.0 h" in text
    assert "with 4 workers: 60.0 min" in text
    assert "tokens" not in text
    assert json.loads(forecast_json(told))["stages"][0]["failed"] == 0.5
    assert (
        format_seconds(119.0),
        format_seconds(7199.0),
        format_bytes(999),
        format_bytes(1e18),
    ) == ("119.0 s", "120.0 min", "999.0 B", "1000.0 PB")
