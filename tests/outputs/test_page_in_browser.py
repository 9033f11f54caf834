"""The page as a person uses it: in a real browser, from a file, with a real video."""

import pytest
from output_samples import (
    SPOKEN,
    hostile_record,
    make_alignment,
    make_step,
    make_video,
    record_of,
    sample_keyframes,
    sample_record,
)

from stepline.outputs import page, write_outputs

pytestmark = pytest.mark.browser

TIME = "$('#player').currentTime"
FOCUS = "document.activeElement.closest('.step')?.id"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    make_video(folder / "my film #1.webm", 67)
    record = sample_record()
    common = {"keyframes": sample_keyframes(record), "media": folder / "my film #1.webm"}
    write_outputs(record, folder / "out", alignment=make_alignment(record), **common)
    hostile = hostile_record()
    common = {"media": common["media"], "formats": ["html"]}
    write_outputs(hostile, folder / "hostile", alignment=make_alignment(hostile), **common)
    write_outputs(record, folder / "lost", media=folder / "gone.mp4", formats=["html"])
    return folder


@pytest.fixture
def open_page(browser, folder):
    def open_page(name="out", **screen):
        (path,) = (folder / name).glob("*.html")
        page = browser.open(path, **screen)
        if name != "lost":
            page.wait_until("$('#player').readyState >= 1")
        return page

    return open_page


def test_a_click_on_a_step_seeks_the_player_and_marks_the_step(open_page):
    page = open_page()
    page.click("#step-6 .go")
    page.wait_until(f"{TIME} >= 32 && {TIME} < 38")
    page.wait_until("$('#step-6').classList.contains('now-playing')")
    words = page.run("$('#now-text').textContent")
    assert words == "Tear up the mint and bruise it with a spoon"
    assert page.run("$$('.step.now-playing').length") == 1
    assert page.run("$('[aria-current=true]').id") == "step-6"
    assert page.complaints() == []


def test_clicks_on_a_sentence_a_bar_and_the_picture_seek_too(open_page):
    page = open_page()
    page.click(".sentence:nth-child(13) .time")
    page.wait_until(f"{TIME} >= 61.6")
    page.click(".bar.reference")
    page.wait_until(f"{TIME} >= 6.5 && {TIME} < 12")
    page.run("$('#player').pause()")
    page.click("[data-rows]")
    page.wait_until(f"Math.abs({TIME} - 33.5) < 0.5")  # the middle of 67 s
    cursor = "parseFloat($('[data-rows] [data-cursor]').getAttribute('x1'))"
    page.wait_until(f"Math.abs({cursor} - 50) < 1")


def test_the_keyboard_alone_reaches_and_plays_every_step(open_page):
    page = open_page()
    page.press("j", 74, "j")
    page.press("j", 74, "j")
    assert page.run(FOCUS) == "step-2"
    page.press("ArrowDown", 40)
    page.press("k", 75, "k")
    page.press("ArrowDown", 40)
    assert page.run(FOCUS) == "step-3"
    page.run("player.playbackRate = 0.25")  # however slow this test is
    page.press("Enter", 13, "\r")
    page.wait_until(f"{TIME} >= 15 && {TIME} < 20")
    page.wait_until("!$('#player').paused")
    page.press(" ", 32, " ")
    page.wait_until("$('#player').paused")
    assert page.run(f"{TIME} < 20")  # the key paused and did not press the button again
    assert page.complaints() == []


def test_the_focus_is_visible(open_page):
    page = open_page()
    page.press("j", 74, "j")
    assert page.run("getComputedStyle($('#step-1')).outlineStyle") == "solid"


def test_nothing_is_asked_of_the_network(open_page):
    page = open_page()
    page.click("#step-4 .go")
    page.wait_until(f"{TIME} >= 19")
    asked = [address.partition(":") for address in page.requests()]
    assert {scheme for scheme, _, _ in asked} == {"file", "data"}
    names = {path.rsplit("/", 1)[1] for scheme, _, path in asked if scheme == "file"}
    assert names == {"mint-lemonade.html", "my%20film%20%231.webm"}


def test_hostile_text_is_inert(open_page):
    page = open_page("hostile", width=1280)
    for number in range(1, 11):
        page.click(f"#step-{number} .go")
    assert page.run("$$('script').length") == 2
    assert page.run("$$('img, h1 *:not(bdi), [onerror]').length") == 0
    texts = page.run("$$('.step .text').map(e => e.textContent)")
    assert (texts[0], texts[4]) == ("<script>alert(1)</script>", "{{7*7}} {% raw %}")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert "Page.javascriptDialogOpening" not in [event["method"] for event in page.events]
    assert {address.split(":")[0] for address in page.requests()} == {"file", "data"}
    assert page.complaints() == []


def test_a_script_that_got_into_the_page_would_not_run(open_page):
    page = open_page()
    page.run(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.broken = 1'; "
        "document.body.append(s); const d = document.createElement('div'); document.body.append(d); "
        "d.innerHTML = '<p onclick=\"window.broken = 2\">x</p>'; d.firstChild.click() })()"
    )
    assert page.run("window.broken") is None
    assert any("Content Security Policy" in str(complaint) for complaint in page.complaints())


@pytest.mark.parametrize("name", ["out", "hostile"])
@pytest.mark.parametrize("width", [320, 390, 820])
def test_a_narrow_screen_never_scrolls_sideways(open_page, name, width):
    page = open_page(name, width=width, height=800)
    # in the hostile page a word of 10,000 letters, now shown under the player
    page.click("#step-6 .go")
    page.wait_until("!$('#now').hidden && $('#now-number').textContent == 6")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_a_page_that_lost_its_video_says_so_and_takes_it_again(open_page, folder):
    page = open_page("lost")
    page.wait_until("!$('#unplayable').hidden")
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", nodeId=root, selector="#choose")["nodeId"]
    assert ".avi" in page.run("$('#choose').accept").split(",")
    (folder / "old.avi").write_bytes(b"RIFF")
    page.send("DOM.setFileInputFiles", files=[str(folder / "old.avi")], nodeId=node)
    page.wait_until("!$('#unplayable').hidden && unplayed.textContent.startsWith('old.avi')")
    page.send("DOM.setFileInputFiles", files=[str(folder / "my film #1.webm")], nodeId=node)
    page.wait_until("$('#player').readyState >= 1")
    assert page.run("$('#unplayable').hidden")
    page.click("#step-2 .go")
    page.wait_until(f"{TIME} >= 10")


def test_a_link_opens_the_video_at_a_time_or_at_a_step(browser, folder):
    (path,) = (folder / "out").glob("*.html")
    links = {"#t=33.5": 33.5, "#t=0:20": 20, "#step-6": 32, "#step-10": 51.5, "?t=33.5": 33.5}
    for link, second in links.items():
        page = browser.open(path.resolve().as_uri() + link)
        page.wait_until(f"Math.abs({TIME} - {second}) < 0.1")
        assert page.run("$('#player').paused")
    # where it is: the page may still be scrolling
    page.run("$('#step-4 .permalink').click()")
    page.wait_until(f"Math.abs({TIME} - 19) < 0.1 && $('#now-link').hash == '#t=19'")
    assert page.run("location.hash") == "#step-4"
    page.run(f"{TIME} = 2")
    page.run("$('#step-4 .permalink').click()")
    page.wait_until(f"Math.abs({TIME} - 19) < 0.1")
    page.run("location.hash = '#t=broken'")
    assert page.complaints() == []


def test_a_place_without_a_step_has_no_empty_circle(open_page):
    page = open_page()
    page.run(f"{TIME} = 8")
    page.wait_until("$('#now-number').offsetWidth > 0")
    page.run(f"{TIME} = 1")
    page.wait_until("$('#now-text').textContent == 'no step'")
    assert page.run("$('#now-number').offsetWidth") == 0


def test_the_dark_scheme_is_followed(open_page):
    colour = "getComputedStyle(document.body).backgroundColor"
    assert open_page().run(colour) == "rgb(246, 245, 241)"
    assert open_page(dark=True).run(colour) == "rgb(18, 22, 24)"


def test_of_steps_that_overlap_the_one_nearest_its_most_likely_second_is_the_one_playing(
    browser, folder
):
    spans = ((0.0, 20.0), (8.0, 40.0), (50.0, 60.0))  # most likely at 10, 24, 55 s
    rows = tuple(make_step(number, "cut", (span,)) for number, span in enumerate(spans, start=1))
    record = record_of(*rows, id="overlap", duration=67.0)
    (path,) = write_outputs(
        record, folder / "overlap", media=folder / "my film #1.webm", formats=["html"]
    )
    page = browser.open(path)
    page.wait_until("$('#player').readyState >= 1")
    expected = (12, 1, [2]), (18, 2, [1]), (30, 2, []), (45, None, []), (55, 3, [])
    for second, playing, also in expected:
        page.run(f"{TIME} = {second}")
        page.wait_until(f"$('#now-number').textContent == '{playing or ''}' && !now.hidden")
        assert page.run("$$('.also-playing').map(e => e.id)") == [f"step-{n}" for n in also]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_control_has_a_name_and_every_word_enough_contrast(open_page, width, dark):
    page = open_page(width=width, dark=dark)
    page.run("keys.showModal()")
    page.run(
        "wanted.value = 'the'; wanted.dispatchEvent(new Event('input')); window['find-on'].click()"
    )
    assert page.run("$$('mark').length") == sum(text.lower().count("the") for *_, text in SPOKEN)
    assert page.unreadable() == []


def test_a_step_loops_and_the_speed_follows_buttons_and_keys(open_page):
    page = open_page()
    page.click("#step-6 .go")  # 32 to 38 s
    page.wait_until(f"{TIME} >= 32")
    page.press("l", 76, "l")
    assert page.run("$('#loop').getAttribute('aria-pressed')") == "true"
    assert page.run("$('#loop').textContent") == "Loops step 6"
    for _ in range(3):
        page.press(">", 190, ">")
    assert (page.run("player.playbackRate"), page.run("speed.value")) == (2, "2")
    page.run(f"player.play(); {TIME} = 37.6")
    page.wait_until(f"{TIME} > 37.6")
    page.wait_until(f"{TIME} >= 32 && {TIME} < 37")
    page.click("#step-2 .go")  # the loop goes along
    page.wait_until("$('#loop').textContent == 'Loops step 2'")
    page.run(f"{TIME} = 1")  # where no step is, it ends
    page.wait_until("$('#loop').getAttribute('aria-pressed') == 'false'")
    page.run("speed.value = '0.5'; speed.dispatchEvent(new Event('change'))")
    assert page.run("player.playbackRate") == 0.5
    page.run(f"player.pause(); {TIME} = 20")
    page.press("ArrowRight", 39)
    page.wait_until(f"Math.abs({TIME} - 25) < 0.1")
    assert page.complaints() == []


def test_the_transcript_is_searched_and_a_match_is_where_the_player_goes(open_page):
    page = open_page()
    page.press("/", 191, "/")
    assert page.run("document.activeElement.id") == "wanted"
    for letter in "THE  s":
        page.send("Input.insertText", text=letter)
    assert (
        page.run("matches.textContent") == "5 matches"
    )  # the sugar, the syrup, the small ones, the sweetest, the syrup
    page.press("Enter", 13, "\r")
    page.press("Enter", 13, "\r")
    page.wait_until(f"Math.abs({TIME} - 12.3) < 0.1")
    assert page.run("[matches.textContent, $('mark.chosen').textContent]") == ["2 of 5", "the s"]
    page.press("Escape", 27)
    assert page.run("[$$('mark').length, wanted.value]") == [0, ""]
    for odd in ("(a|", "[^", "\\\\", "</p>", "{{7*7}}", "-."):
        page.run(f"wanted.value = '{odd}'; wanted.dispatchEvent(new Event('input'))")
    page.run("wanted.value = ''; wanted.dispatchEvent(new Event('input'))")
    assert page.run("$('.sentence bdi').childNodes.length") == 1
    assert page.complaints() == []


def test_steps_and_links_are_copied_as_text(open_page, browser):
    page = open_page()
    browser.send(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    page.click("#copy")
    page.wait_until("told.textContent == '12 steps copied'")
    lines = page.run("navigator.clipboard.readText()").splitlines()
    assert lines[0] == "Iced mint lemonade"
    assert lines[1] == "1. Bring a cup of water to the boil (0:06–0:10)"
    assert lines[10:] == [
        "10. Chill the lemonade in the fridge for an hour (said 0:51–0:55)",
        "11. Fill a tall glass with ice and pour it in (0:57–1:04)",
        "12. Garnish with a slice of lemon",
    ]
    page.run(f"{TIME} = 20.7")
    page.wait_until("$('#now-link').hash == '#t=20'")
    page.click("#copy-link")
    page.wait_until("told.textContent == 'link copied'")
    assert page.run("navigator.clipboard.readText()").endswith("mint-lemonade.html#t=20")


def test_a_key_and_a_button_show_the_keys(open_page):
    page = open_page()
    page.press("?", 191, "?")
    assert page.run("keys.open")
    page.press("j", 74, "j")  # goes to the dialog, not to the steps behind it
    assert page.run(FOCUS) is None
    page.press("Escape", 27)
    assert not page.run("keys.open")
    page.click("#help")
    assert page.run("keys.open")
    page.click("#keys-close")
    assert not page.run("keys.open")
    assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_verdict_can_be_read_(browser, folder, width, dark):
    record = sample_record()
    steps = list(record.steps)
    placed = {"basis": None, "status": "placed"}
    steps[0] = steps[0].model_copy(update={**placed, "score": 0.87})
    steps[3] = steps[3].model_copy(update={**placed, "doubt": "the pictures hardly fit"})
    path = folder / "verdicts.html"
    path.write_text(page(record.model_copy(update={"steps": tuple(steps)})))
    shown = browser.open(path, width=width, dark=dark)
    assert shown.unreadable() == []
    assert shown.run("document.documentElement.scrollWidth") <= width
    assert "87" not in shown.run("$('#step-1').innerText")
    colours = set()
    for kind in ("seen", "placed", "doubtful", "said_only"):
        style = f"getComputedStyle($('.step .badge.{kind}'))"
        colours.add(shown.run(f"((s) => s.color + s.backgroundColor)({style})"))
    assert len(colours) == 4
