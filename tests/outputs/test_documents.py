"""Documents that people edit and print: what is left of one in memory."""

import gc
import io

import pytest
from output_samples import picture_of

from stepline.outputs.documents import docx, pdf
from stepline.records import Record, Span, Step, Video


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
    for _ in range(3):
        docx(record, {})
    assert count() == before
    assert gc.isenabled()


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (1, 1), (8, 1), (20, 1), (30, 2), (300, 14)])
def test_a_pdf_has_as_few_pages_as_its_steps_need(count, pages):
    pypdf = pytest.importorskip("pypdf")
    pytest.importorskip("fpdf")
    steps = tuple(
        Step(id=str(number), text=f"slice lemon {number}", spans=(Span(number, number + 1.0),))
        for number in range(count)
    )
    record = Record(id="v", video=Video(id="v", title="Many lemons"), steps=steps)
    frames = {step.id: picture_of(number) for number, step in enumerate(steps)}
    read = pypdf.PdfReader(io.BytesIO(pdf(record, frames)))
    assert len(read.pages) <= pages
    words = "\n".join(page.extract_text() for page in read.pages)
    for number in range(count):
        assert f"{number + 1}. Slice lemon {number}" in words


def test_a_step_longer_than_a_page_is_printed_whole():
    pypdf = pytest.importorskip("pypdf")
    pytest.importorskip("fpdf")
    steps = (Step(id="a", text="slice " * 3000), Step(id="b", text="pour"))
    printed = pypdf.PdfReader(io.BytesIO(pdf(Record(id="v", video=Video(id="v"), steps=steps), {})))
    words = " ".join(page.extract_text() for page in printed.pages)
    assert words.lower().count("slice") == 3000
    assert "2. Pour" in words
