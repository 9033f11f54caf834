"""Scores of a sieve and of swaps against the truth of made videos. Thresholds against the hand-made
pairs."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from made_transcripts import MadeVideo
from made_transcripts.pairs import PAIR_KINDS, Pair
from made_transcripts.violations import contradictions

from stepline.records import Matrix, Record, Step

# Jaccard likeness of words from which two written lines are one (the base merges near-duplicates)
SAME = 0.8
ALIKE = 0.85  # cosine from which another recipe's line says nearly the same


def pair_rates(
    pairs: Sequence[Pair], cosine: Matrix, instructs: Sequence[bool], threshold: float
) -> dict[str, float]:
    """Return precision and recall of swapping "same" pairs, against idle talk and unrelated steps,
    by each sieve."""
    kinds = np.array([pair.kind for pair in pairs])
    same, other = kinds == "same", np.isin(kinds, ["idle", "unrelated"])
    rates = {"threshold": round(threshold, 2)}
    for sieve, kept in (
        ("similarity", cosine >= threshold),
        ("wording", (cosine >= threshold) & np.array(instructs)),
    ):
        right = (kept & same).sum()
        precision, recall = right / max(1, (kept & (same | other)).sum()), right / same.sum()
        rates |= {f"{sieve} precision": precision, f"{sieve} recall": recall}
        rates[f"{sieve} f1"] = 2 * precision * recall / max(1e-9, precision + recall)
    return {name: round(float(value), 3) for name, value in rates.items()}


def refused(pairs: Sequence[Pair], refusals: Sequence[str | None]) -> dict[str, str]:
    """Return how many pairs of each kind the check of numbers and negations refuses: "12 of 15"."""
    counts = Counter(
        pair.kind for pair, reason in zip(pairs, refusals, strict=True) if reason is not None
    )
    return {kind: f"{counts[kind]} of {sum(pair.kind == kind for pair in pairs)}" for kind in PAIR_KINDS}


def sieve_scores(videos: Sequence[MadeVideo], swapped: Sequence[Record]) -> dict[str, float]:
    """Return precision and recall of the kept sentences against those that tell a step."""
    kept = right = told = 0
    for video, record in zip(videos, swapped, strict=True):
        sources = {index for step in record.steps for index in step.sources}
        truth = {index for index, steps in enumerate(video.truth) if steps}
        kept, right, told = kept + len(sources), right + len(sources & truth), told + len(truth)
    return {
        "precision": round(right / max(1, kept), 4),
        "recall": round(right / told, 4),
        "kept": kept,
        "told": told,
    }


def swap_scores(
    videos: Sequence[MadeVideo], swapped: Sequence[Record], alike: Matrix
) -> dict[str, float]:
    """Return the share of swaps of step-telling sentences that are the source's own line, or one
    nearly alike.

    alike: the cosine of each swap's text and the most similar of its true steps, in the order of
    `swaps`.
    """
    found = swaps(videos, swapped)
    own = [any(_same_line(text, line) for line in lines) for _, text, lines in found]
    either = [a or bool(b >= ALIKE) for a, b in zip(own, alike, strict=True)]
    share = {"source": np.mean(own), "source or nearly alike": np.mean(either)} if found else {}
    return {"swaps": len(found)} | {name: round(float(value), 4) for name, value in share.items()}


def swaps(
    videos: Sequence[MadeVideo], swapped: Sequence[Record]
) -> list[tuple[str, str, list[str]]]:
    """Return, for each swap of sentences that tell steps, what was said, the step and the true
    steps."""
    found = []
    for video, record in zip(videos, swapped, strict=True):
        for step in swapped_steps(record):
            told = sorted({place for index in step.sources for place in video.truth[index]})
            if told:
                found.append(
                    (step.alternatives[0], step.text, [video.recipe.steps[place] for place in told])
                )
    return found


def swapped_steps(record: Record) -> list[Step]:
    """Return the steps that come from the base. The others keep what was said."""
    return [step for step in record.steps if step.source_text]


def own_words(swapped: Sequence[Record]) -> int:
    """Return how many sentences were kept in their own words."""
    return sum(
        len(step.sources) for record in swapped for step in record.steps if not step.source_text
    )


def violations(swapped: Sequence[Record]) -> list[tuple[str, str, str]]:
    """Return every swap that contradicts a number or a negation of what was said: (kind, said,
    step)."""
    return [
        (kind, step.alternatives[0], step.text)
        for record in swapped
        for step in swapped_steps(record)
        for kind in contradictions(step.alternatives[0], step.text)
    ]


def _same_line(one: str, other: str) -> bool:
    a, b = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
    return len(a & b) >= SAME * len(a | b)
