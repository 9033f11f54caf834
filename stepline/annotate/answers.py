"""What annotators said: one JSON line an answer, on disk before the annotator gets the next clip."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.annotate.kept import Kept
from stepline.records import Frozen
from stepline.settings import NonNegative

Confidence: TypeAlias = Literal["very", "somewhat", "not"]  # WYS2, supplement 2
NAME = r"[\w][\w .@-]{0,59}"  # of an annotator


class Answer(Frozen):
    """What one person says of one clip. reason: why they are not sure. seconds: from its start to the answer."""

    clip: Annotated[str, Field(min_length=1)]
    annotator: Annotated[str, Field(pattern=f"^{NAME}$")]
    shown: bool
    confidence: Confidence
    reason: Annotated[str, Field(max_length=500)] = ""
    seconds: NonNegative = 0.0


class Answers(Kept[Answer]):
    """The answers in a file, in the order given; an annotator's later answer about a clip replaces the earlier."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Answer, lambda answer: (answer.clip, answer.annotator), "an answer")
