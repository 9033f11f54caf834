"""Make docs/pictures/{comparison,screencast}.webp in a headless Chromium, from made videos:
python docs/pictures_of_tasks.py."""

import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from pictures import ROOT, save_picture

import stepline
from stepline.cli import main as command_line
from stepline.storage import write_record

for folder in ("tests", "tests/compare", "lab"):
    sys.path.insert(0, str(ROOT / folder))
from browser import Browser  # noqa: E402
from screencast_recorder import Take, record_screencast  # noqa: E402
from test_compare import PANCAKES, make_record, milk  # noqa: E402

SCREEN_SIZE = {"width": 1280, "height": 860}


def make_pictures(folder: Path) -> None:
    """Write a picture of a comparison and of a screencast's page."""
    browser = Browser(folder / "profile")
    pages = {
        "comparison": comparison_page(folder / "pancakes"),
        "screencast": screencast_page(folder / "screencast", browser),
    }
    for name, path in pages.items():
        page = browser.open(path, **SCREEN_SIZE)
        save_picture(page, name, folder)
    browser.close()


def comparison_page(folder: Path) -> Path:
    """Compare three made records of one recipe, and return the page."""
    for number, (id, texts) in enumerate(PANCAKES.items()):
        record = make_record(id, texts, [milk(1.0 + number, 5.0)])
        write_record(record, folder / f"{id}.json")
    run("compare", folder, "--out", folder / "comparison")
    return folder / "comparison" / "comparison.html"


def screencast_page(folder: Path, browser: Browser) -> Path:
    """Film a made screencast, find its steps, and return the page."""
    folder.mkdir()
    take = Take("shop", "ahead", "light", 1.0, (1280, 720), cursor=True, seed=11)
    video = record_screencast(take, folder, browser)
    stepline.steps(video, out=folder / "out")
    return folder / "out" / f"{video.stem}.html"


def run(*words: object) -> None:
    """Call a command of Stepline, which has to succeed."""
    result = CliRunner().invoke(command_line, [str(word) for word in words])
    assert result.exit_code == 0, result.output


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        make_pictures(Path(scratch))
