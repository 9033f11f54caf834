"""NaSVA: texts placed in a video by a trained network: how they fit each second, where they are
shown, whether at all.

loaded = load_aligner(path)                                 # the network, its feature space, its calibration
scores = score_texts(loaded.aligner, features, vectors)     # cosines (K, T), in windows where the video is long
placed = place_steps(steps, scores, loaded.calibration)     # spans, at, score and status of each step
"""
