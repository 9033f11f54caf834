import os
import socket
from fractions import Fraction
from io import BytesIO

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_videos import make_video, tone
from PIL import Image
from video_frames import frames_at

from stepline.errors import MediaError, SteplineError
from stepline.media import MediaReader, cut_clip, probe
from stepline.media.clock import Damage, StreamClock
from stepline.records import Span

MILLI = Fraction(1, 1000)


def test_second_zero_is_the_start_of_the_container():
    clock = StreamClock(start=1.4, duration=None, damage=Damage())
    assert clock.time_of(1400, MILLI, 0.1) == pytest.approx(0.0)
    assert clock.time_of(1650, MILLI, 0.1) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "name", ["late.mkv", "late.webm", "late.nut", "late.ts", "late.flv", "late.mp4", "late.mov"]
)
def test_a_stream_that_starts_at_90000_s_is_as_long_as_what_is_in_it(tmp_path, name):

    with av.open(str(tmp_path / name), "w") as out:
        stream = out.add_stream("libvpx" if name.endswith("webm") else "libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(14 * 5):
            frame = av.VideoFrame.from_ndarray(
                np.full((48, 64, 3), index, np.uint8), format="rgb24"
            )
            frame.pts, frame.time_base = 90_000 * 5 + index, Fraction(1, 5)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    info = probe(tmp_path / name)
    assert info.duration == pytest.approx(14.0, abs=0.5)
    assert info.warnings == ()


def test_a_missing_stamp_follows_on_from_the_frame_before():
    clock = StreamClock(start=0.0, duration=None, damage=Damage())
    assert clock.time_of(None, MILLI, 0.04) == 0.0
    assert clock.time_of(None, MILLI, 0.04) == pytest.approx(0.04)
    assert clock.time_of(200, MILLI, 0.04) == pytest.approx(0.2)
    assert clock.time_of(None, None, 0.04) == pytest.approx(0.24)


def test_stamps_that_start_over_are_counted_on():
    damage = Damage()
    clock = StreamClock(start=0.0, duration=None, damage=damage)
    assert clock.time_of(9_900, MILLI, 0.1) == pytest.approx(9.9)
    assert clock.time_of(0, MILLI, 0.1) == pytest.approx(10.0)
    assert clock.time_of(500, MILLI, 0.1) == pytest.approx(10.5)
    assert damage.stamp_count == 1


def test_a_stamp_far_past_the_end_is_not_believed():
    damage = Damage()
    clock = StreamClock(start=0.0, duration=10.0, damage=damage)
    clock.time_of(1000, MILLI, 0.1)
    assert clock.time_of(10**9, MILLI, 0.1) == pytest.approx(1.1)
    assert clock.time_of(1200, MILLI, 0.1) == pytest.approx(1.2)
    assert damage.warnings(10.0, 10.0) == ("1 broken time stamp was corrected",)


@pytest.mark.parametrize(
    ("end", "duration", "expected"),
    [
        (58.4, 421.2, ("only the first 58 s of 421 s can be read; copy the file again",)),
        (420.0, 421.2, ()),  # encoders round: a second and 2 % may be missing
        (58.4, None, ()),
    ],
)
def test_a_file_that_ends_early_is_reported(end, duration, expected):
    assert Damage().warnings(end, duration) == expected


def test_damage_is_counted_in_plain_words():
    assert Damage(packet_count=3).warnings(1.0, 1.0) == ("3 damaged packets were left out",)


PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{address}\n#EXT-X-ENDLIST\n"
SDP = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"


NO_VIDEO = "a playlist, picture or other format"


def picture(kind):
    buffer = BytesIO()
    Image.new("RGB", (64, 48)).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.mp4", b"", "the file is empty; download"),
        ("text.mp4", b"hello " * 1000, "not a video that can be read"),
        ("zeros.mp4", bytes(100_000), "not a video that can be read"),
        ("cues.srt", b"1\n00:00:01,000 --> 00:00:02,000\nhi\n", "not opened; convert"),
        ("list.m3u8", PLAYLIST.format(address="a.ts").encode(), NO_VIDEO),
        ("list.txt", b"ffconcat version 1.0\nfile 'a.mp4'\n", NO_VIDEO),
        ("a.sdp", SDP.encode(), NO_VIDEO),
        *((f"{kind}.mp4", picture(kind), NO_VIDEO) for kind in ("PNG", "JPEG", "GIF")),
    ],
)
def test_what_is_not_a_video_is_refused_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    for reads in (
        probe,
        lambda p: list(MediaReader(p, frame_rate=1.0, sound=True)),
        lambda p: frames_at(p, [0.0]),
    ):
        with pytest.raises(MediaError, match=message) as caught:
            reads(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "path", ["no-such.mp4", "http://127.0.0.1/a.mp4", "concat:a.mp4|b.mp4", "a\0b.mp4", "x" * 5000]
)
def test_what_is_not_a_file_is_refused(path):
    with pytest.raises(MediaError, match="check the path"):
        probe(path)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(MediaError, match="a folder, not a video"):
        probe(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.mp4")
    with pytest.raises(MediaError, match="not a plain file"):
        probe(tmp_path / "a.mp4")


def test_a_playlist_calls_no_one(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.3)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.ts"
        for name in ("a.m3u8", "a.mp4"):
            (tmp_path / name).write_text(PLAYLIST.format(address=address))
            with pytest.raises(MediaError):
                probe(tmp_path / name)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    "name", ["100% %d.mp4", "a:b?c#d.mp4", "ünï‑码.mp4", "-rf.mp4", "a'\"b.mp4"]
)
def test_any_file_name_will_do(tmp_path, name):
    plain = make_video(tmp_path / "plain.mp4", times=[k / 10 for k in range(10)])
    path = plain.rename(tmp_path / name)
    assert probe(path).duration == pytest.approx(1.0)
    cut_clip(path, Span(0.0, 0.5), tmp_path / f"cut {name}")
    assert probe(tmp_path / f"cut {name}").duration == pytest.approx(0.5, abs=0.05)


def test_an_index_without_data_is_refused(tmp_path):
    path = make_video(tmp_path / "a.mp4", times=[k / 10 for k in range(10)], movflags="faststart")
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"mdat") + 4])
    with pytest.raises(
        MediaError, match=r"nothing in it can be decoded|not a video that can be read"
    ):
        probe(path)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    times = [k / 10 for k in range(10)]
    return [
        make_video(
            folder / f"a.{suffix}", times=times, codec="libx264", sounds=[(0.0, tone(1.0))]
        ).read_bytes()
        for suffix in ("mp4", "mkv", "ts")
    ]


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    which=st.integers(0, 2),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=40),
    keep=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
)
def test_damage_is_an_error_in_one_line_or_a_readable_part(originals, tmp_path, which, flips, keep):
    data = bytearray(originals[which])
    for place, value in flips:
        data[int(place * len(data))] = value
    path = tmp_path / "damaged.mp4"
    path.write_bytes(data[: int(len(data) * keep) + 1])
    try:
        probe(path)
        items = list(MediaReader(path, frame_rate=5.0, frame_size=16, sound=True))
        frames_at(path, [0.2, 0.7], 32)
        cut_clip(path, Span(0.1, 0.6), tmp_path / "cut.mp4")
    except SteplineError as error:
        assert "\n" not in str(error)
    else:
        assert len(items) < 2000
    assert not list(tmp_path.glob(".*partial*"))
