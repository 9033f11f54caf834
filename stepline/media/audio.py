"""Resamples decoded sound to blocks of one second in which every sample is at its true time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

SAMPLE_RATE = 16_000  # Hz. What Whisper and the voice detector hear
# by which time stamps may disagree with the samples counted. Muxers round to a few ms
MAX_STAMP_ERROR_SECONDS = 0.1

QUIET_PEAK = 0.1  # of a second of sound, under which its channels may have cancelled each other
# of the energy of their sum in that of their difference, or the other way round, -14 dB
MAX_CANCELLED_FRACTION = 0.04
MIN_LOUDNESS = 0.003  # root mean square of what may be cancelled, -50 dB. Noise is below
FRAMES_COMPARED = 4  # of the 40 in a second
SAMPLE_STEP = 3  # of whose samples one is looked at
CHANNEL_SIGNS = np.array([[1.0], [-1.0]], np.float32)  # that invert the second channel


@dataclass(frozen=True)
class AudioBlock:
    """About one second of sound: samples (N,) float32 mono at 16 kHz in [-1, 1], the first one at
    `start` seconds."""

    start: float
    samples: Samples


class AudioTimeline:
    """Resamples a stream into blocks of one second (channels, N) at `rate`. Gaps become silence.

    Each block has the time of its first sample. Repeated sound is left out. Mono is the mean of two
    channels, or half their difference where one of them is inverted and the mean vanishes.
    """

    def __init__(self, *, rate: int = SAMPLE_RATE, channels: int = 1) -> None:
        self._rate = rate
        self._channels = channels
        self._resampler: Any = None
        self._origin: float | None = None  # s, time of the first sample
        self._yielded = 0  # samples in blocks already yielded
        self._pieces: list[Samples] = []
        self._waiting = 0  # samples in _held
        self._expected = 0.0  # s, where the next frame starts if there is no hole
        self._format: tuple[Any, ...] = ()
        self._stereo: list[Any] = []  # frames of two channels that the next block is made of
        self._is_downmix = False  # of two channels to one
        self._is_inverted = False

    def take(self, time: float, frame: Any) -> Iterator[tuple[float, Samples]]:
        """Yield the blocks completed by a decoded frame that starts at `time` seconds."""
        length = frame.samples / frame.sample_rate
        if time + length <= 0:
            return  # lies before the start of the video
        if self._origin is None:
            self._origin = max(0.0, time)
            self._expected = self._origin
        if time < self._expected - MAX_STAMP_ERROR_SECONDS:
            return  # heard already
        audio_format = (frame.format.name, frame.layout.name, frame.sample_rate)
        if audio_format != self._format or time > self._expected + MAX_STAMP_ERROR_SECONDS:
            yield from self._restart(max(0.0, time))
            self._format = audio_format
            self._is_downmix = self._channels == 1 and frame.layout.nb_channels == 2
        frame.pts = None  # the resampler would fill holes by its own rule
        if self._is_downmix:
            self._stereo.append(frame)
        if self._is_inverted:
            frame = _inverted(frame)
        for piece in self._resampler.resample(frame):
            yield from self._add(piece.to_ndarray())
        self._expected += length

    def finish(self) -> Iterator[tuple[float, Samples]]:
        """Yield the remaining block after the last frame."""
        yield from self._drain()
        if self._waiting:
            yield self._block(self._waiting)

    def _restart(self, time: float) -> Iterator[tuple[float, Samples]]:
        """Fill with silence up to `time` and start a new resampler there."""
        yield from self._drain()
        self._expected = max(self._expected, time)
        seconds = self._expected - (self._origin or 0.0)
        missing = round(seconds * self._rate) - self._yielded - self._waiting
        # One second at a time, so that a long hole takes no memory.
        for start in range(0, missing, self._rate):
            count = min(self._rate, missing - start)
            silence = np.zeros((self._channels, count), np.float32)
            yield from self._add(silence)
        self._start_resampler()
        self._stereo.clear()

    def _start_resampler(self) -> None:
        from av import AudioResampler

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
        if self._stereo:
            if joined.max() < QUIET_PEAK and _is_cancelled(self._stereo, self._is_inverted):
                joined = self._switch_mono_mix(joined)
            del self._stereo[:-2]  # whose end the next block may hold
        start = (self._origin or 0.0) + self._yielded / self._rate
        self._pieces = [joined[:, count:]]
        self._waiting -= count
        self._yielded += count
        clean = np.nan_to_num(joined[:, :count], nan=0.0, posinf=1.0, neginf=-1.0)
        return start, np.clip(clean, -1.0, 1.0)

    def _switch_mono_mix(self, joined: Samples) -> Samples:
        """Switch between mean and difference as the mono mix. Return the samples mixed that way."""
        self._is_inverted = not self._is_inverted
        self._start_resampler()
        pieces = [np.zeros_like(joined)]
        for frame in self._stereo:
            if self._is_inverted:
                frame = _inverted(frame)
            for piece in self._resampler.resample(frame):
                pieces.append(piece.to_ndarray())
        return np.concatenate(pieces, axis=1)[:, -joined.shape[1] :]


def _channels_of(frame: Any, step: int = 1) -> Samples:
    """Return every step-th sample of both channels of a frame, (2, N)."""
    samples = frame.to_ndarray()
    if samples.shape[0] == 1:  # packed
        samples = samples.reshape(-1, 2).T
    samples = samples[:, ::step]
    if samples.dtype.kind == "i":
        samples = samples / np.iinfo(samples.dtype).max
    return np.asarray(samples, np.float32)


def _inverted(frame: Any) -> Any:
    """Return a frame with the second channel negated."""
    from av import AudioFrame

    samples = np.ascontiguousarray(_channels_of(frame) * CHANNEL_SIGNS)
    inverted = AudioFrame.from_ndarray(samples, format="fltp", layout="stereo")
    inverted.sample_rate = frame.sample_rate
    return inverted


def _is_cancelled(frames: Sequence[Any], is_inverted: bool) -> bool:
    """Return whether the two channels cancel each other in the mono mix."""
    sum_energy = 0.0
    difference_energy = 0.0
    count = 0
    step = max(1, len(frames) // FRAMES_COMPARED)
    # the first two may be of the block before
    first = 2 if len(frames) > FRAMES_COMPARED else 0
    for frame in frames[first::step]:
        channels = _channels_of(frame, SAMPLE_STEP)
        total = channels[0] + channels[1]
        difference = channels[0] - channels[1]
        sum_energy += float(total @ total)
        difference_energy += float(difference @ difference)
        count += len(total)
    mixed_energy = sum_energy
    other_energy = difference_energy
    if is_inverted:
        mixed_energy = difference_energy
        other_energy = sum_energy
    min_energy = count * (2 * MIN_LOUDNESS) ** 2
    return other_energy > min_energy and mixed_energy < MAX_CANCELLED_FRACTION * other_energy
