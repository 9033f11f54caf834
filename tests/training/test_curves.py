import sys

import pytest

from stepline.errors import SettingsError
from stepline.training.loop import Curves, Progress


def points(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    names = found.Tags()["scalars"]
    return {name: [(event.step, round(event.value, 3)) for event in found.Scalars(name)] for name in names}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_curves_hold_each_step_once_also_after_a_stop(tmp_path):
    pytest.importorskip("tensorboard")
    for steps in ((1, 2, 3), (2, 3, 4)):  # stopped after 3, resumed after 1
        curves = Curves(tmp_path)
        for step in steps:
            curves.write(Progress(step, 4, 10.0 / step, 0.1, 2.0, step, 0.5, 0.25 if step == 4 else None))
        curves.close()
    found = points(tmp_path)
    assert found["loss"] == [(1, 10.0), (2, 5.0), (3, 3.333), (4, 2.5)]
    assert found["score"] == [(4, 0.25)]
    assert found["waited"][0] == (1, 0.25)


def test_without_its_package_the_cure_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingsError, match="pip install 'stepline.train.', or leave --tensorboard out"):
        Curves(tmp_path)
