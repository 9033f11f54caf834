"""The view to follow along: one step at a time, its clip again and again, timers, and a print on
one page."""

import base64
import io

import pytest
from studio_pages import LOOKS, PLAYER
from studio_server import let_in, library, serving

from stepline.library.corrected_library import video_id
from stepline.records import Span, Step, Wait
from stepline.storage import read_record, write_record

pytestmark = pytest.mark.browser

ID = video_id("v0.json")
TEXT = "$('#text')?.textContent"


@pytest.fixture(scope="module")
def server(tmp_path_factory, small_video):
    root = tmp_path_factory.mktemp("follow")
    folder = library(root / "library", small_video, ("Lemonade", "Long"))
    record = read_record(folder / "v0.json")
    pour = "Pour the juice, wait at least half an hour"
    texts = ("Simmer for 2 to 3 minutes", pour, "Whisk the sugar")
    told = zip(record.steps, texts, strict=True)
    steps = [step.model_copy(update={"text": text}) for step, text in told]
    steps[1] = steps[1].model_copy(update={"wait": Wait(low=1800, high=None)})
    transcript = record.transcript
    whisk = {"text": "Now whisk all the sugar."}
    sentences = [each.model_copy(update=whisk) for each in transcript.sentences[2:]]
    said = transcript.model_copy(update={"sentences": (*transcript.sentences[:2], *sentences)})
    changed = {"steps": tuple(steps), "transcript": said}
    write_record(record.model_copy(update=changed), folder / "v0.json")
    many = []
    for n in range(40):
        text, spans = f"Do number {n} with care and a spoon", (Span(n / 3, n / 3 + 1),)
        many.append(Step(id=str(n), text=text, spans=spans, status="placed"))
    long = read_record(folder / "v1.json").model_copy(update={"steps": tuple(many)})
    write_record(long, folder / "v1.json")
    with serving(folder) as running:
        yield running


@pytest.fixture
def follow(browser, server):
    let_in(browser, server)

    def follow(id=ID, before="", **screen):
        page = browser.open("about:blank", **screen)
        page.send("Page.addScriptToEvaluateOnNewDocument", source=before)
        page.send("Page.navigate", url=f"{server.address}follow/{id}#step-1")
        page.wait_until(f"{PLAYER} && {TEXT} && ({PLAYER}.readyState >= 1 || $('.clip').hidden)")
        return page

    yield follow
    browser.close_pages()


def test_steps_go_on_and_back_by_keys_and_by_tap(follow):
    page = follow(width=390, height=844)
    assert page.run("$('#back').disabled")
    assert page.run(TEXT) == "Simmer for 2 to 3 minutes"
    page.press("ArrowRight", 39)
    assert page.run(TEXT).startswith("Pour the juice")
    page.click("#next")
    assert page.run(TEXT) == "Whisk the sugar"
    assert "said only, 0:11" in page.run("$('#where').textContent")
    page.wait_until("Math.abs($('#player').currentTime - 11) < 1")
    page.press("ArrowRight", 39)  # a key does not leave the page
    assert page.run("$('#next').textContent") == "Done"
    page.press("k", 75, "k")
    assert page.run("$('#next').textContent") == "Next ›"
    page.click("#back")
    assert page.run(TEXT).startswith("Simmer")
    assert page.run("parseFloat(getComputedStyle($('.big')).fontSize)") >= 24
    assert page.run("$('#voice').getAttribute('aria-pressed')") == "false"
    assert page.complaints() == []


def test_a_step_that_is_only_said_has_its_words_and_done_leads_back(follow, server):
    page = follow()
    for text in ("Simmer", "Pour"):
        assert page.run(TEXT).startswith(text)
        assert page.run("$('#words').hidden")
        page.click("#next")
    # its clip is where it is said, and the recogniser's words differ from the step's
    assert page.run("$('#words').textContent") == "“Now whisk all the sugar.”"
    assert not page.run("$('.clip').hidden")
    page.click("#next")
    page.wait_until("location.pathname === '/' && $('.card')")
    page.send("Page.navigate", url=f"{server.address}follow/{ID}")
    page.wait_until(f"{PLAYER}?.readyState >= 1 && {TEXT}.startsWith('Simmer')")


def test_the_clock_of_the_next_step_is_told_only_after_a_wait(follow):
    page = follow()
    after = "$('#after').textContent"
    assert page.run(after) == "Then: Pour the juice, wait at least half an hour"
    page.run("Date.now = () => new Date(2026, 0, 1, 14, 5, 10).getTime()")
    page.press("ArrowRight", 39)
    clock = page.run(
        "new Date(2026, 0, 1, 14, 35, 10).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'})"
    )
    assert page.run(after) == f"Then, about {clock} or later (a rough guide): Whisk the sugar"


def test_a_step_that_is_not_found_says_so_and_a_video_without_steps_says_why(follow, server):
    folder = server.studio.library.folder
    record = read_record(folder / "v1.json")
    lost = record.steps[0].model_copy(update={"status": "not_found", "said": Span(11.0, 14.0)})
    write_record(record.model_copy(update={"steps": (lost,)}), folder / "none.json")
    page = follow(video_id("none.json"))
    assert page.run("$('#where').textContent") == "Step 1 of 1 · not found, 0:11"
    why = "it has no sound track; give its words"
    bare = record.model_copy(update={"steps": (), "warnings": ("first", why)})
    write_record(bare, folder / "none.json")
    page = follow(video_id("none.json"))
    assert page.run(TEXT) == "No step was found in this video."
    assert page.run("$('#after').textContent") == why
    assert page.run("$('.clip').hidden")
    (folder / "none.json").unlink()


@pytest.mark.slow
def test_the_steps_clip_plays_again_and_again(follow):
    page = follow()
    page.run(
        f"{PLAYER}.muted = true; {PLAYER}.playbackRate = 2; {PLAYER}.currentTime = 5.8; window.least = 99"
    )
    page.run(f"{PLAYER}.play()")
    page.wait_until(f"(least = Math.min(least, {PLAYER}.currentTime)) < 5 && least >= 3")


def test_times_in_the_words_are_timers(follow):
    page = follow()
    page.run("window.now = Date.now(); Date.now = () => now")
    assert page.run("$('#timers button').textContent") == "▶ 2:00"
    page.press("t", 84, "t")
    page.run("now += 31000")
    page.wait_until("$('#timers button').textContent === '⏸ 1:29'")
    page.press("ArrowRight", 39)  # it runs on while another step is read, whose own waits beside it
    labels = "$$('#timers button').map((button) => button.textContent)"
    assert page.run(labels) == ["⏸ 1:29", "▶ 30:00"]
    page.run("now += 90000")
    page.wait_until("$('#told').textContent === 'step 1: 2-3 min over'")
    page.click("#timers .over")
    page.press("ArrowLeft", 37)
    assert page.run(labels) == ["▶ 2:00"]


HEARING = """
window.SpeechRecognition = class {
  start() { window.ear = this; }
  stop() { window.ear = null; }
};
window.say = (transcript) => window.ear.onresult({ results: [[{ transcript }]] });
"""


def test_steps_go_on_by_voice_once_it_is_switched_on(follow):
    page = follow(before=HEARING)
    assert page.run("window.ear") is None
    page.click("#voice")
    page.run("say('Next, please')")
    assert page.run(TEXT).startswith("Pour the juice")
    page.run("ear.onend()")  # browsers end it after a silence
    page.run("say('what a nice day'); say('go back')")
    assert page.run(TEXT).startswith("Simmer")
    page.run("ear.onerror({ error: 'not-allowed' })")
    assert page.run("$('#voice').getAttribute('aria-pressed')") == "false"
    assert page.run("$('#told').textContent") == "voice is off: not-allowed"


@pytest.mark.parametrize(
    ("name", "steps"), [pytest.param("v0.json", 3, marks=pytest.mark.slow), ("v1.json", 40)]
)
def test_the_steps_are_printed_on_one_page(follow, name, steps):
    from pypdf import PdfReader

    page = follow(video_id(name))
    paper = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
    printed = base64.b64decode(page.send("Page.printToPDF", **paper)["data"])
    (sheet,) = PdfReader(io.BytesIO(printed)).pages
    words = sheet.extract_text()
    assert all(f"{number}." in words for number in range(1, steps + 1))
    assert "Next" not in words


@pytest.mark.parametrize("look", ["narrow", pytest.param("dark", marks=pytest.mark.slow)])
def test_following_hinders_no_one(follow, look):
    page = follow(**LOOKS[look])
    page.press("ArrowRight", 39)
    assert page.violations() == []
    assert page.unreadable() == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
