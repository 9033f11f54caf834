"""Steps that the tagger finds word by word."""

import numpy as np

from stepline.text.narration.tagger import SentenceTags
from stepline.text.narration.words import NO_VERB, SENTENCE_KINDS, WORD_EDITS, spoken_words
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.step_editor import DraftStep, DraftWord, SentenceEditor

FRONT_VERBS = (NO_VERB, "add", "put")


def editor_of(text, kept, chance_of_verb, front=(0.9, 0.05, 0.05)):
    """An editor of a sentence whose words `kept` stay; chance_of_verb: word -> P(an action)."""
    words = spoken_words(text)
    edits = np.zeros((len(words), len(WORD_EDITS)))
    for place, word in enumerate(words):
        bare = word.strip(",.").lower()
        verb = chance_of_verb.get(bare, 0.0)
        keep = 0.9 * (bare in kept)
        edits[place, WORD_EDITS.index("verb")] = verb
        edits[place, WORD_EDITS.index("keep")] = keep
        edits[place, WORD_EDITS.index("drop")] = 1 - verb - keep
    kinds = np.full(len(SENTENCE_KINDS), 1 / len(SENTENCE_KINDS))
    (doc,) = parse([" ".join(words)])
    return SentenceEditor(words, SentenceTags(kinds, edits, np.array(front)), doc, 0)


def test_a_list_gets_the_verb_that_an_editor_would_put_first():
    text = "Some salt in a bowl."
    kept = ("some", "salt", "in", "a", "bowl")
    for front, steps in (((0.4, 0.5, 0.1), ["add some salt in a bowl"]), ((0.6, 0.3, 0.1), [])):
        editor = editor_of(text, kept, {}, front)
        assert [step.text for step in editor.steps(FRONT_VERBS)] == steps


def test_a_step_knows_how_often_words_were_left_out_of_it():
    words = [DraftWord("cut", 1), DraftWord("bread", 3), DraftWord("thin", 4), DraftWord("up", 9)]
    assert DraftStep(tuple(words), 0).gap_count == 2
    assert DraftStep((DraftWord("use", None), *words[:1]), 0).gap_count == 0
    kept = ("it", "you", "know", "into", "slices")
    for words_kept, steps in ((kept, ["cut it, you know, into slices"]), (kept[-2:], [])):
        editor = editor_of("Cut it, you know, into slices.", words_kept, {"cut": 0.9})
        assert [step.text for step in editor.steps(FRONT_VERBS)] == steps


def test_the_of_of_a_measure_goes_with_the_measure():
    editor = editor_of("A bit of salt.", ("of", "salt"), {}, (0.1, 0.8, 0.1))
    assert [step.text for step in editor.steps(FRONT_VERBS)] == ["add salt"]


def test_a_sentence_with_a_not_is_not_read_word_by_word():
    kept = ("the", "leg", "out")
    text = "Don't stand in front of him, and pull the leg out."
    assert not editor_of(text, kept, {"pull": 0.9}).steps(FRONT_VERBS)
    (step,) = editor_of(text.replace("Don't", "Just"), kept, {"pull": 0.9}).steps(FRONT_VERBS)
    assert step.text == "pull the leg out"
