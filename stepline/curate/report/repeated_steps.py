"""Near-duplicates in a dataset: steps that say the same in several videos, and videos that are made
of the same steps."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from stepline.sieve_swap.text_base.deduplicate import near_duplicates
from stepline.sieve_swap.text_base.near_duplicates import sketch

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
    """Near-duplicates among `videos` and `steps`. `groups` are of videos, each sorted, the largest
    first."""

    videos: int
    steps: int
    repeated: int  # steps whose text is in another video too
    texts: tuple[RepeatedText, ...]  # by the number of videos
    groups: tuple[tuple[str, ...], ...]


def find_repeated_steps(steps: Mapping[str, Sequence[str]]) -> RepeatedSteps:
    """Return the near-duplicates among videos (id -> texts of its steps)."""
    # All steps in one list, each with the video that it is of.
    owners = []
    texts: list[str] = []
    for video, own in steps.items():
        owners += [video] * len(own)
        texts += own
    if not texts:
        return RepeatedSteps(len(steps), 0, 0, (), ())

    # Rows of alike texts share the row of the first of them.
    first_rows = near_duplicates([sketch(texts)], 0, MIN_TEXT_LIKENESS, SORT_BYTES)
    videos: dict[int, set[str]] = defaultdict(set)
    wordings: dict[int, set[str]] = defaultdict(set)
    rows: Counter[int] = Counter()
    for owner, text, row in zip(owners, texts, first_rows.tolist(), strict=True):
        videos[row].add(owner)
        wordings[row].add(text)
        rows[row] += 1

    # Texts that more than one video has.
    repeated = 0
    repeated_texts = []
    for row, own_videos in videos.items():
        if len(own_videos) == 1:
            continue
        repeated += rows[row]
        others = len(wordings[row]) - 1
        repeated_texts.append(RepeatedText(texts[row], len(own_videos), others))
    repeated_texts.sort(key=lambda row: (-row.videos, row.text))
    groups = _video_groups(videos.values())
    return RepeatedSteps(
        videos=len(steps),
        steps=len(texts),
        repeated=repeated,
        texts=tuple(repeated_texts),
        groups=groups,
    )


def _video_groups(owners: Collection[set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of videos that are near-duplicates of one another, directly or through
    others.

    owners: of each distinct step, the videos that have it.
    """
    # The number of steps of a video, and how many each two videos share.
    sizes: Counter[str] = Counter()
    shared: Counter[tuple[str, str]] = Counter()
    # A step that very many videos have does not show that two of them are copies.
    for videos in owners:
        sizes.update(videos)
        if len(videos) <= MAX_SHARING_VIDEOS:
            pairs = combinations(sorted(videos), 2)
            shared.update(pairs)
    # Two videos that share enough steps join their groups (union-find).
    parents: dict[str, str] = {}

    def root(video: str) -> str:
        while video in parents:
            video = parents[video]
        return video

    for pair, count in sorted(shared.items()):
        first, second = (sizes[video] for video in pair)
        # Jaccard likeness: shared steps, of all steps of the two.
        all_steps = first + second - count
        if min(first, second) < MIN_VIDEO_STEPS:
            continue
        if count < MIN_VIDEO_LIKENESS * all_steps:
            continue
        # The smaller id becomes the root, so that groups do not depend on the order.
        roots = set(map(root, pair))
        if len(roots) == 2:
            parents[max(roots)] = min(roots)
    # The groups of two videos and more, the largest first.
    members: dict[str, list[str]] = defaultdict(list)
    for video in sorted(sizes):
        members[root(video)].append(video)
    groups = []
    for group in members.values():
        if len(group) > 1:
            groups.append(tuple(group))
    groups.sort(key=lambda group: (-len(group), group))
    return tuple(groups)
