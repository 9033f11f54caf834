import pytest
from official_forms import SAMPLES


@pytest.fixture
def sample(tmp_path):
    """Write a dataset's small official sample and return its path: sample("coin")."""
    return lambda name: SAMPLES[name](tmp_path)
