"""A network that describes, in the main job: fresh weights, a real
backbone."""

import json

import numpy as np
import pytest
import torch
from option_words import option_words
from small_video import draw_video

from stepline.features.files import write_feature_file
from stepline.files.digests import sha256
from stepline.models.procx.checkpoint import TrainingFeatures, write_model
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    ModelSettings,
    VocabularySettings,
)
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.records import FeatureSequence
from stepline.storage import from_json, read_record

WIDTH = 384  # of conse's features
CAPTIONER = {"width": 16, "heads": 2, "text_layers": 1, "joint_layers": 1, "feed_forward": 32}
SIZES = {"rows": 16, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 32, "queries": 5}
SIZES = ModelSettings(
    features=WIDTH,
    attention=AttentionSettings(width=16, heads=2, levels=2, points=2),
    captioner=CaptionerSettings(longest=6, **CAPTIONER),
    most_steps=4,
    **SIZES,
)


ALONE = ("--set", "procx.when=alone")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A folder with a fresh network of conse's features; its words mean nothing."""
    torch.manual_seed(0)
    words = train_vocabulary(["slice the lemons"], VocabularySettings(size=300))
    folder = tmp_path_factory.mktemp("network")
    network, path = ProcX(SIZES, len(words)), folder / "procx.safetensors"
    write_model(network, words, path, TrainingFeatures("conse", unit=True))
    return folder


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    return draw_video(tmp_path_factory.mktemp("silent") / "silent.mp4", sound=False)


def test_the_main_job_describes_a_video_without_speech(stepline, network, silent, tmp_path):
    job = ("steps", silent, "--out", tmp_path)
    unread = stepline(*job)
    assert unread.exit_code == 0
    assert "or --describe with a network that you trained" in unread.stderr
    assert not read_record(tmp_path / "silent.json").steps
    made = stepline(*job, "--describe", network)
    assert made.exit_code == 0, made.stderr
    record = read_record(tmp_path / "silent.json")
    assert record.steps
    assert all(step.status == "seen" and step.spans[0].end <= 16.0 for step in record.steps)
    digest = sha256(network / "procx.safetensors")
    assert record.models["describer"] == {"network": digest, "speech": False}
    assert any("describes the steps from the pictures" in warning for warning in record.warnings)
    assert (tmp_path / "silent.html").is_file()  # every output takes it as it is
    assert "done before" in stepline(*job, "--describe", network).stderr


def test_threads_of_torch_do_not_reach_the_network(
    stepline, network, silent, tmp_path, monkeypatch
):
    counts = []
    forward = ProcX.forward

    def forward_and_count(*arguments, **options):
        counts.append(torch.get_num_threads())
        return forward(*arguments, **options)

    monkeypatch.setattr(ProcX, "forward", forward_and_count)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        stepline("steps", silent, "--out", tmp_path, "--describe", network)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(counts) == {1}


def test_the_network_is_part_of_what_decides_the_result(network, silent):
    from stepline.models.procx.settings import DescribeSettings
    from stepline.pipeline.networks import describe_inputs, load_networks
    from stepline.pipeline.request import Request, StepsSettings

    settings = StepsSettings(procx=DescribeSettings(path=network))
    before = describe_inputs(Request(silent, "silent"), settings, load_networks(settings))[
        "inputs"
    ]["describer"]
    assert before == sha256(network / "procx.safetensors")
    settings = StepsSettings()
    told = describe_inputs(Request(silent, "silent"), settings, load_networks(settings))
    assert told["inputs"]["describer"] is None


def test_speech_goes_before_pictures_unless_both_are_asked_for(
    stepline, network, small_video, captions_file, tmp_path
):
    given = option_words(captions=captions_file, format="json", describe=network)
    job = ("steps", small_video, *given)
    assert stepline(*job, "--out", tmp_path / "one").exit_code == 0
    spoken = read_record(tmp_path / "one" / "small.json")
    assert spoken.models["describer"] is None
    assert spoken.steps[0].sources
    assert not spoken.captions
    assert stepline(*job, "--out", tmp_path / "two", "--set", "procx.when=always").exit_code == 0
    both = read_record(tmp_path / "two" / "small.json")
    assert both.steps == spoken.steps
    assert both.captions
    assert both.models["describer"] is not None


def test_describe_describes_a_video_from_its_pictures_alone(
    stepline, network, small_video, tmp_path
):
    job = ("steps", small_video, "--describe", network, "--out", tmp_path, "--json", *ALONE)
    job += ("--set", "procx.count=3")
    made = stepline(*job, "--format", "vtt")
    assert made.exit_code == 0, made.stderr
    record = from_json(made.stdout)
    assert record == read_record(tmp_path / "small.json")
    assert len(record.steps) == 3
    assert record.transcript.sentences == ()  # nobody listened
    assert record.models["writer"] is None
    assert {path.name for path in tmp_path.iterdir()} == {"small.json", "small.vtt"}


def test_a_video_of_a_second_is_described(stepline, network, tmp_path):
    short = draw_video(tmp_path / "short.mp4", seconds=1, sound=False)
    made = stepline(
        "steps", short, "--describe", network, "--out", tmp_path / "out", "--json", *ALONE
    )
    assert made.exit_code == 0, made.stderr
    record = from_json(made.stdout)
    assert all(step.spans[0].end <= record.video.duration == 1.0 for step in record.steps)


def test_several_sources_are_reported_one_after_another(stepline, network, silent, tmp_path):
    ready = tmp_path / "ready.safetensors"
    values = np.random.default_rng(0).normal(size=(20, WIDTH)).astype(np.float32)
    write_feature_file(FeatureSequence(values, 1.0, "conse"), ready)
    broken = tmp_path / "broken.npy"
    broken.write_text("no")
    made = stepline(
        "steps", silent, ready, broken, "--describe", network, "--out", tmp_path / "out", "--json"
    )
    assert made.exit_code == 1
    assert "2 of 3 videos done, 1 failed" in made.stderr
    assert "broken.npy" in made.stderr
    assert [json.loads(line)["id"] for line in made.stdout.splitlines()] == ["silent", "ready"]
    assert read_record(tmp_path / "out" / "ready.json").video.duration == 20.0


def test_describe_refuses_networks_features_and_options_that_do_not_match_in_one_line(
    stepline, network, silent, small_video, tmp_path
):
    other = tmp_path / "other.safetensors"
    words = train_vocabulary(["cut"], VocabularySettings(size=300))
    write_model(ProcX(SIZES, len(words)), words, other, TrainingFeatures("s3d", unit=True))
    quick = tmp_path / "quick.safetensors"
    write_model(ProcX(SIZES, len(words)), words, quick, TrainingFeatures("conse", 4.0, unit=True))
    nan = tmp_path / "nan.npy"
    np.save(nan, np.full((4, WIDTH), np.nan, np.float32))
    narrow = tmp_path / "narrow.npy"
    np.save(narrow, np.ones((4, 3), np.float32))
    sound = draw_video(tmp_path / "copy.mp4", sound=False)
    (tmp_path / "c.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nhi\n")
    describe = ("steps", silent, *ALONE, "--describe")
    for says, command in (
        ("no such file", (*describe, tmp_path / "none")),
        ("not a ProcX network", (*describe, silent)),
        ("trained on features of 's3d', given are 'conse'", (*describe, other)),
        ("trained at 4 rows per second", (*describe, quick)),
        ("needs pictures", (*describe, network, "--set", "vision.backbone=none")),
        ("NaN", ("steps", nan, "--describe", network)),
        ("are 3 wide", ("steps", narrow, "--describe", network)),
        ("have no picture", ("steps", narrow, "--describe", network, "--clips")),
        ("--captions is for one video", (*describe, network, sound, "--captions", "c.srt")),
        ("did you mean", (*describe, network, "--set", "procx.whem=alone")),
        ("procx.path is not set", ("steps", silent, "--set", "procx.when=alone")),
        ("needs pictures", ("steps", silent, "--describe", network, "--backbone", "none")),
    ):
        failed = stepline(*command, "--out", tmp_path / "out")
        assert failed.exit_code == 1, (says, failed.output)
        assert says in failed.stderr, failed.stderr
        assert (
            len([line for line in failed.stderr.splitlines() if line.startswith("stepline: ")]) == 1
        ), failed.stderr
    assert not (tmp_path / "out").exists()


def test_a_network_of_another_width_is_refused_before_a_video_is_read(tmp_path):
    from stepline.errors import ModelError
    from stepline.pipeline.networks import load_networks
    from stepline.pipeline.request import StepsSettings

    words = train_vocabulary(["slice the lemons"], VocabularySettings(size=300))
    file = tmp_path / "narrow.safetensors"
    sizes = SIZES.model_copy(update={"features": 64})
    write_model(ProcX(sizes, len(words)), words, file, TrainingFeatures("unknown", unit=True))
    settings = StepsSettings.model_validate({"procx": {"path": file}})
    with pytest.raises(ModelError, match="trained on features 64 wide, conse features are 384"):
        load_networks(settings)


def test_several_videos_share_one_network_which_is_read_and_hashed_once(
    stepline, network, silent, tmp_path, monkeypatch
):
    from stepline.models.procx import checkpoint

    load, loads = checkpoint.load_model, []
    monkeypatch.setattr(checkpoint, "load_model", lambda path: loads.append(path) or load(path))
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_bytes(silent.read_bytes())
    videos = (tmp_path / "a.mp4", tmp_path / "b.mp4")
    options = ("--describe", network, "--format", "json", "--jobs", "1")
    made = stepline("steps", *videos, *options, "--out", tmp_path / "out")
    assert made.exit_code == 0, made.stderr
    records = [read_record(tmp_path / "out" / f"{name}.json") for name in "ab"]
    digests = [record.settings["inputs"]["describer"] for record in records]
    assert digests == [sha256(network / "procx.safetensors")] * 2
    assert len(loads) == 1
