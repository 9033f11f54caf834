"""The cross-check of a swap: numbers, units and negation stay."""

import pytest

from stepline.sieve_swap.agreement import (
    CHANGED_NEGATION,
    CHANGED_NUMBER,
    CHANGED_UNIT,
    find_contradiction,
    text_polarity,
)
from stepline.writing.quantities import find_quantities


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("add two eggs", [(2, 2, "count", "")]),
        ("1 1/2 cups", [(1.5, 1.5, "volume", "cup")]),
        ("1½ cups", [(1.5, 1.5, "volume", "cup")]),
        ("one and a half cups", [(1.5, 1.5, "volume", "cup")]),
        ("half a cup of milk", [(0.5, 0.5, "volume", "cup")]),
        ("a quarter cup", [(0.25, 0.25, "volume", "cup")]),
        ("three quarters of a cup", [(0.75, 0.75, "volume", "cup")]),
        ("two thirds cup", [(2 / 3, 2 / 3, "volume", "cup")]),
        ("a cup of sugar", [(1, 1, "volume", "cup")]),
        ("an hour and a half", [(1.5, 1.5, "time", "h")]),
        ("bake 8-10 minutes", [(8, 10, "time", "min")]),
        ("bake for eight to ten minutes", [(8, 10, "time", "min")]),
        ("at three fifty degrees", [(350, 350, "temperature", "")]),
        ("at three hundred and seventy five degrees", [(375, 375, "temperature", "")]),
        ("at 350°F", [(350, 350, "temperature", "F")]),
        ("180 degrees Celsius", [(180, 180, "temperature", "C")]),
        ("bake at 350 F.", [(350, 350, "temperature", "F")]),
        ("Bake at 180 C for 20 min.", [(180, 180, "temperature", "C"), (20, 20, "time", "min")]),
        ("Heat the oven to 180C fan", [(180, 180, "temperature", "C")]),
        ("roast at 180-200 c.", [(180, 200, "temperature", "C")]),
        ("180 C / 350 F", [(180, 180, "temperature", "C"), (350, 350, "temperature", "F")]),
        ("warm the milk to 37 C", [(37, 37, "temperature", "C")]),
        ("Prove in a warm place (27 C).", [(27, 27, "temperature", "C")]),
        ("let it rise at 25 c", [(25, 25, "temperature", "C")]),
        ("chill to 4 C", [(4, 4, "temperature", "C")]),
        ("Freeze at -18 C overnight", [(18, 18, "temperature", "C")]),
        ("2 C flour", [(2, 2, "volume", "cup")]),
        ("1 1/2 c. sugar", [(1.5, 1.5, "volume", "cup")]),
        ("Add 2 C. of hot water", [(2, 2, "volume", "cup")]),
        ("boil it down to 2 C", [(2, 2, "volume", "cup")]),
        ("In a warm bowl stir 24 c popcorn", [(24, 24, "volume", "cup")]),
        ("30 cups of hot coffee", [(30, 30, "volume", "cup")]),
        ("a 10-inch pan", [(10, 10, "length", "inch")]),
        ("1,500 rpm", [(1500, 1500, "count", "")]),
        ("cut it in half", [(0.5, 0.5, "count", "")]),
        ("about 2 more minutes", [(2, 2, "time", "min")]),
        ("one point five to two hours", [(1.5, 2, "time", "h")]),
        ("point three meters", [(0.3, 0.3, "length", "m")]),
        ("at this point three cups are left", [(3, 3, "volume", "cup")]),
        ("a dozen eggs", [(12, 12, "count", "")]),
        ("half a dozen eggs", [(6, 6, "count", "")]),
        ("this one is my favorite, give it a second", []),
        ("a few minutes", []),
        ("5/0 and / and 1/", [(1, 1, "count", "")]),
        ("", []),
    ],
)
def test_amounts_are_read_as_they_are_said(text, stated):
    found = [
        (amount.low, amount.high, amount.kind, amount.unit) for amount in find_quantities(text)
    ]
    assert [row[2:] for row in found] == [row[2:] for row in stated]
    assert [row[:2] for row in found] == [pytest.approx(row[:2]) for row in stated]


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("so add two eggs", "Beat in 2 eggs."),
        ("about half a cup of milk", "Stir in 1/2 cup milk."),
        ("put in eight tablespoons of butter", "Add 1/2 cup butter."),
        ("a hundred and eighty celsius, so 180 degrees celsius", "Preheat oven to 350 degrees F."),
        ("get the oven to three fifty degrees", "Preheat the oven to 350°F."),
        ("bake it at three fifty fahrenheit", "Bake at 180 C."),
        ("bake it at 180 degrees", "Bake at 180 C."),
        ("bake it for ten minutes", "Bake 8 to 10 minutes."),
        ("bake for an hour", "Bake for 60 minutes."),
        ("add the flour", "Add 2 cups flour."),
        ("two cups of flour and a teaspoon of salt", "Add 2 cups flour."),
        ("don't forget to add the salt", "Add the salt."),
        ("do not season it yet", "Do not season."),
        ("one pound of beef", "Brown 450 g beef."),
    ],
)
def test_a_step_that_says_the_same_changes_nothing(said, step):
    assert find_contradiction(said, step) is None


@pytest.mark.parametrize(
    ("said", "step", "reason"),
    [
        ("add two eggs", "Beat in 3 eggs.", CHANGED_NUMBER),
        ("bake it at 350 degrees fahrenheit", "Bake at 400 degrees F.", CHANGED_NUMBER),
        ("bake it at 350 degrees fahrenheit", "Bake at 350 degrees C.", CHANGED_UNIT),
        ("bake it at 350 degrees fahrenheit", "Bake at 220 C.", CHANGED_NUMBER),
        ("two cups of sugar", "Add 2 tablespoons sugar.", CHANGED_UNIT),
        ("let it sit for ten minutes", "Let stand 10 hours.", CHANGED_UNIT),
        ("ten minutes in the pan", "Cut into 10-inch strips.", CHANGED_UNIT),
        ("cut it in half", "Cut into quarters.", CHANGED_NUMBER),
        ("one cup flour and two cups sugar", "Add 2 cups flour and 2 cups sugar.", CHANGED_NUMBER),
        ("twelve volts", "Set the supply to 24 volts.", CHANGED_NUMBER),
        ("do not season the water", "Season the water.", CHANGED_NEGATION),
        ("season the water", "Do not season the water.", CHANGED_NEGATION),
        ("don't put any salt in", "Season to taste.", CHANGED_NEGATION),
        ("stir it well", "Never stir the rice.", CHANGED_NEGATION),
        ("cover the pot and simmer", "Simmer uncovered.", CHANGED_NEGATION),
        ("without the lid on never stir", "Cook with the lid on, do not cover.", CHANGED_NEGATION),
    ],
)
def test_a_step_that_changes_what_is_said_is_refused_with_the_reason(said, step, reason):
    assert find_contradiction(said, step) == reason


def test_a_number_of_which_nothing_is_said_is_refused_only_on_demand():
    assert find_contradiction("add the flour", "Add 2 cups flour.") is None


def test_what_a_text_denies_ends_with_its_clause():
    found = text_polarity("do not stir the rice, cover the pot")
    assert found.negated == {"stir", "ric"}
    assert found.affirmed == {"cover", "pot"}
    assert not text_polarity("don't worry about it").is_negated
