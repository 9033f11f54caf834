"""Runs whose driver and workers are killed -9; the slow ones take minutes."""

import json
import os
import signal
import time

import pytest
from fake_stages import STAGES, recipe, videos
from kills import begun, children, finish, run_with_kills, start_driver, tree, wait_for_end
from small_video import CAPTIONS, draw_video

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.stage import VideoItem
from stepline.curate.status import run_status
from stepline.curate.store.run_log import to_json_line
from stepline.errors import SettingsError
from stepline.files.remote import RemotePath

TEXTS = {f"v{number:02d}": f"slow 0.1 {'x' * number}" for number in range(10)} | {
    "bad": "corrupt",
    "crash": "segfault",
}
LIBRARY_STAGES = ["probe", "transcribe", "write", "encode", "coarse", "ground", "judge", "gather"]
THINGS = ("lemons", "carrots", "onions", "apples", "leeks", "plums", "limes", "beans")
KILLS = 20
CODE = """
from pathlib import Path
from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.stage import from_json
from stepline.curate.stage import VideoItem
from stepline.curate.stage import Recipe
from stepline.curate.stages import STAGE_TABLE
from stepline.settings import validate
recipe = validate(Recipe, {{"stages": {stages!r}, "limits": {{"seconds": 25.0}}, "engine": {{"workers": 2}}}})
items = [from_json(VideoItem, line, "") for line in Path({items!r}).read_text().splitlines()]
run_recipe(RunRequest(recipe, {out!r}, STAGE_TABLE), items)
"""


def code_of(folder, out, workers=2):
    """A driver's code: all fake stages over the videos of a folder."""
    return (
        # a background one ignores it
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from fake_stages import *; from stepline.curate.driver import RunRequest, run_recipe; "
        "from pathlib import Path; "
        f"names = {sorted(TEXTS)!r}; folder = Path({str(folder)!r}); "
        "items = [VideoItem(name, video=str(folder / (name + '.txt')), stamp='1') for name in names]; "
        f"run_recipe(RunRequest(recipe(workers={workers}), {str(out)!r}, STAGES), items)"
    )


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(tmp_path):
    videos(tmp_path / "in", TEXTS)
    finish(code_of(tmp_path / "in", tmp_path / "whole"), tmp_path / "cache")
    code = code_of(tmp_path / "in", tmp_path / "killed")
    killed = run_with_kills(
        code, tmp_path / "killed", tmp_path / "cache", 5, between=(1.5, 3.5), seed=3
    )
    assert killed
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    times = begun(tmp_path / "killed")
    fine = {unit: count for unit, count in times.items() if unit[1] != "crash"}
    assert sum(fine.values()) - len(fine) <= 2 * killed["driver"] + killed["worker"]
    assert not any((tmp_path / "cache" / "curate").iterdir())


@pytest.mark.slow
def test_the_status_of_a_killed_run_is_what_its_files_say(tmp_path):
    videos(tmp_path / "in", TEXTS)
    out, done = tmp_path / "out", []
    for count in (1, 9, 20, 30):
        driver = start_driver(code_of(tmp_path / "in", out), tmp_path / "cache")
        while len(begun(out)) < count:
            assert driver.poll() is None
            time.sleep(0.02)
        workers = children(driver.pid)
        driver.kill()
        driver.communicate()
        for worker in workers:
            wait_for_end(worker)
        found = run_status(RemotePath(str(out)), STAGES)
        assert found.worker is None
        cells = list((out / "cells").rglob("[0-9a-f]*.json"))
        assert sum(stage.done for stage in found.stages) == len(cells)
        done.append(len(cells))
    assert done == sorted(done)
    assert done[-1] > done[0]
    finish(code_of(tmp_path / "in", out), tmp_path / "cache")
    assert all(stage.waiting == 0 for stage in run_status(RemotePath(str(out)), STAGES).stages)


@pytest.fixture
def hanging(tmp_path):
    """A driver whose videos hang, and its workers."""
    videos(tmp_path / "in", dict.fromkeys(TEXTS, "hang"))
    driver = start_driver(code_of(tmp_path / "in", tmp_path / "out"), tmp_path / "cache")
    while not begun(tmp_path / "out"):
        time.sleep(0.1)
    workers = children(driver.pid)
    assert workers
    yield driver, workers
    driver.kill()


def test_workers_end_with_a_driver_that_is_killed_and_its_lock_too(tmp_path, monkeypatch, hanging):
    driver, workers = hanging
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in2", {"a": "fine"})
    with pytest.raises(SettingsError, match=f"process {driver.pid} on .* works on it"):
        run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    driver.kill()
    driver.communicate()
    for worker in workers:
        wait_for_end(worker)
    places = " cells/read/00 failures/read stages/total dataset dataset/data features".split(" ")
    halves = [tmp_path / "out" / place / f".key.{workers[0]}-1.partial.json" for place in places]
    for half in halves:  # what a worker, or the driver itself, was writing
        half.parent.mkdir(parents=True, exist_ok=True)
        half.touch()
    assert run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items).failures == ()
    assert not any(half.exists() for half in halves)


def test_ctrl_c_ends_a_run_and_its_workers(tmp_path, hanging):
    driver, workers = hanging
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=120)
    for worker in workers:
        wait_for_end(worker)
    assert not any((tmp_path / "cache" / "curate").iterdir())


def twelve_items(folder):
    """Eight small videos with captions, and a corrupt, a huge, a hanging and an empty one."""
    folder.mkdir()
    for number, thing in enumerate(THINGS):
        draw_video(folder / f"{thing}.mp4", seconds=14 + number)
        text = CAPTIONS.replace("lemons", thing).replace(
            "the juice", f"the {thing} and {number} cups of milk"
        )
        (folder / f"{thing}.srt").write_text(text)
    whole = (folder / "lemons.mp4").read_bytes()
    (folder / "corrupt.mp4").write_bytes(os.urandom(2000) + whole[2000:])
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "huge.mp4").touch()
    os.truncate(folder / "huge.mp4", 40 * 2**30)  # no byte of it is on the disk
    (folder / "hanging.mp4").write_bytes(whole)
    os.mkfifo(folder / "hanging.srt")  # as a file of a network drive that never answers
    names = [*THINGS, "corrupt", "empty", "hanging", "huge"]
    captions = {name: str(folder / f"{name}.srt") for name in (*THINGS, "hanging")}
    return [
        VideoItem(name, str(folder / f"{name}.mp4"), "1", captions.get(name), "1") for name in names
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_cost_no_byte_and_no_unit_but_those_under_way(tmp_path):
    items = tmp_path / "items.jsonl"
    items.write_text("".join(to_json_line(item) + "\n" for item in twelve_items(tmp_path / "in")))
    codes = {
        name: CODE.format(stages=LIBRARY_STAGES, items=str(items), out=str(tmp_path / name))
        for name in ("whole", "killed")
    }
    finish(codes["whole"], tmp_path / "cache")
    killed = run_with_kills(
        codes["killed"], tmp_path / "killed", tmp_path / "cache", KILLS, between=(2.0, 9.0), seed=8
    )
    assert tree(tmp_path / "killed", ["hanging"]) == tree(tmp_path / "whole", ["hanging"])
    times = begun(tmp_path / "killed")
    again = sum(times.values()) - len(times)
    print(f"killed {dict(killed)}, {len(times)} units, {again} begun again")
    assert again <= 2 * killed["driver"] + killed["worker"]
    (left_out,) = (tmp_path / "killed/stages/gather").glob("*/left_out.jsonl")
    lost = [json.loads(line) for line in left_out.read_text().splitlines()]
    assert [(one["id"], one["kind"]) for one in lost] == [
        ("corrupt", "error"),
        ("empty", "error"),
        ("hanging", "hang"),
        ("huge", "error"),
    ]
    assert str(tmp_path) not in left_out.read_text()
