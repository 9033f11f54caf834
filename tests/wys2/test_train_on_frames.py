"""S3D trained on frames from end to end: `train wys2 --videos`, and what its detector and its S3D
then answer."""

import json

import av
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from option_words import option_words
from small_video import draw_video
from wys2_samples import clip

from stepline.cli import main
from stepline.errors import DatasetError, MediaError, SettingsError
from stepline.evaluate.calibration import LogisticRegression
from stepline.features import FeatureStore
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.clips import ClipTextPair, FrameClip, VideoFrames
from stepline.models.wys2.dataset import ClipDataset, infer_labels
from stepline.models.wys2.detector import Detector, score_pairs, write_detector
from stepline.models.wys2.predict import DetectorCalibration, write_calibration
from stepline.models.wys2.settings import (
    ContrastSettings,
    DetectorSettings,
    JudgeSettings,
    LabelSettings,
)
from stepline.models.wys2.train import train_detector
from stepline.pipeline.networks import load_judge_detector
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import judge_sentences
from stepline.records import FeatureSequence, Sentence, Span, Transcript
from stepline.vision import VisionSettings
from stepline.vision.s3d import TextTower, read_s3d
from stepline.vision.s3d_network import S3D

SAID = (
    "slice the lemons",
    "pour the juice into the bowl",
    "whisk the sugar",
    "welcome back everyone",
)
SMALL = "detector.frames=2 detector.side=32 train.epochs=2 train.batch=8 train.readers=0".split()
WORDS = sorted({word for text in SAID for word in text.split()})


def stepline(*arguments, code=0):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Six videos of 8 s, one broken, their narrations and key-steps, and S3D's weights under their
    released names."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "videos").mkdir()
    (folder / "narrations").mkdir()
    times = [(2.0 * k, 2.0 * k + 2) for k in range(len(SAID))]
    told = zip(SAID, times, strict=True)
    sentences = [{"text": text, "start": start, "end": end} for text, (start, end) in told]
    steps = {}
    for number in range(7):
        id = f"v{number}"
        steps[id] = {"duration": 8.0, "timestamps": times[:3], "sentences": list(SAID[:3])}
        whisperx = {"segments": sentences, "language": "en"}
        (folder / "said.json").write_text(json.dumps(whisperx))
        if number == 6:
            (folder / "videos" / f"{id}.mp4").write_bytes(b"no video")
            continue
        draw_video(folder / "videos" / f"{id}.mp4", seconds=8, sound=False)
        video = folder / "videos" / f"{id}.mp4"
        told = stepline("transcribe", video, "--captions", folder / "said.json", "--format", "json")
        (folder / "narrations" / f"{id}.json").write_text(told.stdout)
    (folder / "steps.json").write_text(json.dumps(steps))
    np.save(folder / "s3d_dict.npy", np.array(WORDS))
    torch.manual_seed(1)
    tower = TextTower(len(WORDS) + 1).state_dict()
    text = {f"text_module.{name}": value for name, value in tower.items()}
    torch.save({**S3D().state_dict(), **text}, folder / "s3d_howto100m.pth")
    return folder


def test_a_clip_of_frames_is_spread_over_its_span_and_square(corpus):
    video = corpus / "videos" / "v0.mp4"
    frames = FrameClip(video, Span(1.0, 3.0), 4, 32).read_frames()
    assert (frames.shape, frames.dtype) == ((4, 32, 32, 3), np.uint8)
    late = FrameClip(video, Span(7.0, 11.0), 4, 32).read_frames()  # past 9 s the last picture stays
    np.testing.assert_array_equal(late[2], late[3])
    past = FrameClip(video, Span(20.0, 23.0), 4, 32).read_frames()
    assert np.abs(past[0].astype(int) - late[3]).mean() < 1
    (corpus / "sound").mkdir()
    with av.open(str(corpus / "sound" / "s.mp4"), "w") as out:
        hum = out.add_stream("aac", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 32_000), np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate = 16_000
        out.mux(hum.encode(frame))
        out.mux(hum.encode(None))
    with pytest.raises(MediaError, match=r"no picture up to 2 s can be seen; leave the video out"):
        FrameClip(corpus / "sound" / "s.mp4", Span(0.0, 2.0), 4, 32).read_frames()


class Texts:
    name, dim = "conse", 6

    def encode_texts(self, texts):
        return np.ones((len(texts), 6), np.float32)


def test_a_detector_of_frames_judges_the_video_itself(corpus, tmp_path):
    path = tmp_path / "detector.safetensors"
    write_detector(
        Detector(DetectorSettings(video="s3d", text_width=6, width=8, frames=2, side=32)), path
    )
    write_calibration(
        DetectorCalibration(LogisticRegression((0.0,), (1.0,), (1.0,), 0.0), 0.05), path
    )
    settings = JudgeSettings(detector=path)
    loaded = load_judge_detector(settings, VisionSettings())
    sentences = (
        Sentence(text="chop it", span=Span(1.0, 2.0)),
        Sentence(text="mix it", span=Span(7.0, 8.0)),
    )
    seen = VisualFeatures(
        FeatureSequence(np.ones((8, 384), np.float32), 1.0, "conse"), None, Texts()
    )
    given = (Transcript(language="en", sentences=sentences), seen, settings, loaded)
    transcript = judge_sentences(*given, corpus / "videos" / "v0.mp4")
    assert all(0 < sentence.shown < 1 for sentence in transcript.sentences)
    with pytest.raises(SettingsError, match="sees frames, not features"):
        judge_sentences(*given)


def test_a_step_changes_s3d_and_the_loss_falls(corpus, tmp_path):
    videos = sorted((corpus / "videos").glob("v[0-3].mp4"))
    texts = np.eye(4, 6, dtype=np.float32)
    pairs = [
        ClipTextPair(str(n), FrameClip(path, Span(2.0 * n, 2.0 * n + 2), 2, 32), texts[n : n + 1])
        for n, path in enumerate(videos)
    ]
    detector = DetectorSettings(video="s3d", text_width=6, width=8, frames=2, side=32)
    settings = TrainSettings(epochs=12, batch=4, learning_rate=3e-3, readers=1)
    torch.manual_seed(settings.seed)
    before = Detector(detector).video.s3d.conv1.conv1.weight.clone()
    given = {"contrast": ContrastSettings(negatives=None), "settings": settings}
    learnt = train_detector(pairs, tmp_path, detector=detector, **given)
    losses = [
        json.loads(line)["loss"] for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert np.mean(losses[-3:]) < 0.6 * np.mean(losses[:3])
    assert not torch.equal(learnt.video.s3d.conv1.conv1.weight, before)
    assert np.isfinite(score_pairs(learnt, pairs)).all()
    gathered = ClipDataset([clip() for _ in pairs], pairs)
    with pytest.raises(DatasetError, match="MC labels classify the tasks of ready features"):
        infer_labels(gathered, LabelSettings(kind="mc"))


def test_a_video_that_cannot_be_read_is_not_a_sample(corpus):
    frames = VideoFrames(
        {"v6": corpus / "videos" / "v6.mp4", "v0": corpus / "videos" / "v0.mp4"}, 2, 32
    )
    assert frames.reason_to_omit("v0") is None
    assert frames.reason_to_omit("v6")[0] == "its video cannot be read"
    assert frames.reason_to_omit("x")[0] == "there is no video of it"


def test_the_command_trains_s3d_from_released_weights_and_what_it_made_is_used(corpus, tmp_path):
    weights, run = corpus / "s3d_howto100m.pth", tmp_path / "run"
    texts = {"key_steps": f"youcook2:{corpus}/steps.json", "narrations": corpus / "narrations"}
    given = option_words(**texts, out=run)
    small = [part for each in SMALL for part in ("--set", each)]
    network = option_words(weights=weights, vectors=f"s3d:{weights}", preset="paper")
    rate = option_words(videos=corpus / "videos", set="train.learning_rate=1e-3")
    trained = stepline("train", "wys2", *network, *rate, *given, *small, "--json")
    (first,) = json.loads(trained.stdout.splitlines()[-1])["rounds"]
    assert first["pairs"] >= 6
    left_out = json.loads((run / "run.json").read_text())["omitted"]["labelled"]
    assert left_out == {"its video cannot be read": 1}
    learnt, _ = read_s3d(run / "s3d_wys2.pth", len(WORDS) + 1)
    begun, _ = read_s3d(weights, len(WORDS) + 1)
    assert not torch.equal(learnt.conv1.conv1.weight, begun.conv1.conv1.weight)
    network = option_words(backbone="s3d-mixed5c", weights=run / "s3d_wys2.pth")
    rate = option_words(set="vision.rate=0.25", out=tmp_path / "store")
    stepline("features", "extract", corpus / "videos" / "v0.mp4", *network, *rate)
    assert FeatureStore(tmp_path / "store").matrix("v0").shape == (2, 1024)
    clips = [{"id": "a", "video": "v0.mp4", "span": {"start": 1.0, "end": 4.0}, "text": SAID[0]}]
    (tmp_path / "clips.json").write_text(json.dumps(clips))
    files = {"reference": tmp_path / "clips.json", "out": tmp_path / "vnd.json"}
    stepline("predict", "vnd", *option_words(detector=run, features=corpus / "videos", **files))
    assert np.isfinite(json.loads((tmp_path / "vnd.json").read_text())["a"])


def test_what_does_not_go_together_is_reported(corpus, tmp_path):
    texts = {"key_steps": f"youcook2:{corpus}/steps.json", "narrations": corpus / "narrations"}
    given = option_words(**texts, out=tmp_path)
    neither = stepline("train", "wys2", *given, code=1)
    assert "give --features or --videos" in neither.stderr
    weights = stepline("train", "wys2", "--features", "s", "--weights", "w", *given, code=1)
    assert "--weights is S3D's, which is trained on --videos" in weights.stderr
    video = option_words(videos=corpus / "videos", set="detector.video=head")
    head = stepline("train", "wys2", *video, *given, code=1)
    assert "detector.video=head is not trained on what is given; give --features" in head.stderr
