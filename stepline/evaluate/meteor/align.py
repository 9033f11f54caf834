"""Choose matches that do not overlap: METEOR's beam search from left to right over the reference.

The program's oddities decide ties and are kept: counts of matched words are whole numbers, cut off after every
addition, so that a single word matched by anything but equality adds nothing; and the distance of a new match is
charged to the path that does not take it.
"""

from copy import copy
from dataclasses import dataclass

from stepline.evaluate.meteor.match import EXACT, Match

BEAM = 40  # paths kept at each word, METEOR 1.5's default
_NONE = -1  # no match ends just before
# Paths are sorted by more matched words, then fewer chunks, then less distance: one number that orders all three.
_PER_WORD, _PER_CHUNK = 1 << 80, 1 << 40

Chain = tuple[Match, "Chain | None"]


@dataclass(slots=True)
class _Path:
    """One partial alignment. Used words of either side are bits; chain holds the matches, last first."""

    hypothesis_count: int
    reference_count: int
    chunks: int
    distance: int
    next: int  # the reference word that comes next
    last_end: int  # where the last match ended in the hypothesis
    used_hypothesis: int
    used_reference: int
    chain: "Chain | None"

    def rank(self) -> int:
        """Return what the beam sorts by, smallest first."""
        matched = self.hypothesis_count + self.reference_count
        return self.chunks * _PER_CHUNK + self.distance - matched * _PER_WORD

    def take(self, match: Match) -> None:
        """Add a match, all but its distance."""
        if match.module == EXACT:
            self.hypothesis_count += match.other_length
            self.reference_count += match.length
        else:  # weight one half, cut off
            self.hypothesis_count += match.other_length // 2
            self.reference_count += match.length // 2
        if self.last_end not in (_NONE, match.other):
            self.chunks += 1
        self.next = match.start + match.length
        self.last_end = match.other + match.other_length

    def skip(self) -> None:
        """Leave the next reference word unmatched."""
        if self.last_end != _NONE:
            self.chunks += 1
            self.last_end = _NONE
        self.next += 1


def align(candidates: list[list[Match]], hypothesis_length: int) -> list[Match]:
    """Return the chosen matches by reference place."""
    fixed = _fixed(candidates, hypothesis_length)
    if sum(map(len, candidates)) == len(fixed):
        return list(fixed.values())
    chain = _search(candidates, fixed).chain
    chosen = dict(fixed)
    while chain is not None:
        match, chain = chain
        chosen[match.start] = match
    return [chosen[start] for start in sorted(chosen)]


def _bits(start: int, length: int) -> int:
    return ((1 << length) - 1) << start


def _fixed(candidates: list[list[Match]], hypothesis_length: int) -> dict[int, Match]:
    """Return, by start, the matches that nothing competes with: the only one at its start, and for all its words."""
    reference_cover, hypothesis_cover = [0] * len(candidates), [0] * hypothesis_length
    for options in candidates:
        for match in options:
            for place in range(match.start, match.start + match.length):
                reference_cover[place] += 1
            for place in range(match.other, match.other + match.other_length):
                hypothesis_cover[place] += 1
    fixed = {}
    for start, options in enumerate(candidates):
        if len(options) == 1:
            match = options[0]
            covers = reference_cover[start : start + match.length]
            covers += hypothesis_cover[match.other : match.other + match.other_length]
            if max(covers) == 1:
                fixed[start] = match
    return fixed


def _search(candidates: list[list[Match]], fixed: dict[int, Match]) -> _Path:
    used_hypothesis = used_reference = 0
    for match in fixed.values():
        used_hypothesis |= _bits(match.other, match.other_length)
        used_reference |= _bits(match.start, match.length)
    paths = [_Path(0, 0, 0, 0, 0, _NONE, used_hypothesis, used_reference, None)]
    for place, options in enumerate(candidates):
        paths = _step(paths, place, options, fixed)
    for path in paths:
        path.chunks += path.last_end != _NONE
    return min(paths, key=_Path.rank)


def _step(paths: list[_Path], place: int, options: list[Match], fixed: dict[int, Match]) -> list[_Path]:
    """Take every path over one reference word; return the BEAM best of the new paths, best first."""
    kept: list[_Path] = []
    for path in paths:
        if not path.used_reference >> place & 1:
            kept.extend(_branches(path, options))
            path.skip()
        elif place >= path.next:
            match = fixed.get(path.next)
            if match is None:
                continue
            path.take(match)
            path.distance += abs(match.start - match.other)
        kept.append(path)
    kept = kept or paths[:1]
    if len(kept) > 1:
        kept.sort(key=_Path.rank)
    return kept[:BEAM]


def _branches(path: _Path, options: list[Match]) -> list[_Path]:
    """Return a copy of the path for every match that it can still take."""
    branches = []
    for match in options:
        hypothesis, reference = _bits(match.other, match.other_length), _bits(match.start, match.length)
        if path.used_hypothesis & hypothesis or path.used_reference & reference:
            continue
        branch = copy(path)
        branch.used_hypothesis |= hypothesis
        branch.used_reference |= reference
        branch.chain = (match, path.chain)
        branch.take(match)
        path.distance += abs(match.start - match.other)
        branches.append(branch)
    return branches
