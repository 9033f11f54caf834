"""Vectors of texts, made once and kept in a feature store beside the training, so that no epoch makes them again."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepline.errors import ShapeError
from stepline.features import FeatureStore, FeatureWriter, Lines
from stepline.nasva.told import Told
from stepline.records import Matrix

TextEncoder = Callable[[Sequence[str]], Matrix]


def text_encoder(name: str) -> TextEncoder:
    """Return what turns texts into vectors: "conse" or "clip:FOLDER", that backbone's own encoder; else a sentence
    encoder, "minilm" or a folder in the sentence-transformers layout.
    """
    backbone, _, folder = name.partition(":")
    if backbone in ("conse", "clip"):
        from stepline.vision import VisionSettings, load_backbone

        settings = {"backbone": backbone} | ({"path": Path(folder)} if folder else {})
        return load_backbone(VisionSettings.model_validate(settings)).encode_texts

    from stepline.text import embed

    return lambda texts: embed(texts, model=name)


def store_vectors(
    told: Iterable[Told], encode: TextEncoder, folder: Path, *, name: str, report: Callable[[str], None] | None = None
) -> FeatureStore:
    """Return a store of the vectors of what is told, keyed by video; what it holds already is not made again.

    Raises ShapeError when the encoder gives another number of rows, or when there is no text at all.
    """
    with FeatureWriter(folder) as writer:
        for each in told:
            if each.video in writer or not each.texts:
                continue
            vectors = encode(each.texts)
            if len(vectors) != len(each.texts):
                raise ShapeError(f"{each.video}: {len(each.texts)} texts need as many vectors, not {len(vectors)}")
            writer.add(each.video, vectors, rate=1.0, backbone=name, lines=Lines(each.texts))
            if report is not None:
                report(each.video)
    if not any(folder.glob("shard-*.parquet")):
        raise ShapeError(f"{folder}: there is no text to make vectors of; give records with texts")
    return FeatureStore(folder)
