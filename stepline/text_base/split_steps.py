"""Paragraphs cut into single steps: "Bake at 375 degrees F. for 1 hr. Cool." is two, not four.

A full stop after a unit or an abbreviation ends a step only where the next word begins one.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CLOSING_CHARS = "\"'”’»)]}*_"
OPENING_CHARS = "\"'“‘«([{*_-–—"
FULL_STOPS = ".!?…。！？"

_LIST_MARK = re.compile(
    r"^\s*(?:[-*•·‣▪–—]+|\(?(?:step\s+)?\d{1,3}\s*[.):]|step\s+\d{1,3}\s*[.:)-]?)\s+", re.IGNORECASE
)
_INNER_MARK = re.compile(r"(?:(?<=[.!?;:)])|^)\s*\(?\b\d{1,2}[.)]\s+(?=[A-Z])")
_GLUED_SENTENCES = re.compile(r"(?<=[a-z]{2}[.!?])(?=[A-Z][a-z])")
_LINK_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_HTML_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_LINE_BREAK_TAG = re.compile(r"<(?:br|p|li)\b[^<>]{0,200}>|</(?:p|li)>", re.IGNORECASE)
_TEXT_MARKUP = re.compile(r"(\*\*|__|`+|(?<!\w)[*_](?=\w)|(?<=[\w.!?])[*_](?!\w))")
_MARKUP_CHAR = re.compile(r"[*_`\]]")
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
_WEB_ADDRESS = re.compile(r"www\.|https?:|@|\w\.com\b", re.IGNORECASE)


def single_steps(text: str) -> list[str]:
    """Return the single steps of a text, in order: lines, list items and sentences, without their
    marks."""
    return [step for line in strip_markup(text).splitlines() for step in _steps_of_line(line)]


def strip_markup(text: str) -> str:
    """Return the text without HTML, Markdown and control characters; NFC; lines kept."""
    if "<" in text or "&" in text:
        text = _HTML_TAG.sub(" ", html.unescape(_LINE_BREAK_TAG.sub("\n", text)))
    if _MARKUP_CHAR.search(text):
        text = _TEXT_MARKUP.sub("", _LINK_MARKUP.sub(r"\1", text))
    text = unicodedata.normalize("NFC", text)
    lines = (" ".join(_visible(line).split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def has_words(text: str) -> bool:
    """Tell whether a text holds at least two letters in a row."""
    return _TWO_LETTERS.search(text) is not None


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Zs", "Co", "Cs") else c for c in line
    )


def _steps_of_line(line: str) -> Iterator[str]:
    line = _LIST_MARK.sub("", line).lstrip("#> ")
    line = _INNER_MARK.sub(" \n", line)
    for part in line.split("\n"):
        tokens = part.split()
        if _GLUED_SENTENCES.search(part):
            tokens = " ".join(
                word if _WEB_ADDRESS.search(word) else _GLUED_SENTENCES.sub(" ", word)
                for word in tokens
            ).split()
        for step in _sentences(tokens):
            yield from (inner for inner in _unwrapped(step) if has_words(inner))


def _unwrapped(step: str) -> list[str]:
    """Return the sentences of a bracket that holds several: "(Stir. Taste.)"; any other step as it
    is."""
    if not (step.startswith("(") and step.endswith(")") and step.count("(") == 1):
        return [step]
    inner = list(_sentences(step[1:-1].split()))
    return inner if len(inner) > 1 else [step]


def _sentences(tokens: list[str]) -> Iterator[str]:
    """Yield the sentences of a line; none ends inside round brackets that are closed."""
    line = " ".join(tokens)
    balanced = line.count("(") == line.count(")")
    depth = 0
    start = 0
    for place, word in enumerate(tokens):
        depth += word.count("(") - word.count(")")
        following = tokens[place + 1] if place + 1 < len(tokens) else None
        if (not balanced or depth <= 0) and (following is None or ends_step(word, following)):
            yield " ".join(tokens[start : place + 1])
            start = place + 1
    if start < len(tokens):
        yield " ".join(tokens[start:])


def ends_step(word: str, following: str) -> bool:
    """Tell whether a step ends between two words of a line."""
    bare = word.rstrip(CLOSING_CHARS)
    if not bare or bare[-1] not in FULL_STOPS:
        return False
    next_word = following.lstrip(OPENING_CHARS)
    if not next_word:
        return False
    begins = next_word.casefold().rstrip(".,;:!?" + CLOSING_CHARS) in step_words()["verbs"]
    if next_word[0].islower():
        return begins and not _is_quantity(bare) and not bare.endswith("..")
    if bare[-1] != ".":
        return True
    stem = bare.rstrip(".").casefold().lstrip(OPENING_CHARS)
    if _is_quantity(bare):
        return next_word[0].isalpha() and (begins or _begins_in_capitals(next_word))
    return next_word[0].isalpha() if stem in step_words()["measures"] else True


def _is_quantity(bare: str) -> bool:
    stem = bare.rstrip(".").casefold().lstrip(OPENING_CHARS)
    unit = stem.lstrip("0123456789./½¼¾⅓⅔⅛-")  # "8oz."
    letter = len(unit) == 1 and unit.isalpha() and unit not in step_words()["measures"]
    return bare[-1] == "." and (unit in step_words()["quantities"] or letter)


def _begins_in_capitals(word: str) -> bool:
    return word.casefold().rstrip(".,;:!?" + CLOSING_CHARS) in step_words()["capitals"]


@cache
def step_words() -> dict[str, frozenset[str]]:
    """Return the sections of step_words.txt: verbs, capitals, quantities, measures."""
    text = Path(__file__).with_name("step_words.txt").read_text(encoding="utf-8")
    sections: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = set()
        elif sections and not line.startswith("#"):
            sections[list(sections)[-1]].update(line.split())
    return {name: frozenset(members) for name, members in sections.items()}
