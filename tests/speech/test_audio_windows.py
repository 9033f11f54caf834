"""A stream of sound is cut into windows at silences, and nothing of it is lost or heard twice."""

import numpy as np
import pytest

from stepline.media import AudioBlock
from stepline.media.audio import SAMPLE_RATE
from stepline.speech import audio_windows as windowers
from stepline.speech.audio_windows import (
    FRAME_SAMPLES,
    AudioWindower,
    find_speech,
    middle_of_longest_silence,
)
from stepline.speech.settings import AsrSettings

SETTINGS = AsrSettings(window=10.0)


@pytest.fixture(autouse=True)
def _loud_is_voice(monkeypatch):
    """Stand in for the voice detector: a frame is speech where it is loud."""

    def voice(samples):
        padded = np.pad(samples, (0, -len(samples) % FRAME_SAMPLES)).reshape(-1, FRAME_SAMPLES)
        return np.asarray(np.abs(padded).mean(axis=1) > 0.1, np.float32)

    monkeypatch.setattr(windowers, "detect_voice", voice)


def ramp(seconds):
    """Return samples that are all different and loud, so that a lost or repeated one shows."""
    return np.linspace(0.2, 0.9, int(seconds * SAMPLE_RATE), dtype=np.float32)


def blocks(samples, size=1.0, start=0.0):
    step = int(size * SAMPLE_RATE)
    for first in range(0, len(samples), step):
        yield AudioBlock(start + first / SAMPLE_RATE, samples[first : first + step])


@pytest.mark.parametrize("size", [0.25, 1.0, 7.0, 60.0])
def test_windows_hold_every_sample_once_whatever_the_blocks(size):
    samples = ramp(33.0)
    found = list(AudioWindower(SETTINGS).windows(blocks(samples, size)))
    assert np.array_equal(np.concatenate([window.samples for window in found]), samples)
    assert all(len(window.samples) <= 10 * SAMPLE_RATE for window in found)
    assert [window.last for window in found] == [False] * (len(found) - 1) + [True]
    assert all(
        len(window.voice_probabilities) == -(-len(window.samples) // FRAME_SAMPLES)
        for window in found
    )


def test_a_window_ends_in_the_silence_near_its_end():
    samples = ramp(20.0)
    samples[8 * SAMPLE_RATE : 9 * SAMPLE_RATE] = 0.0
    first = next(iter(AudioWindower(SETTINGS).windows(blocks(samples))))
    assert first.end == pytest.approx(8.5, abs=2 * FRAME_SAMPLES / SAMPLE_RATE)


def test_resume_starts_the_next_window_earlier_but_never_stands_still():
    windower = AudioWindower(SETTINGS)
    windows = windower.windows(blocks(ramp(20.0)))
    next(windows)
    assert windower.set_next_start(5.0) == 5.0
    second = next(windows)
    assert second.start == 5.0
    quarter = pytest.approx(5.0 + 0.25 * len(second.samples) / SAMPLE_RATE, abs=1e-3)
    # of the whole window, however often it is asked
    assert [windower.set_next_start(0.0) for _ in range(3)] == [quarter] * 3
    assert windower.set_next_start(9.0) == 9.0


def test_a_small_hole_becomes_silence_and_a_large_one_ends_the_window():
    small = list(
        AudioWindower(SETTINGS).windows([AudioBlock(0.5, ramp(1.0)), AudioBlock(2.0, ramp(1.0))])
    )
    assert [(w.start, w.end) for w in small] == [(0.5, 3.0)]
    large = list(
        AudioWindower(SETTINGS).windows([AudioBlock(0.0, ramp(1.0)), AudioBlock(9.0, ramp(1.0))])
    )
    assert [(w.start, w.end, w.last) for w in large] == [(0.0, 1.0, True), (9.0, 10.0, True)]


def test_sound_that_is_given_twice_is_heard_once():
    samples = ramp(2.0)
    (window,) = AudioWindower(SETTINGS).windows(
        [
            AudioBlock(0.0, samples),
            AudioBlock(1.0, samples[SAMPLE_RATE:]),
            AudioBlock(2.0, ramp(1.0)),
        ]
    )
    assert window.end == 3.0


def test_no_sound_gives_no_window():
    assert list(AudioWindower(SETTINGS).windows([])) == []


def test_speech_keeps_short_pauses_and_pads_without_overlap():
    voice = np.zeros(100, np.float32)
    voice[[*range(10, 20), *range(24, 30), *range(80, 90)]] = 1.0
    runs = find_speech(voice, threshold=0.5, gap=1.0, pad=0.064)
    assert runs == [
        (8 * FRAME_SAMPLES, 32 * FRAME_SAMPLES),
        (78 * FRAME_SAMPLES, 92 * FRAME_SAMPLES),
    ]


def test_the_quietest_place_is_the_middle_of_the_last_longest_silence():
    assert middle_of_longest_silence(np.array([1, 0, 0, 0, 1, 0, 0, 0, 1], np.float32), 0.5) == 6
    assert middle_of_longest_silence(np.array([0.9, 0.7, 0.8], np.float32), 0.5) == 1
