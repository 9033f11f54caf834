"""Words of narration: how speech is split into words and clauses, and the classes that the networks
predict for words and sentences."""

from collections.abc import Sequence
from typing import Literal, get_args

Kind = Literal["step", "warning", "option", "consequence", "announcement", "recap", "items", "talk"]
SENTENCE_KINDS: tuple[Kind, ...] = get_args(Kind)

# what comes after a word
Mark = Literal["none", "comma", "stop", "question"]
PUNCTUATION_CLASSES: tuple[Mark, ...] = get_args(Mark)

# A word is dropped or kept. With "verb" an action of a step begins, with "next" a further action of
# the same step. With "name" an editor replaces a pronoun by what it stands for.
Edit = Literal["drop", "keep", "verb", "next", "name"]
WORD_EDITS: tuple[Edit, ...] = get_args(Edit)

NO_VERB = "-"  # the editor puts no verb in front
CLOSING_QUOTES = "\"'”’)]"
OUTER_PUNCTUATION = "\"'“”()[]*.!?;:,—–-…"


def word_set(text: str) -> frozenset[str]:
    """Return the set of words in a text, which is split at white space. Word lists in the code are
    written this way."""
    return frozenset(text.split())


# The commonest words of spoken English, which no other language shares in such numbers.
COMMON_ENGLISH_WORDS = word_set(
    """
    the a an and you i we it to of in on is are that this so with for your my our just going get have can do at
    be up
    """
)
MIN_CLAUSE_WORDS = 4
JOINING_WORDS = word_set("and so but then because")
# of a transcript's words. How-to English has 0.35 to 0.5, French or German under 0.05.
MIN_ENGLISH_SHARE = 0.12


def spoken_words(text: str) -> list[str]:
    """Return the words of a sentence, without standalone punctuation."""
    return [word for word in text.split() if any(map(str.isalnum, word))]


def bare_word(word: str) -> str:
    """Return a word in lower case, without surrounding punctuation."""
    return word.lower().replace("’", "'").strip(OUTER_PUNCTUATION)


def punctuation_after(word: str) -> Mark:
    """Return the class of the punctuation at the end of a word, "none" without one."""
    end = word.rstrip(CLOSING_QUOTES)[-1:]
    if end == "?":
        return "question"
    if end in (".", "!", "…", ";"):
        return "stop"
    if end in (",", ":"):
        return "comma"
    return "none"


def clauses_of_speech(text: str) -> list[str]:
    """Return the clauses of a sentence, cut at punctuation and conjunctions. Each has at least four
    words, unless the whole sentence has fewer."""
    words = text.split()
    clauses = []
    begin = 0
    # Both parts must have words enough.
    for index in range(MIN_CLAUSE_WORDS, len(words) - MIN_CLAUSE_WORDS + 1):
        is_joining_word = words[index].lower().strip(OUTER_PUNCTUATION) in JOINING_WORDS
        is_boundary = is_joining_word or punctuation_after(words[index - 1]) != "none"
        if is_boundary and index - begin >= MIN_CLAUSE_WORDS:
            clauses.append(" ".join(words[begin:index]))
            begin = index
    clauses.append(" ".join(words[begin:]))
    return clauses


def looks_english(words: Sequence[str]) -> bool:
    """Return whether at least 12 % of some words are common English words. True without
    words.

    words: in lower case.
    """
    return sum(word in COMMON_ENGLISH_WORDS for word in words) >= MIN_ENGLISH_SHARE * len(words)
