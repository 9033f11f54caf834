"""Videos to a feature store: rows as the papers have them, a bad video left out, killed runs, and
on to training."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from checkpoints import write_s3d
from click.testing import CliRunner
from option_words import option_words
from small_video import draw_video

from stepline.cli import main
from stepline.errors import SettingsError
from stepline.features import FeatureStore
from stepline.media import probe
from stepline.networks.device import Device
from stepline.pipeline import pictures
from stepline.pipeline.extract import extract_to_store
from stepline.pipeline.pictures import VisualOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import read_ahead
from stepline.vision import VisionSettings
from stepline.vision.s3d import read_s3d

ROOT = Path(__file__).resolve().parents[2]


def stepline(*arguments, code=0):
    """Run a command, which must end with `code`."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, (result.output, result.exception)
    return result


def files(folder):
    """Every file below a folder: name -> bytes."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Four small videos of unlike lengths, one file that is none, and one without a picture."""
    folder = tmp_path_factory.mktemp("videos")
    for number, seconds in enumerate((3, 5, 2, 4)):
        draw_video(folder / f"v{number}.mp4", seconds=seconds, sound=False)
    (folder / "broken.mp4").write_bytes(b"no video")
    return folder


def test_a_folder_of_videos_becomes_a_store_and_a_bad_one_is_listed(videos, tmp_path):
    done = stepline("features", "extract", videos, "--out", tmp_path / "store", "--json")
    told = json.loads(done.stdout)
    assert (told["added"], told["rows"], told["already"]) == (4, 14, 0)
    store = FeatureStore(tmp_path / "store")
    assert list(store) == ["v0", "v1", "v2", "v3"]
    features = store.read("v1")
    assert (features.values.shape, features.rate, features.backbone) == ((5, 384), 1.0, "conse")
    settings = StepsSettings()
    wanted = extract_features(
        Request(videos / "v1.mp4", "v1"), probe(videos / "v1.mp4"), settings
    ).features
    np.testing.assert_array_equal(
        features.values, wanted.values.astype(np.float16).astype(np.float32)
    )
    (omitted,) = map(json.loads, (tmp_path / "store" / "omitted.jsonl").read_text().splitlines())
    assert (omitted["video"], omitted["reason"]) == ("broken", "it cannot be read")
    counts = json.loads((tmp_path / "store" / "run.json").read_text())["counts"]
    assert counts == {"videos": 4, "omitted": {"it cannot be read": 1}}
    assert stepline("features", "check", tmp_path / "store").exit_code == 0
    before = files(tmp_path / "store")
    again = json.loads(
        stepline("features", "extract", videos, "--out", tmp_path / "store", "--json").stdout
    )
    assert (again["added"], again["already"]) == (0, 4)
    assert files(tmp_path / "store") == before


def test_a_store_holds_the_features_of_one_backbone(videos, tmp_path):
    stepline("features", "extract", videos / "v2.mp4", "--out", tmp_path)
    refused = stepline(
        "features", "extract", videos, "--out", tmp_path, "--set", "vision.rate=2", code=1
    )
    assert "another run, with other settings" in refused.stderr
    settings = StepsSettings(vision=VisionSettings(backbone="precomputed", path=videos))
    with pytest.raises(SettingsError, match="features import"):
        extract_to_store([videos], tmp_path / "ready", settings)


def test_videos_that_cannot_be_read_end_with_the_reason(videos, tmp_path):
    refused = stepline("features", "extract", videos / "broken.mp4", "--out", tmp_path, code=1)
    assert "none of 1 videos has features; broken: it cannot be read" in refused.stderr


def test_s3d_rows_are_howto100ms_before_the_joint_layer_and_unit_rows_after_it(
    videos, tmp_path, monkeypatch
):
    monkeypatch.setattr("stepline.vision.s3d.CLIP_SIDE", 64)  # for speed
    weights = write_s3d(tmp_path, ["cut the banana"])
    rows = {}
    for backbone in ("s3d", "s3d-mixed5c"):
        given = ("--backbone", backbone, "--weights", weights, "--out", tmp_path / backbone)
        stepline("features", "extract", videos / "v2.mp4", *given)
        store = FeatureStore(tmp_path / backbone)
        assert store.backbone == backbone
        rows[backbone] = store.matrix("v2")
    shapes = {name: values.shape for name, values in rows.items()}
    assert shapes == {"s3d": (2, 512), "s3d-mixed5c": (2, 1024)}
    # Rows of the whole square, as of a release before, stay without new ones.
    run = tmp_path / "s3d" / "run.json"
    tree = json.loads(run.read_text())
    assert tree["features"].pop("crop") == "224 of 256"
    run.write_text(json.dumps(tree))
    old = ("--backbone", "s3d", "--weights", weights, "--out", tmp_path / "s3d")
    refused = stepline("features", "extract", videos, *old, code=1)
    assert "another run, with other settings" in refused.stderr
    layer = read_s3d(weights, 4)[0].fc
    joint = rows["s3d-mixed5c"] @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    np.testing.assert_allclose(
        joint / np.linalg.norm(joint, axis=1, keepdims=True), rows["s3d"], atol=2e-3
    )
    refused = stepline(
        "steps", videos / "v2.mp4", "--backbone", "s3d-mixed5c", "--weights", weights, code=1
    )
    assert "share no space with texts; use s3d" in refused.stderr


def test_rows_of_an_interrupted_run_are_told_apart_by_the_case_of_an_id_and_by_the_file(
    videos, tmp_path
):
    for name, other in (("v", "v0"), ("V", "v1")):
        (tmp_path / f"{name}.mp4").write_bytes((videos / f"{other}.mp4").read_bytes())
    told = []

    def stop(line):
        told.append(line)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_to_store([tmp_path], tmp_path / "store", StepsSettings(), report=stop)
    held = [path.name.casefold() for path in (tmp_path / "store" / "rows").iterdir()]
    assert len(set(held)) == 2  # also on a disk that takes V and v for one
    (tmp_path / "v.mp4").write_bytes((videos / "v2.mp4").read_bytes())
    extract_to_store([tmp_path], tmp_path / "store", StepsSettings())
    store = FeatureStore(tmp_path / "store")
    assert {id: len(store.read(id).values) for id in store} == {"V": 5, "v": 2}
    assert not (tmp_path / "store" / "rows").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from stepline.pipeline import extract
from stepline.pipeline.request import StepsSettings
from stepline.vision.encode import VideoEncoder

def dies(function, calls):
    left = [calls]
    def call(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call

def run():
    extract.extract_to_store([Path(sys.argv[1])], Path(sys.argv[2]), StepsSettings(), shard_bytes=5000)

# within a video, after a video, and when a shard is written and its rows are not removed yet
KILLS = (
    (VideoEncoder, "add", 7),
    (extract, "write_feature_file", 1),
    (extract, "_remove_files", 0),
)
for owner, name, calls in KILLS:
    child = os.fork()
    if child == 0:
        setattr(owner, name, dies(getattr(owner, name), calls))
        run()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
run()
"""


def test_a_run_killed_between_and_within_videos_ends_with_the_same_bytes(videos, tmp_path):
    extract_to_store([videos], tmp_path / "whole", StepsSettings(), shard_bytes=5000)
    assert len(list((tmp_path / "whole").glob("shard-*.parquet"))) > 1
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED, str(videos), str(tmp_path / "out")]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_curate_makes_the_same_store(videos, tmp_path):
    stepline("features", "extract", videos, "--out", tmp_path / "store")
    given = option_words(recipe="features", out=tmp_path / "out", set="engine.workers=1")
    stepline("curate", videos, *given)
    assert list(FeatureStore(tmp_path / "out" / "features")) == ["v0", "v1", "v2", "v3"]
    store = {
        name: data for name, data in files(tmp_path / "store").items() if name.startswith("shard-")
    }
    assert files(tmp_path / "out" / "features") == store
    (left_out,) = (tmp_path / "out" / "stages" / "features").glob("*/left_out.jsonl")
    (row,) = map(json.loads, left_out.read_text().splitlines())
    assert (row["id"], row["stage"]) == ("broken", "encode")


SAID = (
    "slice the lemons",
    "pour the juice into the bowl",
    "whisk the sugar",
    "welcome back everyone",
)


def test_from_videos_to_a_trained_detector_by_commands_alone(tmp_path):
    steps = {}
    for number in range(6):
        (tmp_path / "videos").mkdir(exist_ok=True)
        draw_video(tmp_path / "videos" / f"v{number}.mp4", seconds=8, sound=False)
        lines = []
        for k, text in enumerate(SAID):
            lines.append(f"{k}\n00:00:0{2 * k},000 --> 00:00:0{2 * k + 2},000\n{text}.\n")
        (tmp_path / "said.srt").write_text("\n".join(lines))
        given = option_words(captions=tmp_path / "said.srt", format="json")
        told = stepline("transcribe", tmp_path / "videos" / f"v{number}.mp4", *given)
        (tmp_path / "narrations").mkdir(exist_ok=True)
        (tmp_path / "narrations" / f"v{number}.json").write_text(told.stdout)
        timestamps = [[0, 2], [2, 4], [4, 6]]
        marked = {"timestamps": timestamps, "sentences": list(SAID[:3])}
        steps[f"v{number}"] = {"duration": 8.0} | marked
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    stepline("features", "extract", tmp_path / "videos", "--out", tmp_path / "store")
    store = {"features": tmp_path / "store"}
    texts = {"key_steps": f"youcook2:{tmp_path}/steps.json", "narrations": tmp_path / "narrations"}
    words = option_words(**store, **texts, out=tmp_path / "run")
    trained = stepline("train", "wys2", *words, "--json")
    (first,) = json.loads(trained.stdout.splitlines()[-1])["rounds"]
    assert 0 <= first["auc"] <= 1
    assert first["pairs"] >= 6
    assert stepline("features", "check", tmp_path / "store").exit_code == 0
    clip = {"span": {"start": 2.0, "end": 5.0}, "text": SAID[1]}
    # features by the stem of the file, and by the id of a list
    clips = [clip | {"id": "a", "video": "v0.mp4"}]
    clips.append(clip | {"id": "b", "video": "film.mp4", "video_id": "v0"})
    (tmp_path / "clips.json").write_text(json.dumps(clips))
    asked = {"reference": tmp_path / "clips.json", "out": tmp_path / "vnd.json"}
    stepline("predict", "vnd", *option_words(detector=tmp_path / "run", **store, **asked))
    scored = json.loads((tmp_path / "vnd.json").read_text())
    assert np.isfinite(scored["a"])
    assert scored["a"] == scored["b"]


def decoding_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def test_with_a_gpu_pictures_are_decoded_by_another_thread_with_the_same_rows(videos, monkeypatch):
    request, info = Request(videos / "v1.mp4", "v1"), probe(videos / "v1.mp4")
    usual = extract_features(request, info, StepsSettings(vision=VisionSettings(batch=64)))
    ahead = []

    def noted(reader, count):
        ahead.append(count)
        return read_ahead(reader, count)

    monkeypatch.setattr(pictures, "read_ahead", noted)
    monkeypatch.setattr(pictures, "current_device", lambda: Device("cuda:0"))
    found = extract_features(request, info, StepsSettings())
    assert ahead == [192]  # three pictures of each of the 64 rows that a GPU takes at once
    np.testing.assert_array_equal(found.features.values, usual.features.values)
    np.testing.assert_array_equal(found.activity.motion, usual.activity.motion)
    assert found.activity.cuts == usual.activity.cuts
    assert (found.end, found.warnings) == (usual.end, usual.warnings)
    assert not decoding_threads()


def test_a_network_that_fails_ends_the_decoding_next_to_it(videos, monkeypatch):
    backbone = SimpleNamespace(dim=4, name="fails", encode_images=lambda _: 1 / 0)
    monkeypatch.setattr(pictures, "current_device", lambda: Device("cuda:0"))
    with pytest.raises(ZeroDivisionError) as kept:
        given = (probe(videos / "v1.mp4"), StepsSettings(), VisualOptions(backbone=backbone))
        extract_features(Request(videos / "v1.mp4", "v1"), *given)
    assert kept.tb  # which holds the frames of the functions
    assert not decoding_threads()
