"""Narrations marked by people, as the tagger learns from them: kind and step of each sentence.

Three forms are read: a folder of texts (lab/narrations), `narration.json.gz` (videos whose
sentences are marked) and a folder of records. Such records can be of videos corrected in Studio.
"""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stepline.errors import DatasetError
from stepline.limits import parse_json
from stepline.records import Record
from stepline.storage import read_record
from stepline.text.narration.words import Kind

# first column of a text -> kind. "items" are ingredients and tools that are listed.
KIND_LETTERS: Final[dict[str, Kind]] = {
    "s": "step",
    "w": "warning",
    "o": "option",
    "c": "consequence",
    "a": "announcement",
    "r": "recap",
    "i": "items",
    "t": "talk",
}
STEP_SEPARATOR: Final = ";;"
REPEAT_MARK: Final = "= "  # before a step that adds nothing to the one before it
MIN_COLUMNS: Final = 2
SPEECH_FORM: Final = "speech"  # punctuated, and its sentences are not marked
PUNCTUATED_FORMS: Final = ("spoken", SPEECH_FORM)


@dataclass(frozen=True)
class MarkedSentence:
    """One sentence as it was spoken. kind: None where only is known that it has no step.

    steps: as an editor would write them. is_repeat: they add nothing to the step before.
    """

    text: str
    kind: Kind | None
    steps: tuple[str, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True)
class MarkedNarration:
    """The sentences of one video. group: what is left out together in a test (dish, subject).

    is_punctuated: its marks are those of a careful writer, so that they can be learned.
    has_kinds: someone marked its sentences. Without that it is speech alone.
    """

    name: str
    group: str
    sentences: tuple[MarkedSentence, ...]
    is_punctuated: bool = False
    has_kinds: bool = True


def read_marked_narrations(path: Path) -> list[MarkedNarration]:
    """Return the narrations of a folder of texts or records, or of a narration.json.gz.

    Raises DatasetError for a file that is missing or of another form.
    """
    if path.is_dir():
        return _read_folder(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error}); name a file or a folder") from error
    try:
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        narrations = parse_json(content)
    except (OSError, EOFError, ValueError) as error:
        message = "is not JSON of marked narration; give a folder of texts or narration.json.gz"
        raise DatasetError(f"{path}: {message} ({error})") from error
    try:
        return [_from_json(name, narration) for name, narration in narrations.items()]
    except (AttributeError, KeyError, TypeError) as error:
        message = 'needs {"name": {"title", "sentences": [{"text", "is_step", "key_steps"}]}}'
        raise DatasetError(f"{path}: {message}") from error


def _read_folder(path: Path) -> list[MarkedNarration]:
    """Return the narrations of a folder's texts and records."""
    narrations = [_read_text(file) for file in sorted(path.glob("*.txt"))]
    for file in sorted(path.glob("*.json")):
        narrations.append(_from_record(read_record(file)))
    if not narrations:
        message = "holds no .txt of marked narration and no .json record"
        raise DatasetError(f"{path}: {message}; docs/writing.md shows the form")
    return narrations


def _from_record(record: Record) -> MarkedNarration:
    """Return the sentences of a record, those marked on which a step rests."""
    steps: dict[int, list[str]] = {}
    for step in record.steps:
        # The first sentence of a step holds its text. The others are only marked.
        if step.sources:
            steps.setdefault(step.sources[0], []).append(step.text)
        for number in step.sources[1:]:
            steps.setdefault(number, [])
    rows = []
    if record.transcript is not None:
        for number, sentence in enumerate(record.transcript.sentences):
            own_steps = tuple(steps.get(number, ()))
            kind = _kind(number in steps)
            rows.append(MarkedSentence(sentence.text, kind, own_steps))
    name = record.video.id
    return MarkedNarration(name, name, tuple(rows))


def _kind(is_step: bool) -> Kind | None:
    if is_step:
        return "step"
    return None


def _from_json(name: str, narration: Mapping[str, Any]) -> MarkedNarration:
    sentences = []
    for row in narration["sentences"]:
        text = str(row["text"])
        steps = [str(step) for step in row.get("key_steps", ())]
        kind = _kind(bool(row["is_step"]))
        sentences.append(MarkedSentence(text, kind, tuple(steps)))
    title = str(narration["title"])
    return MarkedNarration(name, title, tuple(sentences))


def _read_text(path: Path) -> MarkedNarration:
    """Return the narration of a text.

    It has `# key: value` lines, then kind, sentence and step, parted by tabs. Of the form "speech"
    it has sentences alone.
    """
    header: dict[str, str] = {}
    sentences = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if line.startswith("#"):
            key, _, value = line.lstrip("# ").partition(":")
            header[key.strip()] = value.strip()
        elif text and header.get("form") == SPEECH_FORM:
            sentences.append(MarkedSentence(text, None))
        elif text:
            sentences.append(_read_line(line, f"{path}:{number}"))
    form = header.get("form")
    is_punctuated = form in PUNCTUATED_FORMS
    group = header.get("subject", path.stem)
    has_kinds = form != SPEECH_FORM
    return MarkedNarration(path.stem, group, tuple(sentences), is_punctuated, has_kinds)


def _read_line(line: str, place: str) -> MarkedSentence:
    columns = line.split("\t")
    kind = KIND_LETTERS.get(columns[0].strip())
    if kind is None or len(columns) < MIN_COLUMNS:
        letters = ", ".join(KIND_LETTERS)
        raise DatasetError(f"{place}: needs a kind ({letters}), a tab and a sentence")
    step = ""
    if len(columns) > MIN_COLUMNS:
        step = columns[2].strip()
    mark = REPEAT_MARK.strip()
    is_repeat = step.startswith(mark)
    parts = step.removeprefix(mark).split(STEP_SEPARATOR)
    steps = [part.strip() for part in parts if part.strip()]
    return MarkedSentence(columns[1].strip(), kind, tuple(steps), is_repeat)
