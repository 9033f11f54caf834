"""The random sample that people check: some videos, and in each of them raw sentences and final
steps alike."""

from collections.abc import Collection, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.curate.sampling import ReservoirSample, random_key
from stepline.records import FrozenModel, Probability, Record, Span

TextKind: TypeAlias = Literal["narration", "step"]

VIDEOS = 10  # as many as the paper checked
TEXTS = 25  # of each kind in a video, at most


class AuditText(FrozenModel):
    """One text to check. span: the seconds that the dataset gives it. score: what the dataset
    believes, never shown."""

    id: Annotated[str, Field(min_length=1)]
    video: str
    kind: TextKind
    text: str
    span: Span
    score: Probability | None = None


class AuditSample(FrozenModel):
    """What is checked, in the order of asking. paths: of each video's file, where known."""

    seed: int
    texts: tuple[AuditText, ...]
    titles: dict[str, str]
    paths: dict[str, str]
    durations: dict[str, float]

    def of_kind(self, kind: TextKind) -> list[AuditText]:
        """Return the narrations, or the steps."""
        return [text for text in self.texts if text.kind == kind]


class AuditSampler:
    """Draws videos at random from a stream whose length nobody knows; the order of the stream plays
    no part."""

    def __init__(self, *, videos: int = VIDEOS, texts: int = TEXTS, seed: int = 0) -> None:
        self._texts, self._seed = texts, seed
        self._videos: ReservoirSample[Record] = ReservoirSample(videos, seed=seed)

    def add(self, record: Record) -> None:
        """Consider a record of the dataset; one without a sentence or a placed step is passed
        over."""
        if narration_texts(record) or _steps(record):
            self._videos.add(record.id, record)

    def sample(self) -> AuditSample:
        """Return the sample: videos by id, in each the texts of both kinds mixed."""
        records = self._videos.values()
        texts: list[AuditText] = []
        for record in records:
            chosen: list[AuditText] = []
            for own in (narration_texts(record), _steps(record)):
                chosen += sorted(own, key=lambda text: random_key(self._seed, text.id))[
                    : self._texts
                ]
            # Another seed mixes the kinds than chose the texts, else the order of asking would tell
            # the kind.
            texts += sorted(chosen, key=lambda text: random_key(self._seed + 1, text.id))
        return _sample(records, texts, self._seed)


def sample_sentences(
    record: Record, count: int, *, among: Collection[str] | None = None, seed: int = 0
) -> AuditSample:
    """Return at most so many of a video's sentences, drawn at random. among: ids of those that may
    be drawn."""
    texts = [text for text in narration_texts(record) if among is None or text.id in among]
    return _sample(
        [record], sorted(texts, key=lambda text: random_key(seed, text.id))[:count], seed
    )


def _sample(records: Sequence[Record], texts: Sequence[AuditText], seed: int) -> AuditSample:
    return AuditSample(
        seed=seed,
        texts=tuple(texts),
        titles={record.id: record.video.title or record.id for record in records},
        paths={record.id: record.video.path for record in records if record.video.path is not None},
        durations={
            record.id: record.video.duration
            for record in records
            if record.video.duration is not None
        },
    )


def narration_texts(record: Record) -> list[AuditText]:
    """Return the sentences of a video, in their order."""
    return [
        _audit_text(record, "narration", str(n), s.text, s.span, s.shown)
        for n, s in enumerate(record.sentences)
    ]


def _steps(record: Record) -> list[AuditText]:
    return [
        _audit_text(record, "step", s.id, s.text, s.spans[0], s.score)
        for s in record.steps
        if s.spans
    ]


def _audit_text(
    record: Record, kind: TextKind, name: str, text: str, span: Span, score: float | None
) -> AuditText:
    """Return a text under an id that changes with its wording and seconds: no verdict outlives what
    it is on."""
    digest = random_key(0, f"{text} {span.start:.3f} {span.end:.3f}") % 0xFFFFFF
    id = f"{record.id}/{kind} {name} {digest:06x}"
    return AuditText(id=id, video=record.id, kind=kind, text=text, span=span, score=score)
