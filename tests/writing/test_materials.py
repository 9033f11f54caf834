"""Materials, amounts and tools of the work, from what is said."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import transcript_of

from stepline.outputs.text import material_text
from stepline.records import Sentence, Span, Transcript, Word
from stepline.writing.extractive.narration import parse_narration
from stepline.writing.materials import NeededThings, find_materials, materials_of_first_sentences
from stepline.writing.materials.mentions import amount_at


def needed(*texts, is_screen_recording=False):
    """Return what a narration needs whose sentence i is spoken from second 5i on."""
    narration = parse_narration(transcript_of(*texts, every=5.0, seconds=4.0))
    return find_materials(narration, is_screen_recording=is_screen_recording)


def materials(*texts):
    return [material_text(thing) for thing in needed(*texts).materials]


@pytest.mark.parametrize(
    ("said", "low", "high", "unit"),
    [
        ("a cup and a half of flour", 1.5, 1.5, "cup"),
        ("two to three cloves of garlic", 2, 3, "clove"),
        ("half a teaspoon of salt", 0.5, 0.5, "tsp"),
        ("one and a half cups of milk", 1.5, 1.5, "cup"),
        ("two hundred and fifty grams of sugar", 250, 250, "g"),
        ("3 - 4 cans of beans", 3, 4, "can"),
        ("1/2 cup oil", 0.5, 0.5, "cup"),
        ("a good pinch of salt", 1, 1, "pinch"),
        ("a couple of sprigs of thyme", 2, 2, "sprig"),
        ("a dozen eggs", 12, 12, ""),
        ("three quarters of a cup of sugar", 0.75, 0.75, "cup"),
        ("six feet of rope", 6, 6, "foot"),
        ("two more tablespoons of butter", 2, 2, "tbsp"),
        ("teaspoon of dried oregano", 1, 1, "tsp"),
        ("couple tablespoons of oil", 2, 2, "tbsp"),
        ("2 1/2 ( 32 ounce ) jars of salsa", 2.5, 2.5, "32 oz jar"),
        ("three 12 - ounce cans of peaches", 3, 3, "12 oz can"),
        ("a 250 gram tin of lentils", 1, 1, "250 g tin"),
        ("500 ml carton of stock", 1, 1, "500 ml carton"),
        ("2 x 400 g tins of chickpeas", 2, 2, "400 g tin"),
        ("one to two 400 gram tins of beans", 1, 2, "400 g tin"),
        ("three 200 gram chicken breasts", 3, 3, "200 g"),
    ],
)
def test_an_amount_is_read_with_its_unit(said, low, high, unit):
    amount = amount_at(said.split(), 0)
    assert amount is not None
    assert (amount.low, amount.high, amount.unit) == (low, high, unit)


@pytest.mark.parametrize(
    "said",
    ["twenty minutes", "200 degrees", "a two inch strip", "one of them", "half of the dough"],
)
def test_times_heats_sizes_and_parts_are_not_amounts_of_a_thing(said):
    amounts = [amount_at(said.split(), place) for place in range(len(said.split()))]
    assert [amount for amount in amounts if amount and not amount.is_article] == []


def test_a_list_of_what_is_needed_is_read_with_its_amounts():
    needs = needed(
        "You'll need 450 grams of strong white flour, two eggs, a pinch of salt and some butter.",
        "And a bowl, a whisk, a rolling pin and a watering can.",
        "Whisk the eggs in the bowl.",
    )
    texts = list(map(material_text, needs.materials))
    assert texts == ["450 g strong white flour", "2 eggs", "1 pinch salt", "butter"]
    assert [tool.name for tool in needs.tools] == ["bowl", "whisk", "rolling pin", "watering can"]
    eggs = needs.materials[1]
    assert (eggs.at, eggs.sources) == (0.0, (0, 2))
    assert eggs.amounts[0].text == "two"


def test_the_amounts_of_a_list_are_those_of_all_that_is_used():
    told = materials(
        "You will need 350 grams of water and 500 grams of flour.",
        "Pour 300 grams of the water into the bowl.",
        "Add the flour, then pour in the last 50 grams of water.",
    )
    assert told == ["350 g water", "500 g flour"]


def test_different_amounts_that_steps_tell_are_all_listed():
    told = materials(
        "Add two tablespoons of butter to the pan.",
        "Fry the onions for ten minutes.",
        "Then stir in one cup of butter.",
    )
    assert "2 tbsp + 1 cup butter" in told


def test_a_thing_outside_the_kitchen_is_a_material_too():
    told = materials(
        "You will need four wooden boards, twelve screws and two metres of wire.",
        "Drill a hole in each board.",
    )
    assert told[:2] == ["4 wooden boards", "12 screws"]
    assert told[2:] in (["200 cm wire"], ["2 m wire"])


def test_what_is_talked_about_or_left_out_is_not_needed():
    needs = needed(
        "My grandmother had three dogs and a hundred kilos of apples in the cellar.",
        "She never used a kilo of sugar in her life.",
        "It rained the whole week and nobody came.",
    )
    assert needs == NeededThings()


def test_the_second_is_that_of_the_word_where_words_have_times():
    texts = ["Add", "two", "cups", "of", "flour"]
    words = tuple(
        Word(text=text, span=Span(float(place), place + 0.9)) for place, text in enumerate(texts)
    )
    sentence = Sentence(text=" ".join(texts), span=Span(0.0, 5.0), words=words)
    reading = parse_narration(Transcript(language="en", sentences=(sentence,)))
    (flour,) = find_materials(reading).materials
    assert flour.at == 4.0


def test_what_later_sentences_name_goes_with_them():
    things = needed("Add two cups of flour.", "Pour in half a litre of milk.").materials
    assert [thing.name for thing in materials_of_first_sentences(things, 1)] == ["flour"]


def test_nothing_said_needs_nothing():
    assert needed() == NeededThings()


@pytest.mark.parametrize(
    "odd", ["9" * 400, *"327b 1.2.3 24/7/3 2x4 1/0 3/ m² ½ 1½ ٣ 10,00 . -".split()]
)
def test_no_word_stops_the_reading(odd):
    found = needed(f"Add {odd} cups of flour and {odd} eggs.", f"You will need {odd}, {odd} {odd}.")
    for thing in found.materials:
        assert all(0 < amount.low <= amount.high < 1e9 for amount in thing.amounts)


@given(st.lists(st.text(max_size=40), max_size=4))
@settings(max_examples=40, deadline=None)
def test_materials_of_any_text_have_a_name_and_their_sentences(texts):
    spoken = [text for text in texts if text.strip()]
    for thing in (*needed(*spoken).materials, *needed(*spoken).tools):
        assert thing.name.strip()
        assert all(source < len(spoken) for source in thing.sources)


def test_count_size_and_container_name_the_thing_inside():
    assert materials(
        "For this, have three 12-ounce cans of peaches, a 250 gram tin of lentils "
        "and two 150 gram packs of halloumi ready.",
        "Then stir 2 1/2 (32 ounce) jars of salsa into the pot.",
    ) == [
        "3 x 12 oz can peaches",
        "250 g tin lentils",
        "2 x 150 g pack halloumi",
        "2.5 x 32 oz jar salsa",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "Tap the search result with the golden star icon.",
        "Then select the row with the tiny camera icon.",
        "Click on the card with the pencil.",
    ],
)
def test_what_tells_a_button_from_others_is_no_tool(said):
    assert needed("Open the app.", said) == NeededThings()


def test_a_real_thing_is_tapped_and_pressed_with_a_tool():
    needs = needed("Tap the peg with the hammer.", "Press the seam with a hot iron.")
    assert [tool.name for tool in needs.tools] == ["hammer", "hot iron"]


def test_of_a_screen_recording_only_what_is_listed_counted_or_added_is_needed():
    said = (
        "Take the pen tool and grab the slider.",
        "Add two cups of flour and the sugar to the bowl.",
    )
    names = []
    for is_screen in (False, True):
        needs = needed(*said, is_screen_recording=is_screen)
        names.append([thing.name for thing in (*needs.materials, *needs.tools)])
    assert names == [["flour", "sugar", "pen tool", "slider"], ["flour", "sugar"]]
