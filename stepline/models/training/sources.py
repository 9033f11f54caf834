"""Sources of a training run: records, labelled texts, text vectors, and reasons why a video is
omitted.

    for record in read_records("youcook2:yc2_train.json", "records"): ...
    for texts in read_labelled_texts("howtostep:HowToStep.json", "step"): ...
    join = TrainingVideoFilter(open_video_store("features"), excluded=excluded)
    join.reason_to_omit(record.video.id)             # None: it can be trained on

A source is one of: Stepline's records (.parquet, .json, or a folder of them), `NAME:PATH` of a
public dataset (`stepline datasets`), or a feature store of texts with times. Each may be a URL
(s3://, gs://, http://). Records and datasets are then copied to this disk, stores shard by shard.
Text vectors are made once and stored in the run's folder.
"""

import math
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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
    """Yield the records of sources, one source after another.

    Args:
        sources: each is a .parquet or .json file of records, a folder of such files, or `NAME:PATH`
            of a public dataset.
        subset: name of a split of the datasets. None: all videos.

    Raises DatasetError or StoreError for any other source, and for a subset of plain records.
    """
    for source in sources:
        # A public dataset is read by its name, in its own form.
        dataset = parse_dataset_source(source)
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
            fault = "no records to train on" if path.exists() else "no such file or folder"
            raise DatasetError(f"{path}: {fault}; {cure}")
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
    return local_copy(place) if is_remote(place) else Path(place)


def parse_dataset_source(source: str) -> tuple[str, str] | None:
    """Return name and path (or URL) of a `NAME:PATH` source, or None for any other source."""
    name, colon, path = source.partition(":")
    return (name, path) if colon and name in DATASETS else None


def read_transcripts(*sources: str, videos: Container[str]) -> dict[str, Transcript]:
    """Return the transcripts of the records of sources, by video id.

    Args:
        sources: sources of `read_records`.
        videos: ids of the videos whose transcripts are returned.
    """
    transcripts = {}
    for record in read_records(*sources):
        video = record.video.id
        if record.transcript is not None and video in videos:
            transcripts[video] = record.transcript
    return transcripts


@dataclass(frozen=True)
class NarratedRecords:
    """Records that can be iterated several times, each with a transcript if any source has one.

    Attributes:
        read: yields the records.
        narrations: sources of transcripts for records without one, as `read_records` takes them.
    """

    read: Callable[[], Iterable[Record]]
    narrations: Sequence[str]

    def __iter__(self) -> Iterator[Record]:
        return fill_in_transcripts(self.read(), self._read_missing_transcripts)

    @cached_property
    def _read_missing_transcripts(self) -> dict[str, Transcript]:
        if not self.narrations:
            return {}
        silent = {record.video.id for record in self.read() if record.transcript is None}
        return read_transcripts(*self.narrations, videos=silent)


def fill_in_transcripts(
    records: Iterable[Record], transcripts: Mapping[str, Transcript]
) -> Iterator[Record]:
    """Yield the records. One without a transcript gets the transcript of its video, if there is
    one."""
    for record in records:
        if record.transcript is None and record.video.id in transcripts:
            record = record.model_copy(update={"transcript": transcripts[record.video.id]})
        yield record


# ---------------------------------------------------------------- texts with their labels


@dataclass(frozen=True)
class LabelledTexts:
    """The texts of one kind of a video, with their labels.

    Attributes:
        video: id of the video.
        kind: "narration" for spoken sentences, "step" for steps.
        texts: K texts.
        spans: for each text, the spans in seconds in which it is shown or said. Empty for a text
            without a label.
        duration: seconds of the video as its source states them. None: not stated.
    """

    video: str
    kind: TextKind
    texts: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...]
    duration: float | None = None


def read_labelled_texts(
    source: str, kind: TextKind, label: StepLabelSource = "shown_or_said"
) -> Iterator[LabelledTexts]:
    """Yield the labelled texts of each video of a source.

    Args:
        source: a source of `read_records`, or a feature store of texts with times. For a dataset
            with steps that people annotated, these steps are used.
        kind: "narration" for the sentences of the transcript, "step" for the steps.
        label: the span that labels a step: the first span in which it is shown, the span in which
            it is said, or the first of these that is known.

    Raises DatasetError or StoreError for any other source.
    """
    dataset = parse_dataset_source(source)
    if dataset is not None or not is_feature_store(source):
        annotated = dataset is not None and DATASETS[dataset[0]].record_field == "reference"
        yield from iterate_labelled_texts(read_records(source), kind, label, annotated=annotated)
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


def iterate_labelled_texts(
    records: Iterable[Record],
    kind: TextKind,
    label: StepLabelSource = "shown_or_said",
    *,
    annotated: bool = False,
) -> Iterator[LabelledTexts]:
    """Yield the labelled texts of each record.

    Args:
        records: the records.
        kind: "narration" for the sentences of the transcript, "step" for the steps.
        label: the span that labels a step, as in `read_labelled_texts`.
        annotated: True to use the steps that people annotated (`Record.reference`), with all their
            spans.
    """
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
            spans = [_choose_label(step, label) for step in record.steps]
        video = record.video
        yield LabelledTexts(video.id, kind, tuple(texts), tuple(spans), video.duration)


def _choose_label(step: Step, source: StepLabelSource) -> tuple[Span, ...]:
    """Return the span that labels a step: its first shown span, else its spoken span. Empty if the
    step has neither."""
    if step.spans and source != "said":
        return step.spans[:1]
    if step.said is not None and source != "shown":
        return (step.said,)
    return ()


# ---------------------------------------------------------------- vectors of texts

TextEncoder = Callable[[Sequence[str]], Matrix]


def is_feature_store(place: str) -> bool:
    """Return whether a folder or URL is a feature store."""
    if is_remote(place):
        return any(Path(file.name).match(SHARD_PATTERN) for file in RemotePath(place).list())
    folder = Path(place)
    return folder.is_dir() and any(folder.glob(SHARD_PATTERN))


def load_text_encoder(name: str) -> TextEncoder:
    """Return a function from texts to vectors (K, C).

    "conse", "clip:FOLDER", "internvideo:WEIGHTS" or "s3d:WEIGHTS" is the text encoder of that
    backbone. Any other name is a sentence encoder: "minilm", or a folder in the
    sentence-transformers layout. InternVideo's vectors keep their lengths, like its released
    features.
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


def get_text_space_name(source: str) -> str:
    """Return the vector space of `load_text_encoder(source)`, named as `VisionSettings.text_space`
    names it: "minilm" for conse, which uses MiniLM."""
    backbone, _, _ = source.partition(":")
    if backbone not in ("conse", "clip", "s3d"):
        return source
    from stepline.vision import VisionSettings

    return VisionSettings.model_construct(backbone=backbone).text_space


def open_or_store_text_vectors(
    source: str, texts: Iterable[LabelledTexts], folder: Path
) -> FeatureStore:
    """Return a store of text vectors, by video id.

    Args:
        source: path or URL of a feature store, which is opened. Any other value is the name of an
            encoder for `load_text_encoder`, which makes the vectors.
        texts: texts of the videos. They are read only if vectors are made.
        folder: folder of the new store.
    """
    if is_feature_store(source):
        return open_store(source)
    return store_text_vectors(
        texts, load_text_encoder(source), folder, name=get_text_space_name(source)
    )


def store_text_vectors(
    texts: Iterable[LabelledTexts], encode: TextEncoder, folder: Path, *, name: str
) -> FeatureStore:
    """Encode the texts of each video and return the store of their vectors, by video id. Videos that
    the store already holds are not encoded again.

    Args:
        texts: texts of the videos.
        encode: returns the vectors (K, C) of K texts.
        folder: folder of the store.
        name: name of the vector space, stored as the backbone.

    Raises ShapeError if the encoder returns another number of rows, or if there is no text at all.
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
        raise ShapeError(
            f"{folder}: there is no text to make vectors of; give records whose steps have texts"
        )
    return FeatureStore(folder)


# ---------------------------------------------------------------- what can be trained on

ExcludedIds = ExcludedVideos | frozenset[str]  # ids of videos that are left out
Features = FeatureStore | Mapping[str, FeatureSequence]
# why something is left out, one of a few fixed wordings, and what was found
OmitReason = tuple[str, str]

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
    """Width, backbone, and rows per second of features."""

    width: int
    backbone: str
    rate: float


def read_feature_spec(features: Features, video: str) -> tuple[FeatureSpec, int]:
    """Return the spec of a video's features and their number of rows. The rows are not read."""
    stored = features[video]
    if isinstance(stored, FeatureSequence):
        rows, width = stored.values.shape
        return FeatureSpec(width, stored.backbone, stored.rate), rows
    return FeatureSpec(stored.width, stored.backbone, stored.rate), stored.rows


class TrainingVideoFilter:
    """Decides for one video after another whether it can be used for training.

    A video must be new and not excluded. Its features must have rows, with the width and backbone
    of the first video. A stated duration must equal the duration of the features. Only the index of
    a feature store is read.

    Attributes:
        specs: width, backbone and rate of the first video's features, under "video", and of the
            first text vectors, under "text".
        omitted: videos and texts that were left out, with the reasons.
    """

    def __init__(
        self,
        features: Features,
        *,
        slack: float = math.inf,
        excluded: ExcludedIds = frozenset(),
        requires_same_rate: bool = False,
    ) -> None:
        """Look up videos in a feature store.

        Args:
            features: a feature store, or features by video id.
            slack: largest difference in seconds between a stated duration and that of the features.
            excluded: ids of videos that are left out.
            requires_same_rate: True if all videos must have the rows per second of the first video.
        """
        self._features = features
        self._slack = slack
        self._excluded = excluded
        self._one_rate = requires_same_rate
        self._seen: set[Hashable] = set()
        self.specs: dict[str, FeatureSpec] = {}
        self.omitted: list[Rejected] = []

    def reason_to_omit(
        self,
        video: str,
        duration: float | None = None,
        *,
        key: Hashable = None,
        missing: str | None = None,
        vectors: FeatureStore | None = None,
    ) -> OmitReason | None:
        """Return why a video cannot be used for training, or None if it can.

        Args:
            video: id of the video.
            duration: seconds of the video as its source states them. None: not stated.
            key: key of the video's item. A second call with the same key returns `SEEN_TWICE`.
                None: repeats are not checked.
            missing: a reason that the caller found. It is returned for a video that is not
                excluded. None: there is no such reason.
            vectors: a store that must hold the vectors of the video's texts. None: not checked.
        """
        # What its id and its source say.
        if key is not None:
            if key in self._seen:
                return SEEN_TWICE, ""
            self._seen.add(key)
        if video in self._excluded:
            return EXCLUDED_REASON, ""
        if missing is not None:
            return missing, ""
        # What the store's index says.
        if video not in self._features:
            return NO_FEATURES, ""
        if vectors is not None and video not in vectors:
            return NO_VECTORS, ""
        # What the features are of, and whether they cover the video.
        spec, rows = read_feature_spec(self._features, video)
        if not rows:
            return NO_ROWS, ""
        if duration is not None and abs(duration - rows / spec.rate) > self._slack:
            return OTHER_LENGTH, f"{duration:g} s and {rows / spec.rate:g} s"
        # What a network could not distinguish from the first video's.
        omit_reason = self._find_mismatch("video", spec)
        if omit_reason is None and vectors is not None:
            omit_reason = self._find_mismatch("text", read_feature_spec(vectors, video)[0])
        return omit_reason

    def omit(self, kind: RejectedKind, video: str, omit_reason: OmitReason, text: str = "") -> None:
        """Add a row to `omitted`.

        Args:
            kind: kind of the item that is left out, such as "step".
            video: id of the item's video.
            omit_reason: the reason, and the value that was found.
            text: text of the item. "": the item is all texts of the video.
        """
        reason, value = omit_reason
        self.omitted.append(Rejected(kind, reason, text=text, id=video, value=value))

    def _find_mismatch(self, name: str, spec: FeatureSpec) -> OmitReason | None:
        """Return how a spec differs from the first one under the same name ("video" or "text"), or
        None. The first spec is stored."""
        first = self.specs.setdefault(name, spec)
        if spec.width != first.width:
            return OTHER_WIDTH, f"{name} {spec.width}, not {first.width}"
        if spec.backbone != first.backbone:
            return OTHER_BACKBONE, f"{name} {spec.backbone}, not {first.backbone}"
        if self._one_rate and spec.rate != first.rate:
            return OTHER_RATE, f"{name} {spec.rate:g}, not {first.rate:g}"
        return None


SAME_ENCODER_CURE = "give features and vectors of the same encoder for all sources"
SOURCE_CURES = {
    OTHER_WIDTH: SAME_ENCODER_CURE,
    OTHER_BACKBONE: SAME_ENCODER_CURE,
    NO_FEATURES: "give a store with the features of its videos",
    NO_VECTORS: "give vectors of its texts",
    EXCLUDED_REASON: "leave it out of the sources, or its videos out of --exclude",
}


def explain_empty_source(omitted: Sequence[Rejected]) -> str:
    """Return a one-line message that no video of a source can be trained on: the counted reasons,
    and the cure for the most frequent one.

    omitted: the items of the source that were left out.
    """
    if not omitted:
        return "no video is left to train on: it holds none; give another source"
    reason = next(iter(count_reasons(omitted)))
    # The commonest reason is shown with its first example.
    values = [row.value for row in omitted if row.reason == reason and row.value]
    example = f" ({values[0]})" if values else ""
    words = format_reasons(omitted).replace(reason, f"{reason}{example}", 1)
    cure = SOURCE_CURES.get(reason, "correct it, or leave it out")
    return f"nothing of it is left to train on: {words}; {cure}"


def format_reasons(omitted: Iterable[Rejected]) -> str:
    """Return omitted items as text: "3 x it is excluded, 1 x ..."."""
    counted = ", ".join(f"{count} x {reason}" for reason, count in count_reasons(omitted).items())
    return counted or "nothing was given"
