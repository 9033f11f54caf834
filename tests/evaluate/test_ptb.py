import pytest
from metric_cases import case, needs_cases, needs_tables

from stepline.errors import ModelError
from stepline.evaluate.ptb import Tokenizer, load_automaton, replace_non_ascii

pytestmark = needs_tables


@pytest.fixture(scope="module")
def tokens():
    return Tokenizer()


@needs_cases
def test_every_official_tokenisation_is_met(tokens):
    for item in case("ptb_tokenization")["items"]:
        assert " ".join(tokens.all_tokens(item["raw"])) == item["stanford"]
        assert tokens(item["raw"]) == item["tokens"]
        if "ascii" in item:
            assert replace_non_ascii(item["raw"]) == item["ascii"]
            assert tokens(item["ascii"]) == item["ascii_tokens"]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("It isn't the cook's knife.", "it is n't the cook 's knife"),
        ("gimme lemme wanna cannot", "gim me lem me wan na can not"),
        ("AT&T &amp; R&B", "at&t & r&b"),
        ("call (555) 123-4567 now", "call -lrb-555-rrb-\u00a0123-4567 now"),
        ("“quoted” — £5, 50¢, €3", "quoted # 5 50 cents $ 3"),
        ("U.S. oil vs. e.g. Dr. Oetker", "u.s. oil vs. e.g. dr. oetker"),
        ("", ""),
        ("...", ""),
    ],
)
def test_clitics_signs_and_abbreviations_are_split_as_in_the_treebank(tokens, caption, expected):
    assert tokens(caption) == expected


@pytest.mark.parametrize("line_break", ["\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\r\n"])
def test_a_line_break_inside_a_caption_is_a_space(tokens, line_break):
    assert tokens(f"cut it{line_break}fry it") == "cut it fry it"


def test_words_of_letters_take_the_short_way_to_the_same_tokens(tokens):
    caption = "gonna cut the CANNOT dunno Mr Smith etc Inc"
    assert tokens(caption) == " ".join(tokens.all_tokens(caption))


@pytest.mark.parametrize("unit", [*"<a & ' a. 1, ( 🍕 http:// a@ </".split(), "Co. "])
def test_a_very_long_caption_is_read_in_linear_time(tokens, unit):
    caption = unit * (10_000 // len(unit))
    assert isinstance(tokens(caption), str)


def test_characters_outside_the_basic_plane_leave_no_surrogates(tokens):
    assert tokens.all_tokens("a 🍕 pizza \ud800 end") == ["a", "pizza", "end"]
    assert "\ud83c" not in "".join(tokens.all_tokens("𝒳𝒴 🍕x"))


def test_without_the_tokenizer_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.evaluate.ptb.package_folder", lambda: tmp_path)
    load_automaton.cache_clear()
    with pytest.raises(ModelError, match=r"stepline\[evaluate\]"):
        Tokenizer()
