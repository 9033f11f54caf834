"""What auditors say of each text, and the paper's manual check from it (NaSVA, Table 5).

Verdicts are kept as people give them, and imported from other machines. The table has the
proportion of texts that is alignable and well aligned, and how far people agree. The report is
served on this machine, so that each verdict is on disk immediately.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepline.curate.audit.sample import AuditSample, TextKind
from stepline.curate.sampling import Proportion, proportion
from stepline.errors import DatasetError, StoreError
from stepline.evaluate.bootstrap import BOOTSTRAP_DRAWS, Floats, interval
from stepline.files.append_log import AppendLog
from stepline.pages.web.local_server import LocalServer, post_route, serve_page
from stepline.review.answers import Answer, AnswerLog, AnswerValue, cohen_kappa, fleiss_kappa

VERDICTS_FILE = "verdicts.jsonl"


def import_verdicts(file: Path, verdicts: AnswerLog, ids: frozenset[str]) -> int:
    """Add the verdicts of a file that a page or another machine wrote, all or none. Return how
    many.

    ids: of the texts of this sample. Raises DatasetError for a verdict on another text, StoreError
    for a file that is not one of verdicts.
    """
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"{file}: cannot be read ({error})"
        raise StoreError(f"{what}; give the verdicts that the page saved") from error
    # Every line is checked before the first one is added.
    lines = [line for line in content.split("\n") if line]
    imported = []
    for number, line in enumerate(lines, start=1):
        try:
            verdict = Answer.model_validate_json(line)
        except ValidationError as error:
            what = f"{file}:{number}: not a verdict"
            raise StoreError(f"{what}; give the file that the page saved") from error
        if verdict.item not in ids:
            what = f"{file}:{number}: {verdict.item!r} is not in this run's sample"
            raise DatasetError(f"{what}; give verdicts on this one")
        imported.append(verdict)
    for verdict in imported:
        verdicts.add(verdict)
    return len(imported)


KIND_NAMES: dict[TextKind, str] = {"narration": "raw narration", "step": "steps of the dataset"}
# The verdicts that answer a question with yes.
YES_ANSWERS: dict[str, frozenset[AnswerValue]] = {
    "alignable": frozenset({"aligned", "misplaced"}),
    "well aligned": frozenset({"aligned"}),
}

Votes: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.int64]]"  # (texts, people) in {0, 1}


@dataclass(frozen=True)
class AuditRow:
    """One kind of text: how many were checked, and the proportions that are alignable and well
    aligned."""

    name: str
    checked: int
    unsure: int  # verdicts
    alignable: Proportion
    well_aligned: Proportion


@dataclass(frozen=True)
class AnnotatorAgreement:
    """How well two or more people agree on a question, beyond chance, over the texts that all of
    them answered.

    kappa: None where it is undefined (no one ever differs from one answer). low, high: its 95 %
    interval. Texts of a video are drawn together for it, those of a single video one by one.
    same: the fraction of pairs of answers that are equal.
    """

    question: str
    people: tuple[str, ...]
    texts: int
    kappa: float | None
    low: float
    high: float
    same: float | None

    @property
    def coefficient(self) -> str:
        """The name of kappa's author."""
        if len(self.people) == 2:
            return "Cohen"
        return "Fleiss"

    def __str__(self) -> str:
        """Return kappa as people read it: 0.61 [0.48, 0.72]."""
        if self.kappa is None:
            return "undefined"
        return f"{self.kappa:.2f} [{self.low:.2f}, {self.high:.2f}]"


def audit_table(sample: AuditSample, verdicts: Iterable[Answer]) -> list[AuditRow]:
    """Return the table's rows. A text's value is the mean over its annotators. "unsure" is not an
    answer."""
    verdicts = list(verdicts)
    rows = []
    for kind, name in KIND_NAMES.items():
        ids = {text.id for text in sample.of_kind(kind)}
        alignable = _proportion(sample, verdicts, "alignable", kind)
        well_aligned = _proportion(sample, verdicts, "well aligned", kind)
        unsure = 0
        for verdict in verdicts:
            if verdict.item in ids and verdict.answer == "unsure":
                unsure += 1
        row = AuditRow(name, alignable.texts, unsure, alignable, well_aligned)
        rows.append(row)
    return rows


def _proportion(
    sample: AuditSample, verdicts: Iterable[Answer], question: str, kind: TextKind
) -> Proportion:
    hits: dict[str, float] = defaultdict(float)
    totals: Counter[str] = Counter()
    answers = mean_answers(sample, verdicts, question, kind)
    # Texts of a video are alike, so the interval is of videos.
    for text in sample.of_kind(kind):
        if text.id in answers:
            hits[text.video] += answers[text.id]
            totals[text.video] += 1
    videos = sorted(totals)
    video_hits = [hits[video] for video in videos]
    video_totals = [totals[video] for video in videos]
    return proportion(video_hits, video_totals)


def mean_answers(
    sample: AuditSample, verdicts: Iterable[Answer], question: str, kind: TextKind
) -> dict[str, float]:
    """Return the mean answer (yes = 1) to a question of each audited text of a kind, by its id."""
    ids = {text.id for text in sample.of_kind(kind)}
    answers: dict[str, list[bool]] = defaultdict(list)
    yes_answers = YES_ANSWERS[question]
    # "unsure" counts neither as yes nor as no.
    for verdict in verdicts:
        if verdict.item in ids and verdict.answer != "unsure":
            is_yes = verdict.answer in yes_answers
            answers[verdict.item].append(is_yes)
    means = {}
    for id, votes in answers.items():
        means[id] = sum(votes) / len(votes)
    return means


def annotator_agreements(
    sample: AuditSample, verdicts: Iterable[Answer], *, seed: int = 0
) -> list[AnnotatorAgreement]:
    """Return how well people agree on each question, or nothing where no two answered the same
    text."""
    # Who answered what.
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
        table = []
        for text in shared:
            table.append([answers[text.id][person] in yes_answers for person in people])
        votes = np.array(table, dtype=np.int64)
        kappa, same = _kappa(votes)
        low, high = _kappa_interval(votes, groups, seed)
        agreements.append(
            AnnotatorAgreement(
                question=question,
                people=people,
                texts=len(votes),
                kappa=kappa,
                low=low,
                high=high,
                same=same,
            )
        )
    return agreements


def _kappa(votes: Votes) -> tuple[float | None, float | None]:
    """Return Cohen's kappa of two people, Fleiss' of more, and the fraction of equal pairs of
    answers."""
    # Columns of no and yes, from which Fleiss' kappa counts pairs.
    people = votes.shape[1]
    yes = votes.sum(axis=1)
    no = people - yes
    kappa, same = fleiss_kappa(np.stack([yes, no], axis=1))
    if people == 2:
        kappa = cohen_kappa(votes[:, 0], votes[:, 1])
    return kappa, same


def _kappa_interval(votes: Votes, groups: list[list[int]], seed: int) -> tuple[float, float]:
    """Return the bootstrap interval of kappa. groups: rows that are drawn together."""
    rng = np.random.default_rng(seed)
    kappas: Floats = np.full(BOOTSTRAP_DRAWS, np.nan)
    count = len(groups)
    # Videos are drawn with replacement, and all their texts come along.
    for draw in range(BOOTSTRAP_DRAWS):
        rows: list[int] = []
        for group in rng.integers(count, size=count):
            rows += groups[group]
        kappa, _ = _kappa(votes[rows])
        # A draw in which all agree on one answer has no kappa.
        if kappa is not None:
            kappas[draw] = kappa
    return interval(kappas)


CONTENT_POLICY = "default-src 'self' 'unsafe-inline' data:"  # the page has its own, stricter one


def serve(
    page: Callable[[], str], sample: AuditSample, verdicts: AppendLog[Answer], port: int = 0
) -> LocalServer:
    """Return a server on this machine. `page` is made again for each visit, with the verdicts so
    far."""
    routes = audit_routes(page, sample, verdicts)
    return serve_page(routes, port, token="audit", policy=CONTENT_POLICY)


def audit_routes(
    page: Callable[[], str], sample: AuditSample, verdicts: AppendLog[Answer]
) -> list[Route]:
    """Return the routes of the page and of its requests."""
    ids = frozenset(text.id for text in sample.texts)

    def visit(_: Request) -> Response:
        headers = {"Content-Security-Policy": CONTENT_POLICY}
        return HTMLResponse(page(), headers=headers)

    def answers(request: Request) -> Response:
        name = request.query_params.get("annotator", "")
        # Raises ValidationError for no name.
        annotator = Answer(item="-", annotator=name, answer="unsure").annotator
        own = {}
        for verdict in verdicts:
            if verdict.annotator == annotator:
                own[verdict.item] = verdict.answer
        return JSONResponse({"said": own})

    def take(verdict: Answer) -> None:
        if verdict.item not in ids:
            raise DatasetError(f"{verdict.item!r} is not in this sample; load the page again")
        verdicts.add(verdict)

    return [Route("/", visit), Route("/verdicts", answers), post_route("/verdict", Answer, take)]
