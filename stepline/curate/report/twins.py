"""Near-duplicates across videos: steps that say the same in several videos, and videos made of the same steps."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepline.sieve_swap.text_base.likeness import sketch
from stepline.sieve_swap.text_base.merging import near_duplicates

ALIKE = 0.7  # Jaccard likeness of word pairs from which two lines say the same
SAME = 0.6  # of two videos' sets of steps from which they are near-duplicates
COMMON = 50  # videos that may share a step before it tells nothing of their being copies
FEWEST = 3  # steps of a video that can be called a copy
MEMORY = 256 << 20  # bytes to sort hashes in


@dataclass(frozen=True)
class Line:
    """Steps that say the same: the earliest wording, in how many videos, and how many other wordings."""

    text: str
    videos: int
    wordings: int


@dataclass(frozen=True)
class Twins:
    """What was found among so many videos and steps; groups of videos, each sorted, the largest first."""

    videos: int
    steps: int
    repeated: int  # steps whose line is in another video too
    lines: tuple[Line, ...]  # by the number of videos
    groups: tuple[tuple[str, ...], ...]


def twins(steps: Mapping[str, Sequence[str]]) -> Twins:
    """Return the near-duplicates among videos (id -> texts of its steps)."""
    owners = [video for video, texts in steps.items() for _ in texts]
    texts = [text for own in steps.values() for text in own]
    if not texts:
        return Twins(len(steps), 0, 0, (), ())
    stands = near_duplicates([sketch(texts)], 0, ALIKE, MEMORY).tolist()
    held: dict[int, set[str]] = defaultdict(set)
    wordings: dict[int, set[str]] = defaultdict(set)
    for owner, text, line in zip(owners, texts, stands, strict=True):
        held[line].add(owner)
        wordings[line].add(text)
    shared = sorted((line for line in held if len(held[line]) > 1), key=lambda line: (-len(held[line]), texts[line]))
    lines = tuple(Line(texts[line], len(held[line]), len(wordings[line]) - 1) for line in shared)
    repeated = sum(len(held[line]) > 1 for line in stands)
    return Twins(len(steps), len(texts), repeated, lines, _groups(held))


def _groups(held: Mapping[int, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of videos that are near-duplicates of one another, directly or through others."""
    sizes: Counter[str] = Counter(video for videos in held.values() for video in videos)
    together: Counter[tuple[str, str]] = Counter()
    for videos in held.values():
        if 1 < len(videos) <= COMMON:
            order = sorted(videos)
            together.update((one, other) for place, one in enumerate(order) for other in order[place + 1 :])
    head: dict[str, str] = {}
    for (one, other), both in sorted(together.items()):
        alike = both >= SAME * (sizes[one] + sizes[other] - both)
        if alike and min(sizes[one], sizes[other]) >= FEWEST:
            first, second = sorted((_head(head, one), _head(head, other)))
            head[second] = first
    found: dict[str, list[str]] = defaultdict(list)
    for video in sorted(sizes):
        found[_head(head, video)].append(video)
    groups = [tuple(group) for group in found.values() if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def _head(head: dict[str, str], video: str) -> str:
    """Return the first video of the group that a video is in."""
    while video in head and head[video] != video:
        video = head[video]
    return video
