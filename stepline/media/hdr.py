"""Converts pictures of high dynamic range (PQ, HLG) to standard range, for models and pages.

Equation                                                       Source                   Here signal
to display light, in nits                               BT.2100, tables 4 and 5  light_of_signal
compression of the light that a screen of 100 nits cannot show BT.2390, section 5.4.1
compressed_light BT.2020 primaries to BT.709                                    BT.2087
TO_BT709 display light to signal                                        BT.1886
standard_picture
"""

import functools
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.float32]

# transfer characteristics, as of H.273
PQ_TRANSFER = 16
HLG_TRANSFER = 18

SCREEN_NITS = 100.0  # of the white of a screen of standard range
HLG_NITS = 1000.0  # of the screen that HLG is made for
HLG_GAMMA = 1.2  # of its system, at 1000 nits
# brightest light of a video that does not say its own: little of it is above diffuse white, 203
USUAL_PEAK_NITS = 300.0
PQ_NITS = 10_000.0
DISPLAY_GAMMA = 2.4
MASTERING_MAX_OFFSET = 72  # bytes of AVMasteringDisplayMetadata before its max_luminance
SIGNAL_LEVELS = 4096  # of 12 bits. Cameras record 10
LIGHT_LEVELS = 4096

TO_BT709 = np.array(
    [
        [1.6605, -0.5876, -0.0728],  # R
        [-0.1246, 1.1329, -0.0083],  # G
        [-0.0182, -0.1006, 1.1187],  # B
    ],
    np.float32,
)
BT2020_LUMINANCE = np.array([0.2627, 0.6780, 0.0593], np.float32)

# constants of PQ: BT.2100, table 4
PQ_M1 = 2610 / 16384
PQ_M2 = 2523 / 4096 * 128
PQ_C1 = 3424 / 4096
PQ_C2 = 2413 / 4096 * 32
PQ_C3 = 2392 / 4096 * 32
# of HLG: BT.2100, table 5
HLG_A = 0.17883277
HLG_B = 0.28466892
HLG_C = 0.55991073


def is_high_range(frame: Any) -> bool:
    """Return whether a decoded frame has high dynamic range."""
    return frame.color_trc in (PQ_TRANSFER, HLG_TRANSFER)


def standard_picture(frame: Any, pixels: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint8]:
    """Return a high-range frame in standard range, (H, W, 3) uint8.

    pixels: of the frame, (H, W, 3) uint16, RGB with BT.2020 primaries.
    """
    peak = peak_nits(frame)
    transfer = frame.color_trc
    table = _light_table(transfer)
    light = table[pixels >> 4]  # (H, W, 3) nits
    if transfer == HLG_TRANSFER:
        scene = light / np.float32(HLG_NITS)
        luminance = scene @ BT2020_LUMINANCE  # (H, W)
        gain = np.power(luminance, np.float32(HLG_GAMMA - 1))
        light *= gain[..., None]
    light = light @ TO_BT709.T
    display_fraction = np.clip(light / np.float32(peak), 0.0, 1.0)
    # the square root has about as many levels in the dark as the eye
    levels = np.sqrt(display_fraction) * (LIGHT_LEVELS - 1)
    picture = _picture_table(peak)[levels.astype(np.uint16)]
    return np.asarray(picture)


def peak_nits(frame: Any) -> float:
    """Return the peak luminance in a video's metadata, at least that of a standard screen."""
    peak = USUAL_PEAK_NITS
    for data in frame.side_data:
        name = data.type.name
        if name == "CONTENT_LIGHT_LEVEL":
            content = bytes(data)
            (brightest,) = struct.unpack_from("=I", content)
            if brightest:
                return _within_pq(brightest)
        elif name == "MASTERING_DISPLAY_METADATA":
            content = bytes(data)
            fraction = struct.unpack_from("=ii", content, MASTERING_MAX_OFFSET)
            if min(fraction) > 0:
                numerator, denominator = fraction
                peak = _within_pq(numerator / denominator)
    return peak


def _within_pq(nits: float) -> float:
    """Return luminance clipped to the range from a standard screen to the PQ maximum, in nits."""
    return float(np.clip(nits, SCREEN_NITS, PQ_NITS))


def copy_colours(frame: Any, context: Any) -> None:
    """Make an encoder keep the colours of a high-range frame: 10 bits per sample, and colour tags."""
    context.pix_fmt = "yuv420p10le"
    context.color_primaries = frame.color_primaries
    context.color_trc = frame.color_trc
    context.colorspace = frame.colorspace
    context.color_range = frame.color_range


def rotate_high_range(frame: Any, turns: int) -> Any:
    """Return a yuv420p10le frame rotated counter-clockwise by quarter turns, with its colour tags.

    The planes are rotated directly, since 8-bit RGB would not hold the colours.
    """
    import av

    height = frame.height  # even, as the width
    width = frame.width
    # (3/2 H, W): below the plane of brightness two of a quarter of its size, of colour
    samples = frame.to_ndarray()
    brightness = samples[:height]
    colours = samples[height:].reshape(2, height // 2, width // 2)
    planes = []
    for plane in (brightness, *colours):
        planes.append(np.rot90(plane, turns).reshape(-1))
    if turns % 2:
        width = height
    stacked = np.concatenate(planes)
    stacked = stacked.reshape(-1, width)
    stacked = np.ascontiguousarray(stacked)
    turned = av.VideoFrame.from_ndarray(stacked, format="yuv420p10le")
    turned.colorspace = frame.colorspace
    turned.color_range = frame.color_range
    turned.color_trc = frame.color_trc
    turned.color_primaries = frame.color_primaries
    return turned


def light_of_signal(signal: Pixels, transfer: int) -> Pixels:
    """Return the light of a signal in [0, 1]: display light in nits (PQ), scene light times 1000
    (HLG).
    """
    if transfer == HLG_TRANSFER:
        linear_part = signal**2 / 3
        exponent = (signal - HLG_C) / HLG_A
        curved_part = (np.exp(exponent) + HLG_B) / 12
        return np.asarray(HLG_NITS * np.where(signal <= 0.5, linear_part, curved_part), np.float32)
    root = np.power(signal, 1 / PQ_M2)
    light = np.power(np.maximum(root - PQ_C1, 0.0) / (PQ_C2 - PQ_C3 * root), 1 / PQ_M1)
    return np.asarray(PQ_NITS * light, np.float32)


def pq_signal(nits: Pixels | float) -> Pixels:
    """Return the PQ signal of a luminance in nits."""
    root = np.power(np.asarray(nits, np.float64) / PQ_NITS, PQ_M1)
    signal = np.power((PQ_C1 + PQ_C2 * root) / (1 + PQ_C3 * root), PQ_M2)
    return np.asarray(signal, np.float32)


def compressed_light(nits: Pixels, peak: float) -> Pixels:
    """Tone-map luminance of up to `peak` nits to at most SCREEN_NITS by a spline.

    Dark tones stay as they are. Source: BT.2390, section 5.4.1, with black at 0.
    """
    if peak <= SCREEN_NITS:
        return np.minimum(nits, np.float32(SCREEN_NITS))
    whole = float(pq_signal(peak))
    limit = float(pq_signal(SCREEN_NITS)) / whole
    signal = np.minimum(pq_signal(nits) / whole, 1.0)
    knee = 1.5 * limit - 0.5
    t = (signal - knee) / (1 - knee)
    spline = (2 * t**3 - 3 * t**2 + 1) * knee
    spline += (t**3 - 2 * t**2 + t) * (1 - knee)
    spline += (3 * t**2 - 2 * t**3) * limit
    compressed = np.where(signal < knee, signal, spline)
    compressed = np.asarray(compressed * whole, np.float32)
    return light_of_signal(compressed, PQ_TRANSFER)


@functools.cache
def _light_table(transfer: int) -> Pixels:
    return light_of_signal(_fractions(SIGNAL_LEVELS), transfer)


@functools.lru_cache(maxsize=16)
def _picture_table(peak: float) -> npt.NDArray[np.uint8]:
    """Return the 8-bit signal of each level of light."""
    light = compressed_light(_fractions(LIGHT_LEVELS) ** 2 * np.float32(peak), peak)
    light /= np.float32(SCREEN_NITS)
    levels = np.rint(255 * np.power(light, 1 / DISPLAY_GAMMA))
    return np.asarray(levels, np.uint8)


def _fractions(count: int) -> Pixels:
    """Return equal steps from 0 to 1, (count,)."""
    return np.arange(count, dtype=np.float32) / np.float32(count - 1)
