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
MIN_SAME_JACCARD = 0.8
MIN_ALIKE_COSINE = 0.85  # cosine from which another recipe's line says nearly the same


def pair_rates(
    pairs: Sequence[Pair], cosine: Matrix, instructs: Sequence[bool], threshold: float
) -> dict[str, float]:
    """Return precision and recall of swapping "same" pairs, against idle talk and unrelated steps,
    by each sieve."""
    kinds = np.array([pair.kind for pair in pairs])
    is_same = kinds == "same"
    is_counted = is_same | np.isin(kinds, ["idle", "unrelated"])
    is_similar = cosine >= threshold
    sieves = {"similarity": is_similar, "wording": is_similar & np.array(instructs)}
    rates = {"threshold": round(threshold, 2)}
    for sieve, passes in sieves.items():
        right = (passes & is_same).sum()
        precision = right / max(1, (passes & is_counted).sum())
        recall = right / is_same.sum()
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        rates |= {f"{sieve} precision": precision, f"{sieve} recall": recall, f"{sieve} f1": f1}
    return {name: round(float(value), 3) for name, value in rates.items()}


def refusal_counts(pairs: Sequence[Pair], refusals: Sequence[str | None]) -> dict[str, str]:
    """Return how many pairs of each kind the check of numbers and negations refuses: "12 of 15"."""
    totals = Counter(pair.kind for pair in pairs)
    counts: Counter[str] = Counter()
    for pair, reason in zip(pairs, refusals, strict=True):
        if reason is not None:
            counts[pair.kind] += 1
    return {kind: f"{counts[kind]} of {totals[kind]}" for kind in PAIR_KINDS}


def sieve_scores(videos: Sequence[MadeVideo], swapped: Sequence[Record]) -> dict[str, float]:
    """Return precision and recall of the kept sentences against those that describe a step."""
    kept_count = 0
    right_count = 0
    step_count = 0
    for video, record in zip(videos, swapped, strict=True):
        kept_sentences = {index for step in record.steps for index in step.sources}
        step_sentences = {index for index, steps in enumerate(video.truth) if steps}
        kept_count += len(kept_sentences)
        right_count += len(kept_sentences & step_sentences)
        step_count += len(step_sentences)
    return {
        "precision": round(right_count / max(1, kept_count), 4),
        "recall": round(right_count / step_count, 4),
        "kept": kept_count,
        "told": step_count,
    }


def swap_scores(
    videos: Sequence[MadeVideo], swapped: Sequence[Record], alike: Matrix
) -> dict[str, float]:
    """Return the share of swaps of sentences that describe a step that are the source's own line, or one
    nearly alike.

    alike: the cosine of each swap's text and the most similar of its true steps, in the order of
    `swaps`.
    """
    rows = swaps(videos, swapped)
    if not rows:
        return {"swaps": 0}
    is_source = []
    is_alike = []
    for (_, text, lines), cosine in zip(rows, alike, strict=True):
        is_own = any(_same_line(text, line) for line in lines)
        is_source.append(is_own)
        is_alike.append(is_own or bool(cosine >= MIN_ALIKE_COSINE))
    return {
        "swaps": len(rows),
        "source": round(float(np.mean(is_source)), 4),
        "source or nearly alike": round(float(np.mean(is_alike)), 4),
    }


def swaps(
    videos: Sequence[MadeVideo], swapped: Sequence[Record]
) -> list[tuple[str, str, list[str]]]:
    """Return, for each swap of sentences that describe steps, what was said, the step and the true
    steps."""
    rows = []
    for video, record in zip(videos, swapped, strict=True):
        for step in swapped_steps(record):
            numbers: set[int] = set()
            for index in step.sources:
                numbers.update(video.truth[index])
            if numbers:
                lines = [video.recipe.steps[number] for number in sorted(numbers)]
                rows.append((step.alternatives[0], step.text, lines))
    return rows


def swapped_steps(record: Record) -> list[Step]:
    """Return the steps that come from the base. The others keep what was said."""
    return [step for step in record.steps if step.source_text]


def own_words(swapped: Sequence[Record]) -> int:
    """Return how many sentences were kept in their own words."""
    count = 0
    for record in swapped:
        for step in record.steps:
            if not step.source_text:
                count += len(step.sources)
    return count


def violations(swapped: Sequence[Record]) -> list[tuple[str, str, str]]:
    """Return every swap that contradicts a number or a negation of what was said: (kind, said,
    step)."""
    rows = []
    for record in swapped:
        for step in swapped_steps(record):
            sentence = step.alternatives[0]
            for kind in contradictions(sentence, step.text):
                rows.append((kind, sentence, step.text))
    return rows


def _same_line(line: str, other_line: str) -> bool:
    words = set(re.findall(r"\w+", line.lower()))
    other_words = set(re.findall(r"\w+", other_line.lower()))
    return len(words & other_words) >= MIN_SAME_JACCARD * len(words | other_words)
