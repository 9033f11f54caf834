"""The random sample that people check: some videos, and in each of them raw sentences and final
steps alike."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.curate.sampling import ReservoirSample, random_key
from stepline.records import FrozenModel, Probability, Record, Span

TextKind: TypeAlias = Literal["narration", "step"]

AUDIT_VIDEOS = 10  # as many as the paper checked
AUDIT_TEXTS = 25  # of each kind in a video, at most


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
    """Draws videos at random from a stream of unknown length. The order of the stream does not
    matter."""

    def __init__(
        self, *, videos: int = AUDIT_VIDEOS, texts: int = AUDIT_TEXTS, seed: int = 0
    ) -> None:
        self._texts = texts
        self._seed = seed
        self._videos: ReservoirSample[Record] = ReservoirSample(videos, seed=seed)

    def add(self, record: Record) -> None:
        """Consider a record of the dataset. One without a sentence or a placed step is passed
        over."""
        # What has nothing to check takes no place in the sample.
        if narration_texts(record) or _step_texts(record):
            self._videos.add(record.id, record)

    def sample(self) -> AuditSample:
        """Return the sample: videos by id, in each the texts of both kinds mixed."""
        records = self._videos.values()
        # A number of each kind, and then both mixed.
        texts: list[AuditText] = []
        for record in records:
            sentences = _shuffled(narration_texts(record), self._seed)
            steps = _shuffled(_step_texts(record), self._seed)
            drawn = sentences[: self._texts] + steps[: self._texts]
            # Another seed mixes the kinds than drew the texts, else the order of asking would show
            # the kind.
            texts += _shuffled(drawn, self._seed + 1)
        return _sample(records, texts, self._seed)


def _shuffled(texts: Sequence[AuditText], seed: int) -> list[AuditText]:
    # By a key of the id, so that further texts of a video do not change the order of these.
    return sorted(texts, key=lambda text: random_key(seed, text.id))


def _sample(records: Sequence[Record], texts: Sequence[AuditText], seed: int) -> AuditSample:
    titles = {}
    paths = {}
    durations = {}
    for record in records:
        video = record.video
        titles[record.id] = video.title or record.id
        if video.path is not None:
            paths[record.id] = video.path
        if video.duration is not None:
            durations[record.id] = video.duration
    return AuditSample(
        seed=seed, texts=tuple(texts), titles=titles, paths=paths, durations=durations
    )


def narration_texts(record: Record) -> list[AuditText]:
    """Return the sentences of a video, in their order."""
    texts = []
    for number, sentence in enumerate(record.sentences):
        id = _text_id(f"{record.id}/narration {number}", sentence.text, sentence.span)
        texts.append(
            AuditText(
                id=id,
                video=record.id,
                kind="narration",
                text=sentence.text,
                span=sentence.span,
                score=sentence.shown,
            )
        )
    return texts


def _step_texts(record: Record) -> list[AuditText]:
    texts = []
    for step in record.steps:
        if not step.spans:
            # Only a step that the dataset places can be right or wrong about its seconds.
            continue
        span = step.spans[0]
        id = _text_id(f"{record.id}/step {step.id}", step.text, span)
        texts.append(
            AuditText(
                id=id, video=record.id, kind="step", text=step.text, span=span, score=step.score
            )
        )
    return texts


def _text_id(name: str, text: str, span: Span) -> str:
    """Return an id that changes with the wording and the seconds, so that no verdict outlives its
    text."""
    content = f"{text} {span.start:.3f} {span.end:.3f}"
    digest = random_key(0, content) % 0xFFFFFF
    return f"{name} {digest:06x}"
