"""Narration as the network reads it: windows of some 130 tokens, each sentence with its neighbours.

Letters: B windows, L tokens, W words of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from stepline.text.narration.words import bare_word, spoken_words

START_TOKEN: Final = 101  # [CLS]
SEPARATOR_TOKEN: Final = 102  # [SEP]
UNKNOWN_TOKEN: Final = 100
ASKED_TOKENS: Final = 90  # of the sentences that a window is asked about
MAX_SENTENCE_TOKENS: Final = 180  # words behind them are not read
MAX_WINDOW_TOKENS: Final = 250
ASKED_WORDS: Final = 80  # of unpunctuated speech that a window is asked about
NEIGHBOUR_WORDS: Final = 24  # on either side of those

TokenIds: TypeAlias = list[int]
Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WordSpan:
    """Where the words of a sentence are in its window.

    number: of the sentence, or of the first word of a stretch.
    starts: the first token of each word, and one behind the last. They are equal where a word is
    not read.
    """

    number: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """Token ids, and where the sentences lie that the window is asked about."""

    ids: tuple[int, ...]
    spans: tuple[WordSpan, ...]


def sentence_windows(sentences: Sequence[str], tokenizer: Tokenizer) -> list[Window]:
    """Return windows in which each sentence is asked about once, one neighbour on either side."""
    # Tokens word by word, so that each word's are known.
    tokens = []
    for text in sentences:
        words = spoken_words(text)
        tokens.append(_word_tokens(words, tokenizer))
    windows = []
    for begin, end in _sentence_groups(tokens):
        ids: TokenIds = [START_TOKEN]
        spans = []
        # The end of the sentence before.
        if begin:
            before = _flat(tokens[begin - 1])
            ids += before[-ASKED_TOKENS // 2 :]
            ids.append(SEPARATOR_TOKEN)
        # The sentences that are asked about.
        for number in range(begin, end):
            span = _append_words(ids, tokens[number], number)
            spans.append(span)
            ids.append(SEPARATOR_TOKEN)
        # The begin of the sentence after, where there is room.
        if end < len(tokens):
            after = _flat(tokens[end])
            room = MAX_WINDOW_TOKENS - len(ids) - 1
            ids += after[: min(ASKED_TOKENS // 2, room)]
            ids.append(SEPARATOR_TOKEN)
        window = Window(tuple(ids), tuple(spans))
        windows.append(window)
    return windows


def stretch_windows(words: Sequence[str], tokenizer: Tokenizer) -> list[Window]:
    """Return windows over words without their marks, in which each word is asked about once."""
    bare_words = [bare_word(word) for word in words]
    tokens = _word_tokens(bare_words, tokenizer)
    windows = []
    for begin in range(0, len(tokens), ASKED_WORDS):
        end = min(begin + ASKED_WORDS, len(tokens))
        first = max(0, begin - NEIGHBOUR_WORDS)
        last = end + NEIGHBOUR_WORDS
        ids: TokenIds = [START_TOKEN]
        ids += _flat(tokens[first:begin])
        span = _append_words(ids, tokens[begin:end], begin)
        ids += _flat(tokens[end:last])
        # One place is left for the separator.
        ids = ids[: MAX_WINDOW_TOKENS - 1]
        ids.append(SEPARATOR_TOKEN)
        window = Window(tuple(ids), (span,))
        windows.append(window)
    return windows


def pad_windows(windows: Sequence[Window]) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Return token ids (B, L) and whether each is one (B, L)."""
    longest = max(len(window.ids) for window in windows)
    shape = (len(windows), longest)
    ids = np.zeros(shape, np.int64)
    is_token = np.zeros(shape, np.bool_)
    for row, window in enumerate(windows):
        length = len(window.ids)
        ids[row, :length] = window.ids
        is_token[row, :length] = True
    return ids, is_token


def _word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> list[TokenIds]:
    """Return the tokens of each word. An empty one is unknown."""
    encodings = tokenizer.encode_batch(list(words), add_special_tokens=False)
    return [encoding.ids or [UNKNOWN_TOKEN] for encoding in encodings]


def _sentence_groups(tokens: Sequence[Sequence[TokenIds]]) -> list[tuple[int, int]]:
    """Return the first and one behind the last sentence of each window."""
    groups = []
    begin = 0
    count = 0
    for number, words in enumerate(tokens):
        length = sum(len(word) for word in words)
        if number > begin and count + length > ASKED_TOKENS:
            groups.append((begin, number))
            begin = number
            count = 0
        count += length
    if tokens:
        groups.append((begin, len(tokens)))
    return groups


def _append_words(ids: TokenIds, words: Sequence[TokenIds], number: int) -> WordSpan:
    """Append the tokens of the words, as far as there is room, and return where they lie."""
    begin = len(ids)
    starts = [begin]
    for word in words:
        end = len(ids) + len(word)
        if end - begin <= MAX_SENTENCE_TOKENS and end < MAX_WINDOW_TOKENS:
            ids += word
        starts.append(len(ids))
    return WordSpan(number, tuple(starts))


def _flat(words: Sequence[TokenIds]) -> TokenIds:
    tokens: TokenIds = []
    for word in words:
        tokens += word
    return tokens
