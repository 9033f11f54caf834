"""Converts frames of high dynamic range (PQ, HLG) to standard range, for models, pages and clips.

Equation                                                        Source                   Code
signal to display light, in nits                                BT.2100, tables 4 and 5  signal_to_light
compression of light that a screen of 100 nits cannot show      BT.2390, section 5.4.1   tone_map_luminance
BT.2020 primaries to BT.709                                     BT.2087                  TO_BT709
display light to signal                                         BT.1886                  tone_map_image
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

# transfer characteristics, as of H.273
PQ_TRANSFER = 16
HLG_TRANSFER = 18

SCREEN_NITS = 100.0  # of the white of a screen of standard range
HLG_NITS = 1000.0  # of the screen that HLG is made for
HLG_GAMMA = 1.2  # of its system, at 1000 nits
# Light above it is cut. Little of a video is above diffuse white, 203 nits.
PEAK_NITS = 300.0
PQ_NITS = 10_000.0
DISPLAY_GAMMA = 2.4
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


def is_hdr(frame: Any) -> bool:
    """Return whether a decoded frame has high dynamic range (PQ or HLG)."""
    return frame.color_trc in (PQ_TRANSFER, HLG_TRANSFER)


def tone_map_image(pixels: npt.NDArray[np.uint16], transfer: int) -> npt.NDArray[np.uint8]:
    """Convert an image of high dynamic range to standard range, (H, W, 3) uint8 RGB.

    Args:
        pixels: (H, W, 3) uint16, RGB with BT.2020 primaries.
        transfer: transfer function of the pixels, PQ_TRANSFER or HLG_TRANSFER.
    """
    light = _light_table(transfer)[pixels >> 4]  # (H, W, 3) nits
    if transfer == HLG_TRANSFER:
        luminance = (light / np.float32(HLG_NITS)) @ BT2020_LUMINANCE  # (H, W)
        light *= np.power(luminance, np.float32(HLG_GAMMA - 1))[..., None]
    light = light @ TO_BT709.T
    peak_fraction = np.clip(light / np.float32(PEAK_NITS), 0.0, 1.0)
    # The square root distributes its levels over the dark about as the eye does.
    levels = np.sqrt(peak_fraction) * (LIGHT_LEVELS - 1)
    return np.asarray(_sdr_signal_table()[levels.astype(np.uint16)])


def signal_to_light(signal: Floats, transfer: int) -> Floats:
    """Return the light that a video signal encodes, in the shape of the signal: in nits for PQ,
    scene light times 1000 for HLG.

    Args:
        signal: values in [0, 1], of any shape.
        transfer: transfer function, PQ_TRANSFER or HLG_TRANSFER.
    """
    if transfer == HLG_TRANSFER:
        linear_part = signal**2 / 3
        curved_part = (np.exp((signal - HLG_C) / HLG_A) + HLG_B) / 12
        light = HLG_NITS * np.where(signal <= 0.5, linear_part, curved_part)
    else:
        root = np.power(signal, 1 / PQ_M2)
        base = np.maximum(root - PQ_C1, 0.0) / (PQ_C2 - PQ_C3 * root)
        light = PQ_NITS * np.power(base, 1 / PQ_M1)
    return np.asarray(light, np.float32)


def pq_signal(nits: Floats | float) -> Floats:
    """Return the PQ signal in [0, 1] that encodes a luminance in nits."""
    root = np.power(np.asarray(nits, np.float64) / PQ_NITS, PQ_M1)
    signal = np.power((PQ_C1 + PQ_C2 * root) / (1 + PQ_C3 * root), PQ_M2)
    return np.asarray(signal, np.float32)


def tone_map_luminance(nits: Floats) -> Floats:
    """Return luminances tone-mapped by a spline, in the shape of the input: from at most PEAK_NITS
    to at most SCREEN_NITS, in nits.

    Dark tones are unchanged. Source: BT.2390, section 5.4.1, with black at 0.
    """
    peak = float(pq_signal(PEAK_NITS))
    limit = float(pq_signal(SCREEN_NITS)) / peak
    signal = np.minimum(pq_signal(nits) / peak, 1.0)
    knee = 1.5 * limit - 0.5
    t = (signal - knee) / (1 - knee)
    spline = (2 * t**3 - 3 * t**2 + 1) * knee
    spline += (t**3 - 2 * t**2 + t) * (1 - knee)
    spline += (3 * t**2 - 2 * t**3) * limit
    compressed = np.where(signal < knee, signal, spline) * peak
    return signal_to_light(np.asarray(compressed, np.float32), PQ_TRANSFER)


@functools.cache
def _light_table(transfer: int) -> Floats:
    """Return the light of each level of the signal, as `signal_to_light` defines it."""
    return signal_to_light(_equal_steps(SIGNAL_LEVELS), transfer)


@functools.cache
def _sdr_signal_table() -> npt.NDArray[np.uint8]:
    """Return the 8-bit signal of each level of light."""
    light = tone_map_luminance(_equal_steps(LIGHT_LEVELS) ** 2 * np.float32(PEAK_NITS))
    levels = 255 * np.power(light / np.float32(SCREEN_NITS), 1 / DISPLAY_GAMMA)
    return np.asarray(np.rint(levels), np.uint8)


def _equal_steps(count: int) -> Floats:
    """Return `count` equally spaced numbers from 0 to 1, (count,)."""
    return np.arange(count, dtype=np.float32) / np.float32(count - 1)
