"""Random videos with texts, of the lengths that the speed of the grounding network is measured
at."""

from collections.abc import Iterator

import numpy as np

from stepline.models.training.batches import Batch, Sample, collate

FEATURE_WIDTH = 768


def sample(seconds: int, texts: int, seed: int = 0) -> Sample:
    """Return a random video whose texts are shown for 8 seconds each."""
    rng = np.random.default_rng(seed)
    positive = np.zeros((texts, seconds), bool)
    starts = rng.integers(0, seconds - 8, texts)
    for row, start in zip(positive, starts, strict=True):
        row[start : start + 8] = True
    rows = rng.standard_normal((seconds + texts, FEATURE_WIDTH), dtype=np.float32)
    video = rows[:seconds]
    text = rows[seconds:]
    return Sample(str(seed), video, text, positive, ordered=True)


def batch(size: int, seconds: int, texts: int) -> Batch:
    """Return a batch whose videos are between 80 % and all of the length, on average 90 %."""
    samples = []
    for seed, share in enumerate(np.linspace(0.8, 1.0, size)):
        length = round(seconds * share)
        samples.append(sample(length, texts, seed))
    return collate(samples)


def mixed_videos(count: int) -> list[Sample]:
    """Return videos of 60 to 1200 s with one text in 12 s, give or take a half, 5 to 100."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(60, 1201, count)
    text_counts = lengths / 12 * rng.uniform(0.5, 1.5, count)
    text_counts = np.clip(text_counts, 5, 100).astype(int)
    videos = []
    for seed in range(count):
        seconds = int(lengths[seed])
        texts = int(text_counts[seed])
        videos.append(sample(seconds, texts, seed))
    return videos


def shuffled(count: int) -> Iterator[tuple[int, ...]]:
    """Yield batches of 8 in random order, as the released loader does."""
    rng = np.random.default_rng(2)
    order = rng.permutation(count).tolist()
    for start in range(0, count, 8):
        yield tuple(order[start : start + 8])
