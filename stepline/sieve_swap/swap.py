"""Records whose narration is sieved, and swapped for human-written steps where it states one (eqs.
3, 4, 6, 7).

For instance, two sentences, and the written step "Add the onions.", whose cosine to the second is
0.8 by MiniLM:

    "My grandma loved onions."  1-3 s     dropped: it sounds like no instruction
    "Throw the onions in."      3-5 s     one step at 3-5 s with the text
        only-sieve    "Throw the onions in."
        swap          "Add the onions.", with "Throw the onions in." among `alternatives`
        mix           two steps, first the written one and then the spoken one

In general:

    raw          every sentence as it was said (the paper's Raw ASR)
    only-sieve   the sentences that a step is near to, as they were said
    swap         that step instead of the sentence; what was said is among `alternatives`
    mix          both, as two steps with the same seconds

A sentence whose near steps all change a number, a unit or a negation keeps its own words
(`refused`). A step without `source_text`, licence and `alternatives` has not been swapped.

The seconds are those of the speech, in `spans` and in `said`: the paper keeps the transcript's
times. The picture is not used, so `status` stays None. A NaSVA model may place the steps again,
since these are ordinary records.

P(a sentence states a step | its wording): "throw the onions in" does, "my grandma loved onions"
does not.

A logistic regression on MiniLM vectors, fitted by `lab/fit_instruction_wording.py` to spoken
cooking steps and to talk between steps about the same food. Beyond the paper, whose sieve is the
threshold on similarity alone.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from stepline.errors import ModelError, ShapeError
from stepline.limits import load_packaged_json
from stepline.numeric import sigmoid
from stepline.records import Matrix, Record, Rejected, Step
from stepline.sieve_swap.match import (
    DocumentIds,
    NarrationSegment,
    SegmentOutcome,
    SieveRejection,
    StepMatch,
    match_by_line_model,
    match_nearest_steps,
    merge_matches,
    narration_segments,
)
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.text_base.base import TextBase

WORDING_ENCODER = "minilm"  # whose vectors the weights are for
MIN_INSTRUCTION_PROBABILITY = 0.5  # that a text states a step, by its wording
NO_INSTRUCTION = "it sounds like no instruction"


def instruction_probability(vectors: Matrix) -> Matrix:
    """Return (S,) the probability of each sentence that it states a step of a procedure.

    vectors: (S, 384) MiniLM vectors of the sentences. Raises ShapeError for another width.
    """
    model = load_packaged_json("stepline.sieve_swap", "instruction_wording.json")
    weights = np.array(model["weights"])
    if vectors.ndim != 2 or vectors.shape[1] != len(weights):
        raise ShapeError(
            f"a probability by wording needs MiniLM vectors (S, {len(weights)}), not "
            f"{vectors.shape}"
        )
    scores = vectors.astype(np.float64) @ weights + model["intercept"]
    return sigmoid(scores).astype(np.float32)


def are_instructions(
    texts: Sequence[str], floor: float, vectors: Matrix | None = None
) -> list[bool]:
    """Return for each text whether its probability of stating a step reaches a threshold.

    Args:
        texts: N sentences.
        floor: the threshold on the probability, in [0, 1].
        vectors: (N, 384) MiniLM vectors of the texts. None: they are computed here.
    """
    if vectors is None:
        from stepline.text import embed

        vectors = embed(texts, model=WORDING_ENCODER)
    probabilities = instruction_probability(vectors)
    return [bool(probability >= floor) for probability in probabilities]


EmbedTexts = Callable[[Sequence[str]], Matrix]


def sieve_and_swap(
    records: Sequence[Record],
    base: TextBase,
    settings: SwapSettings,
    *,
    paired: Sequence[DocumentIds] | None = None,
    retained: DocumentIds | None = None,
    embed: EmbedTexts | None = None,
) -> list[Record]:
    """Return each record with steps made from its narration by Sieve & Swap.

    The steps replace earlier steps of the record. Rejected sentences are listed in `dropped`, with
    the reason.

    Args:
        records: records with their narration.
        base: the text base whose steps replace sentences.
        settings: settings of the sieve and the swap.
        paired: for each record, the numbers of its paired documents, the most likely first. Scope
            "paired" and method "line-model" need them.
        retained: numbers of the documents that scope "retained" searches. None: all documents.
        embed: function from N texts to their (N, D) unit vectors by the encoder of the base. None:
            `base.embed`, which raises ModelError if the encoder has changed.

    Raises ShapeError if `records` and `paired` do not fit together, ModelError if the line model
    cannot use the vectors of the base.
    """
    _check_inputs(records, base, settings, paired)
    narration = [narration_segments(record.sentences, settings) for record in records]
    if settings.variant == "raw":
        return [
            _with_raw_steps(record, own) for record, own in zip(records, narration, strict=True)
        ]
    # The pieces of all narrations, embedded together.
    all_segments = list(itertools.chain.from_iterable(narration))
    texts = [segment.text for segment in all_segments]
    vectors = (embed or base.embed)(texts)
    # the segments of record n are all_segments[cuts[n] : cuts[n + 1]]
    bounds = list(itertools.pairwise(np.cumsum([0, *map(len, narration)])))
    all_outcomes: list[SegmentOutcome] = []
    if not settings.is_ordered and settings.scope != "paired":
        # the steps of one set of documents are searched for all records together
        documents = retained if settings.scope == "retained" else None
        all_outcomes = match_nearest_steps(all_segments, vectors, base, documents, settings)
    else:
        match = match_by_line_model if settings.is_ordered else match_nearest_steps
        for (start, end), own_documents in zip(bounds, paired or (), strict=True):
            own = all_segments[start:end]
            all_outcomes += match(own, vectors[start:end], base, own_documents, settings)
    # What does not sound like an instruction is dropped, whatever step is near.
    if settings.sieve == "wording":
        minilm_vectors = vectors if base.encoder == WORDING_ENCODER else None
        all_outcomes = _reject_non_instructions(all_outcomes, texts, minilm_vectors)
    # The records with their new steps.
    swapped_records = []
    for record, (start, end) in zip(records, bounds, strict=True):
        outcomes = all_outcomes[start:end]
        if settings.merge == "after":
            outcomes = merge_matches(outcomes, settings)
        swapped_records.append(_with_swapped_steps(record, outcomes, settings))
    return swapped_records


def _check_inputs(
    records: Sequence[Record],
    base: TextBase,
    settings: SwapSettings,
    paired: Sequence[DocumentIds] | None,
) -> None:
    if paired is not None and len(paired) != len(records):
        raise ShapeError(f"paired must have an entry per record: {len(records)}, not {len(paired)}")
    if paired is None and (settings.scope == "paired" or settings.is_ordered):
        raise ShapeError(
            f"scope 'paired' and method {settings.method!r} need each record's documents; give "
            "`paired`"
        )
    if settings.is_ordered and base.encoder != WORDING_ENCODER:
        raise ModelError(
            f"method 'line-model' reads vectors of {WORDING_ENCODER}, and the base has those of "
            f"{base.encoder}; build it with --set text_base.encoder={WORDING_ENCODER}"
        )


def _reject_non_instructions(
    outcomes: Sequence[SegmentOutcome], texts: Sequence[str], vectors: Matrix | None
) -> list[SegmentOutcome]:
    """Return the outcomes, with every segment rejected that is no instruction.

    Args:
        outcomes: outcomes of S segments.
        texts: their texts.
        vectors: (S, 384) MiniLM vectors of the texts. None: they are computed here.
    """
    is_instruction = are_instructions(texts, MIN_INSTRUCTION_PROBABILITY, vectors)
    sieved: list[SegmentOutcome] = []
    for outcome, passes in zip(outcomes, is_instruction, strict=True):
        if passes or isinstance(outcome, SieveRejection):
            sieved.append(outcome)
        else:
            sieved.append(SieveRejection(outcome.segment, NO_INSTRUCTION))
    return sieved


def _with_raw_steps(record: Record, narration: Sequence[NarrationSegment]) -> Record:
    steps = [_build_step(number, segment, segment.text) for number, segment in enumerate(narration)]
    return record.model_copy(update={"steps": tuple(steps)})


def _with_swapped_steps(
    record: Record, outcomes: Sequence[SegmentOutcome], settings: SwapSettings
) -> Record:
    # which texts a match gives
    gives_swapped = settings.variant in ("swap", "mix")
    gives_own_words = settings.variant in ("only-sieve", "mix")
    steps: list[Step] = []
    sieved: list[Rejected] = []
    for outcome in outcomes:
        segment = outcome.segment
        if isinstance(outcome, SieveRejection):
            for source in segment.sources:
                text = record.sentences[source].text
                sieved.append(Rejected(what="sentence", text=text, reason=outcome.reason))
            continue
        # A score is in [0, 1], which a cosine may leave.
        score = min(1.0, max(0.0, outcome.similarity))
        is_match = isinstance(outcome, StepMatch)
        if isinstance(outcome, StepMatch) and gives_swapped:
            written = outcome.step
            origin = {
                "source_text": f"{written.source}: {written.id}",
                "licence": written.licence,
                "alternatives": (segment.text,),
            }
            steps.append(_build_step(len(steps), segment, written.text, score=score, **origin))
        # A segment without a step has its own words alone.
        if gives_own_words or not is_match:
            steps.append(_build_step(len(steps), segment, segment.text, score=score))
    # Like its steps, what an earlier run said of its sentences is replaced.
    spoken = {sentence.text for sentence in record.sentences}
    dropped = [
        item for item in record.dropped if item.what != "sentence" or item.text not in spoken
    ]
    changes = {"steps": tuple(steps), "dropped": (*dropped, *sieved)}
    return Record.model_validate(dict(record) | changes)


def _build_step(number: int, segment: NarrationSegment, text: str, **more: object) -> Step:
    """Return a step that was said in the span of a narration segment.

    Args:
        number: index of the step, which becomes its id.
        segment: the segment.
        text: text of the step.
        more: further fields of the step by name.
    """
    fields = {
        "id": str(number),
        "text": text,
        "spans": (segment.span,),
        "said": segment.span,
        "sources": segment.sources,
    }
    return Step.model_validate(fields | more)
