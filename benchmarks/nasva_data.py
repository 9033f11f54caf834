"""Random videos with texts, of the lengths that the speed of the grounding network is measured
at."""

from collections.abc import Iterator

import numpy as np

from stepline.training.batches import Batch, Sample, collate

WIDTH = 768


def sample(seconds: int, texts: int, seed: int = 0) -> Sample:
    """Return a random video whose texts are shown for 8 seconds each."""
    chance = np.random.default_rng(seed)
    positive = np.zeros((texts, seconds), bool)
    for row, start in zip(positive, chance.integers(0, seconds - 8, texts), strict=True):
        row[start : start + 8] = True
    rows = chance.standard_normal((seconds + texts, WIDTH), dtype=np.float32)
    return Sample(str(seed), rows[:seconds], rows[seconds:], positive, ordered=True)


def batch(size: int, seconds: int, texts: int) -> Batch:
    """Return a batch whose videos are between 80 % and all of the length, on average 90 %."""
    shares = np.linspace(0.8, 1.0, size)
    return collate(
        [sample(round(seconds * share), texts, seed) for seed, share in enumerate(shares)]
    )


def mixed_videos(count: int) -> list[Sample]:
    """Return videos of 60 to 1200 s with one text in 12 s, give or take a half, 5 to 100."""
    chance = np.random.default_rng(1)
    lengths = chance.integers(60, 1201, count)
    texts = np.clip(lengths / 12 * chance.uniform(0.5, 1.5, count), 5, 100).astype(int)
    return [
        sample(int(t), int(k), seed) for seed, (t, k) in enumerate(zip(lengths, texts, strict=True))
    ]


def shuffled(count: int) -> Iterator[tuple[int, ...]]:
    """Yield batches of 8 in random order, as the released loader does."""
    order = np.random.default_rng(2).permutation(count).tolist()
    yield from (tuple(order[start : start + 8]) for start in range(0, count, 8))
