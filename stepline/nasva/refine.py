"""`stepline refine`: a dataset's steps and a store of features in, steps that are placed and a
network out.

out/refined.parquet    the records, each kept step with its label as its span, the others under `dropped`
out/omitted.jsonl      the videos that are in no round, each with its reason
out/vectors            text vectors that the run made itself
and what `selftrain` keeps: labels, teachers, report, aligner.safetensors
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from stepline.datasets.excluded import ExcludedVideos, read_excluded
from stepline.errors import ShapeError
from stepline.features import FeatureStore, open_store
from stepline.grounding.speech import coarse_spans
from stepline.nasva.checkpoint import FeatureSpace
from stepline.nasva.dataset import NO_TEXT, gather_samples, matching_rows, omitted_row, other_texts
from stepline.nasva.pseudo_labels import StepSpans, StepVideo
from stepline.nasva.self_training import SelfTraining, SelfTrainingResult
from stepline.nasva.settings import RefineRunSettings
from stepline.records import FeatureSequence, Matrix, Record, Rejected, Span, Step
from stepline.storage import write_parquet
from stepline.training.distributed import first_then_all, is_first, start_processes, wait_for_all
from stepline.training.gather import FeatureJoin
from stepline.training.loop import Progress
from stepline.training.run_folder import OMITTED, write_omitted
from stepline.training.sources import (
    TextEncoder,
    is_feature_store,
    labelled_texts,
    read_labelled_texts,
    read_records,
    text_encoder,
    text_vectors,
)

REFINED = "refined.parquet"
LINKING_ENCODER = "minilm"  # the text encoder that tells which sentence speaks of a step
UNLABELLED = "no label after self-training: its best score is too low, or the teachers disagree"


@dataclass(frozen=True)
class RefineSources:
    """What a run reads. dataset: as `read_records` takes it; features: a store of the videos'
    features, or its URL.

    step_vectors: a store, or an encoder as `text_encoder` takes it. narrations: a source of what is
    said, which the final network learns beside the steps, or None; narration_vectors: None for the
    source's own, else as the steps'.
    excluded: lists that `stepline excluded` wrote.
    """

    dataset: str
    features: Path | str
    step_vectors: str = LINKING_ENCODER
    narrations: str | None = None
    narration_vectors: str | None = None
    excluded: tuple[Path, ...] = ()

    def vectors_of_narrations(self) -> str:
        """Return where the narrations' vectors come from; one network must know them and the steps'
        alike."""
        own = self.narrations if is_feature_store(self.narrations or "") else None
        return (
            self.narration_vectors
            or own
            or (LINKING_ENCODER if is_feature_store(self.step_vectors) else self.step_vectors)
        )


@dataclass(frozen=True)
class RefineResult:
    """What a run made: the networks and labels, how many videos it wrote, and which it left out."""

    trained: SelfTrainingResult
    videos: int
    omitted: tuple[Rejected, ...]


def refine_dataset(
    sources: RefineSources,
    folder: Path,
    settings: RefineRunSettings | None = None,
    progress: Callable[[str, Progress], None] | None = None,
) -> RefineResult:
    """Place the steps of a dataset by self-training, or go on with it, and write them; see the top
    of this file.

    Under torchrun the processes share the work; the first one writes. Raises ShapeError when no
    video is left or hardly a text keeps a label, SettingsError when the folder holds another run,
    and what the sources raise.
    """
    settings = settings or RefineRunSettings()
    start_processes(settings.train.device)
    features = open_store(sources.features)

    def step_vectors() -> FeatureStore:
        texts = labelled_texts(read_records(sources.dataset), "step")
        return text_vectors(sources.step_vectors, texts, folder / "vectors" / "step")

    vectors = first_then_all(step_vectors)
    excluded = read_excluded(sources.excluded)
    reading = _VideoReader(features, vectors, settings, excluded)
    videos = [
        video
        for record in read_records(sources.dataset)
        if (video := reading.take(record)) is not None
    ]
    vectors.forget_texts()
    omitted, narrations = tuple(reading.omitted), None
    if sources.narrations is not None:
        texts = partial(read_labelled_texts, sources.narrations, "narration")
        made = sources.vectors_of_narrations()
        stored = first_then_all(
            lambda: text_vectors(made, texts(), folder / "vectors" / "narration")
        )
        narrations = gather_samples(
            texts(), features, {"narration": stored}, settings.data, excluded=excluded
        )
        omitted += narrations.omitted
    if is_first():
        write_omitted(folder, map(omitted_row, omitted))
    if not videos:
        raise ShapeError(
            f"{sources.dataset}: no video has steps and features; see {folder / OMITTED}"
        )
    first, text = features[videos[0].id], vectors[videos[0].id]
    space = FeatureSpace(first.backbone, text.backbone, first.rate)
    widths = {"video_width": first.width, "text_width": text.width}
    if narrations is not None and (given := (narrations.space().text, narrations.widths()[1])) != (
        text.backbone,
        text.width,
    ):
        what = (
            f"of {given[0]!r}, {given[1]} wide, the steps' of {text.backbone!r}, {text.width} wide"
        )
        raise ShapeError(
            f"the narrations' vectors are {what}; give --narration-vectors of the steps' encoder"
        )
    model = settings.model.model_copy(update=widths)
    read = {name: str(value) for name, value in asdict(sources).items()}
    trained = SelfTraining(
        videos,
        folder,
        narrations or (),
        model,
        settings.loss,
        settings.train,
        settings.rounds,
        read,
        space,
        progress,
    ).run()
    places = dict(zip((video.id for video in videos), trained.labels, strict=True))
    if is_first():
        write_parquet(refined_records(read_records(sources.dataset), places), folder / REFINED)
    wait_for_all()
    return RefineResult(trained, len(places), omitted)


def refined_records(records: Iterator[Record], places: Mapping[str, StepSpans]) -> Iterator[Record]:
    """Yield the records of the videos that have places, with their steps placed; what lost its
    label is dropped."""
    seen: set[str] = set()
    for record in records:
        labels = places.get(record.video.id)
        if labels is None or record.video.id in seen:
            continue
        seen.add(record.video.id)
        steps, dropped = [], []
        for step, span in zip(record.steps, labels, strict=True):
            if span is None:
                dropped.append(Rejected(what="step", text=step.text, reason=UNLABELLED))
            else:
                steps.append(
                    step.model_copy(update={"spans": (span,), "at": None, "status": "shown"})
                )
        yield record.model_copy(
            update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)}
        )


class _VideoReader:
    """Turns records into videos whose steps are to be placed; omitted: which cannot be, and why."""

    def __init__(
        self,
        features: FeatureStore,
        vectors: FeatureStore,
        settings: RefineRunSettings,
        excluded: ExcludedVideos | frozenset[str] = frozenset(),
    ) -> None:
        self._features, self._vectors, self._settings = features, vectors, settings
        self._join = FeatureJoin(features, slack=settings.data.slack, excluded=excluded)
        self._encode: TextEncoder | None = None
        self.omitted = self._join.omitted

    def take(self, record: Record) -> StepVideo | None:
        """Return the record's video, or None and note why not."""
        id, longest = record.video.id, self._settings.data.longest
        lack = None if record.steps else NO_TEXT
        flaw = self._join.flaw(id, record.video.duration, key=id, lack=lack, vectors=self._vectors)
        texts = next(labelled_texts([record], "step"))
        rows = matching_rows(texts, self._vectors) if flaw is None else None
        if rows is None:
            self._join.omit("step", id, flaw or other_texts(texts, self._vectors))
            return None

        def read() -> tuple[FeatureSequence, Matrix]:
            return self._features.read(id, slice(longest)), self._vectors.matrix(id)[rows]

        stored = self._features[id]
        length = min(stored.rows, longest)
        said = self._said(record, length / stored.rate)
        asked = record.steps if self._settings.rounds.asks_where_shown else ()
        shown = tuple(_best_span(step) for step in asked)
        return StepVideo(id, said, length, stored.rate, read, shard=stored.shard, shown=shown)

    def _said(self, record: Record, seconds: float) -> StepSpans:
        """Return where each step is said: as the record has it, else by its likeness to the
        narration (section 3.1).

        A record that gives no step's `said` but spans (HowToStep's own) has its first labels in
        their best spans.
        """
        steps = record.steps
        if (self._settings.said == "given" or not record.sentences) and all(
            step.said is None for step in steps
        ):
            steps = tuple(
                step.model_copy(update={"said": next(iter(step.spans), None)}) for step in steps
            )
        sentences = record.sentences
        if sentences and (
            self._settings.said == "likeness" or all(step.said is None for step in steps)
        ):
            encode = self._encode = self._encode or text_encoder(LINKING_ENCODER)
            likeness = (
                encode([step.text for step in steps])
                @ encode([sentence.text for sentence in sentences]).T
            )
            duration = record.video.duration or max(sentence.span.end for sentence in sentences)
            kept, _ = coarse_spans(
                steps, sentences, likeness, duration=duration, settings=self._settings.coarse
            )
            said = {step.id: step.said for step in kept}
            steps = tuple(step.model_copy(update={"said": said.get(step.id)}) for step in steps)
        return tuple(
            None if step.said is None or step.said.start >= seconds else step.said for step in steps
        )


def _best_span(step: Step) -> Span | None:
    """Return the span in which a step is shown best: the one around its best second, else its
    first."""
    around = (
        span for span in step.spans if step.at is not None and span.start <= step.at <= span.end
    )
    return next(around, next(iter(step.spans), None)) if step.status == "shown" else None
