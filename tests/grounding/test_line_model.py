"""Lines against narration: the sums of the hidden Markov model equal those over all paths by hand,
order decides between equals, and lines told nowhere are not believed."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from stepline.grounding.line_model import (
    FEATURE_NAMES,
    StepTextHmm,
    content_words,
    line_features,
    load_line_weights,
    match_features,
    match_lines,
    word_overlap,
)


def cosine_only(cosines):
    """Return features (K, S, F) that hold nothing but these cosines."""
    features = np.zeros((*np.shape(cosines), len(FEATURE_NAMES)))
    features[..., FEATURE_NAMES.index("cosine")] = cosines
    return features


def simple_weights(**changes):
    """Return weights of the cosine alone."""
    evidence = tuple(float(name == "cosine") for name in FEATURE_NAMES)
    return replace(load_line_weights(), evidence=evidence, bias=0.0, **changes)


def path_weight(path, cosines, w):
    """Return the weight of one path of states ("line" or "pause", position 0 to K), by the table in
    the module; 0 for one that cannot be."""
    weight = 1.0
    kind, position = "pause", 0
    for s, (next_kind, target) in enumerate(path):
        if next_kind == "pause":
            if target != position:
                return 0.0
        else:
            distance = target - position
            if kind == "line" and distance == 0:
                price = w.stay
            else:
                price = w.direct if kind == "line" else w.enter
                if distance >= 2:
                    price += w.skip + w.skip_more * (distance - 2)
                elif distance == 0:
                    price += w.again
                elif distance < 0:
                    price += w.back + w.back_more * (-distance - 1)
            weight *= np.exp(price + cosines[target - 1, s])
        kind, position = next_kind, target
    return float(weight * np.exp(w.end * (len(cosines) - position)))


def test_the_sums_are_those_over_all_paths():
    cosines = np.array([[1.0, 0.2, 0.5], [0.1, 0.8, -0.3]])
    w = simple_weights()
    states = [("pause", 0), ("line", 1), ("pause", 1), ("line", 2), ("pause", 2)]
    total, told, never = 0.0, np.zeros((2, 3)), np.zeros(2)
    for path in itertools.product(states, repeat=3):
        weight = path_weight(path, cosines, w)
        total += weight
        for s, (kind, position) in enumerate(path):
            if kind == "line":
                told[position - 1, s] += weight
        for line in (1, 2):
            never[line - 1] += weight * (("line", line) not in path)
    chain = StepTextHmm(cosine_only(cosines.tolist()), w)
    posterior, log_total = chain.posterior()
    np.testing.assert_allclose(posterior, told / total, rtol=1e-9)
    np.testing.assert_allclose(log_total, np.log(total), rtol=1e-9)
    np.testing.assert_allclose(np.exp(chain.log_never(log_total)), never / total, rtol=1e-9)


def test_order_decides_between_two_sentences_alike():
    # the second line fits the first and the last sentence equally; the first line is in the middle
    features = cosine_only([[0.0, 6.0, 0.0], [4.0, 0.0, 4.0]])
    weights = simple_weights(skip=-2.0, skip_more=-2.0, again=-2.0, back=-4.0, back_more=-1.0)
    match = match_features(features, replace(weights, bias=-2.0))
    assert match.posterior[1, 2] > 5 * match.posterior[1, 0]


def test_a_line_said_twice_has_two_places():
    features = cosine_only([[8.0, 0.0, 0.0, 8.0]])
    match = match_features(features, replace(simple_weights(again=-1.0), bias=-3.0))
    assert match.posterior[0, [0, 3]].min() > 0.9
    assert match.posterior[0, [1, 2]].max() < 0.1
    assert match.passage_of(0) in {(0,), (3,)}


def test_a_line_left_out_of_an_unfinished_narration_costs_nothing():
    features = cosine_only([[3.0, 0.0], [0.0, 0.0]])
    weights = replace(simple_weights(end=-5.0), bias=-3.0)
    whole = match_features(features, weights).posterior[1].sum()
    so_far = match_features(features, weights, so_far=True).posterior[1].sum()
    assert so_far < whole / 2


def test_while_a_narration_goes_on_a_line_is_said_at_most_as_likely_as_a_path_says_it():
    # the regression is sure of every line, and no path tells the second
    features = cosine_only([[6.0, 0.0], [0.0, 0.0]])
    weights = replace(simple_weights(end=-5.0), bias=-3.0, said_bias=9.0, said_so_far_bias=9.0)
    whole = match_features(features, weights).said_probabilities
    so_far = match_features(features, weights, so_far=True).said_probabilities
    assert whole.min() > 0.9
    assert so_far[0] > 0.9
    assert so_far[1] < 0.2


LINES = ["chop the onion", "fry it in butter", "add two cups of rice"]
TALK = [
    "hello and welcome to my kitchen",
    "so first chop the onion really fine",
    "then fry the onion in some butter",
    "and now add two cups of rice",
]


def test_the_words_of_a_line_find_their_sentence():
    # vectors that tell nothing apart: only words do
    lines = np.ones((3, 2), np.float32)
    talk = np.ones((4, 2), np.float32)
    match = match_lines(LINES, TALK, lines, talk)
    assert match.posterior.argmax(axis=1).tolist() == [1, 2, 3]


def test_no_lines_or_no_sentences_match_nothing():
    vectors = np.zeros((0, 2), np.float32)
    match = match_lines(LINES, [], np.ones((3, 2)), vectors)
    assert match.said_probabilities.tolist() == [0, 0, 0]
    assert match_lines([], TALK, vectors, np.ones((4, 2))).posterior.shape == (0, 4)


def test_rare_words_weigh_more_and_numbers_count():
    words, near_words = word_overlap(["add salt"], ["add flour", "add salt", "add 2 eggs"])
    assert words[0, 1] == pytest.approx(1.0)
    # "add" is in all three sentences, log(4 / 3.5) of IDF, "salt" in one, log(4 / 1.5)
    assert words[0, 0] == pytest.approx(np.log(4 / 3.5) / np.log(16 / 5.25))
    assert near_words[0, 0] == pytest.approx(words[0, 1])
    assert content_words("Chopped 2 onions, in 1/2 cup") == {"chop", "2", "onion", "1/2", "cup"}


def test_a_sentence_that_states_a_step_is_more_likely():
    vectors = np.ones((1, 2), np.float32)
    talk = np.ones((2, 2), np.float32)
    texts = (["stir well"], ["stir well now", "stir well then"])
    chances = np.array([0.1, 0.9])
    match = match_lines(*texts, vectors, talk, step_probabilities=chances)
    assert match.posterior[0, 1] > match.posterior[0, 0]
    features = line_features(*texts, vectors, talk, chances)
    assert features[0, :, FEATURE_NAMES.index("step")] == pytest.approx([-2.197, 2.197], abs=1e-3)


@pytest.mark.parametrize(("talk_count", "said_count"), [(2, 2), (3, 1)])
def test_a_long_sentence_says_two_lines_only_where_there_are_few_sentences(talk_count, said_count):
    lines = ["chop the onions", "fry the onions"]
    long = "so chop the onions into small pieces and then fry the onions in plenty of good butter"
    sentences = [long, *["thanks for watching"] * talk_count]
    vectors = np.eye(4, dtype=np.float32)
    sentence_vectors = np.array([vectors[0] + vectors[1], *[vectors[2]] * talk_count])
    match = match_lines(lines, sentences, vectors[:2], sentence_vectors)
    assert match.posterior[:, 0].sum() == pytest.approx(said_count, abs=0.2)
