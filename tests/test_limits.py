"""Files that others wrote: endless ones, deep ones, and text that no file can hold."""

import gzip
import json
import os
import re
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import torch
from option_words import option_words
from small_video import draw_video

from stepline.datasets.files import read_json_files
from stepline.errors import DatasetError, SteplineError, StoreError
from stepline.features import import_features
from stepline.features.files import read_arrays
from stepline.limits import (
    MAX_ANNOTATIONS_BYTES,
    MAX_DEPTH,
    MAX_SECOND,
    MIB_BYTES,
    LimitError,
    check_zip,
    parse_json,
    parse_json_text,
    parse_toml,
    read_limited,
    read_member,
    unpack_limited,
)
from stepline.records import Span
from stepline.storage import read_parquet, read_record

ROOT = Path(__file__).resolve().parents[1]


def test_a_file_is_read_up_to_its_limit_however_endless_it_is(tmp_path):
    (tmp_path / "f").write_bytes(b"1234")
    assert read_limited(tmp_path / "f", 4) == b"1234"
    with pytest.raises(LimitError, match="larger than"):
        read_limited(tmp_path / "f", 3)
    with pytest.raises(LimitError):
        read_limited(Path("/dev/zero"), 1000)


def test_an_endless_device_costs_no_more_than_it_takes_to_know_it():
    """Where a dataset's file may have 4 GiB, /dev/zero took as much memory, twice, before it was
    refused."""
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="larger than 256 MiB"):
            read_limited(Path("/dev/zero"), 256 * MIB_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB_BYTES
    finally:
        tracemalloc.stop()


def test_a_gzip_is_unpacked_up_to_its_limit():
    packed = gzip.compress(bytes(10_000_000))
    assert len(packed) < 20_000
    assert len(unpack_limited(packed, 10_000_000)) == 10_000_000
    with pytest.raises(LimitError, match="unpacks to more"):
        unpack_limited(packed, 9_999_999)


@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")], ids=["lists", "objects"])
def test_json_is_taken_to_a_depth_and_no_deeper(opening, closing):
    def nested(depth):
        return opening * depth + "1" * (opening != "[") + closing * depth

    assert parse_json(nested(MAX_DEPTH)) is not None
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(LimitError, match=f"nested deeper than {MAX_DEPTH}"):
            parse_json(nested(depth))


def test_a_wide_list_is_not_nested_too_deep():
    assert len(parse_json(json.dumps([[]] * 1000))) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" + ".".join("a" * 100_000) + "]",
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 60_000,
        "a={" + "a." * 90_000 + "a=1}",
    ],
    ids=["table", "array", "inline", "key"],
)
def test_toml_too_deep_is_refused_before_it_costs_time(text):
    with pytest.raises(LimitError, match=f"nested deeper than {MAX_DEPTH}"):
        parse_toml(text)


def test_half_a_surrogate_pair_becomes_a_mark_and_a_whole_pair_its_letter():
    found = parse_json_text(r'{"\udc00": ["\ud83d\ude00", "a\ud800b", "\\ud800"]}')
    assert found == {"�": ["😀", "a�b", r"\ud800"]}
    with pytest.raises(ValueError, match="surrogates|utf-8"):
        parse_json(b'"\xed\xa0\x80"')


def test_every_reader_of_json_has_limits():
    """`json.loads` elsewhere is of what Stepline has just written itself, or of files of its own
    package."""
    own = "limits results external_sort ray run steps dataset".split()
    packaged = "line_model said_to_shown swap judge correspondence".split()
    for path in (ROOT / "stepline").rglob("*.py"):
        if re.search(r"\bjson\.loads?\(", path.read_text()):
            assert path.stem in (*own, *packaged)


def test_captions_with_half_a_surrogate_pair_are_read_and_written(small_video, tmp_path, stepline):
    captions = tmp_path / "c.json"
    cues = [{"start": 3.5, "end": 6.0, "text": "First slice the lemons \\ud800."}]
    captions.write_text(json.dumps({"segments": cues}).replace("\\\\ud800", "\\ud800"))
    given = option_words(captions=captions, out=tmp_path / "out", backbone="none")
    result = stepline("steps", small_video, *given)
    assert result.exit_code == 0, result.output
    assert "�" in read_record(tmp_path / "out" / "small.json").transcript.sentences[0].text


def test_a_picture_of_sixteen_by_four_thousand_is_understood_and_shown(
    captions_file, tmp_path, stepline
):
    video = draw_video(tmp_path / "tall.mp4", size=(16, 4000), seconds=8, rate=2)
    every = ("--set", "nasva.ground.shown_threshold=0")  # each step has a picture in the page
    given = option_words(captions=captions_file, out=tmp_path / "out")
    result = stepline("steps", video, *given, *every)
    assert result.exit_code == 0, result.output
    assert "data:image/jpeg" in (tmp_path / "out" / "tall.html").read_text()


@pytest.mark.parametrize("end", [1e308, 1e300, MAX_SECOND * 1.01])
def test_a_time_behind_which_no_video_goes_is_none(end):
    with pytest.raises(ValueError, match="need finite"):
        Span(0.0, end)


@pytest.fixture
def odd_record(small_video, captions_file, tmp_path, stepline):
    """Return the path of a record whose JSON the test changes: odd_record(lambda tree: ...)."""
    given = option_words(captions=captions_file, out=tmp_path, backbone="none", format="json")
    assert stepline("steps", small_video, *given).exit_code == 0

    def change(action):
        path = tmp_path / "small.json"
        tree = json.loads(path.read_text())
        action(tree)
        path.write_text(json.dumps(tree))
        return path

    return change


def test_a_record_whose_sentence_ends_never_is_refused_in_one_line(odd_record, tmp_path, stepline):
    path = odd_record(lambda tree: tree["transcript"]["sentences"][0].update(start=0.0, end=1e308))
    result = stepline("annotate", "vnd", path, "--out", tmp_path / "answers.jsonl")
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    with pytest.raises(StoreError, match="not a Stepline record"):
        read_record(path)


def test_clips_that_nest_without_an_end_are_refused_in_one_line(tmp_path):
    from stepline.review.clips import read_clips

    path = tmp_path / "clips.json"
    path.write_text("[" * 100_000)
    with pytest.raises(DatasetError, match="nested deeper than 100"):
        read_clips(path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"id": ["a"]}, "lacks the column 'record', it has id"),
        ({"record": [1]}, "holds no text"),
        ({"record": ["", None]}, "not valid JSON"),
        ({"record": ["[" * 100_000]}, "nested deeper than 100"),
    ],
    ids=["no column", "numbers", "empty", "deep"],
)
def test_invalid_records_in_parquet_are_refused_in_one_line(table, says, tmp_path):
    parquet.write_table(arrow.table(table), tmp_path / "r.parquet")
    with pytest.raises(StoreError, match=re.escape(says)):
        list(read_parquet(tmp_path / "r.parquet"))


@pytest.mark.skipif(os.name != "posix", reason="needs devices")
def test_an_endless_record_is_refused(tmp_path):
    (tmp_path / "r.json").symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="larger than 256 MiB"):
        read_record(tmp_path / "r.json")


def test_reading_a_small_file_takes_no_memory_for_the_largest_that_is_allowed(tmp_path):
    (tmp_path / "small").write_bytes(b"x" * 100)
    (tmp_path / "small.gz").write_bytes(gzip.compress(b"y" * 100))
    tracemalloc.start()
    assert read_limited(tmp_path / "small", MAX_ANNOTATIONS_BYTES) == b"x" * 100
    assert unpack_limited((tmp_path / "small.gz").read_bytes(), MAX_ANNOTATIONS_BYTES) == b"y" * 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MIB_BYTES


def sparse_tar(path, name, size):
    """Write a tar whose one member is a hole of so many bytes (GNU's sparse form), in 2 KiB."""
    header = tarfile.TarInfo(name)
    header.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[386:410] = b"%011o\0%011o\0" % (size, 0)  # one part: without bytes, at the end
    block[483:495] = b"%011o\0" % size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path.write_bytes(bytes(block) + bytes(1024))
    return path


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.json", lambda path, out: list(read_json_files(path))),
        ("a.npy", lambda path, out: import_features(path, out)),
    ],
)
def test_a_file_in_a_small_archive_that_is_larger_than_allowed_is_refused_by_name(
    tmp_path, monkeypatch, name, read
):
    path = sparse_tar(tmp_path / "x.tar", name, 5 * 1024 * MIB_BYTES)
    tracemalloc.start()
    with pytest.raises(SteplineError, match=f"x.tar:{name}: larger than 4096 MiB, so no"):
        read(path, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * MIB_BYTES  # modules among them
    monkeypatch.setattr("stepline.limits.MIB_BYTES", 1)  # in the message alone
    sparse_tar(path, name, 1000)
    with tarfile.open(path) as archive:
        [member] = archive
        assert read_member(archive, member, 1000) == bytes(1000)
        with pytest.raises(LimitError, match="larger than 999 MiB"):
            read_member(archive, member, 999)


def claimed(data, size):
    """Return a zip whose directory tells another size of each of its files."""
    parts = data.split(b"PK\x01\x02")
    told = size.to_bytes(4, "little")
    return b"PK\x01\x02".join([parts[0], *(part[:20] + told + part[24:] for part in parts[1:])])


@pytest.mark.parametrize("name", ["v.npz", "v.pth"])
def test_an_archive_of_features_that_unpacks_to_gigabytes_is_refused_unread(tmp_path, name):
    path = tmp_path / name
    rows = np.zeros((1000, 1000), np.float32)
    if name == "v.npz":
        np.savez_compressed(path, **dict.fromkeys("ab", rows))  # 8 MB in some 8 kB
        assert read_arrays(path)[0]["a"].shape == rows.shape
        path.write_bytes(claimed(path.read_bytes(), 0xF0000000))
        says = "unpacks to 7680 MiB, more than 4096"
    else:  # what torch never writes: packed numbers
        torch.save({"features": torch.from_numpy(rows)}, tmp_path / "whole.pth")
        with (
            zipfile.ZipFile(tmp_path / "whole.pth") as whole,
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
        ):
            for member in whole.namelist():
                packed.writestr(member, whole.read(member))
        check_zip(tmp_path / "whole.pth")
        says = "unpacks to 4 MiB, more than 0"
    for given in (path, path.read_bytes()):
        with pytest.raises(StoreError, match=says):
            read_arrays(path if given is path else name, None if given is path else given)
