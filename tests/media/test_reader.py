import av
import numpy as np
import pytest
from made_videos import index_of, make_video, tone
from video_frames import frames_at, read_frames

from stepline.media import (
    AudioBlock,
    Frame,
    KeyFrameReader,
    MediaReader,
    MediaSettings,
    SparseKeyFramesError,
    read_sound,
)
from stepline.records import Span


def read(path, rate=10.0, **settings):
    reader = MediaReader(path, frame_rate=rate, sound=True, settings=MediaSettings(**settings))
    items = list(reader)
    return (
        [i for i in items if isinstance(i, Frame)],
        [i for i in items if isinstance(i, AudioBlock)],
        reader,
    )


def onset(blocks):
    """The second at which something is first heard."""
    for block in blocks:
        loud = np.flatnonzero(np.abs(block.samples) > 0.1)
        if len(loud):
            return block.start + float(loud[0]) / 16_000
    raise AssertionError("nothing is heard")


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "mov"])
def test_each_frame_is_the_one_on_screen_at_its_time(tmp_path, suffix):
    path = make_video(tmp_path / f"a.{suffix}", times=[k / 10 for k in range(10)], codec="libx264")
    pictures, blocks, _ = read(path, 5.0)
    assert [round(frame.time, 3) for frame in pictures] == [0.1, 0.3, 0.5, 0.7, 0.9]
    # 0.1 s is where picture 1 appears; the containers round it to either side
    assert [index_of(frame.image) for frame in read_frames(path, 10.0)][:9] == list(range(9))
    assert blocks == []


def test_an_avi_without_presentation_times_is_read_by_its_decoding_times(tmp_path):
    # MPEG-4 without B-frames, as most are
    path = make_video(tmp_path / "a.avi", times=[k / 10 for k in range(10)])
    assert [index_of(frame.image) for frame in read_frames(path, 10.0)][:9] == list(range(9))


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_variable_frame_rate_is_read_by_time_not_by_number(tmp_path, suffix):
    path = make_video(tmp_path / f"a.{suffix}", times=[0, 0.1, 1.0, 1.05, 2.0], last=1.0)
    pictures, _, reader = read(path, 2.0)
    assert [frame.time for frame in pictures] == [0.25, 0.75, 1.25, 1.75, 2.25, 2.75]
    assert [index_of(frame.image) for frame in pictures] == [1, 1, 3, 3, 4, 4]
    assert reader.end == pytest.approx(3.0)


def test_a_picture_that_starts_late_shows_its_first_frame_before(tmp_path):
    path = make_video(tmp_path / "a.mkv", times=[0.5, 0.6, 0.7, 0.8], sounds=[(0.0, tone(1.2))])
    pictures, blocks, _ = read(path)
    assert [index_of(frame.image) for frame in pictures] == [0, 0, 0, 0, 0, 0, 1, 2, 3]
    assert onset(blocks) == pytest.approx(0.0, abs=0.03)


def test_sound_that_starts_late_keeps_its_offset(tmp_path):
    path = make_video(tmp_path / "a.mp4", times=[0, 0.1, 0.2, 0.3], sounds=[(0.25, tone(0.5))])
    _, blocks, _ = read(path)
    assert onset(blocks) == pytest.approx(0.25, abs=0.01)


def test_a_hole_in_the_sound_becomes_silence(tmp_path):
    path = make_video(tmp_path / "a.mkv", sounds=[(0.0, tone(1.2)), (3.0, tone(1.0))])
    blocks = list(read_sound(path))
    assert [block.start for block in blocks] == pytest.approx([0.0, 1.0, 2.0, 3.0], abs=0.03)
    line = np.concatenate([block.samples for block in blocks])
    heard = [
        float(np.abs(line[int(s * 16_000) : int((s + 0.3) * 16_000)]).max()) > 0.1
        for s in (0.5, 1.5, 2.4, 3.3)
    ]
    assert heard == [True, False, False, True]


def test_sound_is_mono_float_at_16_khz(tmp_path):
    path = make_video(tmp_path / "a.wav", sounds=[(0.0, tone(2.0))], sound_codec="pcm_s16le")
    (first, *_) = read_sound(path)
    assert first.samples.dtype == np.float32
    assert first.samples.shape == (16_000,)
    middle = first.samples[4000:12_000]
    crossings = int(np.sum(np.diff(np.signbit(middle))))
    assert crossings == pytest.approx(440, abs=2)  # 440 Hz crosses zero 880 times a second
    assert float(np.abs(middle).max()) == pytest.approx(0.5, abs=0.02)


def test_a_rotated_video_is_set_upright(tmp_path):
    plain = next(read_frames(make_video(tmp_path / "a.mp4", times=[0, 0.1, 0.2]), 10.0)).image
    turned = next(
        read_frames(make_video(tmp_path / "b.mp4", times=[0, 0.1, 0.2], rotation=90), 10.0)
    ).image
    assert plain.shape == (48, 64, 3)
    assert turned.shape == (64, 48, 3)
    assert plain[3, 3, 0] > 200
    # as the ffmpeg program shows it: the red corner goes to the bottom left
    assert turned[-4, 3, 0] > 200


def test_frame_size_is_the_shorter_side(tmp_path):
    path = make_video(tmp_path / "a.mp4", times=[0, 0.1])
    assert next(read_frames(path, 10.0, 24)).image.shape == (24, 32, 3)
    upright = make_video(tmp_path / "b.mp4", times=[0, 0.1], rotation=90)
    assert next(read_frames(upright, 10.0, 24)).image.shape == (32, 24, 3)


def test_a_stream_without_time_stamps_counts_frames(tmp_path):
    path = make_video(tmp_path / "a.h264", times=[k / 25 for k in range(25)], codec="libx264")
    pictures, _, reader = read(path, 5.0)
    assert [index_of(frame.image) for frame in pictures] == [2, 7, 12, 17, 2]  # 22 looks like 2
    assert reader.end == pytest.approx(1.0)


def test_skipping_frames_moves_no_picture_by_more_than_a_few_frames(clips):
    path, both = clips / "cpr_silent.mp4", (MediaSettings(skip_nonref=on) for on in (False, True))
    every, some = (list(read_frames(path, 1.0, 64, settings=settings)) for settings in both)
    assert len(every) == len(some) == 20
    for one, other in zip(every, some, strict=True):
        assert np.abs(one.image.astype(int) - other.image).mean() < 6


def test_a_truncated_file_gives_its_readable_part(clips):
    reader = MediaReader(
        clips / "howto100m_money_clip_truncated.mp4", frame_rate=1.0, frame_size=32, sound=True
    )
    items = list(reader)
    assert sum(isinstance(item, Frame) for item in items) == 58
    assert sum(
        len(item.samples) for item in items if isinstance(item, AudioBlock)
    ) / 16_000 == pytest.approx(58.3, abs=0.1)
    assert reader.warnings[0] == "only the first 58 s of 421 s can be read; copy the file again"
    assert reader.end == pytest.approx(58.4, abs=0.1)


def test_damaged_packets_are_left_out_and_counted(clips, tmp_path):
    data = bytearray((clips / "silent_cake.mp4").read_bytes())
    for place in range(100_000, 300_000, 97):
        data[place] ^= 0xFF
    path = tmp_path / "a.mp4"
    path.write_bytes(data)
    reader = MediaReader(path, frame_rate=1.0, frame_size=32, sound=True)
    assert len(list(reader)) == 10
    assert any("damaged packets were left out" in warning for warning in reader.warnings)


def test_the_same_file_gives_the_same_bytes(clips):
    runs = [list(read_frames(clips / "cocoa_tv_chef.mp4", 2.0, 64)) for _ in range(2)]
    assert all(np.array_equal(a.image, b.image) for a, b in zip(*runs, strict=True))


def test_a_reader_can_be_read_again(tmp_path):
    reader = MediaReader(
        make_video(tmp_path / "a.mp4", times=[0, 0.1, 0.2]), frame_rate=10.0, sound=True
    )
    assert len(list(reader)) == len(list(reader)) == 3


TIMES = [k / 10 for k in range(200)]  # 20 s, longer than a leap is worth


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return make_video(
        tmp_path_factory.mktemp("stills") / "a.mp4", times=TIMES, codec="libx264", g="10"
    )


def test_each_second_gives_the_frame_on_screen_in_the_order_asked_for(video):
    times = [15.05, 0.0, 7.25, 7.29, 19.95]
    found = frames_at(video, times)
    assert [frame and frame.time for frame in found] == times
    assert [index_of(frame.image) for frame in found] == [n % 20 for n in (150, 0, 72, 72, 199)]
    assert frames_at(video, []) == []


def test_seconds_without_a_picture_give_none(tmp_path, video):
    found = frames_at(video, [-1.0, 20.5, 21.5, 500.0, float("nan")])
    assert [frame is None for frame in found] == [True, False, True, True, True]
    sound = make_video(tmp_path / "a.m4a", sounds=[(0.0, tone(1.0))])
    assert frames_at(sound, [0.0, 0.5]) == [None, None]


def test_they_are_the_frames_that_the_reader_gives(clips):
    path = clips / "making_water.mp4"
    # of 30 frames/s: some are left out
    read = {frame.time: frame.image for frame in read_frames(path, 0.25)}
    every = {frame.time: frame.image for frame in read_frames(path, 10.0)}
    for still in frames_at(path, [2.05, 17.05, 30.05]):
        assert np.array_equal(still.image, every[still.time])
    assert set(read) == {2.0, 6.0, 10.0, 14.0, 18.0, 22.0, 26.0, 30.0}


def test_a_frame_has_the_width_that_is_asked_for(video):
    (frame,) = frames_at(video, [1.0], width=32)
    assert frame.image.shape == (24, 32, 3)


def test_a_file_without_time_stamps_is_read_from_its_start(tmp_path):
    path = make_video(tmp_path / "a.h264", times=[k / 25 for k in range(200)], codec="libx264")
    (frame,) = frames_at(path, [6.02])
    assert index_of(frame.image) == 150 % 20


def test_a_file_whose_sound_comes_first_gives_the_same_pictures(tmp_path):
    usual = make_video(
        tmp_path / "v.mp4",
        times=[k / 5 for k in range(20)],
        sounds=[(0.0, tone(4.0))],
        codec="libx264",
    )
    turned = tmp_path / "turned.mp4"
    with av.open(str(usual)) as given, av.open(str(turned), "w") as out:
        streams = {
            each.index: out.add_stream_from_template(each) for each in reversed(given.streams)
        }
        for packet in given.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
    found = [list(MediaReader(path, frame_rate=5.0, sound=True)) for path in (usual, turned)]
    frames = [[item for item in items if isinstance(item, Frame)] for items in found]
    assert len(frames[0]) == len(frames[1]) == 20
    assert all(np.array_equal(a.image, b.image) for a, b in zip(*frames, strict=True))


def draw_film(path, seconds, key_seconds):
    """Write ten pictures a second that grow brighter, with a key frame every so many seconds."""
    with av.open(str(path), "w") as out:
        options = {"sc_threshold": "0", "bf": "2"}
        stream = out.add_stream("libx264", rate=10, width=64, height=64, options=options)
        stream.pix_fmt = "yuv420p"
        stream.gop_size = 10 * key_seconds
        for number in range(10 * seconds):
            image = np.full((64, 64, 3), 20 + number, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("start", [0.0, 4.0])
def test_key_frames_are_those_of_their_seconds_and_hold_until_the_next(tmp_path, start):
    path = draw_film(tmp_path / "film.mp4", 20, 2)
    part = Span(start, 18.0) if start else None
    reader = KeyFrameReader(path, part=part)
    keys = list(reader)
    end = 18.0 if start else 20.0
    assert [key.time for key in keys] == pytest.approx(np.arange(0.0, end - start, 2.0).tolist())
    assert [key.end for key in keys] == [*(key.time for key in keys[1:]), reader.end]
    assert reader.end == pytest.approx(end - start)
    for key in keys:
        second = start + key.time
        assert key.image.mean() == pytest.approx(20 + 10 * second, abs=4)
        if key.later is not None:  # three pictures later
            assert key.later.mean() == pytest.approx(23 + 10 * second, abs=4)
    has_later = [key.later is not None for key in keys]
    assert has_later == [number % 3 == 0 for number in range(len(keys))]


@pytest.mark.parametrize(
    ("seconds", "key_seconds", "share", "reason"),
    [(20, 14, 1, "key frame"), (3, 2, 1, "key frame"), (20, 2, 0.6, "is damaged")],
)
def test_too_few_key_frames_or_a_part_of_a_file_do_not_stand_for_a_video(
    tmp_path, seconds, key_seconds, share, reason
):
    path = draw_film(tmp_path / "film.mkv", seconds, key_seconds)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(SparseKeyFramesError, match=reason):
        list(KeyFrameReader(path))
