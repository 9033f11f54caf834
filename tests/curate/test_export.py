from dataclasses import replace

import pytest
from exported import LEFT_OUT, contents, export, record
from file_bytes import file_bytes
from forget import forget_file_systems
from s3_server import s3_server

from stepline.curate.export.dataset import (
    export_dataset,
    format_counts,
    publish_folder,
    remove_folders_from_paths,
)
from stepline.curate.report.counts import count_stage_losses
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import StageFailure
from stepline.features import FeatureStore
from stepline.files.digests import sha256
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings
from stepline.storage import read_parquet


def records_of(folder, part):
    shards = sorted((folder / "data").glob(f"{part}-*"))
    return shards, [each for shard in shards for each in read_parquet(shard)]


def test_shards_hold_every_record_sorted_and_are_named_by_their_content(tmp_path):
    folder, told = export(tmp_path)
    shards, records = records_of(folder, "train")
    for number, shard in enumerate(shards):
        assert shard.stem == f"train-{number:05}-of-00003-{sha256(shard)[:16]}"
    assert [each.id for each in records] == ["v00", "v01", "v02", "v03", "v04"]
    whole = record(0)
    video = whole.video.model_copy(update={"path": "v00.mp4"})
    assert records[0] == whole.model_copy(update={"video": video})
    assert (told["videos"], told["left_out"], told["steps"], told["steps_placed"]) == (5, 4, 10, 5)
    store = FeatureStore(folder / "features")
    assert list(store) == ["v00", "v02", "v03", "v04"]
    assert store.read("v03").values.tolist() == [[3.0, 3.0]] * 3
    assert told["with_features"] == 4


def test_videos_that_are_left_out_have_their_stage_and_reason(tmp_path):
    folder, told = export(tmp_path)
    _, records = records_of(folder, "left_out")
    assert [each.id for each in records] == sorted(LEFT_OUT)
    assert [each.dropped[0].text for each in records] == ["probe", "transcribe", "gather", "source"]
    assert all(each.dropped[0].what == "video" for each in records)
    stages = {one["stage"]: (one["entered"], one["kept"], one["dropped"]) for one in told["stages"]}
    assert stages["source"] == (9, 8, {"evaluates: a video of youcook2": 1})
    assert stages["probe"] == (8, 7, {"no picture in it can be seen": 1})
    assert stages["write"] == (6, 6, {})
    assert stages["export"] == (5, 5, {})


def test_hugging_face_datasets_open_it(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    folder, _ = export(tmp_path)
    files = {name: f"{folder}/data/{name}-*.parquet" for name in ("train", "left_out")}
    found = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert (found["train"].num_rows, found["left_out"].num_rows) == (5, 4)
    row = found["train"][0]
    assert row["step_texts"] == ["slice the lemons", "squeeze"]
    assert row["step_starts"] == [2.0, None]
    assert row["step_ends"] == [4.5, None]
    assert row["step_scores"] == [0.5, None]
    assert row["step_doubts"] == [None, None]
    assert row["sentence_texts"][0] == "First slice the lemons."
    assert row["sentence_shown"] == [0.75, None]
    assert (row["path"], row["task"]) == ("v00.mp4", "Make Tea")
    assert (row["language"], row["steps"], row["reason"]) == ("en", 2, None)
    assert found["left_out"][0]["reason"] == "no picture in it can be seen"
    by_card = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: split.num_rows for name, split in by_card.items()} == {"train": 5, "left_out": 4}


def test_the_same_content_gives_the_same_bytes_and_another_gives_others(tmp_path):
    settings = ExportSettings(name="Tea", rows=2)
    first, _ = export(tmp_path, "a", settings=settings)
    second, _ = export(tmp_path, "b", settings=settings)
    assert file_bytes(first) == file_bytes(second)
    (tmp_path / "other").mkdir()
    third, _ = export(tmp_path / "other", "c", count=6, settings=settings)
    assert set(file_bytes(first)) != set(file_bytes(third))


def test_no_folder_of_this_machine_gets_into_a_dataset(tmp_path):
    folder, _ = export(tmp_path, settings=ExportSettings(rows=2))
    import pyarrow.parquet as parquet

    for name, data in file_bytes(folder).items():
        told = data
        if name.endswith(".parquet"):
            told = str(parquet.read_table(folder / name).to_pylist()).encode()
        for secret in (b"/home/somebody", b"/somewhere", b"/weights", str(tmp_path).encode()):
            assert secret not in told, name
    settings = {"a": ["clip:/weights/clip", "x/y.txt", "and so/or so", 3]}
    assert remove_folders_from_paths(settings) == {"a": ["clip:clip", "y.txt", "and so/or so", 3]}


def test_the_card_reports_counts_reasons_licences_and_how_to_load(tmp_path):
    folder, _ = export(tmp_path)
    text = (folder / "README.md").read_text()
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    front = yaml.safe_load(head)
    assert (front["pretty_name"], front["license"], front["language"]) == ("Tea", "other", ["en"])
    second = {"split": "left_out", "path": "data/left_out-*.parquet"}
    assert front["configs"][0]["data_files"][1] == second
    for piece in (
        "| videos | 5 (0.02 h",
        "| probe | 8 | 7 | no picture in it can be seen 1 |",
        "CC BY-SA 4.0 5",
        "efficientnet-lite0 (Apache-2.0)",
        "whisper-tiny.en (MIT)",
        'load_dataset("parquet"',
        "`step_starts`",
        "clip:clip",
        "NaSVA",
        "evaluates: a video of youcook2 1",
    ):
        assert piece in body, piece


@pytest.mark.parametrize(
    ("judge", "placing"), [(None, "words"), ("detector", "words"), (None, "network")]
)
def test_the_card_of_narrations_says_what_judged_the_picture(tmp_path, judge, placing):
    first = record(0)
    first = first.model_copy(update={"models": {**first.models, "judge": judge}})
    settings = {"ground": {placing: "1f"}, "visible": {"shown": 0.5}}
    narrations = replace(contents(tmp_path), records=lambda: iter([first]), settings=settings)
    narrations = replace(narrations, stages=("coarse", "judge", "visible"))
    folder = tmp_path / "dataset"
    folder.mkdir()
    export_dataset(narrations, folder, ExportSettings(name="Tea"))
    card = (folder / "README.md").read_text()
    assert ("Nothing judged the picture" in card) == (judge is None and placing == "words")
    assert ("A trained network placed the steps" in card) == (placing == "network")
    assert card.count("What You Say Is What You Show") == 1
    assert ("only a `seen` step is known to be shown" in card) == (judge is not None)


def test_reasons_that_differ_in_ids_and_numbers_alone_are_one():
    reasons = [
        StageFailure(id, "probe", "error", f"{id}: no mp4, cut off at {second} s")
        for id, second in (("a", "2"), ("b", "3.5"))
    ]
    reasons += [StageFailure(id, "gather", "left out", f"it is a copy of {id * 3}") for id in "cd"]
    (_, probe, gather, _) = count_stage_losses(reasons, 1, ("probe", "gather", "export"))
    assert (probe.entered, probe.passed, probe.dropped) == (5, 3, {"no mp4, cut off at # s": 2})
    assert gather.dropped == {"it is a copy of #": 2}


def test_what_strangers_wrote_stays_in_its_cell_of_a_table():
    counts = {"a | b\n`c` <img>": 2, "d": 1, "e": 1, "f": 3}
    assert format_counts(counts, 2) == r"a \| b \`c\` \<img\> 2, d 1, 4 others"
    assert format_counts({}) == "none"


def test_publishing_again_changes_nothing_and_removes_only_our_own_stale_files(tmp_path):
    folder, _ = export(tmp_path)
    place = RemotePath(str(tmp_path / "out"))
    (place / "data/train-00000-of-00009-0000.parquet").write("stale")
    (place / "notes.txt").write("mine")
    publish_folder(folder, place)
    assert {**file_bytes(folder), "notes.txt": b"mine"} == file_bytes(tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    publish_folder(folder, place)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    (tmp_path / "out" / "README.md").unlink()
    publish_folder(folder, place)
    assert (tmp_path / "out" / "README.md").read_bytes() == (folder / "README.md").read_bytes()


def test_a_dataset_goes_to_s3_byte_for_byte_through_500s_and_slow_answers(tmp_path, monkeypatch):
    pytest.importorskip("moto", reason="needs moto")
    pytest.importorskip("s3fs", reason="needs s3fs")
    import logging

    from stepline.files.remote import filesystems

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    settings = RemoteSettings(pause=0.001, seconds=2.0)
    folder, _ = export(tmp_path)
    with s3_server(monkeypatch) as faults:
        forget_file_systems()
        filesystems.filesystem_of("s3://bucket", settings).mkdir("bucket")
        faults.every, faults.slow_every, faults.slow_seconds = 3, 17, 4.0
        place = RemotePath("s3://bucket/run/dataset", settings)
        publish_folder(folder, place)
        for found in place.list():
            (place / found.name).fetch(tmp_path / "back" / found.name)
        faults.every = faults.slow_every = 0
        forget_file_systems()
    assert file_bytes(tmp_path / "back") == file_bytes(folder)
    assert faults.failed > 5
    assert faults.slowed >= 1
