"""Paragraphs become single steps; units and abbreviations do not end one."""

import pytest

from stepline.sieve_swap.text_base.split_steps import split_into_steps, strip_markup

CASES = [
    ("Bake at 375 degrees F. for 1 hr. Cool.", ["Bake at 375 degrees F. for 1 hr.", "Cool."]),
    ("Bake at 350° F. 30 minutes. Serve hot.", ["Bake at 350° F. 30 minutes.", "Serve hot."]),
    ("Set to 180 C. It bakes 1 hr. The end.", ["Set to 180 C.", "It bakes 1 hr.", "The end."]),
    ("Add 2 tbsp. of butter. Stir.", ["Add 2 tbsp. of butter.", "Stir."]),
    ("Add 1 tsp. Worcestershire sauce. Mix.", ["Add 1 tsp. Worcestershire sauce.", "Mix."]),
    ("Grease a 9 x 13 in. pan. Mix 8 oz. Brie.", ["Grease a 9 x 13 in. pan.", "Mix 8 oz. Brie."]),
    ("Stir the milk in. Season.", ["Stir the milk in.", "Season."]),
    ("Use a No. 2 can. Drain it.", ["Use a No. 2 can.", "Drain it."]),
    (
        "Mix well. add salt. bake 10 min. or until brown",
        ["Mix well.", "add salt.", "bake 10 min. or until brown"],
    ),
    ("Cook 1 hr. then add cream.", ["Cook 1 hr. then add cream."]),
    ("Add 1.5 cups. Wait approx. 10 minutes.", ["Add 1.5 cups.", "Wait approx. 10 minutes."]),
    ("1. Preheat oven. 2. Mix flour. 3) Bake.", ["Preheat oven.", "Mix flour.", "Bake."]),
    ("Step 1: Cut.\nStep 2: Sew.\n- glue it", ["Cut.", "Sew.", "glue it"]),
    (
        "Fold (do not mix. It gets tough.) and bake.",
        ["Fold (do not mix. It gets tough.) and bake."],
    ),
    ("(Open the vents. Light the coal.)", ["Open the vents.", "Light the coal."]),
    ('Simmer... then eat. "Stir." Then serve.', ["Simmer... then eat.", '"Stir."', "Then serve."]),
    ("Heat oven.Add rice. See www.Food.Com.", ["Heat oven.", "Add rice.", "See www.Food.Com."]),
    ("Ask Dr. Smith e.g. Bob. Go!", ["Ask Dr. Smith e.g. Bob.", "Go!"]),
    ("Is it done? Test it! Serve", ["Is it done?", "Test it!", "Serve"]),
    ("***\n2.\n!!", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "steps"), CASES, ids=[text[:30] for text, _ in CASES])
def test_a_paragraph_is_cut_into_its_single_steps(text, steps):
    assert split_into_steps(text) == steps


def test_marks_tags_links_and_control_characters_are_left_out():
    assert (
        strip_markup("**Mix** the [dough](/d) &amp; _rest_<br>Bake\u00a0it\u200b\x07")
        == "Mix the dough & rest\nBake it"
    )


def test_a_decomposed_letter_becomes_one_character():
    assert split_into_steps("Saute\u0301 it.") == ["Saut\u00e9 it."]
