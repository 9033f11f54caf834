import pytest
from output_samples import hostile_record, make_alignment, sample_keyframes, sample_record


@pytest.fixture
def record():
    return sample_record()


@pytest.fixture
def alignment(record):
    return make_alignment(record)


@pytest.fixture
def keyframes(record):
    return sample_keyframes(record)


@pytest.fixture
def hostile():
    return hostile_record()
