"""A base on disk: what it holds, appending, killing and going on, opening what is damaged."""

import json
import subprocess
import sys

import pytest

from stepline.errors import ModelError, StoreError
from stepline.sieve_swap.text_base import build_base, open_base, prepared_base
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.vectors import read_array

SMALL = TextBaseSettings(shard=2, block=3, batch=4)
KITCHEN = [
    {"id": "tea", "title": "Tea", "steps": ["Boil the water. Pour it."], "licence": "CC0"},
    {
        "id": "soup",
        "title": "Soup",
        "steps": ["Boil water.", "Add 1 tsp. salt.", "Pour it!"],
        "url": "x.com/soup",
    },
    {"id": "none", "title": "Nothing", "steps": []},
    {"id": "tea", "title": "Tea again", "steps": ["Other words."]},
    {
        "id": "rice",
        "title": "Rice",
        "steps": ["Rinse the rice.", "Add 2 tsp. salt."],
        "ingredients": ["rice"],
    },
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
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def holders(base, row):
    """The numbers of all documents that hold a row, as the base's arrays say it."""
    numbers = []
    for part in sorted((base.folder / "parts").iterdir()):
        rows = read_array(part / "holder_rows.i64")
        numbers += read_array(part / "holders.i64")[rows == row].tolist()
    return numbers


def test_lines_that_say_the_same_share_a_row_and_keep_all_their_documents(base):
    assert [document.id for document in base.documents()] == ["tea", "soup", "rice"]
    assert base.step_count == 5
    assert base.rows_of(0).tolist() == [0, 1]
    assert base.rows_of(1).tolist() == [0, 2, 1]
    assert base.rows_of(2).tolist() == [3, 4]
    assert holders(base, 0) == holders(base, 1) == [0, 1]
    assert holders(base, 4) == [2]


def test_a_row_keeps_the_first_line_and_a_document_its_own_wording(base):
    [kept] = base.steps([1])
    assert (kept.id, kept.text, kept.source, kept.licence) == (
        "tea#1",
        "Pour it.",
        "kitchen.json",
        "CC0",
    )
    soup = base.document(1)
    assert [step.text for step in soup.steps] == ["Boil water.", "Add 1 tsp. salt.", "Pour it!"]
    assert (soup.source, soup.licence, base.document(2).ingredients) == (
        "x.com/soup",
        "stated",
        ("rice",),
    )


def test_the_manifest_counts_what_was_merged_and_left_out(base):
    [part] = base.manifest.parts
    assert (part.documents, part.read, part.same, part.near, part.steps) == (3, 7, 2, 0, 5)
    dropped = {drop.reason: (drop.count, drop.examples) for drop in part.sources[0].dropped}
    assert dropped == {
        "duplicate id": (1, ("tea",)),
        "no steps": (1, ("kitchen.json, 2: fields id, title, steps",)),
    }


def test_a_line_is_nearest_to_itself_and_absent_neighbours_say_so(base):
    rows, cosines = base.nearest(base.vectors([3]), 7)
    assert rows[0, 0] == 3
    assert cosines[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert rows[0, 5:].tolist() == [-1, -1]
    assert cosines[0, 5:].tolist() == [-1.0, -1.0]


def test_only_the_steps_of_the_documents_named_are_searched(base):
    rows, _ = base.nearest(base.vectors([0, 2]), 2, documents=[2])
    assert sorted(rows[0]) == sorted(rows[1]) == [3, 4]
    assert rows[1, 0] == 4  # one teaspoon is nearest to two teaspoons
    assert base.nearest(base.vectors([0]), documents=[])[0].tolist() == [[-1]]


def test_the_same_sources_again_change_nothing(base, tmp_path):
    before = everything(base.folder)
    again = build_base([base.folder.parent / "kitchen.json"], base.folder, SMALL, licence="stated")
    assert again.step_count == 5
    assert everything(base.folder) == before


def test_other_sources_need_append(base, tmp_path):
    with pytest.raises(StoreError, match="a text base of other sources or settings; add --append"):
        build_base([source(tmp_path, GARAGE)], base.folder, SMALL)


def test_what_is_appended_points_at_rows_that_were_there(tmp_path):
    build_base([source(tmp_path, KITCHEN)], tmp_path / "base", SMALL)
    first = everything(tmp_path / "base" / "parts" / "0001")
    grown = build_base(
        [source(tmp_path, GARAGE, "garage.json")], tmp_path / "base", SMALL, append=True
    )
    assert everything(tmp_path / "base" / "parts" / "0001") == first
    assert (grown.document_count, grown.step_count) == (4, 6)
    assert grown.rows_of(3).tolist() == [5, 0]
    assert holders(grown, 0) == [0, 1, 3]
    assert grown.steps([5])[0].text == "Lift the car."
    assert grown.nearest(grown.vectors([5]))[0].tolist() == [[5]]
    assert [drop.reason for drop in grown.manifest.parts[1].sources[0].dropped] == ["duplicate id"]


def test_a_base_of_nothing_can_be_opened_and_asked(tmp_path):
    empty = build_base([source(tmp_path, [])], tmp_path / "base", SMALL)
    assert (empty.document_count, empty.step_count, list(empty.documents())) == (0, 0, [])
    assert empty.nearest(empty.embed(["Mix."]))[0].tolist() == [[-1]]


def test_a_source_given_for_a_base_is_built_once(tmp_path):
    made = prepared_base(source(tmp_path, KITCHEN), tmp_path / "made", SMALL)
    assert (
        made.step_count
        == prepared_base(tmp_path / "made", tmp_path / "unused", SMALL).step_count
        == 5
    )
    assert not (tmp_path / "unused").exists()


# ---------------------------------------------------------------- kill -9

# Forks a build for every write of a file, kills it right after that write, takes it up and kills it
# once more, then lets it end. Prints the writes at which it was killed.
KILLED = """
import contextlib, os, signal, sys
from pathlib import Path
import numpy, pyarrow.parquet
from stepline.files import atomic_files as store
from stepline.sieve_swap.text_base import build, encoding, parquet_tables, vectors
from stepline.sieve_swap.text_base.settings import TextBaseSettings

source, place = map(Path, sys.argv[1:])
build.encoder_facts = lambda name: ("0", 4)
encoding.embed = lambda texts, **rest: numpy.array([[len(text), 1, 2, 3] for text in texts], numpy.float32)
write, left = store.atomic_path, 0

@contextlib.contextmanager
def deadly(path):
    global left
    with write(path) as partial:
        yield partial
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

for module in (store, vectors, parquet_tables):
    module.atomic_path = deadly

def built(folder, count):
    global left
    process = os.fork()
    if process == 0:
        left = count
        build.build_base([source], folder, TextBaseSettings(shard=30, block=40))
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
    items = [
        {"id": f"r{n}", "steps": [f"Stir pot {n} for {n} minutes.", "Serve hot."]}
        for n in range(60)
    ]
    command = [sys.executable, "-c", KILLED, source(tmp_path, items), tmp_path / "builds"]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    writes = int(done.stdout)
    whole = everything(tmp_path / "builds" / str(writes + 1))  # the one that nothing killed
    assert writes >= 15
    assert "manifest.json" in whole
    for count in range(1, writes + 1):
        assert everything(tmp_path / "builds" / str(count)) == whole, f"killed at write {count}"


# ---------------------------------------------------------------- damage


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

    monkeypatch.setattr(opened, "encoder_facts", lambda name: ("another", 384))
    with pytest.raises(ModelError, match="not the encoder that"):
        base.embed(["Mix."])
