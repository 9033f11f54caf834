"""Edits of a transcript: the times of words that stay, those of words that change, and what cites
sentences that are joined or dropped."""

import pytest
from correction_samples import correction

from stepline.errors import StoreError
from stepline.library.corrections import apply_corrections, check_correction
from stepline.records import Material, Record, Sentence, Span, Step, Transcript, Video, Word
from stepline.storage import from_json, to_json


def words(*rows):
    return tuple(
        Word(text=text, span=None if start is None else Span(start, end), confidence=confidence)
        for text, start, end, confidence in rows
    )


SPOKEN = words(
    ("Poor", 10.0, 11.0, 0.4),
    ("the", 11.0, 11.5, 0.9),
    ("milk", 11.5, 13.0, 0.8),
    ("in.", 13.5, 14.0, 0.9),
)
POUR = Sentence(
    text="Poor the milk in.", span=Span(10.0, 14.0), words=SPOKEN, confidence=0.75, shown=0.6
)


def record():
    sentences = (
        Sentence(text="Hello all.", span=Span(0.0, 3.0), shown=0.1),
        POUR,
        Sentence(text="and stir", span=Span(14.0, 16.0), words=words(("and", 14.0, 15.0, 1.0))),
        Sentence(text="Thanks.", span=Span(20.0, 21.0)),
    )
    steps = (
        Step(id="a", text="pour the milk in", spans=(Span(10.0, 14.0),), at=12.0, sources=(1,)),
        Step(id="b", text="stir", sources=(2,)),
        Step(id="c", text="pour and stir", sources=(1, 2)),
    )
    milk = Material(name="milk", at=11.5, sources=(1,))
    said = Transcript(sentences=sentences)
    video = Video(id="v", duration=60.0)
    return Record(id="v", video=video, transcript=said, steps=steps, materials=(milk,))


def after(*edits):
    return apply_corrections(record(), [correction(n, edit) for n, edit in enumerate(edits)])


def spoken(result, number=1):
    return [
        (word.text, word.span and (word.span.start, word.span.end), word.confidence)
        for word in result.record.sentences[number].words
    ]


def with_words(text, sentence=1):
    return {"do": "words", "sentence": sentence, "text": text}


def test_words_that_stay_keep_their_times_and_a_changed_one_has_that_of_the_word_it_replaces():
    result = after(with_words(" Pour  the milk, in. "))
    assert result.record.sentences[1].text == "Pour the milk, in."
    assert spoken(result) == [
        ("Pour", (10.0, 11.0), None),
        ("the", (11.0, 11.5), 0.9),
        ("milk,", (11.5, 13.0), 0.8),
        ("in.", (13.5, 14.0), 0.9),
    ]
    assert result.record.sentences[1].confidence == pytest.approx((0.9 + 0.8 + 0.9) / 3)
    assert result.record.sentences[1].shown == 0.6


def test_more_words_share_the_time_of_fewer_by_their_letters():
    # "oat" and "milk's" take the 1.5 s of "milk": 3 and 6 of 9 letters
    assert spoken(after(with_words("Poor the oat milk's in.")))[2:4] == [
        ("oat", (11.5, pytest.approx(12.0)), None),
        ("milk's", (pytest.approx(12.0), pytest.approx(13.0)), None),
    ]


@pytest.mark.parametrize(
    ("text", "number", "shares"),
    [
        # after a word, which shares its own second: 4 and 2 of 6 letters
        ("Poor it the milk in.", 0, [("Poor", 10.0, 10.0 + 2 / 3), ("it", 10.0 + 2 / 3, 11.0)]),
        ("Do Poor the milk in.", 0, [("Do", 10.0, 10.0 + 1 / 3), ("Poor", 10.0 + 1 / 3, 11.0)]),
        ("Poor the milk in. now", 3, [("in.", 13.5, 13.75), ("now", 13.75, 14.0)]),
    ],
)
def test_words_that_are_added_share_with_the_word_next_to_them(text, number, shares):
    found = spoken(after(with_words(text)))[number : number + 2]
    for (word, (start, end), _), (text, first, last) in zip(found, shares, strict=True):
        assert (word, start, end) == (text, pytest.approx(first), pytest.approx(last))


def test_words_that_are_left_out_take_their_times_along():
    first, second = spoken(after(with_words("milk in.")))
    assert first == ("milk", (11.5, 13.0), 0.8)
    assert second[0] == "in."
    result = after(with_words("Hello everyone.", sentence=0))  # without times of words
    assert (result.record.sentences[0].text, spoken(result, 0)) == ("Hello everyone.", [])


def test_a_joined_sentence_lasts_from_the_first_to_the_second_and_keeps_the_first_number():
    result = after({"do": "join", "sentences": [1, 2]}, with_words("Pour the milk in and stir"))
    joined = result.record.sentences[1]
    assert joined.text == "Pour the milk in and stir"
    assert (joined.span, joined.shown) == (Span(10.0, 16.0), 0.6)
    assert [text for text, _, _ in spoken(result)][-3:] == ["in", "and", "stir"]
    assert result.sentences == (0, 1, 3)
    assert [step.sources for step in result.record.steps] == [(1,), (1,), (1,)]


def test_what_cites_a_dropped_sentence_cites_the_others_still():
    result = after({"do": "drop", "sentence": 0}, {"do": "drop", "sentence": 2})
    assert [sentence.text for sentence in result.record.sentences] == [POUR.text, "Thanks."]
    assert result.sentences == (1, 3)
    assert [step.sources for step in result.record.steps] == [(0,), (), (0,)]
    assert result.record.materials[0].sources == (0,)
    assert from_json(to_json(result.record), "v") == result.record  # its sources are checked


def test_a_sentence_becomes_a_step_that_is_placed_where_it_is_said():
    add = {"do": "add", "id": "new", "sentence": 2, "after": "a"}
    result = after({"do": "drop", "sentence": 0}, with_words("and whisk.", 2), add)
    (step,) = (step for step in result.record.steps if step.id == "new")
    assert (step.said, step.spans, step.sources) == (Span(14.0, 16.0), (Span(14.0, 16.0),), (1,))
    assert (step.status, step.basis) == ("placed", None)
    assert [step.id for step in result.record.steps] == ["a", "new", "b", "c"]
    assert (step.text, "new" in result.person_texts) == ("and whisk", False)


def test_a_chosen_picture_stays_wherever_the_step_is_moved():
    choose = {"do": "change", "step": "a", "at": 17.5}
    move = {"do": "change", "step": "a", "span": {"start": 30.0, "end": 33.0}}
    for edits in ((choose, move), (move, choose)):
        assert after(*edits).record.steps[0].at == 17.5
    assert after(move).record.steps[0].at is None
    assert after(choose).machine == {"a": {"at": 12.0}}


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([with_words("Hi", sentence=4)], "sentence 5 is not in the transcript"),
        ([{"do": "join", "sentences": [3, 9]}], "sentence 10 is not in the transcript"),
        ([{"do": "drop", "sentence": 1}, with_words("Hi")], "sentence 2 is not in"),
        ([{"do": "join", "sentences": [1, 2]}, {"do": "drop", "sentence": 2}], "was joined"),
        ([{"do": "add", "id": "n", "text": "x", "sentence": 4}], "sentence 5 is not in"),
    ],
)
def test_an_edit_of_a_sentence_that_is_not_there_is_refused(edits, said):
    with pytest.raises(StoreError, match=said):
        check_correction(record(), [], correction(0, *edits))


def test_two_people_edit_two_sentences_and_clash_in_one():
    ann = correction(0, with_words("Pour the milk in."))
    other = correction(1, {"do": "drop", "sentence": 0}, base=0, by="bob")
    check_correction(record(), [ann], other)
    both = [apply_corrections(record(), pair) for pair in ([ann, other], [other, ann])]
    assert both[0] == both[1]
    for edit in (with_words("Put the milk in."), {"do": "join", "sentences": [0, 1]}):
        with pytest.raises(StoreError, match="ann has changed sentence 2"):
            check_correction(record(), [ann], correction(1, edit, base=0, by="bob"))


def test_an_undo_brings_a_joined_and_a_dropped_sentence_back():
    taken = [
        correction(0, {"do": "join", "sentences": [0, 1]}),
        correction(1, {"do": "drop", "sentence": 3}),
        correction(2, undoes="c0"),
        correction(3, undoes="c1"),
    ]
    for number in range(len(taken)):
        check_correction(record(), taken[:number], taken[number])
    result = apply_corrections(record(), taken)
    assert (result.record, result.sentences) == (record(), (0, 1, 2, 3))
