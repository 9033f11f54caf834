import json
import sys

import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.store.run_log import read_timings
from stepline.errors import SettingsError, SteplineError
from stepline.files.remote import RemotePath

TEXTS = {"a": "one two", "b": "three", "c": "four five six"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def dataset(out):
    return json.loads((out / "dataset" / "dataset.json").read_text())


def computed(out, *, stage=None):
    """The tasks that were begun: (stage, id), one for each time."""
    lines = [line for line in read_timings(RemotePath(str(out))) if line["event"] == "start"]
    return sorted(
        (line["stage"], line["id"])
        for line in lines
        if line["id"] and stage in (None, line["stage"])
    )


def test_videos_go_through_all_stages(tmp_path):
    job = RunRequest(recipe(stages=list(STAGES)), str(tmp_path / "out"), STAGES)
    outcome = run_recipe(job, videos(tmp_path / "in", TEXTS))
    shares = dataset(tmp_path / "out")["videos"]
    assert outcome.videos == 3
    assert outcome.failures == ()
    assert shares == {"a": {"share": 14 / 50}, "b": {"share": 10 / 50}, "c": {"share": 26 / 50}}
    assert not any((tmp_path / "cache" / "curate").iterdir())


def test_a_rerun_computes_nothing(tmp_path):
    items = videos(tmp_path / "in", TEXTS)
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    before = (tmp_path / "out/dataset/dataset.json").read_bytes(), computed(tmp_path / "out")
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    assert (
        (tmp_path / "out/dataset/dataset.json").read_bytes(),
        computed(tmp_path / "out"),
    ) == before


def test_a_changed_setting_recomputes_only_what_it_decides(tmp_path):
    items = videos(tmp_path / "in", TEXTS)
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    changed = recipe(steps={"asr": {"model": "whisper-base"}})
    run_recipe(RunRequest(changed, str(tmp_path / "out"), STAGES), items)
    assert (
        len(computed(tmp_path / "out", stage="read"))
        == len(computed(tmp_path / "out", stage="count"))
        == 3
    )
    assert len(computed(tmp_path / "out", stage="double")) == 6


def test_a_changed_video_recomputes_only_its_own_units_and_what_is_over_all(tmp_path):
    a, _, c = items = videos(tmp_path / "in", TEXTS)
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    (b,) = videos(tmp_path / "in", {"b": "another text"})
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), [a, b, c])
    assert [identity for _, identity in computed(tmp_path / "out", stage="double")] == [
        "a",
        "b",
        "b",
        "c",
    ]


BROKEN = {
    "bad": "corrupt",
    "brood": "brood",
    "crash": "segfault",
    "empty": "",
    "good": "one two",
    "hang": "hang",
    "hog": "hog",
    "odd": "odd",
    "quiet": "silent",
    "share": "share",
}
LOST = {
    "bad": ["read", "error", "bad: nothing in it can be decoded"],
    "brood": ["read", "memory", "it took more than 400 MiB of memory"],
    "crash": ["read", "crash", "its process ended with signal SIGSEGV"],
    "hang": ["read", "hang", "it took more than 6 s"],
    "hog": ["read", "memory", "it took more than 400 MiB of memory"],
    "odd": ["read", "error", "ZeroDivisionError: by nothing"],
    "quiet": ["read", "left out", "nobody speaks"],
}


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells how much memory a process has"
)
def test_videos_that_break_a_process_are_isolated_and_listed(tmp_path):
    items = videos(tmp_path / "in", BROKEN)
    limited = recipe(seconds=6.0, memory=400, workers=2)
    outcome = run_recipe(RunRequest(limited, str(tmp_path / "out"), STAGES), items)
    (folder,) = (tmp_path / "out/stages/total").glob("*/")
    assert json.loads((folder / "total.json").read_text())["lost"] == LOST
    assert [failure.id for failure in outcome.failures] == sorted(LOST)
    assert set(dataset(tmp_path / "out")["videos"]) == {"empty", "good", "share"}
    begun = computed(tmp_path / "out")
    run_recipe(RunRequest(limited, str(tmp_path / "out"), STAGES), items)
    assert computed(tmp_path / "out") == begun  # nothing that failed is tried again


def test_failures_are_retried_when_asked_and_only_so_often(tmp_path):
    items = videos(tmp_path / "in", {"a": "odd", "b": "silent", "c": "fine"})
    for _ in range(4):
        run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES, retry_failed=True), items)
    tried = [identity for _, identity in computed(tmp_path / "out", stage="read")]
    # limits.attempts = 3; what the recipe leaves out is not retried
    assert tried == ["a", "a", "a", "b", "c"]


def test_a_retry_that_goes_well_brings_the_video_in(tmp_path):
    items = videos(tmp_path / "in", {"a": "odd", "b": "fine"})
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    (tmp_path / "in" / "a.txt").write_text("now it works")
    outcome = run_recipe(
        RunRequest(recipe(), str(tmp_path / "out"), STAGES, retry_failed=True), items
    )
    assert outcome.failures == ()
    assert set(dataset(tmp_path / "out")["videos"]) == {"a", "b"}


def test_a_worker_killed_from_outside_costs_no_video(tmp_path):
    items = videos(tmp_path / "in", {"a": f"flaky {tmp_path / 'once'}", "b": "fine"})
    outcome = run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    assert outcome.failures == ()
    assert computed(tmp_path / "out", stage="read") == [("read", "a"), ("read", "a"), ("read", "b")]


@pytest.mark.parametrize(
    ("word", "said"), [("model", "no weights; install some"), ("full", "free some space")]
)
def test_what_is_not_a_fault_of_a_video_ends_the_run(tmp_path, word, said):
    items = videos(tmp_path / "in", {"a": word})
    with pytest.raises(SteplineError, match=said):
        run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    assert not (tmp_path / "out" / "failures").exists()


def test_a_full_disk_ends_the_run_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    import resource

    items = videos(tmp_path / "in", {"a": "x" * 200_000, "b": "fine"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # workers inherit it
    try:
        with pytest.raises(SteplineError, match="cannot be written .*; free some space"):
            run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not any(path.name.startswith(".") for path in (tmp_path / "out").rglob("*"))
    assert run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items).failures == ()


def test_the_limit_takes_the_first_videos_by_id(tmp_path):
    items = videos(tmp_path / "in", TEXTS)
    outcome = run_recipe(
        RunRequest(recipe(), str(tmp_path / "out"), STAGES, limit=2), reversed(items)
    )
    assert outcome.videos == 2
    assert set(dataset(tmp_path / "out")["videos"]) == {"a", "b"}


def test_a_stage_that_fails_for_video_after_video_ends_the_run(tmp_path):
    items = videos(tmp_path / "in", dict.fromkeys("abcde", "odd") | {"f": "silent"})
    limits = {"limits": {"in_a_row": 3}}
    with pytest.raises(
        SteplineError, match="read failed for 3 videos in a row, the last with: ZeroDivisionError"
    ):
        run_recipe(RunRequest(recipe(**limits), str(tmp_path / "out"), STAGES), items)
    outcome = run_recipe(
        RunRequest(recipe(limits={"in_a_row": 4}), str(tmp_path / "out"), STAGES), items
    )
    assert [failure.id for failure in outcome.failures] == list("abcdef")


def test_what_comes_last_is_done_while_no_other_driver_may_begin(tmp_path):
    items, job = (
        videos(tmp_path / "in", {"a": "one"}),
        RunRequest(recipe(), str(tmp_path / "out"), STAGES),
    )

    def last(outcome):
        assert outcome.videos == 1
        with pytest.raises(SettingsError, match="works on it"):
            run_recipe(job, items)

    run_recipe(job, items, last)
