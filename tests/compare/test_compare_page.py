"""The page of a comparison."""

import shutil
from html.parser import HTMLParser

import pytest

from stepline.compare import compare
from stepline.compare.write import comparison_view, to_html, write_comparison
from stepline.media import probe
from stepline.records import Record, Span, Step, Video

HOSTILE = "<script>alert(1)</script> *stir* [x](y)"
TEXTS = ("whisk the eggs", "pour the batter into the pan", "flip the pancake", HOSTILE)
VOID_TAGS = ("meta", "link", "img", "br")


def make_record(id, texts, path=None):
    steps = []
    for number, text in enumerate(texts):
        span = Span(10.0 * number + 60.0, 10.0 * number + 65.0)
        steps.append(Step(id=f"a{number}", text=text, spans=(span,), status="placed"))
    duration = path and probe(path).duration
    video = Video(id=id, title="Pancakes", path=path and str(path), duration=duration)
    return Record(id=id, video=video, steps=tuple(steps))


@pytest.fixture
def comparison(tmp_path, small_video):
    path = shutil.copyfile(small_video, tmp_path / "a film.mp4")
    swapped = (TEXTS[1], TEXTS[0], *TEXTS[2:])
    records = [make_record("v1", TEXTS, path), make_record("v2", TEXTS[:3])]
    return compare([*records, make_record("v3", swapped), make_record("empty", ())])


class TagReader(HTMLParser):
    """Reads a page and notes its tags; fails where they do not nest."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags = []
        self._open = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def test_the_page_nests_links_its_videos_and_runs_nothing(comparison, tmp_path):
    page = to_html(comparison_view(comparison, tmp_path / "compared"))
    reader = TagReader()
    reader.feed(page)
    reader.close()
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert "../a%20film.mp4#t=60,65" in links
    assert "script" not in {tag for tag, _ in reader.tags}
    assert "&lt;script&gt;" in page
    assert 'name="generator" content="Stepline"' in page
    assert "Left out: <bdi>Pancakes: it has no steps" in page


def test_a_record_links_no_file_but_its_video(tmp_path, small_video):
    text = tmp_path / "private.txt"
    text.write_text("mine")
    video = shutil.copyfile(small_video, tmp_path / "private.mp4")
    records = [make_record("v1", TEXTS, small_video), make_record("v2", TEXTS[:3])]
    for path, duration in (
        (text, 16.0),
        (video, probe(video).duration + 5.0),
        (video, None),
        ("/dev/zero", 16.0),
        ("x" * 5000, 16.0),
        ("a\0b", 16.0),
    ):
        stranger = records[0].video.model_copy(update={"path": str(path), "duration": duration})
        comparison = compare([records[0].model_copy(update={"video": stranger}), records[1]])
        assert "#t=" not in to_html(comparison_view(comparison, tmp_path))


def test_the_page_has_steps_shares_times_and_orders(comparison, tmp_path):
    page = to_html(comparison_view(comparison, tmp_path))
    assert "all 3 videos" in page
    assert "2 of 3 videos that do both" in page
    assert "1:00 – 1:05" in page
    assert "Pancakes (v2)" in page


@pytest.mark.browser
def test_the_page_opens_and_is_readable(comparison, browser, tmp_path):
    out = tmp_path / "compared"
    write_comparison(comparison, out)
    page = browser.open(out / "comparison.html")
    assert page.run("$$('.step').length") == len(comparison.steps)
    assert page.violations() == []
    assert page.unreadable() == []
