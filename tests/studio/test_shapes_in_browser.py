"""Upright videos in the studio, an empty library, and its pages on every screen."""

import pytest
from small_video import draw_video
from studio_server import let_in, library, serving

from stepline.library.corrected_library import video_id

pytestmark = pytest.mark.browser

ID = video_id("v0.json")
WIDTHS = (390, 768, 1280, 1920)


@pytest.fixture(scope="module")
def upright(tmp_path_factory):
    """A film of 16 s, 9:16, in a container that the browser plays."""
    path = tmp_path_factory.mktemp("upright") / "upright.mp4"
    return draw_video(path, rate=4, size=(144, 256))


@pytest.fixture(scope="module")
def server(tmp_path_factory, upright):
    with serving(library(tmp_path_factory.mktemp("shapes") / "library", upright)) as running:
        yield running


def box(page, selector):
    script = f"$('{selector}').getBoundingClientRect().toJSON()"
    return page.run(script)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_an_upright_clip_fills_the_screen_next_to_or_above_its_words(browser, server, dark):
    let_in(browser, server)
    page = browser.open(f"{server.address}follow/{ID}", height=900, dark=dark)
    page.wait_until("document.body.classList.contains('portrait')")
    for width in WIDTHS:
        page.resize(width)
        assert page.run("document.documentElement.scrollWidth") <= width
        # nothing is below the screen
        assert page.run("document.documentElement.scrollHeight") <= 900
        clip = box(page, ".clip")
        assert clip["height"] >= 0.5 * 900
        assert box(page, "#next")["bottom"] <= 900
        if width >= 768:
            assert box(page, "#text")["left"] >= clip["right"]
        style = "getComputedStyle($('video')).objectFit"
        assert page.run(style) == "contain"
        assert page.unreadable() == []
        assert page.violations() == []


def test_the_review_of_an_upright_video_has_the_player_next_to_the_steps(browser, server):
    let_in(browser, server)
    page = browser.open(f"{server.address}video/{ID}", width=1280)
    page.wait_until("document.body.classList.contains('portrait')")
    player = box(page, "#player")
    assert player["width"] / player["height"] == pytest.approx(9 / 16, abs=0.02)
    assert box(page, ".steps")["left"] >= player["right"]
    page.wait_until("$('.step .thumb')")
    assert box(page, ".thumb")["bottom"] < box(page, ".step")["bottom"]  # nothing of it is cut off
    assert page.violations() == []
    page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_studio_opens_on_search_and_an_empty_one_says_what_to_do(browser, tmp_path, dark):
    folder = tmp_path / "library"
    folder.mkdir()
    with serving(folder) as running:
        let_in(browser, running)
        page = browser.open(running.address, dark=dark)
        page.wait_until("!$('#tour').hidden")
        assert page.run("$$('#tour li').length") == 3
        for width in WIDTHS:
            page.resize(width)
            assert box(page, "#wanted")["bottom"] < 400
            assert not page.run("$('#running').checkVisibility()")
            assert page.run("document.documentElement.scrollWidth") <= width
            assert page.unreadable() == []
            assert page.violations() == []
