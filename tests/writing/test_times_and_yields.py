"""How long the work takes and how much it makes, from what is said."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import transcript_of

from stepline.outputs.text import material_text
from stepline.writing.extractive.narration import ParsedNarration, parse_narration
from stepline.writing.materials import find_times, find_yields


def narration(*texts: str) -> ParsedNarration:
    return parse_narration(transcript_of(*texts, every=5.0, seconds=4.0))


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("This recipe takes about thirty minutes.", [("total", 1800, 1800)]),
        ("The whole thing only takes you an hour and a half.", [("total", 5400, 5400)]),
        ("It was 45 minutes from start to finish.", [("total", 2700, 2700)]),
        ("That's an hour and twenty minutes in total.", [("total", 4800, 4800)]),
        ("The total cooking time is 50 minutes.", [("total", 3000, 3000)]),
        (
            "Prep time is ten minutes and the cook time is 1 hour.",
            [("preparation", 600, 600), ("cooking", 3600, 3600)],
        ),
        ("It takes 15 to 20 minutes to prep.", [("preparation", 900, 1200)]),
        ("These need twenty minutes to bake.", [("cooking", 1200, 1200)]),
    ],
)
def test_a_time_of_the_whole_work_is_read(text, times):
    found = find_times(narration("Hello.", text))
    assert [(time.kind, time.low, time.high) for time in found] == times
    assert all((time.at, time.sources) == (5.0, (1,)) for time in found)


@pytest.mark.parametrize(
    "text",
    [
        "Bake it for 20 minutes.",
        "It takes five minutes to prepare the dough.",
        "Let it rest for an hour.",
        "Give it 20 minutes to cook the onions.",
        "I have been doing this project for two years.",
        "Set the total to ten.",
    ],
)
def test_a_time_of_a_step_is_none_of_the_work(text):
    assert find_times(narration(text)) == ()


def test_two_times_that_differ_are_left_out_and_one_said_twice_is_one():
    first, again = "This recipe takes 30 minutes.", "That is 30 minutes in total."
    (time,) = find_times(narration(first, again))
    assert time.sources == (0, 1)
    assert find_times(narration(first, "That is 40 minutes in total.")) == ()


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("It serves four to six people.", "4-6 servings"),
        ("This recipe will serve about eight.", "8 servings"),
        ("Serves 4.", "4 servings"),
        ("It takes 20 minutes in total and serves four.", "4 servings"),
        ("This makes enough for two people.", "2 servings"),
        ("This makes about twelve pancakes.", "12 pancakes"),
        ("This recipe makes two cups of sauce.", "2 cup sauce"),
        ("It makes 4 servings.", "4 servings"),
    ],
)
def test_what_the_work_makes_is_read(text, made):
    (thing,) = find_yields(narration("Hello.", text), "Fluffy pancakes")
    assert material_text(thing) == made
    assert (thing.at, thing.sources) == (5.0, (1,))


@pytest.mark.parametrize(
    "text",
    [
        "This makes a huge difference.",
        "We make two holes here.",
        "This makes two holes in the board.",
        "I serve two of them with a salad.",
        "Serve 2 slices on a plate.",
        "It serves two purposes.",
        "Make 4 portions of the dough.",
    ],
)
def test_what_is_not_a_yield_is_none(text):
    assert find_yields(narration(text), "Fluffy pancakes") == ()


@given(st.lists(st.text(max_size=40), max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_text_is_read_for_times(texts):
    reading = narration(*(text for text in texts if text.strip()))
    assert all(time.low <= time.high for time in find_times(reading))
    assert len(find_yields(reading, "")) <= 1
