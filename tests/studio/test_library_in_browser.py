"""The library as a person uses it: cards, search, files that are dropped, and jobs."""

import os
import shutil
from threading import Event

import pytest
from studio_pages import LOOKS
from studio_server import let_in, library, serving, until

from stepline.library.corrected_library import video_id
from stepline.storage import read_record, write_record

pytestmark = pytest.mark.browser

TITLES = "$$('.card > div a:not(.permalink)').map((card) => card.textContent)"
JOBS = "$$('#jobs li')"
FAILURES = "$$('#failures li')"
MB = 1_000_000


@pytest.fixture
def server(tmp_path, small_video):
    """A library of three, in which no job is begun."""
    folder = library(tmp_path / "library", small_video, ("Lemonade", "A <b>bench</b>", "Bread"))
    with serving(folder, at_once=0) as running:
        yield running


@pytest.fixture
def visit(browser, server):
    let_in(browser, server)

    def visit(path="", **screen):
        page = browser.open(f"{server.address}{path}", **screen)
        page.wait_until("$$('.card').length === 3 && $('.card img[src]')")
        return page

    yield visit
    browser.close_pages()


def enter(page, id, value, event="input"):
    script = f"field.value = {value!r}; field.dispatchEvent(new Event('{event}'))"
    page.run(f"(() => {{ const field = $('#{id}'); {script} }})()")


def test_cards_are_filtered_and_sorted_and_lead_to_the_review(visit, server):
    page = visit()
    assert page.run("$('#sort').value") == "newest"
    enter(page, "sort", "title", "change")
    page.wait_until(f"{TITLES}.join() === 'A <b>bench</b>,Bread,Lemonade'")
    facts = "$$('.card:first-child .facts span')"
    words = page.run(f"{facts}.map((fact) => fact.textContent)")
    assert words == ["0:16", "3 steps", "2 seen", "1 said only"]
    enter(page, "filter", "BENCH")
    page.wait_until(f"{TITLES}.length === 1")
    enter(page, "filter", "nothing")
    page.wait_until("$('#empty').textContent.startsWith('No video matches.')")
    enter(page, "filter", "")
    page.wait_until(f"{TITLES}.length === 3")
    bread = video_id("v2.json")
    change = {"by": "ann", "base": 0, "edits": [{"do": "delete", "step": "a"}]}
    assert server.status("POST", f"/api/videos/{bread}/corrections", change) == 200
    page.wait_until(
        "$$('.card').some((card) => /Bread.*2 steps.*corrected/.test(card.textContent))"
    )
    enter(page, "state", "corrected", "change")
    page.wait_until(f"{TITLES}.length === 1")
    page.click(".card a")
    page.wait_until(f"location.pathname === '/video/{bread}'")


def test_a_change_of_a_video_leaves_the_other_cards_as_they_are(visit, server):
    page = visit()
    enter(page, "sort", "title", "change")
    page.wait_until(f"{TITLES}.join() === 'A <b>bench</b>,Bread,Lemonade'")
    page.run("window.cards = $$('.card')")
    edit = {"do": "title", "title": "Zest"}
    body = {"by": "ann", "base": 0, "edits": [edit]}
    path = f"/api/videos/{video_id('v2.json')}/corrections"
    assert server.status("POST", path, body) == 200
    page.wait_until(f"{TITLES}.join() === 'A <b>bench</b>,Lemonade,Zest'")
    kept = "window.cards.map((each) => $$('.card').indexOf(each))"
    assert page.run(kept) == [0, -1, 1]


def test_a_picture_is_asked_for_again_once_its_video_is_compared(
    browser, server, tmp_path, monkeypatch
):
    folder = server.studio.library.folder
    shutil.move(folder / "v0.mp4", tmp_path / "outside.mp4")
    record = read_record(folder / "v0.json")
    video = record.video.model_copy(update={"path": str(tmp_path / "outside.mp4")})
    write_record(record.model_copy(update={"video": video}), folder / "v0.json")
    is_refused, digest = Event(), server.digests._digest
    monkeypatch.setattr(server.digests, "_digest", lambda path: is_refused.wait() and digest(path))
    let_in(browser, server)
    page = browser.open(server.address)
    image = f"$('[data-id=\"{video_id('v0.json')}\"] img')"
    try:
        page.wait_until(f"{image} && !{image}.dataset.picture")
    finally:
        is_refused.set()
    page.wait_until(f"{image}.naturalWidth > 0")
    page.close()


def test_a_search_gives_moments_that_open_at_their_second(visit):
    page = visit()
    page.press("/", 191, "/")
    page.type("pour the juice")
    page.wait_until("$$('.moment').length >= 3")
    assert "Pour the juice" in page.run("$('.moment').textContent")
    page.run("$('.moment').focus()")  # its clip plays
    page.wait_until("$('.moment video')?.currentTime > 7")
    page.click(".moment")
    page.wait_until("$('#player')?.currentTime === 7")


def test_what_is_listed_is_shared_as_one_file_that_the_browser_saves(
    visit, server, browser, tmp_path
):
    page = visit()
    saved = tmp_path / "saved"
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(saved))
    enter(page, "filter", "bread")
    page.wait_until("$('#share').textContent === 'Share it'")
    page.click("#share")
    assert not page.run("$('#with-videos').checked")
    assert page.violations() == []
    page.click("#share-now")
    page.wait_until("$('#told').textContent.startsWith('1 video shared')")
    assert "Bread.html" in page.run("$('#told').textContent")
    until((saved / "Bread.html").is_file)
    assert "Slice the lemons" in (saved / "Bread.html").read_text()
    assert not (server.studio.library.folder / "share").exists()


def test_a_dropped_file_comes_in_pieces_and_goes_on_where_it_broke_off(visit, server, tmp_path):
    film = tmp_path / "my film.mp4"
    film.write_bytes(os.urandom(9 * MB))
    page = visit()
    conditions = {"offline": False, "latency": 0, "downloadThroughput": -1}
    conditions["uploadThroughput"] = 6 * MB
    page.send("Network.emulateNetworkConditions", **conditions)
    # the last piece is never sent, so that it breaks off however slow this test is
    page.run(
        "(() => { const send = fetch; window.fetch = (path, options) => "
        f"options?.headers?.['Upload-Offset'] > {8 * MB} ? new Promise(() => {{}}) : send(path, options); }})()"
    )
    page.drop(film)
    page.wait_until("$('#uploads progress')?.value > .4")
    page.send("Page.navigate", url="about:blank")
    pieces = next((server.studio.library.folder / ".stepline-uploads").iterdir())
    came = pieces.stat().st_size
    assert 4 * MB < came < 9 * MB
    again = visit()
    again.drop(film)
    again.wait_until("$$('#jobs li').length === 1")
    name = server.studio.jobs.list_jobs()[0].source.split("/")[-1]
    stored = server.studio.library.folder / "videos" / name
    assert stored.read_bytes() == film.read_bytes()
    # the upload that was begun went on
    assert not any(url.endswith("/api/uploads") for url in again.requests())
    again.wait_until("$$('#uploads li').length === 0")
    assert page.complaints() == []


def test_an_upload_goes_on_after_the_studio_was_started_anew(visit, browser, server, tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(os.urandom(5 * MB))
    page = visit()
    token = server.access.token
    page.run(
        "(() => { const send = fetch; let first = true; window.fetch = async (path, options) => { "
        "const reply = await send(path, options); if (options?.method === 'PATCH' && first) { first = false; "
        "await new Promise((next) => { window.goOn = next; }); } return reply; }; })()"
    )
    page.drop(film)
    page.wait_until("window.goOn")
    leaving = "dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert not page.run(leaving)  # the browser asks first
    server.access.token = "another"
    page.run("goOn()")
    page.wait_until("/film.mp4.*open the address/.test($('#refused').textContent)")
    server.access.token = token
    page.drop(film)
    page.wait_until("$$('#jobs li').length === 1")
    posted = [url for url in page.requests() if url.endswith("/api/uploads")]
    assert len(posted) == 1  # the one that was begun goes on


def test_what_is_not_a_video_is_refused_in_words(visit, tmp_path):
    (tmp_path / "list.txt").write_text("x")
    page = visit()
    page.drop(tmp_path / "list.txt")
    page.wait_until("/list.txt.*not a video by its name/.test($('#refused').textContent)")
    assert page.run("$$('#uploads li').length") == 0
    page.click("#refused button")
    page.wait_until("getComputedStyle($('#failed')).display === 'none'")


def test_an_empty_file_is_refused_before_it_is_sent(visit, tmp_path):
    (tmp_path / "empty.mp4").write_bytes(b"")
    page = visit()
    page.drop(tmp_path / "empty.mp4")
    page.wait_until("/empty.mp4.*file is empty/.test($('#refused').textContent)")
    assert not any(url.endswith("/api/uploads") for url in page.requests())


def test_a_failed_job_is_below_not_done_with_its_file_and_who_can_help(visit, server):
    job = server.studio.jobs.add("https://example.org/film.mp4", {})
    reason = "a private address; --set links.private=true allows it"
    failed = {"state": "failed", "ended": 1.0, "error": reason}
    assert server.studio.jobs.change(job.id, expected=("waiting",), **failed)
    page = visit()
    page.wait_until(f"{FAILURES}.length === 1")
    words = page.run(f"{FAILURES}[0].textContent")
    told = ("film.mp4", f"{reason}. Whoever started this studio can do that.")
    assert [each for each in told if each not in words] == []
    assert page.run(f"[{JOBS}.length, getComputedStyle($('#running')).display]") == [0, "none"]


def test_a_failed_reading_again_says_that_the_steps_are_still_there(visit, server):
    jobs = [server.studio.jobs.add("v0.mp4", {"video": video}) for video in (None, "a" * 12)]
    for job in jobs:
        for state, expected in (("running", "waiting"), ("failed", "running")):
            assert server.studio.jobs.change(job.id, expected=(expected,), state=state)
    page = visit()
    page.wait_until(f"{FAILURES}.length === 2")
    words = page.run(f"{FAILURES}.map((each) => each.querySelector('p').textContent)")
    again = "read again · failed · the steps that it had are still there"
    assert sorted(words) == ["failed", again]
    page.run("$$('#failures [aria-label^=Remove]').forEach((each) => each.click())")
    page.wait_until("$('#told').textContent.endsWith('the file is still there: v0.mp4')")


def test_a_card_says_that_its_picture_is_loading(visit, server):
    page = visit()
    page.wait_until("$$('.card img[src]').length === 3")
    page.wait_until("!$('.card [data-loading]')")
    page.send("Fetch.enable", patterns=[{"urlPattern": "*/pictures/*"}])  # no answer comes
    page.send("Network.setCacheDisabled", cacheDisabled=True)
    page.send("Page.reload")
    page.wait_until("$$('.card [data-loading]').length === 3")
    sign = "getComputedStyle($('.card .frame'), '::before').content"
    assert page.run(sign) == '"Loading the picture"'
    page.send("Fetch.disable")
    page.wait_until("!$('.card [data-loading]')")
    assert page.run(sign) == "none"


def test_the_language_and_the_recogniser_of_what_comes_in_are_chosen(visit, server):
    page = visit()
    page.click("#reading summary")
    page.wait_until("$$('#reading-fields select').length === 3")
    offered = page.run("[...$('[name=language]').options].map((o) => o.value)")
    assert sorted(offered) == ["", *sorted(server.read("/api/choices")["languages"])]
    page.run("$('[name=language]').value = 'en', $('[name=writer]').value = 'extractive'")
    assert page.unreadable() == []
    enter(page, "source", "ftp://a/b")
    page.click("#link button")
    page.wait_until("$('#trouble').textContent === 'a link begins with http:// or https://'")
    enter(page, "source", "v0.mp4")
    page.click("#link button")
    page.wait_until(f"{JOBS}.length === 1")
    (job,) = server.studio.jobs.list_jobs()
    chosen = {"language": "en", "writer": "extractive", "recogniser": None}
    assert chosen.items() <= job.options.items()


def test_a_card_says_why_a_video_has_no_steps_and_how_many_warnings_another_has(visit, server):
    folder = server.studio.library.folder
    cases = {"v0": ((), ("no sound track", "no speech; give its words")), "v1": (None, ("one",))}
    for name, (steps, warnings) in cases.items():
        record = read_record(folder / f"{name}.json")
        steps = record.steps if steps is None else steps
        changed = {"steps": steps, "warnings": warnings}
        write_record(record.model_copy(update=changed), folder / f"{name}.json")
    page = visit()
    words = "$$('.problem').map((each) => each.textContent).sort()"
    assert page.run(words) == ["1 warning", "No sound track"]


@pytest.mark.parametrize("width", [1440, 390])
def test_no_label_of_a_card_wraps(visit, width):
    page = visit(width=width)
    heights = "$$('.actions > *, .card .facts span').map((each) => each.getClientRects().length)"
    assert set(page.run(heights)) == {1}
    actions = "$$('.card:first-child .actions > *')"
    assert page.run(f"new Set({actions}.map((each) => each.offsetTop)).size") == 1


def test_an_empty_library_offers_nothing_but_a_first_video(browser, tmp_path):
    (tmp_path / "empty").mkdir()
    with serving(tmp_path / "empty", at_once=0) as server:
        let_in(browser, server)
        page = browser.open(server.address)
        page.wait_until("document.body.classList.contains('without-videos')")
        shown = "$$('main button').filter((each) => each.checkVisibility())"
        assert page.run(f"{shown}.map((each) => each.textContent)") == ["Add"]
        assert not page.run("$('#tour').hidden")
        page.close()


def test_a_path_becomes_a_job_whose_progress_is_seen_and_which_is_cancelled_and_begun_again(
    visit, server
):
    page = visit(width=390, height=844)
    enter(page, "source", "v0.mp4")
    page.click("#link button")
    page.wait_until(f"{JOBS}.length === 1 && {JOBS}[0].textContent.includes('waits')")
    (job,) = server.studio.jobs.list_jobs()
    told = {"id": job.id, "state": "running", "stage": "pictures", "done": 0.4, "left_s": 75}
    server.studio.jobs.change(job.id, expected=("waiting",), state="running")

    def shows_progress():  # the page may not listen yet, and the list of jobs be on its way
        server.broadcast.publish("job", told)
        words = f"{JOBS}[0].textContent.includes('runs · pictures · 1:15 left')"
        return page.run(f"{words} && $('#jobs progress').value === 0.4")

    until(shows_progress)
    assert page.violations() == []
    page.run("$$('#jobs button').find((button) => button.textContent === 'Cancel').click()")
    page.wait_until(f"{FAILURES}[0]?.textContent.includes('cancelled') && {JOBS}.length === 0")
    assert server.studio.jobs.list_jobs()[0].state == "cancelled"
    page.run("$$('#failures button').find((button) => button.textContent === 'Try again').click()")
    page.wait_until(f"{JOBS}[0]?.textContent.includes('waits')")
    server.broadcast.publish("job", {"id": job.id, "state": "failed"})
    page.wait_until("$('#told').textContent.endsWith(' failed')")
    enter(page, "source", "../../etc/passwd")
    page.click("#link button")
    page.wait_until("$('#trouble').textContent.includes('--allow')")
    enter(page, "wanted", "🍋")
    page.wait_until("$('#trouble').textContent.includes('no word in it') && $('#found').hidden")
    enter(page, "wanted", "pour")
    page.wait_until("$('#trouble').hidden && !$('#found').hidden")


@pytest.mark.parametrize("look", [pytest.param("narrow", marks=pytest.mark.slow), "dark"])
def test_the_library_hinders_no_one(visit, look):
    page = visit(**LOOKS[look])
    enter(page, "wanted", "pour")
    page.wait_until("$$('.moment').length >= 3")
    assert page.violations() == []
    assert page.unreadable() == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints() == []
