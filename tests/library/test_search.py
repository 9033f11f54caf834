"""Search over a folder of records: the right moment is among the first, and the index follows the
folder."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from transcripts import transcript_of

from stepline.errors import SettingsError, StoreError
from stepline.library import SearchIndex
from stepline.library.search import INDEX_FILE
from stepline.records import Record, Span, Step, Video
from stepline.storage import read_record, write_record

DEMO = Path(__file__).resolve().parents[1] / "golden" / "expected" / "demo" / "demo.json"


def sink():
    told = [
        "welcome back to the channel",
        "unscrew the trap under the sink and let it drain",
        "wash your hands well",
    ]
    heard = transcript_of(*told, every=9.0, seconds=8.0, language=None)
    seen = {"status": "seen", "basis": "network", "score": 0.9, "spans": (Span(12, 20),)}
    seen["seen"] = ("for: its words are on screen: CATCH THE WATER",)
    said = {"said": Span(13, 17), "status": "said_only", "score": 0.3, "sources": (1,)}
    steps = (
        Step(id="1", text="unscrew the trap", at=15.5, said=Span(9, 13), sources=(1,), **seen),
        Step(id="2", text="let it drain", **said),
        Step(id="3", text="call a plumber", status="not_found"),
    )
    video = Video(id="sink", title="A blocked sink", duration=60.0)
    return Record(id="sink", video=video, transcript=heard, steps=steps)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A folder whose index is made once; tests work on copies."""
    folder = tmp_path_factory.mktemp("indexed")
    shutil.copy(DEMO, folder / "demo.json")
    (folder / "demo.html").touch()
    write_record(sink(), folder / "sink.json")
    (folder / "notes.json").write_text('{"no": "record"}')
    index = SearchIndex(folder)
    assert index.update().read_count == 3
    index.close()
    return folder


@pytest.fixture
def folder(indexed, tmp_path):
    no_index = shutil.ignore_patterns(f"{INDEX_FILE}*")
    return shutil.copytree(indexed, tmp_path, ignore=no_index, dirs_exist_ok=True)


@pytest.fixture
def index(indexed, folder):
    shutil.copy2(indexed / INDEX_FILE, folder / INDEX_FILE)
    index = SearchIndex(folder)
    assert index.update().read_count == 0
    yield index
    index.close()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("whisk", "whisk the batter until it's smooth"),
        ("stirring until there are no lumps", "whisk the batter until it's smooth"),
        ("how many eggs", "crack two eggs into the bowl"),
        ("melt fat", "put the butter in the pan"),
        ("sweet topping", "pour the honey over the pancakes"),
        ("plumbing under the basin", "unscrew the trap"),
        ("catching water", "unscrew the trap"),  # by what is written in its picture
    ],
)
def test_a_moment_is_found_by_its_words_and_by_its_meaning(index, query, text):
    assert text in [moment.text for moment in index.search(query)]


@pytest.mark.parametrize(
    "query", "fabego,ruzo mitaka,neutrino mass,quarterly tax return".split(",")
)
def test_made_words_and_other_things_are_answered_by_nothing(index, query):
    assert index.search(query) == []


def test_a_query_that_shares_only_function_words_finds_nothing_by_words(folder):
    index = SearchIndex(folder, embedder=None)
    index.update()
    assert index.search("under")  # nothing else is left
    assert index.search("fly under the radar") == []
    assert index.search("go under a sink")
    index.close()


def test_letters_from_the_keyboard_are_answered_by_nothing(tmp_path):
    told = ["number", "of Shouty's behaviour", "that's the '\\d' in the", "Qt"]
    heard = transcript_of(*told, every=9.0, seconds=8.0, language=None)
    video = Video(id="talk", duration=60.0)
    record = Record(id="talk", video=video, transcript=heard)
    write_record(record, tmp_path / "talk.json")
    index = SearchIndex(tmp_path)
    index.update()
    assert index.search("asdfgh qwerty") == []
    assert index.search("how many")[0].text == "number"
    index.close()


def test_an_answer_is_a_moment_with_its_verdict_and_a_link(index):
    (shown, *_) = index.search("unscrew the trap")
    assert (shown.video, shown.title, shown.kind) == ("sink", "A blocked sink", "step")
    assert (shown.start, shown.end) == (12, 20)
    # it has no page
    assert (shown.status, shown.score, shown.file, shown.link) == ("seen", 0.9, "sink.json", None)
    (said, *_) = index.search("drain it")
    assert (said.text, said.status, said.start) == ("let it drain", "said_only", 13)
    plumber = index.search("plumber")[0]
    assert (plumber.start, plumber.status) == (None, "not_found")
    assert index.search("whisk the batter")[0].link == "demo.html#t=52"
    talk = index.search("welcome back to the channel")[0]
    assert (talk.kind, talk.status, talk.start) == ("sentence", None, 0)


def test_a_sentence_answers_by_that_of_its_steps_which_is_meant(index):
    found = [moment.text for moment in index.search("drain under the sink", max_moments=20)]
    assert "unscrew the trap under the sink and let it drain" not in found
    assert {"let it drain", "unscrew the trap"} <= set(found[:3])
    assert len(found) == len(set(found))


def test_words_of_scripts_without_spaces_are_found_inside_a_sentence(tmp_path):
    texts = (
        "玉ねぎを薄く切る",
        "牛乳を注ぐ",
        "塩と胡椒を入れる",
        "將洋蔥切碎",
        "หั่นหัวหอม",
        "slice the onion",
    )
    steps = tuple(Step(id=text, text=text, status="not_found") for text in texts)
    write_record(Record(id="a", video=Video(id="a"), steps=steps), tmp_path / "a.json")
    index = SearchIndex(tmp_path, embedder=None)
    index.update()
    queries = ("玉ねぎはどう切るの", "牛乳", "胡椒", "洋蔥", "หัวหอม", "onion")
    assert [index.search(query)[0].text for query in queries] == list(texts)
    index.close()


def test_a_text_with_the_whole_query_as_a_phrase_comes_first(tmp_path):
    texts = ("water the garden", "carry the can with the Garden-Water out of the shed every day")
    steps = tuple(Step(id=str(n), text=text) for n, text in enumerate(texts))
    write_record(Record(id="v", video=Video(id="v"), steps=steps), tmp_path / "v.json")
    index = SearchIndex(tmp_path, embedder=None)
    index.update()
    assert [moment.text for moment in index.search("garden water")] == [*reversed(texts)]
    assert [moment.text for moment in index.search("water")] == [*texts]
    index.close()


def test_only_what_changes_is_read_again(index, folder):
    assert index.update().read_count == 0  # nor what is no record
    more = sink().steps[0].model_copy(update={"text": "tighten the nut", "seen": ()})
    write_record(sink().model_copy(update={"steps": (more,)}), folder / "sink.json")
    os.utime(folder / "sink.json", ns=(1, 1))
    update = index.update()
    assert update.read_count == 1
    assert index.search("tighten")[0].text == "tighten the nut"
    found = index.search("plumber", max_moments=100)
    assert "call a plumber" not in [moment.text for moment in found]
    (folder / "sink.json").unlink()
    index.update()
    assert {moment.video for moment in index.search("tighten the nut", max_moments=100)} == {"demo"}


def test_without_the_weights_words_alone_are_searched_and_meaning_is_added_later(folder):
    index = SearchIndex(folder, None)
    index.update()
    assert [moment.text for moment in index.search("plumbers")] == ["call a plumber"]
    assert index.search("stirring") == []
    index.close()
    index = SearchIndex(folder)
    assert index.update().read_count == 2
    assert index.search("plumbing")


def test_a_damaged_index_is_made_again(index, folder):
    index.close()
    (folder / INDEX_FILE).write_bytes(b"no database" * 100)
    again = SearchIndex(folder)
    assert again.update().read_count == 3
    assert again.search("whisk")
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        "PRAGMA user_version = 99",
        "UPDATE moment SET start = start + 8 WHERE text = 'unscrew the trap'",
        "UPDATE moment SET score = 0.1 WHERE text = 'let it drain'",
        "UPDATE file SET title = 'A blocked sinl' WHERE video = 'sink'",
        "UPDATE file SET vectors = zeroblob(length(vectors)) WHERE video = 'sink'",
        "DELETE FROM moment WHERE text = 'call a plumber'",
        # The words alone: a moment is found by another word than it has.
        "INSERT INTO words(rowid, spaced) SELECT id, 'giraffe' FROM moment WHERE kind = 'sentence'",
    ],
)
def test_an_index_whose_values_changed_is_made_again(index, folder, change):
    right = index.search("unscrew the trap", max_moments=50)
    index.close()
    with sqlite3.connect(folder / INDEX_FILE) as database:
        database.execute(change)
    database.close()
    again = SearchIndex(folder)
    assert again.update().read_count == 3
    assert again.search("unscrew the trap", max_moments=50) == right
    again.close()
    # One that did not change is kept.
    again = SearchIndex(folder)
    assert again.update().read_count == 0
    again.close()


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "x*", "-", "'; DROP TABLE file; --", "ü" * 5000, "a:" * 40]
)
def test_a_query_is_words_never_syntax(index, query):
    if any(letter.isalnum() for letter in query):
        index.search(query)
    else:
        with pytest.raises(SettingsError, match="no word in it"):
            index.search(query)
    assert index.search("whisk")


def test_an_invalid_folder_and_an_index_that_cannot_be_kept_are_one_line(
    tmp_path, monkeypatch, folder
):
    with pytest.raises(StoreError, match="no such folder"):
        SearchIndex(tmp_path / "gone")
    monkeypatch.setattr(os, "access", lambda *_: False)  # a folder that others own
    (tmp_path / "file").touch()
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="; set STEPLINE_CACHE to a folder that can be written"):
        SearchIndex(folder)
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    index = SearchIndex(folder, None)
    assert index.path.parent == tmp_path / "cache" / "search"
    index.update()
    assert index.search("whisk")


def test_a_folder_of_videos_alone_is_not_searched(tmp_path, stepline):
    (tmp_path / "v.mp4").write_bytes(b"film")
    result = stepline("search", tmp_path, "whisk")
    assert result.exit_code == 1
    assert "no record in it; give the output folder of `stepline steps`" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["v.mp4"]


def test_the_command_prints_moments_and_json(folder, stepline):
    shown = stepline("search", folder, "whisk", "the", "batter")
    assert shown.exit_code == 0
    assert "◐ 0:52 – 0:56     Whisk the batter until it's smooth\n" in shown.stdout
    assert f"Banana pancakes · {folder / 'demo.html#t=52'}" in shown.stdout
    assert "3 files read into" in shown.stderr
    asked = stepline("search", folder, "whisk the batter", "--json", "--most", "2")
    first, _ = json.loads(asked.stdout)
    names = "video title kind start end text status basis doubt score file link"
    title, text = read_record(DEMO).video.title or "demo", "whisk the batter until it's smooth"
    values = ["demo", title, "step", 52.0, 56.96, text, "placed", None, None, None]
    values += ["demo.json", "demo.html#t=52"]
    assert first == dict(zip(names.split(), values, strict=True))
    assert stepline("search", folder, "--", "-").exit_code == 1
