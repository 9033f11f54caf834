"""Videos that came before: the same file, the same speech, or the same pictures encoded once more.

Each video becomes a signature of fixed size; only those that share a bucket are compared, so that a million videos
cost no million squares. The random numbers are fixed, so that the same videos give the same answer.

    words       MinHash (Broder 1997) of the runs of three words; 16 bands of 4 make the buckets
    pictures    the means of 8 parts of the video, 8 x 8 grey each; 16 bands of 12 random planes make the buckets
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.stage_settings import GatherSettings
from stepline.records import Matrix, Transcript

COPY, SPOKEN, SEEN = "it is a copy of {}", "it says the same as {}", "it shows the same as {}"

HASHES, BANDS = 64, 16
PARTS, SIDE = 8, 8
PLANES = 12  # a band of pictures
FEW_RUNS = 8  # runs of words below which speech says nothing about likeness
OTHER_WORDS = 0.5  # share of common runs below which two videos that look alike are two
SLACK = 0.02  # share by which two encodings of one video may differ in length, and half a second
COMPARED = 50  # videos of a bucket that one is compared with: black pictures would fill a single one
PRIME = (1 << 31) - 1

Hashes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Signature:
    """What tells a video from others. words: (64,) or None where hardly anything is said. look: (8, 64) or None."""

    id: str
    duration: float
    digest: str | None
    words: Hashes | None
    look: Matrix | None


class Duplicates:
    """Takes videos in the order of their ids, and tells of each which earlier one it is the same as, if any."""

    def __init__(self, settings: GatherSettings) -> None:
        rng = np.random.default_rng(2008)
        self._settings = settings
        self._factors = rng.integers(1, PRIME, size=(2, HASHES), dtype=np.int64)
        self._planes = rng.standard_normal((BANDS * PLANES, PARTS * SIDE * SIDE)).astype(np.float32)
        self._kept: list[Signature] = []
        self._digests: dict[str, str] = {}
        self._buckets: dict[tuple[str, int, bytes], list[int]] = {}

    def sign(
        self, id: str, duration: float, digest: str | None, transcript: Transcript, looks: Matrix | None
    ) -> Signature:
        """Return a video's signature. looks: (T, 192) thumbnails of 8 x 8 RGB, NaN where there is none, or None."""
        return Signature(id, duration, digest, self._minhash(transcript), look_of(looks))

    def reason(self, video: Signature) -> str | None:
        """Return why a video is one that came before, or None, and remember it."""
        if video.digest is not None and video.digest in self._digests:
            return COPY.format(self._digests[video.digest])
        places = self._places(video)
        for place in places:
            for number in self._buckets.get(place, ())[:COMPARED]:
                found = alike(self._kept[number], video, self._settings)
                if found is not None:
                    return found.format(self._kept[number].id)
        for place in places:
            self._buckets.setdefault(place, []).append(len(self._kept))
        if video.digest is not None:
            self._digests[video.digest] = video.id
        self._kept.append(video)
        return None

    def _minhash(self, transcript: Transcript) -> Hashes | None:
        words = [word for one in transcript.sentences for word in re.findall(r"\w+", one.text.lower())]
        length = self._settings.run
        runs = {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}
        if len(runs) < FEW_RUNS:
            return None
        coded = np.array(sorted(zlib.crc32(run.encode()) % PRIME for run in runs), dtype=np.int64)
        hashed = (self._factors[0] * coded[:, None] + self._factors[1]) % PRIME  # (runs, 64)
        least: Hashes = hashed.min(axis=0)
        return least

    def _places(self, video: Signature) -> list[tuple[str, int, bytes]]:
        found: list[tuple[str, int, bytes]] = []
        if video.words is not None and self._settings.same_words < 1:
            found += [("words", band, part.tobytes()) for band, part in enumerate(video.words.reshape(BANDS, -1))]
        if video.look is not None and self._settings.same_picture > 0:
            middle = video.look - video.look.mean()
            signs = (self._planes @ middle.ravel() > 0).reshape(BANDS, PLANES)
            found += [("look", band, np.packbits(part).tobytes()) for band, part in enumerate(signs)]
        return found


def alike(one: Signature, other: Signature, settings: GatherSettings) -> str | None:
    """Return how two videos are the same, as a reason that names the first; None where they are not."""
    if abs(one.duration - other.duration) > max(0.5, SLACK * max(one.duration, other.duration)):
        return None
    common = None
    if one.words is not None and other.words is not None:
        common = float((one.words == other.words).mean())
        if settings.same_words < 1 and common >= settings.same_words:
            return SPOKEN
    looked = one.look is not None and other.look is not None and settings.same_picture > 0
    if not looked or (common is not None and common < OTHER_WORDS):
        return None
    apart = float(np.abs(np.asarray(one.look) - np.asarray(other.look)).mean())
    return SEEN if apart <= settings.same_picture else None


def look_of(looks: Matrix | None) -> Matrix | None:
    """Return (8, 64): the mean grey thumbnail of each eighth of a video, None where too little was seen."""
    if looks is None or looks.shape[1:] != (3 * SIDE * SIDE,):
        return None
    grey = looks.reshape(len(looks), SIDE * SIDE, 3).mean(axis=2)  # (T, 64)
    grey = grey[np.isfinite(grey).all(axis=1)]
    if len(grey) < PARTS:
        return None
    parts: Sequence[Matrix] = np.array_split(grey, PARTS)
    return np.stack([part.mean(axis=0) for part in parts]).astype(np.float32)
