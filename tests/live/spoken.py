"""A speaker that tests make: words at known times, sound that is loud while they are said, and who
hears them."""

import random

import numpy as np

from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.records import Span, Word
from stepline.speech.audio_windows import FRAME_SAMPLES, WindowTranscript


def speak(text, *, start=0.5, length=0.3, pause=1.0):
    """Words of 0.3 s with 0.1 s between them; behind a full stop a pause."""
    words, second = [], start
    for word in text.split():
        span = Span(round(second, 3), round(second + length, 3))
        words.append(Word(text=f" {word}", span=span, confidence=0.9))
        second += length + (pause if word[-1] in ".!?" else 0.1)
    return words


def sound(words, seconds, *, begin=0.0):
    """Blocks of a second: loud while a word is said, else silent."""
    samples = np.zeros(round(seconds * SAMPLE_RATE), np.float32)
    for word in words:
        samples[round(word.span.start * SAMPLE_RATE) : round(word.span.end * SAMPLE_RATE)] = 0.5
    count = range(round(begin), len(samples) // SAMPLE_RATE)
    return [AudioBlock(float(n), samples[n * SAMPLE_RATE : (n + 1) * SAMPLE_RATE]) for n in count]


def loudness(samples):
    """P(voice) of each frame, as the detector would say of this sound."""
    padded = np.pad(np.abs(samples), (0, -len(samples) % FRAME_SAMPLES)).reshape(-1, FRAME_SAMPLES)
    return (padded.max(1) > 0.1).astype(np.float32)


class Hearer:
    """Reads the words of a window; of the last `unsure` seconds it makes others, or none, each time
    anew."""

    def __init__(self, words, *, unsure=0.8, seed=0, jitter=0.0):
        self.words, self.unsure, self.jitter = words, unsure, jitter
        self.random = random.Random(seed)
        self.windows = []

    def __call__(self, window):
        self.windows.append(window)
        heard = []
        for word in self.words:
            if word.span.end <= window.start + 0.15 or word.span.start >= window.end - 0.1:
                continue
            if word.span.end > window.end - self.unsure and self.random.random() < 0.7:
                if self.random.random() < 0.3:
                    continue
                other = self.random.choice(["oh", "yes", "the", "cut"])
                word = word.model_copy(update={"text": f" {other}"})
            shift = self.random.uniform(-self.jitter, self.jitter)
            start = max(window.start, word.span.start + shift)
            span = Span(start, max(start + 0.05, word.span.end + shift))
            heard.append(word.model_copy(update={"span": span}))
        return WindowTranscript(tuple(heard), "en", -0.2)
