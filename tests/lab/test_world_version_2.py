"""Version 2 of the simulated world: lags, phases, previews and repetitions; version 1 stays what it
was."""

import numpy as np
import pytest

from lab.simulate import SHORT_2, SHORT_WORLD, SimulationSettings, stream
from lab.simulate.scene import make_scene
from lab.simulate.tasks import Purpose
from stepline.errors import SettingsError
from stepline.settings import validate

WINDOWS = [[10.42, 16.23], [38.38, 49.9]]  # of video 0 of world 0, before there was a version 2
TIMES = [[0.61, 4.14], [4.21, 6.65]]


def world(**parts):
    kept = {name: getattr(SHORT_WORLD, name) for name in parts}
    changed = {name: kept[name].model_copy(update=values) for name, values in parts.items()}
    return SHORT_WORLD.model_copy(update=changed)


def acting(video):
    """Return in which seconds an action is seen."""
    settings = video.world.settings.scene
    rng = np.random.default_rng(int(Purpose.SCENE))
    scene = make_scene(video.world.domain, video.task, video.timeline, settings, rng)
    return np.abs(scene.action).sum(axis=1) > 0


def offsets(video):
    """Return shown start - said start of each sentence, in seconds."""
    lines = video.narration
    windows = video.timeline.windows[lines.window[lines.shown]]
    return windows[:, 0] - lines.times[lines.shown, 0]


def median_offset(settings, count):
    found = [offsets(video) for video in stream(1, settings, count=count)]
    return float(np.median(np.concatenate(found)))


def test_version_1_is_what_it_was():
    video = next(stream(0))
    assert video.timeline.windows[:2].tolist() == WINDOWS
    assert video.narration.times[:2].tolist() == TIMES
    assert not video.timeline.again.any()


def test_a_previewed_step_is_shown_for_a_moment_before_its_turn():
    for video in stream(0, world(timeline={"previewed": 1.0, "preview_median": 2.0}), count=5):
        timeline = video.timeline
        for step in set(timeline.steps.tolist()):
            first, second = np.flatnonzero(timeline.steps == step)
            assert (bool(timeline.again[first]), bool(timeline.again[second])) == (True, False)
            assert np.ptp(timeline.windows[first]) < np.ptp(timeline.windows[second])


def test_what_is_shown_again_may_go_untold():
    again = {"timeline": {"previewed": 0.5, "repeated": 0.5}, "narration": {"again_told": 0.0}}
    for video in stream(0, world(**again), count=5):
        told = video.narration.window[video.narration.shown]
        assert set(told.tolist()) == set(np.flatnonzero(~video.timeline.again).tolist())


def test_an_action_is_seen_in_the_act_and_less_around_it():
    parts = {"action_seen": 1.0, "preparation": 0.25, "result": 0.5, "seen_around_act": 0.0}
    for video in stream(0, world(scene=parts), count=5):
        seen = acting(video)
        for start, end in video.timeline.windows:
            for second in range(int(np.ceil(start)), int(end)):
                part = (second + 0.5 - start) / (end - start)
                assert seen[second] == (0.25 <= part < 0.5), (start, end, second)


def test_pictures_follow_the_words_by_the_lag():
    medians = [median_offset(world(narration={"offset": lag}), 60) for lag in (-2.0, 1.0, 4.0)]
    assert medians[0] + 2 < medians[1] < medians[2] - 2


def test_videos_differ_in_their_lag():
    def spread(settings):
        found = [np.median(offsets(video)) for video in stream(1, settings, count=60)]
        return float(np.ptp(np.percentile(found, [25, 75])))

    assert spread(world(narration={"lag_spread": 6.0})) > spread(SHORT_WORLD) + 3


def test_version_2_is_nearer_to_whenact():
    """A passage of 10 s that holds a sentence of 4 s begins 3 s before it: WhenAct's median of 1 s
    is -2 s here."""
    first, second = (median_offset(settings, 120) for settings in (SHORT_WORLD, SHORT_2))
    assert abs(second + 2.0) < abs(first + 2.0)


def test_a_window_keeps_a_part_for_its_act():
    with pytest.raises(SettingsError, match="leave a part of the window for the act"):
        validate(SimulationSettings, {"scene": {"preparation": 0.6, "result": 0.4}})
