import numpy as np
import pytest

from stepline.grounding.shots import action_log_odds, split_shot


@pytest.mark.parametrize(("length", "edges"), [(10, [0, 10]), (21, [0, 7, 14, 21])])
def test_long_shots_are_split_shot_of_about_seven_seconds(length, edges):
    parts = split_shot(slice(0, length))
    assert [part.start for part in parts] + [parts[-1].stop] == edges


def test_a_face_at_the_camera_and_chat_speak_against_doing():
    seconds = np.zeros(9)
    face, told, chat = seconds.copy(), seconds.copy(), seconds.copy()
    face[:3], chat[1], told[7] = 1.0, 1.0, 1.0
    odds = action_log_odds(face, told, chat)
    # At 1: all three seconds with a face, chat in it, the step e**-1.5 away.
    assert odds[1] == pytest.approx(-3.6 + 1.3 * np.log((np.exp(-1.5) + 1) / 2) + 1.0)
    assert odds[7] == pytest.approx(1.3 * np.log(2 / (np.exp(-1.5) + 1)) + 1.0)
    assert np.isfinite(action_log_odds(np.full(9, np.nan), told, chat)).all()
