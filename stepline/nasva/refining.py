"""`stepline refine`: a dataset's steps and a store of features in, steps that are placed and a network out.

    out/refined.parquet    the records, each kept step with its label as its span, the others under `dropped`
    out/omitted.jsonl      the videos that are in no round, each with its reason
    out/vectors            text vectors that the run made itself
    and what `selftrain` keeps: labels, teachers, report, aligner.safetensors
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from stepline.errors import ShapeError
from stepline.features import FeatureStore
from stepline.nasva import samples as reasons
from stepline.nasva.checkpoint import Space
from stepline.nasva.coarse import coarse_spans
from stepline.nasva.labels import Places
from stepline.nasva.refine_settings import RefineRunSettings
from stepline.nasva.samples import AlignerSamples, Omitted, gather_samples, matching_rows
from stepline.nasva.selftrain import SelfTrained, SelfTraining
from stepline.nasva.text_vectors import TextEncoder, store_vectors, text_encoder
from stepline.nasva.told import Told, is_store, read_records, read_told, tell
from stepline.nasva.written import Written
from stepline.records import Dropped, FeatureSequence, Matrix, Record, Step
from stepline.store import write_atomic, write_parquet
from stepline.training import Progress

REFINED, OMITTED = "refined.parquet", "omitted.jsonl"
LINKING = "minilm"   # the text encoder that tells which sentence speaks of a step
UNLABELLED = "no label after self-training: its best score is too low, or the teachers disagree"


@dataclass(frozen=True)
class RefineSources:
    """What a run reads. dataset: as `read_records` takes it; features: a store of the videos' features.

    step_vectors: a store, or an encoder as `text_encoder` takes it. narrations: a source of what is said, which the
    final network learns beside the steps, or None.
    """

    dataset: str
    features: Path
    step_vectors: str = LINKING
    narrations: str | None = None
    narration_vectors: str = LINKING


@dataclass(frozen=True)
class Refined:
    """What a run made: the networks and labels, how many videos it wrote, and which it left out."""

    trained: SelfTrained
    videos: int
    omitted: tuple[Omitted, ...]


def refine_dataset(
    sources: RefineSources,
    folder: Path,
    settings: RefineRunSettings | None = None,
    progress: Callable[[str, Progress], None] | None = None,
) -> Refined:
    """Place the steps of a dataset by self-training, or go on with it, and write them; see the top of this file.

    Raises ShapeError when no video is left or hardly a text keeps a label, SettingsError when the folder holds another
    run, and what the sources raise.
    """
    settings = settings or RefineRunSettings()
    features = FeatureStore(sources.features)
    vectors = _vectors(sources.step_vectors, tell(read_records(sources.dataset), "step"), folder / "vectors" / "step")
    reading = _Reading(features, vectors, settings)
    videos = [video for record in read_records(sources.dataset) if (video := reading.take(record)) is not None]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / OMITTED, "".join(json.dumps(asdict(one)) + "\n" for one in reading.omitted))
    if not videos:
        raise ShapeError(f"{sources.dataset}: no video has steps and features; see {folder / OMITTED}")
    first = features[videos[0].id]
    space = Space(first.backbone, vectors[videos[0].id].backbone, first.rate)
    widths = {"video_width": first.width, "text_width": vectors[videos[0].id].width}
    training = SelfTraining(
        videos,
        folder,
        _narrations(sources, features, folder, settings),
        settings.model.model_copy(update=widths),
        settings.loss,
        settings.train,
        settings.rounds,
        {name: str(value) for name, value in asdict(sources).items()},
        space,
        progress,
    )
    trained = training.run()
    places = dict(zip((video.id for video in videos), trained.labels, strict=True))
    count = write_parquet(refined_records(read_records(sources.dataset), places), folder / REFINED)
    return Refined(trained, count, tuple(reading.omitted))


def refined_records(records: Iterator[Record], places: Mapping[str, Places]) -> Iterator[Record]:
    """Yield the records of the videos that have places, with their steps placed; what lost its label is dropped."""
    seen: set[str] = set()
    for record in records:
        labels = places.get(record.video.id)
        if labels is None or record.video.id in seen:
            continue
        seen.add(record.video.id)
        steps, dropped = [], []
        for step, span in zip(record.steps, labels, strict=True):
            if span is None:
                dropped.append(Dropped(what="step", text=step.text, reason=UNLABELLED))
            else:
                steps.append(step.model_copy(update={"spans": (span,), "at": None, "status": "shown"}))
        yield record.model_copy(update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)})


class _Reading:
    """Turns records into videos to place, noting why one cannot be."""

    def __init__(self, features: FeatureStore, vectors: FeatureStore, settings: RefineRunSettings) -> None:
        self._features, self._vectors, self._settings = features, vectors, settings
        self._seen: set[str] = set()
        self._widths: dict[str, int] = {}
        self._encode: TextEncoder | None = None
        self.omitted: list[Omitted] = []

    def take(self, record: Record) -> Written | None:
        """Return the record's video, or None and note why not."""
        flaw = self._flaw(record)
        if flaw is not None:
            self.omitted.append(Omitted(record.video.id, "step", *flaw))
            return None
        id = record.video.id
        stored, longest = self._features[id], self._settings.data.longest
        rows = matching_rows(next(tell([record], "step")), self._vectors)

        def read() -> tuple[FeatureSequence, Matrix]:
            found = self._features.read(id)
            return FeatureSequence(found.values[:longest], found.rate, found.backbone), self._vectors.matrix(id)[rows]

        length = min(stored.rows, longest)
        said = self._said(record, length / stored.rate)
        return Written(id, said, length, stored.rate, read)

    def _flaw(self, record: Record) -> tuple[str, str] | None:
        id = record.video.id
        if id in self._seen:
            return reasons.TWICE, ""
        self._seen.add(id)
        if not record.steps:
            return reasons.NO_TEXT, ""
        if id not in self._features:
            return reasons.NO_VIDEO, ""
        if id not in self._vectors:
            return reasons.NO_VECTORS, ""
        if matching_rows(next(tell([record], "step")), self._vectors) is None:
            return reasons.OTHER_TEXTS, f"{len(record.steps)} texts, {self._vectors[id].rows} vectors"
        seconds, stated = self._features[id].rows / self._features[id].rate, record.video.duration
        if stated is not None and abs(stated - seconds) > self._settings.data.slack:
            return reasons.OTHER_LENGTH, f"{stated:g} s and {seconds:g} s"
        for name, store in {"video": self._features, "text": self._vectors}.items():
            width = store[id].width
            if width != self._widths.setdefault(name, width):
                return reasons.OTHER_WIDTH, f"{name} {width}, not {self._widths[name]}"
        return None

    def _said(self, record: Record, seconds: float) -> Places:
        """Return where each step is said: as the record has it, else by its likeness to the narration (section 3.1)."""
        steps = record.steps
        if self._settings.said == "likeness" or all(step.said is None for step in steps):
            steps = self._linked(record)
        return tuple(None if step.said is None or step.said.start >= seconds else step.said for step in steps)

    def _linked(self, record: Record) -> tuple[Step, ...]:
        sentences = record.transcript.sentences if record.transcript else ()
        if not sentences:
            return record.steps
        self._encode = self._encode or text_encoder(LINKING)
        likeness = self._encode([step.text for step in record.steps]) @ self._encode([one.text for one in sentences]).T
        duration = record.video.duration or max(one.span.end for one in sentences)
        kept, _ = coarse_spans(record.steps, sentences, likeness, duration=duration, settings=self._settings.coarse)
        said = {step.id: step.said for step in kept}
        return tuple(step.model_copy(update={"said": said.get(step.id)}) for step in record.steps)


def _narrations(
    sources: RefineSources, features: FeatureStore, folder: Path, settings: RefineRunSettings
) -> AlignerSamples | tuple[()]:
    if sources.narrations is None:
        return ()
    source = sources.narrations
    vectors = _vectors(sources.narration_vectors, read_told(source, "narration"), folder / "vectors" / "narration")
    return gather_samples(read_told(source, "narration"), features, {"narration": vectors}, settings.data)


def _vectors(given: str, told: Iterator[Told], folder: Path) -> FeatureStore:
    if is_store(Path(given)):
        return FeatureStore(Path(given))
    return store_vectors(told, text_encoder(given), folder, name=given)
