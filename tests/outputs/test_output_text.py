"""File names from ids; and whose score it is where a network described the steps from the
pictures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepline.outputs import safe_stem, step_table
from stepline.outputs.page.view import page_view
from stepline.outputs.text import no_steps_reason
from stepline.records import Record, Sentence, Span, Step, Transcript, Video

IDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=80)


@pytest.mark.parametrize("name", ["mg7Q4o9bNN0", "-Q_x4o9bNN0", "v_1.take-2", "泡菜", "crème"])
def test_a_plain_id_keeps_its_name(name):
    assert safe_stem(name) == name


UNSAFE = ("../../etc/passwd", "..", ".hidden", "a/b", "a\\b", "a b", "a\0b", "a\nb", "~", "x" * 500)


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_id_gets_a_mark_that_no_plain_name_has(name):
    stem = safe_stem(name)
    assert "~" in stem
    assert not set("/\\ \0\n") & set(stem)
    assert not stem.startswith(".")


def test_ids_that_look_alike_get_names_of_their_own():
    names = ["a/b", "a-b", "a b", "a\\b", "cr\u00e8me", "cre\u0300me", "x" * 300, "x" * 301]
    assert len({safe_stem(name) for name in names}) == len(names)


@given(IDS, IDS)
def test_any_id_has_a_short_name_without_separators_and_its_own(one, two):
    stem = safe_stem(one)
    assert 0 < len(stem.encode()) <= 120
    assert "/" not in stem
    assert stem not in (".", "..")
    assert (stem == safe_stem(two)) == (one == two)


@given(IDS)
def test_no_id_can_be_chosen_to_take_anothers_name(name):
    assert safe_stem(safe_stem(name)) == safe_stem(name) or "~" in safe_stem(name)


NETWORK = {"describer": {"network": "0" * 64, "speech": False}}


def record(models, *, said=None, captions=(), sentences=(), steps=1):
    times = {"spans": (Span(2.0, 8.0),), "at": 5.0, "said": said}
    told = Step(id="1", text="fry the bacon", status="seen", basis="network", score=0.31, **times)
    heard = tuple(Sentence(text=text, span=Span(1.0, 2.0)) for text in sentences)
    return Record(
        id="v",
        video=Video(id="v", duration=9.0),
        transcript=Transcript(sentences=heard),
        steps=(told,) * steps,
        captions=captions,
        models=models,
    )


def test_the_table_names_the_pictures():
    table = step_table(record(NETWORK))
    assert table.startswith("v: 1 step, 1 seen, from the pictures\n")
    none = record(NETWORK, steps=0)
    assert step_table(none) == "v: no step found in the pictures\n"
    transcript = record({}, steps=0, sentences=("hello",))
    assert step_table(transcript) == "v: 1 sentence; `stepline.steps` finds the steps\n"
    reasons = [no_steps_reason(record(NETWORK)), no_steps_reason(none)]
    reasons.append(no_steps_reason(none.model_copy(update={"warnings": ("no sound", "cure")})))
    assert reasons == [None, "no step found in the pictures", "no sound"]
    assert "from the pictures and 1 sentence\n" in step_table(record(NETWORK, sentences=("hello",)))


@pytest.mark.parametrize(
    "other",
    [
        record({}),  # no network
        record(NETWORK, said=Span(1.0, 2.0)),  # told by speech
        record(NETWORK, captions=record(NETWORK).steps),  # the network's stand beside them
    ],
)
def test_other_steps_are_from_their_sentences(other):
    assert "from 0 sentences" in step_table(other)


def test_a_describers_confidence_is_not_calibrated_and_not_told():
    described = record(NETWORK, steps=2)
    second = described.steps[1].model_copy(update={"id": "2", "score": 0.7})
    described = described.model_copy(update={"steps": (described.steps[0], second)})
    assert "%" not in step_table(described)
    assert [step["percent"] for step in page_view(described, None, {})["steps"]] == [None, None]
    grounded = described.model_copy(update={"models": {}})
    assert [step["percent"] for step in page_view(grounded, None, {})["steps"]] == [31, 70]
