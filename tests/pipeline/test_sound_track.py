"""Which of several sound tracks the main job hears, and what it says of the others."""

import re
from pathlib import Path

import av
import numpy as np
import pytest

from stepline.media import MediaSettings, probe, read_sound
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.speech import choose_sound_track
from stepline.speech.settings import AsrSettings

DEMO = Path(__file__).resolve().parents[2] / "stepline" / "cli" / "demo" / "demo.mp4"
RATE = 16_000


@pytest.fixture(scope="module")
def speech():
    samples = np.concatenate([block.samples for block in read_sound(DEMO)])
    return samples[: 20 * RATE]


def music(count):
    """A chord, louder than speech."""
    time = np.arange(count) / RATE
    chord = sum(np.sin(2 * np.pi * hertz * time) for hertz in (220.0, 277.2, 329.6))
    return np.asarray(0.2 * chord, np.float32)


def choice(path, tracks, languages, *, language=None, number=None):
    with av.open(str(path), "w") as out:
        for mark in languages:
            stream = out.add_stream("pcm_s16le", rate=RATE, layout="mono")
            stream.metadata["language"] = mark
        streams = list(out.streams.audio)
        for start in range(0, len(tracks[0]), RATE):
            for stream, samples in zip(streams, tracks, strict=True):
                piece = np.rint(samples[None, start : start + RATE] * 32_767).astype(np.int16)
                frame = av.AudioFrame.from_ndarray(piece, "s16", "mono")
                frame.sample_rate, frame.pts = RATE, start
                out.mux(stream.encode(frame))
    settings = StepsSettings(
        asr=AsrSettings(language=language), media=MediaSettings(audio_track=number)
    )
    media, notes = choose_sound_track(Request(path, "a"), probe(path), settings)
    return media.audio_track, " ".join(notes)


@pytest.mark.parametrize(
    ("tracks", "languages", "given", "number", "said"),
    [
        ("music speech", "und und", {}, 2, ", in which someone speaks; --audio-track N .* another"),
        ("speech quiet", "eng spa", {"language": "es"}, 2, ".*of language es.*"),
        ("speech speech", "eng fra", {}, 1, ".*the default one.*"),
        ("music speech", "eng eng", {"number": 1}, 1, ", as named"),
    ],
)
def test_the_track_that_is_named_or_in_which_someone_speaks_is_heard(
    tmp_path, speech, tracks, languages, given, number, said
):
    sounds = {"speech": speech, "quiet": 0.5 * speech, "music": music(len(speech))}
    heard = [sounds[name] for name in tracks.split()]
    found, note = choice(tmp_path / "a.mkv", heard, languages.split(), **given)
    assert found == number
    assert re.fullmatch(f"2 sound tracks: track {number} is used{said}", note)


def test_one_track_leaves_nothing_to_say(tmp_path, speech):
    assert choice(tmp_path / "a.mkv", [speech], ["eng"]) == (None, "")


def test_wild_recording_of_two_tracks_is_heard_on_the_second(shared_path):
    path = shared_path("cases/wild/obs_two_tracks.mp4")
    media, notes = choose_sound_track(Request(path, "a"), probe(path), StepsSettings())
    assert media.audio_track == 2
    assert len(notes) == 1
