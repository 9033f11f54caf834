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

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from stepline.errors import ModelError, ShapeError
from stepline.records import Matrix, Record, Rejected, Step
from stepline.sieve_swap.match import (
    DocumentIds,
    Match,
    NarrationSegment,
    SegmentOutcome,
    SieveRejection,
    merge_matches,
    nearest_steps,
    ordered_steps,
    segments,
    steps_by_line_model,
)
from stepline.sieve_swap.settings import SwapSettings
from stepline.text.visibility import predict_by_wording
from stepline.text_base.base import TextBase

WORDING_ENCODER = "minilm"  # whose vectors the weights are for
NO_INSTRUCTION = "it sounds like no instruction"


def instruction_probability(vectors: Matrix) -> Matrix:
    """Return P(it tells a step) of each sentence, (S,), from its MiniLM vector (S, 384).

    Raises ShapeError for another width.
    """
    probabilities = predict_by_wording(vectors, "stepline.sieve_swap", "instruction_wording.json")
    return probabilities.astype(np.float32)


def are_instructions(
    texts: Sequence[str], floor: float, vectors: Matrix | None = None
) -> list[bool]:
    """Tell for each text whether P(it tells a step) reaches the floor; vectors: its MiniLM vectors,
    if at hand."""
    if vectors is None:
        from stepline.text import embed

        vectors = embed(texts, model=WORDING_ENCODER)
    return [bool(chance >= floor) for chance in instruction_probability(vectors)]


Embed = Callable[[Sequence[str]], Matrix]

MATCH_OF_METHOD = {
    "nearest": nearest_steps,
    "monotone": ordered_steps,
    "line-model": steps_by_line_model,
}


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

    paired: each record's documents, the likeliest first; needed by scope "paired" and methods
    "monotone" and "line-model". retained: the documents of scope "retained"; None searches all. embed: texts to the
    (N, D) unit vectors of the base's encoder; None is `base.embed`, which refuses an encoder that
    has changed since. Earlier steps of a record are replaced. Raises ShapeError where the numbers
    do not fit, ModelError where the line model cannot read the base's vectors.
    """
    if paired is not None and len(paired) != len(records):
        raise ShapeError(f"paired must have one entry a record: {len(records)}, not {len(paired)}")
    if paired is None and (settings.scope == "paired" or settings.is_ordered):
        raise ShapeError(
            f"scope 'paired' and method {settings.method!r} need each record's documents;"
            " give `paired`"
        )
    if settings.method == "line-model" and base.encoder != WORDING_ENCODER:
        raise ModelError(
            f"method 'line-model' reads vectors of {WORDING_ENCODER}, and the base has those of"
            f" {base.encoder}; build it with --set text_base.encoder={WORDING_ENCODER}"
        )
    narration = [segments(record.sentences, settings) for record in records]
    if settings.variant == "raw":
        return [_raw(record, own) for record, own in zip(records, narration, strict=True)]
    texts = [segment.text for own in narration for segment in own]
    vectors = (embed or base.embed)(texts)
    cuts = np.cumsum([0, *map(len, narration)])
    if settings.method == "nearest" and settings.scope != "paired":
        # the steps of one set of documents are searched for all records together
        documents = retained if settings.scope == "retained" else None
        all_segments = [segment for own in narration for segment in own]
        joined = nearest_steps(all_segments, vectors, base, documents, settings)
        outcomes = [joined[start:end] for start, end in itertools.pairwise(cuts)]
    else:
        match = MATCH_OF_METHOD[settings.method]
        blocks = [vectors[start:end] for start, end in itertools.pairwise(cuts)]
        outcomes = [
            match(own, block, base, documents, settings)
            for own, block, documents in zip(narration, blocks, paired or (), strict=True)
        ]
    if settings.sieve == "wording":
        at_hand = vectors if base.encoder == WORDING_ENCODER else None
        verdicts = iter(are_instructions(texts, settings.instruction, at_hand))
        outcomes = [[_heard(outcome, next(verdicts)) for outcome in own] for own in outcomes]
    return [
        _swapped(record, merge_matches(own, settings), settings)
        for record, own in zip(records, outcomes, strict=True)
    ]


def _heard(outcome: SegmentOutcome, is_instruction: bool) -> SegmentOutcome:
    """Return the outcome, or a miss where a step is near to what sounds like no instruction."""
    if is_instruction or isinstance(outcome, SieveRejection):
        return outcome
    return SieveRejection(outcome.segment, NO_INSTRUCTION)


def _raw(record: Record, narration: Sequence[NarrationSegment]) -> Record:
    steps = [_step(number, segment, segment.text) for number, segment in enumerate(narration)]
    return record.model_copy(update={"steps": tuple(steps)})


def _swapped(record: Record, outcomes: Sequence[SegmentOutcome], settings: SwapSettings) -> Record:
    forms = ("swap", "only-sieve") if settings.variant == "mix" else (settings.variant,)
    steps: list[Step] = []
    sieved: list[Rejected] = []
    for outcome in outcomes:
        segment = outcome.segment
        if isinstance(outcome, SieveRejection):
            for source in segment.sources:
                text = record.sentences[source].text
                sieved.append(Rejected(what="sentence", text=text, reason=outcome.reason))
            continue
        score = min(1.0, max(0.0, outcome.similarity))
        for form in forms if isinstance(outcome, Match) else ("only-sieve",):
            if isinstance(outcome, Match) and form == "swap":
                written = outcome.step
                origin = {
                    "source_text": f"{written.source}: {written.id}",
                    "licence": written.licence,
                    "alternatives": (segment.text,),
                }
                steps.append(_step(len(steps), segment, written.text, score=score, **origin))
            else:
                steps.append(_step(len(steps), segment, segment.text, score=score))
    changes = {"steps": tuple(steps), "dropped": (*record.dropped, *sieved)}
    return Record.model_validate(dict(record) | changes)


def _step(number: int, segment: NarrationSegment, text: str, **more: object) -> Step:
    """Return a step at the seconds in which it is said."""
    place = {"spans": (segment.span,), "said": segment.span, "sources": segment.sources}
    return Step.model_validate({"id": str(number), "text": text, **place, **more})
