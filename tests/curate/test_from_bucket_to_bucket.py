import logging

import pytest
from s3_server import SECRET, s3_server
from small_video import CAPTIONS, draw_video

from stepline.curate.driver import RunRequest, curate
from stepline.curate.remote import RemotePath, filesystems
from stepline.curate.settings import RemoteSettings
from stepline.curate.sources import read_source
from stepline.curate.stage import Item, load_recipe
from stepline.curate.stages import STAGES
from stepline.errors import SteplineError

QUICK = RemoteSettings(pause=0.001, seconds=20.0, block=1)


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    pytest.importorskip("moto", reason="needs moto")
    pytest.importorskip("s3fs", reason="needs s3fs")
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server(monkeypatch) as faults:
        filesystems._create.cache_clear()
        filesystems.filesystem("s3://bucket", QUICK).mkdir("bucket")
        yield faults
        filesystems._create.cache_clear()


def copied(folder, address):
    for file in sorted(folder.iterdir()):
        (RemotePath(address, QUICK) / file.name).put(file)


def test_a_bucket_is_read_as_its_folder_is_through_500s(tmp_path, bucket):
    (tmp_path / "in").mkdir()
    for name in ("b.mp4", "a.mp4", "a.vtt", "notes.txt"):
        (tmp_path / "in" / name).write_text(name)
    (tmp_path / "in" / "list.csv").write_text("id,video\nz,a.mp4\ny,none.mp4\n")
    copied(tmp_path / "in", "s3://bucket/in")
    bucket.every = 3
    for inside in ("", "/list.csv"):
        here = list(read_source(f"{tmp_path}/in{inside}"))
        there = list(read_source(f"s3://bucket/in{inside}", places=QUICK))
        assert [(one.id, type(one), getattr(one, "path", None)) for one in here] == [
            (one.id, type(one), getattr(one, "path", None)) for one in there
        ]
        for one in there:
            if isinstance(one, Item):
                assert RemotePath(one.video, QUICK).fingerprint() == one.stamp
    assert bucket.failed > 5


def test_a_refused_bucket_ends_a_run_in_one_line_without_a_secret(tmp_path, bucket):
    bucket.only = ("403 Forbidden", b"InvalidAccessKeyId")
    recipe = load_recipe("visual_narration", ["places.pause=0.001"])
    request = RunRequest(recipe, str(tmp_path / "out"), STAGES, "s3://bucket/in")
    with pytest.raises(SteplineError, match=r"^s3://bucket/in.*; ") as caught:
        curate(request)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.slow
def test_a_run_from_s3_to_s3_with_500s_and_slow_reads_gives_the_bytes_of_a_local_one(tmp_path, bucket):
    (tmp_path / "in").mkdir()
    draw_video(tmp_path / "in" / "a.mp4")
    draw_video(tmp_path / "in" / "b.mp4", seconds=14, size=(176, 144))
    (tmp_path / "in" / "a.srt").write_text(CAPTIONS)
    (tmp_path / "in" / "b.srt").write_text(CAPTIONS.replace("lemons", "limes").replace("sugar", "salt"))
    (tmp_path / "in" / "broken.mp4").write_bytes(b"nothing")
    copied(tmp_path / "in", "s3://bucket/in")
    settings = ["visible.shown=0.0", "engine.workers=1", "export.webdataset=true"]

    def done(source, out, *more):
        recipe = load_recipe("visual_narration", [*settings, *more])
        return curate(RunRequest(recipe, out, STAGES, source))[1] / "dataset"

    here = done(str(tmp_path / "in"), str(tmp_path / "out"))
    bucket.every, bucket.slow_every, bucket.slow_seconds = 5, 41, 6.0
    quick = ["places.pause=0.001", "places.seconds=5.0", "places.block=1"]
    there = done("s3://bucket/in", "s3://bucket/out", *quick)
    bucket.every = bucket.slow_every = 0
    names = sorted(found.name for found in here.list())
    assert names == sorted(found.name for found in there.list())
    assert {name: (here / name).read() for name in names} == {name: (there / name).read() for name in names}
    assert bucket.failed > 20
    assert bucket.slowed >= 2
