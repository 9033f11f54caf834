"""What annotators said, which clips they agree on, and how well they agree beyond chance.

An answer is one JSON line, on disk before the annotator gets the next clip. Clips on which enough
annotators say the same are kept (WYS2, section 4); agreement is Fleiss' kappa (1971), between two
people Cohen's (1960).

The annotated set as files: labels for `stepline evaluate vnd`, the clips behind them, and how it
came about.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from stepline.annotate.clips import AnnotationClip, write_clips
from stepline.append_log import AppendLog
from stepline.atomic_files import write_atomic
from stepline.errors import DatasetError
from stepline.records import FrozenModel
from stepline.settings import NonNegative

Confidence: TypeAlias = Literal["very", "somewhat", "not"]  # WYS2, supplement 2
AnnotatorName: TypeAlias = Annotated[str, Field(pattern=r"^[\w][\w .@-]{0,59}$")]


class Answer(FrozenModel):
    """What one person says of one clip. reason: why they are not sure. seconds: from its start to
    the answer."""

    clip: Annotated[str, Field(min_length=1)]
    annotator: AnnotatorName
    shown: bool
    confidence: Confidence
    reason: Annotated[str, Field(max_length=500)] = ""
    seconds: NonNegative = 0.0


class Answers(AppendLog[Answer]):
    """The answers in a file, in the order given; an annotator's later answer about a clip replaces
    the earlier."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Answer, lambda answer: (answer.clip, answer.annotator), "an answer")


ASKED = 7  # annotators a clip; WYS2, section 4
NEEDED = 5  # of them who must say the same for the clip to be kept


@dataclass(frozen=True)
class Agreement:
    """How well annotators agree: clips with all answers, those kept as shown or not, and Fleiss'
    kappa.

    kappa, same: None where they are undefined; same: the fraction of pairs of answers that are
    equal.
    """

    clips: int
    complete: int
    shown: int
    unshown: int
    kappa: float | None
    same: float | None


def consensus(
    answers: Iterable[Answer], *, asked: int = ASKED, needed: int = NEEDED
) -> dict[str, bool | None]:
    """Return what each clip with `asked` answers is said to show; None where fewer than `needed`
    say the same.

    Answers past the first `asked` of a clip do not count.
    """
    verdicts: dict[str, bool | None] = {}
    for clip, votes in _votes(answers).items():
        if len(votes) >= asked:
            yes = sum(votes[:asked])
            verdicts[clip] = True if yes >= needed else False if asked - yes >= needed else None
    return verdicts


def agreement(answers: Iterable[Answer], *, asked: int = ASKED, needed: int = NEEDED) -> Agreement:
    """Return how well the annotators agree on the clips that `asked` of them answered."""
    answers = list(answers)
    votes = _votes(answers)
    verdicts = consensus(answers, asked=asked, needed=needed)
    counts = np.array(
        [(sum(votes[clip][:asked]), asked - sum(votes[clip][:asked])) for clip in verdicts]
    )
    kappa, same = fleiss_kappa(counts.reshape(-1, 2))
    kept = list(verdicts.values())
    return Agreement(len(votes), len(verdicts), kept.count(True), kept.count(False), kappa, same)


def fleiss_kappa(
    counts: "np.ndarray[tuple[int, ...], np.dtype[np.int_]]",
) -> tuple[float | None, float | None]:
    """Return Fleiss' kappa (1971) and the fraction of pairs that agree; counts: (items,
    categories), equal row sums.

    Kappa is None where it is undefined: no item, one annotator, or all answers alike.
    """
    if not len(counts) or counts[0].sum() < 2:
        return None, None
    raters = int(counts[0].sum())
    pairs = (counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))  # (items,)
    chance = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    same = float(pairs.mean())
    return (None if chance == 1.0 else (same - chance) / (1 - chance)), same


def cohen_kappa(
    first: "np.ndarray[tuple[int, ...], np.dtype[np.int_]]",
    second: "np.ndarray[tuple[int, ...], np.dtype[np.int_]]",
) -> float | None:
    """Return Cohen's kappa (1960) of two people's categories, (items,) each; None where it is
    undefined.

    Each person's own proportions make the agreement by chance, which Fleiss' kappa takes from both
    together.
    """
    if not len(first):
        return None
    categories = np.union1d(first, second)
    chance = float(
        sum((first == category).mean() * (second == category).mean() for category in categories)
    )
    return None if chance == 1.0 else (float((first == second).mean()) - chance) / (1 - chance)


def _votes(answers: Iterable[Answer]) -> dict[str, list[bool]]:
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        votes[answer.clip].append(answer.shown)
    return votes


LABELS, CLIPS, REPORT = "vnd.json", "vnd_clips.json", "vnd_report.json"


def export(
    clips: Sequence[AnnotationClip],
    answers: Sequence[Answer],
    folder: Path,
    *,
    asked: int = ASKED,
    needed: int = NEEDED,
) -> Agreement:
    """Write the clips on which enough annotators agree, and return how well they agree.

    Raises DatasetError when there is none.
    """
    verdicts = consensus(answers, asked=asked, needed=needed)
    agreed = [clip.model_copy(update={"shown": verdicts.get(clip.id)}) for clip in clips]
    kept = {clip.id: clip for clip in agreed if clip.shown is not None}
    if not kept:
        raise DatasetError(
            f"no clip has {asked} answers of which {needed} agree yet; annotate on, or ask fewer"
        )
    measured = agreement(answers, asked=asked, needed=needed)
    write_atomic(
        folder / LABELS,
        json.dumps({id: int(bool(clip.shown)) for id, clip in kept.items()}, indent=1) + "\n",
    )
    write_clips(kept.values(), folder / CLIPS)
    report = {
        "agreement": asdict(measured),
        "asked": asked,
        "needed": needed,
        "without consensus": sorted(id for id, verdict in verdicts.items() if verdict is None),
        "not yet answered by all": sorted(clip.id for clip in clips if clip.id not in verdicts),
        "seconds": round(sum(clip.span.duration for clip in kept.values()), 1),
        "annotators": dict(sorted(Counter(answer.annotator for answer in answers).items())),
        "confidence": dict(sorted(Counter(answer.confidence for answer in answers).items())),
    }
    write_atomic(folder / REPORT, json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    return measured
