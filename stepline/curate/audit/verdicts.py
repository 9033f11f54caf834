"""What auditors say of each text, kept as they say it, and taken over from other machines."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError

from stepline.annotate.answers import NAME
from stepline.annotate.kept import Kept
from stepline.errors import DatasetError, StoreError
from stepline.records import Frozen

Said: TypeAlias = Literal["aligned", "misplaced", "not shown", "unsure"]

FILE = "verdicts.jsonl"


class Verdict(Frozen):
    """What one person says of one text: shown in its seconds, shown at others, nowhere shown, or they cannot tell."""

    asked: Annotated[str, Field(min_length=1, max_length=500)]
    annotator: Annotated[str, Field(pattern=f"^{NAME}$")]
    said: Said


class Verdicts(Kept[Verdict]):
    """The verdicts in a file; an annotator's later verdict on a text replaces the earlier."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Verdict, lambda verdict: (verdict.asked, verdict.annotator), "a verdict")


def take_over(file: Path, verdicts: Verdicts, known: frozenset[str]) -> int:
    """Add the verdicts of a file that a page or another machine wrote; return how many.

    known: ids of this sample. Raises DatasetError for a verdict on another text, StoreError for a file that is none.
    """
    try:
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: cannot be read ({error}); give the verdicts that the page saved") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Verdict.model_validate_json(line))
        except ValidationError as error:
            raise StoreError(f"{file}:{number}: not a verdict; give the file that the page saved") from error
        if found[-1].asked not in known:
            text = f"{file}:{number}: {found[-1].asked!r}"
            raise DatasetError(f"{text} is not in this run's sample; give verdicts on this one")
    for verdict in found:
        verdicts.add(verdict)
    return len(found)
