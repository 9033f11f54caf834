"""A base on disk: what it holds, appending, killing and going on, opening what is damaged."""

import json
import subprocess
import sys

import pytest

from stepline.errors import ModelError, StoreError
from stepline.sieve_swap.text_base import build_base, open_base, open_or_build_base
from stepline.sieve_swap.text_base.settings import TextBaseSettings

SMALL = TextBaseSettings(block=3, batch=4)
SOUP = ["Boil water.", "Add 1 tsp. salt.", "Pour it!"]
KITCHEN = [
    {"id": "tea", "title": "Tea", "steps": ["Boil the water. Pour it."], "licence": "CC0"},
    {"id": "soup", "title": "Soup", "steps": SOUP, "url": "x.com/soup"},
    {"id": "none", "title": "Nothing", "steps": []},
    {"id": "tea", "title": "Tea again", "steps": ["Other words."]},
    {"id": "rice", "title": "Rice", "steps": ["Rinse the rice.", "Add 2 tsp. salt."]},
]
GARAGE = [
    {"id": "tyre", "title": "Tyre", "steps": ["Lift the car.", "Boil water."]},
    {"id": "soup", "title": "Soup again", "steps": ["Do nothing."]},
]


def source(folder, items, name="kitchen.json"):
    path = folder / name
    path.write_text(json.dumps(items))
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    return build_base([source(folder, KITCHEN)], folder / "base", SMALL, licence="stated")


def everything(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_lines_that_say_the_same_share_a_row(base):
    assert [document.id for document in base.documents()] == ["tea", "soup", "rice"]
    assert base.step_count == 5
    assert base.step_rows(0).tolist() == [0, 1]
    assert base.step_rows(1).tolist() == [0, 2, 1]
    assert base.step_rows(2).tolist() == [3, 4]


def test_a_row_keeps_the_first_line_and_a_document_its_own_wording(base):
    [kept] = base.steps([1])
    assert (kept.id, kept.text) == ("tea#1", "Pour it.")
    assert (kept.source, kept.licence) == ("kitchen.json", "CC0")
    _, soup, _ = base.documents()
    assert [step.text for step in soup.steps] == ["Boil water.", "Add 1 tsp. salt.", "Pour it!"]
    assert (soup.source, soup.licence) == ("x.com/soup", "stated")


def test_the_manifest_counts_what_was_merged_and_left_out(base):
    [part] = base.manifest.parts
    assert (part.documents, part.read, part.same, part.steps) == (3, 7, 2, 5)
    dropped = {drop.reason: (drop.count, drop.examples) for drop in part.sources[0].dropped}
    assert dropped == {
        "duplicate id": (1, ("tea",)),
        "no steps": (1, ("kitchen.json, 2: fields id, title, steps",)),
    }


def test_a_line_is_nearest_to_itself_and_absent_neighbours_say_so(base):
    rows, cosines = base.find_nearest_steps(base.vectors([3]), 7)
    assert rows[0, 0] == 3
    assert cosines[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert rows[0, 5:].tolist() == [-1, -1]
    assert cosines[0, 5:].tolist() == [-1.0, -1.0]


def test_only_the_steps_of_the_documents_named_are_searched(base):
    rows, _ = base.find_nearest_steps(base.vectors([0, 2]), 2, documents=[2])
    assert sorted(rows[0]) == sorted(rows[1]) == [3, 4]
    assert rows[1, 0] == 4  # one teaspoon is nearest to two teaspoons
    assert base.find_nearest_steps(base.vectors([0]), documents=[])[0].tolist() == [[-1]]


def test_the_same_sources_again_change_nothing(base, tmp_path):
    before = everything(base.folder)
    again = build_base([base.folder.parent / "kitchen.json"], base.folder, SMALL, licence="stated")
    assert again.step_count == 5
    assert everything(base.folder) == before


def test_a_base_of_other_sources_is_not_overwritten(base, tmp_path):
    with pytest.raises(StoreError, match="a text base of other sources or settings; give another"):
        build_base([source(tmp_path, GARAGE)], base.folder, SMALL)


def test_a_base_that_an_earlier_version_appended_to_is_refused(tmp_path):
    folder = build_base([source(tmp_path, KITCHEN)], tmp_path / "base", SMALL).folder
    tree = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(tree | {"parts": tree["parts"] * 2}))
    with pytest.raises(StoreError, match="has 2 parts.*; build it again from all its sources"):
        open_base(folder)


def test_several_sources_are_one_base_and_the_first_of_an_id_counts(tmp_path):
    sources = [source(tmp_path, KITCHEN), source(tmp_path, GARAGE, "garage.json")]
    both = build_base(sources, tmp_path / "base", SMALL)
    assert (both.document_count, both.step_count) == (4, 6)
    assert both.step_rows(3).tolist() == [5, 0]
    assert both.steps([5])[0].text == "Lift the car."
    assert both.find_nearest_steps(both.vectors([5]))[0].tolist() == [[5]]
    kitchen, garage = both.manifest.parts[0].sources
    assert (kitchen.documents, kitchen.steps, garage.documents, garage.steps) == (3, 7, 1, 2)
    assert [drop.reason for drop in garage.dropped] == ["duplicate id"]


def test_a_base_of_nothing_can_be_opened_and_asked(tmp_path):
    empty = build_base([source(tmp_path, [])], tmp_path / "base", SMALL)
    assert (empty.document_count, empty.step_count, list(empty.documents())) == (0, 0, [])
    assert empty.find_nearest_steps(empty.embed(["Mix."]))[0].tolist() == [[-1]]


def test_a_source_given_for_a_base_is_built_once(tmp_path):
    made = open_or_build_base(source(tmp_path, KITCHEN), tmp_path / "made", SMALL)
    opened = open_or_build_base(tmp_path / "made", tmp_path / "unused", SMALL)
    assert made.step_count == opened.step_count == 5
    assert not (tmp_path / "unused").exists()


# Forks a build for every write of a file, kills it right after that write, takes it up and kills it
# once more, then lets it end. Prints the writes at which it was killed.
KILLED = """
import contextlib, os, signal, sys
from pathlib import Path
import numpy, pyarrow.parquet
from stepline.files import atomic_files as store
from stepline.sieve_swap.text_base import build, vectors
from stepline.sieve_swap.text_base.settings import TextBaseSettings

source, place = map(Path, sys.argv[1:])
build.encoder_identity = lambda name: ("0", 4)
build.embed = lambda texts, **rest: numpy.array([[len(text), 1, 2, 3] for text in texts], numpy.float32)
write, left = store.atomic_path, 0

@contextlib.contextmanager
def deadly(path):
    global left
    with write(path) as partial:
        yield partial
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

for module in (store, vectors, build):
    module.atomic_path = deadly

def built(folder, count):
    global left
    process = os.fork()
    if process == 0:
        left = count
        build.build_base([source], folder, TextBaseSettings(block=40))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

count, died = 0, -signal.SIGKILL
while died == -signal.SIGKILL:
    count += 1
    died = built(place / str(count), count)
    built(place / str(count), 3)
    assert built(place / str(count), 0) == 0
print(count - 1)
"""


@pytest.mark.slow
def test_a_build_killed_at_any_write_goes_on_to_the_same_bytes(tmp_path):
    items = []
    for n in range(60):
        items.append({"id": f"r{n}", "steps": [f"Stir pot {n} for {n} minutes.", "Serve hot."]})
    command = [sys.executable, "-c", KILLED, source(tmp_path, items), tmp_path / "builds"]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    writes = int(done.stdout)
    whole = everything(tmp_path / "builds" / str(writes + 1))  # the one that nothing killed
    assert writes >= len(whole) >= 4, sorted(whole)  # each file has its moment
    assert "manifest.json" in whole
    for count in range(1, writes + 1):
        assert everything(tmp_path / "builds" / str(count)) == whole, f"killed at write {count}"


def test_a_folder_without_a_base_says_how_to_make_one(tmp_path):
    with pytest.raises(
        StoreError, match="no text base here; `stepline text-base build SOURCE --out"
    ):
        open_base(tmp_path)


@pytest.mark.parametrize("name", ["vectors.npy", "steps.parquet", "manifest.json"])
def test_a_damaged_file_is_reported_in_one_line(tmp_path, name):
    folder = build_base([source(tmp_path, KITCHEN)], tmp_path / "base", SMALL).folder
    path = next(folder.rglob(name))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(
        StoreError, match=rf"{name}: (not readable|not a text base).*build"
    ) as error:
        open_base(folder).steps([0])
    assert "\n" not in str(error.value)


def test_vectors_of_another_encoder_are_refused(base, monkeypatch):
    from stepline.sieve_swap.text_base import base as opened

    monkeypatch.setattr(opened, "encoder_identity", lambda name: ("another", 384))
    with pytest.raises(ModelError, match="not the encoder that"):
        base.embed(["Mix."])
