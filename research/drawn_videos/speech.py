"""The voice: espeak-ng reads the utterances aloud, one after the other, never two together."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from random import Random

import numpy as np
import numpy.typing as npt

from research.drawn_videos.script import Utterance, Voice
from stepline.errors import MediaError
from stepline.records import Span

Samples = npt.NDArray[np.float32]

RATE = 22_050  # samples a second; what espeak-ng gives
PAUSE = 0.18  # s, least silence between two utterances
# samples quieter than this at either end are cut off, so that spans hold speech only
SILENT = 0.004
HEADER = 44  # bytes of a WAV header
LOUDNESS = 0.16  # root mean square of the speech
VOICES = ("en-us", "en-us+m3", "en-gb", "en-us+f4", "en-gb+m7", "en-us+m7")


def choose_voice(seed: int) -> Voice:
    """Return the voice of a seed."""
    rng = Random(f"voice {seed}")
    return Voice(rng.choice(VOICES), rng.randrange(148, 172), rng.randrange(36, 60))


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
    arguments = [
        command,
        "--stdin",
        "--stdout",
        "-v",
        who.name,
        "-s",
        str(who.speed),
        "-p",
        str(who.pitch),
    ]
    done = subprocess.run(arguments, input=text.encode(), capture_output=True, check=False)
    sound = (
        np.frombuffer(
            done.stdout[HEADER : HEADER + 2 * ((len(done.stdout) - HEADER) // 2)], "<i2"
        ).astype(np.float32)
        / 32768.0
    )
    loud = np.nonzero(np.abs(sound) > SILENT)[0]
    if done.returncode != 0 or len(loud) == 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no sound"]
        raise MediaError(
            f"espeak-ng could not say {text!r} as {who.name} ({reason[0]}); apt-get install espeak-ng-data"
        )
    sound = sound[loud[0] : loud[-1] + 1]
    return np.asarray(sound * (LOUDNESS / float(np.sqrt(np.mean(sound * sound)))), np.float32)


def schedule_utterances(
    utterances: Sequence[Utterance], lengths: Sequence[float]
) -> list[Utterance]:
    """Return the utterances with their spoken spans: at the time asked for, or later where someone
    still speaks.

    lengths: seconds that each takes.
    """
    placed, free = [], 0.0
    for each, length in zip(utterances, lengths, strict=True):
        start = max(each.at, free)
        placed.append(
            each.model_copy(update={"span": Span(round(start, 3), round(start + length, 3))})
        )
        free = start + length + PAUSE
    return placed


def mix_sound(
    utterances: Sequence[Utterance], who: Voice, duration: float, seed: int
) -> tuple[Samples, Samples]:
    """Return the whole sound, background included, and the speech alone, both (N,) float32 at
    RATE."""
    speech = np.zeros(int(np.ceil(duration * RATE)), np.float32)
    for each in utterances:
        if each.span is not None:
            sound, start = synthesize_speech(each.text, who), round(each.span.start * RATE)
            speech[start : start + len(sound)] += sound[: max(0, len(speech) - start)]
    return np.clip(speech + _background(len(speech), seed), -1.0, 1.0), speech


def loudness_envelope(speech: Samples, frame_rate: int, frames: int) -> Samples:
    """Return how loud the speech is in each frame, in [0, 1], (frames,)."""
    edges = (np.arange(frames + 1) * RATE / frame_rate).astype(int)
    power = np.concatenate([[0.0], np.cumsum(speech.astype(np.float64) ** 2)])
    edges = np.minimum(edges, len(speech))
    level = np.sqrt((power[edges[1:]] - power[edges[:-1]]) / np.maximum(np.diff(edges), 1))
    return np.asarray(np.clip(level / (2.0 * LOUDNESS), 0.0, 1.0), np.float32)


def _background(length: int, seed: int) -> Samples:
    """Return nothing, the hum of a room, or soft music, by seed."""
    rng = np.random.default_rng(seed + 7)
    kind = rng.integers(0, 3)
    if kind == 0:
        return np.zeros(length, np.float32)
    if kind == 1:
        white = rng.standard_normal(length, dtype=np.float32)
        soft = np.convolve(white, np.ones(24, np.float32) / 24, mode="same")
        return np.asarray(0.006 * soft / float(soft.std() + 1e-9), np.float32)
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
        tune += fraction * fade * np.sin(2 * np.pi * harmonic * pitch * t).astype(np.float32)
    return np.asarray(0.008 * tune, np.float32)
