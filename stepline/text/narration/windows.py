"""Narration as the network reads it: windows of some 130 tokens, each sentence with its neighbours.

Letters: W words of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tokenizers import Tokenizer

from stepline.text.narration.words import bare_word, spoken_words

START_TOKEN = 101  # [CLS]
SEPARATOR_TOKEN = 102  # [SEP]
UNKNOWN_TOKEN = 100
TARGET_TOKENS = 90  # of the sentences that a window is asked about
MAX_SENTENCE_TOKENS = 180  # words behind them are not read
MAX_WINDOW_TOKENS = 250
TARGET_WORDS = 80  # of unpunctuated speech that a window is asked about
CONTEXT_WORDS = 24  # on either side of those

TokenIds = list[int]


@dataclass(frozen=True)
class WordSpan:
    """The token positions of W consecutive words in a window.

    Attributes:
        number: index of the sentence, or of the first word in unpunctuated speech.
        word_starts: index of each word's first token, then the end of the last word, (W + 1,). Two
            equal indices mean that the word was truncated.
    """

    number: int
    word_starts: tuple[int, ...]


@dataclass(frozen=True)
class TokenWindow:
    """One input sequence of the narration network: some sentences, with the words around them as context.

    Attributes:
        ids: token ids, with those of the context.
        spans: the words for which the network predicts tags, one span per sentence. Words of the
            context are in no span.
    """

    ids: tuple[int, ...]
    spans: tuple[WordSpan, ...]


def sentence_windows(sentences: Sequence[str], tokenizer: Tokenizer) -> list[TokenWindow]:
    """Return windows that cover each sentence once, with one neighbour on either side as context."""
    # Tokens word by word, so that each word's are known.
    tokens = [_word_tokens(spoken_words(text), tokenizer) for text in sentences]
    windows = []
    for start, end in _sentence_groups(tokens):
        ids: TokenIds = [START_TOKEN]
        spans = []
        # The end of the sentence before.
        if start:
            ids += _flatten(tokens[start - 1])[-TARGET_TOKENS // 2 :]
            ids.append(SEPARATOR_TOKEN)
        # The sentences that are asked about.
        for number in range(start, end):
            spans.append(_append_words(ids, tokens[number], number))
            ids.append(SEPARATOR_TOKEN)
        # The begin of the sentence after, where there is room.
        if end < len(tokens):
            free_tokens = MAX_WINDOW_TOKENS - len(ids) - 1
            ids += _flatten(tokens[end])[: min(TARGET_TOKENS // 2, free_tokens)]
            ids.append(SEPARATOR_TOKEN)
        windows.append(TokenWindow(tuple(ids), tuple(spans)))
    return windows


def word_windows(words: Sequence[str], tokenizer: Tokenizer) -> list[TokenWindow]:
    """Return windows that cover each word once, without punctuation, for unpunctuated speech."""
    tokens = _word_tokens([bare_word(word) for word in words], tokenizer)
    windows = []
    for start in range(0, len(tokens), TARGET_WORDS):
        end = min(start + TARGET_WORDS, len(tokens))
        ids = [START_TOKEN, *_flatten(tokens[max(0, start - CONTEXT_WORDS) : start])]
        span = _append_words(ids, tokens[start:end], start)
        ids += _flatten(tokens[end : end + CONTEXT_WORDS])
        # One place is left for the separator.
        windows.append(TokenWindow((*ids[: MAX_WINDOW_TOKENS - 1], SEPARATOR_TOKEN), (span,)))
    return windows


def _word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> list[TokenIds]:
    """Return the tokens of each word, [UNK] for an empty one."""
    encodings = tokenizer.encode_batch(list(words), add_special_tokens=False)
    return [encoding.ids or [UNKNOWN_TOKEN] for encoding in encodings]


def _sentence_groups(tokens: Sequence[Sequence[TokenIds]]) -> list[tuple[int, int]]:
    """Return the sentences of each window as a pair: index of the first one, index after the last.

    tokens: the token ids of each word of each sentence.
    """
    groups = []
    start = 0
    count = 0
    for number, words in enumerate(tokens):
        length = sum(len(word) for word in words)
        if number > start and count + length > TARGET_TOKENS:
            groups.append((start, number))
            start = number
            count = 0
        count += length
    if tokens:
        groups.append((start, len(tokens)))
    return groups


def _append_words(ids: TokenIds, words: Sequence[TokenIds], number: int) -> WordSpan:
    """Append the tokens of words to a window's `ids`, in place and up to the length limits. Return
    the positions of the words in the window.

    Args:
        ids: token ids of the window so far.
        words: the token ids of each word.
        number: index of the sentence, or of the first word in unpunctuated speech.
    """
    start = len(ids)
    word_starts = [start]
    for word in words:
        end = len(ids) + len(word)
        if end - start <= MAX_SENTENCE_TOKENS and end < MAX_WINDOW_TOKENS:
            ids += word
        word_starts.append(len(ids))
    return WordSpan(number, tuple(word_starts))


def _flatten(words: Sequence[TokenIds]) -> TokenIds:
    return list(chain.from_iterable(words))
