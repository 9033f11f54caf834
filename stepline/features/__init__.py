"""Feature store on disk: safetensors shards of float16 rows, each with a Parquet index.

    with FeatureWriter(folder) as writer: writer.add("video1", values, rate=1.0, backbone="clip")
    FeatureStore(folder).read("video1")        # FeatureSequence, float32

A folder is a store: shard-00000.safetensors, shard-00000.parquet, ... A shard without its index
does not count. `open_store` also opens one in a bucket (s3://, gs://, http://).
"""

from stepline.features.import_files import import_features
from stepline.features.store import (
    FeatureLocation,
    FeatureStore,
    FeatureWriter,
    RowTexts,
    open_store,
    open_video_store,
    require_videos,
)

__all__ = [
    "FeatureLocation",
    "FeatureStore",
    "FeatureWriter",
    "RowTexts",
    "import_features",
    "open_store",
    "open_video_store",
    "require_videos",
]
