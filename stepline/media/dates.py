"""Days as metadata names them."""

import re
from datetime import date

DAY_PATTERN = re.compile(r"\d{4}-?\d{2}-?\d{2}")


def read_day(text: str) -> str | None:
    """Return the day that "20240506", "2024-05-06" or "2024-05-06T12:00:00Z" names, as YYYY-MM-DD.
    None for anything else, such as a year alone."""
    day = text.partition("T")[0]
    if not DAY_PATTERN.fullmatch(day):
        return None
    try:
        return date.fromisoformat(day).isoformat()
    except ValueError:
        return None
