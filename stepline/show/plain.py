"""Text and times as people read them: one line, no control characters; 1:02:03."""

import unicodedata

ELLIPSIS = "…"


def one_line(text: str) -> str:
    """Return the text on one line: every run of white space becomes a space, control characters vanish."""
    kept = (letter for letter in text if letter.isspace() or unicodedata.category(letter) != "Cc")
    return " ".join("".join(kept).split())


def sentence_case(text: str) -> str:
    """Return the text with its first letter in upper case, as a title has it."""
    return text[:1].upper() + text[1:]


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters, cut at a word where one ends in the last third, with an ellipsis."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    return (head[:space] if space > limit * 2 // 3 else head).rstrip(" ,;:") + ELLIPSIS


def clock(seconds: float) -> str:
    """Return whole seconds, rounded down, as 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
