"""The answers of annotators, the clips on which they agree, and how well they agree beyond chance.

An answer is one JSON line, on disk before the annotator gets the next clip. Clips on which enough
annotators say the same are kept (WYS2, section 4). Agreement is Fleiss' kappa (1971), between two
people Cohen's (1960). An annotated set has three files: labels for `stepline evaluate vnd`, the
clips behind them, and a report.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from stepline.errors import DatasetError
from stepline.files.append_log import AppendLog
from stepline.files.atomic_files import write_atomic
from stepline.records import FrozenModel
from stepline.review.clips import AnnotationClip, write_clips
from stepline.settings import NonNegative

Confidence = Literal["very", "somewhat", "not"]  # WYS2, supplement 2
AnswerValue = Literal["aligned", "misplaced", "not shown", "unsure"]
EARLIER_NAMES = {"clip": "item", "asked": "item", "said": "answer"}
AnnotatorName = Annotated[str, Field(pattern=r"^\w[\w .,@'’()&-]{0,59}$")]
Counts: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int_]]"


class Answer(FrozenModel):
    """The answer of one person about one item: whether its text is shown in its seconds.

    "aligned": in these seconds. "misplaced": at other seconds. "not shown": nowhere in the video.
    """

    item: Annotated[
        str, Field(min_length=1, max_length=500, description="id of a clip, or of a text")
    ]
    annotator: AnnotatorName
    answer: AnswerValue
    confidence: Annotated[Confidence | None, Field(description="None if it is not asked")] = None
    reason: Annotated[str, Field(max_length=500, description="why they are not sure")] = ""
    seconds: Annotated[
        NonNegative, Field(description="from the start of the clip to the answer")
    ] = 0.0

    @property
    def shown(self) -> bool:
        """Whether the answer is "aligned"."""
        return self.answer == "aligned"

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_release(cls, fields: Any) -> Any:
        """Accept the two formats of earlier releases.

        They are {"clip", "shown"} of `annotate vnd` and {"asked", "said"} of an audit.
        """
        if not isinstance(fields, dict):
            return fields
        renamed = {EARLIER_NAMES.get(name, name): value for name, value in fields.items()}
        shown = renamed.pop("shown", None)
        if isinstance(shown, bool):
            renamed["answer"] = "aligned" if shown else "not shown"
        return renamed


class AnswerLog(AppendLog[Answer]):
    """The answers in a file, in the order in which they were given first.

    A later answer of a person about the same item replaces the earlier one. path: path of the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, Answer, lambda answer: (answer.item, answer.annotator), "an answer")


@dataclass(frozen=True)
class AgreementRule:
    """When annotators agree on a clip. The defaults are those of WYS2, section 4.

    Attributes:
        annotators: number of answers that a clip needs.
        majority: number of equal answers that a clip needs.
    """

    annotators: int = 7
    majority: int = 5


PAPER_RULE = AgreementRule()


@dataclass(frozen=True)
class Agreement:
    """Inter-annotator agreement about whether clips show what is said.

    Attributes:
        clips: number of clips with an answer.
        complete: number of clips with as many answers as the rule asks for.
        shown: number of clips that a majority calls shown.
        unshown: number of clips that a majority calls not shown.
        kappa: Fleiss' kappa over the complete clips, None if undefined.
        same: fraction of pairs of answers that are equal, None if undefined.
    """

    clips: int
    complete: int
    shown: int
    unshown: int
    kappa: float | None
    same: float | None


def consensus(
    answers: Iterable[Answer], rule: AgreementRule = PAPER_RULE
) -> dict[str, bool | None]:
    """Return clip id -> majority answer (True: shown), for each clip with enough answers.

    The value is None if no majority is large enough. Only the first `rule.annotators` answers
    count.
    """
    verdicts = {}
    for clip, shown_votes in _positive_votes(answers, rule).items():
        # A verdict needs a majority for or against.
        has_majority = max(shown_votes, rule.annotators - shown_votes) >= rule.majority
        verdicts[clip] = 2 * shown_votes > rule.annotators if has_majority else None
    return verdicts


def agreement(answers: Iterable[Answer], rule: AgreementRule = PAPER_RULE) -> Agreement:
    """Return the inter-annotator agreement on the clips with enough answers."""
    answers = list(answers)
    verdicts = list(consensus(answers, rule).values())
    shown_votes = np.array(list(_positive_votes(answers, rule).values()), dtype=np.int_)  # (clips,)
    # Two columns, so that Fleiss' kappa of two categories can be taken.
    kappa, same = fleiss_kappa(np.stack([shown_votes, rule.annotators - shown_votes], axis=1))
    return Agreement(
        clips=len({answer.item for answer in answers}),
        complete=len(verdicts),
        shown=verdicts.count(True),
        unshown=verdicts.count(False),
        kappa=kappa,
        same=same,
    )


def _positive_votes(answers: Iterable[Answer], rule: AgreementRule) -> dict[str, int]:
    """Return clip id -> number of answers "shown", for each clip with enough answers."""
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        # In the order of the answers, since the first ones count.
        votes[answer.item].append(answer.shown)
    count = rule.annotators
    return {
        clip: sum(shown_answers[:count])
        for clip, shown_answers in votes.items()
        if len(shown_answers) >= count
    }


def fleiss_kappa(counts: Counts) -> tuple[float | None, float | None]:
    """Return Fleiss' kappa (1971) and the fraction of equal pairs of answers.

    Kappa is None if it is undefined: no item, one annotator, or all answers alike.

    counts: (items, categories), number of answers. All rows have the same sum.
    """
    if not len(counts) or counts[0].sum() < 2:
        return None, None
    raters = int(counts[0].sum())

    # pairs of annotators that agree, of all pairs, per clip
    agreeing_pairs = (counts * (counts - 1)).sum(axis=1)  # (items,)
    same = float((agreeing_pairs / (raters * (raters - 1))).mean())
    # The chance to agree: both take a category by the shares of all answers together.
    proportions = counts.sum(axis=0) / counts.sum()  # (categories,)
    return _chance_corrected(same, float((proportions**2).sum())), same


def cohen_kappa(first: Counts, second: Counts) -> float | None:
    """Return Cohen's kappa (1960) of two people, None if it is undefined.

    Its chance agreement uses the proportions of each person. Fleiss' kappa uses those of both
    people together.

    Args:
        first: (items,) categories that the first person chose.
        second: (items,) categories that the second person chose.
    """
    if not len(first):
        return None

    # how often both would take the same category by chance
    categories = np.union1d(first, second)
    chance = sum((first == c).mean() * (second == c).mean() for c in categories)
    return _chance_corrected(float((first == second).mean()), float(chance))


def _chance_corrected(same: float, chance: float) -> float | None:
    # All answers are alike, so there is nothing to agree on beyond chance.
    if chance == 1.0:
        return None
    return (same - chance) / (1 - chance)


# The files of an annotated set.
LABELS_FILE = "vnd.json"
CLIPS_FILE = "vnd_clips.json"
REPORT_FILE = "vnd_report.json"


def export_annotations(
    clips: Sequence[AnnotationClip],
    answers: Sequence[Answer],
    folder: Path,
    rule: AgreementRule = PAPER_RULE,
) -> Agreement:
    """Write the clips on which annotators agree as a test set, and return the agreement.

    Args:
        clips: all clips to annotate.
        answers: answers about them.
        folder: folder for the labels, the clips and the report.
        rule: when annotators agree.

    Raises DatasetError if they agree on no clip.
    """
    # the clips on which enough agree
    verdicts = consensus(answers, rule)
    labelled = [
        clip.model_copy(update={"shown": verdicts[clip.id]})
        for clip in clips
        if verdicts.get(clip.id) is not None
    ]
    if not labelled:
        raise DatasetError(
            f"no clip yet has {rule.annotators} answers with {rule.majority} that agree; "
            "get more answers, or lower --asked and --needed"
        )

    # what the report says
    summary = agreement(answers, rule)
    labels = {clip.id: int(bool(clip.shown)) for clip in labelled}
    # The clips that are not in the set, each with its reason.
    without_consensus = [id for id, verdict in verdicts.items() if verdict is None]
    incomplete = {clip.id for clip in clips} - verdicts.keys()
    seconds = sum(clip.span.duration for clip in labelled)
    annotators = Counter(answer.annotator for answer in answers)
    confidence = Counter(answer.confidence for answer in answers)
    report = {
        "agreement": asdict(summary),
        "asked": rule.annotators,
        "needed": rule.majority,
        "without consensus": sorted(without_consensus),
        "not yet answered by all": sorted(incomplete),
        "seconds": round(seconds, 1),
        "annotators": dict(sorted(annotators.items())),
        "confidence": dict(sorted(confidence.items())),
    }

    # the three files
    write_atomic(folder / LABELS_FILE, json.dumps(labels, indent=1) + "\n")
    write_clips(labelled, folder / CLIPS_FILE)
    write_atomic(folder / REPORT_FILE, json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    return summary
