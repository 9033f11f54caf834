import math

import pytest
from metric_cases import case, needs_cases

from stepline.evaluate.dense_captioning import caption_scores

TOLERANCE = 1e-7  # the cases are rounded to eight decimals


@needs_cases
@pytest.mark.parametrize("name", ["single_reference", "multi_reference"])
def test_the_official_corpora_are_met_as_a_whole_and_item_by_item(name):
    wanted = case("cider_bleu_corpora")["corpora"][name]
    pairs = [(tuple(item["references"]), item["hypothesis"]) for item in wanted["items"]]
    expected = (wanted["CIDEr"], *wanted["BLEU_1_to_4"], wanted["ROUGE_L"])
    assert caption_scores(pairs) == pytest.approx(expected, abs=TOLERANCE)
    for pair, item in zip(pairs, wanted["items"], strict=True):
        expected = (0.0, *item["bleu_1_to_4"], item["rouge_l"])
        assert caption_scores([pair]) == pytest.approx(expected, abs=TOLERANCE)


@needs_cases
def test_cider_of_one_item_and_of_equal_items_is_zero_even_when_perfect():
    edges = case("caption_edge_cases")
    perfect = (("whisk the eggs in a bowl",), "whisk the eggs in a bowl")
    other = (("toast the bread",), "toast the bread")
    assert caption_scores([perfect])[0] == edges["cider_single_pair_exact"]
    assert caption_scores([perfect, perfect])[0] == edges["cider_two_identical_pairs_exact"]
    distinct = caption_scores([perfect, other])[0]
    assert distinct == pytest.approx(edges["cider_two_distinct_pairs_exact"])


def test_bleu_punishes_what_is_shorter_than_the_closest_reference():
    scores = caption_scores([(("cut the ripe onion", "cut it all up now please"), "cut the")])
    assert scores[1] == pytest.approx(math.exp(1 - 4 / 2))


def test_metrics_are_best_when_perfect_and_zero_when_empty():
    captions = ["cut the ripe onions now", "fry the eggs in oil", "serve it with fresh bread"]
    perfect = caption_scores([((text,), text) for text in captions])
    assert perfect == pytest.approx((10.0, 1.0, 1.0, 1.0, 1.0, 1.0), abs=1e-6)
    for empty in ([((text,), "") for text in captions], [(("",), text) for text in captions]):
        assert caption_scores(empty) == pytest.approx((0.0,) * 6, abs=1e-9)
