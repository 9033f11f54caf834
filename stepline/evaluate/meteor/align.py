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
    certain = {start: _option(match) for start, match in fixed.items()}
    for hypothesis, reference, *_ in certain.values():
        used_hypothesis |= hypothesis
        used_reference |= reference
    paths: list[_Path] = [(0, 0, _NONE, used_hypothesis, used_reference, None)]
    for place, matches in enumerate(candidates):
        options = [] if place in fixed else [_option(match) for match in matches]
        kept = _step(paths, place, options, certain) or paths[:1]
        if len(kept) > 1:
            kept.sort(key=_rank)
        paths = kept[:BEAM]
    closed = [(rank + _PER_CHUNK * (rest[1] != _NONE), *rest) for rank, *rest in paths]
    return min(closed, key=_rank)  # type: ignore[return-value]  # the unpacked tuple keeps its types


def _option(match: Match) -> _Option:
    module, start, length, other, other_length = match
    # any module but the exact one weighs one half, cut off
    words = length + other_length if module == EXACT else length // 2 + other_length // 2
    hypothesis, reference = ((1 << other_length) - 1) << other, ((1 << length) - 1) << start
    return hypothesis, reference, words * _PER_WORD, abs(start - other), match


def _step(paths: list[_Path], place: int, options: list[_Option], certain: dict[int, _Option]) -> list[_Path]:
    """Take every path over one reference word; return the new paths.

    A path branches for every match that it can still take, and is itself charged their distances.
    """
    kept: list[_Path] = []
    for path in paths:
        rank, following, last_end, used_hypothesis, used_reference, chain = path
        if used_reference >> place & 1:
            if place < following:
                kept.append(path)
            elif following in certain:
                kept.append(_continued(path, certain[following]))
            continue
        charged = 0
        for hypothesis, reference, gain, distance, match in options:
            if used_hypothesis & hypothesis or used_reference & reference:
                continue
            _, start, length, other, other_length = match
            broken = 0 if last_end in (_NONE, other) else _PER_CHUNK
            kept.append(
                (
                    rank + charged + broken - gain,
                    start + length,
                    other + other_length,
                    used_hypothesis | hypothesis,
                    used_reference | reference,
                    (match, chain),
                )
            )
            charged += distance
        rank += charged if last_end == _NONE else charged + _PER_CHUNK
        kept.append((rank, following + 1, _NONE, used_hypothesis, used_reference, chain))
    return kept


def _continued(path: _Path, option: _Option) -> _Path:
    """Return the path with a match that nothing competes with, which its used words hold already."""
    rank, _, last_end, used_hypothesis, used_reference, chain = path
    _, _, gain, distance, (_, start, length, other, other_length) = option
    if last_end not in (_NONE, other):
        rank += _PER_CHUNK
    return rank + distance - gain, start + length, other + other_length, used_hypothesis, used_reference, chain
