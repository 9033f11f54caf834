"""What a summary keeps and where it is cut; numbers by hand."""

import json
from pathlib import Path

import pytest

from stepline.errors import MediaError, SettingsError
from stepline.models.wys2.settings import SummarySettings
from stepline.models.wys2.summary import summarize
from stepline.pipeline.output_files import write_summary
from stepline.records import Record, Sentence, Span, Step, Transcript, Video, Word

EXACT = SummarySettings(pad=0.0)


def step(name, start, end, *, score=0.8, sources=(), at=None, status="placed"):
    at = (start + end) / 2 if at is None else at
    placed = {"spans": (Span(start, end),), "at": at, "status": status}
    return Step(id=name, text=name, score=score, sources=sources, **placed)


def spoken(*sentences):
    return Transcript(sentences=tuple(Sentence(text="x", span=Span(a, b)) for a, b in sentences))


def record(*steps, transcript=None, duration=100.0):
    return Record(
        id="v", video=Video(id="v", duration=duration), transcript=transcript, steps=steps
    )


def spans(segments):
    return [(segment.span.start, segment.span.end) for segment in segments]


def test_every_shown_step_is_kept_and_no_other():
    made = record(
        step("a", 10.0, 15.0), step("b", 30.0, 35.0, status="said_only"), step("c", 50.0, 60.0)
    )
    assert spans(summarize(made)) == [(10.0, 15.0), (50.0, 60.0)]


def test_steps_that_touch_or_nearly_touch_are_one_segment():
    made = record(step("b", 15.5, 20.0), step("a", 10.0, 15.0), step("c", 21.0, 22.0))
    found = summarize(made)
    assert spans(found) == [(10.0, 20.0), (21.0, 22.0)]  # half a second joins, a whole one does not
    assert [one.id for one in found[0].steps] == ["a", "b"]


def test_the_steps_of_a_segment_are_in_the_order_in_which_they_are_shown():
    # both are kept with their whole sentence, and b is chosen first. There is no room for c
    a = step("a", 9.0, 12.0, sources=(0,), score=0.6)
    b = step("b", 12.0, 16.0, sources=(0,))
    c = step("c", 50.0, 55.0, score=0.1)
    found = summarize(
        record(a, b, c, transcript=spoken((8.0, 16.0))), SummarySettings(seconds=8.5, pad=0.0)
    )
    assert [[each.id for each in segment.steps] for segment in found] == [["a", "b"]]


def test_a_sentence_that_a_step_rests_on_is_kept_whole():
    made = record(
        step("a", 10.0, 15.0, sources=(0, 1)), transcript=spoken((8.0, 11.0), (14.0, 17.5))
    )
    assert spans(summarize(made, EXACT)) == [(8.0, 17.5)]


def test_a_greeting_goes_where_that_leaves_the_step():
    said = spoken((8.0, 11.0), (14.0, 17.5))
    assert spans(summarize(record(step("a", 10.0, 15.0), transcript=said), EXACT)) == [(11.0, 14.0)]
    # Its most likely second lies inside the first sentence: that one stays, whole.
    assert spans(summarize(record(step("a", 10.0, 15.0, at=10.5), transcript=said), EXACT)) == [
        (8.0, 14.0)
    ]


def test_an_end_far_inside_a_long_sentence_moves_to_a_words_end_only():
    words = tuple(Word(text="w", span=Span(float(n), n + 0.8)) for n in range(40))
    said = Transcript(sentences=(Sentence(text="x", span=Span(0.0, 39.8), words=words),))
    made = record(step("a", 10.4, 20.9, sources=(0,)), transcript=said)
    assert spans(summarize(made, EXACT)) == [(10.0, 20.9)]  # 20.9 lies between two words


def test_a_little_of_the_pause_is_kept_but_nothing_of_the_sentence_before():
    said = spoken((5.0, 7.95), (8.0, 11.0), (12.0, 13.0))
    made = record(step("a", 9.0, 10.0, sources=(1,)), transcript=said)
    assert spans(summarize(made, SummarySettings(pad=0.2))) == [(7.95, 11.2)]


# Gains a second: .09, .2, .14.
THREE = (step("a", 0.0, 10.0, score=0.9), step("b", 20.0, 24.0), step("c", 40.0, 45.0, score=0.7))
# b fits whole; of the seconds left the surest of the others has those around its second 3
LONG = (step("a", 0.0, 10.0, score=0.9, at=3.0), *THREE[1:2], step("c", 40.0, 55.0, score=0.7))
# a gains .1 a second, then b adds one second; c would add six.
OVERLAPPING = (step("a", 0.0, 8.0), step("b", 2.0, 9.0, score=0.5))
OVERLAPPING += (step("c", 30.0, 36.0, score=0.55),)
SUREST = (step("a", 0.0, 10.0, score=0.6), step("b", 20.0, 40.0, score=0.9, at=25.0))


@pytest.mark.parametrize(
    ("steps", "target", "kept"),
    [
        (THREE, {"seconds": 9.5}, [(20.0, 24.0), (40.0, 45.0)]),
        (THREE, {"share": 0.04}, [(20.0, 24.0)]),
        (THREE, {"seconds": 19.0}, [(0.0, 10.0), (20.0, 24.0), (40.0, 45.0)]),
        (LONG, {"seconds": 10.0}, [(0.0, 6.0), (20.0, 24.0)]),
        (LONG, {"seconds": 5.5}, [(20.0, 24.0)]),  # 1.5 s show nothing
        (OVERLAPPING, {"seconds": 9.0}, [(0.0, 9.0)]),
        # shorter than any step
        (SUREST, {"seconds": 4.0}, [(23.0, 27.0)]),
        ([step("b", 20.0, 40.0, at=20.5)], {"seconds": 4.0}, [(20.0, 24.0)]),
    ],
)
def test_a_target_takes_what_gains_most_a_second_and_parts_of_the_surest(steps, target, kept):
    assert spans(summarize(record(*steps), SummarySettings(**target))) == kept


def test_a_part_next_to_a_selected_step_leaves_the_gap_in_the_target():
    made = record(step("a", 0.0, 10.0, score=0.9), step("b", 10.5, 30.0, score=0.9, at=11.0))
    found = summarize(made, SummarySettings(seconds=14.0))
    assert sum(segment.span.duration for segment in found) <= 14.0


def test_nothing_shown_is_an_error_that_says_so():
    with pytest.raises(MediaError, match="no step of it is seen or placed"):
        summarize(record(step("a", 1.0, 2.0, status="said_only")))
    with pytest.raises(MediaError, match="v: nothing to summarize: no step found in 1 sentence"):
        write_summary(record(transcript=spoken((0, 1))), Path(), Path(), EXACT)


@pytest.mark.parametrize("text", ["", "0", "-3", "120%", "0%", "a minute", "1:2:3"])
def test_an_invalid_length_is_refused(text):
    from stepline.cli.one_video import parse_length

    with pytest.raises(SettingsError, match="give seconds"):
        parse_length(text)


def test_a_length_is_read_as_a_clock_or_a_percentage():
    from stepline.cli.one_video import parse_length

    assert parse_length("1:30").compute_target(500.0) == 90.0
    assert parse_length("25%").compute_target(500.0) == 125.0
    assert parse_length(None).compute_target(500.0) is None


def test_the_command_writes_a_film_and_replaces_no_other(
    stepline, small_video, captions_file, tmp_path
):
    from stepline.media import probe

    arguments = ("summarize", small_video, "--captions", captions_file, "--out", tmp_path)
    done = stepline(*arguments, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    film = tmp_path / f"{small_video.stem}.summary.mp4"
    assert probe(film).duration == pytest.approx(told["seconds"], abs=0.1)
    shorter = stepline(*arguments, "--length", "2", "--json")
    assert json.loads(shorter.stdout)["seconds"] <= 2.0
    kept = sum(len(segment["steps"]) for segment in json.loads(shorter.stdout)["segments"])
    table = stepline(*arguments, "--length", "2").stdout
    assert table.splitlines()[0].endswith(f" s with {kept} of 3 steps")
    film.write_bytes(small_video.read_bytes())
    refused = stepline(*arguments)
    assert refused.exit_code == 1
    assert "would replace this file, which is not a summary" in refused.stderr
    assert film.read_bytes() == small_video.read_bytes()
