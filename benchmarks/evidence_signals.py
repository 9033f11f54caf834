"""What else can be seen and heard in a clip, for benchmarks/evidence.py. Sounds by YAMNet, motion
that repeats itself or goes up and down, and EfficientNet-Lite0's pooled features."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.media import Frame, MediaReader, probe, read_frames, read_sound
from stepline.networks.weights import find_weights
from stepline.pipeline.pictures import VisualFeatures
from stepline.speech.vad import voice_probability
from stepline.vision import efficientnet

Array = npt.NDArray[Any]
Clip = dict[str, Array]  # what is known of a clip, arrays by name

# YAMNet: samples per second, s between patches, frames of a patch, bands of the spectrum
SAMPLE_RATE = 16_000
PATCH_STEP_SECONDS = 0.48
PATCH_FRAMES = 96
MEL_BANDS = 64
# The scale and the zero point of its 8-bit input, and of its output
INPUT_SCALE = 0.047938
INPUT_ZERO = 144
OUTPUT_SCALE = 0.756542
OUTPUT_ZERO = 190
AUDIO_CLASSES = 521
MOTION_FRAME_RATE = 8  # pictures per second in which motion repeats itself
CELL_PIXELS = 8
MIN_MOTION_HZ = 0.5
MAX_MOTION_HZ = 3.0
MOTION_WINDOW_SECONDS = 4.0


def sounds(samples: npt.NDArray[np.float32]) -> Array:
    """Return (N, 521): P(sound) of AudioSet's classes every 0.48 s, by YAMNet's log mel
    spectrum."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(find_weights("yamnet") / "model.onnx", options)
    # The power spectrum of 25 ms every 10 ms
    frames = np.lib.stride_tricks.sliding_window_view(samples, 400)[::160]
    hann_window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    spectrum = np.abs(np.fft.rfft(frames * hann_window, 512))
    # The network takes its logarithm in 8 bits.
    log_mel = np.log(spectrum @ _mel_bands() + 0.001)
    levels = log_mel / INPUT_SCALE + INPUT_ZERO
    patches = np.clip(np.round(levels), 0, 255).astype(np.uint8)
    outputs = []
    for start in range(0, len(patches) - PATCH_FRAMES + 1, PATCH_FRAMES // 2):
        patch = patches[None, None, start : start + PATCH_FRAMES]
        output = session.run(None, {"audio": patch})[0][0]
        outputs.append(output.astype(float))
    scores = np.array(outputs).reshape(-1, AUDIO_CLASSES)
    return 1 / (1 + np.exp(-OUTPUT_SCALE * (scores - OUTPUT_ZERO)))


def _mel_bands() -> Array:
    """Return the weight of each frequency in each mel band, (257, 64)."""
    mel = 1127 * np.log1p(np.fft.rfftfreq(512, 1 / SAMPLE_RATE) / 700)[:, None]
    lowest = 1127 * math.log1p(125 / 700)
    highest = 1127 * math.log1p(7500 / 700)
    edges = np.linspace(lowest, highest, MEL_BANDS + 2)
    low = edges[:-2]
    middle = edges[1:-1]
    high = edges[2:]
    rising = (mel - low) / (middle - low)
    falling = (high - mel) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling))


def repeated_motion(clip: Path, cuts: Array, seconds: int) -> Array:
    """Return (T, 2): how much of the vertical motion, where most moves, has one frequency of 0.5 to
    3 Hz. How much of all motion goes down or up."""
    reader = MediaReader(clip, frame_rate=MOTION_FRAME_RATE, frame_size=96, sound=False)
    frame_times = []
    planes = []
    for frame in reader:
        if isinstance(frame, Frame):
            frame_times.append(frame.time)
            planes.append(frame.image.mean(axis=2) / 255)
    times = np.array(frame_times)
    flow = _optical_flow(np.array(planes))
    motion = np.zeros((seconds, 2))
    for t in range(seconds):
        # A window around the second that crosses no cut
        middle = t + 0.5
        first = max([middle - MOTION_WINDOW_SECONDS / 2, *cuts[cuts <= middle]])
        last = min([middle + MOTION_WINDOW_SECONDS / 2, *cuts[cuts > middle]])
        is_inside = (times[1:] >= first + 0.1) & (times[1:] < last - 0.1)
        window = flow[:, is_inside]
        if window.shape[1] >= MOTION_FRAME_RATE:
            vertical = np.abs(window[1]).sum()
            total = np.abs(window).sum() + 1e-6
            motion[t] = _periodicity(window[1]), vertical / total
    return motion


def _optical_flow(grey: Array) -> Array:
    """Return (2, N, cells): the motion of each cell of planes (N + 1, H, W), right and down.

    Source: Lucas and Kanade 1981.
    """
    middle = (grey[1:] + grey[:-1]) / 2
    change = np.diff(grey, axis=0)
    down, right = np.gradient(middle, axis=(1, 2))
    xx = _cells(right * right) + 1e-4
    xy = _cells(right * down)
    yy = _cells(down * down) + 1e-4
    x = -_cells(right * change)
    y = -_cells(down * change)
    flow = np.stack([yy * x - xy * y, xx * y - xy * x])
    return flow / (xx * yy - xy * xy)


def _cells(planes: Array) -> Array:
    """Return (N, cells): the mean of each cell of planes (N, H, W)."""
    height, width = (side // CELL_PIXELS for side in planes.shape[1:])
    whole = planes[:, : height * CELL_PIXELS, : width * CELL_PIXELS]
    cells = whole.reshape(-1, height, CELL_PIXELS, width, CELL_PIXELS)
    return cells.mean(axis=(2, 4)).reshape(len(planes), -1)


def _periodicity(rows: Array) -> float:
    """Return the greatest share of the power of rows (N, cells) within 0.25 Hz of one frequency. 5
    % of the cells."""
    # Without the mean and the trend of each cell
    at = np.arange(len(rows)) - (len(rows) - 1) / 2
    level = rows - rows.mean(axis=0)
    level = level - np.outer(at, at @ level / (at @ at))
    # Bins of 1/8 Hz
    taper = np.hanning(len(rows))[:, None]
    power = np.abs(np.fft.rfft(level * taper, 64, axis=0)) ** 2
    frequency = np.fft.rfftfreq(64, 1 / MOTION_FRAME_RATE)
    power[frequency < MIN_MOTION_HZ / 2] = 0
    # The cells that move most
    cells = max(1, power.shape[1] // 20)
    most = np.argsort(-power.sum(axis=0))[:cells]
    line = power[:, most].sum(axis=1)
    band = np.flatnonzero((frequency >= MIN_MOTION_HZ) & (frequency <= MAX_MOTION_HZ))
    greatest = max(line[k - 2 : k + 3].sum() for k in band)
    return float(greatest / max(line.sum(), 1e-12))


def pooled(images: Sequence[npt.NDArray[np.uint8]]) -> Array:
    """Return (T, 1280) unit rows: EfficientNet-Lite0 before its classifier, of pictures (H, W,
    3)."""
    raw = efficientnet._load_state_dict(find_weights("efficientnet-lite0"))
    parts = []
    for part in efficientnet.architecture():
        parts.append([efficientnet._fold(conv, raw) for conv in part])
    no_classifier = (np.eye(1280, dtype=np.float32), np.zeros(1280, np.float32))
    network = efficientnet._compile(parts, no_classifier)
    rows = np.concatenate([network(image[None]) for image in images])
    unit_rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(unit_rows, dtype=np.float64)


def observed(clip: Path, visual: VisualFeatures, cache: Path) -> Clip:
    """Return what else is seen and heard of a clip, and the CPU seconds of each kind. From the
    cache where it is."""
    store = cache / f"{clip.stem}.evidence.npz"
    if not store.exists():
        sound = []
        if probe(clip).has_sound:
            sound = [block.samples for block in read_sound(clip)]
        silence = np.zeros(2 * SAMPLE_RATE, np.float32)
        samples = np.concatenate([*sound, silence])
        images = [frame.image for frame in read_frames(clip, 1.0, 224)]
        # Each kind of evidence, with its CPU time
        sound_start = time.process_time()
        scores = sounds(samples)
        motion_start = time.process_time()
        seconds = len(visual.cues.presenter)
        motion = repeated_motion(clip, np.array(visual.activity.cuts), seconds)
        look_start = time.process_time()
        rows = pooled(images)
        look_end = time.process_time()
        cpu = [
            motion_start - sound_start,
            look_start - motion_start,
            look_end - look_start,
            visual.end,
        ]
        np.savez(
            store,
            sounds=scores,
            voice=voice_probability(samples),
            moves=motion,
            pooled=rows,
            cpu=np.array(cpu),
        )
    arrays: Clip = {"presenter": visual.cues.presenter}
    with np.load(store) as saved:
        for name in saved.files:
            arrays[name] = saved[name]
    return arrays
