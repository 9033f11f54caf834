import gzip

import pytest

from stepline.errors import ModelError
from stepline.evaluate.meteor.resources import MIX, WORD_BITS, load_phrases, word_number

ROWS = [("at the moment", "currently"), ("at the moment", "now"), ("a lot", "much"), ("much", "a lot")]


def number(phrase):
    value = 0
    for word in phrase.split():
        value = (value * MIX + word_number(word)) & WORD_BITS
    return value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "meteor" / "data").mkdir(parents=True)
    text = "".join(f"0.5\n{phrase}\n{paraphrase}\n" for phrase, paraphrase in ROWS)
    (tmp_path / "meteor" / "data" / "paraphrase-en.gz").write_bytes(gzip.compress(text.encode()))
    load_phrases.cache_clear()
    yield tmp_path
    load_phrases.cache_clear()


def test_a_phrase_has_its_paraphrases_in_the_order_of_the_file(folder):
    table = load_phrases(folder)
    paraphrases, is_target = table.entry(number("at the moment"))
    assert list(paraphrases) == [number("currently"), number("now")]
    assert not is_target
    assert table.entry(number("much")) == ({number("a lot"): 0}, True)
    assert table.entry(number("at the")) == ({}, False)


def test_the_bitmap_passes_every_known_phrase(folder):
    numbers = [number(phrase) for row in ROWS for phrase in row]
    assert load_phrases(folder).plausible(numbers) == list(range(len(numbers)))


def test_the_compiled_table_is_read_again_and_nothing_partial_is_left(folder):
    load_phrases(folder)
    (compiled,) = (folder / "cache").iterdir()
    before = sorted((path.name, path.stat().st_mtime_ns) for path in compiled.iterdir())
    load_phrases.cache_clear()
    load_phrases(folder)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in compiled.iterdir()) == before
    assert [path.name for path in (folder / "cache").iterdir()] == [compiled.name]


DAMAGED = [b"not gzip", gzip.compress(b"0.5\nonly a phrase\n"), gzip.compress(b"x" * 99)[:20]]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_table_is_refused_and_leaves_nothing_behind(folder, content):
    (folder / "meteor" / "data" / "paraphrase-en.gz").write_bytes(content)
    from stepline.evaluate.ptb.official_files import fingerprint

    fingerprint.cache_clear()
    with pytest.raises(ModelError, match="cannot be made"):
        load_phrases(folder)
    assert not list((folder / "cache").iterdir())


def test_a_folder_without_the_table_names_the_extra(tmp_path):
    with pytest.raises(ModelError, match=r"stepline\[evaluate\]"):
        load_phrases(tmp_path)
