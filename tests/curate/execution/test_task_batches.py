"""Several videos done together by a worker with a GPU; the device "auto" stands for one, and is the
CPU here."""

from contextlib import closing
from dataclasses import replace

import fake_stages
import pytest

from stepline.curate.execution import actors
from stepline.curate.execution.scheduler import Phase, Scheduler
from stepline.curate.plan import Plan
from stepline.curate.settings import EngineSettings
from stepline.curate.stage import resolve_stages
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import RunLog, read_timings
from stepline.files.remote import RemotePath

DOUBLE = replace(
    fake_stages.STAGES["double"], run=fake_stages.double_or_fail, run_many=fake_stages.double_many
)
STAGES = fake_stages.STAGES | {"double": DOUBLE}
TEXTS = {name: "word " * number for number, name in enumerate(("a", "b", "c", "d", "e"), 1)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(actors, "end_with_parent", lambda parent: None)


def planned(tmp_path, texts, batch, out):
    """Return a plan, its items and OUT, where `double` is what is left to do."""
    recipe = fake_stages.recipe().model_copy(
        update={"engine": EngineSettings(batch=batch, ahead=8)}
    )
    plan, items = (
        Plan.from_recipe(recipe, resolve_stages(recipe, STAGES)),
        fake_stages.videos(tmp_path / "in", texts),
    )
    run(plan, items, RemotePath(str(out)), ("read", "count"), [], tmp_path)
    return plan, items, RemotePath(str(out))


def run(plan, items, out, stages, devices, scratch):
    finished = []
    phase = Phase(plan, ResultStore(out), stages, on_finished=finished.append)
    with (
        closing(RunLog(out)) as log,
        closing(Scheduler(phase, 1, scratch, log, devices)) as scheduler,
    ):
        scheduler.run(items)
    return {video.item.id: video.failure for video in finished}


def results(plan, items, out):
    tasks = [task for item in items for task in plan.tasks(item) if task.stage == "double"]
    store = ResultStore(out)
    return {
        task.item.id: store.read(DOUBLE, task.key) for task in tasks if store.has(DOUBLE, task.key)
    }


def ended(out):
    return [
        line for line in read_timings(out) if line["event"] == "end" and line["stage"] == "double"
    ]


def test_with_any_batch_the_bytes_are_the_same_on_both_engines(tmp_path):
    found, sizes = {}, {}
    for batch in (1, 4):
        plan, items, out = planned(tmp_path, TEXTS, batch, tmp_path / f"local-{batch}")
        assert run(plan, items, out, ("double",), ["auto"], tmp_path) == dict.fromkeys(TEXTS)
        found["local", batch] = results(plan, items, out)
        sizes["local", batch] = [line.get("together") for line in ended(out)]
        plan, items, out = planned(tmp_path, TEXTS, batch, tmp_path / f"actor-{batch}")
        actor = actors.Actor(plan, out.url, ("double",), False, "auto")
        finished = actor.do(items)
        assert {video.item.id: video.failure for video in finished} == dict.fromkeys(TEXTS)
        actor.close()
        found["actor", batch] = results(plan, items, out)
        sizes["actor", batch] = [line.get("together") for line in ended(out)]
    assert all(each == found["local", 1] and len(each) == 5 for each in found.values())
    assert sizes == {
        ("local", 1): [None] * 5,
        ("actor", 1): [None] * 5,
        ("local", 4): [4.0] * 4 + [None],
        ("actor", 4): [4.0] * 4 + [None],
    }


def test_on_the_cpu_each_video_is_done_by_itself(tmp_path):
    plan, items, out = planned(tmp_path, TEXTS, 4, tmp_path / "out")
    run(plan, items, out, ("double",), [], tmp_path)
    assert [line.get("together") for line in ended(out)] == [None] * 5


def test_a_video_that_fails_fails_alone(tmp_path):
    plan, items, out = planned(
        tmp_path, {"a": "one", "bad": "two", "c": "three", "d": "four"}, 4, tmp_path / "out"
    )
    failures = run(plan, items, out, ("double",), ["auto"], tmp_path)
    assert {name for name, failure in failures.items() if failure is None} == {"a", "c", "d"}
    assert (failures["bad"].kind, failures["bad"].reason) == (
        "error",
        "ZeroDivisionError: bad by nothing",
    )
    assert [line.get("together") for line in ended(out)] == [None] * 4
    assert results(plan, items, out).keys() == {"a", "c", "d"}


def test_a_worker_killed_with_several_costs_only_those_and_no_video(tmp_path):
    texts = {"a": "one", "b": "two", "kill": "three"}
    plan, items, out = planned(tmp_path, texts, 2, tmp_path / "out")
    assert run(plan, items[:2], out, ("double",), ["auto"], tmp_path) == {"a": None, "b": None}
    # alone, it lives
    assert run(plan, items, out, ("double",), ["auto"], tmp_path) == dict.fromkeys(texts)
    plan, items, out = planned(tmp_path, texts | {"z": "four"}, 4, tmp_path / "again")
    assert run(plan, items, out, ("double",), ["auto"], tmp_path) == dict.fromkeys(
        texts | {"z": ""}
    )
    assert [(line["id"], line["again"]) for line in ended(out)] == [
        *((name, True) for name in (*texts, "z")),
        *((name, False) for name in (*texts, "z")),
    ]
