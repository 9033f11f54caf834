import json

import pytest
from fake_stages import recipe

from stepline.curate.stage import Collection, VideoItem, reject_video
from stepline.curate.store.run_log import (
    RunLog,
    read_items,
    read_recipe,
    read_refused,
    read_timings,
    write_inventory,
)
from stepline.files.remote import RemotePath


def test_a_log_outlives_a_cut_last_line(tmp_path):
    run_log = RunLog(RemotePath(str(tmp_path)))
    run_log.write("start", id="a", stage="read")
    run_log.write("end", id="a", stage="read", cpu=0.5)
    (file,) = (tmp_path / "timings").iterdir()
    with file.open("ab") as end:
        end.write(b'{"event": "start", "id": "b"')  # the process was killed here
    run_log.close()
    lines = list(read_timings(RemotePath(str(tmp_path))))
    assert [(line["event"], line["id"]) for line in lines] == [("start", "a"), ("end", "a")]


def test_an_object_store_gets_its_log_at_the_end(tmp_path):
    out = RemotePath(f"memory://{tmp_path.name}-store")
    for before in (out, RemotePath(str(tmp_path))):
        assert list(read_timings(before)) == []
    run_log = RunLog(out)
    run_log.write("run", videos=3)
    run_log.close()
    assert [line["videos"] for line in read_timings(out)] == [3]


def test_a_long_log_next_to_a_store_goes_on_in_another_file(tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.curate.store.run_log.MAX_COPY_BYTES", 10)
    out = RemotePath(f"memory://{tmp_path.name}-long")
    run_log = RunLog(out)
    for number in range(3):
        run_log.write("end", number=number)
        run_log.upload()
    run_log.close()
    assert [line["number"] for line in read_timings(out)] == [0, 1, 2]
    assert len([entry for entry in (out / "timings").list() if entry.size]) == 3


@pytest.mark.parametrize("where", ["disk", "store"])
def test_what_a_run_works_on_is_found_again(tmp_path, where):
    out = RemotePath(str(tmp_path / "out") if where == "disk" else f"memory://{tmp_path.name}-out")
    items = (
        VideoItem("a", "a.mp4", "1-2", title="Grünkohl\u2028und Pinkel"),
        VideoItem("b", duration=2.5),
    )
    refused = (reject_video("c", "comes again"),)
    write_inventory(out, recipe(), Collection(items, refused), "videos.csv")
    assert (tuple(read_items(out)), tuple(read_refused(out))) == (items, refused)
    assert read_recipe(out) == recipe()


def test_settings_of_an_earlier_release_are_passed_over(tmp_path):
    out = RemotePath(str(tmp_path))
    write_inventory(out, recipe(), Collection((VideoItem("a"),), ()), "videos.csv")
    run = json.loads((out / "run.json").read())
    run["recipe"]["report"] |= {"frame_width": 176, "examples": 3}
    run["recipe"]["engine"]["fewest"] = 2
    (out / "run.json").write(json.dumps(run))
    assert read_recipe(out).report.examples == 3
