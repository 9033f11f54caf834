"""Sentences to tokens and back, and as padded tensors."""

import gzip
import json
import subprocess
import sys
import tracemalloc

import pytest

from stepline.errors import ShapeError
from stepline.models.procx.settings import VocabularySettings
from stepline.models.procx.vocabulary import (
    BEGIN_TOKEN,
    END_TOKEN,
    PAD_TOKEN,
    normalise_text,
    tokenize,
    train_vocabulary,
)

SENTENCES = [
    "cut the onion",
    "cut the red onions, then fry them",
    "fry the onion in butter",
    "the butter",
] * 3
SMALL = VocabularySettings(size=250)


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(SENTENCES, SMALL)


def test_common_words_are_one_token_and_others_are_pieces(vocabulary):
    assert [vocabulary.tokens[n] for n in vocabulary.encode("cut the onion")] == [
        "cut",
        "the",
        "onion",
    ]
    pieces = [vocabulary.tokens[n] for n in vocabulary.encode("cuts")]
    assert pieces == ["cut", "##s"]


ODD = [
    "Sauté the jalapeño, at 180 °C!",
    "½ cup (100 g)",
    "切る 🍳 \ue003",
    "don't",
    "##s # [PAD] [END]",
    "a" * 350,
    "切" * 150,
    "x\ty\n z",
]


@pytest.mark.parametrize("sentence", ODD)
@pytest.mark.parametrize("lower", [True, False])
def test_any_sentence_comes_back_as_it_was(sentence, lower):
    vocabulary = train_vocabulary(SENTENCES, VocabularySettings(size=320, lower=lower))
    numbers = vocabulary.encode(sentence)
    assert PAD_TOKEN not in numbers  # which stands for the unknown
    assert vocabulary.decode(numbers).replace(" ", "") == normalise_text(sentence, lower).replace(
        " ", ""
    )
    if len(sentence) < 100:
        assert vocabulary.decode(numbers) == normalise_text(sentence, lower)


def test_blanks_are_not_a_token(vocabulary):
    assert vocabulary.encode(" \n ") == []
    assert vocabulary.decode([]) == ""


def test_what_follows_the_end_mark_is_not_said(vocabulary):
    onion = vocabulary.encode("onion")
    assert vocabulary.decode([BEGIN_TOKEN, *onion, END_TOKEN, *onion, PAD_TOKEN]) == "onion"


def test_half_bytes_that_are_not_a_character_do_not_stop_it(vocabulary):
    assert vocabulary.decode(vocabulary.encode("é")[:2]) == "�"  # the first of its two bytes
    assert vocabulary.decode(vocabulary.encode("é")[:1]) == ""


def test_the_same_sentences_in_any_order_give_the_same_vocabulary(vocabulary):
    assert train_vocabulary(SENTENCES[::-1], SMALL) == vocabulary


def test_sentences_are_not_held():
    tracemalloc.start()
    made = train_vocabulary((f"cut the onion {n % 100}" for n in range(100_000)), SMALL)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10**6  # as texts 7 MB
    assert made == train_vocabulary([f"cut the onion {n % 100}" for n in range(100_000)], SMALL)


def test_half_a_surrogate_pair_however_common_is_not_a_letter():
    made = train_vocabulary(["a\udc00b"] * 9)
    assert not any("\udc00" in token for token in made.tokens)
    assert made.decode(made.encode("a\udc00b")) == "a?b"


def test_another_process_gives_the_same_vocabulary(vocabulary):
    code = (
        "from stepline.models.procx.vocabulary import *; from stepline.models.procx.settings import *;"
        f"print(train_vocabulary({SENTENCES!r}, VocabularySettings(size=250)).sha256)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == vocabulary.sha256 + "\n", done.stderr


def test_a_size_without_room_for_the_characters_is_an_error():
    with pytest.raises(ShapeError, match="no room"):
        train_vocabulary(SENTENCES, VocabularySettings(size=100))


def test_no_sentence_gives_a_vocabulary_that_spells():
    vocabulary = train_vocabulary([])
    assert vocabulary.decode(vocabulary.encode("an egg")) == "an egg"


def sentences_of(shared, part):
    path = shared / "data" / "youcook2" / f"{part}.json.gz"
    return [
        s
        for video in json.loads(gzip.decompress(path.read_bytes())).values()
        for s in video["sentences"]
    ]


def test_held_out_sentences_of_youcook2_have_no_unknown_token(shared):
    vocabulary = train_vocabulary(sentences_of(shared, "train"))
    # as when it was trained on whole sentences, not on counts of their words
    assert vocabulary.sha256 == "cf3cae024ec378cdf5ea30bee1ec657ff5887d4a72cfe80006af23f87f2f5c96"
    held_out = sentences_of(shared, "val")
    encoded = [vocabulary.encode(sentence) for sentence in held_out]
    assert sum(PAD_TOKEN in numbers for numbers in encoded) == 0
    assert [vocabulary.decode(numbers) for numbers in encoded] == [
        normalise_text(s, lower=True) for s in held_out
    ]
    assert sum(map(len, encoded)) / sum(len(s.split()) for s in held_out) < 1.1  # tokens a word


VOCABULARY = train_vocabulary(["cut the onion", "fry the egg"] * 3, VocabularySettings(size=250))


def test_tokens_are_read_one_place_before_they_are_wanted():
    made = tokenize(["cut the onion", "egg"], VOCABULARY, longest=8)
    cut, the, onion = VOCABULARY.encode("cut the onion")
    (egg,) = VOCABULARY.encode("egg")
    assert made.tokens.tolist() == [
        [BEGIN_TOKEN, cut, the, onion],
        [BEGIN_TOKEN, egg, PAD_TOKEN, PAD_TOKEN],
    ]
    assert made.targets.tolist() == [
        [cut, the, onion, END_TOKEN],
        [egg, END_TOKEN, PAD_TOKEN, PAD_TOKEN],
    ]
    assert made.token_pad.tolist() == [[False] * 4, [False, False, True, True]]


def test_a_long_one_is_cut_and_does_not_end():
    made = tokenize(["cut the onion", "egg"], VOCABULARY, longest=3)
    assert made.targets[0].tolist() == VOCABULARY.encode("cut the onion")
    assert END_TOKEN not in made.targets[0]


def test_a_blank_sentence_is_its_end_and_no_sentence_gives_no_row():
    assert tokenize([" "], VOCABULARY, longest=3).targets.tolist() == [[END_TOKEN]]
    assert tokenize([], VOCABULARY, longest=3).tokens.shape == (0, 0)
