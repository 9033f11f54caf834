"""What WYS2's tables are made of: clips of simulated videos, with key-steps as people label them,
and the truth.

Letters: N clips, C width of the features.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from research.simulate import SimulatedVideo, SimulationSettings, stream
from research.simulate.narration import DROPPED_WORD, SAID_WORD
from research.simulate.scene import NO_INDEX
from research.simulate.settings import EMBEDDER_NAME
from stepline.records import Matrix, Span
from stepline.training.batches import Mask
from stepline.wys2.clips import ClipTextPair, clip_text_pair, narrated_clips, split_videos
from stepline.wys2.dataset import Array
from stepline.wys2.settings import ClipSettings

# fraction of the pronouns that resolution names. The simulated writer restores as many
RESOLVED = 0.9
OVERLAPPING = 16.0  # s of VideoCLIP's clips
CANDIDATES = 3  # of MIL-NCE; WYS2, section 4


@dataclass(frozen=True)
class SimulatedClip:
    """A clip.

    pair: 3 s, three candidate texts.
    overlapping: the same with 16 s.
    similarity, unresolved: cosine of narration and key-step after and before pronouns are
    resolved, NaN without a key-step.
    truth: it shows what is said. object: how clearly the object that is named is in view, -1 where
    none is named.
    """

    pair: ClipTextPair
    overlapping: ClipTextPair
    video: str
    similarity: float
    unresolved: float
    task: int
    truth: bool
    object: float


@dataclass(frozen=True)
class Clips:
    """N clips. What is known of them as arrays (N,)."""

    items: tuple[SimulatedClip, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def pairs(self) -> list[ClipTextPair]:
        """Clips of 3 s with their candidates."""
        return [item.pair for item in self.items]

    @property
    def videos(self) -> list[str]:
        """The video of each."""
        return [item.video for item in self.items]

    @property
    def truth(self) -> Mask:
        """Whether each shows what is said."""
        return np.array([item.truth for item in self.items], dtype=np.bool_)

    @property
    def tasks(self) -> npt.NDArray[np.int64]:
        """The task of each."""
        return np.array([item.task for item in self.items], dtype=np.int64)

    def cosine(self, *, resolved: bool = True) -> Array:
        """Return the cosine of each narration and its key-step, NaN without one."""
        return np.array(
            [item.similarity if resolved else item.unresolved for item in self.items],
            dtype=np.float64,
        )

    def where(self, chosen: Mask) -> "Clips":
        """Return the clips for which `chosen` (N,) is true."""
        return Clips(
            tuple(item for item, kept in zip(self.items, chosen.tolist(), strict=True) if kept)
        )


@dataclass(frozen=True)
class Wys2Corpus:
    """Labelled videos, split as the paper does, and unlabelled ones. `test` has as many shown clips
    as others."""

    train: Clips
    validation: Clips
    test: Clips
    unlabelled: Clips


@lru_cache(maxsize=1)
def wys2_corpus(seed: int, labelled: int, unlabelled: int) -> Wys2Corpus:
    """Return the clips of that many simulated videos with and without key-steps."""
    videos = stream(
        seed, SimulationSettings(videos=labelled + unlabelled), count=labelled + unlabelled
    )
    known = clips_of(islice(videos, labelled))
    parts = [
        known.where(np.array([video in part for video in known.videos]))
        for part in split_videos(known.videos, seed)
    ]
    return Wys2Corpus(parts[0], parts[1], balanced(parts[2], seed), clips_of(videos))


def balanced(clips: Clips, seed: int) -> Clips:
    """Return all clips that show what is said, and as many others."""
    kept = clips.truth
    others = np.flatnonzero(~kept)
    kept[
        np.random.default_rng(seed).choice(others, min(int(kept.sum()), len(others)), replace=False)
    ] = True
    return clips.where(kept)


def clips_of(videos: Iterable[SimulatedVideo]) -> Clips:
    """Return the clips of simulated videos, the truth among them."""
    return Clips(tuple(item for video in videos for item in _simulated_clips(video)))


def _simulated_clips(video: SimulatedVideo) -> Iterator[SimulatedClip]:
    # the words stand for vectors that know more
    settings = ClipSettings(candidates=CANDIDATES, resolve=False)
    features, vectors = video.features(), video.vectors("narration")
    shown = video.shown("narration")
    last = min(shown.shape[1], len(features.values)) - 1
    line = {text: row for row, text in enumerate(video.record.recipe)}
    steps, said, clear = (
        video.embeddings("recipe"),
        video.embeddings("narration"),
        resolved_embeddings(video),
    )
    for clip in narrated_clips(video.record, settings):
        row, middle = clip.sentence, clip.span.center
        second = min(int(middle), last)
        step = None if clip.key_step is None else steps[line[clip.key_step]]
        clip_id, texts = f"{video.id} {clip.span.start:.1f}", vectors[list(clip.candidates)]
        wide = Span(max(0.0, middle - OVERLAPPING / 2), middle + OVERLAPPING / 2)
        yield SimulatedClip(
            clip_text_pair(clip_id, features, clip.span, texts),
            clip_text_pair(clip_id, features, wide, texts),
            video.id,
            np.nan if step is None else float(clear[row] @ step),
            np.nan if step is None else float(said[row] @ step),
            video.task.number,
            bool(shown[row, second]),
            _object_in_view(video, row, features.values[second]),
        )


def resolved_embeddings(video: SimulatedVideo) -> Matrix:
    """Return the embeddings of the narration after most dropped objects were named."""
    rng = np.random.default_rng([video.world.seed, video.index, 3])
    lines = video.narration
    named = (lines.said_object == DROPPED_WORD) & (rng.random(len(lines)) < RESOLVED)
    clear = replace(lines, said_object=np.where(named, SAID_WORD, lines.said_object).astype(np.int8))
    return video.world.encoders[EMBEDDER_NAME].encode_texts(clear, video.world.domain, rng)


def _object_in_view(video: SimulatedVideo, row: int, seen: Matrix) -> float:
    """Return how much of the named object a feature row (C,) holds: what a detector that knows all
    objects says."""
    lines, world = video.narration, video.world
    if lines.object[row] == NO_INDEX or lines.said_object[row] != SAID_WORD:
        return -1.0
    return float(world.domain.objects[lines.object[row]] @ world.encoder(None).object @ seen)
