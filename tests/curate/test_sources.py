import errno
import gzip
import json
import os

import pytest

from stepline.curate.settings import ColumnsSettings, SourceSettings
from stepline.curate.sources.addresses import relative_address
from stepline.curate.sources.read import read_source, sort_by_id
from stepline.curate.stage import VideoItem, reject_video
from stepline.errors import DatasetError
from stepline.files.remote import RemotePath
from stepline.records import Rejected
from stepline.speech.captions import read_captions

VTT = "WEBVTT\n\n00:01.000 --> 00:03.000\nSlice the lemons.\n"
CAPTIONS = {"text": ["Slice the lemons."], "start": [1.0], "end": [3.0]}


def filled(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def ids(entries):
    return [(entry.id, type(entry).__name__) for entry in entries]


def test_a_folder_gives_its_videos_sorted_with_the_captions_next_to_them(tmp_path):
    filled(
        tmp_path,
        whisk_dot_mp4="w",
        sub__cut_dot_MKV="c",
        cut_dot_en_dot_vtt=VTT,
        cut_dot_srt=VTT,
        notes_dot_txt="n",
        cut_dot_info_dot_json="{}",
    )
    cut, whisk = read_source(str(tmp_path))
    assert (cut.id, whisk.id) == ("cut", "whisk")
    assert cut.video == f"{tmp_path}/sub/cut.MKV"
    assert cut.captions == f"{tmp_path}/cut.srt"  # no language before one with a language
    assert cut.captions_stamp == RemotePath(cut.captions).fingerprint()
    assert cut.stamp == RemotePath(cut.video).fingerprint()
    assert (whisk.captions, whisk.features) == (None, None)


def test_captions_of_another_dish_are_not_those_of_a_shorter_name(tmp_path):
    filled(tmp_path, scrambled_dot_mp4="v", scrambled_dot_eggs_dot_srt=VTT)
    video, captions = read_source(str(tmp_path))
    assert (video.id, video.captions) == ("scrambled", None)
    assert (captions.id, captions.video) == ("scrambled.eggs", None)


def test_captions_belong_to_the_longest_name_that_fits(tmp_path):
    filled(tmp_path, how_dot_mp4="v", how_dot_to_dot_mp4="v", how_dot_to_dot_srt=VTT)
    how, how_to = read_source(str(tmp_path))
    assert (how.captions, how_to.captions) == (None, f"{tmp_path}/how.to.srt")


def test_captions_of_two_languages_are_refused_with_a_cure(tmp_path):
    filled(tmp_path, cut_dot_mp4="v", cut_dot_de_dot_vtt=VTT, cut_dot_en_dot_srt=VTT)
    (refused,) = read_source(str(tmp_path))
    assert "several languages (de, en); name the one that is meant cut.vtt" in refused.reason
    (tmp_path / "cut.de.vtt").rename(tmp_path / "cut.en-GB.vtt")
    (cut,) = read_source(str(tmp_path))
    assert cut.captions == f"{tmp_path}/cut.en.srt"


def test_a_folder_of_captions_alone_is_taken(tmp_path):
    filled(tmp_path, cut_dot_en_dot_vtt=VTT, fold_dot_sbv="s", about_dot_json="{}")
    cut, fold = read_source(str(tmp_path))
    assert (cut.id, cut.video, cut.captions) == ("cut", None, f"{tmp_path}/cut.en.vtt")
    assert fold.id == "fold"


def test_two_files_with_one_stem_are_one_video_and_one_refused(tmp_path):
    filled(tmp_path, a__cut_dot_mp4="1", b__cut_dot_mp4="2")
    first, second = read_source(str(tmp_path))
    assert isinstance(first, VideoItem)
    assert isinstance(second, Rejected)
    assert "came before" in second.reason


def test_a_folder_without_videos_and_a_wrong_path_are_errors(tmp_path):
    with pytest.raises(DatasetError, match="no video in it"):
        list(read_source(str(tmp_path)))
    with pytest.raises(DatasetError, match="is not there"):
        list(read_source(str(tmp_path / "none")))
    filled(tmp_path, one_dot_mp4="1")
    with pytest.raises(DatasetError, match="one file is not a source"):
        list(read_source(str(tmp_path / "one.mp4")))


ROWS = [
    {
        "id": "b",
        "video": "videos/b.mp4",
        "category": "Food",
        "duration": "12.5",
        "title": "Tea",
        "task": "",
    },
    {
        "id": "a",
        "video": "./videos/a.mp4",
        "category": "Cars",
        "duration": "",
        "title": "",
        "task": "Oil",
    },
    {
        "id": "none",
        "video": "videos/none.mp4",
        "category": "Food",
        "duration": "x",
        "title": "",
        "task": "",
    },
    {
        "id": "b",
        "video": "videos/a.mp4",
        "category": "Food",
        "duration": "",
        "title": "",
        "task": "",
    },
    {"id": "", "video": "", "category": "Food", "duration": "", "title": "", "task": ""},
]


def written(folder, kind):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    filled(folder, videos__a_dot_mp4="aa", videos__b_dot_mp4="bbb")
    path = folder / f"list.{kind}"
    if kind == "parquet":
        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        mark = "\t" if kind.startswith("tsv") else ","
        text = "".join(
            mark.join(cells) + "\n"
            for cells in [list(ROWS[0]), *(list(row.values()) for row in ROWS)]
        )
        path.write_bytes(
            gzip.compress(text.encode())
            if kind.endswith(".gz")
            else b"\xef\xbb\xbf" + text.encode()
        )
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "tsv", "csv.gz"])
def test_a_list_gives_a_row_each_and_says_what_it_refuses(tmp_path, kind):
    entries = list(read_source(written(tmp_path, kind)))
    assert ids(entries) == [
        ("a", "VideoItem"),
        ("b", "VideoItem"),
        ("b", "Rejected"),
        ("none", "Rejected"),
        ("row 5", "Rejected"),
    ]
    a, b, _, none, unnamed = entries
    assert b.video == f"{tmp_path}/videos/b.mp4"
    assert (b.category, b.duration, b.title, b.task) == ("Food", 12.5, "Tea", None)
    assert (a.video, a.task) == (f"{tmp_path}/videos/a.mp4", "Oil")
    assert a.stamp == RemotePath(a.video).fingerprint()
    assert none.reason == "its video is not there"
    assert "neither an id nor" in unnamed.reason


def test_a_column_that_is_missing_names_the_nearest(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("vidoe,name\nx.mp4,y\n")
    with pytest.raises(
        DatasetError, match=r"lacks the column 'video'; did you mean source.columns.video=vidoe\?"
    ):
        list(read_source(str(path)))
    columns = ColumnsSettings(id="nane", video="vidoe")
    with pytest.raises(
        DatasetError, match=r"lacks the column 'nane'; did you mean source.columns.id=name\?"
    ):
        list(read_source(str(path), SourceSettings(columns=columns)))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DatasetError, match="it has a, b"):
        list(read_source(str(path)))


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
            list(read_source(str(tmp_path / name)))
        assert str(caught.value).startswith(f"{tmp_path}/{name}: ")
        assert "\n" not in str(caught.value)


def test_a_column_that_no_setting_names_is_not_read(tmp_path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    filled(tmp_path, videos__a_dot_mp4="aa")
    notes = arrow.array([b"caf\xe9"], arrow.binary()).view(arrow.string())  # not UTF-8
    parquet.write_table(
        arrow.table({"video": ["videos/a.mp4"], "notes": notes}), tmp_path / "list.parquet"
    )
    assert ids(read_source(str(tmp_path / "list.parquet"))) == [("a", "VideoItem")]
    with pytest.raises(DatasetError, match="column 'notes', row 0: text that is not UTF-8"):
        list(
            read_source(str(tmp_path / "list.parquet"), SourceSettings(columns={"title": "notes"}))
        )


def test_categories_ids_and_evaluation_videos_choose(tmp_path):
    path = written(tmp_path, "csv")
    ids_file = filled(tmp_path, ids_dot_txt="a\nb\n") / "ids.txt"
    cars = SourceSettings(categories=("Cars",))
    assert ids(read_source(path, cars)) == [("a", "VideoItem"), ("row 5", "Rejected")]
    with pytest.raises(DatasetError, match="no video is of them; the source has Cars, Food"):
        list(read_source(path, SourceSettings(categories=("Foot",), ids=ids_file)))
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("# wanted\na\nzzz\n")
    entries = list(read_source(path, SourceSettings(ids=wanted)))
    assert ids(entries) == [("a", "VideoItem"), ("row 5", "Rejected"), ("zzz", "Rejected")]
    assert "not in the source" in entries[2].reason
    (tmp_path / "excluded.txt").write_text("b\tyoucook2,crosstask\n")
    entries = list(
        read_source(path, SourceSettings(excluded=(tmp_path / "excluded.txt",), ids=ids_file))
    )[1:]
    assert entries[0] == reject_video("b", "evaluates: a video of crosstask, youcook2")


def test_ids_that_cannot_name_a_file_are_refused(tmp_path):
    path = tmp_path / "list.jsonl"
    filled(tmp_path, a_dot_mp4="a")
    bad = ["a/b", "a\\b", "a\nb", "x" * 201]
    path.write_text(
        "".join(json.dumps({"id": id, "video": "a.mp4"}) + "\n" for id in [*bad, "good"])
    )
    entries = list(read_source(str(path)))
    assert [entry.id for entry in entries if isinstance(entry, VideoItem)] == ["good"]
    assert (
        sum("not a plain name" in entry.reason for entry in entries if isinstance(entry, Rejected))
        == 4
    )


def test_a_tar_is_an_error_with_its_cure(tmp_path):
    (tmp_path / "a.tar").touch()
    with pytest.raises(DatasetError, match="tars are not read; unpack them into a folder"):
        list(read_source(str(tmp_path / "a.tar")))


@pytest.fixture
def howto100m(tmp_path):
    filled(
        tmp_path,
        HowTo100M_v1_dot_csv="video_id,category_1,category_2,rank,task_id\n"
        "v2,Food and Entertaining,Recipes,1,7\nv1,Food and Entertaining,Recipes,2,8\nv3,Cars & Other Vehicles,Oil,1,9\n"
        "v4,Food and Entertaining,Recipes,1,7\n",
        task_ids_dot_csv="7\tMake Tea\n9\tChange Oil\n",
        htm_vlen_dot_csv="vid,vlen\nv2,61\n",
        features__v2_dot_mp4_dot_npy="x",
    )
    captions = {
        "v1": {**CAPTIONS, "text": ['Crème brûlée, "now"]}']},
        "v2": CAPTIONS,
        "v3": CAPTIONS,
    }
    (tmp_path / "caption.json").write_text(json.dumps(captions, ensure_ascii=False))
    return tmp_path


def test_howto100m_gives_captions_features_tasks_and_lengths_by_id(howto100m):
    settings = SourceSettings(preset="htm-370k", features=str(howto100m / "features"))
    entries = list(read_source(str(howto100m), settings))
    assert ids(entries) == [("v1", "VideoItem"), ("v2", "VideoItem"), ("v4", "Rejected")]
    v1, v2, _ = entries
    assert (v2.task, v2.title, v2.duration, v2.category) == (
        "Make Tea",
        "Make Tea",
        61.0,
        "Food and Entertaining",
    )
    assert (v1.task, v1.duration, v1.video) == ("8", None, None)
    assert v2.features == f"{howto100m}/features/v2.mp4.npy"
    assert json.loads(RemotePath(v1.captions).read())["text"] == ['Crème brûlée, "now"]}']
    RemotePath(v1.captions).fetch(howto100m / "fetched.json")
    heard = read_captions(howto100m / "fetched.json")
    assert [sentence.text for sentence in heard.transcript.sentences] == ['Crème brûlée, "now"]}']
    assert v1.captions_stamp != v2.captions_stamp


def test_captions_keep_their_stamp_when_another_videos_change(howto100m):
    before = {
        entry.id: entry.captions_stamp
        for entry in read_source(str(howto100m))
        if isinstance(entry, VideoItem)
    }
    captions = json.loads((howto100m / "caption.json").read_text())
    (howto100m / "caption.json").write_text(
        json.dumps(captions | {"v1": {**CAPTIONS, "text": ["Other."]}})
    )
    after = {
        entry.id: entry.captions_stamp
        for entry in read_source(str(howto100m))
        if isinstance(entry, VideoItem)
    }
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
    assert [entry.id for entry in sorted_here] == sorted(entry.id for entry in entries)
    assert next(entry for entry in sorted_here if entry.id == "0500").video != "again"


def test_addresses_in_a_dataset_name_no_folder_of_this_machine():
    assert relative_address("/data/videos/a/b.mp4", "/data/videos") == "a/b.mp4"
    assert relative_address("/data/lists/../b.mp4", "/data/lists/list.csv") == "../b.mp4"
    assert relative_address("/elsewhere/b.mp4", "/data/videos") == "b.mp4"
    assert relative_address("s3://bucket/x/b.mp4", "s3://bucket/x/list.parquet") == "b.mp4"
    assert (
        relative_address("https://me:secret@host/b.mp4?key=1", "/data/list.csv")
        == "https://host/b.mp4"
    )
    assert relative_address("videos/b.mp4", "videos") == "b.mp4"
    assert relative_address("file:///data/videos/b.mp4", "/data") == "b.mp4"


def test_a_relative_source_gives_absolute_addresses_and_paths_of_the_dataset(tmp_path, monkeypatch):
    filled(tmp_path, videos__sub__b_dot_mp4="b", caps__b_dot_vtt=VTT)
    monkeypatch.chdir(tmp_path)
    (b,) = read_source("videos", SourceSettings(captions="caps"))
    assert (b.video, b.path) == (f"{tmp_path}/videos/sub/b.mp4", "sub/b.mp4")
    assert b.captions == f"{tmp_path}/caps/b.vtt"


def test_a_folder_that_cannot_be_read_is_refused_and_stops_nothing(tmp_path, monkeypatch):
    filled(tmp_path, **{"a.mp4": "a"})
    (tmp_path / "b").mkdir()
    filled(tmp_path / "b", **{"b.mp4": "b"})
    (tmp_path / "loop").symlink_to(tmp_path)
    scandir = os.scandir  # root may read whatever its mode says

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    entries = list(read_source(str(tmp_path)))
    assert [entry.id for entry in entries] == ["a", "b/"]
    assert entries[1].reason == "it cannot be read (Permission denied)"


def test_a_link_to_itself_is_refused_and_stops_nothing(tmp_path):
    filled(tmp_path, **{"a.mp4": "a"})
    (tmp_path / "b.mp4").symlink_to(tmp_path / "b.mp4")
    (tmp_path / "c.mp4").symlink_to(tmp_path / "none")
    entries = list(read_source(str(tmp_path)))
    assert [entry.id for entry in entries] == ["a", "b.mp4"]
    assert entries[1].reason == "it cannot be read (Too many levels of symbolic links)"


def test_a_file_whose_name_no_json_can_hold_is_refused_and_stops_nothing(tmp_path):
    filled(tmp_path, **{"a.mp4": "a"})
    try:
        (tmp_path / os.fsdecode(b"b\xff.mp4")).write_text("b")
    except OSError:
        pytest.skip("this disk takes no such name")
    assert [entry.id for entry in read_source(str(tmp_path))] == ["a", "b\\udcff.mp4"]


def test_what_is_refused_without_a_name_gets_one():
    entries = list(
        sort_by_id([reject_video("", "has no id"), VideoItem("", "v.mp4"), VideoItem("a")])
    )
    assert [entry.id for entry in entries] == ["item 1", "item 2", "a"]
