import dataclasses
from contextlib import closing

import pytest
from fake_stages import STAGES, recipe, status_text, videos

from stepline.curate.driver import PhaseProgress, RunRequest, run_recipe
from stepline.curate.stage import DatasetContext, StageFailure
from stepline.curate.status import run_status
from stepline.curate.store.run_log import RunLog
from stepline.errors import StoreError
from stepline.files.remote import RemotePath


def stop(gathered: DatasetContext) -> None:
    """Stand for a stage that is interrupted."""
    raise KeyboardInterrupt


def test_status_counts_what_is_done_failed_and_waiting(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", {"a": "one", "b": "odd", "c": "silent", "d": "two"})
    broken = {**STAGES, "publish": dataclasses.replace(STAGES["publish"], run=stop)}
    told = []
    with pytest.raises(KeyboardInterrupt):
        run_recipe(
            RunRequest(
                recipe(),
                str(tmp_path / "out"),
                broken,
                on_progress=lambda one: told.append(one.finished),
            ),
            items,
        )
    found = run_status(RemotePath(str(tmp_path / "out")), STAGES)
    counts = {
        stage.name: (stage.done, dict(stage.failed), stage.never, stage.waiting)
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
    assert found.rate > 0
    assert found.others == {}
    assert told == [0, 1, 2, 3, 4]


def test_status_names_what_other_recipes_left(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", {"a": "one"})
    for threads in (1, 2):
        run_recipe(RunRequest(recipe(threads=threads), str(tmp_path / "out"), STAGES), items)
    found = run_status(RemotePath(str(tmp_path / "out")), STAGES)
    ((name, size),) = found.others.items()  # what publishes writes nothing into its own folder
    assert name.startswith("stages/total/")
    assert size == (tmp_path / "out" / name / "total.json").stat().st_size


def test_there_is_no_status_without_a_run(tmp_path):
    with pytest.raises(StoreError, match="no run of `stepline curate` has begun here"):
        run_status(RemotePath(str(tmp_path)), STAGES)


def test_progress_knows_its_rate_and_what_is_left():
    progress = PhaseProgress(total=10, began=0.0)
    assert progress.rate is None
    progress.count(None, earlier=True)
    assert progress.rate is None  # an earlier run's videos say nothing of this one's pace
    progress.count(StageFailure("a", "read", "hang", "slow"), earlier=False)
    progress.count(StageFailure("b", "read", "left out", "short"), earlier=False)
    assert progress.failed == 1
    assert progress.rate == pytest.approx(2 / progress.seconds * 3600, rel=1e-3)
    assert progress.seconds_left == pytest.approx(7 / 2 * progress.seconds, rel=1e-3)


def test_status_reports_how_busy_gpus_were_in_the_last_run(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    out = RemotePath(str(tmp_path / "out"))
    run_recipe(
        RunRequest(recipe(), str(tmp_path / "out"), STAGES), videos(tmp_path / "in", {"a": "one"})
    )
    assert run_status(out, STAGES).gpu_busy is None
    with closing(RunLog(out)) as log:
        log.write("end", stage="read", cpu=1.0, gpu_looks=3.0, gpu_busy=1.5)
        log.write("end", stage="read", cpu=1.0, gpu_looks=1.0, gpu_busy=1.0)
    found = run_status(out, STAGES)
    assert found.gpu_busy == 0.625
    assert "GPUs busy 62% of the last run" in status_text(found)
