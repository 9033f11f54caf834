"""The verbs and objects of steps, for the cloud of keywords (NaSVA, figure 5c)."""

from collections import Counter
from collections.abc import Sequence

OBJECTS = frozenset({"dobj", "obj", "pobj", "nsubjpass", "conj"})  # what is acted on, in spaCy's labels


def keywords(steps: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how often each verb and each object (lower-case lemmas) is in some steps' texts.

    Raises ModelError when the English parser is missing. Words of other languages are counted as it takes them.
    """
    from stepline.writing.english import parse

    found: dict[str, Counter[str]] = {"verbs": Counter(), "objects": Counter()}
    for document in parse(list(steps)):
        for token in document:
            word = str(token.lemma_).lower()
            if len(word) < 3 or not word.isalpha():
                continue
            if token.pos_ == "VERB":
                found["verbs"][word] += 1
            elif token.pos_ in ("NOUN", "PROPN") and token.dep_ in OBJECTS:
                found["objects"][word] += 1
    return found
