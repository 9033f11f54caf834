import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_samples import make_step, record_of

from stepline.outputs import chapters, plan_chapters


def steps_at(*starts, duration=None, text="step"):
    rows = (
        make_step(i, f"{text} {i}", ((s, s + 1.0),), status="placed")
        for i, s in enumerate(starts, start=1)
    )
    return record_of(*rows, duration=duration)


def read_chapters(text):
    """(start, title) of each line, hours allowed."""
    rows = []
    for line in text.splitlines():
        time, _, title = line.partition(" ")
        assert re.fullmatch(r"(\d+:[0-5]\d|[0-5]?\d):[0-5]\d", time)
        seconds = 0
        for part in time.split(":"):
            seconds = seconds * 60 + int(part)
        rows.append((seconds, title))
    return rows


@pytest.mark.parametrize(
    ("starts", "duration", "expected"),
    [
        # an intro comes before a first step that starts at ten seconds
        ((10.7, 30.0, 45.0), 60.0, "0:00 Intro\n0:10 Step 1\n0:30 Step 2\n0:45 Step 3\n"),
        ((9.9, 20.0, 31.0), 60.0, "0:00 Step 1\n0:20 Step 2\n0:31 Step 3\n"),
        # steps too close to the one before or to the end join it
        (
            (0.0, 4.0, 12.0, 25.0, 52.0),
            60.0,
            "0:00 Step 1; Step 2\n0:12 Step 3\n0:25 Step 4; Step 5\n",
        ),
        ((0.0, 600.0, 3723.0), 4000.0, "0:00 Step 1\n10:00 Step 2\n1:02:03 Step 3\n"),
        ((0.0, 10.0, 20.0), 29.0, None),
    ],
)
def test_chapters_begin_at_zero_and_last_ten_seconds(starts, duration, expected):
    assert chapters(steps_at(*starts, duration=duration)) == expected


@pytest.mark.parametrize(
    ("starts", "duration", "reason"),
    [
        ((0.0,), 29.0, "29 s of video; 3 chapters of 10 s need 30 s"),
        ((0.0, 15.0), 60.0, "only 2 chapters of at least 10 s; 3 are needed"),
        ((0.0,), 60.0, "only 1 chapter of at least 10 s; 3 are needed"),
    ],
)
def test_a_short_video_has_none_and_the_reason_is_given(starts, duration, reason):
    assert plan_chapters(steps_at(*starts, duration=duration)).reason == reason
    assert plan_chapters(steps_at(duration=duration)).chapters == ()


def test_steps_that_are_all_said_only_are_the_reason_for_no_chapters():
    steps = [
        make_step(n, "stir", said=(n * 20.0, n * 20.0 + 2), status="said_only") for n in (1, 2)
    ]
    reason = "no step is seen or placed, and only such steps become chapters"
    assert plan_chapters(record_of(*steps, duration=400.0)).reason == reason
    assert plan_chapters(record_of(duration=400.0)).reason == reason


def test_only_steps_that_are_shown_become_chapters(record):
    titles = " ".join(title for _, title in read_chapters(chapters(record)))
    assert "Strain the lemonade" in titles
    assert "Chill" not in titles
    assert "Garnish" not in titles


def test_angle_brackets_and_newlines_never_reach_the_description():
    found = chapters(steps_at(0.0, 15.0, 30.0, duration=60.0, text="<b>\ncut"))
    assert found.splitlines()[0] == "0:00 ‹b› cut 1"


@pytest.mark.parametrize(("steps", "lines"), [(200, 200), (250, 250), (800, 200), (4000, 235)])
def test_many_long_titles_fit_into_a_description(steps, lines):
    starts = [float(12 * i) for i in range(steps)]
    found = chapters(steps_at(*starts, duration=12.0 * steps, text="word " * 60))
    assert len(found) <= 5000
    assert all(title.startswith("Word") for _, title in read_chapters(found))
    assert len(found.splitlines()) == lines


@given(st.lists(st.floats(0, 4000), max_size=60), st.one_of(st.none(), st.floats(1, 4100)))
def test_youtubes_rules_hold_for_any_steps(starts, duration):
    record = steps_at(*starts, duration=duration)
    text = chapters(record)
    assert (text is None) == (plan_chapters(record).reason is not None)
    if text is not None:
        times = [time for time, _ in read_chapters(text)]
        end = duration if duration is not None else max(starts) + 1
        assert times[0] == 0
        assert len(times) >= 3
        assert all(b - a >= 10 for a, b in zip(times, [*times[1:], end], strict=True))


def test_a_long_step_is_cut_in_its_title_with_an_ellipsis():
    texts = (
        "pull the cord down until it runs across the two wheels at the top of the frame",
        "keep the arms straight",
        "hold them and keep them away from the body",
        "hold them",
        "supercalifragilisticexpialidocious " * 3,
    )
    steps = steps_at(0.0, 12.0, 14.0, 16.0, 30.0, duration=60.0).steps
    told = [step.model_copy(update={"text": text}) for step, text in zip(steps, texts, strict=True)]
    found = read_chapters(chapters(record_of(*told, duration=60.0)))
    assert found[0][1] == "Pull the cord down until it runs across the two wheels at…"
    assert found[1][1] == "Keep the arms straight +2 more"
    assert len(found[2][1]) <= 60


def test_steps_that_do_not_fit_into_a_title_are_counted_in_it():
    found = read_chapters(chapters(steps_at(*map(float, range(60)), duration=61.0)))
    named = "; ".join(f"Step {number}" for number in range(1, 7))
    assert found[0] == (0, f"{named} +4 more")
    assert max(len(title) for _, title in found) <= 60
