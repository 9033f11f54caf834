"""One plugin of each kind: pip install examples/plugin, then

stepline steps v.mp4 --format csv --writer every-sentence --backbone colours --set
asr.recogniser=sound
"""

import csv
import io
import zlib

import numpy as np

from stepline.outputs import Output
from stepline.records import Span, Step, Word
from stepline.speech.audio_windows import WindowTranscript
from stepline.writing import WrittenSteps


def _csv(record, extras):
    """Return a line a step: its number, status, first and last second, and text."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for number, step in enumerate(record.steps, start=1):
        span = step.spans[0] if step.spans else None
        writer.writerow([number, step.status, span and span.start, span and span.end, step.text])
    return lines.getvalue()


# the record alone gives the text, so an earlier run's is known by it
CSV = Output(".csv", _csv, remade=True)


def write_every_sentence(transcript, settings):
    """Return every sentence as a step, as it was said."""
    rows = enumerate(transcript.sentences)
    return WrittenSteps(
        tuple(Step(id=str(n + 1), text=s.text, said=s.span, sources=(n,)) for n, s in rows)
    )


class SoundRecogniser:
    """Hears that somebody speaks, not what: the word "speech" a window."""

    name = "sound"
    at_once = 1

    def __init__(self, settings):
        self.language = settings.language or "en"

    def read(self, window, *, beam=None):
        """Return what is said in the window."""
        if window.voice_probabilities.max(initial=0.0) < 0.5:
            return WindowTranscript(())
        return WindowTranscript(
            (Word(text=" Speech.", span=Span(window.start, window.end), confidence=1.0),), "en", 0.0
        )

    def read_many(self, windows):
        """Return what is said in each window."""
        return [self.read(window) for window in windows]


class ColourBackbone:
    """Sees the mean colours of the four quarters of a picture; texts lie in its space by their
    letters alone."""

    name = "colours"
    dim = 13

    def __init__(self, settings):
        pass

    def encode_images(self, pictures):
        """Return (B, D) float32 unit rows for uint8 RGB pictures (B, H, W, 3)."""
        halves = [np.array_split(half, 2, axis=2) for half in np.array_split(pictures, 2, axis=1)]
        means = [quarter.mean(axis=(1, 2)) for half in halves for quarter in half]
        return self._unit(np.concatenate(means, axis=1))

    def encode_texts(self, texts):
        """Return (K, D) float32 unit rows."""
        seeds = [zlib.crc32(text.encode()) for text in texts]
        return self._unit(
            np.array([np.random.default_rng(seed).random(12) for seed in seeds]).reshape(-1, 12)
        )

    @staticmethod
    def _unit(rows):
        rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
