from pathlib import Path

import pytest

CLIPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "videos"


@pytest.fixture
def clips():
    """The folder of real clips; the test is left out where it is absent."""
    if not CLIPS.is_dir():
        pytest.skip("the real clips of ../shared/data/videos are not here")
    return CLIPS


WILD = Path(__file__).resolve().parents[2] / ".." / "shared" / "cases" / "wild"


@pytest.fixture
def wild():
    """The folder of files of odd shapes; the test is left out where it is absent."""
    if not WILD.is_dir():
        pytest.skip("the odd files of ../shared/cases/wild are not here")
    return WILD
