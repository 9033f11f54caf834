import json

import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.remote import RemotePath
from stepline.curate.settings import RemoteSettings
from stepline.curate.stage import Item
from stepline.curate.status import run_status
from stepline.curate.store.run_log import read_timings

pytest.importorskip("moto", reason="needs moto, a stand-in for S3: pip install 'moto[s3]'")
pytest.importorskip("s3fs", reason="needs s3fs: pip install 'stepline[cloud]'")

PATIENT = {"attempts": 8, "pause": 0.01, "seconds": 20.0}


@pytest.fixture
def bucket(monkeypatch):
    """An S3 server with one bucket."""
    from s3_server import s3_server

    with s3_server(monkeypatch) as faults:
        import boto3

        boto3.client("s3").create_bucket(Bucket="films")
        yield faults


def test_a_run_in_a_bucket_that_fails_now_and_then_is_as_one_on_a_disk(tmp_path, monkeypatch, bucket):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    here = videos(tmp_path / "in", {"a": "one two", "bad": "corrupt", "c": "four five six"})
    there = []
    for item in here:
        place = RemotePath(f"s3://films/in/{item.id}.txt")
        place.put(tmp_path / "in" / f"{item.id}.txt")
        there.append(Item(item.id, video=place.url, stamp=item.stamp))
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), here)
    bucket.every = 7  # each seventh request is answered with an error
    for _ in range(2):
        run_recipe(RunRequest(recipe(places=PATIENT), "s3://films/out", STAGES), there)
    out = RemotePath("s3://films/out", RemoteSettings(**PATIENT))
    assert (out / "dataset/dataset.json").read() == (tmp_path / "out/dataset/dataset.json").read_bytes()
    begun = [line["id"] for line in read_timings(out) if line["event"] == "start" and line["stage"] == "read"]
    assert sorted(begun) == ["a", "bad", "c"]  # the second run found everything
    found = run_status(out, STAGES)
    assert [stage.done for stage in found.stages] == [2, 2, 2, 1, 1]
    assert found.worker is None
    assert json.loads((out / "run.json").read())["items"] == 3
    assert bucket.failed > 10
