"""Decoded sound resampled to blocks of a second in which every sample stands at its true time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

SAMPLE_RATE = 16_000  # Hz; what Whisper and the voice detector hear
MAX_STAMP_ERROR_SECONDS = (
    0.1  # s by which time stamps may disagree with the samples counted; muxers round to a few ms
)


@dataclass(frozen=True)
class AudioBlock:
    """About one second of sound: samples (N,) float32 mono at 16 kHz in [-1, 1], the first one at
    `start` seconds."""

    start: float
    samples: Samples


class AudioTimeline:
    """Resamples a stream into blocks of one second (channels, N) at `rate`; holes become silence,
    repeats are left out.

    Every block comes with the time of its first sample.
    """

    def __init__(self, *, rate: int = SAMPLE_RATE, channels: int = 1) -> None:
        self._rate, self._channels = rate, channels
        self._resampler: Any = None
        self._origin: float | None = None  # s, time of the first sample
        self._yielded = 0  # samples in blocks already yielded
        self._pieces: list[Samples] = []
        self._waiting = 0  # samples in _held
        self._expected = 0.0  # s, where the next frame starts if there is no hole
        self._format: tuple[Any, ...] = ()

    def take(self, time: float, frame: Any) -> Iterator[tuple[float, Samples]]:
        """Yield the blocks that are full once a decoded frame that starts at `time` s has come."""
        length = frame.samples / frame.sample_rate
        if time + length <= 0:
            return  # lies before the start of the video
        if self._origin is None:
            self._origin = self._expected = max(0.0, time)
        if time < self._expected - MAX_STAMP_ERROR_SECONDS:
            return  # heard already
        audio_format = (frame.format.name, frame.layout.name, frame.sample_rate)
        if audio_format != self._format or time > self._expected + MAX_STAMP_ERROR_SECONDS:
            yield from self._restart(max(0.0, time))
            self._format = audio_format
        frame.pts = None  # the resampler would mend holes by its own rule
        for piece in self._resampler.resample(frame):
            yield from self._add(piece.to_ndarray())
        self._expected += length

    def finish(self) -> Iterator[tuple[float, Samples]]:
        """Yield what is left when no frame follows."""
        yield from self._drain()
        if self._waiting:
            yield self._block(self._waiting)

    def _restart(self, time: float) -> Iterator[tuple[float, Samples]]:
        """Fill with silence up to `time` and start a new resampler there."""
        from av import AudioResampler

        yield from self._drain()
        self._expected = max(self._expected, time)
        missing = (
            round((self._expected - (self._origin or 0.0)) * self._rate)
            - self._yielded
            - self._waiting
        )
        for start in range(0, missing, self._rate):
            yield from self._add(
                np.zeros((self._channels, min(self._rate, missing - start)), np.float32)
            )
        layout = "mono" if self._channels == 1 else "stereo"
        self._resampler = AudioResampler(format="fltp", layout=layout, rate=self._rate)

    def _drain(self) -> Iterator[tuple[float, Samples]]:
        if self._resampler is not None and self._format:
            for piece in self._resampler.resample(None):
                yield from self._add(piece.to_ndarray())

    def _add(self, samples: Samples) -> Iterator[tuple[float, Samples]]:
        self._pieces.append(samples)
        self._waiting += samples.shape[1]
        while self._waiting >= self._rate:
            yield self._block(self._rate)

    def _block(self, count: int) -> tuple[float, Samples]:
        joined = np.concatenate(self._pieces, axis=1)
        start = (self._origin or 0.0) + self._yielded / self._rate
        self._pieces = [joined[:, count:]]
        self._waiting -= count
        self._yielded += count
        clean = np.nan_to_num(joined[:, :count], nan=0.0, posinf=1.0, neginf=-1.0)
        return start, np.clip(clean, -1.0, 1.0)
