"""Whether the picture shows what is said: a trained detector, by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from stepline.errors import ModelError, SettingsError
from stepline.evaluate.calibration import LogisticRegression
from stepline.models.training.network import FeatureSpace, LoadedNetwork
from stepline.models.wys2.detector import Detector, write_detector
from stepline.models.wys2.predict import (
    DetectorCalibration,
    calibrate,
    calibration_path,
    check_backbone,
    encode_texts,
    load_detector,
    widen_span,
    write_calibration,
)
from stepline.models.wys2.settings import DetectorSettings, JudgeSettings
from stepline.pipeline.networks import load_judge_detector
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import decide_by_detector, judge_sentences
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript
from stepline.vision.settings import VisionSettings

WIDTH = 384
SMALL = DetectorSettings(video_width=WIDTH, text_width=WIDTH, hidden=8, width=4)
SURE = DetectorCalibration(LogisticRegression((0.0,), (1.0,), (1.0,), 0.0), 0.05)


def spoken(*spans, language="en"):
    sentences = tuple(Sentence(text="chop it", span=Span(*span)) for span in spans)
    return Transcript(language=language, sentences=sentences)


def step(*sources, **fields):
    return Step(id="1", text="chop it", sources=sources, said=Span(1.0, 2.0), **fields)


def test_a_short_sentence_is_judged_in_three_seconds_around_it():
    assert widen_span(Span(10.0, 11.0)) == Span(9.0, 12.0)
    assert widen_span(Span(0.2, 0.4)) == Span(0.0, 3.0)
    assert widen_span(Span(10.0, 20.0)) == Span(10.0, 20.0)


PLACED = {"status": "placed", "spans": (Span(0.5, 2.5),), "at": 1.5, "score": 0.9}
SEEN_ELSEWHERE = {"status": "seen", "basis": "vlm", "spans": (Span(7.0, 8.0),), "at": 7.5}


@pytest.mark.parametrize(
    ("p_shown", "before", "after"),
    [
        # sure that the picture shows it: where its words are, and where they were placed
        ((0.8,), PLACED, ("seen", "network", (Span(0.5, 2.5),), 0.8)),
        ((0.9,), {"status": "said_only"}, ("seen", "network", (Span(1.0, 2.0),), 0.9)),
        # the best of the sentences counts
        ((0.1, 0.85), PLACED, ("seen", "network", (Span(0.5, 2.5),), 0.85)),
        # sure that it does not
        ((0.2, 0.1), PLACED, ("said_only", None, (), 0.2)),
        # not sure, or another picture has decided
        ((0.79,), PLACED, ("placed", None, (Span(0.5, 2.5),), 0.9)),
        ((0.1,), SEEN_ELSEWHERE, ("seen", "vlm", (Span(7.0, 8.0),), None)),
    ],
)
def test_a_detector_decides_of_a_step_where_it_is_sure(p_shown, before, after):
    transcript = spoken(*((float(n), n + 1.0) for n in range(len(p_shown))))
    judged = zip(transcript.sentences, p_shown, strict=True)
    sentences = tuple(sentence.model_copy(update={"shown": p}) for sentence, p in judged)
    given = step(*range(len(p_shown)), **before)
    (decided,) = decide_by_detector([given], transcript.model_copy(update={"sentences": sentences}))
    assert (decided.status, decided.basis, decided.spans, decided.score) == after
    assert decide_by_detector([step()], transcript) == (step(),)  # it rests on no sentence


class Backbone:
    name, dim = "conse", WIDTH

    def encode_texts(self, texts):
        return np.ones((len(texts), WIDTH), np.float32)


@pytest.fixture
def detector(tmp_path):
    path = tmp_path / "detector.safetensors"
    write_detector(Detector(SMALL), path, video="conse")
    return path


def test_a_detector_judges_once_it_is_calibrated(detector):
    settings = JudgeSettings(detector=detector)
    with pytest.raises(ModelError, match="its scores are not probabilities"):
        load_judge_detector(settings, VisionSettings())
    write_calibration(SURE, detector)
    loaded = load_judge_detector(settings, VisionSettings())
    features = FeatureSequence(
        np.random.default_rng(0).normal(size=(9, WIDTH)).astype(np.float32), 1.0, "conse"
    )
    seen = VisualFeatures(features, None, Backbone())
    transcript = judge_sentences(spoken((0.0, 3.0), (20.0, 21.0)), seen, settings, loaded)
    # past the picture: its last row
    assert all(0 < sentence.shown < 1 for sentence in transcript.sentences)
    with pytest.raises(SettingsError, match="needs pictures"):
        judge_sentences(spoken((0.0, 3.0)), VisualFeatures(), settings, loaded)


def test_a_detector_of_another_backbone_or_calibration_is_refused(detector):
    write_calibration(SURE, detector)
    with pytest.raises(ModelError, match="trained on features of 'conse', given are 'clip'"):
        load_judge_detector(JudgeSettings(detector=detector), VisionSettings(backbone="clip"))
    beside = calibration_path(detector)
    beside.write_text(json.dumps(json.loads(beside.read_text()) | {"detector": "0" * 64}))
    with pytest.raises(ModelError, match="fitted to another detector"):
        load_detector(detector)
    beside.write_text("{}")
    with pytest.raises(ModelError, match="not a calibration"):
        load_detector(detector)


@pytest.mark.parametrize("name", ["minilm", ""])
def test_texts_are_encoded_as_in_training(name):
    vectors = encode_texts(name, Backbone(), ["chop it"])
    assert vectors.shape == ((1, 384) if name else (1, WIDTH))


def trained_on(video, text):
    return LoadedNetwork(
        Path("network.safetensors"), "", FeatureSpace(video, text, None), 512, True
    )


def test_text_vectors_of_another_backbone_are_refused():
    check_backbone(trained_on("", ""), "clip")
    check_backbone(trained_on("clip", "clip:folder"), "clip")
    check_backbone(trained_on("conse", "minilm"), "conse")
    with pytest.raises(SettingsError, match="trained on text vectors of 'clip'"):
        check_backbone(trained_on("", "clip:folder"), "conse")


def test_scores_become_chances_where_there_are_enough_of_both_kinds():
    chance = np.random.default_rng(0)
    shown = chance.random(400) < 0.4
    scores = (chance.normal(size=400) + 2.0 * shown).astype(np.float32)
    found = calibrate(scores, shown)
    assert found.error < 0.1
    assert found.logistic(np.array([[4.0]]))[0] > 0.8 > 0.2 > found.logistic(np.array([[-2.0]]))[0]
    assert calibrate(scores[:60], shown[:60]) is None
