"""Steps are placed where they are shown, and pictures never get a say that they have not earned."""

from dataclasses import dataclass

import numpy as np
import pytest
from small_video import measure_activity

from stepline.errors import ShapeError
from stepline.grounding.evidence import informative_seconds, picture_warning
from stepline.grounding.fusion import UNCONFIRMED, place_by_words
from stepline.grounding.ground import ground, ground_inputs
from stepline.grounding.inputs import GroundingInputs
from stepline.grounding.settings import GroundSettings
from stepline.media.frames import Frame
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript
from stepline.vision import Activity

RNG = np.random.default_rng(3)
WORDS = RNG.normal(size=(5, 32)).astype(np.float32)
NOISE = RNG.normal(size=(60, 32)).astype(np.float32)


def spoken(*starts):
    return [
        Step(id=str(n), text=f"step {n}", said=Span(start, start + 3))
        for n, start in enumerate(starts, start=1)
    ]


def pictures(centers, strength=2.0):
    """Return 60 s of noise with the look of step k in the 7 s around each centre."""
    values = NOISE.copy()
    for k, center in centers.items():
        values[center - 3 : center + 4] += strength * WORDS[k]
    return FeatureSequence(values, 1.0, "test")


def test_speech_alone_places_a_step_a_second_after_the_middle_of_its_words():
    grounding = ground(spoken(10.0, 40.0), duration=60.0)
    assert [step.at for step in grounding.steps] == [12.5, 42.5]
    assert all(step.at in step.spans[0] for step in grounding.steps)
    assert [step.status for step in grounding.steps] == ["placed", "placed"]
    assert grounding.report.note == "the words place the steps"


def test_pictures_find_a_step_that_is_shown_long_after_its_words():
    steps = spoken(3, 13, 23, 33, 43)
    seen = pictures({0: 5, 1: 14, 2: 24, 3: 55, 4: 45})
    grounding = ground(steps, duration=60.0, features=seen, step_vectors=WORDS)
    assert grounding.report.likeness > 0
    for step, center in zip(grounding.steps, [5, 14, 24, 55, 45], strict=True):
        assert abs(step.at - center) <= 3.5


def test_a_step_that_the_pictures_make_unlikely_keeps_the_place_of_its_words_in_doubt():
    # four steps are shown as they are said, the fifth is said over pictures of the opposite
    film = pictures({0: 5, 1: 15, 2: 25, 3: 35}, 4.0)
    film.values[40:] -= 4 * WORDS[4]
    steps = spoken(3, 13, 23, 33, 53)
    seen = {"features": film, "step_vectors": WORDS}
    strict = GroundSettings(shown_threshold=0.8)
    *others, last = ground(steps, duration=60.0, settings=strict, **seen).steps
    assert {step.status for step in others} == {"seen"}
    assert (last.status, last.at, last.doubt) == ("placed", 55.5, UNCONFIRMED)
    assert last.score < 0.8


def test_pictures_of_noise_change_almost_nothing():
    steps = spoken(3, 13, 23, 33, 43)
    alone = ground(steps, duration=60.0).steps
    moved = 0
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(size=(60, 32)).astype(np.float32)
        film = FeatureSequence(noise, 1.0, "test")
        seen = ground(steps, duration=60.0, features=film, step_vectors=WORDS)
        for step, other in zip(seen.steps, alone, strict=True):
            moved += step.at is None or abs(step.at - other.at) > 2
    assert moved <= 5  # of 50 steps


def test_pictures_that_all_look_alike_change_nothing():
    steps = spoken(3, 13, 23, 33, 43)
    flat = FeatureSequence(np.ones((60, 32), np.float32), 1.0, "test")
    alone = ground(steps, duration=60.0)
    seen = ground(steps, duration=60.0, features=flat, step_vectors=WORDS)
    assert seen.steps == alone.steps
    assert seen.report.likeness == 0


def test_motion_alone_moves_no_step_and_calls_none_only_said():
    # Hands move in [20, 50) where four steps are said; the first is said at 5 s over a still
    # picture. On real clips that says nothing of whether it is shown.
    motion = np.full(60, 0.002, np.float32)
    motion[20:50] = 0.05
    steps = spoken(5, 22, 29, 36, 43)
    moving = ground(steps, duration=60.0, activity=Activity(motion, (), 1.0))
    assert moving.steps == ground(steps, duration=60.0).steps


def test_where_no_presenter_comes_again_the_words_decide_the_place_exactly():
    scenes = ["talk", "hands", "hands", "hands", "hands", "hands"]
    steps = spoken(3.0, 9.0, 17.0, 33.0)
    alone = ground(steps, duration=48.0)
    seen = ground(steps, duration=48.0, activity=edited(scenes, 8))
    assert [step.at for step in seen.steps] == [step.at for step in alone.steps]
    # P(the pictures belong)
    belong = [b.score / a.score for a, b in zip(alone.steps, seen.steps, strict=True)]
    assert belong == pytest.approx([belong[0]] * 4)


def test_spans_follow_the_words_and_stop_at_the_end():
    grounding = ground(spoken(10.0, 26.0), duration=28.4)
    assert grounding.steps[0].spans[0] == Span(9.5, 17.0)
    assert grounding.steps[1].spans[0] == Span(25.5, 28.4)


def test_a_line_that_no_one_says_and_nothing_shows_is_not_found():
    (step,) = ground([Step(id="1", text="bake")], duration=60.0).steps
    assert (step.status, step.at, step.spans) == ("not_found", None, ())


def test_a_line_too_unlikely_to_be_said_is_likeliest_where_the_sentences_fit_it_best():
    line = Step(id="1", text="bake", at=20.0)
    grounding = ground([line], duration=60.0)
    (row,) = grounding.alignment.scores
    assert (grounding.steps[0].status, grounding.steps[0].at) == ("not_found", None)
    assert abs(int(row.argmax()) - 20.7) <= 1
    assert row.min() > 0  # the rest is spread over all seconds


def test_pictures_find_a_line_far_from_the_sentences_that_fit_it_best():
    lines = [Step(id=str(k), text=f"line {k}", at=20.0) for k in range(5)]
    film = pictures({0: 50}, 4.0)
    step = ground(lines, duration=60.0, features=film, step_vectors=WORDS).steps[0]
    assert step.status == "seen"
    assert abs(step.at - 50) <= 3.5


def test_lines_without_any_speech_are_found_by_sight():
    lines = [Step(id=str(k), text=f"line {k}") for k in range(5)]
    film = pictures({0: 10, 2: 50}, 4.0)
    grounding = ground(lines, duration=60.0, features=film, step_vectors=WORDS)
    lost = "not_found"
    assert [step.status for step in grounding.steps] == ["seen", lost, "seen", lost, lost]
    assert abs(grounding.steps[0].at - 10) <= 3.5
    assert abs(grounding.steps[2].at - 50) <= 3.5


def test_two_steps_said_together_share_the_seconds():
    first, second = ground(spoken(20.0, 21.0), duration=60.0).steps
    alone = ground(spoken(20.0), duration=60.0).steps[0]
    assert first.at <= alone.at
    assert second.at >= alone.at + 1


def test_a_span_ends_before_the_second_at_which_another_step_is_most_likely():
    steps = ground(spoken(10.0, 12.0, 12.0, 16.0, 40.0), duration=60.0).steps
    assert [step.at for step in steps] == [12.5, 14.5, 14.5, 18.5, 42.5]
    spans = [step.spans[0] for step in steps]
    assert [span.end for span in spans[:3]] == [14.0, 17.0, 17.0]  # halfway, on whole seconds
    assert spans[1] == spans[2]  # nothing tells them apart
    assert all(step.at in span for step, span in zip(steps, spans, strict=True))
    for step, span in zip(steps, spans, strict=True):
        assert not any(step.at != other.at and other.at in span for other in steps)


def test_sentences_say_more_than_the_span_around_them():
    spans = [Span(t, t + 3) for t in (5.0, 20.0, 50.0)]
    heard = Transcript(sentences=tuple(Sentence(text="x", span=span) for span in spans))
    step = Step(id="1", text="x", said=Span(5.0, 53.0), sources=(0, 2))
    row = ground([step], duration=60.0, transcript=heard).alignment.scores[0]
    assert min(row[6], row[51]) > 2 * row[30]


def test_the_alignment_is_the_chance_of_being_shown_each_second_and_the_threshold_a_setting():
    grounding = ground(spoken(10.0), duration=30.0)
    alignment = grounding.alignment
    assert (alignment.kind, alignment.rate) == ("probability", 1.0)
    assert alignment.scores.shape == (1, 30)
    assert alignment.scores.max() <= grounding.steps[0].score
    strict = GroundSettings(shown_threshold=0.95)
    (step,) = ground(spoken(10.0), duration=60.0, settings=strict).steps
    assert step.status == "said_only"


@pytest.mark.parametrize("duration", [0.4, 1.0, 2.5])
def test_a_video_shorter_than_a_step_holds_it(duration):
    (step,) = ground([Step(id="1", text="x", said=Span(0.0, 0.3))], duration=duration).steps
    assert step.spans[0].end <= duration
    assert 0 <= step.at < duration


def test_words_after_the_last_frame_count_at_the_end():
    (step,) = ground(spoken(70.0), duration=60.0).steps
    assert step.at >= 55


def test_no_steps_give_an_empty_grounding():
    grounding = ground([], duration=12.0)
    assert grounding.steps == ()
    assert grounding.alignment.scores.shape == (0, 12)


def test_vectors_that_do_not_match_the_steps_are_refused():
    with pytest.raises(ShapeError, match="one row per step: 2, not 5"):
        ground(spoken(1.0, 9.0), duration=60.0, features=pictures({}), step_vectors=WORDS)


def test_the_same_input_gives_the_same_bytes():
    given = {"duration": 60.0, "features": pictures({0: 5, 1: 14}), "step_vectors": WORDS}
    first, second = (ground(spoken(3, 13, 23, 33, 43), **given) for _ in range(2))
    assert first.alignment.scores.tobytes() == second.alignment.scores.tobytes()
    assert first.steps == second.steps


def edited(scenes, seconds):
    """Return shots of equal length: "hands" move a spot and each look their own, "talk" looks the
    same each time."""
    motion = np.full(seconds * len(scenes), 0.01, dtype=np.float32)
    peaks, looks = np.empty_like(motion), np.empty((len(motion), 192), dtype=np.float32)
    rng = np.random.default_rng(0)
    for n, scene in enumerate(scenes):
        part = slice(n * seconds, (n + 1) * seconds)
        peaks[part] = 0.4 if scene == "hands" else 0.1
        looks[part] = rng.random(192) if scene == "hands" else np.linspace(0, 1, 192)
    cuts = tuple(float(n * seconds) for n in range(1, len(scenes)))
    return Activity(motion, cuts, 1.0, peak_changes=peaks, thumbnails=looks)


def filmed(picture, seconds=30):
    """Return what is measured of a film, 4 frames a second: noise, or one picture, black, grey or a
    photograph."""
    rng = np.random.default_rng(0)
    photograph = rng.integers(0, 256, (6, 8, 3)).repeat(30, 0).repeat(30, 1)
    still = {"black": 0, "grey": 128, "photograph": photograph}
    frames = []
    for n in range(4 * seconds):
        image = np.broadcast_to(still.get(picture, 0), (180, 240, 3))
        if picture == "noise":
            image = rng.integers(0, 256, (180, 240, 3))
        frames.append(Frame(n / 4, image.astype(np.uint8)))
    return measure_activity(frames)


@pytest.mark.parametrize("picture", ["black", "grey", "noise", "photograph"])
def test_a_picture_that_shows_nothing_earns_no_step_a_place(picture):
    steps = ground(spoken(5.0, 15.0), duration=30.0, activity=filmed(picture)).steps
    assert [(step.status, step.at, step.spans) for step in steps] == [("said_only", None, ())] * 2


@dataclass(frozen=True)
class Line:
    text: str
    span: Span


@pytest.mark.parametrize("picture", ["black", "photograph"])
def test_a_plain_or_still_screen_proves_nothing_against_a_step(picture):
    film = {"activity": filmed(picture, seconds=20), "is_screen": True}
    inputs = GroundingInputs(spoken(5.0, 15.0, 27.0), duration=30.0, **film)
    steps = ground_inputs(inputs, GroundSettings()).steps
    # The picture ends at 20 s.
    assert [step.status for step in steps] == ["placed", "placed", "said_only"]


@pytest.mark.parametrize(("written", "status"), [(30.0, "said_only"), (10.0, "placed")])
def test_slides_that_say_the_steps_do_not_show_them(written, status):
    # six stills of 5 s, whose changes are too small for cuts: with text throughout slides, without
    # it stop motion
    film = edited(["hands"], 30)
    peaks = np.where(np.arange(30) % 5 == 0, 0.1, 0.001).astype(np.float32)
    slides = Activity(film.motion, (), 1.0, peak_changes=peaks, thumbnails=film.thumbnails)
    starts = enumerate(np.arange(0, written, 5))
    lines = [Line(f"step {n}", Span(t, min(t + 5, written))) for n, t in starts]
    steps = ground(spoken(5.0, 15.0), duration=30.0, activity=slides, on_screen=lines).steps
    assert [step.status for step in steps] == [status] * 2


def test_only_the_black_part_of_a_film_shows_nothing():
    film, black = edited(["hands", "hands"], 15), filmed("black", 15)
    looks = np.concatenate([film.thumbnails[:14], black.thumbnails, black.thumbnails[:1]])
    half = Activity(film.motion, film.cuts, 1.0, peak_changes=film.peak_changes, thumbnails=looks)
    steps = ground(spoken(5.0, 22.0), duration=30.0, activity=half).steps
    assert [step.status for step in steps] == ["placed", "said_only"]
    assert "most of the time; what is said then" in picture_warning(half, 30)
    assert picture_warning(film, 30) is None
    assert steps[0].at < 15


def test_where_the_picture_ends_before_the_sound_nothing_is_shown():
    film = edited(["hands"], 10)  # of a sound of 24 s
    steps = ground(spoken(4.0, 16.0, 20.0), duration=24.0, activity=film).steps
    assert [step.status for step in steps] == ["placed", "said_only", "said_only"]
    expected = "the picture ends at 10 s, before the sound; what is said later is not shown"
    assert picture_warning(film, 24) == expected
    assert picture_warning(film, 12) is None
    # what is said just after the picture ends is not shown
    assert informative_seconds(film, 14).tolist() == [1.0] * 11 + [0.0] * 3
    assert informative_seconds(film, 11).tolist() == [1.0] * 11


def stopped(moving, still):
    """Hands at work for so many seconds, then a picture that does not change."""
    film = edited(["hands"], moving + still)
    peaks = np.array(film.peak_changes)
    peaks[moving:] = 0.001
    looks = np.array(film.thumbnails)
    looks[moving:] = looks[moving]
    return Activity(film.motion, (), 1.0, peak_changes=peaks, thumbnails=looks)


def test_nothing_is_shown_in_a_still_stretch_past_its_first_seconds():
    film = stopped(20, 40)
    steps = ground(spoken(5.0, 35.0, 50.0), duration=60.0, activity=film).steps
    assert [step.status == "said_only" for step in steps] == [False, True, True]
    warning = "the picture does not move from 0:20 to 1:00; what is said there is not shown"
    assert picture_warning(film, 60) == warning
    assert "from 1:05 to 1:45; what" in picture_warning(film, 60, start=45)
    assert picture_warning(stopped(40, 10), 50) is None
    still = stopped(0, 30)
    steps = ground(spoken(2.0, 15.0), duration=30.0, activity=still).steps
    assert [step.status for step in steps] == ["said_only", "said_only"]
    expected = "the picture is plain or hardly changes, so no step counts as shown"
    assert picture_warning(still, 30) == expected


def test_no_step_is_seen_unless_likeness_or_shots_place_it():
    talk = ground(spoken(5.0, 15.0), duration=30.0, activity=edited(["hands"], 30)).steps
    alone = ground(spoken(5.0), duration=30.0).steps
    assert [(step.status, step.basis) for step in (*talk, *alone)] == [("placed", None)] * 3


def test_a_cover_of_one_frame_shows_nothing():
    hands = np.random.default_rng(0).integers(0, 256, (180, 240, 3)).astype(np.uint8)
    cover = measure_activity([Frame(0.0, hands)])
    steps = ground(spoken(2.0, 15.0), duration=30.0, activity=cover).steps
    assert [step.status for step in steps] == ["said_only", "said_only"]
    assert "one picture" in picture_warning(cover, 30)


def test_a_line_is_placed_after_the_second_around_which_it_is_said():
    line = Step(id="1", text="chop", said=Span(4.0, 6.0), sources=(), at=9.2)
    placed = place_by_words(line, 30.0)
    assert (placed.at, placed.spans) == (9.5, (Span(3.5, 10.0),))
    assert place_by_words(line.model_copy(update={"at": None}), 30.0).at == 5.5
