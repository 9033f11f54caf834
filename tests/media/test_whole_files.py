from pathlib import Path

import pytest
from made_videos import make_video, tone

from stepline.media.whole_files import has_its_end

TIMES = [k / 10 for k in range(30)]


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.webm", "a.avi"])
def test_a_whole_file_has_its_end_and_half_of_it_has_not(tmp_path: Path, name: str) -> None:
    codec = "libvpx" if name == "a.webm" else "libx264"
    sounds = [(0.0, tone(3.0, 48_000))]
    path = make_video(
        tmp_path / name,
        times=TIMES,
        codec=codec,
        sounds=[] if name == "a.webm" else sounds,
        rate=48_000,
    )
    assert has_its_end(path)
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert not has_its_end(path)
    path.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    if name in ("a.mp4", "a.mov"):  # its place was taken before it came
        assert not has_its_end(path)


def test_fragments_have_their_end(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "a.mp4", times=TIMES, codec="libx264", movflags="frag_keyframe+empty_moov"
    )
    assert has_its_end(path)
    path.write_bytes(path.read_bytes()[:-10])
    assert not has_its_end(path)


@pytest.mark.parametrize("content", [b"", b"\x1a\x45\xdf\xa3", b"RIFF", bytes(100), b"G" * 188])
def test_what_names_no_length_does_not_tell(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ts"
    path.write_bytes(content)
    assert not has_its_end(path)
