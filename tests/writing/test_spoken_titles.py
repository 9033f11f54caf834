"""What a speaker announces at the beginning is the title of the video."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcripts import transcript_of

from stepline.writing.extractive.narration import parse_narration
from stepline.writing.extractive.titles import narration_title


def title_of(*texts: str) -> str | None:
    return narration_title(parse_narration(transcript_of(*texts, every=5.0, seconds=4.0)))


@pytest.mark.parametrize(
    ("announcement", "title"),
    [
        (
            "Today I'm going to show you how to change the oil in your car.",
            "How to change the oil in your car",
        ),
        (
            "Today I'm going to show you how to bleed a radiator, and it takes ten minutes.",
            "How to bleed a radiator",
        ),
        ("Today we're making a lemon drizzle cake, my favourite.", "Lemon drizzle cake"),
        ("so today we are making onion rings the crispy ones.", "Onion rings"),
        ("What we'll do today is a plain rye loaf.", "Plain rye loaf"),
        ("Hi, I'm Anna and today we're going to bake a rye loaf.", "Bake a rye loaf"),
        ("In this video we're going to replace a bicycle chain.", "Replace a bicycle chain"),
    ],
)
def test_an_announcement_names_the_work(announcement, title):
    after = "First, get everything that you need out on the bench."
    assert title_of("Hello everyone, welcome back.", announcement, after) == title


def test_what_is_announced_first_of_all_is_a_part_of_the_work():
    assert title_of("Hello there.", "First, let's make the batter.", "Whisk the eggs.") is None


def test_talk_has_no_title_and_neither_has_silence():
    assert title_of("It rained all night.", "The dog slept on my feet.") is None
    assert title_of() is None


def test_what_is_said_after_the_work_has_begun_is_not_a_title():
    begun = ["Slice the onions.", "Fry the onions in the pan.", "Pour in the stock."]
    late = "Tomorrow I'm going to show you how to paint a fence."
    assert title_of(*begun, late) is None


@given(st.lists(st.text(max_size=40), max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_title_from_any_text_is_none_or_holds_a_word(texts):
    title = title_of(*(text for text in texts if text.strip()))
    assert title is None or title.strip()
