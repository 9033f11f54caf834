"""The voice: espeak-ng reads the utterances aloud, one after the other, never two together."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from random import Random

import numpy as np
import numpy.typing as npt

from lab.drawn_videos.script import Utterance, Voice
from stepline.errors import MediaError
from stepline.records import Span

Samples = npt.NDArray[np.float32]

RATE = 22_050  # samples per second; what espeak-ng gives
MIN_PAUSE_SECONDS = 0.18  # of silence between two utterances
# Samples quieter than this at either end are cut off, so that spans hold speech only.
SILENCE_AMPLITUDE = 0.004
WAV_HEADER_BYTES = 44
SPEECH_LOUDNESS = 0.16  # root mean square of the speech
VOICE_NAMES = ("en-us", "en-us+m3", "en-gb", "en-us+f4", "en-gb+m7", "en-us+m7")


def choose_voice(seed: int) -> Voice:
    """Return the voice of a seed."""
    rng = Random(f"voice {seed}")
    name = rng.choice(VOICE_NAMES)
    speed = rng.randrange(148, 172)
    pitch = rng.randrange(36, 60)
    return Voice(name, speed, pitch)


@lru_cache(maxsize=512)
def synthesize_speech(text: str, who: Voice) -> Samples:
    """Return a text read aloud, (N,) float32 at RATE, without silence at its ends.

    Raises MediaError when espeak-ng is missing or says nothing.
    """
    command = shutil.which("espeak-ng")
    if command is None:
        raise MediaError(
            "espeak-ng: not installed, and drawn videos need its voice; apt-get install espeak-ng"
        )
    arguments = [command, "--stdin", "--stdout", "-v", who.name]
    arguments += ["-s", str(who.speed)]
    arguments += ["-p", str(who.pitch)]
    result = subprocess.run(arguments, input=text.encode(), capture_output=True, check=False)

    sound = _wav_samples(result.stdout)
    loud = np.nonzero(np.abs(sound) > SILENCE_AMPLITUDE)[0]
    if result.returncode != 0 or len(loud) == 0:
        errors = result.stderr.decode(errors="replace").strip().splitlines()
        reason = errors[0] if errors else "no sound"
        raise MediaError(
            f"espeak-ng could not say {text!r} as {who.name} ({reason}); "
            "apt-get install espeak-ng-data"
        )

    # cut the silence at both ends, and bring every utterance to one loudness
    sound = sound[loud[0] : loud[-1] + 1]
    root_mean_square = float(np.sqrt(np.mean(sound * sound)))
    gain = SPEECH_LOUDNESS / root_mean_square
    return np.asarray(sound * gain, np.float32)


def _wav_samples(content: bytes) -> Samples:
    """Return the samples of a WAV of 16 bits, in [-1, 1). A half sample at its end is dropped."""
    length = (len(content) - WAV_HEADER_BYTES) // 2
    end = WAV_HEADER_BYTES + 2 * length
    values = np.frombuffer(content[WAV_HEADER_BYTES:end], "<i2")
    return values.astype(np.float32) / 32768.0


def schedule_utterances(
    utterances: Sequence[Utterance], lengths: Sequence[float]
) -> list[Utterance]:
    """Return the utterances with their spoken spans.

    An utterance starts at its own time, or later where someone still speaks.
    lengths: seconds of every utterance.
    """
    scheduled = []
    free = 0.0
    for utterance, length in zip(utterances, lengths, strict=True):
        start = max(utterance.at, free)
        end = start + length
        span = Span(round(start, 3), round(end, 3))
        scheduled.append(utterance.model_copy(update={"span": span}))
        free = end + MIN_PAUSE_SECONDS
    return scheduled


def mix_sound(
    utterances: Sequence[Utterance], who: Voice, duration: float, seed: int
) -> tuple[Samples, Samples]:
    """Return the whole sound, background included, and the speech alone, both (N,) float32 at
    RATE."""
    speech = np.zeros(int(np.ceil(duration * RATE)), np.float32)
    for utterance in utterances:
        if utterance.span is None:
            continue
        sound = synthesize_speech(utterance.text, who)
        start = round(utterance.span.start * RATE)
        room = max(0, len(speech) - start)
        speech[start : start + len(sound)] += sound[:room]
    background = _background(len(speech), seed)
    return np.clip(speech + background, -1.0, 1.0), speech


def loudness_envelope(speech: Samples, frame_rate: int, frames: int) -> Samples:
    """Return how loud the speech is in each frame, in [0, 1], (frames,)."""
    edges = (np.arange(frames + 1) * RATE / frame_rate).astype(int)
    edges = np.minimum(edges, len(speech))
    squares = speech.astype(np.float64) ** 2
    power = np.concatenate([[0.0], np.cumsum(squares)])
    frame_power = power[edges[1:]] - power[edges[:-1]]
    samples = np.maximum(np.diff(edges), 1)
    level = np.sqrt(frame_power / samples)
    loudness = np.clip(level / (2.0 * SPEECH_LOUDNESS), 0.0, 1.0)
    return np.asarray(loudness, np.float32)


def _background(length: int, seed: int) -> Samples:
    """Return nothing, the hum of a room, or soft music, by seed."""
    rng = np.random.default_rng(seed + 7)
    kind = rng.integers(0, 3)
    if kind == 0:
        return np.zeros(length, np.float32)
    if kind == 1:
        white = rng.standard_normal(length, dtype=np.float32)
        kernel = np.ones(24, np.float32) / 24
        hum = np.convolve(white, kernel, mode="same")
        deviation = float(hum.std() + 1e-9)
        return np.asarray(0.006 * hum / deviation, np.float32)
    return _music(length, rng)


def _music(length: int, rng: np.random.Generator) -> Samples:
    """Return a slow broken chord, about 30 dB below the voice."""
    t = np.arange(length, dtype=np.float32) / RATE
    root = 196.0 * 2.0 ** (int(rng.integers(0, 8)) / 12)
    tune = np.zeros(length, np.float32)
    beat = 0.5 + 0.1 * float(rng.random())
    steps = (t / beat).astype(int)
    degrees = np.array([0, 4, 7, 12, 7, 4, 9, 5])
    pitch = root * 2.0 ** (degrees[steps % 8] / 12.0)
    fade = np.exp(-3.0 * (t - steps * beat)).astype(np.float32)
    for harmonic, fraction in ((1, 1.0), (2, 0.3)):
        tone = np.sin(2 * np.pi * harmonic * pitch * t)
        tune += fraction * fade * tone.astype(np.float32)
    return np.asarray(0.008 * tune, np.float32)
