"""Documents that people edit and print: what is left of one in memory."""

import gc

import pytest

from stepline.outputs.documents import docx
from stepline.records import Record, Step, Video


def test_a_word_document_leaves_nothing_behind():
    package = pytest.importorskip("docx.package").Package
    # so many steps that the collector runs while they are written
    steps = tuple(Step(id=str(number), text=f"Slice {number} lemons") for number in range(150))
    record = Record(id="v", video=Video(id="v"), steps=steps)

    def count():
        # isinstance would ask objects of other libraries, some of which warn
        return sum(type(item) is package for item in gc.get_objects())

    gc.collect()
    before = count()
    docx(record, {})
    assert count() == before
    assert gc.isenabled()
