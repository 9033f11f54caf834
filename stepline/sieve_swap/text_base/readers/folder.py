"""Plain .txt and .md files, a how-to text each: numbered lists, headings and paragraphs."""

import re
from collections.abc import Iterator
from pathlib import Path

from stepline.sieve_swap.text_base.lines import Read, Rejected
from stepline.sieve_swap.text_base.readers.files import DAMAGE, opened, stem
from stepline.sieve_swap.text_base.readers.item import Place, read_item
from stepline.sieve_swap.text_base.settings import TextBaseSettings

_HEADING = re.compile(r"^#{1,6}\s+(.*)$")
_COLON_HEADING = re.compile(r"^([A-Z][\w ]{2,40}):$")
_UNDERLINE = re.compile(r"^(=+|-{3,})$")
_NUMBERED = re.compile(r"^\s*(?:\(?\d{1,3}\s*[.)]|step\s+\d{1,3}\s*[.:)-]?)\s+(.*)$", re.IGNORECASE)
_BULLET = re.compile(r"^\s*[-*+•‣]\s+(.*)$")
_NEEDS = re.compile(
    r"\b(ingredients?|materials?|supplies|tools|you(?:'ll)? (?:will )?need|parts list)\b", re.IGNORECASE
)
_FIELD = re.compile(r"^(title|licence|license|source|url|link)\s*:\s*(.+)$", re.IGNORECASE)
_FENCE = "---"


def read_text(path: Path, settings: TextBaseSettings, licence: str | None) -> Iterator[Read]:
    """Yield the document of a text file, or why it was left out. Raises DatasetError when it cannot be opened.

    Numbered items are the steps; without any, the bullets outside lists of ingredients and materials; without these,
    the sentences of the paragraphs. The title is the first heading, else the file's name.
    """
    place = Place(path.name, stem(path), stem(path), licence)
    try:
        with opened(path) as file:
            data = file.read(4 * settings.longest_document + 1)
    except DAMAGE as error:
        yield Rejected("file cut off", path.name, str(error)[:200])
        return
    if len(data) > 4 * settings.longest_document:
        yield Rejected("document too long", path.name, f"more than {len(data) - 1} bytes")
        return
    if b"\0" in data:
        yield Rejected("binary junk", path.name)
        return
    try:
        yield from read_item(_parsed(data.decode("utf-8-sig")), place, settings)
    except UnicodeDecodeError:
        yield Rejected("not UTF-8", path.name)


def _parsed(text: str) -> dict[str, object]:
    """Return title, steps, ingredients and the fields of a front matter."""
    fields, lines = _front_matter(text.splitlines())
    title = ""
    needs = False
    found: dict[str, list[str]] = {"numbered": [], "bullets": [], "paragraphs": [], "needs": []}
    run: list[str] = []  # where a wrapped line goes on
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        heading = _heading(line, following)
        if heading is not None:
            title = title or heading
            needs = _NEEDS.search(heading) is not None
            run = []
        elif not line.strip():
            run = []
        elif not _UNDERLINE.match(line.strip()):
            run = _placed(line, needs, found, run)
    steps = found["numbered"] or found["bullets"] or found["paragraphs"]
    return {"title": title, "steps": steps, "ingredients": found["needs"]} | fields


def _placed(line: str, needs: bool, found: dict[str, list[str]], run: list[str]) -> list[str]:
    """Put a line where it belongs, or at the end of the item that it continues; return the list that grew."""
    for kind, pattern in (("numbered", _NUMBERED), ("bullets", _BULLET)):
        if match := pattern.match(line):
            return _started(found["needs" if needs else kind], match[1])
    if run:
        run[-1] += f" {line.strip()}"
        return run
    return _started(found["needs" if needs else "paragraphs"], line.strip())


def _started(items: list[str], text: str) -> list[str]:
    items.append(text)
    return items


def _heading(line: str, following: str) -> str | None:
    if match := _HEADING.match(line) or _COLON_HEADING.match(line.strip()):
        return match[1].strip("# ")
    underlined = line.strip() and _UNDERLINE.match(following.strip()) and not _BULLET.match(line)
    return line.strip() if underlined else None


def _front_matter(lines: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return the known fields between two lines of `---` at the top, and the lines after them."""
    if not lines or lines[0].strip() != _FENCE or _FENCE not in (line.strip() for line in lines[1:]):
        return {}, lines
    end = next(n for n, line in enumerate(lines[1:], 1) if line.strip() == _FENCE)
    matches = (_FIELD.match(line.strip()) for line in lines[1:end])
    return {match[1].lower(): match[2].strip("\"' ") for match in matches if match}, lines[end + 1 :]
