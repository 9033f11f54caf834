"""Whether the picture shows what is said: evidence by hand, and the judges."""

import json
from pathlib import Path

import numpy as np
import pytest

from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.evaluate.calibration import Logistic
from stepline.models.training.network import FeatureSpace, LoadedNetwork
from stepline.models.wys2.detector import Detector, write_detector
from stepline.models.wys2.judge import (
    collect_grounding_evidence,
    estimate_shown_by_grounding,
    estimate_shown_by_words,
    load_regression_weights,
    widen_span,
)
from stepline.models.wys2.predict import (
    DetectorCalibration,
    calibrate,
    calibration_path,
    check_backbone,
    encode_texts,
    load_detector,
    write_calibration,
)
from stepline.models.wys2.settings import DetectorSettings, JudgeSettings
from stepline.pipeline.networks import load_judge_detector
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import judge_sentences
from stepline.records import (
    Alignment,
    FeatureSequence,
    Record,
    Sentence,
    Span,
    Step,
    Transcript,
    Video,
)
from stepline.vision.settings import VisionSettings

WIDTH = 384
SMALL = DetectorSettings(video_width=WIDTH, text_width=WIDTH, hidden=8, width=4)
SURE = DetectorCalibration(Logistic((0.0,), (1.0,), (1.0,), 0.0), 0.05)


def spoken(*spans, language="en"):
    return Transcript(
        language=language,
        sentences=tuple(Sentence(text="chop it", span=Span(*span)) for span in spans),
    )


def step(*sources, spans=(), score=None):
    return Step(
        id="1",
        text="chop it",
        sources=sources,
        spans=tuple(Span(*span) for span in spans),
        score=score,
    )


def probabilities(*rows):
    return Alignment(("x",) * len(rows), np.array(rows, np.float32), 1.0, "probability")


def test_a_short_sentence_is_judged_in_three_seconds_around_it():
    assert widen_span(Span(10.0, 11.0)) == Span(9.0, 12.0)
    assert widen_span(Span(0.2, 0.4)) == Span(0.0, 3.0)
    assert widen_span(Span(10.0, 20.0)) == Span(10.0, 20.0)


def test_on_screen_is_the_best_second_of_the_clip_of_any_step_that_rests_on_the_sentence():
    transcript = spoken((0.0, 3.0), (4.0, 7.0), (8.0, 9.0))
    rows = probabilities(
        [0.1, 0.2, 0.3, 0.9, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.4, 0, 0, 0, 0, 0, 0, 0, 0]
    )
    told, seen = collect_grounding_evidence(transcript, [step(0, 1), step(0)], rows)
    assert told.tolist() == [1.0, 1.0, 0.0]
    # .9 is at second 3, between the two sentences
    assert seen.tolist() == pytest.approx([0.4, 0.5, 0.0])


def test_cosines_are_not_chances_so_the_steps_own_counts_where_its_span_is():
    transcript = spoken((0.0, 3.0), (5.0, 8.0))
    cosines = Alignment(("x",), np.full((1, 9), 0.9, np.float32), 1.0, "cosine")
    _, seen = collect_grounding_evidence(
        transcript, [step(0, 1, spans=((6.0, 7.0),), score=0.6)], cosines
    )
    assert seen.tolist() == pytest.approx([0.0, 0.6])


def test_what_is_on_screen_is_more_likely_shown_than_chat_or_what_is_elsewhere():
    transcript = spoken((0.0, 3.0), (5.0, 8.0), (10.0, 12.0))
    row = [0.9] * 4 + [0.01] * 8
    here, elsewhere, chat = estimate_shown_by_grounding(
        transcript, [step(0), step(1)], probabilities(row, row)
    )
    assert here > 0.5 > elsewhere
    assert here > elsewhere > 0
    assert 0 < chat < 0.1


def test_wording_decides_where_nothing_was_grounded():
    from stepline.text import embed

    vectors = embed(["chop the onion into small pieces", "let it rest overnight"])
    chop, rest = estimate_shown_by_words(vectors, [True, True])
    assert chop > rest
    assert estimate_shown_by_words(vectors, [False, False])[0] < chop
    assert load_regression_weights("words")[0] > 0


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match="2 sentence vectors need as many flags, not 1"):
        estimate_shown_by_words(np.zeros((2, 384), np.float32), [True])
    with pytest.raises(ShapeError, match="1 steps need as many rows"):
        collect_grounding_evidence(spoken((0.0, 1.0)), [step(0)], probabilities([0.1], [0.2]))


def test_another_language_is_not_judged_by_english_wording():
    transcript, judge = judge_sentences(
        spoken((0.0, 3.0), language="fr"), [step(0)], None, VisualFeatures(), JudgeSettings()
    )
    assert (transcript.sentences[0].shown, judge) == (None, None)
    transcript, judge = judge_sentences(
        spoken((0.0, 3.0)), [step(0)], None, VisualFeatures(), JudgeSettings()
    )
    assert judge == "wording"
    assert 0 < transcript.sentences[0].shown < 1


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
    transcript, judge = judge_sentences(
        spoken((0.0, 3.0), (20.0, 21.0)), [], None, seen, settings, loaded
    )
    assert judge == "detector"
    # past the picture: its last row
    assert all(0 < sentence.shown < 1 for sentence in transcript.sentences)
    with pytest.raises(SettingsError, match="needs pictures"):
        judge_sentences(spoken((0.0, 3.0)), [], None, VisualFeatures(), settings, loaded)


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


@pytest.mark.parametrize(
    ("transcript", "why"),
    [
        (None, "no one, because nothing is said"),
        (Transcript(), "no one, because nothing is said"),
        (
            spoken((0.0, 1.0), language="fr"),
            "no one, because it is not English and there is no --detector",
        ),
        (spoken((0.0, 1.0)), "no one, because there is no picture"),
        (spoken((0.0, 1.0), language=None), "no one, because there is no picture"),
    ],
)
def test_the_command_says_why_nothing_was_judged(transcript, why):
    from stepline.cli.one_video import reason_not_judged

    assert reason_not_judged(Record(id="v", video=Video(id="v"), transcript=transcript)) == why


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
