"""An actor of Ray's without Ray; the device "auto" stands for a GPU, and is the CPU here."""

from contextlib import closing
from operator import attrgetter

import fake_stages
import pytest
from file_bytes import file_bytes

from stepline.curate.execution import ray
from stepline.curate.execution.scheduler import Phase, Scheduler
from stepline.curate.plan import Plan
from stepline.curate.stage import resolve_stages
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import RunLog
from stepline.files.remote import RemotePath

STAGES = ("read", "count", "double")


def cells(out):
    return file_bytes(out / "cells", lambda path: path.suffix == ".json")


@pytest.mark.parametrize("device", [None, "auto"])
def test_an_actor_makes_what_the_local_engine_makes(tmp_path, monkeypatch, device):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ray, "end_with_parent", lambda parent: None)
    recipe = fake_stages.recipe()
    plan = Plan.from_recipe(recipe, resolve_stages(recipe, fake_stages.STAGES))
    items = fake_stages.videos(tmp_path / "in", {"a": "one", "bad": "odd", "c": "two words"})
    local, elsewhere = tmp_path / "local", tmp_path / "actor"
    expected = []
    phase = Phase(plan, ResultStore(RemotePath(str(local))), STAGES, on_finished=expected.append)
    with (
        closing(RunLog(RemotePath(str(local)))) as log,
        closing(Scheduler(phase, 1, tmp_path, log, [device] if device else [])) as scheduler,
    ):
        scheduler.run(items)
    actor = ray.Actor(plan, str(elsewhere), STAGES, False, device)
    assert actor.is_ready()
    found = [*actor.run_videos(items[:2]), *actor.run_videos(items[2:])]
    actor.close()
    outcomes = {video.item.id: video.failure and video.failure.kind for video in found}
    assert outcomes == {"a": None, "bad": "error", "c": None}
    id = attrgetter("item.id")
    assert sorted(found, key=id) == sorted(expected, key=id)
    assert cells(local) == cells(elsewhere)
