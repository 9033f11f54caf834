"""The extractive writer: steps from the speaker's own words, no network, no language model server.

Three sentences give one step, 'drain the pasta and rinse with cold water', said (10, 14), sources 1
and 2. At the usual setting a sentence needs P(step) 0.41, a warning 0.2:

    0  'Hi everyone, welcome back to my kitchen.'   (0, 4)     P(step) 0.01
    1  'So first you want to drain the pasta.'      (10, 12)   P(step) 0.45
    2  'Then rinse it with cold water.'             (12, 14)   P(step) 0.64

sentences   the narration tagger reads each with its neighbours (stepline/text/narration)
choice      which of them describe a step (step_score)
editing     which of their words make the step, written as imperatives (grammar_actions, step_editor)
names       nearly certain antecedents replace "it" and "them" (antecedents)
joining     continuations are joined to their step (granularity)
merging     a step that is said twice is one step (repeats)
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.records import Rejected, Sentence, Span, Step, Transcript, covering_span
from stepline.text import embed
from stepline.text.narration import NarrationTagger, SentenceTags, load_tagger
from stepline.text.narration.words import SENTENCE_KINDS
from stepline.writing.extractive.antecedents import PronounResolver
from stepline.writing.extractive.grammar_actions import grammar_drafts
from stepline.writing.extractive.granularity import (
    SentenceStep,
    join_continuations,
    sentence_amount,
    with_amount,
)
from stepline.writing.extractive.narration import (
    NarrationUnit,
    ParsedNarration,
    non_english_note,
    parse_narration,
)
from stepline.writing.extractive.off_topic import flaw_in_sentence
from stepline.writing.extractive.repeats import merge_by_meaning, number_steps
from stepline.writing.extractive.step_editor import DraftStep, SentenceEditor
from stepline.writing.extractive.step_score import instruction_log_bayes, step_probabilities
from stepline.writing.settings import WritingSettings
from stepline.writing.types import MAX_ACTION_PAUSE_SECONDS, WrittenSteps

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Array = npt.NDArray[np.float64]

# P(a sentence describes a step) from which it is written, fitted on narrations of YouCook2.
MIN_STEP_PROBABILITY = {"few": 0.5, "usual": 0.41, "all": 0.2}
# Sentences that are written of a narration, per spoken word, if their P(step) is .2 or more. Editors of
# twelve narrations write .007 to .029 steps per word, in the middle .016.
MIN_SENTENCES_PER_WORD = 0.012
# P of a sentence without a verb that no list goes before: of 52 below it 13 describe a step.
MIN_LISTED_PROBABILITY = 0.5
# Times that words are left out within a step. Of 12 steps of long transcripts with more, read one
# by one, none was good. Of 9 with two, four were.
MAX_STEP_GAPS = 2
# P(step) from which a refused sentence is worth a record
MIN_REPORTED_STEP_PROBABILITY = 0.1
NO_ACTION_REASON = "states a step, but no action was found in its words"
KIND_REASONS = {
    "warning": "a warning",
    "option": "left to the viewer",
    "consequence": "a reason or a consequence, not an action",
    "announcement": "an announcement of what comes",
    "recap": "a recap of earlier steps",
    "items": "names what is needed, and no action",
    "talk": "talk, not a step of the work",
}


def write_extractive(
    transcript: Transcript,
    settings: WritingSettings | None = None,
    *,
    narration: ParsedNarration | None = None,
) -> WrittenSteps:
    """Return the steps that the transcript describes, in the words of its sentences.

    Args:
        transcript: in English. Another language gives no steps and a note that says so.
        settings: how many sentences count as steps, and whether continuations are joined. None:
            the defaults.
        narration: the parsed transcript. None: it is parsed here.
    Raises ModelError when the English parser or the sentence encoder is not installed.
    """
    settings = settings or WritingSettings()
    language_note = non_english_note(transcript)
    if language_note is not None:
        return WrittenSteps(notes=(language_note,))
    # The sentences, and how likely each describes a step.
    if narration is None:
        narration = parse_narration(transcript, settings)
    tagger = load_tagger(settings.step_scorer)
    sentence_tags = narration.sentence_tags
    docs = narration.docs
    probabilities = step_probabilities(sentence_tags, narration.texts)
    threshold = _step_threshold(probabilities, narration.units, settings)
    namer = PronounResolver(docs, sentence_tags)
    steps: list[SentenceStep] = []
    dropped: list[Rejected] = []
    flawed: list[tuple[Step, str]] = []
    for number, (unit, tags) in enumerate(zip(narration.units, sentence_tags, strict=True)):
        # a sentence without a step may still say an amount of the one before
        probability = float(probabilities[number])
        if probability < threshold:
            has_amount = _append_amount(steps, docs[number], unit)
            if not has_amount and probability >= MIN_REPORTED_STEP_PROBABILITY:
                dropped.append(_rejected_sentence(unit, tags, probability))
            continue
        # its steps, without names
        editor = SentenceEditor(unit.words, tags, docs[number], number)
        drafts = _sentence_drafts(unit, editor, tagger, namer)
        if not drafts:
            dropped.append(Rejected(what="step", text=unit.text, reason=NO_ACTION_REASON))
        # those without a flaw, with names
        for draft in drafts:
            flaw = _draft_flaw(draft, editor.tokens)
            if flaw is not None:
                flawed.append((_as_step(draft, unit), flaw))
                continue
            steps.append(_named_step(draft, unit, namer, probability))
    # One list: continuations joined, repeats merged, steps numbered.
    joined, rejected = join_continuations(steps, settings.detail)
    # A sentence that gave no step is reported once, as it was spoken.
    written = {index for step in joined for index in step.sources}
    for step, reason in (*flawed, *rejected):
        if written.isdisjoint(step.sources):
            text = " ".join(transcript.sentences[index].text for index in step.sources)
            dropped.append(Rejected(what="step", text=text, reason=reason))
    return WrittenSteps(number_steps(merge_by_meaning(joined)), tuple(dict.fromkeys(dropped)))


def _step_threshold(
    probabilities: Array, units: Sequence[NarrationUnit], settings: WritingSettings
) -> float:
    """Return the P(step) from which a sentence is written.

    Where fewer sentences than MIN_SENTENCES_PER_WORD reach the usual one, the likeliest count too: the
    tagger is less sure of kinds of work that it knows less, such as crafts and menus of software.

    Args:
        probabilities: (S,) P(the sentence describes a step).
        units: the S sentences.
        settings: how many sentences count as steps.
    """
    threshold = MIN_STEP_PROBABILITY[settings.steps]
    if settings.steps != "usual" or not units:
        return threshold
    words = sum(len(unit.words) for unit in units)
    count = max(1, math.ceil(MIN_SENTENCES_PER_WORD * words))
    least = float(np.sort(probabilities)[-count:][0])
    return min(threshold, max(least, MIN_STEP_PROBABILITY["all"]))


def _named_step(
    draft: DraftStep, unit: NarrationUnit, namer: PronounResolver, probability: float
) -> SentenceStep:
    """Return a draft as a step of its sentence, with sure antecedents in place of its pronouns.

    Args:
        draft: made of the sentence.
        unit: the spoken sentence.
        namer: finds the antecedents.
        probability: P(the sentence describes a step).
    """
    step = namer.replace_pronouns(draft)
    names = namer.likely_antecedents(draft.sentence_index, draft.word_indices)
    # The words behind a verb that the editor put in front: it has no place, for no one said it.
    list_text = None
    if step.words[0].index is None and not step.is_negated:
        list_text = replace(step, words=step.words[1:]).text
    is_sure = list_text is None or probability >= MIN_LISTED_PROBABILITY
    return SentenceStep(_as_step(step, unit), list_text, is_sure, names)


def _draft_flaw(draft: DraftStep, tokens: "Sequence[Token | None]") -> str | None:
    """Return why a draft step is rejected, None for a good one.

    tokens: the parser's token of each spoken word of its sentence, None for a word without one.
    """
    if draft.gap_count > MAX_STEP_GAPS:
        return "too little of its sentence is left to be read as one"
    return None if draft.verb is None else flaw_in_sentence(tokens[draft.verb])


def sentence_step_probabilities(
    sentences: Sequence[str], tagger: NarrationTagger | None
) -> list[float]:
    """Return P(a sentence describes a step) for each sentence of one English narration, (S,).

    Args:
        sentences: texts of S sentences, in spoken order.
        tagger: None is the one shipped with the package.
    """
    sentence_tags = (tagger or load_tagger()).tag_sentences(sentences)
    probabilities: list[float] = step_probabilities(sentence_tags, sentences).tolist()
    return probabilities


def transcript_step_probabilities(
    transcript: Transcript, settings: WritingSettings | None = None
) -> Array | None:
    """Return P(a sentence describes a step) for each of the S sentences of a transcript, (S,).

    None for a transcript that is empty or not English. settings: names the narration tagger.
    """
    settings = settings or WritingSettings()
    texts = [sentence.text for sentence in transcript.sentences]
    if not texts or non_english_note(transcript) is not None:
        return None
    return np.array(sentence_step_probabilities(texts, load_tagger(settings.step_scorer)))


def narration_instruction(
    transcript: Transcript, settings: WritingSettings | None = None
) -> float | None:
    """Return the log Bayes factor of "this narration gives instructions" against "it is other talk".

    None for a transcript that is empty or not English. settings: names the narration tagger.
    Raises ModelError when the sentence encoder is not installed.
    """
    probabilities = transcript_step_probabilities(transcript, settings)
    if probabilities is None:
        return None
    texts = [sentence.text for sentence in transcript.sentences]
    return instruction_log_bayes(probabilities.tolist(), embed(texts))


def _rejected_sentence(unit: NarrationUnit, tags: SentenceTags, probability: float) -> Rejected:
    """Return a sentence that describes no step as rejected.

    The reason names its kind if that is more likely than all others together.

    probability: P(the sentence describes a step).
    """
    kind = SENTENCE_KINDS[int(tags.kind_probabilities.argmax())]
    reason = "not clearly a step of the work"
    if kind != "step" and tags.kind_probabilities.max() > 0.5:
        reason = KIND_REASONS[kind]
    reason += f" (states a step: {probability:.0%})"
    return Rejected(what="step", text=unit.text, reason=reason)


def _sentence_drafts(
    unit: NarrationUnit, editor: SentenceEditor, tagger: NarrationTagger, namer: PronounResolver
) -> list[DraftStep]:
    """Return the draft steps of a sentence: those that the grammar finds, else those that the tagger
    marks word by word.

    Args:
        unit: the spoken sentence.
        editor: holds the sentence's tags and tokens.
        tagger: names the verbs that can be put in front of a sentence without one.
        namer: finds the antecedents of pronouns.
    """
    number = editor.number

    def name(index: int) -> str | None:
        return namer.antecedent_at(number, index)

    drafts = grammar_drafts(unit.text, number, editor.tags, name)
    return drafts or editor.steps(tagger.front_verbs)


def _append_amount(steps: list[SentenceStep], doc: "Doc", unit: NarrationUnit) -> bool:
    """Append the amount that a sentence states to the last step, in place. Return whether the
    sentence states nothing but an amount, and a step could take it.

    Args:
        steps: the steps so far.
        doc: the parsed sentence.
        unit: the same sentence.
    """
    amount = sentence_amount(doc) if steps else None
    if amount is None:
        return False
    said = steps[-1].step.said
    if said and said.pause(unit.sentences[0].span) > MAX_ACTION_PAUSE_SECONDS:
        return False
    step = with_amount(steps[-1].step, amount, unit.first_sentence)
    if step is None:
        return False
    steps[-1] = replace(steps[-1], step=step)
    return True


def _as_step(draft: DraftStep, unit: NarrationUnit) -> Step:
    """Return a draft of a spoken sentence as a step with its source sentences and spoken span."""
    # What was left out between the first and the last word counts too.
    word_positions = list(unit.word_positions())
    first = draft.word_indices[0]
    last = draft.word_indices[-1]
    word_indices_of: dict[int, list[int]] = {}
    for number, index in word_positions[first : last + 1]:
        word_indices_of.setdefault(number, []).append(index)
    spans = [
        _spoken_span(unit.sentences[number - unit.first_sentence], word_indices)
        for number, word_indices in word_indices_of.items()
    ]
    return Step(id="0", text=draft.text, said=covering_span(spans), sources=tuple(word_indices_of))


def _spoken_span(sentence: Sentence, word_indices: Sequence[int]) -> Span:
    """Return the span from the first to the last of some words of a sentence, the span of the whole
    sentence if its words have no times."""
    # Indices count the words of the text, so there must be one time per word.
    if len(sentence.words) != len(sentence.text.split()):
        return sentence.span
    words = sentence.words[min(word_indices) : max(word_indices) + 1]
    return covering_span(word.span for word in words) or sentence.span
