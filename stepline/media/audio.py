"""Resamples decoded audio to blocks of one second in which every sample is at its true time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

SAMPLE_RATE = 16_000  # Hz. What Whisper and the voice detector hear
# by which time stamps may disagree with the samples counted. Muxers round to a few ms
MAX_STAMP_ERROR_SECONDS = 0.1

# peak of a second of mixed audio, below which its channels may have cancelled each other
MAX_QUIET_AMPLITUDE = 0.1
# energy of the channels' sum over that of their difference, or the other way round, -14 dB
MAX_CANCELLED_FRACTION = 0.04
MIN_LOUDNESS = 0.003  # root mean square of channels that cancel each other, -50 dB. Noise is below
COMPARED_FRAMES = 4  # of the 40 in a second
SAMPLE_STEP = 3  # samples of such a frame from one that is compared to the next
CHANNEL_SIGNS = np.array([[1.0], [-1.0]], np.float32)  # that invert the second channel


@dataclass(frozen=True)
class AudioBlock:
    """About one second of audio.

    Attributes:
        start: second of the first sample.
        samples: (N,) float32 mono at 16 kHz in [-1, 1].
    """

    start: float
    samples: Samples


class AudioTimeline:
    """Resamples decoded audio frames into blocks of about one second, each at its true time.

    Gaps become silence, and repeated audio is left out. Mono is the mean of two channels. If one
    channel is inverted, so that the mean vanishes, mono is half the difference of the channels.
    """

    def __init__(self, *, rate: int = SAMPLE_RATE, channels: int = 1) -> None:
        """Start a timeline at second 0.

        Args:
            rate: samples per second of the blocks.
            channels: number of channels of the blocks, 1 or 2.
        """
        self._rate = rate
        self._channels = channels
        self._resampler: Any = None
        self._origin: float | None = None  # s, time of the first sample
        self._yielded_count = 0  # samples in blocks already yielded
        self._waiting: list[Samples] = []  # resampled and not yet yielded
        self._waiting_count = 0  # samples of them
        self._expected_time = 0.0  # s, where the next frame starts if there is no hole
        self._format: tuple[Any, ...] = ()
        self._stereo_frames: list[Any] = []  # of two channels, from which the next block is made
        self._is_downmix = False  # of two channels to one
        self._is_inverted = False

    def add(self, time: float, frame: Any) -> Iterator[tuple[float, Samples]]:
        """Yield the blocks that a decoded frame completes.

        A block is (start in seconds, samples (channels, N)).

        Args:
            time: start of the frame in seconds.
            frame: audio frame of PyAV.
        """
        length = frame.samples / frame.sample_rate
        if time + length <= 0:
            return  # lies before the start of the video
        if self._origin is None:
            self._origin = max(0.0, time)
            self._expected_time = self._origin
        if time < self._expected_time - MAX_STAMP_ERROR_SECONDS:
            return  # repeats earlier audio
        audio_format = (frame.format.name, frame.layout.name, frame.sample_rate)
        if audio_format != self._format or time > self._expected_time + MAX_STAMP_ERROR_SECONDS:
            yield from self._restart(max(0.0, time))
            self._format = audio_format
            self._is_downmix = self._channels == 1 and frame.layout.nb_channels == 2
        frame.pts = None  # the resampler would fill holes by its own rule
        if self._is_downmix:
            self._stereo_frames.append(frame)
        if self._is_inverted:
            frame = _invert_channel(frame)
        for part in self._resampler.resample(frame):
            yield from self._queue(part.to_ndarray())
        self._expected_time += length

    def finish(self) -> Iterator[tuple[float, Samples]]:
        """Yield the last, shorter block as (start in seconds, samples), if any audio remains."""
        yield from self._flush_resampler()
        if self._waiting_count:
            yield self._next_block(self._waiting_count)

    def _restart(self, time: float) -> Iterator[tuple[float, Samples]]:
        """Yield the blocks of silence that fill the gap up to `time` (seconds), and start a new
        resampler there."""
        yield from self._flush_resampler()
        self._expected_time = max(self._expected_time, time)
        seconds = self._expected_time - (self._origin or 0.0)
        missing = round(seconds * self._rate) - self._yielded_count - self._waiting_count
        # One second at a time, so that a long hole takes no memory.
        for start in range(0, missing, self._rate):
            count = min(self._rate, missing - start)
            yield from self._queue(np.zeros((self._channels, count), np.float32))
        self._start_resampler()
        self._stereo_frames.clear()

    def _start_resampler(self) -> None:
        from av import AudioResampler

        layout = "mono" if self._channels == 1 else "stereo"
        self._resampler = AudioResampler(format="fltp", layout=layout, rate=self._rate)

    def _flush_resampler(self) -> Iterator[tuple[float, Samples]]:
        if self._resampler is not None and self._format:
            for part in self._resampler.resample(None):
                yield from self._queue(part.to_ndarray())

    def _queue(self, samples: Samples) -> Iterator[tuple[float, Samples]]:
        self._waiting.append(samples)
        self._waiting_count += samples.shape[1]
        while self._waiting_count >= self._rate:
            yield self._next_block(self._rate)

    def _next_block(self, count: int) -> tuple[float, Samples]:
        joined = np.concatenate(self._waiting, axis=1)
        if self._stereo_frames:
            if joined.max() < MAX_QUIET_AMPLITUDE and _do_channels_cancel(
                self._stereo_frames, self._is_inverted
            ):
                joined = self._switch_between_mean_and_difference(joined)
            del self._stereo_frames[:-2]  # The next block may hold the end of the last two.
        start = (self._origin or 0.0) + self._yielded_count / self._rate
        self._waiting = [joined[:, count:]]
        self._waiting_count -= count
        self._yielded_count += count
        clean = np.nan_to_num(joined[:, :count], nan=0.0, posinf=1.0, neginf=-1.0)
        return start, np.clip(clean, -1.0, 1.0)

    def _switch_between_mean_and_difference(self, joined: Samples) -> Samples:
        """Switch the mono mix between mean and difference of the two channels.

        Return the buffered samples, mixed in the new way.

        joined: (1, N) buffered samples in the old mix.
        """
        self._is_inverted = not self._is_inverted
        self._start_resampler()
        parts = [np.zeros_like(joined)]
        for frame in self._stereo_frames:
            if self._is_inverted:
                frame = _invert_channel(frame)
            for part in self._resampler.resample(frame):
                parts.append(part.to_ndarray())
        return np.concatenate(parts, axis=1)[:, -joined.shape[1] :]


def _stereo_samples(frame: Any, step: int = 1) -> Samples:
    """Return every step-th sample of both channels of a stereo frame, (2, N)."""
    samples = frame.to_ndarray()
    if samples.shape[0] == 1:  # packed
        samples = samples.reshape(-1, 2).T
    samples = samples[:, ::step]
    if samples.dtype.kind == "i":
        samples = samples / np.iinfo(samples.dtype).max
    return np.asarray(samples, np.float32)


def _invert_channel(frame: Any) -> Any:
    """Return a stereo frame with the sign of the second channel changed."""
    from av import AudioFrame

    samples = np.ascontiguousarray(_stereo_samples(frame) * CHANNEL_SIGNS)
    inverted = AudioFrame.from_ndarray(samples, format="fltp", layout="stereo")
    inverted.sample_rate = frame.sample_rate
    return inverted


def _do_channels_cancel(frames: Sequence[Any], is_inverted: bool) -> bool:
    """Return whether the two channels cancel each other in the mono mix.

    Args:
        frames: stereo frames of PyAV.
        is_inverted: whether the mix is the difference of the channels, not the mean.
    """
    energies = np.zeros(2)  # of the sum and of the difference of the channels
    count = 0
    step = max(1, len(frames) // COMPARED_FRAMES)
    # the first two may be of the block before
    first = 2 if len(frames) > COMPARED_FRAMES else 0
    for frame in frames[first::step]:
        left, right = _stereo_samples(frame, SAMPLE_STEP)
        for number, mix in enumerate((left + right, left - right)):
            energies[number] += float(mix @ mix)
        count += len(left)
    mixed_energy, other_energy = energies[::-1] if is_inverted else energies
    min_energy = count * (2 * MIN_LOUDNESS) ** 2
    return bool(other_energy > min_energy and mixed_energy < MAX_CANCELLED_FRACTION * other_energy)
