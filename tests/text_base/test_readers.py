"""Each form of how-to text is read; what cannot be is counted by its reason and costs nothing
else."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from stepline.errors import DatasetError
from stepline.records import Rejected
from stepline.sieve_swap.text_base import Document, read_source, readers
from stepline.sieve_swap.text_base.settings import TextBaseSettings

HEADER = ",title,ingredients,directions,link,source,NER\n"
SOUP = '0,Soup,"[""1 c. water"", ""salt""]","[""Boil water. Add salt."", ""Serve.""]",www.x.com/1,Gathered,[]\n'


def read(path, **settings):
    items = list(read_source(path, TextBaseSettings(**settings), "CC0"))
    reasons = Counter(item.reason for item in items if isinstance(item, Rejected))
    return [item for item in items if isinstance(item, Document)], dict(reasons)


def written(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def texts(document):
    return [step.text for step in document.steps]


def test_a_recipenlg_row_keeps_its_link_and_the_licence_stated(tmp_path):
    [soup], reasons = read(written(tmp_path, "full_dataset.csv", HEADER + SOUP))
    assert (soup.id, soup.title) == ("full_dataset-0", "Soup")
    assert texts(soup) == ["Boil water.", "Add salt.", "Serve."]
    assert soup.steps[2].id == "full_dataset-0#2"
    assert (soup.steps[2].source, soup.steps[2].licence) == ("www.x.com/1", "CC0")
    assert reasons == {}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'7,Open quote,"[""a""]","[""b"", www,Gathered,x\n', "quote never closed"),
        (b"7,Short row\n", "wrong number of columns"),
        (b"7,No steps,[],[],w,Gathered,[]\n", "no steps"),
        (b'7,Cut list,[],"[""a"", ""b",w,Gathered,[]\n', "broken list cell"),
        (b"7,\x00\x01junk,[],[],w,Gathered,[]\n", "binary junk"),
        (b"7,\xff\xfe,[],[],w,Gathered,[]\n", "not UTF-8"),
        (b'7,Text after"quote" x,"[]"y,[],w,Gathered,[]\n', "broken csv row"),
        (b'7,Deep,[],"' + b"[" * 100_000 + b'",w,Gathered,[]\n', "broken list cell"),
        (b'7,Long,[],"[""' + b"word " * 300_000 + b'""]",w,Gathered,[]\n', "document too long"),
    ],
)
def test_a_broken_row_is_counted_and_the_rows_around_it_are_read(tmp_path, bad, reason):
    soup = SOUP.encode()
    rows = HEADER.encode() + soup + bad + soup.replace(b"0,", b"2,", 1)
    path = written(tmp_path, "r.csv", rows)
    documents, reasons = read(path)
    assert [document.id for document in documents] == ["r-0", "r-2"]
    assert reasons == {reason: 1}


def test_a_line_longer_than_any_row_is_skipped_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 1_000)
    path = written(tmp_path, "r.csv", HEADER + "x" * 5_000 + "\n" + SOUP)
    documents, reasons = read(path)
    assert (len(documents), reasons) == (1, {"line too long": 1})


def test_a_cell_may_span_lines_and_hold_plain_text(tmp_path):
    [one], _ = read(written(tmp_path, "t.csv", 'title,steps\nTea,"Boil water.\nPour it."\n'))
    assert (one.id, texts(one)) == ("t-1", ["Boil water.", "Pour it."])


def test_a_csv_without_steps_says_which_columns_hold_them(tmp_path):
    with pytest.raises(
        DatasetError, match=r"no column of steps; the header must name one of steps, directions"
    ):
        read(written(tmp_path, "t.csv", "a,b\n1,2\n"))


def test_a_gzip_file_that_is_cut_off_gives_what_came_before(tmp_path):
    whole = gzip.compress((HEADER + SOUP + "".join(f"{n}x{n}\n" * 3 for n in range(900))).encode())
    documents, reasons = read(written(tmp_path, "r.csv.gz", whole[: len(whole) // 2]))
    assert len(documents) == 1
    assert reasons["file cut off"] == 1


NAMED, LINES = {"id": "tea", "name": "Tea"}, ["Boil water.", "Pour it."]
BOIL, POUR = ({"@type": "HowToStep", "text": text} for text in LINES)
SECTION = {"@type": "HowToSection", "itemListElement": [BOIL]}
INSTRUCTIONS = {"recipeInstructions": [SECTION, POUR]}
TASK = {"task_full_name": "Tea", "task_text": {"simplified_headline_list": LINES}}
FORMS = {
    "by id": {"tea": {"title": "Tea", "steps": ["Boil water. Pour it."]}},
    "a list": [{"name": "Tea", "instructions": "Boil water.\nPour it.", "id": "tea"}],
    "schema.org": NAMED | {"@context": "https://schema.org", "@type": "Recipe"} | INSTRUCTIONS,
    "a graph": {"@context": "x", "@graph": [NAMED | {"steps": LINES}]},
    "wikihow tasks": {"tea": TASK},
    "after a version": {"version": 1, "tea": {"title": "Tea", "steps": LINES}},
    "wikihow videos": {"tea": {"title": "Tea", "steps": [{"text": text} for text in LINES]}},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_json_gives_the_same_steps(tmp_path, form):
    [tea], reasons = read(written(tmp_path, "a.json", json.dumps(FORMS[form])))
    assert (tea.id, tea.title, texts(tea)) == ("tea", "Tea", ["Boil water.", "Pour it."])
    assert reasons == {}


def test_a_json_file_larger_than_the_window_is_read_item_by_item(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_BYTES", 64)
    whole = {}
    for n in range(200):
        steps = [f"Stir {'and stir ' * (n % 40)}pot {n}."]
        whole[f"r{n}"] = {"title": f"No {n}", "steps": steps}
    documents, reasons = read(written(tmp_path, "a.json", json.dumps(whole)))
    assert [d.id for d in documents] == list(whole)
    assert texts(documents[7]) == [f"Stir {'and stir ' * 7}pot 7."]
    assert reasons == {}


def test_json_that_breaks_in_the_middle_keeps_what_came_before(tmp_path):
    path = written(
        tmp_path, "a.json", '[{"id": "a", "steps": ["Mix it."]}, {"id": "b", "steps": [oops'
    )
    documents, reasons = read(path)
    assert ([d.id for d in documents], reasons) == (["a"], {"broken JSON": 1})


def test_a_broken_json_line_costs_itself_only(tmp_path):
    lines = ['{"id": "a", "steps": ["Mix it."]}', "{oops", '"text"']
    lines.append('{"id": "b", "steps": ["Bake it."]}')
    documents, reasons = read(written(tmp_path, "a.jsonl", "\n".join(lines)))
    assert [d.id for d in documents] == ["a", "b"]
    assert reasons == {"broken JSON": 1, "not a document": 1}


MANUAL = """---
title: Fix a tap
licence: CC BY 4.0
---
An old tap drips.

## Tools
- wrench

## Steps
1. Close the valve.
   Then wait.
2. Turn the nut. Take it off.
"""


def test_numbered_items_of_a_page_are_its_steps_and_tools_are_not(tmp_path):
    written(tmp_path, "tap.md", MANUAL)
    written(tmp_path, "README.md", "About these manuals.")
    text = "Wash hands\n==========\n\nWet them. Rub with\nsoap for 20 sec. or more."
    written(tmp_path, "note.txt", text)
    (note, tap), reasons = read(tmp_path)
    assert (tap.id, tap.title, tap.licence) == ("tap", "Fix a tap", "CC BY 4.0")
    assert texts(tap) == ["Close the valve.", "Then wait.", "Turn the nut.", "Take it off."]
    assert note.title == "Wash hands"
    assert texts(note) == ["Wet them.", "Rub with soap for 20 sec. or more."]
    assert reasons == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\x00\x01\x02", "binary junk"), (b"ab\xff\xfe", "not UTF-8"), (b"12 34", "no steps")],
)
def test_a_text_file_that_is_none_is_counted(tmp_path, data, reason):
    assert read(written(tmp_path, "a.txt", data)) == ([], {reason: 1})


def test_a_megabyte_of_text_is_not_a_step(tmp_path):
    assert read(written(tmp_path, "a.txt", "word " * 400_000)) == ([], {"document too long": 1})
    documents, reasons = read(written(tmp_path, "a.txt", "Mix it. Stir " + "word " * 300))
    assert (texts(documents[0]), reasons) == (["Mix it."], {"step too long": 1})


def test_parquet_rows_are_read_and_an_invalid_file_is_an_error(tmp_path):
    rows = [
        {"id": "tea", "title": "Tea", "steps": ["Boil water. Pour it."]},
        {"id": "x", "title": "None", "steps": []},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    [tea], reasons = read(tmp_path / "a.parquet")
    assert (texts(tea), reasons) == (["Boil water.", "Pour it."], {"no steps": 1})
    with pytest.raises(DatasetError, match="not a Parquet file"):
        read(written(tmp_path, "b.parquet", b"junk"))
    # the second not UTF-8
    titles = pyarrow.array([b"Tea", b"caf\xe9"], pyarrow.binary()).view(pyarrow.string())
    lines = pyarrow.table({"title": titles, "steps": [["Boil water."], ["Pour it."]]})
    pyarrow.parquet.write_table(lines, tmp_path / "c.parquet")
    [tea], [cut] = read(tmp_path / "c.parquet")
    assert (tea.title, cut) == ("Tea", "file cut off")


def test_a_source_of_no_known_form_says_which_there_are(tmp_path):
    with pytest.raises(DatasetError, match=r"form '\.doc' unknown; known: \.csv"):
        read(written(tmp_path, "a.doc", "x"))
    with pytest.raises(DatasetError, match="no such file or folder"):
        read(tmp_path / "none")


# real texts are not part of the project
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.skipif(not SHARED.exists(), reason="the shared real texts are not beside the project")
@pytest.mark.parametrize(
    ("name", "documents", "fewest_steps"),
    [
        ("recipes_based_cooking/recipes.json.gz", 217, 2_000),
        ("youwikihow/tasks.json.gz", 911, 5_000),
        ("ivsum_wikihow/how_to_steps.json.gz", 1_457, 20_000),
    ],
)
def test_real_collections_are_read_whole(name, documents, fewest_steps):
    found, reasons = read(SHARED / name)
    assert (len(found), reasons) == (documents, {})
    assert sum(len(document.steps) for document in found) >= fewest_steps
    assert all(
        document.title and all(len(step.text) > 1 for step in document.steps) for document in found
    )
