"""What every network that answers a benchmark keeps to: what cannot be answered is named with the
reason, and where nothing can be, nothing is written."""

import json

import numpy as np
import pytest
import torch

from stepline.errors import DatasetError, StoreError
from stepline.features import FeatureWriter, RowTexts
from stepline.models.nasva.benchmarks import (
    AlignmentQuestion,
    BenchmarkInputs,
    TextVectors,
    write_alignments,
)
from stepline.models.nasva.checkpoint import load_aligner, write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerNetworkSettings, AlignerSettings
from stepline.models.procx.benchmark import write_predictions
from stepline.models.procx.checkpoint import TrainingFeatures, load_model, write_model
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DescribeSettings,
    ModelSettings,
    VocabularySettings,
)
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.models.training.benchmark_answers import (
    BenchmarkQuestions,
    StoredFeatures,
    answer_questions,
)
from stepline.models.training.network import FeatureSpace
from stepline.models.wys2.benchmark import BenchmarkDetector, write_sentence_scores
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.settings import DetectorSettings
from stepline.records import Step

WIDTH = 6  # of a feature row
SECONDS = 8
TEXTS = ("cut the onion", "fry it in butter")
SMALL = {"encoder_layers": 1, "decoder_layers": 1, "feed_forward": 8}


@pytest.fixture
def store(tmp_path):
    """The features of video "a" alone."""
    rows = np.random.default_rng(0).normal(size=(SECONDS, WIDTH)).astype(np.float32)
    with FeatureWriter(tmp_path / "store") as writer:
        writer.add("a", rows, rate=1.0, backbone="drawn")
    return StoredFeatures(tmp_path / "store")


def nasva(ids, store, folder):
    torch.manual_seed(0)
    sizes = {"video_width": WIDTH, "text_width": WIDTH, "width": 8, "heads": 2, "projection": 4}
    network = Aligner(AlignerNetworkSettings(**SMALL, **sizes))
    write_aligner(network, folder / "aligner.safetensors")
    loaded = load_aligner(folder / "aligner.safetensors")
    vectors = np.ones((len(TEXTS), WIDTH), np.float32)
    with FeatureWriter(folder / "texts") as writer:
        for id in ids:
            writer.add(id, vectors, rate=1.0, backbone="drawn", texts=RowTexts(TEXTS))
    steps = tuple(Step(id=str(k), text=text) for k, text in enumerate(TEXTS))
    questions = [AlignmentQuestion(id, id, steps, None) for id in ids]
    inputs = BenchmarkInputs(store, TextVectors(folder / "texts", loaded))
    out = folder / "out.json"
    return write_alignments("crosstask", questions, loaded, inputs, out, AlignerSettings())


def procx(ids, store, folder):
    torch.manual_seed(0)
    sizes = {"width": 8, "heads": 2, "text_layers": 1, "joint_layers": 1, "feed_forward": 8}
    attention = AttentionSettings(width=8, heads=2, levels=2)
    captioner = CaptionerSettings(**sizes, projection=4, longest=8)
    own = {"features": WIDTH, "rows": 8, "queries": 4}
    model = ModelSettings(attention=attention, captioner=captioner, **SMALL, **own)
    words = train_vocabulary(TEXTS, VocabularySettings(size=300))
    features = TrainingFeatures("drawn")
    write_model(ProcX(model, len(words)), words, folder / "procx.safetensors", features)
    loaded = load_model(folder / "procx.safetensors")
    return write_predictions(ids, loaded, store, folder / "out.json", DescribeSettings())


def wys2(ids, store, folder):
    def encode(texts):
        return np.ones((len(texts), WIDTH), np.float32)

    torch.manual_seed(0)
    sizes = {"video_width": WIDTH, "text_width": WIDTH, "hidden": 8, "width": 4}
    network = Detector(DetectorSettings(**sizes)).eval()
    loaded = BenchmarkDetector(
        folder / "detector.safetensors", "", FeatureSpace("drawn"), WIDTH, True, network, encode
    )
    texts = dict.fromkeys(ids, TEXTS)
    return write_sentence_scores(texts, {}, loaded, store.read, folder / "out.json")


# how each network answers, and what its error counts
ANSWERERS = {nasva: " videos", procx: " videos", wys2: ""}
answerers = pytest.mark.parametrize("answer", ANSWERERS, ids=lambda answer: answer.__name__)


@answerers
def test_what_cannot_be_answered_is_named_with_its_reason(answer, store, tmp_path):
    answers = answer(["gone", "a"], store, tmp_path)
    assert answers.count == 1
    assert list(answers.by_id) == ["a"]
    assert list(answers.missing) == ["gone"]
    assert "gone" in answers.missing["gone"]
    tree = json.loads((tmp_path / "out.json").read_text())
    assert list(tree.get("results", tree)) == ["a"]


@answerers
def test_where_nothing_can_be_answered_nothing_is_written(answer, store, tmp_path):
    message = f"none of 2{ANSWERERS[answer]} can be answered; the first, gone: .*gone"
    with pytest.raises(DatasetError, match=message):
        answer(["gone", "lost"], store, tmp_path)
    assert not (tmp_path / "out.json").exists()


def test_only_errors_of_stepline_are_taken_for_an_answer_that_is_missing():
    def answer(number):
        if number == 2:
            raise StoreError("no features")
        return 6 // number

    answers = answer_questions({"a": 3, "b": 2, "c": 1}, answer)
    assert answers.by_id == {"a": 2, "c": 6}
    assert answers.missing == {"b": "no features"}
    with pytest.raises(ZeroDivisionError):
        answer_questions({"a": 0}, answer)


def test_reasons_are_counted_the_most_frequent_first():
    questions = BenchmarkQuestions((), {"a": "no text", "b": "no video", "c": "no video"})
    assert list(questions.count_reasons().items()) == [("no video", 2), ("no text", 1)]
