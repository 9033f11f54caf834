"""A recipe whose steps a fleet of language models writes: its troubles cost nothing."""

import pytest
from model_fleet import Fleet
from small_video import CAPTIONS, draw_video

from stepline.curate.driver import RunRequest, curate
from stepline.curate.stage import load_recipe
from stepline.curate.stages import STAGE_TABLE

THINGS = ("lemons", "carrots", "onions", "apples", "leeks", "plums", "limes", "beans")
STAGES_ASKED = "probe transcribe write filter encode coarse ground judge gather export".split()


@pytest.fixture
def corpus(tmp_path):
    """Eight small videos, which tell steps of different things and at different length."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, thing in enumerate(THINGS):
        draw_video(folder / f"{thing}.mp4", seconds=16 + number)
        milk = f"the {thing} and {number} cups of milk"
        told = CAPTIONS.replace("lemons", thing).replace("the juice", milk)
        (folder / f"{thing}.srt").write_text(told)
    return folder


def asked_of(fleet, corpus, out, *more):
    settings = ['steps.writing.writer="llm"', f'steps.writing.llm.base_url="{fleet.url}"', *more]
    named = [f"stages={STAGES_ASKED}".replace("'", '"'), "engine.workers=2"]
    recipe = load_recipe("howtostep", [*named, *settings])
    return RunRequest(recipe, str(out), STAGE_TABLE, str(corpus))


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

    shards = sorted(out.glob("dataset/data/train-*"))
    rows = [row for shard in shards for row in parquet.read_table(shard).to_pylist()]
    return {row["id"]: row["step_texts"] for row in rows}
