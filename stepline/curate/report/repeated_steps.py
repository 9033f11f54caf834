"""Near-duplicates in a dataset: steps that say the same in several videos, and videos that are made
of the same steps."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from stepline.text_base.deduplicate import near_duplicates
from stepline.text_base.near_duplicates import sketch

MIN_TEXT_LIKENESS = 0.7  # Jaccard likeness of word pairs from which two steps say the same
MIN_VIDEO_LIKENESS = 0.6  # of two videos' sets of steps, from which they are near-duplicates
MAX_SHARING_VIDEOS = 50  # that share a step, beyond which it does not show that they are copies
MIN_VIDEO_STEPS = 3  # of a video that can be called a copy
SORT_BYTES = 256 << 20  # of memory to sort hashes in


@dataclass(frozen=True)
class RepeatedText:
    """Steps that say the same: the earliest wording, its videos, and the number of other
    wordings."""

    text: str
    videos: int
    wordings: int


@dataclass(frozen=True)
class RepeatedSteps:
    """Near-duplicates among `videos` and `steps`; groups of videos, each sorted, the largest
    first."""

    videos: int
    steps: int
    repeated: int  # steps whose text is in another video too
    texts: tuple[RepeatedText, ...]  # by the number of videos
    groups: tuple[tuple[str, ...], ...]


def find_repeated_steps(steps: Mapping[str, Sequence[str]]) -> RepeatedSteps:
    """Return the near-duplicates among videos (id -> texts of its steps)."""
    owners = []
    texts: list[str] = []
    for video, own in steps.items():
        owners += [video] * len(own)
        texts += own
    if not texts:
        return RepeatedSteps(len(steps), 0, 0, (), ())

    # Rows of alike texts share the row of the first of them.
    first_rows = near_duplicates([sketch(texts)], 0, MIN_TEXT_LIKENESS, SORT_BYTES).tolist()
    videos: dict[int, set[str]] = defaultdict(set)
    wordings: dict[int, set[str]] = defaultdict(set)
    for owner, text, row in zip(owners, texts, first_rows, strict=True):
        videos[row].add(owner)
        wordings[row].add(text)

    repeated_texts = []
    for row, own_videos in videos.items():
        if len(own_videos) > 1:
            count = len(wordings[row]) - 1
            repeated_texts.append(RepeatedText(texts[row], len(own_videos), count))
    repeated_texts.sort(key=lambda row: (-row.videos, row.text))
    repeated = sum(len(videos[row]) > 1 for row in first_rows)
    groups = _video_groups(videos.values())
    return RepeatedSteps(len(steps), len(texts), repeated, tuple(repeated_texts), groups)


def _video_groups(owners: Collection[set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of videos that are near-duplicates of one another, directly or through
    others.

    owners: of each distinct step, the videos that have it.
    """
    sizes: Counter[str] = Counter()
    shared: Counter[tuple[str, str]] = Counter()
    for videos in owners:
        sizes.update(videos)
        if 1 < len(videos) <= MAX_SHARING_VIDEOS:
            shared.update(combinations(sorted(videos), 2))
    parents: dict[str, str] = {}

    def root(video: str) -> str:
        while video in parents:
            video = parents[video]
        return video

    for (first, second), count in sorted(shared.items()):
        if min(sizes[first], sizes[second]) < MIN_VIDEO_STEPS:
            continue
        if count < MIN_VIDEO_LIKENESS * (sizes[first] + sizes[second] - count):
            continue
        roots = {root(first), root(second)}
        if len(roots) == 2:
            parents[max(roots)] = min(roots)
    members: dict[str, list[str]] = defaultdict(list)
    for video in sorted(sizes):
        members[root(video)].append(video)
    groups = [tuple(group) for group in members.values() if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))
