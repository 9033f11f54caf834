"""Simulated videos on disk, as training reads them."""

from lab.simulate import SimulationSettings, simulate
from stepline.features import FeatureWriter, RowTexts
from stepline.storage import write_parquet


def write_simulated(folder, videos, *, without_features=0, shard_bytes=2**30):
    """Write records.parquet of so many videos, and the stores features/ and steps/ (vectors of the
    records' steps) of all but the last few."""
    samples = simulate(0, SimulationSettings(videos=videos, held_out=0.0)).videos
    write_parquet((sample.record for sample in samples), folder / "records.parquet")
    features = FeatureWriter(folder / "features", shard_bytes=shard_bytes)
    with features, FeatureWriter(folder / "steps") as steps:
        for sample in samples[: videos - without_features]:
            found = sample.features()
            features.add(sample.id, found.values, rate=found.rate, backbone=found.backbone)
            lines = RowTexts(tuple(step.text for step in sample.record.steps))
            steps.add(sample.id, sample.vectors("step"), rate=1.0, backbone="world", texts=lines)
    return folder
