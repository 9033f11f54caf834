import re

from hypothesis import given
from hypothesis import strategies as st
from output_samples import make_step

from stepline.outputs import chapters, plan_chapters
from stepline.records import Record, Video


def steps_at(*starts, duration=None, text="step"):
    rows = tuple(
        make_step(i, f"{text} {i}", ((s, s + 1.0),), status="placed")
        for i, s in enumerate(starts, start=1)
    )
    return Record(id="r", video=Video(id="r", duration=duration), steps=rows)


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


def test_an_intro_stands_before_a_first_step_that_starts_after_ten_seconds():
    assert (
        chapters(steps_at(12.7, 30.0, 45.0, duration=60.0))
        == "0:00 Intro\n0:12 Step 1\n0:30 Step 2\n0:45 Step 3\n"
    )


def test_a_first_step_within_ten_seconds_begins_at_zero():
    assert (
        chapters(steps_at(9.9, 20.0, 31.0, duration=60.0))
        == "0:00 Step 1\n0:20 Step 2\n0:31 Step 3\n"
    )


def test_steps_too_close_to_the_one_before_or_to_the_end_join_it():
    found = chapters(steps_at(0.0, 4.0, 12.0, 25.0, 52.0, duration=60.0))
    assert found == "0:00 Step 1; step 2\n0:12 Step 3\n0:25 Step 4; step 5\n".replace("; s", "; S")


def test_hours_are_written_when_they_are_needed():
    assert (
        chapters(steps_at(0.0, 600.0, 3723.0, duration=4000.0)).splitlines()[-1] == "1:02:03 Step 3"
    )


def test_a_short_video_has_none_and_the_reason_is_given():
    assert chapters(steps_at(0.0, 10.0, 20.0, duration=29.0)) is None
    assert (
        plan_chapters(steps_at(0.0, duration=29.0)).reason
        == "29 s of video; 3 chapters of 10 s need 30 s"
    )
    assert (
        plan_chapters(steps_at(0.0, 15.0, duration=60.0)).reason
        == "only 2 chapters of at least 10 s; 3 are needed"
    )
    assert (
        plan_chapters(steps_at(0.0, duration=60.0)).reason
        == "only 1 chapter of at least 10 s; 3 are needed"
    )
    assert plan_chapters(steps_at(duration=60.0)).chapters == ()


def test_only_steps_that_are_shown_become_chapters(record):
    titles = " ".join(title for _, title in read_chapters(chapters(record)))
    assert "Strain the lemonade" in titles
    assert "Chill" not in titles
    assert "Garnish" not in titles


def test_angle_brackets_and_newlines_never_reach_the_description():
    found = chapters(steps_at(0.0, 15.0, 30.0, duration=60.0, text="<b>\ncut"))
    assert found.splitlines()[0] == "0:00 ‹b› cut 1"


def test_many_long_titles_fit_into_a_description():
    found = chapters(
        steps_at(*(float(12 * i) for i in range(200)), duration=2500.0, text="word " * 60)
    )
    assert len(found) <= 5000
    assert len(found.splitlines()) == 200


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
        "lower the bar down until it comes into contact with your chest above your sternum",
        "keep the arms straight",
        "hold them",
        "supercalifragilisticexpialidocious " * 3,
    )
    starts = (0.0, 12.0, 14.0, 30.0)
    steps = tuple(
        make_step(k, text, ((start, start + 1),), status="placed")
        for k, (text, start) in enumerate(zip(texts, starts, strict=True))
    )
    found = read_chapters(chapters(Record(id="r", video=Video(id="r", duration=60.0), steps=steps)))
    assert [title for _, title in found[:2]] == [
        "Lower the bar down until it comes into…",
        "Keep the arms straight; Hold them",
    ]
    assert len(found[2][1]) <= 44


def test_steps_that_do_not_fit_into_a_title_are_counted_in_it():
    found = read_chapters(chapters(steps_at(*map(float, range(60)), duration=61.0)))
    named = "; ".join(f"Step {number}" for number in range(1, 7))
    assert found[0] == (0, f"{named} +4 more")
    assert max(len(title) for _, title in found) <= 60
