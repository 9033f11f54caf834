"""The waiting that a step states, told apart from the work."""

import pytest

from stepline.outputs.text import seconds_text, step_lengths, total_times
from stepline.records import Record, Span, Step, Video, Wait
from stepline.storage import from_json, to_json
from stepline.writing.quantities import mark_times, tokens
from stepline.writing.waits import find_wait


@pytest.mark.parametrize(
    ("text", "low", "high", "what"),
    [
        ("bake the cookies for 8 to 10 minutes", 480, 600, "the cookies"),
        ("cover it and let it rest for an hour", 3600, 3600, "it"),
        ("put the pan in the oven for 20 minutes", 1200, 1200, "the pan"),
        ("bake it in the oven, 8 minutes", 480, 480, "it"),
        (
            "knead the dough for ten minutes, then leave it in the fridge for two hours",
            7200,
            7200,
            "it",
        ),
        ("bake for 20 minutes and cool for 10 minutes", 1800, 1800, None),
        ("let the glue dry for 24 hours", 86400, 86400, "the glue"),
        ("simmer the sauce for an hour and twenty minutes", 4800, 4800, "the sauce"),
        ("water the pot and let it drain for ten minutes", 600, 600, "it"),
        ("let the clay pot drain in the sink for 5 minutes", 300, 300, "the clay pot"),
        ("let the dough rest for at least 10 minutes", 600, None, "the dough"),
        (
            "soak the beans for a minimum of an hour, and cook for 5 minutes",
            3900,
            None,
            "the beans",
        ),
        ("chill for an hour or longer", 3600, None, None),
    ],
)
def test_a_stated_wait_is_read(text, low, high, what):
    assert find_wait(text) == Wait(low=low, high=high, what=what)


@pytest.mark.parametrize(
    "text",
    [
        "stir for 5 minutes",
        "simmer for an hour, stirring often",
        "cool the burn under cold running water for at least 10 minutes",
        "cool the burn for at least 10 minutes",
        "leave the hand under cold water for 20 minutes",
        "hold the cloth on the cut for 10 minutes",
        "let the oil soak in for 5 minutes, massaging gently",
        "stir every 10 minutes",
        "remove it from the oven after 20 minutes",
        "store it in the fridge for up to 3 days",
        "stand on one leg for 30 seconds",
        "apply a second coat",
        "bake the bread",
    ],
)
def test_work_and_storing_are_no_wait(text):
    assert find_wait(text) is None


TIMES = {
    "boil for 10 minutes": [(600, 600)],
    "simmer for 2 to 3 minutes": [(120, 180)],
    "rest 1.5 hours, then fry for ninety seconds": [(5400, 5400), (90, 90)],
    "wait an hour": [(3600, 3600)],
    "a quarter of an hour": [(900, 900)],
    "8–10 min": [(480, 600)],
    "one and a half hours": [(5400, 5400)],
    "an hour and twenty minutes": [(4800, 4800)],
    "a 20-minute bath": [(1200, 1200)],
    "add a second coat": [],
    "cut 2 metres": [],
    "step 3 minus 4": [],
}


@pytest.mark.parametrize("text", TIMES)
def test_a_text_names_times(text):
    assert mark_times(tokens(text))[1] == TIMES[text]


def test_times_are_written_as_people_write_them():
    assert seconds_text(45, 45) == "45 s"
    assert seconds_text(480, 600) == "8-10 min"
    assert seconds_text(5400, 5400) == "1 h 30 min"
    assert seconds_text(1800, 5400) == "30 min-1 h 30 min"


def test_film_and_waiting_are_summed_apart_and_an_overlap_counts_once():
    wait = Wait(low=480.0, high=600.0, what="the cookies")
    steps = (
        Step(id="1", text="mix", status="placed", spans=(Span(0.0, 10.0),)),
        Step(id="2", text="bake", status="placed", spans=(Span(5.0, 20.0),), wait=wait),
        Step(id="3", text="eat", status="said_only", spans=(Span(30.0, 40.0),)),
    )
    record = Record(id="v", video=Video(id="v"), steps=steps)
    assert total_times(record) == "20 s of film and 8-10 min of waiting"
    assert step_lengths(steps[1]) == "15 s + 8-10 min wait (the cookies)"
    # 0:12 to 0:16, and 0:12 to 0:12
    spans = {Span(12.6, 16.1): "4 s", Span(12.2, 12.9): "1 s"}
    for span, length in spans.items():
        assert step_lengths(steps[0].model_copy(update={"spans": (span,)})) == length
    assert "8-10 min wait" in record.to_markdown()
    assert "8-10 min wait (the cookies)" in record.to_html()
    assert from_json(to_json(record)) == record
    assert to_json(record).count('"wait"') == 1
    longer = steps[1].model_copy(update={"wait": Wait(low=600.0, high=None, what="it")})
    record = record.model_copy(update={"steps": (*steps[:1], longer, longer)})
    assert total_times(record) == "20 s of film and at least 20 min of waiting"
    assert step_lengths(longer) == "15 s + at least 10 min wait"
    assert from_json(to_json(record)) == record
