"""Review of a video as a person does it: each verb in a real browser, at two widths, by mouse,
finger and keys."""

import json
import shutil

import av
import pytest
from http_client import free_port
from studio_pages import LOOKS, PLAYER, SAVED, wait_until_closed
from studio_server import let_in, library, serving, until

from stepline.library.corrected_library import video_id
from stepline.networks.weights import weights_fetched
from stepline.outputs.text import seconds_text, step_lengths, total_times
from stepline.pipeline.request import StepsSettings
from stepline.records import Span, Step, Wait
from stepline.settings import load_settings
from stepline.storage import read_record, write_record

pytestmark = pytest.mark.browser

DOUBT = "the pictures show another thing"
ID = video_id("v0.json")


@pytest.fixture
def server(tmp_path, small_video):
    with serving(library(tmp_path / "library", small_video)) as running:
        yield running


@pytest.fixture(params=["wide", pytest.param("narrow-dark", marks=pytest.mark.slow)])
def look(request):
    return request.param


@pytest.fixture
def review(browser, server, look):
    """Opens the video for review in a new window; each server is an address, which the browser
    remembers apart."""
    let_in(browser, server)

    def review():
        page = browser.open(f"{server.address}video/{ID}", **LOOKS[look])
        if "narrow" in look:
            page.send("Emulation.setTouchEmulationEnabled", enabled=True)
        return ready(page)

    yield review
    browser.close_pages()


def ready(page):
    page.wait_until("$$('#list .step').length && $('.bar-box')")
    page.wait_until("$('#player').readyState >= 1")
    return page


def read(server):
    reply = server.read(f"/api/videos/{ID}/record")
    return {step["id"]: step for step in reply["record"]["steps"]}, reply


def steps(server, page):
    page.wait_until(SAVED)
    return read(server)[0]


def texts(server, page):
    return [step["text"] for step in steps(server, page).values()]


def box(page, id):
    return page.run(
        f"(() => {{ const b = $('.bar-box[data-id={id}]').getBoundingClientRect(); "
        "return [b.left, b.right, $('.track').clientWidth / 16]; })()"
    )


def pick(page, id):
    """Choose a step by its bar, as a click does."""
    page.run(f"$('.bar-box[data-id={id}] .bar-body').focus()")


def go(page, second):
    page.run(f"$('#player').currentTime = {second}")
    page.wait_until(f"Math.abs($('#player').currentTime - {second}) < .01")


def press(page, key, modifiers=0):
    """Press a letter with nothing but the page focused."""
    page.run("document.activeElement.blur()")
    page.press(
        key, ord(key.upper()) if len(key) == 1 else 0, key if len(key) == 1 else None, modifiers
    )


def tool(page, name):
    page.run(f"$$('.step.chosen .tools button').find((b) => b.textContent === '{name}').click()")


@pytest.mark.parametrize("look", ["wide", "narrow", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_bar_is_moved_and_stretched_and_the_machines_place_stays_next_to_it(review, server, look):
    touch = look == "narrow"
    page = review()
    pixel = box(page, "b")[2]  # of a second
    page.drag(".bar-box[data-id=b] .bar-body", 2 * pixel, touch=touch)
    moved = steps(server, page)["b"]
    assert (moved["start"], moved["end"]) == pytest.approx((9.0, 12.0), abs=0.06)
    assert moved["end"] - moved["start"] == pytest.approx(3.0)
    pick(page, "b")
    page.drag(".bar-box[data-id=b] .bar-end", pixel, touch=touch)
    page.drag(".bar-box[data-id=b] .bar-start", -pixel, touch=touch)
    stretched = steps(server, page)["b"]
    assert (stretched["start"], stretched["end"]) == pytest.approx((8.0, 13.0), abs=0.12)
    # further than its start: it keeps .2 s
    page.drag(".bar-box[data-id=b] .bar-end", -30 * pixel, touch=touch)
    shortest = steps(server, page)["b"]
    assert shortest["end"] - shortest["start"] == pytest.approx(0.2)
    assert read(server)[1]["machine"]["b"]["span"] == {"start": 7.0, "end": 10.0}
    assert "0:07.0–0:10.0" in page.run("$('[data-id=b] .machine').textContent")
    ghost = page.run(
        "(() => { const g = $('.ghost:not([hidden])'); return [g.style.left, g.style.width]; })()"
    )
    assert [float(each.strip("%")) for each in ghost] == pytest.approx(
        [100 * 7 / 16, 100 * 3 / 16], abs=0.5
    )
    assert page.complaints() == []


def test_a_step_that_is_only_said_is_dragged_from_where_it_is_said_to_where_it_is_shown(
    review, server
):
    page = review()
    left, right, pixel = box(page, "c")
    start = page.run("$('.track').getBoundingClientRect().left")
    assert [(left - start) / pixel, (right - start) / pixel] == pytest.approx([11.0, 14.0], abs=0.1)
    assert page.run("getComputedStyle($('.bar-box[data-id=c]')).borderStyle") == "dashed"
    page.drag(".bar-box[data-id=c] .bar-body", 1.5 * pixel)
    shown = steps(server, page)["c"]
    assert shown["status"] == "seen"
    assert (shown["start"], shown["end"]) == pytest.approx((12.5, 15.5), abs=0.06)
    assert page.run("$$('.bar-box.dashed').length") == 0
    press(page, "z")
    assert steps(server, page)["c"]["status"] == "said_only"
    assert [(each - start) / pixel for each in box(page, "c")[:2]] == pytest.approx(
        [11.0, 14.0], abs=0.1
    )
    assert page.complaints() == []


def test_the_arrows_move_a_bar_and_its_ends(review, server):
    page = review()
    pick(page, "b")
    for _ in range(3):
        page.press("ArrowRight", 39)
    assert (page.run("document.activeElement.ariaValueText")) == "0:07.3 to 0:10.3"
    page.run("$('.bar-box[data-id=b] .bar-end').focus()")
    page.press("ArrowRight", 39, modifiers=8)
    page.wait_until("$('#list .step:nth-child(2) .times').textContent === '0:07.3–0:11.3'")
    assert steps(server, page)["b"]["spans"] == [[7.3, 11.3]]
    assert page.run("$('#told').textContent") == "step 2: seen from 0:07.3 to 0:11.3"


def test_a_step_is_split_merged_added_and_deleted_by_keys(review, server):
    page = review()
    pick(page, "b")
    go(page, 8.5)
    press(page, "s")
    page.type("Stir")  # the new half's text is chosen
    page.press("Enter", 13)
    halves = list(steps(server, page).values())[1:3]
    found = [(step["text"], step["start"], step["end"]) for step in halves]
    assert found == [("Pour the juice", 7.0, 8.5), ("Stir", 8.5, 10.0)]
    press(page, "k")
    press(page, "m")
    assert texts(server, page) == ["Slice the lemons", "Pour the juice; Stir", "Whisk the sugar"]
    go(page, 12.0)
    press(page, "a")
    page.type("Taste it")
    page.press("Enter", 13)
    added = list(steps(server, page).values())[2]
    fields = [added[name] for name in ("text", "start", "end", "status")]
    assert fields == ["Taste it", 12.0, 16.0, "seen"]
    press(page, "x")
    assert "Taste it" not in texts(server, page)
    assert page.complaints() == []


def test_buttons_do_what_the_keys_do(review, server):
    page = review()
    page.run("$('#list .step:nth-child(2)').click()")
    page.wait_until("$('#player').currentTime === 7")
    go(page, 8.0)
    tool(page, "Start here")
    go(page, 11.0)
    tool(page, "End here")
    assert steps(server, page)["b"]["spans"] == [[8.0, 11.0]]
    tool(page, "Up")
    assert list(steps(server, page)) == ["b", "a", "c"]
    tool(page, "Down")
    go(page, 9.0)
    tool(page, "Split here")
    assert len(steps(server, page)) == 4
    tool(page, "Delete")
    assert len(steps(server, page)) == 3
    page.wait_until("$('#list .step:nth-child(2)').click() || true")
    tool(page, "Merge with next")
    assert list(steps(server, page)) == ["a", "b"]
    told = "[$('#told').textContent, $('#deleted-list button').textContent]"
    assert page.run(told) == ["merged with the next step", "Undo the merge"]
    page.click("#add")
    assert page.run(told)[0] == ""
    assert texts(server, page)[2] == "New step"


def test_a_step_is_retitled_while_one_types_and_the_machines_words_can_be_taken_back(
    review, server
):
    page = review()
    press(page, "j")
    press(page, "e")
    assert page.run("document.activeElement.ariaLabel") == "Text of step 1"
    page.run("document.activeElement.select()")
    page.type("cut the limes <b>fine</b>")
    page.wait_until("$('#list .machine:not([hidden])')")  # saved without a key
    page.press("Enter", 13)  # and not again
    assert texts(server, page)[0] == "cut the limes <b>fine</b>"
    assert read(server)[1]["revision"] == 1
    assert page.run("$('#list .machine').textContent").startswith("Stepline: “Slice the lemons”")
    page.click("#list .machine button")
    assert texts(server, page)[0] == "Slice the lemons"
    page.wait_until("$('#list .machine').hidden")


def test_a_step_is_marked_shown_said_or_to_avoid(review, server):
    page = review()
    for _ in range(3):
        press(page, "j")
    go(page, 11.0)
    press(page, "1")
    shown = steps(server, page)["c"]
    assert (shown["status"], shown["spans"], shown["score"]) == ("seen", [[11.0, 15.0]], 1.0)
    press(page, "3")
    assert steps(server, page)["c"]["kind"] == "avoid"
    press(page, "2")
    assert steps(server, page)["c"]["status"] == "said_only"
    pick_mark = "const m = $('#step-1 .mark'); m.value = 'not_found'; "
    page.run(f"(() => {{ {pick_mark} m.dispatchEvent(new Event('change')); }})()")
    assert steps(server, page)["a"]["status"] == "not_found"


def test_a_step_that_is_marked_shown_is_where_it_is_said_wherever_the_video_is(review, server):
    page = review()
    pick = "const m = $('#step-3 .mark'); m.value = 'seen'; "
    page.run(f"(() => {{ {pick} m.dispatchEvent(new Event('change')); }})()")
    shown = steps(server, page)["c"]
    assert (shown["status"], shown["spans"]) == ("seen", [[11.0, 15.0]])
    assert "where it is said" in page.run("$('#told').textContent")


def test_lengths_and_waits_are_told_in_the_words_of_the_page_for_people(review, server):
    folder = server.studio.library.folder
    record = read_record(folder / "v0.json")
    wait = Wait(low=480.0, high=600.0, what="the cookies")
    bake, pour, said = record.steps
    bake = bake.model_copy(update={"wait": wait})
    pour = pour.model_copy(update={"spans": (Span(5.0, 10.0),)})  # they overlap by 1 s
    said = said.model_copy(
        update={"wait": Wait(low=600.0, high=None, what="it")}
    )  # "for at least 10 minutes"
    record = record.model_copy(update={"steps": (bake, pour, said)})
    write_record(record, folder / "v0.json")
    page = review()
    lengths = "$$('#list .lengths').map((each) => each.textContent)"
    assert page.run(lengths) == [step_lengths(step) for step in record.steps]
    facts = "$$('#facts span').map((each) => each.textContent)"
    assert page.run(facts)[2] == f"steps: {total_times(record)}"
    assert "8-10 min wait (the cookies)" in page.run(lengths)[0]
    # what a person changes counts at once
    pick(page, "b")
    page.run("$('.bar-box[data-id=b] .bar-end').focus()")
    page.press("ArrowRight", 39, modifiers=8)
    page.wait_until(f"{lengths}[1] === '6 s'")

    cases = [(n / 4, n / 4 + more) for n in range(1, 50) for more in (0, 30)]
    cases += [(n * 50.0, n * 50.0 + more) for n in range(1, 2000, 7) for more in (0, 60, 3600)]
    cases += [(600.0, None)]
    read = (
        f"import('/static/durations.js').then((all) => {json.dumps(cases)}"
        ".map(([low, high]) => all.secondsText(low, high)))"
    )
    assert page.run(read) == [seconds_text(*case) for case in cases]


def test_300_steps_in_a_short_video_have_few_lanes(review, server):
    folder = server.studio.library.folder
    record = read_record(folder / "v0.json")
    many = tuple(
        Step(id=f"s{n}", text=f"Do {n}", spans=(Span(n / 20, n / 20 + 1),), status="placed")
        for n in range(300)
    )
    write_record(record.model_copy(update={"steps": many}), folder / "v0.json")
    page = review()
    page.wait_until("$$('.bar-box').length === 300")
    tops = "new Set($$('.bar-box').map((each) => each.style.top)).size"
    assert page.run(tops) == 6
    pick(page, "s150")  # one that others cover comes to the front
    middle = (
        "(() => { const box = $(\".bar-box[data-id='s150']\").getBoundingClientRect();"
        " return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)"
        ".closest('.bar-box').dataset.id; })()"
    )
    page.wait_until(f"{middle} === 's150'")


def test_warnings_of_the_record_are_shown(browser, tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    record = read_record(folder / "v0.json")
    write_record(
        record.model_copy(update={"warnings": ("no one speaks; give --captions",)}),
        folder / "v0.json",
    )
    with serving(folder) as running:
        let_in(browser, running)
        page = browser.open(f"{running.address}video/{ID}")
        page.wait_until(
            "$('#warnings').textContent.endsWith('--captions. Whoever started this studio can do that.')"
        )
        page.close()
        page = browser.open(running.address)
        page.wait_until("$('.card')?.textContent.includes('1 warning')")
        page.close()


def test_a_doubt_is_shown_with_its_reason_until_a_person_judges_the_step(
    browser, tmp_path, small_video
):
    folder = library(tmp_path / "library", small_video)
    record = read_record(folder / "v0.json")
    doubt = {"status": "placed", "basis": None, "doubt": DOUBT}
    first, second, last = record.steps
    lost = last.model_copy(update={"status": "not_found"})
    unjudged = last.model_copy(update={"id": "4", "status": None})
    unsure = (first.model_copy(update=doubt), second, lost, unjudged)
    write_record(record.model_copy(update={"steps": unsure}), folder / "v0.json")
    reason = "$('#step-1 .machine').textContent.includes"
    facts = "$$('.card .facts span').map((fact) => fact.textContent).join()"
    with serving(folder) as running:
        let_in(browser, running)
        cards = browser.open(running.address)
        cards.wait_until(f"{facts} === '0:16,4 steps,1 seen,1 placed?,1 not found,1 not judged'")
        page = ready(browser.open(f"{running.address}video/{ID}"))
        page.wait_until(f"{reason}('Speaks against it: {DOUBT}')")
        pick(page, "a")
        press(page, "1")
        page.wait_until(f"!{reason}('Speaks') && {reason}('placed')")
        cards.wait_until(
            f"{facts} === '0:16,4 steps,2 seen,1 not found,1 not judged,corrected,1 correction'"
        )
        page.wait_until("$('#facts').textContent.includes('1 correction')")
        press(page, "z")
        page.wait_until(f"{reason}('Speaks against it: {DOUBT}')")
        cards.wait_until(f"{facts} === '0:16,4 steps,1 seen,1 placed?,1 not found,1 not judged'")
        page.wait_until("$('#facts').textContent.includes('0 corrections')")
        page.close()
        cards.close()


def test_steps_are_put_in_another_order_and_sorted_by_time(review, server):
    page = review()
    press(page, "j")
    press(page, "J", 8)
    assert list(steps(server, page)) == ["b", "a", "c"]
    press(page, "J", 8)
    assert list(steps(server, page)) == ["b", "c", "a"]
    press(page, "o")
    assert list(steps(server, page)) == ["a", "b", "c"]


def test_undo_and_redo_go_back_and_on_without_end_also_after_a_reload(review, server):
    page = review()
    press(page, "j")
    press(page, "x")  # the next one is chosen then
    press(page, "x")
    press(page, "2")
    after = steps(server, page)
    assert list(after) == ["c"]
    page.run("window.before = true")
    page.send("Page.reload")
    page.wait_until("!window.before && $$('#list .step').length === 1")
    for _ in range(3):
        page.run("$('#undo').click()")
    page.wait_until("$$('#list .step').length === 3")
    assert (list(steps(server, page)), read(server)[1]["machine"]) == (["a", "b", "c"], {})
    page.wait_until("$('#undo').disabled")
    press(page, "y", 2)
    press(page, "Z", 8)
    assert list(steps(server, page)) == ["c"]
    press(page, "z", 2)
    assert list(steps(server, page)) == ["b", "c"]
    press(page, "h")
    page.wait_until("$$('#changes li').length === 9")
    assert page.run("$('#changes li b').textContent") == "me"
    assert page.run("$$('#changes time').length") == 9
    assert page.run("$('#changes').textContent.includes('deleted “')")
    page.click("#deleted summary")
    buttons = "$$('#deleted-list button, #changes button')"
    page.run(f"window.buttons = {buttons}; $('#by').dispatchEvent(new Event('change'))")
    # else they take no click meanwhile
    assert page.run(f"buttons.length && {buttons}.every((each, at) => each === buttons[at])")
    page.click("#deleted-list button")
    page.wait_until("$$('#list .step').length === 3")
    assert list(steps(server, page)) == ["a", "b", "c"]


def test_a_step_loops_and_the_video_goes_by_frames_and_at_other_speeds(review):
    page = review()
    pick(page, "a")
    press(page, "l")
    page.wait_until("$('#loop').textContent === 'Loops step 1'")
    go(page, 5.7)
    page.run(f"{PLAYER}.playbackRate = 2; {PLAYER}.play(); window.least = 99")
    page.wait_until(f"(least = Math.min(least, {PLAYER}.currentTime)) < 5 && least >= 3.4")
    press(page, " ")
    press(page, "<", 8)
    assert page.run(f"{PLAYER}.playbackRate") == 1.5
    press(page, "l")
    go(page, 4.0)
    press(page, ".")
    # the video has ten pictures a second
    page.wait_until(f"Math.abs({PLAYER}.currentTime - 4.1) < .01")
    press(page, ",")
    page.wait_until(f"Math.abs({PLAYER}.currentTime - 4) < .01")


def test_another_window_shows_what_this_one_changes(review, browser, server):
    page, other = review(), review()
    press(page, "j")
    press(page, "x")
    other.wait_until("$$('#list .step').length === 2")
    other.run("$('#list textarea').focus(); document.activeElement.select()")
    other.type("Half typed")
    page.wait_until(SAVED)
    press(page, "2")  # what is typed in the other window is neither lost nor in the way
    other.wait_until("$('#list .step').classList.contains('said_only')")
    assert other.run("document.activeElement.value") == "Half typed"
    other.wait_until("$('#list .machine').textContent.includes('Pour the juice')")
    assert texts(server, other)[0] == "Half typed"
    page.wait_until("$('#list textarea').value === 'Half typed'")
    press(page, "z")  # both are "me", and each window undoes its own
    press(page, "z")
    assert texts(server, page) == ["Slice the lemons", "Half typed", "Whisk the sugar"]
    assert page.run("$('#undo').disabled")


def test_half_typed_words_outlive_a_reload_and_are_told_where_their_step_is_deleted(review, server):
    page = review()
    write = "$('#list textarea').focus(); document.activeElement.value = "
    page.run(f"{write} 'Cut lemons'; window.before = true")
    page.send("Page.reload")
    page.wait_until("!window.before && $('#list textarea')?.value === 'Cut lemons'")
    assert texts(server, page)[0] == "Cut lemons"
    page.run(f"{write} 'Half typed'")
    theirs = {"by": "bob", "base": 1, "edits": [{"do": "delete", "step": "a"}]}
    assert server.status("POST", f"/api/videos/{ID}/corrections", theirs) == 200
    page.wait_until("$('#trouble').textContent.endsWith('“Half typed”')")


def test_what_changes_before_a_window_listens_is_shown_once_it_listens(review, browser, server):
    page, other = review(), review()
    # Its event stream opens when the test says so.
    late = """const Stream = EventSource;
    window.EventSource = class {
      handlers = [];
      constructor(url) {
        window.listenNow = () => {
          const stream = new Stream(url);
          for (const each of this.handlers) stream.addEventListener(...each);
        };
      }
      addEventListener(...each) { this.handlers.push(each); }
    };"""
    other.send("Page.addScriptToEvaluateOnNewDocument", source=late)
    other.send("Page.reload")
    other.wait_until("window.listenNow && $$('#list .step').length === 3")
    press(page, "j")
    press(page, "x")
    page.wait_until(SAVED)
    assert other.run("$$('#list .step').length") == 3
    other.run("listenNow()")
    other.wait_until("$$('#list .step').length === 2")


def test_what_another_changes_while_this_window_saves_is_shown(review, server):
    page = review()
    # The first record that is read after a save comes late, and what is heard is noted.
    late = """const send = fetch, listen = EventSource.prototype.addEventListener;
    window.records = 0;
    window.fetch = async (path, options) => {
      const reply = await send(path, options);
      if (!/record/.test(path)) return reply;
      if (window.records === 2) await new Promise((next) => { window.goOn = next; });
      window.records += 1;
      return reply;
    };
    EventSource.prototype.addEventListener = function (kind, take) {
      listen.call(this, kind, (event) => {
        take(event);
        if (kind === "video") window.heard = JSON.parse(event.data).revision;
      });
    };"""
    page.send("Page.addScriptToEvaluateOnNewDocument", source=late)
    page.send("Page.reload")
    # once for the page, and once more when it listens
    page.wait_until("window.records === 2 && $('.bar-box')")
    page.wait_until(SAVED)
    press(page, "j")
    press(page, "x")
    page.wait_until("window.goOn")
    edit = {"do": "change", "step": "b", "text": "Pour the milk"}
    body = {"by": "bob", "base": 1, "edits": [edit]}
    assert server.status("POST", f"/api/videos/{ID}/corrections", body) == 200
    page.wait_until("window.heard === 2")
    page.run("goOn()")
    page.wait_until("$('#list textarea').value === 'Pour the milk'")


@pytest.mark.parametrize(
    ("button", "kept"),
    [
        ("keep-mine", "Slice all"),
        pytest.param("keep-theirs", "Slice limes", marks=pytest.mark.slow),
    ],
)
def test_two_windows_that_change_the_same_are_asked(review, server, button, kept):
    page = review()
    speeds = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.send("Network.emulateNetworkConditions", offline=True, **speeds)
    page.run("$('#list textarea').focus(); document.activeElement.select()")
    page.type("Slice all")
    page.press("Enter", 13)
    page.wait_until("$('#saved').classList.contains('offline')")
    edits = [{"do": "change", "step": "a", "text": "Slice limes"}]
    theirs = {"by": "bob", "base": 0, "edits": edits}
    assert server.status("POST", f"/api/videos/{ID}/corrections", theirs) == 200
    page.send("Network.emulateNetworkConditions", offline=False, **speeds)
    page.wait_until("$('#clash').open")
    asked = page.run("$('#clash').textContent")
    assert "bob" in asked
    assert "Slice limes" in asked
    assert "Slice all" in asked
    assert page.violations() == []
    page.click(f"#{button}")
    assert texts(server, page)[0] == kept
    history = [
        each["edits"][0]["text"] for each in server.read(f"/api/videos/{ID}/history")["corrections"]
    ]
    assert history[0] == "Slice limes"  # nothing that was saved is lost


def test_keys_of_input_methods_and_of_other_alphabets(review, server):
    page = review()
    page.run("$('#list textarea').focus(); document.activeElement.value = 'きる'")
    enter = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true})"
    for field in ("$('#list textarea')", "$('#title')"):  # which the words that are chosen stay in
        assert page.run(f"{field}.focus(), {field}.dispatchEvent({enter})")
        assert page.run(f"document.activeElement === {field}")
    page.run("document.activeElement.blur()")
    for code, key in (("KeyJ", "о"), ("KeyX", "ч")):  # as on a Russian keyboard
        pressed = f"{{key: '{key}', code: '{code}', bubbles: true}}"
        page.run(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {pressed}))")
    assert texts(server, page) == ["きる", "Whisk the sugar"]


def test_what_a_full_disk_refuses_is_kept_and_sent_again(review, server, limited_file_size):
    page = review()
    with limited_file_size(1000):
        press(page, "j")
        press(page, "x")
        page.wait_until("/Not saved yet: .*; free some space/.test($('#saved').textContent)")
    page.wait_until(SAVED)
    assert len(read(server)[0]) == 2


def test_what_could_not_be_sent_outlives_the_window(review, browser, server):
    page = review()
    page.send("Network.setBlockedURLs", urls=["*/corrections"])
    press(page, "j")
    press(page, "x")
    page.wait_until("$('#saved').classList.contains('offline')")
    assert len(read(server)[0]) == 3
    page.run("scrollTo(0, document.body.scrollHeight)")
    told = "$('#saved').getBoundingClientRect()"
    assert page.run(f"{told}.top > 0 && {told}.bottom < innerHeight")  # wherever one looks
    page.close()
    wait_until_closed(browser, server)
    other = browser.open(f"{server.address}video/{ID}")
    other.wait_until("$$('#list .step').length === 2")
    assert list(steps(server, other)) == ["b", "c"]
    assert (
        other.run(
            "Object.keys(localStorage).filter((name) => name.startsWith('stepline-unsaved')).length"
        )
        == 0
    )


def test_what_could_not_be_sent_outlives_the_server_and_is_of_its_library_alone(
    browser, tmp_path, small_video
):
    first, second = (library(tmp_path / name, small_video) for name in ("first", "second"))

    def unsent(page):
        page.wait_until(SAVED)
        names = page.run(
            "Object.keys(localStorage).filter((name) => name.startsWith('stepline-unsaved'))"
        )
        page.close()
        return len(names)

    with serving(first, port=free_port()) as server:
        let_in(browser, server)
        page = ready(browser.open(f"{server.address}video/{ID}"))
        page.send("Network.setBlockedURLs", urls=["*/corrections"])
        press(page, "j")
        press(page, "x")
        page.wait_until("$('#saved').classList.contains('offline')")
        # what an open window has is its own to send
        other = ready(browser.open(f"{server.address}video/{ID}"))
        assert unsent(other) == 1
        assert len(read(server)[0]) == 3
        page.close()
    with serving(second, port=server.port) as stranger:
        let_in(browser, stranger)
        assert unsent(ready(browser.open(f"{stranger.address}video/{ID}"))) == 1
        assert len(read(stranger)[0]) == 3
    with serving(first) as again:
        assert again.port == server.port
        let_in(browser, again)
        wait_until_closed(browser, again)
        page = browser.open(f"{again.address}video/{ID}")
        page.wait_until("$$('#list .step').length === 2")
        assert list(steps(again, page)) == ["b", "c"]
        assert unsent(page) == 0


@pytest.mark.parametrize(
    "look",
    ["narrow", "dark", *(pytest.param(e, marks=pytest.mark.slow) for e in ("wide", "narrow-dark"))],
)
def test_review_hinders_no_one(review, look):
    page = review()
    press(page, "j")
    press(page, "2")
    press(page, "h")
    page.wait_until(SAVED)
    page.run("Promise.all(document.getAnimations().map((each) => each.finished))")
    assert page.violations() == []
    assert page.unreadable() == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert page.complaints() == []
    small = page.run(
        "$$('button, select, a.button, textarea').filter((node) => node.checkVisibility() "
        "&& !node.closest('.machine, .history, h1') && node.getBoundingClientRect().height < 24)"
        ".map((node) => node.outerHTML.slice(0, 90))"
    )
    assert small == []  # WCAG 2.2, target size


def test_everything_can_be_reached_by_tab_in_the_order_it_is_seen(review):
    page = review()
    pick(page, "b")
    named = [page.run("document.activeElement.ariaLabel")]
    for _ in range(2):
        page.press("Tab", 9)
        named.append(page.run("document.activeElement.ariaLabel"))
    assert named == ["Step 2: Pour the juice", "Start of step 2", "End of step 2"]
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(page, "?", 8)
    page.wait_until("$('#keys').open")
    keys = page.run("$('#keys').textContent")
    for word in ("split", "merge", "delete", "undo", "loops", "frame", "adds"):
        assert word in keys
    assert page.violations() == []


def test_outputs_and_links_of_what_was_corrected_are_given_out(review, server, browser, tmp_path):
    page = review()
    browser.send(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved")
    )
    browser.send(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    press(page, "j")
    press(page, "x")
    page.wait_until(SAVED)
    page.run("$('#output').value = 'vtt'")
    page.run("$('#output').dispatchEvent(new Event('change'))")
    page.wait_until("$('#told').textContent.endsWith('is saved')")
    (name,) = page.run("[$('#told').textContent.replace(' is saved', '')]")
    until(lambda: (tmp_path / "saved" / name).is_file())
    words = (tmp_path / "saved" / name).read_text()
    assert "Pour the juice" in words
    assert "Slice" not in words
    tool(page, "Copy link")
    page.wait_until("$('#told').textContent === 'link copied'")
    assert page.run("navigator.clipboard.readText()") == f"{server.address}video/{ID}#t=7"


def test_a_video_whose_file_is_gone_is_corrected_anyway(browser, server):
    (server.studio.library.folder / "v0.mp4").unlink()
    let_in(browser, server)
    page = browser.open(f"{server.address}video/{ID}")
    page.wait_until("$('#trouble').textContent.includes('cannot watch')")
    press(page, "j")
    press(page, "2")
    assert steps(server, page)["a"]["status"] == "said_only"
    assert page.run("$$('img[src]').length") == 0
    assert page.complaints() == []
    page.close()


@pytest.mark.parametrize("page_name", ["video", "follow"])
def test_a_video_that_the_browser_cannot_play_says_so(browser, server, page_name):
    path = server.studio.library.folder / "v0.mp4"
    with av.open(str(path), "w") as out:
        film = out.add_stream("mpeg4", rate=10, width=160, height=120, pix_fmt="yuv420p")
        for _ in range(20):
            out.mux(film.encode(av.VideoFrame(160, 120, "yuv420p")))
        out.mux(film.encode())
    let_in(browser, server)
    page = browser.open(f"{server.address}{page_name}/{ID}")
    page.wait_until("/cannot play .* another browser/.test($('#trouble').textContent)")
    path.unlink()
    page.run("$('#player').load()")
    page.wait_until("/cannot be read any more/.test($('#trouble').textContent)")
    page.close()


def test_hostile_texts_stay_text(review, server):
    evil = "<img src=x onerror=alert(1)>"
    edits = [
        {"do": "change", "step": "a", "text": evil},
        {"do": "add", "id": '"><script>x</script>', "text": evil},
    ]
    for number, edit in enumerate(edits):
        body = {"by": evil, "base": number, "edits": [edit]}
        assert server.status("POST", f"/api/videos/{ID}/corrections", body) == 200
    page = review()
    press(page, "h")
    page.wait_until("$$('#changes li').length === 2")
    assert page.run("$$('#list img[onerror], #changes img').length") == 0
    assert json.dumps(evil) in page.run("JSON.stringify($$('#list textarea').map((t) => t.value))")
    assert page.complaints() == []


def test_a_change_of_a_record_that_was_made_again_is_explained_and_hits_no_step(server, review):
    page = review()
    folder = server.studio.library.folder
    record = read_record(folder / "v0.json")
    others = [step.model_copy(update={"text": f"Other {step.id}"}) for step in record.steps]
    write_record(record.model_copy(update={"steps": tuple(others)}), folder / "v0.json")
    pick(page, "a")
    press(page, "x")
    page.wait_until("$('#trouble').textContent.includes('processed again')")
    assert texts(server, page) == ["Other a", "Other b", "Other c"]
    page.wait_until("$$('#list .step').length === 3")
    assert read(server)[1]["revision"] == 0
    pick(page, "a")
    press(page, "x")
    page.wait_until("$$('#list .step').length === 2")
    assert texts(server, page) == ["Other b", "Other c"]


def test_a_video_is_shown_once_it_is_compared_with_its_record(browser, server, tmp_path):
    folder = server.studio.library.folder
    shutil.move(folder / "v0.mp4", tmp_path / "outside.mp4")
    record = read_record(folder / "v0.json")
    video = record.video.model_copy(update={"path": str(tmp_path / "outside.mp4")})
    write_record(record.model_copy(update={"video": video}), folder / "v0.json")
    let_in(browser, server)
    page = browser.open(f"{server.address}video/{ID}")
    # it comes without the video, and again with it
    page.wait_until("$('#player')?.readyState >= 1")
    page.send("Page.navigate", url="about:blank")
    page.close()


def test_the_title_is_written_over_and_the_change_is_undone(review, server):
    page = review()
    title = "$('#title')"
    before = page.run(f"{title}.textContent")
    page.run(f"{title}.focus(), {title}.textContent = 'Pink lemonade', {title}.blur()")
    page.wait_until(SAVED)
    assert read(server)[1]["record"]["video"]["title"] == "Pink lemonade"
    assert page.run("document.title") == "Pink lemonade · review"
    page.run("$('#undo').click()")
    page.wait_until(f"{title}.textContent === {json.dumps(before)}")
    page.run(f"{title}.focus(), {title}.textContent = ' ', {title}.blur()")
    assert page.run(f"{title}.textContent") == before


def test_an_output_that_cannot_be_saved_leaves_its_reason_alone(review):
    page = review()
    page.run("$('#output').append(new Option('none', 'none'))")
    page.run("$('#output').value = 'none'")
    page.run("$('#output').dispatchEvent(new Event('change'))")
    page.wait_until("$('#trouble').textContent.includes('unknown output')")
    assert page.run("$('#told').textContent") == ""


def test_a_reading_that_fails_at_once_is_told(review, monkeypatch):
    monkeypatch.setattr("stepline.studio.jobs.WORKER", "fake_job_workers:cut_a_message_short")
    page = review()
    # The reply that names the job comes after the job has ended.
    page.run(
        """(() => { const send = fetch; window.fetch = async (path, options) => {
          const reply = await send(path, options);
          if (!path.endsWith("/jobs")) return reply;
          const { job } = await reply.clone().json();
          for (let state; state !== "failed";) ({ state } = await (await send(`/api/jobs/${job}`)).json());
          return reply;
        }; })()"""
    )
    page.click("#read-again")
    page.wait_until("$('#read-now')")
    page.click("#read-now")
    page.wait_until("$('#trouble').textContent.includes('SIGKILL')")


def test_a_video_is_read_again_as_a_person_chooses(browser, tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    record = read_record(folder / "v0.json")
    warnings = ("2 of 9 words are unsure; `--model whisper-base` hears better",)
    changed = {"steps": (), "warnings": warnings, "recipe": ("Pour the juice",)}
    write_record(record.model_copy(update=changed), folder / "v0.json")
    settings = load_settings(StepsSettings, None, ["vision.backbone=none"])
    with serving(folder, settings=settings) as server:
        let_in(browser, server)
        page = browser.open(f"{server.address}video/{ID}")
        # a record without steps shows its warnings too
        page.wait_until("$$('#warnings li').length === 1")
        cure = "Whisper base, once it is installed (`stepline weights get whisper-base`),"
        if weights_fetched("whisper-base"):
            cure = "“Read again” with Whisper base"
        told = f"2 of 9 words are unsure; {cure} hears better"
        assert page.run("$('#warnings').textContent").startswith(told)
        page.click("#read-again")
        page.wait_until("$('dialog [name=recogniser]')")
        assert page.violations() == []
        page.run("$('dialog [name=language]').value = 'en'")
        page.run("$('dialog [name=recogniser]').value = 'whisper-tiny.en'")
        page.click("#read-now")
        jobs = server.studio.jobs
        until(lambda: any(job.state == "done" for job in jobs.list_jobs()), 240)
        page.wait_until("$('#list .step')")  # the page loads again
        assert page.run("$('#list textarea').value") == "Pour the juice"
        again = read_record(folder / "v0.json")
        assert again.transcript.recogniser == "whisper-tiny.en"
        assert again.settings["asr"]["language"] == "en"

        # corrected steps stay, which the button says; a title is no step
        button = "$('#read-again')"
        page.run("$('#title').focus()")
        page.run("$('#title').textContent = 'Juice'")
        page.run("$('#title').blur()")
        page.wait_until(SAVED)
        assert page.run(f"[{button}.disabled, {button}.title]") == [False, ""]
        page.click("#add")
        page.wait_until(f"{button}.disabled")
        assert "Undo the corrections, or delete the video" in page.run(f"{button}.title")
        page.click("#undo")
        page.wait_until(f"!{button}.disabled")
        page.close()
