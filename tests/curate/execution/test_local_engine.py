import json
import sys

import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.store.run_log import read_timings
from stepline.errors import SettingsError, SteplineError
from stepline.files.remote import RemotePath

TEXTS = {"a": "one two", "b": "three", "c": "four five six"}


@pytest.fixture
def run(tmp_path):
    """Run the fake stages over items: run(items, recipe=..., ...) -> its outcome."""

    def start(items, *recipes, **options):
        chosen = recipes[0] if recipes else recipe()
        return run_recipe(RunRequest(chosen, str(tmp_path / "out"), STAGES, **options), items)

    return start


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


def test_videos_go_through_all_stages_and_a_rerun_computes_only_what_changed(tmp_path, run):
    a, _, c = items = videos(tmp_path / "in", TEXTS)
    out, whole = tmp_path / "out", {"stages": list(STAGES)}
    outcome = run(items, recipe(**whole))
    assert (outcome.videos, outcome.failures) == (3, ())
    shares = {"a": {"share": 14 / 50}, "b": {"share": 10 / 50}, "c": {"share": 26 / 50}}
    assert dataset(out)["videos"] == shares
    assert not any((tmp_path / "cache" / "curate").iterdir())
    before = (out / "dataset/dataset.json").read_bytes(), computed(out)
    run(items, recipe(**whole))
    assert ((out / "dataset/dataset.json").read_bytes(), computed(out)) == before
    (b,) = videos(tmp_path / "in", {"b": "another text"})
    run([a, b, c], recipe(**whole))
    assert [id for _, id in computed(out, stage="double")] == ["a", "b", "b", "c"]
    run([a, b, c], recipe(steps={"asr": {"model": "whisper-base"}}, **whole))
    assert len(computed(out, stage="read")) == len(computed(out, stage="count")) == 4
    assert len(computed(out, stage="double")) == 7


BROKEN = {name: name for name in ("brood", "hang", "hog", "odd", "share")}
BROKEN |= {"bad": "corrupt", "crash": "segfault", "empty": "", "good": "one two", "quiet": "silent"}
MEMORY = ["read", "memory", "it took more than 400 MiB of memory"]
LOST = {
    "bad": ["read", "error", "bad: nothing in it can be decoded"],
    "brood": MEMORY,
    "crash": ["read", "crash", "its process ended with signal SIGSEGV"],
    "hang": ["read", "hang", "it took more than 12 s"],
    "hog": MEMORY,
    "odd": ["read", "error", "ZeroDivisionError: by nothing"],
    "quiet": ["read", "left out", "nobody speaks"],
}


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells how much memory a process has"
)
def test_videos_that_break_a_process_are_isolated_and_listed(tmp_path, run):
    items = videos(tmp_path / "in", BROKEN)
    limited = recipe(seconds=12.0, memory=400, workers=2)
    outcome = run(items, limited)
    (folder,) = (tmp_path / "out/stages/total").glob("*/")
    assert json.loads((folder / "total.json").read_text())["lost"] == LOST
    assert [failure.id for failure in outcome.failures] == sorted(LOST)
    assert set(dataset(tmp_path / "out")["videos"]) == {"empty", "good", "share"}
    begun = computed(tmp_path / "out")
    run(items, limited)
    assert computed(tmp_path / "out") == begun  # nothing that failed is tried again


def test_failures_are_retried_when_asked_and_only_so_often(tmp_path, run):
    items = videos(tmp_path / "in", {"a": "odd", "b": "silent", "c": "fine", "d": "odd"})
    for _ in range(4):
        outcome = run(items, retry_failed=True)
        (tmp_path / "in" / "d.txt").write_text("now it works")
    assert [failure.id for failure in outcome.failures] == ["a", "b"]
    assert set(dataset(tmp_path / "out")["videos"]) == {"c", "d"}
    tried = [identity for _, identity in computed(tmp_path / "out", stage="read")]
    # limits.attempts = 3; what the recipe leaves out is not retried
    assert tried == ["a", "a", "a", "b", "c", "d", "d"]


def test_a_worker_killed_from_outside_costs_no_video_and_the_limit_takes_the_first(tmp_path, run):
    texts = {"a": f"flaky {tmp_path / 'once'}", "b": "fine", "c": "fine"}
    outcome = run(reversed(videos(tmp_path / "in", texts)), limit=2)
    assert (outcome.videos, outcome.failures) == (2, ())
    assert set(dataset(tmp_path / "out")["videos"]) == {"a", "b"}
    assert computed(tmp_path / "out", stage="read") == [("read", "a"), ("read", "a"), ("read", "b")]


@pytest.mark.parametrize(
    ("word", "said"), [("model", "no weights; install some"), ("full", "free some space")]
)
def test_what_is_not_a_fault_of_a_video_ends_the_run(tmp_path, run, word, said):
    with pytest.raises(SteplineError, match=said):
        run(videos(tmp_path / "in", {"a": word}))
    assert not (tmp_path / "out" / "failures").exists()


def test_a_full_disk_ends_the_run_and_leaves_nothing_half_written(tmp_path, run, limited_file_size):
    items = videos(tmp_path / "in", {"a": "x" * 200_000, "b": "fine"})
    full = pytest.raises(SteplineError, match="cannot be written .*; free some space")
    with limited_file_size(100_000), full:  # workers inherit it
        run(items)
    assert not any(path.name.startswith(".") for path in (tmp_path / "out").rglob("*"))
    assert run(items).failures == ()


def test_a_stage_that_fails_for_video_after_video_ends_the_run(tmp_path, run):
    items = videos(tmp_path / "in", dict.fromkeys("abcde", "odd") | {"f": "silent"})
    said = "read failed for 3 videos in a row, the last with: ZeroDivisionError"
    with pytest.raises(SteplineError, match=said):
        run(items, recipe(limits={"in_a_row": 3}))
    outcome = run(items, recipe(limits={"in_a_row": 4}))
    assert [failure.id for failure in outcome.failures] == list("abcdef")


def test_what_comes_last_is_done_while_no_other_driver_may_begin(tmp_path):
    items = videos(tmp_path / "in", {"a": "one"})
    job = RunRequest(recipe(), str(tmp_path / "out"), STAGES)

    def last(outcome):
        assert outcome.videos == 1
        with pytest.raises(SettingsError, match="works on it"):
            run_recipe(job, items)

    run_recipe(job, items, last)
