"""Word lists as they are read: words between spaces."""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for tables of rules."""
    return frozenset(text.split())
