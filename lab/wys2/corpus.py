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

from lab.simulate import SimulatedVideo, SimulationSettings, stream
from lab.simulate.narration import DROPPED_WORD, SAID_WORD
from lab.simulate.scene import NO_INDEX
from lab.simulate.settings import EMBEDDER_NAME
from stepline.models.training.batches import Mask
from stepline.models.wys2.clips import ClipTextPair, cut_into_clips, make_feature_pair, split_videos
from stepline.models.wys2.dataset import Array
from stepline.models.wys2.settings import ClipSettings
from stepline.records import Matrix, Span

# fraction of the pronouns that resolution names. The simulated writer restores as many
RESOLVED_FRACTION = 0.9
OVERLAPPING_SECONDS = 16.0  # s of VideoCLIP's clips
CANDIDATE_TEXTS = 3  # of MIL-NCE; WYS2, section 4


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
        cosines = [item.similarity if resolved else item.unresolved for item in self.items]
        return np.array(cosines, dtype=np.float64)

    def where(self, mask: Mask) -> "Clips":
        """Return the clips for which `mask` (N,) is true."""
        return Clips(tuple(self.items[row] for row in np.flatnonzero(mask)))


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
    count = labelled + unlabelled
    videos = stream(seed, SimulationSettings(videos=count), count=count)
    labelled_clips = clips_of(islice(videos, labelled))
    parts = []
    for names in split_videos(labelled_clips.videos, seed):
        is_part = np.array([video in names for video in labelled_clips.videos])
        parts.append(labelled_clips.where(is_part))
    train, validation, test = parts
    return Wys2Corpus(train, validation, balanced(test, seed), clips_of(videos))


def balanced(clips: Clips, seed: int) -> Clips:
    """Return all clips that show what is said, and as many others."""
    mask = clips.truth
    others = np.flatnonzero(~mask)
    count = min(int(mask.sum()), len(others))
    rng = np.random.default_rng(seed)
    mask[rng.choice(others, count, replace=False)] = True
    return clips.where(mask)


def clips_of(videos: Iterable[SimulatedVideo]) -> Clips:
    """Return the clips of simulated videos, the truth among them."""
    return Clips(tuple(item for video in videos for item in _simulated_clips(video)))


def _simulated_clips(video: SimulatedVideo) -> Iterator[SimulatedClip]:
    # the words stand for vectors that know more
    settings = ClipSettings(candidates=CANDIDATE_TEXTS, resolve=False)
    features = video.features()
    vectors = video.vectors("narration")
    is_shown = video.shown("narration")
    last = min(is_shown.shape[1], len(features.values)) - 1

    # what the sentence encoder makes of key-steps and of the narration
    line = {text: row for row, text in enumerate(video.record.recipe)}
    steps = video.embeddings("recipe")
    unresolved = video.embeddings("narration")
    resolved = resolved_embeddings(video)

    for clip in cut_into_clips(video.record, settings):
        row = clip.sentence_index
        middle = clip.span.center
        second = min(int(middle), last)
        format_clip_id = f"{video.id} {clip.span.start:.1f}"
        texts = vectors[list(clip.candidate_sentences)]
        wide = Span(max(0.0, middle - OVERLAPPING_SECONDS / 2), middle + OVERLAPPING_SECONDS / 2)
        similarity = np.nan
        unresolved_similarity = np.nan
        if clip.key_step is not None:
            step = steps[line[clip.key_step]]
            similarity = float(resolved[row] @ step)
            unresolved_similarity = float(unresolved[row] @ step)
        yield SimulatedClip(
            pair=make_feature_pair(format_clip_id, features, clip.span, texts),
            overlapping=make_feature_pair(format_clip_id, features, wide, texts),
            video=video.id,
            similarity=similarity,
            unresolved=unresolved_similarity,
            task=video.task.number,
            truth=bool(is_shown[row, second]),
            object=_object_in_view(video, row, features.values[second]),
        )


def resolved_embeddings(video: SimulatedVideo) -> Matrix:
    """Return the embeddings of the narration after most dropped objects were named."""
    rng = np.random.default_rng([video.world.seed, video.index, 3])
    lines = video.narration
    is_resolved = rng.random(len(lines)) < RESOLVED_FRACTION
    is_named = (lines.said_object == DROPPED_WORD) & is_resolved
    said_object = np.where(is_named, SAID_WORD, lines.said_object).astype(np.int8)
    named_lines = replace(lines, said_object=said_object)
    encoder = video.world.encoders[EMBEDDER_NAME]
    return encoder.encode_texts(named_lines, video.world.domain, rng)


def _object_in_view(video: SimulatedVideo, row: int, features: Matrix) -> float:
    """Return how much of the named object a feature row (C,) holds: what a detector that knows all
    objects says."""
    lines = video.narration
    world = video.world
    if lines.object[row] == NO_INDEX or lines.said_object[row] != SAID_WORD:
        return -1.0
    meaning = world.domain.objects[lines.object[row]]
    return float(meaning @ world.encoder(None).object @ features)
