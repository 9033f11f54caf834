"""NaSVA: a trained network that finds where, and whether, each of K texts is shown in a video.

aligner = load_aligner(path)                                     # network, feature space, calibration
scores = score_texts(aligner.network, features, vectors)         # cosines (K, T)
placement = place_steps(steps, scores, aligner.calibration)      # span, best second, score and status of each step
"""
