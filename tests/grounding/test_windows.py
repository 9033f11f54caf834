"""A long video is grounded in windows: every step decided once, as its neighbourhood alone would
decide it."""

import numpy as np
import pytest

from stepline.grounding.ground import ground
from stepline.grounding.inputs import cut_into_windows
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript
from stepline.vision import Activity

SHORT = GroundSettings(window=100.0, context=40.0)
LENGTH = 400


def said(count=20):
    """Return steps said every 20 s from second 5 on, and the transcript that says them."""
    spans = [Span(float(n * 20 + 5), float(n * 20 + 8)) for n in range(count)]
    steps, sentences = [], []
    for n, span in enumerate(spans):
        steps.append(Step(id=str(n), text=f"step {n}", said=span, sources=(n,)))
        sentences.append(Sentence(text=f"step {n}", span=span))
    return steps, Transcript(sentences=tuple(sentences))


def test_every_step_of_a_long_video_is_decided_once_and_a_short_one_is_one_window():
    (only,) = cut_into_windows(said(5)[0], 100.0, SHORT)
    assert (only.context, only.steps) == (Span(0.0, 100.0), (0, 1, 2, 3, 4))
    steps, _ = said()
    parts = cut_into_windows(steps, float(LENGTH), SHORT)
    contexts = [(part.context.start, part.context.end) for part in parts]
    assert contexts == [(0, 140), (60, 240), (160, 340), (260, 400)]
    assert sorted(step for part in parts for step in part.decided_steps) == list(range(20))
    assert all(part.decided_steps <= set(part.steps) for part in parts)
    # a line that no one speaks needs the whole video
    assert len(cut_into_windows([*steps, Step(id="x", text="unsaid")], float(LENGTH), SHORT)) == 1


def test_windows_place_a_step_where_its_neighbourhood_alone_does():
    steps, transcript = said()
    parted = ground(steps, duration=float(LENGTH), transcript=transcript, settings=SHORT)
    whole = ground(steps, duration=float(LENGTH), transcript=transcript)
    assert [step.at for step in parted.steps] == [step.at for step in whole.steps]
    assert [step.spans for step in parted.steps] == [step.spans for step in whole.steps]
    assert [step.sources for step in parted.steps] == [step.sources for step in steps]
    assert [step.said for step in parted.steps] == [step.said for step in steps]
    assert parted.alignment.scores.shape == (20, LENGTH)
    best = parted.alignment.scores.argmax(axis=1)
    for row, step in zip(best, parted.steps, strict=True):
        assert abs(int(row) - step.at) <= 1.5


def test_features_and_motion_of_a_window_are_its_own():
    steps, transcript = said()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 32)).astype(np.float32)
    values = rng.normal(size=(LENGTH, 32)).astype(np.float32)
    for n in range(20):
        # each shown five seconds after it is said
        values[n * 20 + 10 : n * 20 + 17] += 2 * vectors[n]
    seen = FeatureSequence(values, 1.0, "test")
    activity = Activity(np.full(LENGTH, 0.01, np.float32), cuts=(200.0,), rate=1.0)
    video = {"transcript": transcript, "features": seen, "activity": activity}
    options = {"step_vectors": vectors, "settings": SHORT}
    grounding = ground(steps, duration=float(LENGTH), **video, **options)
    placed = [(n, step) for n, step in enumerate(grounding.steps) if step.at is not None]
    inside = [n * 20 + 10 <= step.at < n * 20 + 17 for n, step in placed]
    assert sum(inside) >= 18
    assert grounding.report.likeness > 0
    assert grounding.report.note.startswith("4 windows")


@pytest.mark.parametrize("duration", [150.5, 151.0, 399.2])
def test_no_span_ends_after_the_video(duration):
    steps, _ = said(int(duration // 20))
    grounding = ground(steps, duration=duration, settings=SHORT)
    assert all(span.end <= duration for step in grounding.steps for span in step.spans)
    assert all(0 <= step.at <= duration for step in grounding.steps if step.at is not None)
