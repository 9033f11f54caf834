"""What auditors say of each text, kept as they say it, and taken over from other machines.

The paper's manual check (NaSVA, Table 5): shares of alignable and well-aligned texts, and how far people agree.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field, ValidationError

from stepline.annotate.answers import AnnotatorName, cohen, fleiss
from stepline.append_log import AppendLog
from stepline.curate.audit.sample import Asked, Kind, Sample
from stepline.curate.sampling import Share, share
from stepline.errors import DatasetError, StoreError
from stepline.evaluate.bootstrap import DRAWS, Floats, interval
from stepline.records import FrozenModel

Said: TypeAlias = Literal["aligned", "misplaced", "not shown", "unsure"]

FILE = "verdicts.jsonl"


class Verdict(FrozenModel):
    """What one person says of one text: shown in its seconds, shown at others, nowhere shown, or they cannot tell."""

    asked: Annotated[str, Field(min_length=1, max_length=500)]
    annotator: AnnotatorName
    said: Said


class Verdicts(AppendLog[Verdict]):
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


KINDS: tuple[tuple[Kind, str], ...] = (("narration", "raw narration"), ("step", "steps of the dataset"))
QUESTIONS: dict[str, frozenset[Said]] = {
    "alignable": frozenset({"aligned", "misplaced"}),
    "well aligned": frozenset({"aligned"}),
}


@dataclass(frozen=True)
class Row:
    """One kind of text: how many were checked, and what share is alignable and well aligned."""

    name: str
    checked: int
    unsure: int  # verdicts
    alignable: Share
    aligned: Share


@dataclass(frozen=True)
class Accord:
    """How well two or more people agree on a question, beyond chance, over the texts that all of them answered.

    kappa: Cohen's for two people, Fleiss' for more; None where it is undefined (nobody ever differs from one answer).
    low, high: its 95 % interval, texts of a video drawn together. same: the share of pairs of answers that are equal.
    """

    question: str
    people: tuple[str, ...]
    texts: int
    kappa: float | None
    low: float
    high: float
    same: float | None


def rows(sample: Sample, verdicts: Iterable[Verdict]) -> list[Row]:
    """Return the table's rows. A text's value is the mean over its annotators; "unsure" is no answer."""
    said = _by_text(verdicts)
    return [_row(name, [text for text in sample.asked if text.kind == kind], said) for kind, name in KINDS]


def _row(name: str, texts: Sequence[Asked], said: dict[str, list[Said]]) -> Row:
    sure = {text.id: _sure(said, text.id) for text in texts}
    unsure = sum(word == "unsure" for text in texts for word in said.get(text.id, ()))
    found = {question: _share(texts, sure, yes) for question, yes in QUESTIONS.items()}
    return Row(name, sum(bool(words) for words in sure.values()), unsure, found["alignable"], found["well aligned"])


def _share(texts: Sequence[Asked], sure: dict[str, list[Said]], yes: frozenset[Said]) -> Share:
    hits: dict[str, float] = defaultdict(float)
    totals: dict[str, float] = defaultdict(float)
    for text in texts:
        if words := sure[text.id]:
            hits[text.video] += sum(word in yes for word in words) / len(words)
            totals[text.video] += 1
    videos = sorted(totals)
    return share([hits[video] for video in videos], [totals[video] for video in videos])


def means(sample: Sample, verdicts: Iterable[Verdict], question: str, kind: Kind) -> dict[str, float]:
    """Return the mean answer (yes = 1) to a question of each audited text of a kind, by its id."""
    said = _by_text(verdicts)
    yes = QUESTIONS[question]
    ids = [text.id for text in sample.asked if text.kind == kind]
    sure = {id: _sure(said, id) for id in ids}
    return {id: sum(word in yes for word in words) / len(words) for id, words in sure.items() if words}


def accords(sample: Sample, verdicts: Iterable[Verdict], *, seed: int = 0) -> list[Accord]:
    """Return how well people agree on each question; nothing where fewer than two answered one text both."""
    answers: dict[str, dict[str, Said]] = defaultdict(dict)
    for verdict in verdicts:
        if verdict.said != "unsure":
            answers[verdict.asked][verdict.annotator] = verdict.said
    people = tuple(sorted({person for given in answers.values() for person in given}))
    shared = [text for text in sample.asked if len(answers[text.id]) == len(people)]
    if len(people) < 2 or not shared:
        return []
    videos = _places([text.video for text in shared])
    out = []
    for question, yes in QUESTIONS.items():
        votes = np.array([[answers[text.id][person] in yes for person in people] for text in shared], dtype=np.int64)
        out.append(_accord(question, people, votes, videos, seed))
    return out


def _accord(question: str, people: tuple[str, ...], votes: "np.ndarray[tuple[int, int], np.dtype[np.int64]]",
            videos: list[list[int]], seed: int) -> Accord:  # fmt: skip
    """Return the agreement on votes (texts, people) in {0, 1}; videos: the rows of each."""
    measure = _kappa(len(people))
    _, same = fleiss(np.stack([votes.sum(axis=1), len(people) - votes.sum(axis=1)], axis=1))
    generator = np.random.default_rng(seed)
    drawn: Floats = np.full(DRAWS, np.nan)
    for number in range(DRAWS):
        chosen = [row for video in generator.integers(len(videos), size=len(videos)) for row in videos[video]]
        value = measure(votes[chosen])
        drawn[number] = math.nan if value is None else value
    low, high = interval(drawn)
    return Accord(question, people, len(votes), measure(votes), low, high, same)


def _kappa(people: int) -> "Callable[[np.ndarray[tuple[int, int], np.dtype[np.int64]]], float | None]":
    if people == 2:
        return lambda votes: cohen(votes[:, 0], votes[:, 1])
    return lambda votes: fleiss(np.stack([votes.sum(axis=1), people - votes.sum(axis=1)], axis=1))[0]


def _places(videos: Sequence[str]) -> list[list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, video in enumerate(videos):
        rows[video].append(row)
    return list(rows.values())


def _sure(said: dict[str, list[Said]], text: str) -> list[Said]:
    return [word for word in said.get(text, ()) if word != "unsure"]


def _by_text(verdicts: Iterable[Verdict]) -> dict[str, list[Said]]:
    said: dict[str, list[Said]] = defaultdict(list)
    for verdict in verdicts:
        said[verdict.asked].append(verdict.said)
    return said
