"""Choose matches that do not overlap: METEOR's beam search from left to right over the reference.

The program's oddities decide ties and are kept: counts of matched words are whole numbers, cut off after every
addition, so that a single word matched by anything but equality adds nothing; and the distance of a new match is
charged to the path that does not take it.
"""

from operator import itemgetter

from stepline.evaluate.meteor.match import EXACT, Match

BEAM = 40  # paths kept at each word, METEOR 1.5's default
_NONE = -1  # no match ends just before
# Paths are ranked by more matched words, then fewer chunks, then less distance: one number, smallest first.
_PER_WORD, _PER_CHUNK = 1 << 80, 1 << 40

Chain = tuple[Match, "Chain | None"]  # matches, last first
# rank, next reference word, where the last match ended in the hypothesis, used words of either side as bits, matches
_Path = tuple[int, int, int, int, int, "Chain | None"]
# bits in the hypothesis and the reference, gain in rank, distance, match
_Option = tuple[int, int, int, int, Match]
_rank = itemgetter(0)


def align(candidates: list[list[Match]], hypothesis_length: int) -> list[Match]:
    """Return the chosen matches by reference place."""
    fixed = _fixed(candidates, hypothesis_length)
    if sum(map(len, candidates)) == len(fixed):
        return list(fixed.values())
    chain = _search(candidates, fixed)[-1]
    chosen = dict(fixed)
    while chain is not None:
        match, chain = chain
        chosen[match.start] = match
    return [chosen[start] for start in sorted(chosen)]


def _fixed(candidates: list[list[Match]], hypothesis_length: int) -> dict[int, Match]:
    """Return, by start, the matches that nothing competes with: the only one at its start, and for all its words."""
    reference_cover, hypothesis_cover = [0] * len(candidates), [0] * hypothesis_length
    for options in candidates:
        for _, start, length, other, other_length in options:
            for place in range(start, start + length):
                reference_cover[place] += 1
            for place in range(other, other + other_length):
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
    """Return the best path over all reference words."""
    used_hypothesis = used_reference = 0
    for match in fixed.values():
        used_hypothesis |= _bits(match.other, match.other_length)
        used_reference |= _bits(match.start, match.length)
    paths: list[_Path] = [(0, 0, _NONE, used_hypothesis, used_reference, None)]
    for place, options in enumerate(candidates):
        paths = _step(paths, place, list(map(_option, options)), fixed)
    closed = [(rank + _PER_CHUNK * (rest[1] != _NONE), *rest) for rank, *rest in paths]
    return min(closed, key=_rank)  # type: ignore[return-value]  # the unpacked tuple keeps its types


def _bits(start: int, length: int) -> int:
    return ((1 << length) - 1) << start


def _option(match: Match) -> _Option:
    module, start, length, other, other_length = match
    # any module but the exact one weighs one half, cut off
    words = length + other_length if module == EXACT else length // 2 + other_length // 2
    return _bits(other, other_length), _bits(start, length), words * _PER_WORD, abs(start - other), match


def _step(paths: list[_Path], place: int, options: list[_Option], fixed: dict[int, Match]) -> list[_Path]:
    """Take every path over one reference word; return the BEAM best of the new paths, best first."""
    kept: list[_Path] = []
    for path in paths:
        rank, following, last_end, used_hypothesis, used_reference, chain = path
        if not used_reference >> place & 1:
            rank += _branch(path, options, kept)
            if last_end != _NONE:
                rank += _PER_CHUNK
            kept.append((rank, following + 1, _NONE, used_hypothesis, used_reference, chain))
        elif place < following:
            kept.append(path)
        elif following in fixed:
            _, _, gain, distance, match = _option(fixed[following])
            rank += distance - gain + _PER_CHUNK * (last_end not in (_NONE, match.other))
            ends = (match.start + match.length, match.other + match.other_length)
            kept.append((rank, *ends, used_hypothesis, used_reference, chain))
    kept = kept or paths[:1]
    if len(kept) > 1:
        kept.sort(key=_rank)
    return kept[:BEAM]


def _branch(path: _Path, options: list[_Option], kept: list[_Path]) -> int:
    """Add a path for every match that this one can still take; return the distance that this one is charged."""
    rank, _, last_end, used_hypothesis, used_reference, chain = path
    charged = 0
    for hypothesis, reference, gain, distance, match in options:
        if used_hypothesis & hypothesis or used_reference & reference:
            continue
        _, start, length, other, other_length = match
        new_rank = rank + charged - gain
        if last_end not in (_NONE, other):
            new_rank += _PER_CHUNK
        ends = (start + length, other + other_length)
        kept.append((new_rank, *ends, used_hypothesis | hypothesis, used_reference | reference, (match, chain)))
        charged += distance
    return charged
