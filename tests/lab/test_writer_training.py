"""Marked narration is read, labelled and learned, and the files are what the writer reads."""

import gzip
import json

import pytest

from lab.writer_training.labels import edit_labels
from lab.writer_training.marked import MarkedSentence, read_marked_narrations
from stepline.errors import DatasetError
from stepline.text.narration import NarrationTagger
from stepline.text.narration.punctuation import PUNCTUATION_FILE, PunctuationModel
from stepline.text.narration.words import PUNCTUATION_CLASSES, WORD_EDITS

TEXT = """# title: Toast
# subject: breakfast
# form: spoken
t\tHello and welcome.
s\tSo we're going to cut two slices of bread.\tCut two slices of bread
s\tPut it in the toaster.\tPut the bread in the toaster
w\tDon't touch the grill.\tDo not touch the grill
s\tTwo minutes.\tToast the bread for two minutes
s\tKeep an eye on it.\t= Watch the bread
t\tBye.
"""


@pytest.fixture
def folder(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "toast.txt").write_text(TEXT, encoding="utf-8")
    return texts


def test_a_text_is_read_with_kinds_steps_and_repeats(folder):
    (narration,) = read_marked_narrations(folder)
    named = (narration.name, narration.group, narration.is_punctuated)
    assert named == ("toast", "breakfast", True)
    kinds = [row.kind for row in narration.sentences]
    assert kinds[:4] == ["talk", "step", "step", "warning"]
    assert narration.sentences[5].is_repeat
    assert narration.sentences[5].steps == ("Watch the bread",)


def test_a_line_of_unknown_kind_is_one_line_with_its_place(folder):
    (folder / "toast.txt").write_text("x\tHello.\n")
    with pytest.raises(DatasetError, match=r"toast.txt:1: needs a kind"):
        read_marked_narrations(folder)


def test_narration_json_is_read(tmp_path):
    path = tmp_path / "narration.json.gz"
    rows = [{"text": "cut it", "is_step": True, "key_steps": ["cut bread"]}]
    rows.append({"text": "hello", "is_step": False, "key_steps": []})
    content = json.dumps({"v": {"title": "toast", "sentences": rows}})
    path.write_bytes(gzip.compress(content.encode()))
    (narration,) = read_marked_narrations(path)
    assert [row.kind for row in narration.sentences] == ["step", None]


@pytest.mark.parametrize(
    ("text", "step", "edits", "verb"),
    [
        ("So put it in", "Put the bread in", "drop verb name keep", "-"),
        ("Two minutes.", "Toast the bread for two minutes", "keep keep", "toast"),
    ],
)
def test_what_an_editor_makes_of_words_is_labelled(text, step, edits, verb):
    (label,) = edit_labels([MarkedSentence(text, "step", (step,))])
    assert [WORD_EDITS[edit] for edit in label.edits] == edits.split()
    assert label.verb == verb


@pytest.mark.slow
def test_a_narration_and_its_marks_can_be_learned_by_heart(folder, tmp_path):
    pytest.importorskip("torch")
    from lab.writer_training.mark_training import MarkTrainSettings
    from lab.writer_training.train import TaggerTrainSettings, train_writer_run

    learning = {"epochs": 30, "rank": 4, "first_layer": 5, "learning_rate": 5e-3}
    learning["hidden_share"] = 0.05
    settings = TaggerTrainSettings(**learning, marks=MarkTrainSettings(**learning))
    path = train_writer_run([folder], tmp_path / "run", settings)
    texts = ["Hello and welcome.", "So we're going to cut two slices of bread."]
    talk, step = NarrationTagger(path).tag_sentences(texts)
    assert step.step_probability > talk.step_probability + 0.3
    words = "so we're going to cut two slices of bread put it in the toaster".split()
    model = PunctuationModel(path.parent / PUNCTUATION_FILE)
    marks = model.predict_punctuation(words).argmax(axis=1)
    named = (PUNCTUATION_CLASSES[mark] for mark in marks)
    ends = [word for word, mark in zip(words, named, strict=True) if mark == "stop"]
    assert ends == ["bread", "toaster"]
