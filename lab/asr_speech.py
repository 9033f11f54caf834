"""How-to texts spoken by espeak-ng, clean and under pink noise, for lab/asr.py."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.media import AudioBlock, read_sound

Samples = npt.NDArray[np.float32]

SAMPLE_RATE = 16_000  # Hz
ESPEAK_VOICES = (("en-us", 150), ("en-gb+f3", 165))  # espeak-ng voice, words per minute
HOW_TO_TEXTS = (
    "Hi everyone and welcome back to my kitchen. Today I'm going to show you how to make fresh "
    "lemonade. First, wash the lemons under cold water. Then cut each lemon in half with a "
    "sharp knife. Squeeze the juice into a large jug. If you find any seeds, take them out "
    "with a spoon. Now pour the sugar into a pan with one cup of water. Heat it slowly until "
    "the sugar melts. I love the smell of this. Let the syrup cool for ten minutes. Pour the "
    "syrup into the jug and stir well. Add plenty of ice and a few leaves of mint. That's it, "
    "thank you for watching and don't forget to subscribe.",
    "In this video we will build a simple wooden shelf. You need two boards, a drill, some "
    "screws and a pencil. Measure the wall and mark the height with the pencil. Hold the "
    "bracket against the wall and check that it is level. Drill a hole at every mark. Push a "
    "plug into each hole. Screw the brackets to the wall, but don't tighten them yet. Some "
    "people skip this part and regret it later. Sand the board until it feels smooth. Wipe off "
    "the dust with a damp cloth. Put the board on the brackets and fix it from below. Finally, "
    "tighten all the screws.",
    "Alright, so you got a flat tire on your bike. Turn the bike upside down so that it stands "
    "on the saddle. Loosen the brake and take the wheel out. Push a tire lever under the edge "
    "and pull it over the rim. Pull out the inner tube. Pump some air into the tube and listen "
    "for the hole. Rub the rubber with sandpaper around the hole. Spread a thin layer of glue "
    "and wait for about five minutes. Press the patch firmly onto the glue. Put the tube back "
    "inside the tire. Pump it up again and you are done. See you in the next one.",
)


@dataclass(frozen=True)
class Talk:
    """Spoken text: samples (N,) at 16 kHz, and each sentence with its true start in seconds."""

    samples: Samples
    sentences: tuple[tuple[float, str], ...]


def talk(text: str, voice: str, speed: int, seed: int) -> Talk:
    """Speak a text sentence by sentence with pauses of 0.25 to 1 s."""
    rng = np.random.default_rng(seed)
    pieces: list[Samples] = [np.zeros(SAMPLE_RATE // 2, np.float32)]
    starts: list[tuple[float, str]] = []
    for sentence in re.findall(r"[^.!?]+[.!?]", text):
        starts.append((sum(map(len, pieces)) / SAMPLE_RATE, sentence.strip()))
        pieces.append(spoken(sentence, voice, speed))
        pause = int(SAMPLE_RATE * rng.uniform(0.25, 1.0))
        pieces.append(np.zeros(pause, np.float32))
    return Talk(np.concatenate(pieces), tuple(starts))


def spoken(sentence: str, voice: str, speed: int) -> Samples:
    """Speak one sentence with espeak-ng, silence at both ends cut off."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        command = ["espeak-ng", "-v", voice, "-s", str(speed), "-w", str(path), sentence]
        subprocess.run(command, check=True)
        samples = np.concatenate([block.samples for block in read_sound(path)])
    loud = np.flatnonzero(np.abs(samples) > 0.003)
    return samples[loud[0] : loud[-1] + 1]


def noisy(clean: Talk, decibels: float) -> Talk:
    """Add pink noise, `decibels` under the speech."""
    count = len(clean.samples)
    white = np.fft.rfft(np.random.default_rng(0).normal(size=count))
    frequency = np.maximum(np.arange(len(white)), 20)
    pink = np.fft.irfft(white / np.sqrt(frequency), count)
    scale = clean.samples.std() / pink.std() * 10 ** (-decibels / 20)
    return Talk((clean.samples + scale * pink).astype(np.float32), clean.sentences)


def blocks(samples: Samples) -> Iterator[AudioBlock]:
    """Cut samples into blocks of one second."""
    for first in range(0, len(samples), SAMPLE_RATE):
        yield AudioBlock(first / SAMPLE_RATE, samples[first : first + SAMPLE_RATE])
