"""What a video shows while it runs is told from what came so far, and at its end as `ground` tells
it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stepline.grounding.ground import ground
from stepline.grounding.online import OnlineGrounder
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript
from stepline.vision import Activity

RNG = np.random.default_rng(3)
WORDS = RNG.normal(size=(5, 32)).astype(np.float32)
NOISE = RNG.normal(size=(60, 32)).astype(np.float32)
STARTS, SHOWN = (3.0, 13.0, 23.0, 33.0, 43.0), (5, 14, 24, 55, 45)


def steps(*starts):
    return [
        Step(id=str(n), text=f"step {n}", said=Span(start, start + 3), sources=(n,))
        for n, start in enumerate(starts)
    ]


def transcript(*starts):
    spans = [Span(start, start + 3) for start in starts]
    return Transcript(sentences=tuple(Sentence(text="mix", span=span) for span in spans))


def pictures(strength=2.0, shown=SHOWN):
    """Return 60 s of noise with the look of step k in the 7 s around each centre."""
    values = NOISE.copy()
    for k, center in enumerate(shown):
        values[center - 3 : center + 4] += strength * WORDS[k]
    return values


def activity(seconds):
    rng = np.random.default_rng(0)
    looks, peaks = rng.random((60, 192)).astype(np.float32), rng.random(60).astype(np.float32)
    cuts = tuple(cut for cut in (9.0, 21.0, 30.0, 31.0, 40.0, 51.0) if cut < seconds)
    return Activity(peaks[:seconds] / 4, cuts, 1.0, peaks[:seconds], looks[:seconds])


def known_at(second, values, said=STARTS, *, edited=False):
    """Return a grounder that has heard and seen one video up to a second."""
    grounder = OnlineGrounder()
    for now in range(1, second + 1):
        heard = [start for start in said if start + 3 <= now]
        grounder.update_steps(steps(*heard), transcript(*heard), vectors=WORDS[: len(heard)])
        seen = FeatureSequence(values[:now], 1.0, "test")
        looked = activity(now) if edited else None
        grounder.update_pictures(float(now), features=seen, activity=looked)
    return grounder


@pytest.mark.parametrize("edited", [False, True], ids=["one take", "edited"])
def test_at_the_end_the_answer_is_that_of_ground(edited):
    grounder = known_at(60, pictures(), edited=edited)
    video = {"duration": 60.0, "transcript": transcript(*STARTS)}
    video["features"] = FeatureSequence(pictures(), 1.0, "test")
    video["activity"] = activity(60) if edited else None
    offline = ground(steps(*STARTS), **video, step_vectors=WORDS)
    online = grounder.finish(60.0)
    assert online.steps == offline.steps
    assert online.report == offline.report
    assert np.array_equal(online.alignment.scores, offline.alignment.scores)


@hypothesis_settings(max_examples=10, deadline=None)
@given(now=st.integers(10, 50), seed=st.integers(0, 99))
def test_pictures_that_come_later_change_no_answer(now, seed):
    other = pictures()
    other[now:] = np.random.default_rng(seed).normal(size=(60 - now, 32))
    heard = [start for start in STARTS if start + 3 <= now]
    answers = []
    for values in (pictures(), other):
        grounder = OnlineGrounder()
        words = {"vectors": WORDS[: len(heard)], "sentence_vectors": WORDS}
        grounder.update_steps(steps(*heard), transcript(*heard), **words)
        looked = activity(60)
        looked.thumbnails[now:] *= seed / 99
        cuts = tuple(cut for cut in looked.cuts if cut < now or values is other)
        film = FeatureSequence(values, 1.0, "test")
        seen = replace(looked, cuts=cuts)
        grounder.update_pictures(float(now), features=film, activity=seen)
        answers.append(grounder.steps)
    assert answers[0] == answers[1]


def test_a_step_moves_to_its_pictures_once_they_have_come():
    early, late = (known_at(now, pictures(4.0)).steps[3] for now in (42, 57))
    assert early.at < 42  # said in [33, 36), shown in [52, 59)
    assert 52 <= late.at < 59


def test_a_long_video_costs_what_its_last_minutes_cost():
    settings = GroundSettings(context=20.0)
    starts = [5.0 + 10 * n for n in range(30)]
    grounder, kept = OnlineGrounder(settings), {}
    for now in range(20, 301, 20):
        heard = steps(*(start for start in starts if start + 3 <= now))
        grounder.update_steps(heard)
        grounder.update_pictures(float(now))
        assert len(grounder.steps) == len(heard)
        window = grounder._window()
        assert len(window.steps) <= 5
        for k, step in enumerate(heard):
            if k not in window.decided_steps:
                assert kept.setdefault(step.id, grounder.steps[k].at) == grounder.steps[k].at
    assert len(kept) > 20
    whole = ground(steps(*starts[:29]), duration=300.0, settings=settings)
    assert [step.at for step in grounder.steps][:28] == [step.at for step in whole.steps][:28]


def test_a_revised_step_is_placed_again():
    grounder = OnlineGrounder()
    (step,) = steps(10.0)
    grounder.update_steps([step])
    grounder.update_pictures(30.0)
    assert grounder.steps[0].at == 12.5
    grounder.update_steps([step.model_copy(update={"said": Span(20.0, 23.0)})])
    assert grounder.steps[0].at == 22.5


def test_nothing_heard_or_seen_is_nothing_known():
    grounder = OnlineGrounder()
    assert grounder.steps == ()
    grounder.update_steps(steps(2.0))
    assert [step.status for step in grounder.steps] == [None]
