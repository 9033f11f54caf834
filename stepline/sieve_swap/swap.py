"""Records whose narration is sieved, and swapped for human-written steps where it tells one (eqs.
3, 4, 6, 7).

    raw          every sentence as it was said (the paper's Raw ASR)
    only-sieve   the sentences that a step is near to, as they were said
    swap         that step instead of the sentence; what was said is kept among `alternatives`
    mix          both, as two steps with the same seconds

A sentence whose near steps all change a number, a unit or a negation keeps its own words
(`refused`): a step without `source_text`, licence and `alternatives` has not been swapped.

The seconds are those of the speech, in `spans` and in `said`: the paper keeps the transcript's
times. Nobody has looked at the picture, so `status` stays None; a NaSVA model may place the steps
anew, since these are ordinary records.

P(a sentence tells a step | its wording): "throw the onions in" does, "my grandma loved onions" does
not.

A logistic regression on MiniLM vectors, fitted by `benchmarks/fit_instruction_wording.py` to spoken
cooking steps and to talk between steps about the same food. Beyond the paper, whose sieve is the
threshold on similarity alone.
"""

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from importlib import resources

import numpy as np

from stepline.errors import ShapeError
from stepline.records import Matrix, Record, Rejected, Step
from stepline.sieve_swap.match import (
    DocumentIds,
    KeptAsSaid,
    Match,
    NarrationSegment,
    SegmentOutcome,
    SieveRejection,
    merge_matches,
    nearest_steps,
    ordered_steps,
    segments,
)
from stepline.sieve_swap.settings import SwapSettings
from stepline.text_base.base import TextBase

ENCODER = "minilm"  # whose vectors the weights are for
IDLE_TALK = "it sounds like no instruction"


def instruction_probability(vectors: Matrix) -> Matrix:
    """Return P(it tells a step) of each sentence, (S,), from its MiniLM vector (S, 384).

    Raises ShapeError for another width.
    """
    weights, intercept = _model()
    if vectors.ndim != 2 or vectors.shape[1] != len(weights):
        raise ShapeError(
            f"the sieve by wording needs MiniLM vectors (S, {len(weights)}), not {vectors.shape}"
        )
    return (1 / (1 + np.exp(-(vectors.astype(np.float64) @ weights + intercept)))).astype(
        np.float32
    )


def are_instructions(
    texts: Sequence[str], floor: float, vectors: Matrix | None = None
) -> list[bool]:
    """Tell for each text whether P(it tells a step) reaches the floor; vectors: its MiniLM vectors,
    if at hand."""
    if vectors is None:
        from stepline.text import embed

        vectors = embed(texts, model=ENCODER)
    return [bool(chance >= floor) for chance in instruction_probability(vectors)]


@functools.cache
def _model() -> tuple[Matrix, float]:
    file = resources.files("stepline.sieve_swap").joinpath("instruction_wording.json")
    model = json.loads(file.read_text(encoding="utf-8"))
    return np.array(model["weights"]), float(model["intercept"])


Embed = Callable[[Sequence[str]], Matrix]


def sieve_and_swap(
    records: Sequence[Record],
    base: TextBase,
    settings: SwapSettings,
    *,
    paired: Sequence[DocumentIds] | None = None,
    retained: DocumentIds | None = None,
    embed: Embed | None = None,
) -> list[Record]:
    """Return each record with its swapped steps and, in `dropped`, the sentences that were sieved
    out and why.

    paired: each record's documents, the likeliest first; needed by scope "paired" and method
    "monotone". retained: the documents of scope "retained"; None searches all. embed: texts to the
    (N, D) unit vectors of the base's encoder; None is `base.embed`, which refuses an encoder that
    has changed since. Earlier steps of a record are replaced. Raises ShapeError where the numbers
    do not fit.
    """
    if paired is not None and len(paired) != len(records):
        raise ShapeError(f"paired must have one entry a record: {len(records)}, not {len(paired)}")
    if paired is None and (settings.scope == "paired" or settings.method == "monotone"):
        raise ShapeError(
            "scope 'paired' and method 'monotone' need each record's documents; give `paired`"
        )
    told = [segments(record.sentences, settings) for record in records]
    if settings.variant == "raw":
        return [_raw(record, pieces) for record, pieces in zip(records, told, strict=True)]
    texts = [segment.text for pieces in told for segment in pieces]
    vectors = (embed or base.embed)(texts)
    cuts = np.cumsum([0, *map(len, told)])
    outcomes = _outcomes(told, vectors, cuts, base, settings, paired, retained)
    if settings.sieve == "wording":
        known = vectors if base.encoder == ENCODER else None
        verdicts = iter(are_instructions(texts, settings.instruction, known))
        outcomes = [[_heard(outcome, next(verdicts)) for outcome in found] for found in outcomes]
    return [
        _swapped(record, merge_matches(found, settings), settings)
        for record, found in zip(records, outcomes, strict=True)
    ]


def _outcomes(
    told: Sequence[Sequence[NarrationSegment]],
    vectors: Matrix,
    cuts: DocumentIds,
    base: TextBase,
    settings: SwapSettings,
    paired: Sequence[DocumentIds] | None,
    retained: DocumentIds | None,
) -> list[list[SegmentOutcome]]:
    """Return the outcomes of each record; steps of one set of documents are searched for all
    records at once."""
    if settings.method == "nearest" and settings.scope != "paired":
        documents = retained if settings.scope == "retained" else None
        found = nearest_steps(
            [s for pieces in told for s in pieces], vectors, base, documents, settings
        )
        return [found[start:end] for start, end in itertools.pairwise(cuts)]
    match = ordered_steps if settings.method == "monotone" else nearest_steps
    return [
        match(pieces, vectors[start:end], base, documents, settings)
        for pieces, start, end, documents in zip(
            told, cuts[:-1], cuts[1:], paired or (), strict=True
        )
    ]


def _heard(outcome: SegmentOutcome, instruction_probability: bool) -> SegmentOutcome:
    """Return the outcome, or a miss where a step is near to what sounds like no instruction."""
    return (
        outcome
        if instruction_probability or isinstance(outcome, SieveRejection)
        else SieveRejection(outcome.segment, IDLE_TALK)
    )


def _raw(record: Record, pieces: Sequence[NarrationSegment]) -> Record:
    steps = [_step(number, piece, piece.text) for number, piece in enumerate(pieces)]
    return record.model_copy(update={"steps": tuple(steps)})


def _swapped(record: Record, outcomes: Sequence[SegmentOutcome], settings: SwapSettings) -> Record:
    forms = ("swap", "only-sieve") if settings.variant == "mix" else (settings.variant,)
    steps: list[Step] = []
    for match in outcomes:
        if isinstance(match, Match):
            steps += [_step_of(match, len(steps) + place, form) for place, form in enumerate(forms)]
        elif isinstance(match, KeptAsSaid):
            steps.append(_step(len(steps), match.segment, match.segment.text, score=_score(match)))
    sentences = record.sentences
    sieved = [
        Rejected(what="sentence", text=sentences[source].text, reason=miss.reason)
        for miss in outcomes
        if isinstance(miss, SieveRejection)
        for source in miss.segment.sources
    ]
    return Record.model_validate(
        dict(record) | {"steps": tuple(steps), "dropped": (*record.dropped, *sieved)}
    )


def _step_of(match: Match, number: int, form: str) -> Step:
    score = _score(match)
    if form == "only-sieve":
        return _step(number, match.segment, match.segment.text, score=score)
    source = f"{match.step.source}: {match.step.id}"
    said = (match.segment.text,)
    made = {
        "score": score,
        "source_text": source,
        "licence": match.step.licence,
        "alternatives": said,
    }
    return _step(number, match.segment, match.step.text, **made)


def _score(outcome: Match | KeptAsSaid) -> float:
    return min(1.0, max(0.0, outcome.similarity))


def _step(number: int, segment: NarrationSegment, text: str, **more: object) -> Step:
    """Return a step at the seconds in which it is said."""
    placed = {"spans": (segment.span,), "said": segment.span, "sources": segment.sources}
    return Step.model_validate({"id": str(number), "text": text, **placed, **more})
