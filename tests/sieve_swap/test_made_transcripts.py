"""The made videos: the same from one seed, with a truth that holds; the sieve on twenty of them."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "lab"
FOLDERS = ("recipes_based_cooking",)  # the smaller folder alone keeps this quick


@pytest.fixture(scope="module", autouse=True)
def made_transcripts():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def recipes(shared):
    from made_transcripts import read_recipes

    return read_recipes(folders=FOLDERS)


@pytest.fixture(scope="module")
def videos(recipes):
    from made_transcripts.videos import make_videos

    return make_videos(recipes, 40, first_folder=False)


def test_one_seed_makes_the_same_videos(recipes, videos):
    from made_transcripts.videos import make_videos

    assert make_videos(recipes, 40, first_folder=False) == videos
    assert make_videos(recipes, 40, seed=1, first_folder=False) != videos


def test_the_truth_fits_the_sentences_and_the_recipe(videos):
    for video in videos:
        sentences = video.record.transcript.sentences
        assert len(sentences) == len(video.truth)
        told = [place for steps in video.truth for place in steps]
        assert told == sorted(told)  # in the recipe's order
        assert set(told) <= set(range(len(video.recipe.steps)))
        assert all(first.span.end <= second.span.start for first, second in pairwise(sentences))
        assert video.record.video.duration <= 600


def test_half_the_videos_are_for_testing_and_half_of_each_have_no_source_in_the_base(videos):
    count = {(half, inside): 0 for half in ("development", "test") for inside in (True, False)}
    for video in videos:
        count[video.half, video.in_base] += 1
    assert set(count.values()) == {10}


def test_no_step_is_copied(videos):
    pairs = []
    for video in videos:
        for sentence, steps in zip(video.record.transcript.sentences, video.truth, strict=True):
            if steps:
                texts = [video.recipe.steps[place].lower().strip(" .") for place in steps]
                pairs.append((sentence.text.lower().strip(" ."), texts))
    copied = [said for said, lines in pairs if said in lines]
    assert len(copied) <= 0.02 * len(pairs)  # "serve" stays "serve"


def test_the_halves_share_no_idle_line_and_no_frame():
    from made_transcripts.tables import frames, idle_lines

    halves = ("development", "test")
    said = {half: set().union(*idle_lines(half).values()) for half in halves}
    assert len(said["development"] | said["test"]) >= 200
    assert not said["development"] & said["test"]
    assert set(frames("development")) & set(frames("test")) <= {"{c}"}  # the bare clause


def test_the_hand_made_pairs_are_of_known_kinds():
    from made_transcripts.pairs import PAIR_KINDS, read_pairs

    pairs = read_pairs()
    assert len(pairs) >= 150
    assert {pair.kind for pair in pairs} == set(PAIR_KINDS)
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("1 1/2 cups", "one and a half cups"),
        ("Bake at 350 degrees F (175 degrees C).", "Bake at three fifty degrees"),
        ("10-12 min", "ten to twelve minutes"),
        ("½ tsp", "half teaspoons"),
        ("2.5 hours", "two point five hours"),
        ("400°F", "four hundred degrees"),
    ],
)
def test_numbers_are_spoken(written, said):
    from made_transcripts.numbers import spoken_numbers

    assert spoken_numbers(written) == said


@pytest.mark.parametrize(
    ("said", "step", "found"),
    [
        ("cook it for five minutes", "Cook for 5 minutes.", []),
        ("cook it for five minutes", "Cook for 7 minutes.", ["number"]),
        ("ten to twelve minutes", "Bake 12 minutes", []),
        ("don't stir it", "Stir.", ["negation"]),
        ("don't forget to stir", "Stir.", []),
        ("one and a half cups", "2 cups", ["number"]),
    ],
)
def test_contradictions_are_seen(said, step, found):
    from made_transcripts.violations import contradictions

    assert list(contradictions(said, step)) == found


def test_the_sieve_by_wording_keeps_the_steps_of_twenty_videos_and_drops_the_talk(
    recipes, videos, tmp_path
):
    from made_transcripts.base import base_recipes, made_base
    from sieve_swap_scores import sieve_scores, violations

    from stepline.sieve_swap.settings import SwapSettings
    from stepline.sieve_swap.swap import sieve_and_swap

    test = [video for video in videos if video.half == "test"]
    base = made_base(base_recipes(recipes, videos, 20), tmp_path)
    settings = SwapSettings(scope="all")
    swapped = sieve_and_swap([video.record for video in test], base, settings)
    scores = sieve_scores(test, swapped)
    assert scores["precision"] >= 0.85
    assert scores["recall"] >= 0.75
    assert violations(swapped) == []
