"""Placing texts with a trained network: how they fit each second, where they are shown, and whether at all.

loaded = load(path)                                        # the network, its space, its calibration
fit = fit_texts(loaded.aligner, features, vectors)         # cosines (K, T), in windows where the video is long
placing = place_steps(steps, fit, loaded.calibration)      # spans, at, score and status of each step
"""
