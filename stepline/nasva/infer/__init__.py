"""Placing texts with a trained network: how they fit each second, where they are shown, and whether at all.

loaded = load(path)                                        # the network, its space, its calibration
fit = fit_texts(loaded.aligner, features, vectors)         # cosines (K, T), in windows where the video is long
placing = place_steps(steps, fit, loaded.calibration)      # spans, at, score and status of each step
"""

from stepline.nasva.infer.align import Fit, align, fit_texts
from stepline.nasva.infer.load import Loaded, find_aligner, load
from stepline.nasva.infer.order import Chances, chances
from stepline.nasva.infer.placing import AlignerGrounding, Placing, ground_by_aligner, place_steps
from stepline.nasva.infer.shown import Calibration

__all__ = [
    "AlignerGrounding",
    "Calibration",
    "Chances",
    "Fit",
    "Loaded",
    "Placing",
    "align",
    "chances",
    "find_aligner",
    "fit_texts",
    "ground_by_aligner",
    "load",
    "place_steps",
]
