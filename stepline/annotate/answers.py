"""What annotators said: one JSON line an answer, on disk before the annotator gets the next clip."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError

from stepline.errors import StoreError
from stepline.records import Frozen

Confidence: TypeAlias = Literal["very", "somewhat", "not"]   # WYS2, supplement 2
NAME = r"[\w][\w .@-]{0,59}"   # of an annotator


class Answer(Frozen):
    """What one person says of one clip. reason: why they are not sure. seconds: from its start to the answer."""

    clip: Annotated[str, Field(min_length=1)]
    annotator: Annotated[str, Field(pattern=f"^{NAME}$")]
    shown: bool
    confidence: Confidence
    reason: Annotated[str, Field(max_length=500)] = ""
    seconds: Annotated[float, Field(ge=0.0)] = 0.0


class Answers:
    """The answers in a file, in the order given; an annotator's later answer about a clip replaces the earlier.

    A last line that a kill cut short is removed when the file is next written to; nobody was told that it was kept.
    Raises StoreError for any other line that is no answer.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._given: dict[tuple[str, str], Answer] = {}
        self._whole = 0   # bytes of whole lines
        for answer in self._read():
            self._given[answer.clip, answer.annotator] = answer

    def __iter__(self) -> Iterator[Answer]:
        with self._lock:
            return iter(list(self._given.values()))

    def add(self, answer: Answer) -> None:
        """Keep an answer: it is on disk when this returns. Raises StoreError when it cannot be written."""
        line = (json.dumps(answer.model_dump(mode="json"), ensure_ascii=False) + "\n").encode()
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("r+b" if self._path.exists() else "wb") as file:
                    file.truncate(self._whole)
                    file.seek(self._whole)
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                reason = error.strerror or str(error)
                raise StoreError(f"{self._path}: cannot be written ({reason}); free some space") from error
            self._whole += len(line)
            self._given[answer.clip, answer.annotator] = answer

    def _read(self) -> Iterator[Answer]:
        if not self._path.exists():
            return
        for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Answer.model_validate_json(line)
            except ValidationError as error:
                raise StoreError(f"{self._path}:{number}: not an answer; mend or remove that line") from error
            self._whole += len(line)
