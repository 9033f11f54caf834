"""Sources of training texts: records, public datasets or stored texts, each text with its spans.
Also their vectors.

Each may be a URL (s3://, gs://, http://): records and datasets are copied to this disk, stores
shard by shard. Vectors are made once and stored in the training's folder, so that no epoch makes
them again.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.datasets import DATASETS, stream
from stepline.errors import DatasetError, ShapeError, StoreError
from stepline.features import FeatureStore, FeatureWriter, RowTexts, open_store
from stepline.files.remote import RemotePath
from stepline.files.remote.cache import is_remote, local_copy
from stepline.files.storage import read_parquet, read_record
from stepline.models.training.settings import StepLabelSource, TextKind
from stepline.records import Matrix, Record, Span, Step

SHARD_PATTERN = "shard-*.parquet"  # names of the files of a feature store


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

    source: Stepline's records (.parquet, .json, or a folder of .json), `name:path` of a public
    dataset (`stepline datasets`), or a feature store of texts with times. A dataset that people
    annotated gives their steps.
    Raises DatasetError or StoreError for any other.
    """
    dataset = dataset_of(source)
    if dataset is None and is_feature_store(source):
        yield from _stored_texts(source, kind)
        return
    annotated = False
    if dataset is not None and kind == "step":
        annotated = DATASETS[dataset[0]].gives == "reference"
    yield from labelled_texts(read_records(source), kind, label, annotated=annotated)


def _stored_texts(source: str, kind: TextKind) -> Iterator[LabelledTexts]:
    """Yield the texts of a feature store that keeps their times."""
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


def read_records(source: str, subset: str | None = None) -> Iterator[Record]:
    """Yield the records of a source: .parquet, .json, a folder of them, or `name:path` of a public
    dataset.

    subset: a split of a dataset. Raises DatasetError or StoreError for any other source, or a
    subset of mere records.
    """
    dataset = dataset_of(source)
    # A public dataset is read by its name, in its own form.
    if dataset is not None:
        name, place = dataset
        for entry in stream(name, _local_path(place), subset=subset):
            if entry.record is not None:
                yield entry.record
        return
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
        else:
            yield _record_of(file)


def _record_of(file: Path) -> Record:
    """Return the record in a file. Raises StoreError, which says how a dataset's own file is
    given."""
    try:
        return read_record(file)
    except StoreError as error:
        cure = f"a dataset's own file is NAME:PATH, such as youcook2:{file} (`stepline datasets`)"
        raise StoreError(f"{error}; {cure}") from error


def _local_path(place: str) -> Path:
    """Return a path, or the copy of a URL on this disk."""
    if is_remote(place):
        return local_copy(place)
    return Path(place)


def dataset_of(source: str) -> tuple[str, str] | None:
    """Return the name and the path or URL of a public dataset, None of any other source."""
    name, colon, path = source.partition(":")
    if colon and name in DATASETS:
        return name, path
    return None


def is_feature_store(place: str) -> bool:
    """Say whether a folder, or a URL, is a feature store."""
    if is_remote(place):
        names = [Path(entry.name) for entry in RemotePath(place).list()]
        return any(name.match(SHARD_PATTERN) for name in names)
    folder = Path(place)
    return folder.is_dir() and any(folder.glob(SHARD_PATTERN))


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


TextEncoder = Callable[[Sequence[str]], Matrix]


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
        backbone_settings = VisionSettings.model_validate(settings)
        return load_backbone(backbone_settings).encode_texts

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
    encoder = text_encoder(source)
    return store_text_vectors(texts, encoder, folder, name=encoder_name(source))


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
            # A run that was stopped goes on with the videos that are left.
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
