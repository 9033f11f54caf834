"""Paragraphs cut into single steps: "Bake at 375 degrees F. for 1 hr. Cool." is two, not four.

A full stop after a unit or an abbreviation ends a step only where the next word begins one.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path

CLOSING_CHARS = "\"'”’»)]}*_"
OPENING_CHARS = "\"'“‘«([{*_-–—"
FULL_STOPS = ".!?…。！？"
_ENDING_CHARS = ".,;:!?" + CLOSING_CHARS
_NUMBER_CHARS = "0123456789./½¼¾⅓⅔⅛-"

_LIST_MARK = re.compile(
    r"^\s*(?:[-*•·‣▪–—]+|\(?(?:step\s+)?\d{1,3}\s*[.):]|step\s+\d{1,3}\s*[.:)-]?)\s+", re.IGNORECASE
)
_INNER_MARK = re.compile(r"(?:(?<=[.!?;:)])|^)\s*\(?\b\d{1,2}[.)]\s+(?=[A-Z])")
_GLUED_SENTENCES = re.compile(r"(?<=[a-z]{2}[.!?])(?=[A-Z][a-z])")
_LINK_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_HTML_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_LINE_BREAK_TAG = re.compile(r"<(?:br|p|li)\b[^<>]{0,200}>|</(?:p|li)>", re.IGNORECASE)
_TEXT_MARKUP = re.compile(r"(\*\*|__|`+|(?<!\w)[*_](?=\w)|(?<=[\w.!?])[*_](?!\w))")
# of Unicode: control, format, space, private use, surrogate
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zs", "Co", "Cs"})
_MARKUP_CHAR = re.compile(r"[*_`\]]")
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
_WEB_ADDRESS = re.compile(r"www\.|https?:|@|\w\.com\b", re.IGNORECASE)


def split_into_steps(text: str) -> list[str]:
    """Return the single steps of a text in order.

    Lines, list items and sentences are steps. List marks are removed.
    """
    steps: list[str] = []
    for line in strip_markup(text).splitlines():
        steps += _split_line(line)
    return steps


def strip_markup(text: str) -> str:
    """Return the text without HTML, Markdown and control characters, in Unicode form NFC.

    Line breaks are kept.
    """
    if "<" in text or "&" in text:
        text = _LINE_BREAK_TAG.sub("\n", text)
        # Entities before tags: an escaped tag is one too.
        text = html.unescape(text)
        text = _HTML_TAG.sub(" ", text)
    if _MARKUP_CHAR.search(text):
        text = _LINK_MARKUP.sub(r"\1", text)
        text = _TEXT_MARKUP.sub("", text)
    text = unicodedata.normalize("NFC", text)
    lines = []
    for line in text.splitlines():
        words = _without_control_chars(line).split()
        if words:
            lines.append(" ".join(words))
    return "\n".join(lines)


def has_words(text: str) -> bool:
    """Return whether a text holds at least two letters in a row."""
    return _TWO_LETTERS.search(text) is not None


def _without_control_chars(line: str) -> str:
    if line.isprintable():
        return line
    chars = []
    for char in line:
        if unicodedata.category(char) in _INVISIBLE_CATEGORIES:
            char = " "
        chars.append(char)
    return "".join(chars)


def _split_line(line: str) -> Iterator[str]:
    line = _LIST_MARK.sub("", line).lstrip("#> ")
    # A line may hold a list: "1. Stir. 2. Pour."
    line = _INNER_MARK.sub(" \n", line)
    for part in line.split("\n"):
        tokens = part.split()
        if _GLUED_SENTENCES.search(part):
            tokens = _split_glued(tokens)
        for sentence in _split_sentences(tokens):
            for step in _unwrap_brackets(sentence):
                if has_words(step):
                    yield step


def _split_glued(tokens: list[str]) -> list[str]:
    """Return the tokens. A token of two glued sentences, such as "done.Then", is split in two."""
    words: list[str] = []
    for token in tokens:
        if _WEB_ADDRESS.search(token):
            words.append(token)
        else:
            words += _GLUED_SENTENCES.sub(" ", token).split()
    return words


def _unwrap_brackets(step: str) -> list[str]:
    """Return the sentences inside the brackets of a step such as "(Stir. Taste.)".

    Any other step is returned unchanged.
    """
    is_wrapped = step.startswith("(") and step.endswith(")")
    if not is_wrapped or step.count("(") != 1:
        return [step]
    sentences = list(_split_sentences(step[1:-1].split()))
    return sentences if len(sentences) > 1 else [step]


def _split_sentences(tokens: list[str]) -> Iterator[str]:
    """Yield the sentences of a line. No sentence ends inside closed round brackets."""
    line = " ".join(tokens)
    is_balanced = line.count("(") == line.count(")")
    depth = 0
    sentence = []
    for word, next_word in zip_longest(tokens, tokens[1:]):
        sentence.append(word)
        depth += word.count("(") - word.count(")")
        if is_balanced and depth > 0:
            continue
        if next_word is None or is_step_boundary(word, next_word):
            yield " ".join(sentence)
            sentence = []
    if sentence:
        yield " ".join(sentence)


def is_step_boundary(word: str, following: str) -> bool:
    """Return whether one step ends and the next step begins between two words of a line.

    Args:
        word: the word before the possible boundary.
        following: the next word.
    """
    word_without_marks = word.rstrip(CLOSING_CHARS)
    if not word_without_marks or word_without_marks[-1] not in FULL_STOPS:
        return False
    next_word = following.lstrip(OPENING_CHARS)
    if not next_word:
        return False
    first_char = next_word[0]
    is_verb = _is_in_word_list(next_word, "verbs")
    # without a capital, only a verb begins a step
    if first_char.islower():
        return (
            is_verb
            and not _ends_with_quantity_unit(word_without_marks)
            and not word_without_marks.endswith("..")
        )
    if word_without_marks[-1] != ".":
        return True
    # after a full stop that may belong to a unit or an abbreviation
    if _ends_with_quantity_unit(word_without_marks):
        return (is_verb or _is_in_word_list(next_word, "capitals")) and first_char.isalpha()
    is_measure = _strip_full_stop(word_without_marks) in load_step_words()["measures"]
    return first_char.isalpha() or not is_measure


def _ends_with_quantity_unit(word_without_marks: str) -> bool:
    if not word_without_marks.endswith("."):
        return False
    words = load_step_words()
    unit = _strip_full_stop(word_without_marks).lstrip(_NUMBER_CHARS)  # "8oz."
    is_letter = len(unit) == 1 and unit.isalpha()
    return unit in words["quantities"] or (is_letter and unit not in words["measures"])


def _strip_full_stop(word: str) -> str:
    """Return a word in lower case, without opening marks and without its full stop."""
    return word.rstrip(".").casefold().lstrip(OPENING_CHARS)


def _is_in_word_list(word: str, section: str) -> bool:
    """Return whether a section of step_words.txt holds a word. Punctuation is ignored."""
    return word.casefold().rstrip(_ENDING_CHARS) in load_step_words()[section]


@cache
def load_step_words() -> dict[str, frozenset[str]]:
    """Return the word lists of step_words.txt by the names of their sections.

    The sections are verbs, capitals, quantities and measures.
    """
    text = Path(__file__).with_name("step_words.txt").read_text(encoding="utf-8")
    sections: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section: set[str] = set()
            name = line.strip("[]")
            sections[name] = section
        elif sections and not line.startswith("#"):
            section.update(line.split())
    return {name: frozenset(words) for name, words in sections.items()}
