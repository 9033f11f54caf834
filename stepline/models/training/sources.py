"""What a training run reads: texts and records, the vectors of texts, and why a video stays out.

    for record in read_records("youcook2:yc2_train.json", "records"): ...
    for texts in read_labelled_texts("howtostep:HowToStep.json", "step"): ...
    join = FeatureJoin(open_video_store("features"), excluded=excluded)
    join.flaw(record.video.id)                       # None: it can be trained on

A source is Stepline's records (.parquet, .json, or a folder of them), `NAME:PATH` of a public
dataset (`stepline datasets`), or a feature store of texts with their times. Each may be a URL
(s3://, gs://, http://): records and datasets are copied to this disk, stores shard by shard.
Vectors are made once and stored in the training's folder, so that no epoch makes them again.
"""

import math
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from stepline.datasets import DATASETS, stream
from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import DatasetError, ShapeError, StoreError
from stepline.features import FeatureStore, FeatureWriter, RowTexts, open_store
from stepline.files.remote import RemotePath
from stepline.files.remote.cache import is_remote, local_copy
from stepline.models.training.settings import StepLabelSource, TextKind
from stepline.records import (
    FeatureSequence,
    Matrix,
    Record,
    Rejected,
    RejectedKind,
    Span,
    Step,
    Transcript,
    count_reasons,
)
from stepline.storage import read_parquet, read_record

SHARD_PATTERN = "shard-*.parquet"  # names of the files of a feature store

# ---------------------------------------------------------------- records


def read_records(*sources: str, subset: str | None = None) -> Iterator[Record]:
    """Yield the records of sources: .parquet, .json, folders of them, or `name:path` of a public
    dataset.

    subset: a split of a dataset. Raises DatasetError or StoreError for any other source, or a
    subset of mere records.
    """
    for source in sources:
        # A public dataset is read by its name, in its own form.
        dataset = dataset_of(source)
        if dataset is not None:
            name, place = dataset
            for entry in stream(name, _local_path(place), subset=subset):
                if entry.record is not None:
                    yield entry.record
            continue
        # Stepline's own records: one file, or all of a folder.
        path = _local_path(source)
        if subset is not None:
            raise DatasetError(f"{path}: records know no subset {subset!r}; leave --subset out")
        files = [path]
        if path.is_dir():
            files = sorted((*path.glob("*.parquet"), *path.glob("*.json")))
        if not files or not path.exists():
            forms = ".parquet, .json or a folder of them"
            cure = f"give records ({forms}), or NAME:PATH of `stepline datasets`"
            raise DatasetError(f"{path}: no records to train on; {cure}")
        for file in files:
            if file.suffix == ".parquet":
                yield from read_parquet(file)
                continue
            try:
                record = read_record(file)
            except StoreError as error:
                cure = f"NAME:PATH, such as youcook2:{file} (`stepline datasets`)"
                raise StoreError(f"{error}; a dataset's own file is {cure}") from error
            yield record


def _local_path(place: str) -> Path:
    """Return a path, or the copy of a URL on this disk."""
    return local_copy(place) if is_remote(place) else Path(place)


def dataset_of(source: str) -> tuple[str, str] | None:
    """Return the name and the path or URL of a public dataset, None of any other source."""
    name, colon, path = source.partition(":")
    return (name, path) if colon and name in DATASETS else None


def read_transcripts(*sources: str, videos: Container[str] | None = None) -> dict[str, Transcript]:
    """Return what the records of sources say, by video. videos: only of these."""
    transcripts = {}
    for record in read_records(*sources):
        video = record.video.id
        if record.transcript is not None and (videos is None or video in videos):
            transcripts[video] = record.transcript
    return transcripts


@dataclass(frozen=True)
class NarratedRecords:
    """Records, read again by each iteration. Those without a transcript get that of another source.

    read: yields the records.
    narrations: sources of what is said, as `read_records` takes them.
    """

    read: Callable[[], Iterable[Record]]
    narrations: Sequence[str] = ()

    def __iter__(self) -> Iterator[Record]:
        return with_transcripts(self.read(), self._transcripts)

    @cached_property
    def _transcripts(self) -> dict[str, Transcript]:
        if not self.narrations:
            return {}
        silent = {record.video.id for record in self.read() if record.transcript is None}
        return read_transcripts(*self.narrations, videos=silent)


def with_transcripts(
    records: Iterable[Record], transcripts: Mapping[str, Transcript]
) -> Iterator[Record]:
    """Yield the records. Those that have no transcript get the one of their video, if there is
    one."""
    for record in records:
        if record.transcript is None and record.video.id in transcripts:
            transcript = transcripts[record.video.id]
            record = record.model_copy(update={"transcript": transcript})
        yield record


# ---------------------------------------------------------------- texts with their labels


@dataclass(frozen=True)
class LabelledTexts:
    """The texts of one kind of a video.

    spans: the places of each, none where it has no label.

    duration: seconds of the video as its source states it, None where it does not.
    """

    video: str
    kind: TextKind
    texts: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...]
    duration: float | None = None


def read_labelled_texts(
    source: str, kind: TextKind, label: StepLabelSource = "shown_or_said"
) -> Iterator[LabelledTexts]:
    """Yield the texts of each video of a source. "narration" gives its sentences, "step" its steps.

    Args:
        source: as `read_records` takes it, or a feature store of texts with times. A dataset that
            people annotated gives their steps.
        kind: of the texts.
        label: which place of a step is its label.

    Raises DatasetError or StoreError for any other source.
    """
    dataset = dataset_of(source)
    if dataset is not None or not is_feature_store(source):
        annotated = dataset is not None and DATASETS[dataset[0]].record_field == "reference"
        yield from labelled_texts(read_records(source), kind, label, annotated=annotated)
        return
    # A store of texts without times can label nothing.
    store = open_store(source)
    for id in store:
        lines = store.texts(id)
        if lines is None or not lines.starts or not lines.ends:
            raise DatasetError(
                f"{source}: {id} has no texts with times; give the annotations next to the store"
            )
        spans: list[tuple[Span, ...]] = []
        for start, end in zip(lines.starts, lines.ends, strict=True):
            # WhisperX leaves some times out, some are reversed
            valid = math.isfinite(start + end) and 0 <= start < end
            spans.append((Span(start, end),) if valid else ())
        yield LabelledTexts(id, kind, lines.texts, tuple(spans))


def labelled_texts(
    records: Iterable[Record],
    kind: TextKind,
    label: StepLabelSource = "shown_or_said",
    *,
    annotated: bool = False,
) -> Iterator[LabelledTexts]:
    """Yield the texts of records. annotated: of the steps that people placed, which only such
    datasets may give."""
    for record in records:
        spans: list[tuple[Span, ...]]
        if kind == "narration":
            texts = [sentence.text for sentence in record.sentences]
            spans = [(sentence.span,) for sentence in record.sentences]
        elif annotated:
            texts = [step.text for step in record.reference]
            spans = [step.spans for step in record.reference]
        else:
            texts = [step.text for step in record.steps]
            spans = [_label(step, label) for step in record.steps]
        video = record.video
        yield LabelledTexts(video.id, kind, tuple(texts), tuple(spans), video.duration)


def _label(step: Step, source: StepLabelSource) -> tuple[Span, ...]:
    """Return the one span that labels the step: the best where it is shown, or where it is said."""
    if step.spans and source != "said":
        return step.spans[:1]
    if step.said is not None and source != "shown":
        return (step.said,)
    return ()


# ---------------------------------------------------------------- vectors of texts

TextEncoder: TypeAlias = Callable[[Sequence[str]], Matrix]


def is_feature_store(place: str) -> bool:
    """Say whether a folder, or a URL, is a feature store."""
    if is_remote(place):
        return any(Path(file.name).match(SHARD_PATTERN) for file in RemotePath(place).list())
    folder = Path(place)
    return folder.is_dir() and any(folder.glob(SHARD_PATTERN))


def text_encoder(name: str) -> TextEncoder:
    """Return what turns texts into vectors.

    "conse", "clip:FOLDER", "internvideo:WEIGHTS" or "s3d:WEIGHTS" is that backbone's own encoder.
    Any other name is a sentence encoder, "minilm" or a folder in the sentence-transformers layout.
    InternVideo's keep their lengths, as its released features do.
    """
    # A backbone's own encoder, into the space of its video features.
    backbone, _, folder = name.partition(":")
    if backbone in ("conse", "clip", "internvideo", "s3d"):
        from stepline.vision import VisionSettings, load_backbone

        settings: dict[str, object] = {"backbone": backbone}
        if folder:
            settings["path"] = Path(folder)
        if backbone == "internvideo":
            settings["unit"] = False
        return load_backbone(VisionSettings.model_validate(settings)).encode_texts

    from stepline.text import embed

    return lambda texts: embed(texts, model=name)


def encoder_name(source: str) -> str:
    """Return the name of the space of `text_encoder(source)`, as `VisionSettings.text_space` says
    it when the network is used: "minilm" for conse, whose texts become its vectors."""
    backbone, _, _ = source.partition(":")
    if backbone not in ("conse", "clip", "s3d"):
        return source
    from stepline.vision import VisionSettings

    return VisionSettings.model_construct(backbone=backbone).text_space


def text_vectors(source: str, texts: Iterable[LabelledTexts], folder: Path) -> FeatureStore:
    """Return the store that `source` names by its path or URL, else one made in `folder` by the
    encoder of that name."""
    if is_feature_store(source):
        return open_store(source)
    return store_text_vectors(texts, text_encoder(source), folder, name=encoder_name(source))


def store_text_vectors(
    texts: Iterable[LabelledTexts], encode: TextEncoder, folder: Path, *, name: str
) -> FeatureStore:
    """Return a store of the vectors of texts, keyed by video. What it holds already is not made
    again.

    Raises ShapeError when the encoder gives another number of rows, or when there is no text at
    all.
    """
    with FeatureWriter(folder) as writer:
        for labelled in texts:
            # A run that was stopped continues with the videos that are left.
            if labelled.video in writer or not labelled.texts:
                continue
            vectors = encode(labelled.texts)
            count = len(labelled.texts)
            if len(vectors) != count:
                raise ShapeError(
                    f"{labelled.video}: {count} texts need as many vectors, not {len(vectors)}"
                )
            texts_of_rows = RowTexts(labelled.texts)
            writer.add(labelled.video, vectors, rate=1.0, backbone=name, texts=texts_of_rows)
    if not any(folder.glob(SHARD_PATTERN)):
        raise ShapeError(f"{folder}: there is no text to make vectors of; give records with texts")
    return FeatureStore(folder)


# ---------------------------------------------------------------- what can be trained on

ExcludedIds: TypeAlias = ExcludedVideos | frozenset[str]  # ids of videos that are left out
Features: TypeAlias = FeatureStore | Mapping[str, FeatureSequence]
# why something is left out, one of a few fixed wordings, and what was found
Flaw: TypeAlias = tuple[str, str]

SEEN_TWICE = "the video came before"
EXCLUDED_REASON = "it is excluded"
NO_FEATURES = "there are no features of its video"
NO_ROWS = "its features hold no row"
NO_VECTORS = "there are no features of its texts"
OTHER_LENGTH = "its video and its features differ in length"
OTHER_WIDTH = "its features have another width"
OTHER_BACKBONE = "its features come from another network"
OTHER_RATE = "its features have another rate"


@dataclass(frozen=True)
class FeatureSpec:
    """What features are of: their width, their backbone, and rows per second."""

    width: int
    backbone: str
    rate: float


def feature_spec(features: Features, video: str) -> tuple[FeatureSpec, int]:
    """Return what the features of a video are of, and how many rows they have, without reading
    them."""
    stored = features[video]
    if isinstance(stored, FeatureSequence):
        rows, width = stored.values.shape
        return FeatureSpec(width, stored.backbone, stored.rate), rows
    return FeatureSpec(stored.width, stored.backbone, stored.rate), stored.rows


class FeatureJoin:
    """Says of one video after another whether it can be trained on.

    Every trainer asks the same. A video did not come before and is not excluded (a benchmark's
    own). It has features with rows in them, of the first video's kind, and a stated length that is
    theirs. Only the index of a feature store is read. Further reasons are noted by `omit`.

    omitted: what is left out, and why.
    specs: of the first video's features ("video"), and of the first texts' ("text").
    """

    def __init__(
        self,
        features: Features,
        *,
        slack: float = math.inf,
        excluded: ExcludedIds = frozenset(),
        one_rate: bool = False,
    ) -> None:
        """Look up videos in `features`.

        Args:
            features: a store, or the features themselves, by the videos' ids.
            slack: seconds that a video's stated length may differ from its features'.
            excluded: ids of videos that are left out.
            one_rate: whether all videos must have the first one's rows per second.
        """
        self._features = features
        self._slack = slack
        self._excluded = excluded
        self._one_rate = one_rate
        self._seen: set[Hashable] = set()
        self.specs: dict[str, FeatureSpec] = {}
        self.omitted: list[Rejected] = []

    def flaw(
        self,
        video: str,
        duration: float | None = None,
        *,
        key: Hashable = None,
        lack: str | None = None,
        vectors: FeatureStore | None = None,
    ) -> Flaw | None:
        """Return why a video cannot be trained on, None where its features fit.

        Args:
            video: its id.
            duration: seconds, as its source states them.
            key: comes once. None: as often as it likes.
            lack: what its source lacks, None for nothing.
            vectors: a store that must hold the features of its texts.
        """
        # What its id and its source say.
        if key is not None:
            if key in self._seen:
                return SEEN_TWICE, ""
            self._seen.add(key)
        if video in self._excluded:
            return EXCLUDED_REASON, ""
        if lack is not None:
            return lack, ""
        # What the store's index says.
        if video not in self._features:
            return NO_FEATURES, ""
        if vectors is not None and video not in vectors:
            return NO_VECTORS, ""
        # What the features are of, and whether they cover the video.
        spec, rows = feature_spec(self._features, video)
        if not rows:
            return NO_ROWS, ""
        if duration is not None and abs(duration - rows / spec.rate) > self._slack:
            return OTHER_LENGTH, f"{duration:g} s and {rows / spec.rate:g} s"
        # What a network could not distinguish from the first video's.
        flaw = self._unlike("video", spec)
        if flaw is None and vectors is not None:
            flaw = self._unlike("text", feature_spec(vectors, video)[0])
        return flaw

    def omit(self, what: RejectedKind, video: str, flaw: Flaw, text: str = "") -> None:
        """Note what is left out, and why. text: of the step, where it is one."""
        reason, value = flaw
        self.omitted.append(Rejected(what, reason, text=text, id=video, value=value))

    def _unlike(self, name: str, spec: FeatureSpec) -> Flaw | None:
        """Return how features differ from the first ones."""
        first = self.specs.setdefault(name, spec)
        if spec.width != first.width:
            return OTHER_WIDTH, f"{name} {spec.width}, not {first.width}"
        if spec.backbone != first.backbone:
            return OTHER_BACKBONE, f"{name} {spec.backbone}, not {first.backbone}"
        if self._one_rate and spec.rate != first.rate:
            return OTHER_RATE, f"{name} {spec.rate:g}, not {first.rate:g}"
        return None


SAME_ENCODER = "give features and vectors of the same encoder for all sources"
SOURCE_CURES = {
    OTHER_WIDTH: SAME_ENCODER,
    OTHER_BACKBONE: SAME_ENCODER,
    NO_FEATURES: "give a store with the features of its videos",
    NO_VECTORS: "give vectors of its texts",
    EXCLUDED_REASON: "leave it out of the sources, or its videos out of --exclude",
}


def source_flaw(omitted: Sequence[Rejected]) -> str:
    """Return why nothing of a source can be trained on, and the cure of the most frequent reason,
    in one line."""
    if not omitted:
        return "no video is left to train on: it holds none; give another source"
    reason = next(iter(count_reasons(omitted)))
    # The commonest reason is shown with its first example.
    values = [row.value for row in omitted if row.reason == reason and row.value]
    example = f" ({values[0]})" if values else ""
    words = reasons_in_words(omitted).replace(reason, f"{reason}{example}", 1)
    cure = SOURCE_CURES.get(reason, "correct it, or leave it out")
    return f"nothing of it is left to train on: {words}; {cure}"


def reasons_in_words(omitted: Iterable[Rejected]) -> str:
    """Return "3 x it is excluded, 1 x ...", as an error says that nothing is left."""
    counted = ", ".join(f"{count} x {reason}" for reason, count in count_reasons(omitted).items())
    return counted or "nothing was given"
