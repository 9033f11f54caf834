"""How spoken sentences are made plain before the parser reads them."""

import pytest

from stepline.writing.extractive.segments import LONGEST, split_into_segments


def plain(text: str) -> list[str]:
    return [segment.text for segment in split_into_segments(text, 0)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Um, so you know, I just kind of add it.", ["I add it."]),
        ("what you want to do is take the lid off", ["you take the lid off"]),
        ("all you need to do here is to add the salt", ["you add the salt"]),
        ("the first thing you need is a hammer", ["the first thing you need is a hammer"]),
        ("slice, then juice, our lemons", ["slice and juice our lemons"]),
        ("and then we're gonna add it", ["we'll add it"]),
        ("add it and then you're going to stir it", ["you add it", "you'll stir it"]),
        ("sand it so you don't get splinters", ["you sand it so you don't get splinters"]),
        ("if you add it and you stir it, it clumps", ["if you add it and you stir it, it clumps"]),
        ("with the brush selected, paint over the edges", ["with the brush selected, you paint over the edges"]),
        ("once it's watered spread some straw", ["once it's watered, you spread some straw"]),
        ("water boils at a hundred degrees", ["water boils at a hundred degrees"]),
        ("Stop. Add it.", ["Stop.", "you add it."]),
    ],
)
def test_speech_is_made_plain(text: str, parts: list[str]) -> None:
    assert plain(text) == parts


def test_a_word_keeps_its_place_in_the_sentence() -> None:
    first, second = split_into_segments("So um add the salt and then we stir it", 4)
    assert [word.index for word in first.words] == [2, 2, 3, 4]  # "you" was put before "add"
    assert [word.index for word in second.words] == [7, 8, 9]
    assert (first.sentence, first.word_index(0), first.word_index(len("you add the s"))) == (4, 2, 4)


def test_a_question_and_an_order_are_marked() -> None:
    (question,) = split_into_segments("Should you add it?", 0)
    (order,) = split_into_segments("add it", 0)
    assert (question.question, question.ordered) == (True, False)
    assert (order.question, order.ordered) == (False, True)


def test_no_segment_is_longer_than_the_limit() -> None:
    assert max(len(segment.words) for segment in split_into_segments("word " * 500, 0)) <= LONGEST


def test_curly_apostrophes_read_like_straight_ones() -> None:
    assert plain("don’t stir it and we’re going to add it") == plain("don't stir it and we're going to add it")
