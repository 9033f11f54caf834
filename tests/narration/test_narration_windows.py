"""Windows hold each sentence once as what is asked about, and its neighbours."""

import pytest

from stepline.networks.weights import find_weights
from stepline.text.narration.adapted_encoder import load_plain_tokenizer
from stepline.text.narration.windows import (
    MAX_WINDOW_TOKENS,
    SEPARATOR_TOKEN,
    TARGET_WORDS,
    sentence_windows,
    word_windows,
)


@pytest.fixture(scope="module")
def tokenizer():
    return load_plain_tokenizer(find_weights("minilm"))


def test_each_sentence_is_asked_about_once_and_in_order(tokenizer):
    sentences = [f"Now add the salt number {number} to the pan." for number in range(60)]
    windows = sentence_windows(sentences, tokenizer)
    numbers = [span.number for window in windows for span in window.spans]
    assert numbers == list(range(60))
    assert all(len(window.ids) <= MAX_WINDOW_TOKENS for window in windows)


def test_a_window_begins_with_the_sentence_before(tokenizer):
    sentences = ["Peel the onion. " * 25, "Slice it.", "Fry it."]
    first, *_, last = sentence_windows(sentences, tokenizer)
    assert first.spans[0].number == 0
    before = last.ids[1 : last.spans[0].word_starts[0]]
    assert before[-1] == SEPARATOR_TOKEN
    assert len(before) > 1


def test_each_word_has_its_tokens(tokenizer):
    (window,) = sentence_windows(["Add amchur powder."], tokenizer)
    (span,) = window.spans
    tokens = [window.ids[a:b] for a, b in zip(span.word_starts, span.word_starts[1:], strict=False)]
    assert len(tokens) == 3
    assert len(tokens[1]) > 1  # a rare word has several pieces


def test_a_sentence_too_long_is_read_to_the_limit_and_the_rest_is_empty(tokenizer):
    (window,) = sentence_windows(["salt " * 400], tokenizer)
    starts = window.spans[0].word_starts
    assert len(starts) == 401
    assert starts[-1] == starts[-2]
    assert len(window.ids) <= MAX_WINDOW_TOKENS


def test_a_stretch_asks_about_each_word_once(tokenizer):
    words = ["word"] * (2 * TARGET_WORDS + 5)
    windows = word_windows(words, tokenizer)
    counts = [len(window.spans[0].word_starts) - 1 for window in windows]
    assert counts == [TARGET_WORDS, TARGET_WORDS, 5]
