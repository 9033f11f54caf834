"""The random sample that people check: some videos, and in each of them raw sentences and final steps alike."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.curate.sampling import Some, number
from stepline.records import FrozenModel, Probability, Record, Span

Kind: TypeAlias = Literal["narration", "step"]

VIDEOS = 10  # as many as the paper checked
TEXTS = 25  # of each kind in a video, at most


class Asked(FrozenModel):
    """One text to check. span: the seconds that the dataset gives it. score: what the dataset believes, never shown."""

    id: Annotated[str, Field(min_length=1)]
    video: str
    kind: Kind
    text: str
    span: Span
    score: Probability | None = None


class Sample(FrozenModel):
    """What is checked, in the order of asking. paths: of each video's file, where known."""

    seed: int
    asked: tuple[Asked, ...]
    titles: dict[str, str]
    paths: dict[str, str]
    durations: dict[str, float]


class Drawing:
    """Draws videos at random from a stream whose length nobody knows; the order of the stream plays no part."""

    def __init__(self, *, videos: int = VIDEOS, texts: int = TEXTS, seed: int = 0) -> None:
        self._texts, self._seed = texts, seed
        self._held: Some[Record] = Some(videos, seed=seed)

    def add(self, record: Record) -> None:
        """Consider a record of the dataset; one without a sentence or a placed step is passed over."""
        if _sentences(record) or _steps(record):
            self._held.add(record.id, record)

    def sample(self) -> Sample:
        """Return the sample: videos by id, in each the texts of both kinds mixed."""
        records = [record for _, record in self._held.chosen()]
        return Sample(
            seed=self._seed,
            asked=tuple(text for record in records for text in self._texts_of(record)),
            titles={record.id: record.video.title or record.id for record in records},
            paths={record.id: record.video.path for record in records if record.video.path is not None},
            durations={record.id: record.video.duration for record in records if record.video.duration is not None},
        )

    def _texts_of(self, record: Record) -> list[Asked]:
        chosen = [*self._some(_sentences(record)), *self._some(_steps(record))]
        return sorted(chosen, key=lambda text: number(self._seed + 1, text.id))

    def _some(self, texts: Sequence[Asked]) -> list[Asked]:
        return sorted(texts, key=lambda text: number(self._seed, text.id))[: self._texts]


def draw(records: Iterable[Record], *, videos: int = VIDEOS, texts: int = TEXTS, seed: int = 0) -> Sample:
    """Return a sample of some records."""
    drawing = Drawing(videos=videos, texts=texts, seed=seed)
    for record in records:
        drawing.add(record)
    return drawing.sample()


def _sentences(record: Record) -> list[Asked]:
    sentences = record.transcript.sentences if record.transcript is not None else ()
    return [_asked(record, "narration", str(n), s.text, s.span, s.shown) for n, s in enumerate(sentences)]


def _steps(record: Record) -> list[Asked]:
    return [_asked(record, "step", s.id, s.text, s.spans[0], s.score) for s in record.steps if s.spans]


def _asked(record: Record, kind: Kind, name: str, text: str, span: Span, score: float | None) -> Asked:
    """Return a text under an id that changes with its wording and seconds: no verdict outlives what it is on."""
    said = number(0, f"{text} {span.start:.3f} {span.end:.3f}") % 0xFFFFFF
    id = f"{record.id}/{kind} {name} {said:06x}"
    return Asked(id=id, video=record.id, kind=kind, text=text, span=span, score=score)
