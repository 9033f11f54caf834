"""The extractive writer: steps from the speaker's own words; no network, no language model server.

sentences   the narration tagger reads each with its neighbours (stepline/narration)
choice      which of them tell a step (step_score)
editing     which words make the step, put as orders (step_editor)
names       what "it" and "them" stand for, where that is sure (antecedents)
folding     what is told twice is one step (repeats)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stepline.narration import NarrationTagger, SentenceReading, load_tagger
from stepline.narration.words import SENTENCE_KINDS, looks_english, spoken_words
from stepline.records import Rejected, Sentence, Span, Step, Transcript, covering_span
from stepline.text import embed
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.grammar_actions import GrammarAction, grammar_actions
from stepline.writing.extractive.instruction import instruction_log_bayes
from stepline.writing.extractive.repeats import fold_by_meaning, merge_repeats, number_steps
from stepline.writing.extractive.step_editor import DraftStep, DraftWord, SentenceEditor
from stepline.writing.extractive.step_names import StepNamer
from stepline.writing.extractive.step_score import step_probabilities
from stepline.writing.settings import WritingSettings
from stepline.writing.types import WrittenSteps

if TYPE_CHECKING:
    from spacy.tokens import Doc

__all__ = ["merge_repeats", "number_steps", "write_extractive"]

# P(a sentence tells a step) from which it is written; fitted on narrations of YouCook2.
MIN_STEP_PROBABILITY: Final = {"few": 0.5, "usual": 0.4, "all": 0.2}
MIN_WARNING: Final = 0.5  # P that a sentence warns, from which what is not to be done is written
MIN_TOLD_REASON: Final = 0.1  # P(step) from which a refused sentence is worth a record
BROKEN_OFF_SECONDS: Final = 5.0  # of silence in the middle of a sentence, while it is shown
MAX_UNIT_WORDS: Final = 60  # words read as one sentence
SENTENCE_ENDS: Final = (".", "!", "?", ";", ":", "…")
REASONS: Final = {
    "warning": "a warning",
    "option": "left to the viewer",
    "consequence": "a reason or a consequence, not an action",
    "announcement": "an announcement of what comes",
    "recap": "a recap of steps that were told",
    "items": "names what is needed, and no action",
    "talk": "talk, not a step of the work",
}


def write_extractive(
    transcript: Transcript, settings: WritingSettings | None = None
) -> WrittenSteps:
    """Return the steps that the transcript tells, each from the words of its sentences.

    Reads English only: for another language it returns no steps and a note that says so.
    Raises ModelError when the English parser or the sentence encoder is not installed.
    """
    settings = WritingSettings() if settings is None else settings
    foreign = _foreign(transcript)
    if foreign is not None:
        return WrittenSteps(notes=(foreign,))
    units = _units(transcript.sentences)
    tagger = load_tagger(settings.step_scorer)
    texts = [unit.text for unit in units]
    readings = tagger.read_sentences(texts)
    chances = step_probabilities(readings, texts)
    docs = list(parse([" ".join(unit.words) for unit in units]))
    threshold = MIN_STEP_PROBABILITY[settings.steps]
    namer = StepNamer(docs, readings)
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for number, (unit, reading) in enumerate(zip(units, readings, strict=True)):
        chance = float(chances[number])
        is_warning = _warns(reading)
        if chance < threshold and not is_warning:
            if chance >= MIN_TOLD_REASON:
                dropped.append(_refused(unit, reading, chance))
            continue
        drafts = _drafts(unit, reading, docs[number], number, tagger, namer)
        if is_warning and chance < threshold:
            drafts = [draft for draft in drafts if draft.is_negated]
        if not drafts and chance >= threshold:
            reason = "tells a step, but no action was made out in its words"
            dropped.append(Rejected(what="step", text=unit.text, reason=reason))
        for draft in drafts:
            named = namer.with_names(draft)
            if named is not None:
                steps.append(_step(named, unit))
    folded = fold_by_meaning(merge_repeats(steps))
    return WrittenSteps(number_steps(folded), tuple(dropped))


def sentence_step_probabilities(
    sentences: Sequence[str], tagger: NarrationTagger | None = None
) -> list[float]:
    """Return P(it tells a step) of each sentence of one English narration, in order."""
    tagger = load_tagger() if tagger is None else tagger
    readings = tagger.read_sentences(sentences)
    return [float(chance) for chance in step_probabilities(readings, sentences)]


def narration_instruction(
    transcript: Transcript, settings: WritingSettings | None = None
) -> float | None:
    """Return the log Bayes factor that a narration instructs, against other talk, by all of its
    sentences; None where the scorer of sentences cannot read its language, or nothing is said.

    Raises ModelError when the sentence encoder is not installed.
    """
    settings = WritingSettings() if settings is None else settings
    texts = [sentence.text for sentence in transcript.sentences]
    if not texts or _foreign(transcript) is not None:
        return None
    probabilities = sentence_step_probabilities(texts, load_tagger(settings.step_scorer))
    return instruction_log_bayes(probabilities, embed(texts))


def _warns(reading: SentenceReading) -> bool:
    return float(reading.kinds[SENTENCE_KINDS.index("warning")]) >= MIN_WARNING


def _refused(unit: "_Unit", reading: SentenceReading, chance: float) -> Rejected:
    """Return the record of a sentence that is no step, with what it is instead."""
    others = [kind for kind in SENTENCE_KINDS if kind != "step"]
    kind = max(others, key=lambda other: float(reading.kinds[SENTENCE_KINDS.index(other)]))
    reason = f"{REASONS[kind]} (tells a step: {chance:.0%})"
    return Rejected(what="step", text=unit.text, reason=reason)


def _drafts(
    unit: "_Unit",
    reading: SentenceReading,
    doc: "Doc",
    number: int,
    tagger: NarrationTagger,
    namer: StepNamer,
) -> list[DraftStep]:
    """Return the steps of a sentence: by grammar where it finds an action, else word by word."""
    actions = grammar_actions(unit.text, reading, lambda place: namer.name_at(number, place))
    if actions:
        return [_as_draft(action, number) for action in actions]
    editor = SentenceEditor(unit.words, reading, doc, number)
    return editor.steps(tagger.front_verbs)


def _as_draft(action: GrammarAction, number: int) -> DraftStep:
    words = [DraftWord(action.text, place) for place in action.places[:1]]
    others = [DraftWord("", place) for place in action.places[1:]]
    return DraftStep((*words, *others), number, action.is_negated)


@dataclass(frozen=True)
class _Unit:
    """Sentences that are read as one, for a pause cut them: the number of the first, and all."""

    first: int
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def words(self) -> list[str]:
        return spoken_words(self.text)

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield for each of its words the number of its sentence and its place there."""
        for number, sentence in enumerate(self.sentences, start=self.first):
            for place, word in enumerate(sentence.text.split()):
                if spoken_words(word):
                    yield number, place


def _units(sentences: Sequence[Sentence]) -> list[_Unit]:
    """Return the sentences in order, those joined that go on in a small letter without a full stop.

    Only where sentences end with full stops, which captions without punctuation do not.
    """
    ends = sum(sentence.text.rstrip().endswith(SENTENCE_ENDS) for sentence in sentences)
    is_punctuated = 2 * ends > len(sentences)
    units: list[_Unit] = []
    for number, sentence in enumerate(sentences):
        before = units[-1] if units else None
        if before is not None and is_punctuated and _goes_on(before, sentence):
            units[-1] = replace(before, sentences=(*before.sentences, sentence))
        else:
            units.append(_Unit(number, (sentence,)))
    return units


def _goes_on(unit: _Unit, sentence: Sentence) -> bool:
    """Return whether a sentence is the rest of the one before."""
    last = unit.sentences[-1]
    has_ended = last.text.rstrip().endswith(SENTENCE_ENDS)
    silence = sentence.span.start - last.span.end
    length = len(f"{unit.text} {sentence.text}".split())
    fits = silence <= BROKEN_OFF_SECONDS and length <= MAX_UNIT_WORDS
    return sentence.text[:1].islower() and not has_ended and fits


def _foreign(transcript: Transcript) -> str | None:
    """Return a note when the transcript is not English, by its own word or, where it says none, by
    its words."""
    language = transcript.language
    if language is not None:
        if language.lower().split("-")[0] in ("en", "english"):
            return None
        heard = f"the extractive writer reads English only, the transcript is {language!r}"
        was_recognised = transcript.recogniser not in (None, "captions")
        translate = "translate it with --translate, or " if was_recognised else ""
        return f"{heard}; {translate}use the llm writer"
    words = [
        word
        for sentence in transcript.sentences
        for word in re.findall(r"\w+", sentence.text.lower())
    ]
    if looks_english(words):
        return None
    return "the extractive writer reads English only, and this transcript does not look like it; use the llm writer"


def _step(draft: DraftStep, unit: _Unit) -> Step:
    """Return the step with the sentences that it rests on, and when they are said."""
    all_places = list(unit.places())
    spoken = draft.places
    rests_on = all_places[spoken[0] : spoken[-1] + 1]
    sources = tuple(dict.fromkeys(number for number, _ in rests_on))
    spans = []
    for number in sources:
        places = [place for own, place in rests_on if own == number]
        spans.append(_said(unit.sentences[number - unit.first], places))
    return Step(id="0", text=draft.text, said=covering_span(spans), sources=sources)


def _said(sentence: Sentence, places: Sequence[int]) -> Span:
    """Return when the words from first to last place are spoken; the whole sentence when words
    carry no times."""
    if len(sentence.words) != len(sentence.text.split()):
        return sentence.span
    spoken = sentence.words[min(places) : max(places) + 1]
    return covering_span(word.span for word in spoken) or sentence.span
