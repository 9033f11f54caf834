"""Marked narration is read, labelled and learned; the file is what the writer takes."""

import gzip
import json

import numpy as np
import pytest

from stepline.errors import DatasetError
from stepline.text.narration import NarrationTagger
from stepline.text.narration.marks import MARKS_FILE, MarkReader
from stepline.text.narration.words import WORD_EDITS, WORD_MARKS
from stepline.writing.training.labels import align_words, edit_labels, word_stem
from stepline.writing.training.marked import MarkedNarration, MarkedSentence, read_marked_narrations

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


def edits_of(text, *steps, kind="step"):
    (label,) = edit_labels([MarkedSentence(text, kind, steps)])
    return [WORD_EDITS[edit] for edit in label.edits], label.verb


def test_a_text_is_read_with_kinds_steps_and_repeats(folder):
    (narration,) = read_marked_narrations(folder)
    assert (narration.name, narration.group, narration.is_punctuated) == (
        "toast",
        "breakfast",
        True,
    )
    assert [row.kind for row in narration.sentences][:4] == ["talk", "step", "step", "warning"]
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


def test_a_missing_or_other_file_is_one_line(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"):
        read_marked_narrations(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"v": 3}')
    with pytest.raises(DatasetError, match="needs"):
        read_marked_narrations(tmp_path / "other.json")


def test_words_are_aligned_in_their_order():
    assert align_words(["we", "add", "the", "salt"], ["Add", "salt"]) == [1, 3]
    assert align_words(["salt"], ["pepper"]) == [None]
    assert word_stem("adding") == word_stem("Add")


def test_what_the_editor_dropped_kept_and_named():
    edits, verb = edits_of("So put it in the toaster", "Put the bread in the toaster")
    assert edits == ["drop", "verb", "name", "keep", "keep", "keep"]
    assert verb == "-"


def test_a_verb_that_no_one_said_is_a_front_verb():
    edits, verb = edits_of("Two minutes.", "Toast the bread for two minutes")
    assert edits == ["keep", "keep"]
    assert verb == "toast"


def test_a_negation_is_kept_in_a_warning():
    edits, _ = edits_of("Don't touch the grill.", "Do not touch the grill", kind="warning")
    assert edits[0] == "keep"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pytest.importorskip("torch")
    from stepline.writing.training.mark_training import MarkTrainSettings
    from stepline.writing.training.train import TaggerTrainSettings, train_writer_run

    folder = tmp_path_factory.mktemp("texts")
    (folder / "toast.txt").write_text(TEXT, encoding="utf-8")
    learning = {
        "epochs": 30,
        "rank": 4,
        "first_layer": 5,
        "learning_rate": 5e-3,
        "hidden_share": 0.05,
    }
    settings = TaggerTrainSettings(**learning, marks=MarkTrainSettings(**learning))
    runs = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    return [train_writer_run([folder], run, settings) for run in runs]


def test_a_narration_can_be_learned_by_heart(trained):
    tagger = NarrationTagger(trained[0])
    texts = ["Hello and welcome.", "So we're going to cut two slices of bread."]
    talk, step = tagger.read_sentences(texts)
    assert step.step_probability > talk.step_probability + 0.3


def test_the_same_training_gives_the_same_bytes(trained):
    one, two = trained
    assert one.read_bytes() == two.read_bytes()


def test_marks_are_learned_next_to_it_with_the_same_bytes(trained):
    one, two = (path.parent / MARKS_FILE for path in trained)
    assert one.read_bytes() == two.read_bytes()
    words = [
        "so",
        "we're",
        "going",
        "to",
        "cut",
        "two",
        "slices",
        "of",
        "bread",
        "put",
        "it",
        "in",
        "the",
        "toaster",
    ]
    marks = MarkReader(one).read_marks(words).argmax(axis=1)
    ends = [word for word, mark in zip(words, marks, strict=True) if WORD_MARKS[mark] == "stop"]
    assert ends == ["bread", "toaster"]


def test_without_punctuated_narration_no_marks_are_learned(tmp_path):
    pytest.importorskip("torch")
    from stepline.writing.training.mark_training import MarkTrainSettings, train_marks

    narration = MarkedNarration("toast", "breakfast", (MarkedSentence("cut it", "step"),))
    assert train_marks([narration], MarkTrainSettings(), tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_speech_without_kinds_is_read_for_its_marks_alone(tmp_path):
    text = "# subject: toast\n# form: speech\nSo, hello.\nToday we make toast.\n"
    (tmp_path / "toast.txt").write_text(text, encoding="utf-8")
    (narration,) = read_marked_narrations(tmp_path)
    assert (narration.is_punctuated, narration.has_kinds) == (True, False)
    assert [row.text for row in narration.sentences] == ["So, hello.", "Today we make toast."]


def test_the_files_weights_are_those_of_torch(trained):
    from stepline.text.narration.tagger import read_tagger_file

    weights, front_verbs = read_tagger_file(trained[0])
    assert front_verbs[0] == "-"
    assert weights["head.kind.weight"].dtype == np.float32


def test_without_a_step_there_is_nothing_to_learn(tmp_path):
    pytest.importorskip("torch")
    from stepline.writing.training.train import TaggerTrainSettings, train_writer_run

    (tmp_path / "talk.txt").write_text("t\tHello.\n")
    with pytest.raises(DatasetError, match="no sentence is marked as a step"):
        train_writer_run([tmp_path], tmp_path / "run", TaggerTrainSettings())
