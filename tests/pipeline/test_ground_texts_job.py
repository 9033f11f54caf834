"""A trained network in the main job and in `stepline ground`: trained here on the demo video, then
used on it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from option_words import option_words

import stepline
from stepline.compare import compare
from stepline.compare.write import to_json
from stepline.errors import ModelError, ShapeError
from stepline.evaluate.calibration import LogisticRegression
from stepline.features.files import write_feature_file
from stepline.files.digests import sha256
from stepline.models.nasva.calibration import Calibration, calibration_path, write_calibration
from stepline.models.nasva.checkpoint import write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.models.nasva.train import train_aligner
from stepline.models.training.batches import Sample
from stepline.models.training.network import FeatureSpace
from stepline.models.training.settings import TrainSettings
from stepline.pipeline.ground_texts import read_order_matrix
from stepline.pipeline.networks import describe_inputs, load_networks
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import FeatureSequence, Record, Step, Video
from stepline.storage import from_json, read_record
from stepline.text import embed

DEMO = Path(stepline.__file__).parent / "cli" / "demo" / "demo.mp4"
SIZES = {"video_width": 384, "text_width": 384, "width": 32, "heads": 4, "projection": 16}
SIZES |= {"encoder_layers": 1, "decoder_layers": 1, "feed_forward": 64}


@pytest.fixture(scope="module")
def truth():
    return read_record(DEMO.with_name("demo_truth.json")).reference


@pytest.fixture(scope="module")
def features(demo_pictures):
    return demo_pictures.features


@pytest.fixture(scope="module")
def trained(truth, features, tmp_path_factory):
    """A folder with a network that has learned the demo by heart, and a calibration by how far a
    row stands out."""
    folder = tmp_path_factory.mktemp("trained")
    texts = [step.text for step in truth]
    middles = (np.arange(len(features.values)) + 0.5) / features.rate
    shown = np.array(
        [[any(second in span for span in step.spans) for second in middles] for step in truth]
    )
    samples = [Sample("demo", features.values, embed(texts), shown, ordered=True)]
    model = AlignerNetworkSettings(dropout=0.0, **SIZES)
    settings = TrainSettings(epochs=150, batch=1, learning_rate=3e-3, save_every=1000)
    network = train_aligner(samples, folder / "run", model=model, settings=settings)
    file = folder / "aligner.safetensors"
    write_aligner(network, file, FeatureSpace("conse", "minilm"))
    by_rise = LogisticRegression((0.0,) * 6, (1.0,) * 6, (0.0, 20.0, 0.0, 0.0, 0.0, 0.0), -5.0)
    write_calibration(Calibration(sha256(file), {"step": by_rise}), calibration_path(file))
    return folder


@pytest.fixture(scope="module")
def lines(truth, tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("\n".join(step.text for step in truth))
    return path


def hits(steps, truth):
    shown = [(step, true) for step, true in zip(steps, truth, strict=True) if true.spans]
    return sum(
        step.at is not None and any(step.at in span for span in true.spans) for step, true in shown
    ), len(shown)


def test_the_main_job_uses_a_trained_network(
    stepline, trained, lines, truth, captions_file, tmp_path
):
    given = option_words(out=tmp_path, format="json", texts=lines, captions=captions_file)
    job = ("steps", DEMO, *given)
    result = stepline(*job, "--aligner", trained)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "demo.json")
    right, asked = hits(record.steps, truth)
    assert (right, asked) == (9, 9)
    file = trained / "aligner.safetensors"
    assert record.models["grounding"] == {"aligner": sha256(file), "calibrated": True}
    assert record.settings["inputs"]["aligner"] == [sha256(file), sha256(calibration_path(file))]
    assert not any("calibrated" in warning for warning in record.warnings)
    assert "done before" in stepline(*job, "--aligner", trained).stderr


def test_lines_are_found_in_ready_features(stepline, trained, lines, truth, features, tmp_path):
    file = tmp_path / "demo.safetensors"
    write_feature_file(features, file)
    result = stepline(
        "ground", file, "--texts", lines, "--aligner", trained, "--json", "--order", "given"
    )
    assert result.exit_code == 0, result.output
    record = from_json(result.stdout)
    right, asked = hits(record.steps, truth)
    assert (right, asked) == (9, 9)
    table = stepline("ground", file, "--texts", lines, "--aligner", trained, "--mode", "narration")
    assert truth[0].text in table.stdout.lower()
    assert "not calibrated" in table.stderr  # for narrations nothing was fitted


def test_the_lines_of_a_comparison_are_found_in_the_order_of_its_videos(
    stepline, trained, truth, features, tmp_path
):
    records = []
    for id in ("one", "other"):
        steps = tuple(Step(id=str(n), text=step.text) for n, step in enumerate(truth))
        records.append(Record(id=id, video=Video(id=id), steps=steps))
    compared = tmp_path / "comparison.json"
    compared.write_text(to_json(compare(records)), encoding="utf-8")
    file = tmp_path / "demo.safetensors"
    write_feature_file(features, file)
    job = ("ground", file, "--texts", compared, "--aligner", trained, "--json")
    result = stepline(*job, "--order", "compared")
    assert result.exit_code == 0, result.output
    record = from_json(result.stdout)
    assert [step.text for step in record.steps] == [step.text for step in truth]
    assert hits(record.steps, truth) == (9, 9)
    assert record.settings["inputs"]["graph"]["lines"] == [step.text for step in truth]


def test_lines_are_found_in_a_video(stepline, trained, small_video, lines):
    result = stepline("ground", small_video, "--texts", lines, "--aligner", trained, "--json")
    assert result.exit_code == 0, result.output
    record = from_json(result.stdout)
    assert record.models["vision"] == "conse"
    assert all(span.end <= 16.0 for step in record.steps for span in step.spans)


def test_a_network_of_other_features_is_refused_before_the_video_is_read(
    stepline, trained, small_video, tmp_path
):
    network = Aligner(AlignerNetworkSettings(**SIZES))
    raw = Aligner(AlignerNetworkSettings(feature_scale="none", **SIZES))
    spaces = FeatureSpace("s3d", "s3d"), FeatureSpace("conse", "mpnet")
    quick = FeatureSpace("conse", "minilm", 4.0)
    other = {
        "s3d": (network, spaces[0], "trained on features of 's3d', given are 'conse'"),
        "mpnet": (network, spaces[1], "trained on texts of 'mpnet', given are 'minilm'"),
        "quick": (network, quick, "trained at 4 rows per second, given are 1"),
        "raw": (raw, None, "not on rows of length 1"),
    }
    for name, (model, space, reason) in other.items():
        write_aligner(model, tmp_path / f"{name}.safetensors", space)
        result = stepline(
            "steps", small_video, "--out", tmp_path, "--aligner", tmp_path / f"{name}.safetensors"
        )
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert reason in result.stderr


def test_what_is_not_a_network_is_refused(stepline, small_video, trained, tmp_path):
    torch.save({}, tmp_path / "weights.pth")
    (tmp_path / "empty").mkdir()
    for path, reason in (
        (tmp_path / "absent", "no such file"),
        (tmp_path / "empty", "holds none of best.safetensors"),
        (tmp_path / "weights.pth", "not NaSVA's released network"),
    ):
        result = stepline("steps", small_video, "--out", tmp_path, "--aligner", path)
        assert result.exit_code == 1
        assert reason in result.stderr
    result = stepline(
        "steps", small_video, "--out", tmp_path, "--aligner", trained, "--backbone", "none"
    )
    assert "needs pictures" in result.stderr


def test_features_and_lines_that_do_not_fit_are_refused(stepline, trained, lines, tmp_path):
    np.save(tmp_path / "narrow.npy", np.ones((9, 5), np.float32))
    np.save(tmp_path / "broken.npy", np.full((9, 384), np.nan, np.float32))
    np.save(tmp_path / "empty.npy", np.ones((0, 384), np.float32))
    (tmp_path / "blank.txt").write_text("\n\n")
    np.save(tmp_path / "good.npy", np.ones((9, 384), np.float32))
    write_feature_file(
        FeatureSequence(np.ones((9, 384), np.float32), 1.0, "clip"), tmp_path / "clip.safetensors"
    )
    for name, texts, reason in (
        ("narrow.npy", lines, "trained on features 384 wide, precomputed features are 5 wide"),
        ("broken.npy", lines, "row 0 holds NaN"),
        ("empty.npy", lines, "features must be (T, D)"),
        ("clip.safetensors", lines, "trained on features of 'conse', given are 'clip'"),
        ("good.npy", tmp_path / "blank.txt", "holds no line of text"),
    ):
        result = stepline("ground", tmp_path / name, "--texts", texts, "--aligner", trained)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert reason in result.stderr


def test_ready_vectors_stand_for_an_encoder(stepline, trained, features, lines, truth, tmp_path):
    file, texts = tmp_path / "demo.safetensors", [step.text for step in truth]
    write_feature_file(features, file)
    torch.save(
        {"text": texts[1:], "features": torch.from_numpy(embed(texts[1:]))}, tmp_path / "some.pth"
    )
    given = option_words(texts=lines, aligner=trained, text_features=tmp_path / "some.pth")
    result = stepline("ground", file, *given)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"no features for {texts[0]!r}" in result.stderr


def test_a_table_of_order_is_read(tmp_path):
    path = tmp_path / "order.json"
    path.write_text(json.dumps([[None, 0.9], [0.1, None]]))
    assert read_order_matrix(path, 2).tolist() == [[0.5, 0.9], [0.1, 0.5]]
    with pytest.raises(ShapeError, match="for 3 lines"):
        read_order_matrix(path, 3)
    path.write_text('["a"]')
    with pytest.raises(ShapeError, match="not a table of chances"):
        read_order_matrix(path, 1)


def test_a_changed_network_or_calibration_is_another_input(trained, tmp_path):
    file = tmp_path / "aligner.safetensors"
    settings = StepsSettings.model_validate_json(
        json.dumps({"nasva": {"aligner": {"path": str(file)}}})
    )
    request = Request(DEMO, "demo")
    with pytest.raises(ModelError, match="no such file"):
        load_networks(settings)
    file.write_bytes((trained / "aligner.safetensors").read_bytes())
    networks = load_networks(settings)
    before = describe_inputs(request, settings, networks)
    assert networks.aligner.calibration is None
    calibration_path(file).write_bytes(
        calibration_path(trained / "aligner.safetensors").read_bytes()
    )
    calibrated = load_networks(settings)
    assert describe_inputs(request, settings, calibrated) != before
    assert calibrated.aligner.calibration is not None
    assert describe_inputs(request, settings, networks) == before  # what was loaded is what decides
