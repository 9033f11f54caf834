"""What people answered: a verdict for each place, how well they agree, and records with what they
said.

A step counts as shown where most of those who answered say so. With as many against it, no one
knows. Every clip with an answer counts. Agreement is Fleiss' kappa over the clips that have as many
answers as were asked for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from stepline.annotate import Agreement, AgreementRule, Answer, agreement
from stepline.curate.workflow.queue import ReviewPlace
from stepline.records import Record, Span, Step

# place id -> whether the step is shown there. None: as many say no as yes
Verdicts: TypeAlias = Mapping[str, bool | None]


@dataclass(frozen=True)
class Review:
    """The places that people were asked about, and what they said. people: who answered."""

    places: tuple[ReviewPlace, ...]
    verdicts: Verdicts
    people: tuple[str, ...]
    agreement: Agreement

    @property
    def open_places(self) -> list[ReviewPlace]:
        """Those without an answer."""
        places = []
        for place in self.places:
            if place.id not in self.verdicts:
                places.append(place)
        return places

    @property
    def shown(self) -> int:
        """How many places show their step."""
        count = 0
        for place in self.places:
            if self.verdicts.get(place.id) is True:
                count += 1
        return count

    @property
    def answered(self) -> int:
        """How many places have an answer."""
        return len(self.places) - len(self.open_places)

    def of_step(self, video: str, step: str) -> list[tuple[Span, bool]]:
        """Return the places of a step that have a verdict, with it."""
        verdicts = []
        places = self._by_step.get((video, step), [])
        for place in places:
            is_shown = self.verdicts.get(place.id)
            if is_shown is not None:
                verdicts.append((place.span, is_shown))
        return verdicts

    @cached_property
    def _by_step(self) -> dict[tuple[str, str], list[ReviewPlace]]:
        by_step: dict[tuple[str, str], list[ReviewPlace]] = {}
        for place in self.places:
            key = (place.video, place.step)
            by_step.setdefault(key, []).append(place)
        return by_step


def read_review(places: Sequence[ReviewPlace], answers: Iterable[Answer], people: int) -> Review:
    """Return what the answers say of the places. people: whose answers each clip is for."""
    # The answers about these places, and who gave them.
    ids = {place.id for place in places}
    own_answers = []
    names = set()
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        if answer.clip in ids:
            own_answers.append(answer)
            names.add(answer.annotator)
            votes[answer.clip].append(answer.shown)

    # The verdict of most.
    verdicts: dict[str, bool | None] = {}
    for clip, ballots in votes.items():
        yes = sum(ballots)
        no = len(ballots) - yes
        verdicts[clip] = None
        if yes != no:
            verdicts[clip] = yes > no

    # Agreement counts clips with as many answers as were asked for.
    majority = people // 2 + 1
    rule = AgreementRule(people, majority)
    return Review(
        places=tuple(places),
        verdicts=verdicts,
        people=tuple(sorted(names)),
        agreement=agreement(own_answers, rule),
    )


def reviewed_record(record: Record, review: Review) -> Record:
    """Return a record with what people said of its steps.

    `reference`: the steps with a verdict, each with the seconds that show it, without any where all
    were denied. `steps`: without spans that people denied. Those that no one saw stay as they are.
    """
    steps: list[Step] = []
    reference: list[Step] = []
    # What people said of each step takes the place of what the machine did.
    for step in record.steps:
        verdicts = review.of_step(record.id, step.id)
        shown_spans = [span for span, is_shown in verdicts if is_shown]
        if shown_spans:
            steps.append(_shown_step(step, shown_spans[:1]))
            reference.append(_shown_step(step, shown_spans))
        elif verdicts:
            unshown = _unshown_step(step)
            steps.append(unshown)
            reference.append(unshown)
        else:
            steps.append(step)
    update = {"steps": tuple(steps), "reference": tuple(reference)}
    return record.model_copy(update=update)


def _shown_step(step: Step, spans: Sequence[Span]) -> Step:
    update = {"at": spans[0].center, "status": "shown", "spans": tuple(spans)}
    return step.model_copy(update=update)


def _unshown_step(step: Step) -> Step:
    status = "said"
    if step.said is None:
        status = "not found"
    update = {"spans": (), "at": None, "status": status, "basis": None}
    return step.model_copy(update=update)
