"""Merging of repeats and numbering, which both writers share."""

from stepline.records import Span, Step
from stepline.writing.extractive.writer import covering_span, merge_repeats, number_steps


def step(text: str, *sources: int, said: Span | None = None) -> Step:
    return Step(id="0", text=text, sources=sources, said=said)


def test_equal_steps_near_each_other_become_one_with_both_sources() -> None:
    first, again = step("add the salt", 1, said=Span(1.0, 2.0)), step("Add my salt", 3, said=Span(5.0, 6.0))
    merged = merge_repeats([first, step("stir", 2), again])
    assert [(item.text, item.sources, item.said) for item in merged] == [
        ("add the salt", (1, 3), Span(1.0, 6.0)),
        ("stir", (2,), None),
    ]


def test_the_same_words_much_later_are_done_again() -> None:
    assert len(merge_repeats([step("stir", 1), step("stir", 8)])) == 2
    assert len(merge_repeats([step("stir", 1), step("stir", 7)])) == 1


def test_a_step_without_sources_folds_into_an_equal_one_anywhere() -> None:
    assert len(merge_repeats([step("stir", 1), step("stir")])) == 1


def test_a_text_of_hollow_words_is_still_compared_whole() -> None:
    assert len(merge_repeats([step("this", 1), step("that", 1)])) == 2


def test_numbers_follow_the_order() -> None:
    assert [item.id for item in number_steps([step("b", 1), step("a", 0)])] == ["1", "2"]


def test_the_union_of_no_known_span_is_unknown() -> None:
    assert covering_span([None, None]) is None
    assert covering_span([Span(3.0, 4.0), None, Span(1.0, 2.0)]) == Span(1.0, 4.0)
