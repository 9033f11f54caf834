import pytest
from output_samples import hostile_record, make_alignment, picture_of, sample_record


@pytest.fixture
def record():
    return sample_record()


@pytest.fixture
def alignment(record):
    return make_alignment(record)


@pytest.fixture
def keyframes(record):
    return {
        step.id: picture_of(number)
        for number, step in enumerate(record.steps, start=1)
        if step.spans
    }


@pytest.fixture
def hostile():
    return hostile_record()
