"""The page of a shot list in a real browser: pictures load, shots are filtered, all can be read."""

import pytest
from browser import CHROMIUM, Browser

from stepline.media import encode_jpeg, frames_at
from stepline.shots.shot_list import Shot, ShotList, ShotStep
from stepline.shots.write import write_shots

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no `chromium` on PATH; Debian: apt install chromium"
    ),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, small_video):
    """A list of four shots of four seconds, of which the second shows two steps."""
    folder = tmp_path_factory.mktemp("shots #1")
    steps = (
        ShotStep(number=1, id="a", text="Slice the lemons", verdict="shown"),
        ShotStep(number=2, id="b", text="Pour the juice", verdict="likely shown, by the words"),
    )
    shots = []
    for number in range(1, 5):
        start = 4.0 * (number - 1)
        shot = Shot(
            number=number,
            start=start,
            end=start + 4.0,
            thumbnail=f"my film.shots/{number:04d}.jpg" if number < 4 else None,
            steps=steps if number == 2 else (),
        )
        shots.append(shot)
    shot_list = ShotList(
        id="my film",
        title="My film",
        video=str(small_video),
        duration=16.0,
        width=160,
        height=120,
        record=True,
        shots=tuple(shots),
    )
    frames = frames_at(small_video, [2.0, 6.0, 10.0])
    pictures = {number: encode_jpeg(frame.image) for number, frame in enumerate(frames)}
    paths = write_shots(shot_list, pictures, folder)
    return next(path for path in paths if path.suffix == ".html")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_page_of_shots_shows_its_pictures_and_links_to_their_seconds(
    page_file, tmp_path, width, dark
):
    browser = Browser(tmp_path / "profile")
    try:
        page = browser.open(page_file, width=width, dark=dark)
        page.run("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_until("[...document.images].every((image) => image.naturalWidth === 160)")
        assert page.run("document.images.length") == 3
        assert page.run("document.querySelector('.frame').hash") == "#t=0.00,4.00"
        visible = "[...document.querySelectorAll('.shots > li')].filter((e) => e.checkVisibility())"
        assert page.run(f"{visible}.length") == 4
        page.click("#with-steps")
        assert page.run(f"{visible}.map((shot) => shot.id)") == ["shot-2"]
        page.click("#with-steps")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert not page.violations()
        assert not page.unreadable()
        assert not page.complaints()
    finally:
        browser.close()
