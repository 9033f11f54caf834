"""Videos by words, tags, metadata and state."""

import pytest

from stepline.library.card_filter import CardFilter, count_metadata, count_tags
from stepline.library.corrected_library import VideoCard


def card(title, tags=(), metadata=None, state="new"):
    counts = "steps seen_steps placed_steps doubtful_steps revision corrections warnings written"
    counts += " said_only not_found"
    shown = {"id": title, "file": title, "title": title, "duration": None, "picture": None}
    labels = {"tags": tags, "metadata": metadata or {}, "state": state}
    return VideoCard(**shown, **labels, **dict.fromkeys(counts.split(), 0))


CARDS = [
    card("Change a tyre", ("Safety", "Garage"), {"Course": "A1", "Owner": "Ann Lee"}),
    card("Lift a load", ("safety",), {"course": "B2"}, "corrected"),
    card("Lemonade"),
]


@pytest.mark.parametrize(
    ("chosen", "titles"),
    [
        (CardFilter(), ["Change a tyre", "Lift a load", "Lemonade"]),
        (CardFilter("  a  LIFT "), ["Lift a load"]),
        (CardFilter("garage"), ["Change a tyre"]),
        (CardFilter("owner ann"), ["Change a tyre"]),
        (CardFilter(tags=["SAFETY"]), ["Change a tyre", "Lift a load"]),
        (CardFilter(tags=["safety", "garage"]), ["Change a tyre"]),
        (CardFilter(tags=["safe"]), []),
        (CardFilter(metadata=["Course"]), ["Change a tyre", "Lift a load"]),
        (CardFilter(metadata=["course: a1"]), ["Change a tyre"]),
        (CardFilter(metadata=["course:a"]), []),
        (CardFilter("lift", ["safety"], ["course:B2"], "corrected"), ["Lift a load"]),
        (CardFilter(state="corrected"), ["Lift a load"]),
    ],
)
def test_a_card_is_chosen_by_all_that_is_asked(chosen, titles):
    assert [each.title for each in chosen.filter_cards(CARDS)] == titles


def test_tags_and_names_are_counted_in_their_first_spelling():
    assert count_tags(CARDS) == {"Garage": 1, "Safety": 2}
    assert count_metadata(CARDS) == {"Course": 2, "Owner": 1}
