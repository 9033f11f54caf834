import dataclasses
import time
from contextlib import closing

import pytest
from fake_stages import STAGES, recipe, status_text, videos

from stepline.curate.driver import PhaseProgress, RunRequest, run_recipe
from stepline.curate.stage import StageFailure
from stepline.curate.status import run_status
from stepline.curate.store.run_log import RunLog
from stepline.files.remote import RemotePath


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def stop(gathered):
    """Stand for a stage that is interrupted."""
    raise KeyboardInterrupt


def test_status_counts_what_is_done_failed_and_waiting(tmp_path):
    items = videos(tmp_path / "in", {"a": "one", "b": "odd", "c": "silent", "d": "two"})
    broken = {**STAGES, "publish": dataclasses.replace(STAGES["publish"], run=stop)}
    told = []
    count = {"on_progress": lambda one: told.append(one.finished)}
    with pytest.raises(KeyboardInterrupt):
        run_recipe(RunRequest(recipe(), str(tmp_path / "out"), broken, **count), items)
    found = run_status(RemotePath(str(tmp_path / "out")), STAGES)
    counts = {
        stage.name: (stage.done, dict(stage.failed), stage.unreachable, stage.waiting)
        for stage in found.stages
    }
    assert counts == {
        "read": (2, {"error": 1, "left out": 1}, 0, 0),
        "count": (2, {}, 2, 0),
        "double": (2, {}, 2, 0),
        "total": (1, {}, 0, 0),
        "publish": (0, {}, 0, 1),
    }
    assert found.videos == 4
    assert [failure.id for failure in found.failures] == ["b", "c"]
    assert found.worker is None
    assert found.tasks_per_hour > 0
    assert found.unused_results == {}
    assert told == [0, 1, 2, 3, 4]


def test_status_names_what_other_recipes_left(tmp_path):
    items = videos(tmp_path / "in", {"a": "one"})
    for threads in (1, 2):
        run_recipe(RunRequest(recipe(threads=threads), str(tmp_path / "out"), STAGES), items)
    found = run_status(RemotePath(str(tmp_path / "out")), STAGES)
    # what publishes writes nothing into its own folder
    ((name, size),) = found.unused_results.items()
    assert name.startswith("stages/total/")
    assert size == (tmp_path / "out" / name / "total.json").stat().st_size


def test_progress_knows_its_rate_and_what_is_left():
    progress = PhaseProgress(total=10, start_time=0.0)
    assert progress.rate is None
    progress.count(None, earlier=True)
    assert progress.rate is None  # an earlier run's videos say nothing of this one's pace
    progress.count(StageFailure("a", "read", "hang", "slow"), earlier=False)
    progress.count(StageFailure("b", "read", "left out", "short"), earlier=False)
    assert progress.failed == 1
    assert progress.rate == pytest.approx(2 / progress.seconds * 3600, rel=1e-3)
    assert progress.seconds_left == pytest.approx(7 / 2 * progress.seconds, rel=1e-3)


def test_status_counts_tasks_that_a_gpu_gave_out_for_in_the_last_run(tmp_path):
    out = RemotePath(str(tmp_path / "out"))
    run_recipe(RunRequest(recipe(), out.url, STAGES), videos(tmp_path / "in", {"a": "one"}))
    first = run_status(out, STAGES)
    assert "on the CPU" not in status_text(first)
    with closing(RunLog(out)) as log:
        for stage in ("read", "read", "of another recipe"):
            log.write("end", stage=stage, cpu=1.5, gpu_fallbacks=1.0)
    found = run_status(out, STAGES)
    assert (first.gpu_fallbacks, found.gpu_fallbacks) == (0, 2)
    assert found.stages[0].cpu_seconds == pytest.approx(first.stages[0].cpu_seconds + 3.0)
    assert "2 tasks were done on the CPU" in status_text(found)
    time.sleep(0.01)
    with closing(RunLog(out)) as log:
        log.write("run", videos=1)
    later = run_status(out, STAGES)
    assert (later.gpu_fallbacks, later.tasks_per_hour) == (0, None)
    assert later.stages == found.stages


@pytest.mark.parametrize("where", ["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def test_a_status_follows_whatever_happened_to_a_run(tmp_path, where, request):
    if where == "bucket":
        request.getfixturevalue("bucket")
    texts = {"a": "one", "b": "odd", "c": "silent", "d": "two", "e": "three"}
    items = videos(tmp_path / "in", texts)
    out = RemotePath(str(tmp_path / "out") if where == "disk" else "s3://bucket/run")
    # a phase behind a dataset stage
    whole = dataclasses.replace(STAGES["publish"], needs=("total", "double", "share"), takes=())
    stages, names = {**STAGES, "publish": whole}, list(STAGES)
    asked = RunRequest(recipe(stages=names), out.url, stages)
    run_recipe(asked, items)
    found = run_status(out, stages)
    counts = {stage.name: (stage.done, stage.unreachable, stage.waiting) for stage in found.stages}
    assert counts == {
        "read": (3, 0, 0),
        **dict.fromkeys(("count", "double", "share"), (3, 2, 0)),
        **dict.fromkeys(("total", "publish"), (1, 0, 0)),
    }
    assert found == run_status(out, stages)
    (first, *_), kept = list((out / "cells/double").list()), run_status(out, stages)
    (out / f"cells/double/{first.name}").remove()
    lost = {stage.name: stage for stage in run_status(out, stages).stages}
    assert (lost["double"].done, lost["double"].waiting, lost["total"].waiting) == (2, 1, 1)
    assert lost["share"].waiting == 3  # its total is not known to be whole
    run_recipe(asked, items)
    again = run_status(out, stages)
    assert [stage.done for stage in again.stages] == [stage.done for stage in kept.stages]
    assert again.failures == kept.failures
    run_recipe(dataclasses.replace(asked, retry_failed=True), [*items[:1], *items[2:]])
    assert [failure.id for failure in run_status(out, stages).failures] == ["c"]
    assert run_status(out, stages).videos == 4
