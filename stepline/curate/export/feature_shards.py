"""The features of a dataset's videos as a store of its own, in the order of ids."""

from collections.abc import Iterable
from pathlib import Path

from stepline.curate.export.shards import Written
from stepline.features import FeatureStore, FeatureWriter
from stepline.models import sha256

FEATURES = "features"


def copy_features(ids: Iterable[str], store: FeatureStore, folder: Path, shard_bytes: int) -> list[Written]:
    """Copy the features of ids, sorted already, into FOLDER/features; an id that the store lacks has none there."""
    with FeatureWriter(folder / FEATURES, shard_bytes=shard_bytes) as writer:
        for id in ids:
            if id in store:
                stored = store[id]
                writer.add(id, store.matrix(id), rate=stored.rate, backbone=stored.backbone, lines=store.lines(id))
    files = sorted((folder / FEATURES).glob("shard-*"))
    return [Written(f"{FEATURES}/{file.name}", file.stat().st_size, sha256(file)) for file in files]
