import errno
import gzip
import json
import os

import pytest

from stepline.curate.settings import SourceSettings
from stepline.curate.sources.addresses import relative_address
from stepline.curate.sources.read import read_source, sort_by_id
from stepline.curate.stage import VideoItem, reject_video
from stepline.errors import DatasetError
from stepline.files.remote import RemotePath
from stepline.records import Rejected
from stepline.speech.captions import read_captions

VTT = "WEBVTT\n\n00:01.000 --> 00:03.000\nSlice the lemons.\n"
CAPTIONS = {"text": ["Slice the lemons."], "start": [1.0], "end": [3.0]}


def filled(folder, *names):
    """Write files whose content is their name, but for captions."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(VTT if path.suffix in (".vtt", ".srt") else name)
    return folder


def read_all(path, **settings):
    return list(read_source(str(path), SourceSettings(**settings)))


def ids(entries):
    return [(entry.id, type(entry).__name__) for entry in entries]


def test_a_folder_gives_its_videos_sorted_with_the_captions_next_to_them(tmp_path):
    names = "whisk.mp4 sub/cut.MKV cut.en.vtt cut.srt notes.txt cut.info.json"
    cut, whisk = read_all(filled(tmp_path, *names.split()))
    assert (cut.id, whisk.id) == ("cut", "whisk")
    assert cut.video == f"{tmp_path}/sub/cut.MKV"
    assert cut.captions == f"{tmp_path}/cut.srt"  # no language before one with a language
    assert cut.captions_stamp == RemotePath(cut.captions).fingerprint()
    assert cut.stamp == RemotePath(cut.video).fingerprint()
    assert (whisk.captions, whisk.features) == (None, None)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        # captions of another dish are not those of a shorter name
        (
            "scrambled.mp4 scrambled.eggs.srt",
            "scrambled scrambled.mp4 - scrambled.eggs - scrambled.eggs.srt",
        ),
        ("how.mp4 how.to.mp4 how.to.srt", "how how.mp4 - how.to how.to.mp4 how.to.srt"),
        ("cut.en.vtt fold.sbv about.json", "cut - cut.en.vtt fold - fold.sbv"),
    ],
)
def test_captions_belong_to_the_longest_name_that_fits_or_stand_alone(tmp_path, names, found):
    entries = read_all(filled(tmp_path, *names.split()))
    told = [
        one for entry in entries for one in (entry.id, entry.video or "-", entry.captions or "-")
    ]
    assert [one.removeprefix(f"{tmp_path}/") for one in told] == found.split()


def test_captions_of_two_languages_are_refused_with_a_cure(tmp_path):
    filled(tmp_path, "cut.mp4", "cut.de.vtt", "cut.en.srt")
    (refused,) = read_all(tmp_path)
    assert "several languages (de, en); name the one that is meant cut.vtt" in refused.reason
    (tmp_path / "cut.de.vtt").rename(tmp_path / "cut.en-GB.vtt")
    (cut,) = read_all(tmp_path)
    assert cut.captions == f"{tmp_path}/cut.en.srt"


def test_files_with_one_stem_are_one_video_and_the_others_are_refused(tmp_path):
    entries = read_all(filled(tmp_path, "a/cut.mp4", "b/cut.mp4", "c/cut.mp4"))
    # each has a name, so that all are listed where the first is left out later
    repeated = [(f"cut (item {number})", "Rejected") for number in (2, 3)]
    assert ids(entries) == [("cut", "VideoItem"), *repeated]
    assert "came before" in entries[1].reason


def test_a_folder_without_videos_a_wrong_path_and_one_file_are_errors(tmp_path):
    filled(tmp_path, "in/one.mp4", "a.tar").joinpath("empty").mkdir()
    for path, said in {
        "empty": "no video in it",
        "none": "is not there",
        "in/one.mp4": "one file is not a source",
        "a.tar": "tars are not read; unpack them into a folder",
    }.items():
        with pytest.raises(DatasetError, match=said):
            read_all(tmp_path / path)


# id, video, category, duration, title, task
ROWS = [
    "b videos/b.mp4 Food 12.5 Tea -",
    "a ./videos/a.mp4 Cars - - Oil",
    "none videos/none.mp4 Food x - -",
    "b videos/a.mp4 Food - - -",
    "- - Food - - -",
]
COLUMNS = "id video category duration title task".split()
TABLE = [[cell.replace("-", "") for cell in row.split()] for row in ROWS]


def written(folder, kind):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    filled(folder, "videos/a.mp4", "videos/b.mp4")
    path = folder / f"list.{kind}"
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in TABLE]
    if kind == "parquet":
        parquet.write_table(arrow.Table.from_pylist(rows), path)
    elif kind == "jsonl":
        lines = (json.dumps({key: cell for key, cell in row.items() if cell}) for row in rows)
        path.write_text("\n".join(lines))
    else:
        mark = "\t" if kind.startswith("tsv") else ","
        head = [f" {name}" for name in COLUMNS]
        text = "".join(mark.join(row) + "\n" for row in [head, *TABLE]).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith(".gz") else b"\xef\xbb\xbf" + text)
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "tsv", "csv.gz"])
def test_a_list_gives_a_row_each_and_says_what_it_refuses(tmp_path, kind):
    entries = read_all(written(tmp_path, kind))
    taken, refused = ("VideoItem", "Rejected")
    assert ids(entries) == [
        *(("a", taken), ("b", taken)),
        *(("b (item 4)", refused), ("none", refused), ("row 5", refused)),
    ]
    a, b, _, none, unnamed = entries
    assert b.video == f"{tmp_path}/videos/b.mp4"
    assert (b.category, b.duration, b.title, b.task) == ("Food", 12.5, "Tea", None)
    assert (a.video, a.task) == (f"{tmp_path}/videos/a.mp4", "Oil")
    assert a.stamp == RemotePath(a.video).fingerprint()
    assert none.reason == "its video is not there"
    assert "neither an id nor" in unnamed.reason


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("vidoe,name", {}, r"lacks the column 'video'; did you mean source.columns.video=vidoe\?"),
        (
            "vidoe,name",
            {"id": "nane", "video": "vidoe"},
            r"lacks the column 'nane'; did you mean source.columns.id=name\?",
        ),
        ("a,b", {}, "it has a, b"),
    ],
)
def test_a_column_that_is_missing_names_the_nearest(tmp_path, text, columns, said):
    (tmp_path / "list.csv").write_text(f"{text}\nx.mp4,y\n")
    with pytest.raises(DatasetError, match=said):
        read_all(tmp_path / "list.csv", columns=columns)


def test_damaged_lists_are_errors_in_one_line(tmp_path):
    for name, content in {
        "short.csv": b"id,video\na\n",
        "bad.jsonl": b'{"id": "a"}\n{"id"\n',
        "array.jsonl": b"[1]\n",
        "bad.parquet": b"PAR1....",
        "latin.csv": b"id,video\n\xff\xfe,x\n",
        "bad.csv.gz": b"\x1f\x8b\x08\x00",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DatasetError) as caught:
            read_all(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path}/{name}: ")
        assert "\n" not in str(caught.value)


def test_a_column_that_no_setting_names_is_not_read(tmp_path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    filled(tmp_path, "videos/a.mp4")
    notes = arrow.array([b"caf\xe9"], arrow.binary()).view(arrow.string())  # not UTF-8
    path = tmp_path / "list.parquet"
    parquet.write_table(arrow.table({"video": ["videos/a.mp4"], "notes": notes}), path)
    assert ids(read_all(path)) == [("a", "VideoItem")]
    with pytest.raises(DatasetError, match="column 'notes', row 0: text that is not UTF-8"):
        read_all(path, columns={"title": "notes"})


def test_categories_ids_and_evaluation_videos_choose(tmp_path):
    path = written(tmp_path, "csv")
    ids_file, wanted, excluded = (
        tmp_path / f"{name}.txt" for name in ("ids", "wanted", "excluded")
    )
    ids_file.write_text("a\nb\n")
    wanted.write_text("# wanted\na\nzzz\n")
    excluded.write_text("b\tyoucook2,crosstask\n")
    assert ids(read_all(path, categories=("Cars",))) == [("a", "VideoItem"), ("row 5", "Rejected")]
    with pytest.raises(DatasetError, match="no video is of them; the source has Cars, Food"):
        read_all(path, categories=("Foot",), ids=ids_file)
    entries = read_all(path, ids=wanted)
    assert ids(entries) == [("a", "VideoItem"), ("row 5", "Rejected"), ("zzz", "Rejected")]
    assert "not in the source" in entries[2].reason
    entries = read_all(path, excluded=(excluded,), ids=ids_file)
    assert entries[1] == reject_video("b", "evaluates: a video of crosstask, youcook2")


def test_ids_that_cannot_name_a_file_are_refused(tmp_path):
    path = filled(tmp_path, "a.mp4") / "list.jsonl"
    bad = ["a/b", "a\\b", "a\nb", "x" * 201]
    rows = [json.dumps({"id": id, "video": "a.mp4"}) + "\n" for id in [*bad, "good"]]
    path.write_text("".join(rows))
    entries = read_all(path)
    assert [entry.id for entry in entries if isinstance(entry, VideoItem)] == ["good"]
    refused = [entry.reason for entry in entries if isinstance(entry, Rejected)]
    assert sum("not a plain name" in reason for reason in refused) == 4


@pytest.fixture
def howto100m(tmp_path):
    rows = ["v2,Food and Entertaining,Recipes,1,7", "v1,Food and Entertaining,Recipes,2,8"]
    rows += ["v3,Cars & Other Vehicles,Oil,1,9", "v4,Food and Entertaining,Recipes,1,7"]
    rows.insert(0, "video_id,category_1,category_2,rank,task_id")
    filled(tmp_path, "features/v2.mp4.npy")
    (tmp_path / "HowTo100M_v1.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "task_ids.csv").write_text("7\tMake Tea\n9\tChange Oil\n")
    (tmp_path / "htm_vlen.csv").write_text("vid,vlen\nv2,61\n")
    captions = {**dict.fromkeys(("v1", "v2", "v3"), CAPTIONS)}
    captions["v1"] = {**CAPTIONS, "text": ['Crème brûlée, "now"]}']}
    (tmp_path / "caption.json").write_text(json.dumps(captions, ensure_ascii=False))
    return tmp_path


def test_howto100m_gives_captions_features_tasks_and_lengths_by_id(howto100m):
    entries = read_all(howto100m, preset="htm-370k", features=str(howto100m / "features"))
    assert ids(entries) == [("v1", "VideoItem"), ("v2", "VideoItem"), ("v4", "Rejected")]
    v1, v2, _ = entries
    assert (v2.task, v2.title, v2.duration) == ("Make Tea", "Make Tea", 61.0)
    assert v2.category == "Food and Entertaining"
    assert (v1.task, v1.duration, v1.video) == ("8", None, None)
    assert v2.features == f"{howto100m}/features/v2.mp4.npy"
    assert json.loads(RemotePath(v1.captions).read())["text"] == ['Crème brûlée, "now"]}']
    RemotePath(v1.captions).fetch(howto100m / "fetched.json")
    heard = read_captions(howto100m / "fetched.json")
    assert [sentence.text for sentence in heard.transcript.sentences] == ['Crème brûlée, "now"]}']
    assert v1.captions_stamp != v2.captions_stamp


def test_captions_keep_their_stamp_when_another_videos_change(howto100m):
    def stamps():
        entries = read_all(howto100m)
        return {one.id: one.captions_stamp for one in entries if isinstance(one, VideoItem)}

    before, path = stamps(), howto100m / "caption.json"
    captions = json.loads(path.read_text()) | {"v1": {**CAPTIONS, "text": ["Other."]}}
    path.write_text(json.dumps(captions))
    after = stamps()
    assert before["v2"] == after["v2"]
    assert before["v1"] != after["v1"]


def test_captions_in_a_file_larger_than_a_block_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.sieve_swap.text_base.json_stream.BLOCK_CHARS", 7)
    from stepline.curate.sources.files import CaptionIndex

    whole = {f"v{number}": {**CAPTIONS, "text": [f"é {number}"]} for number in range(20)}
    (tmp_path / "c.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(whole, ensure_ascii=False, indent=1).encode()
    )
    captions = CaptionIndex(RemotePath(str(tmp_path / "c.json")))
    assert len(captions) == 20
    assert all(
        json.loads(RemotePath(captions.find(id).url).read()) == value for id, value in whole.items()
    )
    assert captions.find("v99") is None
    (tmp_path / "c.json").write_text('{"v1": {"text": [')
    with pytest.raises(DatasetError, match="v1 breaks off"):
        CaptionIndex(RemotePath(str(tmp_path / "c.json")))


def test_entries_are_sorted_by_id_and_the_first_of_an_id_counts():
    entries = [
        VideoItem(f"{number * 7919 % 1000:04}", f"v{number}", title="ü\n") for number in range(1000)
    ]
    entries += [reject_video("0003", "why"), VideoItem("0500", "again")]
    sorted_here = list(sort_by_id(iter(entries)))
    found = [entry.id for entry in sorted_here if entry.id != "0500 (item 1002)"]
    assert found == sorted(entry.id for entry in entries[:-1])
    assert sorted_here[502].id == "0500 (item 1002)"
    assert next(entry for entry in sorted_here if entry.id == "0500").video != "again"


@pytest.mark.parametrize(
    ("address", "source", "told"),
    [
        ("/data/videos/a/b.mp4", "/data/videos", "a/b.mp4"),
        ("/data/lists/../b.mp4", "/data/lists/list.csv", "../b.mp4"),
        ("/elsewhere/b.mp4", "/data/videos", "b.mp4"),
        ("s3://bucket/x/b.mp4", "s3://bucket/x/list.parquet", "b.mp4"),
        ("https://me:secret@host/b.mp4?key=1", "/data/list.csv", "https://host/b.mp4"),
        ("videos/b.mp4", "videos", "b.mp4"),
        ("file:///data/videos/b.mp4", "/data", "b.mp4"),
    ],
)
def test_addresses_in_a_dataset_name_no_folder_of_this_machine(address, source, told):
    assert relative_address(address, source) == told


def test_a_relative_source_gives_absolute_addresses_and_paths_of_the_dataset(tmp_path, monkeypatch):
    filled(tmp_path, "videos/sub/b.mp4", "caps/b.vtt")
    monkeypatch.chdir(tmp_path)
    (b,) = read_all("videos", captions="caps")
    assert (b.video, b.path) == (f"{tmp_path}/videos/sub/b.mp4", "sub/b.mp4")
    assert b.captions == f"{tmp_path}/caps/b.vtt"


def test_what_cannot_be_read_is_refused_and_stops_nothing(tmp_path, monkeypatch):
    filled(tmp_path, "a.mp4", "b/b.mp4")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "c.mp4").symlink_to(tmp_path / "c.mp4")
    (tmp_path / "d.mp4").symlink_to(tmp_path / "none")
    scandir = os.scandir  # root may read whatever its mode says

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    a, b, c = read_all(tmp_path)
    assert (a.id, b.id, c.id) == ("a", "b/", "c.mp4")
    assert b.reason == "it cannot be read (Permission denied)"
    assert c.reason == "it cannot be read (Too many levels of symbolic links)"


def test_a_file_whose_name_no_json_can_hold_is_refused_and_stops_nothing(tmp_path):
    filled(tmp_path, "a.mp4")
    try:
        (tmp_path / os.fsdecode(b"b\xff.mp4")).write_text("b")
    except OSError:
        pytest.skip("this disk takes no such name")
    assert [entry.id for entry in read_all(tmp_path)] == ["a", "b\\udcff.mp4"]


def test_what_is_refused_without_a_name_gets_one():
    entries = list(
        sort_by_id([reject_video("", "has no id"), VideoItem("", "v.mp4"), VideoItem("a")])
    )
    assert [entry.id for entry in entries] == ["item 1", "item 2", "a"]
