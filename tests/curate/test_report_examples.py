"""The examples of a report: which steps, with which pictures and seconds, and where they lead."""

import pytest
from made_records import record
from small_video import draw_video

from stepline.curate.report.examples import example_video, video_link
from stepline.curate.report.write import write_report
from stepline.curate.settings import ReportSettings
from stepline.files.remote import RemotePath
from stepline.records import LinkOrigin
from stepline.storage import write_parquet

EVIL = '"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A dataset of three videos, of which one has its file and one the page that it is from."""
    out = tmp_path_factory.mktemp("dataset")
    film = draw_video(out / "my film #1.mp4")
    steps = [(f"Chop {n} onions", float(n), 0.9) for n in range(10)]
    soup = record("soup", steps, task="Make soup", title="Soup", path=str(film), duration=16.0)
    cake = record("cake", [("Whisk the eggs", 3.0, 0.4)], task="Bake a cake", language="de")
    origin = LinkOrigin(url="https://example.org/watch?v=1")
    cake = cake.model_copy(update={"video": cake.video.model_copy(update={"origin": origin})})
    evil = record("evil", [(EVIL, 2.0, None)], title=EVIL, task=EVIL, path="javascript:alert(1)")
    data = out / "dataset" / "data"
    data.mkdir(parents=True)
    write_parquet([soup, cake, evil], data / "all.parquet")
    write_report(RemotePath(str(out)), ReportSettings(audit_videos=0))
    return out


def test_a_video_is_shown_with_steps_spread_over_it():
    steps = [(f"step {n}", float(n), 0.5) for n in range(10)]
    example = example_video(record("v", [*steps, ("never", None, 0.1)]), 4)
    assert [step.number for step in example.steps] == [2, 4, 7, 9]
    assert "11 steps" in example.facts
    assert len(example_video(record("v", steps[:2]), 4).steps) == 2


def test_a_link_leads_to_a_file_or_to_the_web_alone(tmp_path):
    film = tmp_path / "a b#.mp4"
    film.touch()
    assert video_link(str(film), tmp_path / "out") == "../a%20b%23.mp4"
    assert video_link("https://example.org/v", None) == "https://example.org/v"
    for address in ("javascript:alert(1)", "s3://bucket/v.mp4", str(tmp_path / "none.mp4"), None):
        assert video_link(address, tmp_path) is None


def test_the_report_has_pictures_seconds_and_links(out):
    page = (out / "report.html").read_text()
    assert page.count("<img src=") == 4  # of the one video whose file is there
    assert 'href="my%20film%20%231.mp4#t=1.00,5.00">0:01 – 0:05</a>' in page
    assert 'href="https://example.org/watch?v=1">0:03 – 0:07</a>' in page
    assert "cake: no pictures, its file is not on this machine" in page
    assert "javascript:" not in page
    assert EVIL not in page
