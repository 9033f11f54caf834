import math

import pytest
from metric_cases import case, needs_cases

from stepline.evaluate.caption_metrics import (
    CaptionPair,
    bleu,
    cider,
    common_subsequence,
    ngrams,
    rouge_l,
)

TOLERANCE = 1e-7  # the cases are rounded to eight decimals


@needs_cases
@pytest.mark.parametrize("name", ["single_reference", "multi_reference"])
def test_the_official_corpora_are_met_as_a_whole_and_item_by_item(name):
    wanted = case("cider_bleu_corpora")["corpora"][name]
    items = [CaptionPair(tuple(item["references"]), item["hypothesis"]) for item in wanted["items"]]
    blue, consensus, rouge = bleu(items), cider(items), rouge_l(items)
    assert blue == pytest.approx(wanted["BLEU_1_to_4"], abs=TOLERANCE)
    assert consensus == pytest.approx(wanted["CIDEr"], abs=TOLERANCE)
    assert rouge == pytest.approx(wanted["ROUGE_L"], abs=TOLERANCE)
    for pair, item in zip(items, wanted["items"], strict=True):
        assert bleu([pair]) == pytest.approx(item["bleu_1_to_4"], abs=TOLERANCE)
        assert rouge_l([pair]) == pytest.approx(item["rouge_l"], abs=TOLERANCE)


@needs_cases
def test_cider_of_one_item_and_of_equal_items_is_zero_even_when_perfect():
    edges = case("caption_edge_cases")
    perfect = CaptionPair(("whisk the eggs in a bowl",), "whisk the eggs in a bowl")
    other = CaptionPair(("toast the bread",), "toast the bread")
    assert cider([perfect]) == edges["cider_single_pair_exact"]
    assert cider([perfect, perfect]) == edges["cider_two_identical_pairs_exact"]
    assert cider([perfect, other]) == pytest.approx(edges["cider_two_distinct_pairs_exact"])


@needs_cases
def test_bleu_of_three_words_is_not_zero_at_four():
    scores = bleu([CaptionPair(("toast the bread",), "toast the bread")])
    assert scores == pytest.approx(
        case("caption_edge_cases")["bleu_short_exact(3 tokens)"], abs=TOLERANCE
    )


def test_bleu_counts_a_word_at_most_as_often_as_a_reference_does():
    # "the" twice in the reference: 2 of 4 right, lengths equal
    assert bleu([CaptionPair(("the cat the mat",), "the the the the")])[0] == pytest.approx(0.5)


def test_bleu_punishes_what_is_shorter_than_the_closest_reference():
    scores = bleu([CaptionPair(("cut the ripe onion", "cut it all up now please"), "cut the")])
    assert scores[0] == pytest.approx(math.exp(1 - 4 / 2))


def test_rouge_weighs_recall_above_precision():
    # three of six words, in order: P = 1, R = .5
    expected = (1 + 1.2**2) * 1.0 * 0.5 / (0.5 + 1.2**2 * 1.0)
    assert rouge_l([CaptionPair(("cut the onion and fry it",), "cut onion fry")]) == pytest.approx(
        expected
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abcbdab", "bdcaba", 4),
        ("", "abc", 0),
        ("aaaa", "aa", 2),
        ("abc", "abc", 3),
        ("abc", "xyz", 0),
    ],
)
def test_the_longest_common_subsequence_is_found(first, second, expected):
    assert common_subsequence(list(first), list(second)) == expected
    assert common_subsequence(list(second), list(first)) == expected


def test_the_common_subsequence_of_long_captions_is_quick():
    words = ["cut", "the", "pan"] * 7_000
    assert common_subsequence(words, words[1:]) == len(words) - 1


def test_ngrams_are_counted_up_to_four_words():
    counts = ngrams("a b a b a")
    assert counts[("a", "b")] == 2
    assert counts[("a", "b", "a", "b")] == 1
    assert max(map(len, counts)) == 4


@pytest.mark.parametrize("metric", [bleu, cider, rouge_l])
def test_every_metric_is_best_when_perfect_and_zero_when_empty(metric):
    captions = ["cut the ripe onions now", "fry the eggs in oil", "serve it with fresh bread"]
    perfect = metric([CaptionPair((text,), text) for text in captions])
    empty = metric([CaptionPair((text,), "") for text in captions])
    best = {"bleu": (1.0,) * 4, "cider": 10.0, "rouge_l": 1.0}[metric.__name__]
    assert perfect == pytest.approx(best, abs=1e-6)
    assert empty == pytest.approx((0.0,) * 4 if metric is bleu else 0.0, abs=1e-9)
