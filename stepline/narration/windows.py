"""Narration as the network reads it: windows of some 130 tokens, each sentence with its neighbours.

Letters: B windows, L tokens, W words of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from stepline.narration.words import bare_word, spoken_words

START_TOKEN: Final = 101  # [CLS]
SEPARATOR_TOKEN: Final = 102  # [SEP]
UNKNOWN_TOKEN: Final = 100
ASKED_TOKENS: Final = 90  # of the sentences that a window is asked about
MAX_SENTENCE_TOKENS: Final = 180  # words behind them are not read
MAX_WINDOW_TOKENS: Final = 250
ASKED_WORDS: Final = 80  # of unpunctuated speech that a window is asked about
NEIGHBOUR_WORDS: Final = 12  # on either side of those

TokenIds: TypeAlias = list[int]
Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WordSpan:
    """Where the words of a sentence lie in its window.

    number: of the sentence, or of the first word of a stretch. starts: the first token of each
    word, and one behind the last; equal ones where a word is not read.
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
    tokens = [_word_tokens(spoken_words(text), tokenizer) for text in sentences]
    windows = []
    for begin, end in _sentence_groups(tokens):
        ids: TokenIds = [START_TOKEN]
        spans = []
        if begin:
            ids += _flat(tokens[begin - 1])[-ASKED_TOKENS // 2 :]
            ids.append(SEPARATOR_TOKEN)
        for number in range(begin, end):
            spans.append(_append_words(ids, tokens[number], number))
            ids.append(SEPARATOR_TOKEN)
        if end < len(tokens):
            room = MAX_WINDOW_TOKENS - len(ids) - 1
            ids += _flat(tokens[end])[: min(ASKED_TOKENS // 2, room)]
            ids.append(SEPARATOR_TOKEN)
        windows.append(Window(tuple(ids), tuple(spans)))
    return windows


def stretch_windows(words: Sequence[str], tokenizer: Tokenizer) -> list[Window]:
    """Return windows over words without their marks, in which each word is asked about once."""
    tokens = _word_tokens([bare_word(word) for word in words], tokenizer)
    windows = []
    for begin in range(0, len(tokens), ASKED_WORDS):
        end = min(begin + ASKED_WORDS, len(tokens))
        ids: TokenIds = [START_TOKEN]
        ids += _flat(tokens[max(0, begin - NEIGHBOUR_WORDS) : begin])
        span = _append_words(ids, tokens[begin:end], begin)
        ids += _flat(tokens[end : end + NEIGHBOUR_WORDS])
        ids = [*ids[: MAX_WINDOW_TOKENS - 1], SEPARATOR_TOKEN]
        windows.append(Window(tuple(ids), (span,)))
    return windows


def pad_windows(windows: Sequence[Window]) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Return token ids (B, L) and whether each is one (B, L)."""
    longest = max(len(window.ids) for window in windows)
    ids = np.zeros((len(windows), longest), np.int64)
    is_token = np.zeros((len(windows), longest), np.bool_)
    for row, window in enumerate(windows):
        ids[row, : len(window.ids)] = window.ids
        is_token[row, : len(window.ids)] = True
    return ids, is_token


def _word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> list[TokenIds]:
    """Return the tokens of each word; an empty one is unknown."""
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
        has_room = len(ids) - begin + len(word) <= MAX_SENTENCE_TOKENS
        if has_room and len(ids) + len(word) < MAX_WINDOW_TOKENS:
            ids += word
        starts.append(len(ids))
    return WordSpan(number, tuple(starts))


def _flat(words: Sequence[TokenIds]) -> TokenIds:
    return [token for word in words for token in word]
