"""Files whose time stamps jump, lie or come in another order: seconds stay those of the video."""

from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest
from made_videos import grey, index_of, make_video, tone
from video_frames import frames_at

from stepline.media import AudioBlock, Frame, MediaReader, MediaSettings, probe

RATE = 16_000  # Hz of what is read


def read(path, rate=10.0):
    every = MediaSettings(skip_nonref=False)
    reader = MediaReader(path, frame_rate=rate, sound=True, settings=every)
    items = list(reader)
    pictures = [item for item in items if isinstance(item, Frame)]
    return pictures, [item for item in items if isinstance(item, AudioBlock)], reader


def beeps(blocks):
    """The seconds at which sound sets in after silence."""
    line = np.concatenate([block.samples for block in blocks])
    loud = np.abs(line[: len(line) // 160 * 160]).reshape(-1, 160).max(axis=1) > 0.1
    seconds = []
    for number in np.flatnonzero(loud):
        if not loud[max(0, number - 15) : number].any():
            seconds.append(number / 100)
    return seconds


def flashes(pictures):
    """The seconds at which picture 0 comes on."""
    seconds = []
    before = None
    for frame in pictures:
        index = index_of(frame.image)
        if index == 0 and before != 0:
            seconds.append(frame.time)
        before = index
    return seconds


def held_picture_times(last):
    """The times of pictures of which one is held for 8 s, another for 12."""
    moving = [k / 25 for k in range(75)]
    return [*moving, *(11 + k / 25 for k in range(26)), last]


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv"])
def test_after_a_picture_that_is_held_long_nothing_is_late(tmp_path, name):
    times = held_picture_times(23.9)
    path = make_video(tmp_path / name, times=times, codec="libx264", sounds=[(0.0, tone(24.0))])
    with av.open(str(path)) as container:
        assert container.streams.video[0].codec_context.has_b_frames
    pictures, _, reader = read(path, 2.0)
    assert reader.end == pytest.approx(24.0, abs=0.1)
    assert reader.warnings == ()
    shown = [index_of(frame.image) for frame in pictures]
    expected = []
    for frame in pictures:
        number = max(k for k, time in enumerate(times) if time <= frame.time + 1e-6)
        expected.append(number % 20)
    assert shown == expected
    assert pictures[-1].time == 23.75
    stills = frames_at(path, [1.0, 5.0, 11.5, 20.0, 23.95])
    shown = [index_of(still.image) for still in stills if still]
    assert shown == [number % 20 for number in (25, 74, 75 + 12, 100, 101)]


def test_a_picture_held_for_a_minute_is_not_a_broken_stamp(tmp_path):
    times = [*(k / 10 for k in range(10)), *(61 + k / 10 for k in range(10))]
    path = make_video(tmp_path / "a.mp4", times=times, codec="libx264")
    pictures, _, reader = read(path, 1.0)
    assert len(pictures) == 62
    assert reader.end == pytest.approx(62.0, abs=0.1)
    assert reader.warnings == ()


def test_wild_pictures_held_long_are_no_later_than_the_sound(wild):
    path = wild / "vfr_bframes.mp4"
    pictures, _, reader = read(path, 25.0)
    assert reader.end == pytest.approx(24.0, abs=0.1)
    assert pictures[-1].time < 24.0
    # the last picture is black, and comes at 23.92 s
    bright = [frame.time for frame in pictures if frame.image.mean() > 10]
    assert bright[-1] == pytest.approx(23.9, abs=0.05)
    changes = []
    for before, after in pairwise(pictures):
        if not np.array_equal(before.image, after.image):
            changes.append(after.time)
    assert not [second for second in changes if 3.02 < second < 10.98 or 12.06 < second < 23.9]


def part(path, *, seconds=2.0, offset=0.0):
    """A recording that begins with picture 0 and a beep, of which the sound is .2 s longer."""
    beep = np.zeros((1, round((seconds + 0.2) * 44_100)), np.float32)
    beep[:, :8820] = tone(0.2)
    times = [k / 10 for k in range(round(seconds * 10))]
    return make_video(
        path, times=times, codec="libx264", sounds=[(0.0, beep)], output_ts_offset=str(offset)
    )


def joined(path, offsets):
    """The recordings of these offsets, joined byte by byte."""
    parts = [
        part(path.with_name(f"{number}.ts"), offset=offset) for number, offset in enumerate(offsets)
    ]
    path.write_bytes(b"".join(item.read_bytes() for item in parts))
    return path


def check_in_step(path, count):
    """Check that in each of `count` parts picture 0 and the beep begin together."""
    pictures, blocks, reader = read(path, 25.0)
    seen, heard = flashes(pictures), beeps(blocks)
    assert len(seen) == len(heard) == count
    assert np.abs(np.subtract(seen, heard)).max() < 0.12
    assert np.diff(heard) == pytest.approx(2.2, abs=0.1)
    assert reader.end == pytest.approx(2.2 * count, abs=0.3)
    assert probe(path).duration == pytest.approx(reader.end, abs=0.1)
    return reader


def test_picture_and_sound_of_joined_recordings_restart_on_one_clock(tmp_path):
    reader = check_in_step(joined(tmp_path / "a.ts", [0.0] * 12), 12)
    assert any("11 jumps of the time stamps corrected" in line for line in reader.warnings)


@pytest.mark.parametrize("hours", [1, 20])
def test_stamps_that_jump_forward_are_counted_on(tmp_path, hours):
    path = joined(tmp_path / "a.ts", [0.0, hours * 3600.0])
    reader = check_in_step(path, 2)
    assert any("1 jump of the time stamps, the longest by" in line for line in reader.warnings)
    stills = frames_at(path, [0.05, 1.05, 2.3, 3.3], 64)
    assert [still is not None and index_of(still.image) for still in stills][:2] == [0, 10]


def test_stamps_that_jump_forth_and_back_are_counted_on(tmp_path):
    check_in_step(joined(tmp_path / "a.ts", [0.0, 3600.0, 100.0, 7200.0, 0.0]), 5)


def test_a_short_loss_of_a_broadcast_stays_a_gap(tmp_path):
    _, blocks, reader = read(joined(tmp_path / "a.ts", [0.0, 7.0]))
    assert beeps(blocks) == pytest.approx([0.0, 7.0], abs=0.25)
    assert reader.end == pytest.approx(9.2, abs=0.3)
    assert not any("corrected" in line for line in reader.warnings)


def test_wild_joined_recordings_stay_in_step(wild):
    reader = MediaReader(wild / "joined16.ts", frame_rate=25.0, frame_size=32, sound=True)
    items = list(reader)
    light = [(i.time, float(i.image.mean())) for i in items if isinstance(i, Frame)]
    middle = (min(value for _, value in light) + max(value for _, value in light)) / 2
    seen = [light[0][0]] if light[0][1] > middle else []
    for (_, before), (time, after) in pairwise(light):
        if before <= middle < after:
            seen.append(time)
    heard = beeps([item for item in items if isinstance(item, AudioBlock)])
    assert len(seen) == len(heard) == 16
    assert np.abs(np.subtract(seen, heard)).max() <= 0.08
    assert reader.end == pytest.approx(27.6, abs=0.2)


def test_a_wild_jump_of_an_hour_is_not_an_hour(wild):
    path = wild / "forward_1h.ts"
    pictures, blocks, reader = read(path, 1.0)
    assert len(pictures) == 27
    assert sum(len(block.samples) for block in blocks) / RATE == pytest.approx(26.8, abs=0.2)
    assert probe(path).duration == pytest.approx(26.8, abs=0.2)
    assert any("the longest by 3597 s" in line for line in reader.warnings)


def remuxed(path, plain, change, *before):
    """The packets of `plain` as `change` leaves them, after those that makers of tracks in `before`
    put first."""
    with av.open(str(plain)) as source, av.open(str(path), "w") as out:
        first = [packet for make in before for packet in make(out)]
        tracks = {s.index: out.add_stream_from_template(s) for s in source.streams}
        for packet in first:
            out.mux(packet)
        for packet in source.demux():
            if packet.pts is not None:
                change(packet)
                packet.stream = tracks[packet.stream.index]
                out.mux(packet)
    return path


def film_of_4_s(path, sound):
    times = [k / 10 for k in range(40)]
    return make_video(path, times=times, codec="libx264", sounds=[(0.0, sound)])


def outlier(path, *, late, kind):
    """A film with sound of 4 s, of which one packet is stamped `late` s later."""
    numbers = {"video": 0, "audio": 0}

    def change(packet):
        numbers[packet.stream.type] += 1
        if packet.stream.type == kind and numbers[kind] == 17:
            packet.pts += round(late / packet.time_base)

    return remuxed(path, film_of_4_s(path.with_name("plain.mkv"), tone(4.0)), change)


@pytest.mark.parametrize("late", [100.0, 23_040.0, 200_000.0])
@pytest.mark.parametrize("kind", ["video", "audio"])
def test_a_stamp_far_too_late_makes_no_film_longer(tmp_path, late, kind):
    path = outlier(tmp_path / "a.mkv", late=late, kind=kind)
    assert probe(path).duration == pytest.approx(4.0, abs=0.2)
    pictures, blocks, reader = read(path)
    assert [index_of(frame.image) for frame in pictures] == [k % 20 for k in range(40)]
    assert sum(len(block.samples) for block in blocks) / RATE == pytest.approx(4.0, abs=0.1)
    assert reader.end == pytest.approx(4.0, abs=0.1)
    assert reader.warnings == ("1 broken time stamp was corrected",)


def test_wild_late_stamp_makes_no_film_longer(wild):
    path = wild / "pts_outlier.mkv"
    _, _, reader = read(path, 1.0)
    assert probe(path).duration == pytest.approx(24.0, abs=0.1)
    assert reader.end == pytest.approx(24.0, abs=0.1)


def cover_packets(out):
    """The packets of a track of one picture, without the flag of a cover."""
    cover = out.add_stream("mjpeg", rate=10)
    cover.width, cover.height, cover.pix_fmt = 96, 96, "yuvj420p"
    cover.codec_context.time_base = Fraction(1, 10)
    frame = av.VideoFrame.from_ndarray(np.zeros((96, 96, 3), np.uint8), format="rgb24")
    frame.pts, frame.time_base = 0, Fraction(1, 10)
    return [*cover.encode(frame), *cover.encode(None)]


def test_a_cover_without_its_flag_is_not_the_film(tmp_path):
    film = film_of_4_s(tmp_path / "film.mkv", tone(4.0))
    path = remuxed(tmp_path / "a.mkv", film, lambda packet: None, cover_packets)
    info = probe(path)
    assert (info.width, info.height) == (64, 48)
    pictures, _, _ = read(path)
    assert [index_of(frame.image) for frame in pictures] == [k % 20 for k in range(40)]


def test_wild_cover_without_its_flag_is_not_the_film(wild):
    info = probe(wild / "cover_first.mkv")
    assert (info.width, info.height) == (320, 180)
    pictures, _, _ = read(wild / "cover_first.mkv", 1.0)
    assert len(pictures) == 24


def test_a_claim_past_the_limit_is_not_believed(tmp_path):
    path = joined(tmp_path / "a.ts", [0.0, 20 * 3600.0])
    settings = MediaSettings(max_duration=60.0)
    assert probe(path, settings).duration == pytest.approx(4.4, abs=0.2)


def with_gap(path, hours):
    """A film with two beeps, of which all that comes from 2 s on is stamped later."""
    beep = np.concatenate([tone(0.2), np.zeros((1, 80_000), np.float32)], axis=1)
    plain = film_of_4_s(path.with_name("plain.mp4"), np.concatenate([beep, beep], axis=1))

    def change(packet):
        if packet.dts * packet.time_base >= 2.0:
            late = round(hours * 3600 / packet.time_base)
            packet.pts, packet.dts = packet.pts + late, packet.dts + late

    return remuxed(path, plain, change)


@pytest.mark.parametrize("hours", [1, 20])
@pytest.mark.parametrize("name", ["a.mkv", "a.flv", "a.nut", "a.mp4", "a.mov"])
def test_stamps_of_any_container_that_jump_forward_are_counted_on(tmp_path, name, hours):
    path = with_gap(tmp_path / name, hours)
    pictures, blocks, reader = read(path)
    assert reader.end == pytest.approx(4.1, abs=0.25)
    assert probe(path).duration == pytest.approx(reader.end, abs=0.1)
    assert len(pictures) == pytest.approx(41, abs=3)
    assert beeps(blocks)[:2] == pytest.approx([0.0, 2.02], abs=0.05)


def test_an_interruption_of_ten_minutes_is_believed(tmp_path):
    _, _, reader = read(with_gap(tmp_path / "a.mkv", 1 / 6), 0.1)
    assert reader.end == pytest.approx(604.0, abs=0.5)
    assert reader.warnings == ()


@pytest.mark.parametrize("name", ["slides.mp4", "slides.mkv"])
@pytest.mark.parametrize("seconds", [15, 5, 1, 0.2])
def test_few_pictures_a_second_with_reordered_ones_keep_their_times(tmp_path, seconds, name):
    # more than a jump is worth apart, or with no decoding stamp for the first ones
    with av.open(str(tmp_path / name), "w") as out:
        options = {"bf": "3", "b-pyramid": "normal"}
        stream = out.add_stream("libx264", 1 / Fraction(str(seconds)), options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for k in range(12):
            image = np.full((64, 64, 3), grey(k), np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(stream.encode(None))
    reader = MediaReader(tmp_path / name, frame_rate=1 / seconds, sound=False)
    assert [index_of(frame.image) for frame in reader] == list(range(12))
    assert (reader.end, reader.warnings) == (pytest.approx(12 * seconds, abs=0.01), ())


@pytest.mark.parametrize("codec", ["libx264", "mpeg4", "libvpx-vp9"])
def test_seconds_before_zero_come_before_the_others(tmp_path, codec):
    """FFmpeg counts the missing stamps of a codec without B-frames from 0 on."""
    times = [k / 10 for k in range(80)]
    options = {"output_ts_offset": "-5", "avoid_negative_ts": "disabled"}
    path = make_video(
        tmp_path / "a.mkv", times=times, codec=codec, sounds=[(0.0, tone(8.0))], **options
    )
    pictures, _, reader = read(path)
    assert [index_of(frame.image) for frame in pictures] == [k % 20 for k in range(80)]
    assert reader.end == pytest.approx(8.0, abs=0.1)
    assert probe(path).duration == pytest.approx(8.0, abs=0.1)
    assert reader.warnings != ()
    stills = frames_at(path, [0.25, 4.95, 5.05, 7.75])
    assert [index_of(still.image) for still in stills if still] == [2, 9, 10, 17]
