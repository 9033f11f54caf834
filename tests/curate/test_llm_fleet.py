"""A recipe whose steps a fleet of language models writes: what its troubles cost, and what the
forecast says of it."""

import pytest
from model_fleet import Fleet
from small_video import CAPTIONS, draw_video

from stepline.curate.driver import RunRequest, curate, source_items
from stepline.curate.forecast import dry_run, format_forecast
from stepline.curate.stage import load_recipe
from stepline.curate.stages import STAGE_TABLE
from stepline.curate.store.run_log import read_timings

THINGS = ("lemons", "carrots", "onions", "apples", "leeks", "plums", "limes", "beans")
STAGES_ASKED = [
    "probe",
    "transcribe",
    "write",
    "filter",
    "encode",
    "coarse",
    "ground",
    "judge",
    "gather",
    "export",
]
PRICE = 1000.0  # of a million tokens, so that cents of a few show


@pytest.fixture
def corpus(tmp_path):
    """Eight small videos, which tell steps of different things and at different length."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, thing in enumerate(THINGS):
        draw_video(folder / f"{thing}.mp4", seconds=16 + number)
        told = CAPTIONS.replace("lemons", thing).replace(
            "the juice", f"the {thing} and {number} cups of milk"
        )
        (folder / f"{thing}.srt").write_text(told)
    return folder


def asked_of(fleet, corpus, out, *more):
    settings = ['steps.writing.writer="llm"', f'steps.writing.llm.base_url="{fleet.url}"', *more]
    named = [
        f"stages={STAGES_ASKED}".replace("'", '"'),
        "engine.workers=2",
        "gather.same_picture=0.0",
    ]
    return RunRequest(
        load_recipe("howtostep", [*named, *settings]), str(out), STAGE_TABLE, str(corpus)
    )


@pytest.mark.slow
def test_limits_and_a_dying_replica_cost_no_step(tmp_path, corpus, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache-a"))
    with Fleet(3) as sound:
        curate(asked_of(sound, corpus, tmp_path / "sound"))
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache-b"))
    patient = ["steps.writing.llm.retries=8", "steps.writing.llm.pause=0.1"]
    with Fleet(3, most=1, dies=2) as troubled:
        outcome, _ = curate(asked_of(troubled, corpus, tmp_path / "troubled", *patient))
    assert outcome.failures == ()
    assert {429, 502, 200} == set(troubled.statuses)
    found = [written(tmp_path / name) for name in ("sound", "troubled")]
    assert found[0] == found[1]
    assert len(found[0]) == len(THINGS)
    assert all(len(texts) == 3 for texts in found[0].values())


def written(out):
    """The steps' texts of a published dataset, by id."""
    import pyarrow.parquet as parquet

    rows = [
        row
        for shard in sorted(out.glob("dataset/data/train-*"))
        for row in parquet.read_table(shard).to_pylist()
    ]
    return {row["id"]: row["step_texts"] for row in rows}


@pytest.mark.slow
def test_what_a_fleet_costs_is_in_the_forecast(tmp_path, corpus, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    prices = [
        f"forecast.million_tokens={PRICE}",
        "forecast.core_hour=0.0",
        "forecast.gigabyte_month=0.0",
    ]
    with Fleet(2) as fleet:
        request = asked_of(fleet, corpus, tmp_path / "out", "forecast.sample=6", *prices)
        told = dry_run(request, list(source_items(request)), request.recipe.forecast)
        asked_for_sample = len(fleet.statuses)
        _, out = curate(request)
    ends = [
        line for line in read_timings(out) if line["event"] == "end" and line["stage"] == "write"
    ]
    tokens = [line["tokens_in"] + line["tokens_out"] for line in ends]
    # the run asks for what the sample has not
    assert (asked_for_sample, len(fleet.statuses), len(ends)) == (6, 8, 2)
    assert told.requests == pytest.approx(len(THINGS))
    assert told.tokens == pytest.approx(len(THINGS) * sum(tokens) / len(tokens), rel=0.1)
    assert told.money == pytest.approx(told.tokens * PRICE / 1e6)
    assert "requests to language models: 8\n" in format_forecast(told)
