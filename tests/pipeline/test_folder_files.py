"""Which files of a folder are taken for videos, and what is said of others."""

import logging
from pathlib import Path

import pytest

from stepline.errors import MediaError
from stepline.pipeline.sources import find_videos


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(b"x")
    return folder


def test_videos_of_cameras_discs_and_old_programs_are_taken(tmp_path: Path) -> None:
    names = ("a.MTS", "b.m2ts", "c.vob", "d.f4v", "e.ogv", "f.asf", "g.3gp", "h.mp4", "i.MOV")
    found = find_videos([fill(tmp_path, *names)])
    assert [path.name for path in found] == list(names)


def test_what_is_left_out_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, "a.mp4", "b.m4a", "c.M4A", "d.m3u8", "e.txt", "f.jpg", ".g.mp3")
    with caplog.at_level(logging.WARNING):
        assert [path.name for path in find_videos([tmp_path])] == ["a.mp4"]
    (line,) = caplog.messages
    assert line.endswith("left out: 1 .m3u8, 2 .m4a; name the files to read them")


def test_what_is_left_out_is_not_repeated_at_every_look(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_videos([fill(tmp_path, "b.m4a")], needed=False) == []
    assert caplog.messages == []


def test_a_folder_of_sound_alone_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(MediaError, match="no video"):
        find_videos([fill(tmp_path, "b.m4a")])
    assert "1 .m4a" in caplog.text
