"""The list of evaluation videos that training sets must not hold."""

import json

import pytest

from stepline.datasets.excluded import ExcludedVideos, collect_excluded, plain_id, read_excluded, write_excluded
from stepline.errors import DatasetError


def test_ids_come_from_the_datasets_own_files(tmp_path):
    align = tmp_path / "htm_align.json"
    rows = {"abcdefghijk": [[1, 0, 2, "stir"]], "bbbbbbbbbbb": [[1, 9, 2, "its span is reversed"]]}
    align.write_text(json.dumps(rows))
    tasty = tmp_path / "train.json"
    tasty.write_text(json.dumps({"v_abcdefghijk": {"duration": 9.0, "timestamps": [[0, 2]], "sentences": ["stir"]}}))
    found = collect_excluded([("htm-align", align), ("tasty", tasty)])
    assert found.datasets == {"abcdefghijk": ("htm-align", "tasty"), "bbbbbbbbbbb": ("htm-align",)}
    assert found.counts() == {"htm-align": 2, "tasty": 1}


def test_a_list_reads_back_as_it_was_written(tmp_path):
    found = ExcludedVideos({"b": ("coin",), "a": ("coin", "youcook2")})
    write_excluded(found, tmp_path / "list.txt")
    assert read_excluded([tmp_path / "list.txt"]) == found
    assert "v_" not in (tmp_path / "list.txt").read_text()


def test_plain_lists_of_ids_are_read_and_joined(tmp_path):
    (tmp_path / "one.txt").write_text("# mine\nabc\n\n  xyz coin # seen\n")
    (tmp_path / "two.txt").write_text("abc youcook2,coin\n")
    found = read_excluded([tmp_path / "one.txt", tmp_path / "two.txt"])
    assert found.of("abc") == ("coin", "unnamed", "youcook2")
    assert "xyz" in found
    assert "ab" not in found


@pytest.mark.parametrize(
    ("video", "plain"), [("v_abcdefghijk", "abcdefghijk"), ("v_abcdefghi", "v_abcdefghi"), ("abc", "abc")]
)
def test_the_prefix_goes_only_before_eleven_letters(video, plain):
    assert plain_id(video) == plain


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(DatasetError, match="not UTF-8"):
        read_excluded([tmp_path / "list.txt"])
    with pytest.raises(DatasetError, match="cannot be read"):
        read_excluded([tmp_path / "none.txt"])
    (tmp_path / "htm_align.json").write_text('{"abcdefghijk": [[1, 0, 2, "stir"]]}')
    with pytest.raises(DatasetError, match="line 1 is no video id.*stepline excluded"):
        read_excluded([tmp_path / "htm_align.json"])
