"""Videos as they come: records, HowTo100M's captions with its tables, and damage."""

import gzip
import json

import pytest
from test_sieve_swap_run import VIDEOS

from stepline.errors import DatasetError
from stepline.records import Record, Rejected
from stepline.sieve_swap.text_base import json_stream
from stepline.sieve_swap.text_base.json_stream import JsonFileError, read_json_members
from stepline.sieve_swap.videos import read_videos
from stepline.storage import write_parquet, write_record

CAPTIONS = {
    "aaaaaaaaaaa": {"start": [0.0, 2.0], "end": [2.0, 5.0], "text": ["hello", "peel the garlic"]},
    "bbbbbbbbbbb": {"start": [0.0], "end": [3.0], "text": ["drain the beans"]},
}


@pytest.fixture
def howto(tmp_path):
    (tmp_path / "caption.json").write_text(json.dumps(CAPTIONS))
    (tmp_path / "HowTo100M_v1.csv").write_text(
        "video_id,category_1,category_2,rank,task_id\naaaaaaaaaaa,Food and Entertaining,Recipes,1,77\n"
    )
    (tmp_path / "task_ids.csv").write_text("77\tPeel Garlic\n")
    (tmp_path / "htm_vlen.csv").write_text("vid,vlen\naaaaaaaaaaa,61.5\nbbbbbbbbbbb,unknown\n")
    return tmp_path


def test_howto100m_s_captions_get_task_and_length_from_its_tables(howto):
    first, second = read_videos(howto)
    video = first.video
    assert (video.title, video.task, video.duration) == ("Peel Garlic", "Peel Garlic", 61.5)
    assert first.settings == {"category": "Food and Entertaining"}
    texts = [sentence.text for sentence in first.transcript.sentences]
    assert texts == ["hello", "peel the garlic"]
    assert (second.video.title, second.video.duration) == (None, None)


def test_captions_without_tables_are_read_too(tmp_path):
    (tmp_path / "raw_caption.json").write_text(json.dumps(CAPTIONS))
    assert [record.id for record in read_videos(tmp_path / "raw_caption.json")] == list(CAPTIONS)


def test_howto100m_s_csv_of_each_video_is_read_with_the_same_tables(howto):
    (howto / "caption.json").unlink()
    (howto / "aaaaaaaaaaa.csv").write_text(
        'start,end,text\n0.0,2.0,hello\n2.0,5.0,"peel, then chop"\n'
    )
    (howto / "bbbbbbbbbbb.csv").write_text("start,end\n0.0,2.0\n")
    first, second = read_videos(howto)
    video = first.video
    assert (video.id, video.title, video.duration) == ("aaaaaaaaaaa", "Peel Garlic", 61.5)
    texts = [sentence.text for sentence in first.transcript.sentences]
    assert texts == ["hello", "peel, then chop"]
    assert isinstance(second, Rejected)
    assert "needs the columns start,end,text" in second.reason


def test_a_table_without_its_columns_is_an_error(howto):
    (howto / "HowTo100M_v1.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DatasetError, match="lacks the column 'video_id'"):
        list(read_videos(howto))


def test_records_come_from_parquet_json_and_folders_alike(tmp_path):
    write_parquet(VIDEOS[:2], tmp_path / "a.parquet")
    write_record(VIDEOS[2], tmp_path / "b.json")
    assert [record.id for record in read_videos(tmp_path)] == [record.id for record in VIDEOS[:3]]
    assert list(read_videos(tmp_path / "a.parquet")) == VIDEOS[:2]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", [("", "is not a JSON object")]),
        ("[1, 2]", [("", "is not a JSON object")]),
        ('{"a": 1, "b": ', ["a", ("b", "breaks off")]),
        ('{"a": 1, b: 2}', ["a", ("", "where a key should begin")]),
        ('{"a" 1}', [("a", "lacks a colon")]),
        ('{"a": 1}', ["a"]),
        ("{}", []),
        ('{"a": 12', ["a", ("", "where a key should begin")]),
    ],
)
def test_a_broken_object_is_read_up_to_the_damage(tmp_path, text, read):
    (tmp_path / "x.json").write_text(text)
    found = list(read_json_members(tmp_path / "x.json"))
    for (key, value), expected in zip(found, read, strict=True):
        if isinstance(expected, str):
            assert key == expected
        else:
            assert key == expected[0]
            assert isinstance(value, JsonFileError)
            assert expected[1] in value.reason


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_members_do_not_depend_on_where_a_block_ends(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_stream, "BLOCK_CHARS", block)
    tree = {"a": [1, 2.5, 'x\\"y'], "é": {"b": None}, "c": 123456, "d": -1.5e3, "e": ""}
    (tmp_path / "x.json").write_text(json.dumps(tree, indent=1, ensure_ascii=False))
    assert dict(read_json_members(tmp_path / "x.json")) == tree
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(json.dumps(tree).encode()))
    assert dict(read_json_members(tmp_path / "x.json.gz")) == tree


def test_a_cut_gzip_and_binary_junk_are_reported(tmp_path):
    (tmp_path / "cut.json").write_bytes(gzip.compress(json.dumps(CAPTIONS).encode())[:-20])
    (tmp_path / "junk.json").write_bytes(bytes(range(256)) * 10)
    for name in ("cut.json", "junk.json"):
        found = list(read_videos(tmp_path / name))
        assert any(isinstance(video, Rejected) for video in found)
        assert not any(isinstance(video, Record) and video.id not in CAPTIONS for video in found)
