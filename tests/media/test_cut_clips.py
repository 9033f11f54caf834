import os
import subprocess
import sys

import av
import numpy as np
import pytest
from made_videos import index_of, make_video, tone
from video_frames import read_frames

from stepline.errors import MediaError, SettingsError, StoreError
from stepline.media import cut_clip, join_clips, probe, read_sound
from stepline.records import Span

TIMES = [k / 10 for k in range(100)]  # 10 s


def beep(at, seconds):
    """Silence with a tone of 0.2 s at one second."""
    line = np.zeros((1, round(seconds * 44_100)), np.float32)
    start = round(at * 44_100)
    line[:, start : start + 8820] = tone(0.2)
    return line


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Ten pictures a second, and a tone that starts with picture 64, at 6.4 s."""
    path = tmp_path_factory.mktemp("cut") / "a.mp4"
    return make_video(path, times=TIMES, codec="libx264", sounds=[(0.0, beep(6.4, 10.0))])


def onset(path):
    line = np.concatenate([block.samples for block in read_sound(path)])
    return float(np.flatnonzero(np.abs(line) > 0.1)[0]) / 16_000


def test_a_clip_holds_exactly_the_frames_of_its_span(video, tmp_path):
    cut_clip(video, Span(3.0, 8.0), tmp_path / "b.mp4")
    assert probe(tmp_path / "b.mp4").duration == pytest.approx(5.0, abs=0.03)
    assert [index_of(frame.image) for frame in read_frames(tmp_path / "b.mp4", 10.0)] == [
        k % 20 for k in range(30, 80)
    ]


def test_a_clip_has_the_same_bytes_whatever_the_memory_of_its_process_holds(tmp_path):
    """x264's macroblock tree reads memory that it has not set; glibc fills what it gives out with a
    chosen byte."""
    path = tmp_path / "a.mkv"
    blocks = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    blocks = blocks.repeat(8, axis=0).repeat(8, axis=1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"crf": "12", "bf": "3"})
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for index in range(80):
            moved = np.roll(blocks, 3 * index, axis=1) // 2 + np.uint8(index)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(moved, format="rgb24")))
        out.mux(stream.encode(None))
    code = """
import sys
from pathlib import Path
from stepline.media import cut_clip
from stepline.media.settings import MediaSettings
from stepline.records import Span
cut_clip(sys.argv[1], Span(0.0, 3.2), Path(sys.argv[2]), MediaSettings(threads=int(sys.argv[3])))
"""
    for fill, threads in ((0, 1), (85, 1), (170, 1), (0, 2)):
        clip = tmp_path / f"{fill}-{threads}.mp4"
        memory = {**os.environ, "MALLOC_PERTURB_": str(fill)}
        subprocess.run(
            [sys.executable, "-c", code, path, clip, str(threads)], check=True, env=memory
        )
    assert len({clip.read_bytes() for clip in tmp_path.glob("*.mp4")}) == 1


def test_a_span_between_frames_starts_with_the_one_on_screen(video, tmp_path):
    cut_clip(video, Span(3.05, 3.35), tmp_path / "b.mp4")
    shown = [index_of(frame.image) for frame in read_frames(tmp_path / "b.mp4", 100.0)]
    assert [shown.count(k % 20) for k in (30, 31, 32, 33)] == pytest.approx([5, 10, 10, 5], abs=1)


def test_sound_and_picture_stay_in_step(video, tmp_path):
    assert onset(video) == pytest.approx(6.4, abs=0.03)
    for start in (0.0, 2.0, 5.5):
        cut_clip(video, Span(start, 8.0), tmp_path / "b.mp4")
        assert onset(tmp_path / "b.mp4") == pytest.approx(6.4 - start, abs=0.03)
        shown = [index_of(frame.image) for frame in read_frames(tmp_path / "b.mp4", 10.0)]
        assert shown[round((6.4 - start) * 10)] == 64 % 20


def test_a_span_past_the_end_stops_at_the_end(video, tmp_path):
    cut_clip(video, Span(9.0, 30.0), tmp_path / "b.mp4")
    assert probe(tmp_path / "b.mp4").duration == pytest.approx(1.0, abs=0.05)


def test_a_span_after_the_end_is_an_error_and_leaves_nothing(video, tmp_path):
    with pytest.raises(
        MediaError, match=r"nothing to cut between 50 and 60 s; the video, .* ends before"
    ):
        cut_clip(video, Span(50.0, 60.0), tmp_path / "b.mp4")
    assert list(tmp_path.iterdir()) == []


def test_sound_before_the_first_picture_is_kept(tmp_path):
    late = make_video(
        tmp_path / "a.mkv", times=[2 + k / 10 for k in range(20)], sounds=[(0.0, beep(1.5, 4.0))]
    )
    cut_clip(late, Span(1.0, 3.0), tmp_path / "b.mp4")
    assert probe(tmp_path / "b.mp4").duration == pytest.approx(2.0, abs=0.05)
    assert onset(tmp_path / "b.mp4") == pytest.approx(0.5, abs=0.03)
    shown = [index_of(frame.image) for frame in read_frames(tmp_path / "b.mp4", 10.0)]
    assert shown[9:] == [0, *range(10)]
    cut_clip(late, Span(0.0, 1.0), tmp_path / "c.mp4")  # no picture at all
    assert probe(tmp_path / "c.mp4").duration == pytest.approx(1.0, abs=0.05)


def test_a_rotated_video_is_cut_upright(tmp_path):
    turned = make_video(tmp_path / "a.mp4", times=TIMES[:20], rotation=90)
    cut_clip(turned, Span(0.5, 1.0), tmp_path / "b.mp4")
    info = probe(tmp_path / "b.mp4")
    assert (info.width, info.height, info.rotation) == (48, 64, 0)
    assert next(read_frames(tmp_path / "b.mp4", 10.0)).image[-4, 3, 0] > 180


def test_odd_sizes_and_missing_streams_are_cut_too(tmp_path):
    odd = make_video(tmp_path / "a.mkv", times=TIMES[:20], size=(63, 47))
    cut_clip(odd, Span(0.5, 1.0), tmp_path / "b.mp4")
    assert not probe(tmp_path / "b.mp4").has_sound
    sound = make_video(tmp_path / "c.m4a", sounds=[(0.0, tone(3.0))])
    cut_clip(sound, Span(0.5, 1.0), tmp_path / "d.mp4")
    assert probe(tmp_path / "d.mp4").duration == pytest.approx(0.5, abs=0.05)


def test_the_same_cut_gives_the_same_bytes(video, tmp_path):
    for name in ("b.mp4", "c.mp4"):
        cut_clip(video, Span(1.0, 2.0), tmp_path / name)
    assert (tmp_path / "b.mp4").read_bytes() == (tmp_path / "c.mp4").read_bytes()


def test_a_folder_that_cannot_be_written_is_reported(video, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        cut_clip(video, Span(1.0, 2.0), tmp_path / "file" / "b.mp4")


def test_spans_are_joined_in_the_order_given_and_stay_in_step(video, tmp_path):
    # The tone starts at 6.4 s with picture 64: 1.5 s of another part before it, then 0.4 s into the
    # second span.
    join_clips(video, [Span(1.0, 2.5), Span(6.0, 7.0), Span(3.0, 3.5)], tmp_path / "b.mp4")
    assert probe(tmp_path / "b.mp4").duration == pytest.approx(3.0, abs=0.05)
    shown = [index_of(frame.image) for frame in read_frames(tmp_path / "b.mp4", 10.0)]
    assert shown == [k % 20 for k in (*range(10, 25), *range(60, 70), *range(30, 35))]
    assert onset(tmp_path / "b.mp4") == pytest.approx(1.5 + 0.4, abs=0.03)


def test_many_spans_do_not_drift(video, tmp_path):
    # lengths that no sample or tick rate divides
    before = [Span(k / 3, k / 3 + 1 / 7) for k in range(15)]
    join_clips(video, [*before, Span(6.0, 7.0)], tmp_path / "b.mp4")
    assert onset(tmp_path / "b.mp4") == pytest.approx(15 / 7 + 0.4, abs=0.03)


def test_a_span_that_lacks_sound_keeps_the_next_in_step(tmp_path):
    half = make_video(
        tmp_path / "a.mp4", times=TIMES, codec="libx264", sounds=[(4.0, beep(2.4, 6.0))]
    )
    join_clips(half, [Span(0.0, 2.0), Span(6.0, 7.0)], tmp_path / "b.mp4")  # no sound before 4 s
    assert onset(tmp_path / "b.mp4") == pytest.approx(2.0 + 0.4, abs=0.03)


def test_no_span_is_an_error(video, tmp_path):
    with pytest.raises(SettingsError, match="no span"):
        join_clips(video, [], tmp_path / "b.mp4")
