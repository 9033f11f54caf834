import gzip
import hashlib
import math
import subprocess
import sys

import pytest
from metric_cases import case, needs_cases, needs_tables

from stepline.errors import DatasetError, ModelError
from stepline.evaluate.meteor import Meteor, score, words
from stepline.evaluate.meteor.score import CaptionIndexer, find_candidates
from stepline.evaluate.meteor.tables import HASH_FACTOR, HASH_MASK, load_lexicon, load_phrases
from stepline.evaluate.ptb import KNOWN_DIGESTS, PARAPHRASE_TABLE
from stepline.files.digests import hash_text

TOLERANCE = 1e-9  # asked: 1e-4 on 99 % of the pairs


@pytest.fixture(scope="module")
def meteor():
    return Meteor()


@pytest.fixture(scope="module")
def reader():
    return CaptionIndexer(load_lexicon(), load_phrases())


def near(values):
    return pytest.approx(values, abs=TOLERANCE)


@needs_tables
@needs_cases
def test_every_official_pair_and_aggregate_is_met_in_both_roles(meteor):
    wanted = case("meteor_pairs")["single_reference"]
    pairs = wanted["pairs"]
    scored = meteor.compare([((pair["reference"],), pair["hypothesis"]) for pair in pairs])
    swapped = meteor.compare([((pair["hypothesis"],), pair["reference"]) for pair in pairs])
    assert scored.segments == near([pair["score"] for pair in pairs])
    assert swapped.segments == near([pair["score_swapped_roles"] for pair in pairs])
    assert scored.aggregate == near(wanted["aggregate"])
    assert swapped.aggregate == near(wanted["aggregate_swapped_roles"])


@needs_tables
@needs_cases
def test_with_several_references_the_best_one_counts(meteor):
    wanted = case("meteor_pairs")["multi_reference"]
    scored = meteor.compare([(item["references"], item["hypothesis"]) for item in wanted["items"]])
    assert scored.segments == near([item["score"] for item in wanted["items"]])
    assert scored.aggregate == near(wanted["aggregate"])


@needs_tables
@needs_cases
def test_meteor_of_odd_captions_is_that_of_the_official_scorer(meteor):
    edges = case("caption_edge_cases")
    wanted = edges["meteor_agg_vs_mean"]
    scored = meteor.compare([(wanted["gts"][key], wanted["res"][key][0]) for key in wanted["gts"]])
    assert scored.segments == near(wanted["sentence_scores"])
    assert scored.aggregate == near(wanted["aggregate(score[0])"])
    swapped = meteor.segment(["whisk eggs"], "whisk the eggs in a large bowl")
    name = "meteor_swapped(ref=whisk eggs,hyp=whisk the eggs in a large bowl)"
    assert swapped == pytest.approx(edges[name])
    assert meteor.segment(["toast the bread"], "toast the bread") == edges["meteor_exact"]
    assert meteor.segment(["abc123 !@ #"], "toast the bread") == 0.0


@needs_tables
@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        # content words cut/onions against cut/beef: P = R = 1/2, one chunk of one match: penalty
        # .6 * 1 ** .2
        ("cut onions", "cut beef", 0.5 * (1 - 0.6)),
        # a function word weighs a third: "the" .25 of "the oven" 1.0: P = R = .25
        ("the oven", "the pizza", 0.25 * (1 - 0.6)),
        # all four words match in two chunks out of order
        ("onions garlic beef pork", "beef pork onions garlic", 1 - 0.6 * math.pow(2 / 4, 0.2)),
        *((a, b, 0.0) for a, b in (("", "cut"), ("cut", ""), ("", ""), ("...", "!"))),
    ],
)
def test_a_segment_is_worth_what_the_formula_says(meteor, reference, hypothesis, expected):
    assert meteor.segment([reference], hypothesis) == pytest.approx(expected)
    assert meteor.compare([]).aggregate == 0.0


@needs_tables
def test_captions_that_repeat_each_other_without_end_are_refused_quickly(meteor):
    with pytest.raises(DatasetError, match="shorten them"):
        meteor.segment(["the pan " * 10_000], "the pan " * 10_000)
    with pytest.raises(DatasetError, match="shorten them"):
        meteor.segment(["cut " * 300], "slice " * 300)
    assert 0.0 < meteor.segment(["add the salt"], "salt " + "qwerty " * 14_000) < 0.01


@needs_tables
def test_words_match_by_stem_synonym_and_paraphrase(reader):
    texts = ("chopped mix at the moment", "chop blend currently")
    found = find_candidates(*map(reader.index, texts))
    kinds = [{match.module for match in options} for options in found]
    wanted = (score.STEM_MODULE, score.SYNONYM_MODULE, score.PARAPHRASE_MODULE)
    assert all(module in some for module, some in zip(wanted, kinds, strict=False))
    assert any(match.other_length == 3 for match in found[2])  # "at the moment"


@needs_tables
def test_irregular_forms_share_the_synonyms_of_their_base():
    lexicon = load_lexicon()
    assert lexicon.synonym_sets("cut") <= lexicon.synonym_sets("cutting")
    assert lexicon.synonym_sets("dice") & lexicon.synonym_sets("dices")
    assert lexicon.synonym_sets("zzz") == frozenset()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Add salt, pepper.", ["add", "salt", ",", "pepper", "."]),
        ("1,000 g of a,b", ["1,000", "g", "of", "a", ",", "b"]),
        ("No. 7 is No. seven", ["no.", "7", "is", "no.", "seven"]),
        ("Dr. Oetker No. Two.", ["dr.", "oetker", "no", ".", "two", "."]),
        ("U.S. oil", ["us", "oil"]),
        ("wait... now..", ["wait", "...", "now", ".."]),
        ("the cook's pre-heated 350°F oven", "the cook 's pre heated 350 ° f oven".split()),
        ("don't ‘cut’ “it”", ["don", "'t", "'", "cut", "'", '"', "it", '"']),
        ("", []),
        ("   ", []),
    ],
)
def test_a_line_is_normalised_as_the_program_does(line, expected):
    assert (
        words.split_words(line, {"Dr": words.ALWAYS_KEPT, "No": words.KEPT_BEFORE_NUMBERS})
        == expected
    )


def test_a_run_of_dots_is_quick_however_long():
    assert words.split_words("." * 100_000, {}) == ["." * 100_000]


# today's Snowball says "add"; METEOR's does not
STEMS = """added ad, vegetables veget, cooking cook, chopped chop, biologist biologist,
generously generous, skies sky, tied tie, cries cri, gas gas, boiling boil, hoping hope,
sensational sensat, relational relat, formative format, controll control, youth youth,
boyish boyish, 'em em, is is"""


def test_stems_are_those_of_the_stemmer_of_its_time():
    pairs = [pair.split() for pair in STEMS.split(",")]
    assert [words.stem(word) for word, _ in pairs] == [expected for _, expected in pairs]


def test_the_stemmer_reads_no_language_but_english():
    """Importing 28 took a cold run of a small corpus longer than all its stems."""
    code = """if True:
        import sys
        from stepline.evaluate.meteor.words import stem
        assert stem("stirring") == "stir"
        print([name for name in sys.modules if name.endswith("_stemmer")])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['snowballstemmer_english.english_stemmer']"


def test_without_the_stemmer_the_extra_is_named(monkeypatch):
    words._load_stemmer.cache_clear()
    monkeypatch.setattr("stepline.evaluate.meteor.words.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install -c constraints.txt 'stepline\[evaluate\]'"):
        words.stem("neverstemmedbefore")
    words._load_stemmer.cache_clear()


ROWS = [("at the moment", "currently"), ("at the moment", "now"), ("a lot", "much")]
ROWS += [("much", "a lot")]


def number(phrase):
    value = 0
    for word in phrase.split():
        value = (value * HASH_FACTOR + hash_text(word)) & HASH_MASK
    return value


def write_table(folder, content, monkeypatch):
    (folder / PARAPHRASE_TABLE).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(KNOWN_DIGESTS, PARAPHRASE_TABLE, digest)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "meteor" / "data").mkdir(parents=True)
    monkeypatch.setattr("stepline.evaluate.ptb.package_folder", lambda: tmp_path)
    text = "".join(f"0.5\n{phrase}\n{paraphrase}\n" for phrase, paraphrase in ROWS)
    write_table(tmp_path, gzip.compress(text.encode()), monkeypatch)
    load_phrases.cache_clear()
    yield tmp_path
    load_phrases.cache_clear()


def test_a_phrase_has_its_paraphrases_in_the_order_of_the_file(folder):
    table = load_phrases()
    numbers = [number(phrase) for row in ROWS for phrase in row]
    assert table.filter_plausible(numbers) == list(range(len(numbers)))
    paraphrases, is_target = table.find_paraphrases(number("at the moment"))
    assert list(paraphrases) == [number("currently"), number("now")]
    assert not is_target
    assert table.find_paraphrases(number("much")) == ({number("a lot"): 0}, True)
    assert table.find_paraphrases(number("at the")) == ({}, False)


def test_the_compiled_table_is_read_again_and_nothing_partial_is_left(folder):
    def files():
        return {path: path.stat().st_mtime_ns for path in (folder / "cache").rglob("*")}

    load_phrases()
    before = files()
    assert len([path for path in before if path.is_dir()]) == 1
    load_phrases.cache_clear()
    load_phrases()
    assert files() == before


DAMAGED = [
    b"not gzip",
    gzip.compress(b"0.5\nonly a phrase\n", mtime=0),
    gzip.compress(b"x" * 99, mtime=0)[:20],
]


@pytest.mark.parametrize("content", DAMAGED, ids=["not gzip", "no pair", "cut off"])
def test_a_damaged_table_is_refused_and_leaves_nothing_behind(folder, monkeypatch, content):
    write_table(folder, content, monkeypatch)
    with pytest.raises(ModelError, match="cannot be made"):
        load_phrases()
    assert not list((folder / "cache").iterdir())


def test_a_missing_or_foreign_table_names_the_extra(folder, monkeypatch):
    (folder / PARAPHRASE_TABLE).write_bytes(b"of another version")
    with pytest.raises(ModelError, match="not the file of pycocoevalcap 1.2"):
        load_phrases()
    (folder / PARAPHRASE_TABLE).unlink()
    said = r"no such file; pip install -c constraints.txt 'stepline\[evaluate\]'"
    with pytest.raises(ModelError, match=said):
        load_phrases()
