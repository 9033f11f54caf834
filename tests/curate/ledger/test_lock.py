import json
import time

import pytest

from stepline.curate.ledger.lock import NAME, holder, sole_driver
from stepline.curate.places import Place
from stepline.errors import SettingsError


@pytest.fixture(params=["disk", "memory"])
def out(request, tmp_path):
    """OUT on a disk and in an object store."""
    return Place(str(tmp_path / "out") if request.param == "disk" else f"memory://{tmp_path.name}-out")


def test_one_driver_holds_out_at_a_time(out):
    assert holder(out) is None
    with sole_driver(out):
        assert "process" in holder(out)
        with pytest.raises(SettingsError, match="works on it"), sole_driver(out):
            pass
    assert holder(out) is None
    with sole_driver(out) as killed:
        assert not killed


def test_a_dead_drivers_sign_of_life_in_a_store_grows_stale(tmp_path):
    out = Place(f"memory://{tmp_path.name}-stale")
    (out / NAME).write(json.dumps({"host": "far", "process": 7, "at": time.time() - 3600, "name": ""}))
    assert holder(out) is None
    with sole_driver(out):
        assert "process" in holder(out)
