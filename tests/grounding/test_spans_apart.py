"""Shown spans end where the next step's begin, by whatever path steps are placed."""

import itertools

import numpy as np
import pytest
from known_steps import NAMES, SECONDS, SHOTS, grounded

from stepline.grounding.fusion import separate_overlapping_spans
from stepline.grounding.ground import ground
from stepline.grounding.settings import GroundSettings
from stepline.grounding.vision_language.segments import (
    picture_seconds,
    segment_probabilities,
    update_placements,
    video_segments,
)
from stepline.models.nasva.align import TextScores
from stepline.models.nasva.predict import ground_by_aligner
from stepline.models.nasva.settings import AlignerSettings
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript


def shown(name, at, start, end):
    return Step(id=name, text=name, at=at, spans=(Span(start, end),), status="placed", score=0.9)


def assert_apart(steps):
    """Assert that no two spans overlap, but of steps that are likeliest at the same second."""
    placed = [step for step in steps if step.spans]
    assert placed
    for first, second in itertools.combinations(placed, 2):
        if first.at != second.at:
            assert first.spans[0].overlap(second.spans[0]) == 0, (first, second)
    for step in placed:
        assert step.spans[0].start <= step.at <= step.spans[0].end


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # between the seconds of their steps spans meet halfway, but inside their overlap
        ([(10.5, 6, 15), (16.5, 12, 20)], [(6, 14), (14, 20)]),
        ([(10.5, 6, 12), (20.5, 11, 24)], [(6, 12), (12, 24)]),
        # steps of one second share what is theirs and end together
        ([(10.5, 6, 15), (10.5, 6, 15), (16.5, 12, 20)], [(6, 14), (6, 14), (14, 20)]),
    ],
)
def test_spans_that_overlap_between_the_seconds_of_their_steps_meet_halfway(given, expected):
    steps = [shown(str(n), *row) for n, row in enumerate(given)]
    apart = separate_overlapping_spans(steps)
    assert [step.spans for step in apart] == [(Span(*ends),) for ends in expected]


def test_spans_of_drawn_places_never_overlap():
    rng = np.random.default_rng(0)
    for _ in range(200):
        steps = []
        for number in range(6):
            at = float(rng.integers(0, 120)) / 3
            reach = rng.uniform(0.1, 12.0, 2)
            steps.append(shown(str(number), at, max(0.0, at - reach[0]), at + reach[1]))
        assert_apart(separate_overlapping_spans(steps))


def spoken_steps(starts):
    sentences = []
    steps = []
    for number, start in enumerate(starts):
        span = Span(start, start + 3.0)
        sentences.append(Sentence(text=f"do thing {number}", span=span))
        steps.append(Step(id=str(number), text=f"thing {number}", said=span, sources=(number,)))
    return steps, Transcript(language="en", sentences=tuple(sentences))


@pytest.mark.parametrize("written", [True, False], ids=["written steps", "a user's lines"])
def test_grounded_steps_are_apart(written):
    rng = np.random.default_rng(1)
    for _ in range(20):
        starts = sorted(rng.uniform(0.0, 100.0, 8).tolist())
        steps, transcript = spoken_steps(starts)
        grounding = ground(steps, duration=110.0, transcript=transcript, written=written)
        assert_apart(grounding.steps)


def test_steps_of_long_videos_are_apart_over_the_borders_of_windows():
    starts = np.arange(5.0, 200.0, 6.0).tolist()
    steps, transcript = spoken_steps(starts)
    settings = GroundSettings(window=40.0, context=10.0)
    grounding = ground(steps, duration=210.0, transcript=transcript, settings=settings)
    assert_apart(grounding.steps)


class LoadedScores:
    """An aligner that fits every step to the same forty rows, one after the other."""

    network, calibration, sha256 = None, None, "0"

    def check_features(self, features):
        """Take any features."""


@pytest.mark.parametrize("rule", ["grown", "start"])
def test_steps_that_a_network_places_are_apart_unless_the_paper_s_rule_is_asked_for(
    rule, monkeypatch
):
    scores = np.zeros((4, 40), np.float32)
    for row, center in zip(scores, (10, 14, 18, 22), strict=True):
        row[:] = np.exp(-np.abs(np.arange(40) - center) / 6.0)
    fit = TextScores(scores, None, 1.0)
    monkeypatch.setattr("stepline.models.nasva.predict.score_texts", lambda *_, **__: fit)
    steps = [Step(id=str(k), text=str(k)) for k in range(4)]
    features = FeatureSequence(np.zeros((40, 3), np.float32), 1.0, "drawn")
    settings = AlignerSettings(spans=rule, compete=0.0, order="none", grow=0.3)
    given = (steps, LoadedScores(), features, np.zeros((4, 3), np.float32))
    placed = ground_by_aligner(*given, settings=settings)
    if rule == "grown":
        assert_apart(placed.steps)
    else:
        assert placed.steps[0].spans[0].overlap(placed.steps[1].spans[0]) > 0


def test_steps_that_a_model_of_pictures_moves_are_apart():
    grounding = grounded()
    segments = video_segments(SHOTS)
    placed = (grounding.steps, grounding.alignment)
    before = segment_probabilities(*placed, segments)
    after = np.roll(before, 1, axis=0)  # each step where its neighbour was
    seconds = picture_seconds(grounding.alignment, segments, float(SECONDS))
    options = {"duration": float(SECONDS), "settings": GroundSettings()}
    steps, _ = update_placements(*placed, SHOTS, seconds, before, after, **options)
    assert len(steps) == len(NAMES)
    assert_apart(steps)
