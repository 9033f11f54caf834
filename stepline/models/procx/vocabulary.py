"""Sentences to WordPiece tokens and back, with no unknown ones (ProcX section 6.3), and as padded
token tensors.

A sentence is normalised (Unicode NFC, white space to single blanks, lower case if so set) and split
at blanks. Pieces inside a word begin with ##, so that tokens joined again are the sentence, its
punctuation in place. The vocabulary holds each of its characters in both forms, so every word of
them has tokens. Any other character is spelt as the half bytes of its UTF-8, 16 tokens in both
forms. So is #, which else could be taken for the sign of a piece. Training is deterministic: all
single characters get their numbers before pairs are counted. So ties do not depend on the
order of a hash table. Letters: M captions, W tokens of the longest.
"""

import hashlib
import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.models.procx.settings import VocabularySettings
from stepline.models.training.batches import TensorRecord

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# numbers of the marks
PAD_TOKEN = 0
BEGIN_TOKEN = 1
END_TOKEN = 2
# with blanks: no word of a text can be one
MARK_TOKENS = ("[ PAD ]", "[ BEGIN ]", "[ END ]")
# of the private use area: no text has them
HALF_BYTES = tuple(chr(0xE000 + value) for value in range(16))
LONGEST_WORD = 100  # characters; a longer one goes on as a new word
INSIDE_PREFIX = "##"  # before a piece that goes on a word
DIGEST_FORMAT = 1  # of what the sha256 is of
# times that a word is handed to its training as one text. More is not faster
MAX_WORD_REPEATS = 1000


@dataclass(frozen=True)
class Vocabulary:
    """WordPiece vocabulary of the captions.

    Attributes:
        tokens: texts of the tokens. A token's position is its number. Special tokens come first.
        lower: whether sentences are lower-cased before they are split into tokens.
    """

    tokens: tuple[str, ...]
    lower: bool = True

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def sha256(self) -> str:
        """SHA-256 of the vocabulary in hexadecimal."""
        content = [DIGEST_FORMAT, self.lower, list(self.tokens)]
        canonical = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, sentence: str) -> list[int]:
        """Return the token numbers of a sentence, without begin and end mark. A blank sentence
        gives []."""
        normalised = normalise_text(sentence, self.lower)
        # A longer word is split, because WordPiece makes it unknown as a whole.
        words = re.sub(rf"(\S{{{LONGEST_WORD}}})(?=\S)", r"\1 ", normalised)
        spelling = spell_in_bytes(words, self._alphabet)
        numbers: list[int] = self._tokenizer.encode(spelling, add_special_tokens=False).ids
        return numbers

    def decode(self, numbers: Iterable[int]) -> str:
        """Return the sentence of token numbers, up to the first end mark. Byte tokens that form no
        character become U+FFFD."""
        pieces: list[str] = []
        for number in numbers:
            if number == END_TOKEN:
                break
            if number not in (PAD_TOKEN, BEGIN_TOKEN):
                pieces.append(self.tokens[number])
        sentence = ""
        # A piece with a prefix joins the word before it. Any other begins a new word.
        for piece in pieces:
            inside = piece.removeprefix(INSIDE_PREFIX)
            if inside and inside != piece:
                sentence += inside
            else:
                sentence += f" {piece}"
        return _join_half_bytes(sentence).strip()

    @cached_property
    def _alphabet(self) -> frozenset[str]:
        return frozenset(token for token in self.tokens if len(token) == 1)

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.pre_tokenizers import WhitespaceSplit

        numbers = {token: number for number, token in enumerate(self.tokens)}
        unknown = MARK_TOKENS[PAD_TOKEN]
        # A character outside the alphabet is up to 4 bytes of UTF-8, so 8 half bytes.
        max_chars = 8 * LONGEST_WORD
        model = WordPiece(numbers, unk_token=unknown, max_input_chars_per_word=max_chars)
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = WhitespaceSplit()
        return tokenizer


def train_vocabulary(
    sentences: Iterable[str], settings: VocabularySettings = VocabularySettings()
) -> Vocabulary:
    """Return a WordPiece vocabulary trained on sentences. The order of the sentences does not
    change it.

    Args:
        sentences: texts whose words are counted.
        settings: `size` is the largest number of tokens. Few sentences give fewer tokens.

    Raises ShapeError when `size` is less than the number of single characters.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import WordPieceTrainer

    # WordPiece training counts words and sees nothing else, so that of any number of sentences only
    # these are held
    words = Counter[str]()
    for sentence in sentences:
        words.update(normalise_text(sentence, settings.lower).split())

    # every character gets its number before pairs are counted
    alphabet = _single_character_tokens(words, settings)
    marks = [*MARK_TOKENS]
    for character in (*HALF_BYTES, *alphabet):
        marks += [character, INSIDE_PREFIX + character]
    if settings.size < len(marks):
        raise ShapeError(
            f"a vocabulary of {settings.size} has no room for {len(alphabet)} characters in two "
            f"forms; set size to {len(marks)} or more"
        )
    tokenizer = Tokenizer(WordPiece(unk_token=MARK_TOKENS[PAD_TOKEN]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(vocab_size=settings.size, special_tokens=marks, show_progress=False)
    letters = frozenset(alphabet)

    # The trainer counts words in texts, so each word is given as often as it came.
    def repeated_words() -> Iterator[str]:
        for word, times in words.items():
            text = f"{spell_in_bytes(word, letters)} "
            for first in range(0, times, MAX_WORD_REPEATS):
                yield text * min(MAX_WORD_REPEATS, times - first)

    tokenizer.train_from_iterator(repeated_words(), trainer)
    numbers: dict[str, int] = tokenizer.get_vocab()
    tokens = sorted(numbers, key=lambda token: numbers[token])
    return Vocabulary(tuple(tokens), settings.lower)


def _single_character_tokens(words: Counter[str], settings: VocabularySettings) -> list[str]:
    """Return the characters that are tokens: printable ASCII, and other characters that occur at
    least `rare` times."""
    counts = Counter[str]()
    for word, times in words.items():
        for character in word:
            counts[character] += times
    # Printable ASCII has tokens even if no sentence has it.
    characters = set(string.digits + string.ascii_lowercase + string.punctuation)
    if not settings.lower:
        characters |= set(string.ascii_uppercase)
    for character, times in counts.items():
        if times >= settings.rare:
            characters.add(character)
    # Half bytes and # have another meaning, so as characters they are spelt in bytes.
    characters -= {*HALF_BYTES, *INSIDE_PREFIX}

    alphabet = []
    for character in sorted(characters):
        # halves of surrogate pairs cannot be written
        is_half = unicodedata.category(character) == "Cs"
        if not character.isspace() and not is_half:
            alphabet.append(character)
    return alphabet


def normalise_text(sentence: str, lower: bool) -> str:
    """Return a sentence in Unicode's composed form (NFC) with single spaces. lower: whether to
    lower-case it."""
    if lower:
        sentence = sentence.lower()
    return " ".join(unicodedata.normalize("NFC", sentence).split())


def spell_in_bytes(sentence: str, alphabet: frozenset[str]) -> str:
    """Return a sentence in which each character outside the alphabet is spelled by half-byte tokens
    of its UTF-8 encoding.

    alphabet: characters that are tokens.
    """
    plain = alphabet.difference(HALF_BYTES) | {" "}
    spelling = []
    for character in sentence:
        if character in plain:
            spelling.append(character)
        else:
            # A half of a surrogate pair has no UTF-8, and becomes a question mark.
            digits = character.encode("utf-8", "replace").hex()
            spelling += [HALF_BYTES[int(digit, 16)] for digit in digits]
    return "".join(spelling)


def _join_half_bytes(text: str) -> str:
    """Return the text with each run of half-byte tokens replaced by the characters that it
    encodes."""

    def decode_run(run: re.Match[str]) -> str:
        digits = "".join(f"{ord(half) - 0xE000:x}" for half in run[0])
        # An odd half byte at the end is cut off.
        whole_bytes = len(digits) // 2
        return bytes.fromhex(digits[: whole_bytes * 2]).decode("utf-8", "replace")

    return re.sub(f"[{HALF_BYTES[0]}-{HALF_BYTES[-1]}]+", decode_run, text)


@dataclass(frozen=True)
class CaptionTokens(TensorRecord):
    """Token numbers of M captions for teacher forcing.

    Attributes:
        tokens: (M, W) input tokens: begin mark, then words.
        targets: (M, W) next tokens to predict: words, then end mark.
        token_pad: (M, W), True on padding.
    """

    tokens: Tensor
    targets: Tensor
    token_pad: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def select(self, rows: Tensor) -> "CaptionTokens":
        """Return the captions with the given indices. rows: (M',) indices, in any order."""
        return CaptionTokens(self.tokens[rows], self.targets[rows], self.token_pad[rows])


def tokenize(sentences: Sequence[str], vocabulary: Vocabulary, longest: int) -> CaptionTokens:
    """Return captions as padded input and target tensors. A blank caption has only the end mark.

    Args:
        sentences: texts of the captions.
        vocabulary: vocabulary of the tokens.
        longest: largest number of tokens of a caption, end mark included. A longer caption is cut.
    """
    # A caption that is cut has no end mark, so that nothing learns to stop there.
    targets = [[*vocabulary.encode(sentence), END_TOKEN][:longest] for sentence in sentences]
    # The input is the target moved by one: the begin mark, then the words.
    tokens = [[BEGIN_TOKEN, *row[:-1]] for row in targets]
    padded_targets, token_pad = pad_tokens(targets)
    padded_tokens, _ = pad_tokens(tokens)
    return CaptionTokens(padded_tokens, padded_targets, token_pad)


def pad_tokens(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token numbers padded to (M, W), and the mask (M, W) that is True on padding.

    rows: token numbers of each of M captions.
    """
    width = max(map(len, rows), default=0)
    filled = [[*row, *[PAD_TOKEN] * (width - len(row))] for row in rows]
    # Without any row the view still has two dimensions.
    padded = torch.tensor(filled, dtype=torch.int64).view(len(rows), width)  # (M, W)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return padded, torch.arange(width) >= lengths[:, None]
