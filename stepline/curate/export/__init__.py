"""A dataset that people can load, trust and publish, from records: the same bytes for the same
content.

    data/train-00000-of-00002-<sha256>.parquet        a row a video: its columns, and the whole Record as JSON
    data/left_out-00000-of-00001-<sha256>.parquet     the videos that are not in it, each with its stage and reason
    features/shard-00000.safetensors, .parquet        a feature store of the videos in it
    README.md, dataset.json                           the card, all counts

No time of day, host, process or path of a machine gets into any of them.
"""
