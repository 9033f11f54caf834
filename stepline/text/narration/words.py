"""Words of narration, and what the tagger says of words and sentences."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "step", "warning", "option", "consequence", "announcement", "recap", "items", "talk"
]
SENTENCE_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# what comes after a word
Mark: TypeAlias = Literal["none", "comma", "stop", "question"]
WORD_MARKS: Final[tuple[Mark, ...]] = get_args(Mark)

# A word is dropped or kept. With "verb" an action of a step begins, with "next" a further action of
# the same step. With "name" an editor replaces a pronoun by what it stands for.
Edit: TypeAlias = Literal["drop", "keep", "verb", "next", "name"]
WORD_EDITS: Final[tuple[Edit, ...]] = get_args(Edit)

NO_VERB: Final = "-"  # the editor puts no verb in front
CLOSING_MARKS: Final = "\"'”’)]"
OUTER_MARKS: Final = "\"'“”()[]*.!?;:,—–-…"


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for tables of rules."""
    return frozenset(text.split())


# The commonest words of spoken English, which no other language shares in such numbers.
FUNCTION_WORDS: Final = word_set(
    """
    the a an and you i we it to of in on is are that this so with for your my our just going get have can do at
    be up
    """
)
MIN_CLAUSE_WORDS: Final = 4
JOINING_WORDS: Final = word_set("and so but then because")
# of a transcript's words. How-to English has 0.35 to 0.5, French or German under 0.05.
ENGLISH_SHARE: Final = 0.12


def spoken_words(text: str) -> list[str]:
    """Return the words of a sentence, without marks that are alone."""
    words = []
    for word in text.split():
        if any(letter.isalnum() for letter in word):
            words.append(word)
    return words


def bare_word(word: str) -> str:
    """Return a word in lower case without the marks around it."""
    word = word.lower()
    word = word.replace("’", "'")
    return word.strip(OUTER_MARKS)


def mark_after(word: str) -> Mark:
    """Return the mark that a word carries at its end."""
    end = word.rstrip(CLOSING_MARKS)[-1:]
    if end == "?":
        return "question"
    if end in (".", "!", "…", ";"):
        return "stop"
    if end in (",", ":"):
        return "comma"
    return "none"


def clauses_of_speech(text: str) -> list[str]:
    """Return the parts of a sentence behind commas and before joining words.

    Each has four words or more. It is the sentence itself where it has no such parts.
    """
    words = text.split()
    clauses = []
    begin = 0
    # Both parts must have words enough.
    for place in range(MIN_CLAUSE_WORDS, len(words) - MIN_CLAUSE_WORDS + 1):
        joins = words[place].lower().strip(OUTER_MARKS) in JOINING_WORDS
        is_part = joins or mark_after(words[place - 1]) != "none"
        if is_part and place - begin >= MIN_CLAUSE_WORDS:
            clauses.append(" ".join(words[begin:place]))
            begin = place
    clauses.append(" ".join(words[begin:]))
    return clauses


def looks_english(words: Sequence[str]) -> bool:
    """Return whether enough of the (lower-case) words are English function words. An empty text is
    not refused."""
    count = sum(word in FUNCTION_WORDS for word in words)
    return count >= ENGLISH_SHARE * len(words)
