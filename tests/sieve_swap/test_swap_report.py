"""The report: what it counts, and that no text of a video can become markup."""

import re
from html.parser import HTMLParser

from test_sieve_swap_run import GARLIC, VIDEOS, job, record, run

from stepline.sieve_swap.pairing import ThresholdRow
from stepline.sieve_swap.report import page, write_report
from stepline.sieve_swap.statistics import Statistics, add


class Tags(HTMLParser):
    """Counts the tags of a page and checks that they close in order."""

    VOID = frozenset({"meta", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], {}

    def handle_starttag(self, tag, attributes):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags(text):
    parser = Tags()
    parser.feed(text)
    assert parser.open == []
    return parser.seen


def test_a_run_leaves_its_report_next_to_its_parts(tmp_path):
    done = job(tmp_path)
    names = [file.name for file in write_report(done, run(done))]
    assert names == ["statistics.json", "report.html", "train.json", "validation.json"]
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Garlic toast" in text  # the title of a document, found in the base
    assert "it is an evaluation video" in text
    lines = re.findall(r'<li class="(\w+)"><b>0:05</b> ([^<]*)', text)
    assert ("c0", "peel two cloves of garlic") in lines
    assert ("c0", "Peel 2 cloves garlic.") in lines
    assert re.search(r'<li class="sieved"><b>0:00</b> hello dear friends', text)
    tags(text)


def test_text_is_never_markup(tmp_path):
    bad = record(
        "<b>", "Garlic toast <script>alert(1)</script>", GARLIC + "|<img src=x onerror=alert(1)>"
    )
    done = job(tmp_path, videos=[*VIDEOS[:1], bad])
    write_report(done, run(done))
    seen = tags((tmp_path / "out" / "report.html").read_text())
    assert not {"script", "img"} & set(seen)


def test_statistics_of_parts_are_summed():
    parts = [
        Statistics(videos={"train": 2}, steps_a_video={"3": 2}, seconds=4.5),
        Statistics(videos={"train": 1, "it is too long": 1}, steps_a_video={"1": 1}, seconds=0.5),
    ]
    whole = add(parts)
    assert whole.videos == {"train": 3, "it is too long": 1}
    assert (whole.steps_a_video, whole.seconds) == ({"3": 2, "1": 1}, 5.0)
    assert add([]) == Statistics()


def test_a_distribution_is_shown_by_its_quantiles():
    counts = {"1": 2, "3": 7, "12": 1}
    text = page(Statistics(steps_a_video=counts, seconds_a_video={"6": 4}), titles={})
    assert "<td>steps per video</td><td class=n>1</td><td class=n>3</td><td class=n>3</td>" in text
    assert "<td>seconds per video</td><td class=n>60</td>" in text  # bars of 10 s


def test_an_empty_report_is_a_page():
    assert tags(page(Statistics(), titles={}))["h1"] == 1


def test_the_table_of_thresholds_is_shown():
    assert "1,234" in page(Statistics(), titles={}, thresholds=[ThresholdRow(0.1, 0.3, 1234, 5, 6)])
