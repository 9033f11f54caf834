"""Every trainer reads from a bucket what it reads from this disk, and learns the same."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file
from simulated_stores import write_simulated

from stepline.cli import main
from stepline.files.remote import RemotePath

TINY = (
    "model.width=16 model.heads=2 model.encoder_layers=1 model.decoder_layers=1 "
    "model.feed_forward=16 model.projection=8 train.epochs=1"
).split()
PROCX = (
    "model.attention.width=16 model.attention.heads=2 model.captioner.width=16 "
    "model.captioner.heads=2 model.captioner.feed_forward=16 "
    "model.captioner.projection=8 model.encoder_layers=1 model.decoder_layers=1 "
    "model.feed_forward=16 model.rows=16 vocabulary.size=300 train.epochs=1"
).split()
WYS2 = "clips.resolve=false labels.kind=vr train.epochs=1 pseudo.threshold=share detector.hidden=8"
COMMANDS = {
    "nasva": ("train nasva --steps RECORDS --step-vectors VECTORS", TINY, "aligner"),
    "refine": ("refine RECORDS --step-vectors VECTORS", (*TINY, "rounds.teachers=1"), "aligner"),
    "procx": ("train procx --steps RECORDS", PROCX, "procx"),
    "wys2": ("train wys2 --key-steps RECORDS --unlabelled RECORDS", WYS2.split(), "detector"),
}
TRAINERS = {
    name: (command.split(), settings, f"{network}.safetensors")
    for name, (command, settings, network) in COMMANDS.items()
}


@pytest.fixture
def places(tmp_path, bucket, monkeypatch):
    """Records and stores of eight videos, on this disk and in a bucket: {name: (path, URL)}."""
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    write_simulated(data, 8, shard_bytes=100_000)
    for path in data.rglob("*.*"):
        (RemotePath("s3://bucket") / str(path.relative_to(data))).put(path)
    names = {"RECORDS": "records.parquet", "VECTORS": "steps", "FEATURES": "features"}
    return {name: (str(data / place), f"s3://bucket/{place}") for name, place in names.items()}


@pytest.mark.parametrize("name", TRAINERS)
def test_what_is_learnt_from_a_bucket_is_what_is_learnt_from_this_disk(name, places, tmp_path):
    words, settings, made = TRAINERS[name]
    chosen = [part for setting in settings for part in ("--set", setting)]
    for side, out in enumerate((tmp_path / "disk", tmp_path / "bucket")):
        given = [places[word][side] if word in places else word for word in words]
        result = CliRunner().invoke(
            main, [*given, "--features", places["FEATURES"][side], "--out", str(out), *chosen]
        )
        assert result.exit_code == 0, result.stderr
    disk, remote = (load_file(tmp_path / side / made) for side in ("disk", "bucket"))
    assert disk.keys() == remote.keys()
    for key in disk:
        np.testing.assert_array_equal(disk[key], remote[key])
    cached = {path.name for path in (tmp_path / "cache" / "remote").rglob("*.*")}
    assert {"records.parquet", "shard-00000.safetensors", "shard-00001.safetensors"} <= cached
    if name in ("nasva", "refine"):
        told = json.loads((tmp_path / "bucket" / "run.json").read_text())
        assert told["sources"]["features"] == "s3://bucket/features"
