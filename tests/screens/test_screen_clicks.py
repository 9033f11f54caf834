"""Which change of the screen a step makes, and which label is clicked."""

import pytest

from stepline.grounding.screens import Click, ScreenReading, place_clicks
from stepline.grounding.screens.clicks import (
    FIELD_NAME_LOG_ODDS,
    WINDOW_TITLE_LOG_ODDS,
    _change_log_odds,
)
from stepline.grounding.screens.reading import ScreenEvent, ScreenLine, is_same_text
from stepline.pipeline.screen import click_remarks
from stepline.records import Sentence, Span, Step

FILE = ScreenLine("File", (10, 10, 60, 30))
EDIT = ScreenLine("Edit", (80, 10, 130, 30))
EXPORT = ScreenLine("Export as", (10, 60, 110, 80))
FORMAT = ScreenLine("Format of the file", (400, 200, 600, 230))


def event(start, before, appeared=(), vanished=(), cursor=None):
    stays = [line for line in before if line not in vanished]
    after = (*stays, *appeared)
    lines = {"before": tuple(before), "after": after, "appeared": tuple(appeared)}
    place = {"patches": ((0, 0, 300, 300),), "cursor": cursor, "scene": False}
    return ScreenEvent(start=start, end=start + 0.5, vanished=tuple(vanished), **lines, **place)


def narrate(*texts):
    """Return steps and sentences, one every 10 s, each said within 2 s."""
    sentences, steps = [], []
    for number, text in enumerate(texts):
        span = Span(10.0 * number, 10.0 * number + 2)
        sentences.append(Sentence(text=text, span=span))
        steps.append(Step(id=str(number), text=text, said=span, sources=(number,)))
    return steps, sentences


def clicks_of(texts, *events):
    """Place the steps that are told in these texts on a screen with these changes."""
    return place_clicks(*narrate(*texts), ScreenReading(1000, 600, events))


OPENED = event(3.0, (FILE, EDIT), appeared=(EXPORT,))


def test_a_step_stands_where_what_it_names_is_clicked():
    chosen = event(13.5, (FILE, EDIT, EXPORT), appeared=(FORMAT,), vanished=(EXPORT,))
    clicks = clicks_of(["open the file menu", "select export as"], OPENED, chosen)
    assert [(click.step, click.event.start, click.label) for click in clicks] == [
        ("0", 3.0, FILE),
        ("1", 13.5, EXPORT),
    ]
    assert 3.0 in clicks[0].span
    assert clicks[0].span.end <= 13.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "To keep a copy of it select export as in the menu",
            [("0", 3.0, FILE), ("1", 13.5, None)],
        ),
        ("select export as.", []),  # one label is too few
    ],
)
def test_running_text_on_the_screen_is_no_label(text, expected):
    advice = ScreenLine(text, EXPORT.box)
    clicks = clicks_of(
        ["open the file menu", "select export as"],
        event(3.0, (FILE, EDIT), appeared=(advice,)),
        event(13.5, (FILE, EDIT, advice), appeared=(FORMAT,), vanished=(advice,)),
    )
    assert [(click.step, click.event.start, click.label) for click in clicks] == expected


def test_the_cursor_decides_where_the_words_are_misheard():
    clicks = clicks_of(
        ["press the ending", "open the file menu"],
        event(3.0, (FILE, EDIT), appeared=(FORMAT,), cursor=(100, 20)),
        event(13.0, (FILE, EDIT), appeared=(EXPORT,)),
    )
    assert [click.label for click in clicks] == [EDIT, FILE]


def test_a_single_step_that_names_what_is_on_screen_may_do_so_by_chance():
    assert clicks_of(["open the file menu"], event(3.0, (FILE,), appeared=(EXPORT,))) == ()


def test_without_words_or_cursor_no_label_is_named():
    clicks = clicks_of(["carry on with your work"], event(3.0, (FILE, EDIT), appeared=(FORMAT,)))
    assert all(click.label is None for click in clicks)


def test_a_change_far_from_all_words_belongs_to_no_step():
    clicks = clicks_of(
        ["open the file menu", "select export as", "go to edit"],
        *(OPENED, event(13.0, (FILE, EDIT, EXPORT), appeared=(FORMAT,))),
        event(40.0, (FILE, EDIT), vanished=(FILE,)),
    )
    assert [click.step for click in clicks] == ["0", "1"]


@pytest.mark.parametrize(
    ("starts", "placed"),  # after the act; before it, where the last change is over by then
    [((7.5, 17.5, 27.5), {"1": 7.5, "2": 17.5, "3": 27.5}), ((13, 23, 28), {"1": 13, "2": 23})],
)
def test_a_speaker_who_talks_after_or_before_the_act_is_placed_where_it_is(starts, placed):
    first, second, third = starts
    clicks = clicks_of(
        ["greet all", "open the file menu", "select export as", "go to edit"],
        event(first, (FILE, EDIT), appeared=(EXPORT,)),
        event(second, (FILE, EDIT, EXPORT), appeared=(FORMAT,)),
        event(third, (FILE, EDIT, FORMAT), vanished=(FORMAT,)),
    )
    assert {click.step: click.event.start for click in clicks} == placed


@pytest.mark.parametrize(
    ("further", "remark"),
    [((), "then the picture changes there"), ((FORMAT,), 'then appears: "Format of the file"')],
)
def test_text_that_only_moves_does_not_appear(further, remark):
    moved = ScreenLine("Export as", (10, 90, 110, 110))
    change = event(3.0, (FILE, EXPORT), appeared=(moved, *further), vanished=(EXPORT,))
    click = Click("0", change, None, Span(2.0, 5.0), 3.0)
    assert click_remarks(click) == (f"for: {remark}",)


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [("New note", "Newnote", True), ("Archive", "Arckive", True), ("PDF", "PRF", False)],
)
def test_a_letter_misread_makes_no_other_text(text, other, same):
    assert is_same_text(text, other) is same


@pytest.mark.parametrize(("top", "log_odds"), [(100, FIELD_NAME_LOG_ODDS), (400, 0.0)])
def test_a_line_is_the_name_of_a_field_where_another_text_takes_its_place(top, log_odds):
    name = ScreenLine("Title", (100, 100, 200, 120))
    typed = ScreenLine("Pancakes", (100, top, 220, top + 20))
    change = event(1.0, [name], appeared=[typed], vanished=[name])
    assert _change_log_odds(name, change, []) == log_odds


@pytest.mark.parametrize(("further", "log_odds"), [((), 0.0), ((FORMAT,), WINDOW_TITLE_LOG_ODDS)])
def test_a_line_that_only_moves_is_no_title_of_what_opens(further, log_odds):
    moved = ScreenLine("Export as", (10, 120, 110, 140))
    change = event(3.0, (FILE, EXPORT), appeared=(moved, *further), vanished=(EXPORT,))
    assert _change_log_odds(EXPORT, change, ()) == log_odds
