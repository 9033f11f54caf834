"""Several sound tracks, and channels that cancel each other."""

import av
import numpy as np
import pytest
from made_videos import tone

from stepline.errors import MediaError
from stepline.media import MediaReader, MediaSettings, probe

RATE = 16_000


def make_tracks(path, tracks, languages=(), default=0):
    """Write sound tracks (channels, N) of 16 kHz; default: the index of the flagged one."""
    with av.open(str(path), "w") as out:
        streams = []
        for number, samples in enumerate(tracks):
            layout = "stereo" if samples.shape[0] == 2 else "mono"
            stream = out.add_stream("pcm_s16le", rate=RATE, layout=layout)
            stream.disposition = int(number == default)
            if languages:
                stream.metadata["language"] = languages[number]
            streams.append(stream)
        for start in range(0, tracks[0].shape[1], 1600):
            for stream, samples in zip(streams, tracks, strict=True):
                piece = samples[:, start : start + 1600]
                packed = np.rint(piece.T.reshape(1, -1) * 32_767).astype(np.int16)
                frame = av.AudioFrame.from_ndarray(packed, "s16", stream.layout.name)
                frame.sample_rate, frame.pts = RATE, start
                out.mux(stream.encode(frame))
        for stream in streams:
            out.mux(stream.encode(None))
    return path


def heard(path, track=None):
    settings = MediaSettings(audio_track=track)
    blocks = MediaReader(path, frame_rate=None, sound=True, settings=settings)
    return np.concatenate([block.samples for block in blocks])


def loudness(samples):
    return float(np.sqrt(np.mean(np.square(samples))))


# what FFmpeg makes of two equal channels
MIXED = 2**0.5
SILENCE = np.zeros((1, 4 * RATE), np.float32)
LOW, HIGH = tone(4.0, RATE, 200.0), 0.5 * tone(4.0, RATE, 400.0)


def test_a_silent_default_track_is_not_the_one_that_is_heard(tmp_path):
    path = make_tracks(tmp_path / "a.mkv", [SILENCE, LOW])
    assert loudness(heard(path)) == pytest.approx(0.35, abs=0.02)
    info = probe(path)
    assert len(info.sound_languages) == 2
    assert info.default_sound_track == 2


def test_of_two_tracks_with_sound_the_default_one_is_heard(tmp_path):
    path = make_tracks(tmp_path / "a.mkv", [LOW, HIGH], ["spa", "eng"], default=1)
    assert loudness(heard(path)) == pytest.approx(0.177, abs=0.02)
    assert probe(path).sound_languages == ("spa", "eng")
    assert probe(path).default_sound_track == 2


def test_a_track_that_is_named_is_heard(tmp_path):
    path = make_tracks(tmp_path / "a.mkv", [LOW, HIGH, SILENCE])
    assert loudness(heard(path, 1)) == pytest.approx(0.35, abs=0.02)
    assert loudness(heard(path, 2)) == pytest.approx(0.177, abs=0.02)
    assert loudness(heard(path, 3)) == 0.0
    with pytest.raises(MediaError, match="no sound track 4.*from 1 to 3"):
        heard(path, 4)


def test_an_inverted_channel_does_not_cancel_the_other(tmp_path):
    path = make_tracks(tmp_path / "a.mkv", [np.concatenate([LOW, -LOW])])
    assert heard(path)[800:-800] == pytest.approx(MIXED * LOW[0, 800:-800], abs=0.02)


def test_an_inverted_channel_that_is_quieter_does_not_cancel_either(tmp_path):
    path = make_tracks(tmp_path / "a.mkv", [np.concatenate([LOW, -0.8 * LOW])])
    assert loudness(heard(path)) == pytest.approx(MIXED * 0.9 * 0.3535, abs=0.02)


def test_only_the_inverted_part_is_mixed_otherwise(tmp_path):
    sign = np.ones_like(LOW)
    sign[:, RATE : 2 * RATE] = -1.0
    path = make_tracks(tmp_path / "a.mkv", [np.concatenate([LOW, sign * LOW])])
    samples = heard(path)
    for second in range(4):
        part = samples[second * RATE + 800 : (second + 1) * RATE - 800]
        assert loudness(part) == pytest.approx(MIXED * 0.3535, abs=0.02)


def test_ordinary_stereo_is_the_mean_of_its_channels(tmp_path):
    path = make_tracks(tmp_path / "a.mkv", [np.concatenate([LOW, 0.02 * HIGH])])
    assert heard(path) == pytest.approx(MIXED * (LOW[0] + 0.02 * HIGH[0]) / 2, abs=1e-3)


def test_wild_inverted_channel_does_not_cancel_the_speech(wild):
    twin = wild.parents[1] / "clips" / "firstaid_burns.mp4"
    samples, other = heard(wild / "phase.mp4"), heard(twin)
    spoken = slice(2 * RATE, 6 * RATE)
    assert loudness(samples[spoken]) == pytest.approx(loudness(other[spoken]), rel=0.1)


def test_wild_silent_first_track_is_not_the_one_that_is_heard(wild):
    assert loudness(heard(wild / "obs_two_tracks.mp4")) > 0.01
