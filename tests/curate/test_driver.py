import json
import os
import subprocess
import sys
import threading

import fake_stages
import numpy as np
import pytest
import torch
from fake_stages import recipe, videos
from option_words import option_words
from s3_server import SECRET
from small_video import CAPTIONS, draw_video
from threadpoolctl import threadpool_info

from stepline.curate.driver import (
    PARALLEL_READS,
    RunRequest,
    curate,
    limit_threads,
    read_results,
    run_recipe,
)
from stepline.curate.sources.read import read_source
from stepline.curate.stage import VideoItem, load_recipe
from stepline.curate.stages import STAGE_TABLE
from stepline.curate.status import run_status
from stepline.curate.store.run_log import read_timings
from stepline.errors import SteplineError
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings

QUICK = RemoteSettings(pause=0.001, seconds=20.0, block=1)
# without the stage `visible`, which would leave out these drawn videos
NARRATION_STAGES = "probe transcribe write filter encode coarse ground judge gather export"
EVERY_NARRATION = f"stages={json.dumps(NARRATION_STAGES.split())}"
PATIENT = {"attempts": 8, "pause": 0.01, "seconds": 20.0}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def write_inputs(tmp_path, address, files):
    """Put text files below `in` and into a bucket; draw videos there before."""
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    for file in sorted(folder.iterdir()):
        (RemotePath(address, QUICK) / file.name).put(file)


def test_a_bucket_is_read_as_its_folder_is_through_500s(tmp_path, bucket):
    files = {name: name for name in ("b.mp4", "a.mp4", "a.vtt", "notes.txt")}
    files["list.csv"] = "id,video\nz,a.mp4\ny,none.mp4\n"
    write_inputs(tmp_path, "s3://bucket/in", files)
    bucket.every = 3
    for inside in ("", "/list.csv"):
        here = list(read_source(f"{tmp_path}/in{inside}"))
        there = list(read_source(f"s3://bucket/in{inside}", remote=QUICK))
        assert [(one.id, type(one), getattr(one, "path", None)) for one in here] == [
            (one.id, type(one), getattr(one, "path", None)) for one in there
        ]
        for one in there:
            if isinstance(one, VideoItem):
                assert RemotePath(one.video, QUICK).fingerprint() == one.stamp
    assert bucket.failed > 5


def test_a_refused_bucket_ends_a_run_in_one_line_without_a_secret(tmp_path, bucket):
    bucket.only = ("403 Forbidden", b"InvalidAccessKeyId")
    recipe = load_recipe("visual_narration", ["places.pause=0.001"])
    request = RunRequest(recipe, str(tmp_path / "out"), STAGE_TABLE, "s3://bucket/in")
    with pytest.raises(SteplineError, match=r"^s3://bucket/in.*; ") as caught:
        curate(request)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.slow
def test_a_run_from_s3_to_s3_with_500s_and_slow_reads_gives_the_bytes_of_a_local_one(
    tmp_path, bucket
):
    (tmp_path / "in").mkdir()
    draw_video(tmp_path / "in" / "a.mp4")
    draw_video(tmp_path / "in" / "b.mp4", seconds=14, size=(176, 144))
    other = CAPTIONS.replace("lemons", "limes").replace("sugar", "salt")
    files = {"a.srt": CAPTIONS, "b.srt": other, "broken.mp4": "nothing"}
    write_inputs(tmp_path, "s3://bucket/in", files)
    settings = [EVERY_NARRATION, "engine.workers=1"]

    def done(source, out, *more):
        recipe = load_recipe("visual_narration", [*settings, *more])
        return curate(RunRequest(recipe, out, STAGE_TABLE, source))[1] / "dataset"

    here = done(str(tmp_path / "in"), str(tmp_path / "out"))
    bucket.every, bucket.slow_every, bucket.slow_seconds = 5, 41, 6.0
    quick = ["places.pause=0.001", "places.seconds=5.0", "places.block=1"]
    there = done("s3://bucket/in", "s3://bucket/out", *quick)
    bucket.every = bucket.slow_every = 0
    names = sorted(found.name for found in here.list())
    assert names == sorted(found.name for found in there.list())
    assert [(here / name).read() for name in names] == [(there / name).read() for name in names]
    assert bucket.failed > 20
    assert bucket.slowed >= 2


@pytest.mark.slow
def test_of_two_commands_on_one_out_in_gs_one_makes_the_bytes_of_a_local_one(
    tmp_path, google_bucket
):
    (tmp_path / "in").mkdir()
    draw_video(tmp_path / "in" / "a.mp4")
    files = {"a.srt": CAPTIONS, "broken.mp4": "nothing"}
    write_inputs(tmp_path, "gs://bucket/in", files)
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    options = option_words(recipe="visual_narration", workers="1")
    command = [sys.executable, "-m", "stepline", "curate", *options]

    def begun(source, out):
        words = [*command, "--set", EVERY_NARRATION, "--out", out, source]
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=paths)

    def said(processes):
        texts = [process.communicate()[1] for process in processes]
        return {process.returncode: text for process, text in zip(processes, texts, strict=True)}

    alone = said([begun(str(tmp_path / "in"), str(tmp_path / "out"))])
    assert set(alone) == {0}, alone
    both = said([begun("gs://bucket/in", "gs://bucket/out") for _ in range(2)])
    assert set(both) == {0, 1}, both
    assert "works on it" in both[1]
    assert google_bucket.refused >= 1
    here, there = (
        {found.name: (place / found.name).read() for found in place.list()}
        for place in (
            RemotePath(str(tmp_path / "out/dataset")),
            RemotePath("gs://bucket/out/dataset", QUICK),
        )
    )
    assert here == there
    assert "README.md" in here


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_run_in_a_bucket_that_fails_now_and_then_is_as_one_on_a_disk(kind, tmp_path, request):
    bucket = request.getfixturevalue({"s3": "bucket", "gs": "google_bucket"}[kind])
    here = videos(tmp_path / "in", {"a": "one two", "bad": "corrupt", "c": "four five six"})
    there = []
    for item in here:
        remote = RemotePath(f"{kind}://bucket/in/{item.id}.txt")
        remote.put(tmp_path / "in" / f"{item.id}.txt")
        there.append(VideoItem(item.id, video=remote.url, stamp=item.stamp))
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), fake_stages.STAGES), here)
    bucket.every = 7  # each seventh request is answered with an error
    again = RunRequest(recipe(places=PATIENT), f"{kind}://bucket/out", fake_stages.STAGES)
    for _ in range(2):
        run_recipe(again, there)
    out = RemotePath(f"{kind}://bucket/out", RemoteSettings(**PATIENT))
    local = (tmp_path / "out/dataset/dataset.json").read_bytes()
    assert (out / "dataset/dataset.json").read() == local
    starts = [line for line in read_timings(out) if line["event"] == "start"]
    begun = [line["id"] for line in starts if line["stage"] == "read"]
    assert sorted(begun) == ["a", "bad", "c"]  # the second run found everything
    found = run_status(out, fake_stages.STAGES)
    assert [stage.done for stage in found.stages] == [2, 2, 2, 1, 1]
    assert found.worker is None
    assert json.loads((out / "run.json").read())["items"] == 3
    assert bucket.failed > 10


def test_libraries_that_are_loaded_already_use_the_recipes_threads_too():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with limit_threads(3):
        assert {pool["num_threads"] for pool in threadpool_info()} == {3}
        assert torch.get_num_threads() == 3
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
        assert "torch" in sys.modules
    assert (torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]) == before


def test_results_in_a_store_are_read_side_by_side_and_come_in_order():
    items = [VideoItem(f"v{number:03d}") for number in range(3 * PARALLEL_READS)]
    # broken where fewer are read at a time
    together = threading.Barrier(PARALLEL_READS, timeout=60)

    def read(one):
        together.wait()
        return one.id.encode()

    assert list(read_results(items, read, remote=True)) == [(one, one.id.encode()) for one in items]


def test_results_on_a_disk_are_read_as_they_are_asked_for():
    asked = []
    items = [VideoItem(id) for id in "ab"]
    results = read_results(items, lambda one: asked.append(one.id) or b"", remote=False)
    assert next(results) == (VideoItem("a"), b"")
    assert asked == ["a"]
