"""The audit: people check a random sample of a dataset (NaSVA, section 4.5 and Table 5).

The sample has some videos, and of each some raw sentences and final steps alike. People say of each
text whether it is shown. The table has the proportion of texts that is alignable and well aligned,
and how well people agree. Every verdict is on disk immediately.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepline.curate.sampling import Proportion, ReservoirSample, estimate_proportion, hash_to_int
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import BOOTSTRAP_DRAWS, Floats, percentile_interval
from stepline.files.append_log import AppendLog
from stepline.pages.web.local_server import LocalServer, post_route, serve_page
from stepline.records import FrozenModel, Record, Span, Video
from stepline.review.answers import Answer, AnswerValue, cohen_kappa, fleiss_kappa

TextKind = Literal["narration", "step"]
Votes: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.int64]]"  # (texts, people) in {0, 1}

AUDIT_TEXTS = 25  # of each kind in a video, at most
KIND_NAMES: dict[TextKind, str] = {"narration": "raw narration", "step": "steps of the dataset"}
# The verdicts that answer a question with yes.
YES_ANSWERS: dict[str, frozenset[AnswerValue]] = {
    "alignable": frozenset({"aligned", "misplaced"}),
    "well aligned": frozenset({"aligned"}),
}
CONTENT_POLICY = "default-src 'self' 'unsafe-inline' data:"  # the page has its own, stricter one


class AuditText(FrozenModel):
    """One text of the audit: a spoken sentence or a step, about which people answer a question.

    Attributes:
        id: unique id, which changes with the text and its seconds.
        video: id of its video.
        kind: "narration" (a spoken sentence) or "step".
        text: the text.
        span: seconds in which the dataset places it.
    """

    id: Annotated[str, Field(min_length=1)]
    video: str
    kind: TextKind
    text: str
    span: Span


class AuditSample(FrozenModel):
    """The texts of an audit, in the order in which the page shows them.

    Attributes:
        seed: random seed of the sample.
        texts: the texts.
        videos: the videos of the texts, by id of their record.
    """

    seed: int
    texts: tuple[AuditText, ...]
    videos: dict[str, Video]


class AuditSampler:
    """Draws a random sample of videos, and of their texts, from a stream of records.

    The same records give the same sample in any order of the stream.

    Args:
        videos: number of videos to draw.
        texts: maximal number of spoken sentences, and of steps, to draw per video.
        seed: random seed.
    """

    def __init__(self, *, videos: int, texts: int = AUDIT_TEXTS, seed: int = 0) -> None:
        self._texts = texts
        self._seed = seed
        self._videos: ReservoirSample[Record] = ReservoirSample(videos, seed=seed)

    def add(self, record: Record) -> None:
        """Offer a record to the sample.

        It is ignored if it has no sentence and no step with a time.
        """
        if _list_texts(record, "narration") or _list_texts(record, "step"):
            self._videos.add(record.id, record)

    def sample(self) -> AuditSample:
        """Return the drawn texts of all drawn videos.

        Videos are sorted by id. Within a video, sentences and steps are mixed at random.
        """
        records = self._videos.values()
        texts: list[AuditText] = []
        for record in records:
            drawn: list[AuditText] = []
            for kind in KIND_NAMES:
                drawn += _shuffle_texts(_list_texts(record, kind), self._seed)[: self._texts]
            # Another seed mixes the kinds than drew the texts, else the order of asking would show
            # the kind.
            texts += _shuffle_texts(drawn, self._seed + 1)
        videos = {record.id: record.video for record in records}
        return AuditSample(seed=self._seed, texts=tuple(texts), videos=videos)


def _shuffle_texts(texts: Sequence[AuditText], seed: int) -> list[AuditText]:
    # By a key of the id, so that further texts of a video do not change the order of these.
    return sorted(texts, key=lambda text: hash_to_int(seed, text.id))


def _list_texts(record: Record, kind: TextKind) -> list[AuditText]:
    if kind == "narration":
        rows = [(f"{n}", row.text, row.span) for n, row in enumerate(record.sentences)]
    else:
        # Only a step that the dataset places can be right or wrong about its seconds.
        rows = [(step.id, step.text, step.spans[0]) for step in record.steps if step.spans]
    texts = []
    for name, text, span in rows:
        # The id changes with the wording and the seconds, so that no verdict outlives its text.
        digest = hash_to_int(0, f"{text} {span.start:.3f} {span.end:.3f}") % 0xFFFFFF
        id = f"{record.id}/{kind} {name} {digest:06x}"
        texts.append(AuditText(id=id, video=record.id, kind=kind, text=text, span=span))
    return texts


@dataclass(frozen=True)
class AuditRow:
    """A row of the audit table: the answers about the texts of one kind.

    Attributes:
        name: name of the kind of text.
        unsure_count: number of answers "unsure", which count neither as yes nor as no.
        alignable: proportion of the answered texts that are shown anywhere in their video.
        well_aligned: proportion of the answered texts that are shown in their own seconds.
    """

    name: str
    unsure_count: int
    alignable: Proportion
    well_aligned: Proportion


@dataclass(frozen=True)
class AnnotatorAgreement:
    """Inter-annotator agreement beyond chance, over the texts that all annotators answered.

    Attributes:
        question: "alignable" (is the text shown anywhere in the video?) or "well aligned" (is it
            shown in its own seconds?).
        annotators: names of the annotators.
        texts: number of texts that all annotators answered.
        kappa: Cohen's kappa for two annotators, Fleiss' kappa for more. None if it is undefined,
            such as when all answers are equal.
        low: lower end of the 95 % interval of kappa, from a bootstrap over videos.
        high: upper end of the interval.
        equal_fraction: fraction of pairs of answers that are equal, None if it is undefined.
    """

    question: str
    annotators: tuple[str, ...]
    texts: int
    kappa: float | None
    low: float
    high: float
    equal_fraction: float | None

    @property
    def kappa_author(self) -> str:
        """Author of the kappa coefficient: "Cohen's" for two annotators, "Fleiss'" for more."""
        return "Cohen's" if len(self.annotators) == 2 else "Fleiss'"

    def __str__(self) -> str:
        """Return kappa with its interval as text: 0.61 [0.48, 0.72]."""
        if self.kappa is None:
            return "undefined"
        return f"{self.kappa:.2f} [{self.low:.2f}, {self.high:.2f}]"


def audit_table(sample: AuditSample, verdicts: Iterable[Answer]) -> list[AuditRow]:
    """Return the audit table (NaSVA, Table 5): one row for sentences, one for steps.

    The value of a text is the mean over its annotators.

    Args:
        sample: the texts of the audit.
        verdicts: answers of all annotators. Answers about other texts are ignored.
    """
    answers: dict[str, list[AnswerValue]] = defaultdict(list)
    for verdict in verdicts:
        answers[verdict.item].append(verdict.answer)
    rows = []
    for kind, name in KIND_NAMES.items():
        texts = [text for text in sample.texts if text.kind == kind]
        alignable, well_aligned = [
            _estimate_proportion(texts, answers, yes_answers)
            for yes_answers in YES_ANSWERS.values()
        ]
        unsure = sum(answers[text.id].count("unsure") for text in texts)
        rows.append(AuditRow(name, unsure, alignable, well_aligned))
    return rows


def _estimate_proportion(
    texts: Iterable[AuditText],
    answers: dict[str, list[AnswerValue]],
    yes_answers: frozenset[AnswerValue],
) -> Proportion:
    # Texts of a video are alike, so the interval is over videos.
    values: dict[str, list[float]] = defaultdict(list)
    for text in texts:
        votes = [answer in yes_answers for answer in answers[text.id] if answer != "unsure"]
        if votes:
            values[text.video].append(sum(votes) / len(votes))
    return estimate_proportion(
        [sum(values[video]) for video in sorted(values)],
        [len(values[video]) for video in sorted(values)],
    )


def annotator_agreements(
    sample: AuditSample, verdicts: Iterable[Answer]
) -> list[AnnotatorAgreement]:
    """Return the agreement of all annotators on each of the two questions.

    The list is empty if fewer than two people answered, or if no text was answered by all of them.

    Args:
        sample: the texts of the audit.
        verdicts: answers of all annotators.
    """
    answers: dict[str, dict[str, AnswerValue]] = defaultdict(dict)
    annotators = set()
    for verdict in verdicts:
        if verdict.answer != "unsure":
            answers[verdict.item][verdict.annotator] = verdict.answer
            annotators.add(verdict.annotator)
    people = tuple(sorted(annotators))

    # The texts that all of them answered.
    shared = [text for text in sample.texts if len(answers[text.id]) == len(people)]
    if len(people) < 2 or not shared:
        return []

    # Texts of a video are drawn together, those of a single video one by one.
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(shared):
        rows[text.video].append(row)
    groups = list(rows.values())
    if len(groups) == 1:
        groups = [[row] for row in range(len(shared))]

    agreements = []
    for question, yes_answers in YES_ANSWERS.items():
        table = [[answers[text.id][name] in yes_answers for name in people] for text in shared]
        votes = np.array(table, dtype=np.int64)
        kappa, same = _compute_kappa(votes)
        low, high = _bootstrap_kappa(votes, groups)
        agreements.append(AnnotatorAgreement(question, people, len(votes), kappa, low, high, same))
    return agreements


def _compute_kappa(votes: Votes) -> tuple[float | None, float | None]:
    """Return kappa and the fraction of equal pairs of answers, each None if it is undefined.

    votes: (texts, people), 1 for yes and 0 for no. Kappa is Cohen's for two people, Fleiss' for
    more.
    """
    # Columns of no and yes, from which Fleiss' kappa counts pairs.
    yes = votes.sum(axis=1)
    kappa, same = fleiss_kappa(np.stack([yes, votes.shape[1] - yes], axis=1))
    if votes.shape[1] == 2:
        kappa = cohen_kappa(votes[:, 0], votes[:, 1])
    return kappa, same


def _bootstrap_kappa(votes: Votes, groups: list[list[int]]) -> tuple[float, float]:
    """Return the lower and upper end of the 95 % bootstrap interval of kappa.

    Args:
        votes: (texts, people), 1 for yes and 0 for no.
        groups: row numbers of texts that are drawn together, such as those of one video.
    """
    rng = np.random.default_rng(0)
    kappas: Floats = np.full(BOOTSTRAP_DRAWS, np.nan)
    # Videos are drawn with replacement, and all their texts come along.
    for draw in range(BOOTSTRAP_DRAWS):
        rows: list[int] = []
        for group in rng.integers(len(groups), size=len(groups)):
            rows += groups[group]
        kappa, _ = _compute_kappa(votes[rows])
        # A draw in which all agree on one answer has no kappa.
        if kappa is not None:
            kappas[draw] = kappa
    return percentile_interval(kappas)


def serve_audit_page(
    page: Callable[[], str], sample: AuditSample, verdicts: AppendLog[Answer], port: int = 0
) -> LocalServer:
    """Return a web server of the audit page, for browsers on this machine.

    Args:
        page: renders the page as HTML, with the answers so far. Called for each visit.
        sample: the texts that may be answered.
        verdicts: log to which answers are added.
        port: TCP port. 0 takes a free one.
    """
    ids = frozenset(text.id for text in sample.texts)

    def send_verdicts(request: Request) -> Response:
        name = request.query_params.get("annotator", "")
        # Raises ValidationError for no name.
        annotator = Answer(item="-", annotator=name, answer="unsure").annotator
        answers = {v.item: v.answer for v in verdicts if v.annotator == annotator}
        return JSONResponse({"said": answers})

    def add_verdict(verdict: Answer) -> None:
        if verdict.item not in ids:
            raise DatasetError(f"{verdict.item!r} is not in this sample; load the page again")
        verdicts.add(verdict)

    routes = [
        Route("/", lambda _: HTMLResponse(page())),
        Route("/verdicts", send_verdicts),
        post_route("/verdict", Answer, add_verdict),
    ]
    return serve_page(routes, port, token="audit", policy=CONTENT_POLICY)
