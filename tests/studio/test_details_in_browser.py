"""Videos are named, tagged, described and deleted, as a person does it: by keys, mouse and finger."""

import pytest
from studio_pages import SAVED
from studio_server import let_in, library, serving

from stepline.library.corrected_library import video_id

pytestmark = pytest.mark.browser

LEMONADE = video_id("v0.json")
PLACE = f"/api/videos/{LEMONADE}"
CARD = f'.card[data-id="{LEMONADE}"]'
TITLES = "$$('.card > div > a').map((card) => card.textContent)"
WARNING = "$('.details .warnings').textContent"
OPEN = "$('dialog.details[open]')"
FOCUS = "document.activeElement"
HOSTILE = "<img src=x onerror=document.title='hit'>"


@pytest.fixture
def server(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video, ("Lemonade", "Bench", "Bread"))
    with serving(folder, at_once=0) as running:
        yield running


@pytest.fixture
def visit(browser, server):
    let_in(browser, server)

    def visit(path="", ready="$$('.card').length === 3", **screen):
        page = browser.open(f"{server.address}{path}", **screen)
        page.wait_until(ready)
        return page

    yield visit
    browser.close_pages()


def press(page, *names):
    codes = {"Enter": (13, "\r"), "Tab": (9, None), "Escape": (27, None), "t": (84, "t")}
    for name in names:
        code, text = codes[name]
        page.press(name, code, text)


def tap(page, selector):
    """Touch the middle of the first element that matches."""
    x, y = page._middle(selector)
    page.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def label(server, *edits, by="bob"):
    base = server.read(PLACE)["revision"]
    body = {"by": by, "base": base, "edits": list(edits)}
    assert server.status("POST", f"{PLACE}/corrections", body) == 200


def labels(server):
    video = server.read(f"{PLACE}/record?part=steps")["record"]["video"]
    return video["title"], video.get("tags", []), video.get("metadata", {})


def test_a_video_is_named_tagged_and_described_by_keys_alone(visit, server):
    page = visit()
    page.run(f"$('{CARD} a').focus()")
    press(page, "t")
    page.wait_until(f"{OPEN} && {FOCUS}.id === 'new-title'")
    page.type("Pink lemonade")  # instead of the title, which is selected
    press(page, "Tab")
    assert page.run(f"{FOCUS}.id") == "new-tag"
    for tag in ("Safety", "garage", "SAFETY"):
        page.type(tag)
        press(page, "Enter")
    press(page, "Tab", "Tab", "Enter")
    page.type("Course")
    press(page, "Tab")
    page.type("A1")
    assert page.violations() == []
    press(page, "Enter")
    page.wait_until(f"!{OPEN}")
    assert labels(server) == ("Pink lemonade", ["garage", "Safety"], {"Course": "A1"})
    page.wait_until(f"{FOCUS}.matches('{CARD} .edit')")
    text = page.run(f"$('{CARD}').innerText")
    for word in ("Pink lemonade", "Safety", "garage", "Course", "A1"):
        assert word in text
    assert "correction" not in text
    press(page, "t")
    page.wait_until(OPEN)
    page.click(".details .tag button")
    page.click("#save")
    page.wait_until(f"!{OPEN}")
    assert labels(server)[1] == ["Safety"]
    assert page.complaints() == []


def test_tags_filter_the_list_and_the_search(visit, server):
    course = {"do": "metadata", "name": "Course", "value": "A1"}
    label(server, {"do": "tag", "tag": "Safety"}, course)
    page = visit()
    page.wait_until("!$('#tag').hidden")
    page.click(f"{CARD} button.tag")
    page.wait_until(f"{TITLES}.join() === 'Lemonade'")
    assert page.run("$('#tag').selectedOptions[0].textContent") == "Safety (1)"
    page.press("/", 191, "/")
    page.type("pour the juice")
    page.wait_until("$$('.moment').length > 0")
    page.wait_until("$('#found-title').textContent.includes('“Safety”')")
    moments = "$$('.moment small').map((small) => small.textContent)"
    assert all("Lemonade" in text for text in page.run(moments))
    page.run("$('#tag').value = '', $('#tag').dispatchEvent(new Event('change'))")
    page.wait_until(f"{TITLES}.length === 3")
    page.run("$('#filter').value = 'course a1', $('#filter').dispatchEvent(new Event('input'))")
    page.wait_until(f"{TITLES}.join() === 'Lemonade'")


def test_a_video_is_deleted_by_keys_after_it_is_said_what_goes(visit, server):
    label(server, {"do": "change", "step": "a", "kind": "avoid"})
    page = visit()
    page.run(f"$('{CARD} .edit').focus()")
    for way_out in ("Escape", "Enter"):  # leaves the box; presses "Keep it", which has the focus
        press(page, "Enter")
        page.wait_until(OPEN)
        page.run("$('#delete').focus()")
        press(page, "Enter")
        page.wait_until(f"{FOCUS}.id === 'keep-video'")
        text = page.run(f"{OPEN}.innerText")
        warning = ("Delete “Lemonade”?", "cannot be undone", "v0.json", "1 correction and 1 file")
        for words in warning:
            assert words in text
        press(page, way_out)
        page.wait_until(f"!{OPEN} && {FOCUS}.matches('{CARD} .edit')")
    press(page, "Enter")
    page.wait_until(OPEN)
    page.run("$('#delete').focus()")
    press(page, "Enter")
    page.wait_until(f"{FOCUS}.id === 'keep-video'")
    press(page, "Tab", "Enter")
    page.wait_until(f"!{OPEN} && {TITLES}.length === 2")
    page.wait_until(f"{FOCUS}.matches('.card .edit')")
    assert "Lemonade" not in page.run(TITLES)
    folder = server.studio.library.folder
    assert {path.name for path in folder.glob("v0.*")} == {"v0.mp4"}
    assert server.read("/api/labels") == {"tags": {}, "metadata": {}}
    assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_finger_names_tags_and_deletes_on_a_phone(visit, server, dark):
    page = visit(width=390, height=844, dark=dark)
    page.send("Emulation.setTouchEmulationEnabled", enabled=True)
    tap(page, f"{CARD} .edit")
    page.wait_until(OPEN)
    page.type("Pink lemonade")
    tap(page, "#new-tag")
    page.wait_until(f"{FOCUS}.id === 'new-tag'")
    page.type("Safety")
    tap(page, "#new-tag ~ button")
    page.wait_until("$$('.details .tag').length === 1")
    small = (
        "$$('.details button, .details input').filter((node) =>"
        " node.checkVisibility() && node.getBoundingClientRect().height < 40).length"
    )
    assert page.run(small) == 0
    assert page.run(f"{OPEN}.scrollWidth <= innerWidth")
    assert page.violations() == []
    assert page.unreadable() == []
    tap(page, "#save")
    page.wait_until(f"!{OPEN}")
    assert labels(server)[:2] == ("Pink lemonade", ["Safety"])
    page.wait_until(f"$('{CARD} button.tag')")
    tap(page, f"{CARD} button.tag")
    page.wait_until(f"{TITLES}.join() === 'Pink lemonade'")
    tap(page, f"{CARD} .edit")
    page.wait_until(OPEN)
    tap(page, "#delete")
    page.wait_until("$('#delete-now')")
    assert page.violations() == []
    tap(page, "#delete-now")
    page.wait_until(f"!{OPEN} && {TITLES}.length === 0")
    assert page.complaints() == []


def test_what_cannot_be_saved_is_said_in_the_box(visit, server):
    page = visit()
    page.click(f"{CARD} .edit")
    page.wait_until(OPEN)
    page.run("$('#new-title').value = ' '")
    page.click("#save")
    page.wait_until(f"{WARNING}.includes('needs a title')")
    page.run("$('#new-title').value = 'Mine'")
    page.click("#add-line")
    page.type("Course")
    page.click("#save")
    page.wait_until(f"{WARNING}.includes('needs a name and a value')")
    page.click(".metadata-lines button")
    label(server, {"do": "title", "title": "Bob's"})
    page.click("#save")
    page.wait_until(f"{WARNING}.includes('bob has changed title since you read it')")
    assert labels(server)[0] == "Bob's"
    page.click("#save")
    page.wait_until(f"!{OPEN}")
    assert labels(server)[0] == "Mine"


def test_hostile_labels_stay_text(visit, server):
    told = {"do": "metadata", "name": HOSTILE, "value": HOSTILE}
    label(server, {"do": "title", "title": HOSTILE}, {"do": "tag", "tag": HOSTILE}, told)
    page = visit()
    page.wait_until(f"$('{CARD} button.tag')?.textContent.startsWith('<img')")
    page.click(f"{CARD} .edit")
    page.wait_until(OPEN)
    page.click("#delete")
    page.wait_until("$('#delete-now')")
    review = visit(f"video/{LEMONADE}", "$('#labels .tag')")
    review.run("$('#edit-details').click()")
    review.wait_until(OPEN)
    for each in (page, review):
        assert "hit" not in each.run("document.title").split(" ")[:1]
        assert each.run("$$('img[src=x]').length") == 0
        assert each.complaints() == []


READY = "$$('#list .step').length && $('.bar-box')"


def test_an_open_review_says_that_the_video_was_deleted_elsewhere(visit, server):
    page = visit(f"video/{LEMONADE}", READY)
    label(server, {"do": "title", "title": "Title"})
    page.wait_until("document.title.startsWith('Title')")  # so it listens
    assert server.status("DELETE", PLACE, "") == 200
    page.wait_until("$('#trouble').textContent.includes('was deleted')")


def test_the_review_shows_labels_edits_and_undoes_them_and_deletes(visit, server):
    page = visit(f"video/{LEMONADE}", READY)
    press(page, "t")
    page.wait_until(f"{OPEN} && {FOCUS}.id === 'new-title'")
    press(page, "Tab")
    page.type("Safety")
    page.click("#add-line")
    page.type("Course")
    press(page, "Tab")
    page.type("A1")
    press(page, "Enter")
    page.wait_until(f"!{OPEN} && $('#labels').innerText.includes('A1')")
    page.wait_until(SAVED)
    assert labels(server) == ("Lemonade", ["Safety"], {"Course": "A1"})
    assert page.violations() == []
    page.click("#show-history")
    words = "$('#changes').innerText"
    page.wait_until(f"{words}.includes('tag “Safety”; Course: “A1”')")
    page.click("#undo")
    page.wait_until(f"$('#labels').hidden && {SAVED}")
    assert labels(server) == ("Lemonade", [], {})
    page.click("#edit-details")
    page.wait_until(OPEN)
    page.click("#delete")
    page.wait_until(f"{FOCUS}.id === 'keep-video'")
    page.click("#delete-now")
    page.wait_until(f"location.pathname === '/' && {TITLES}.length === 2")
    assert page.complaints() == []


def test_all_videos_on_the_page_are_tagged_together(visit, server):
    label(server, {"do": "tag", "tag": "safety"})
    page = visit()
    page.wait_until("$('#tag-all').textContent === 'Tag these 3'")
    page.run("$('#tag-all').focus()")
    press(page, "Enter")
    page.wait_until("$('#tag-box').open")
    assert page.violations() == []
    page.type("Safety")
    page.click("#tag-now")
    told = "$('#told').textContent"
    page.wait_until(f"{told} === '“Safety” added to 2 videos'")
    assert list(server.read("/api/labels")["tags"].values()) == [3]
    page.wait_until("$$('.card button.tag').length === 3")
    page.click("#tag-all")
    page.type("SAFETY")
    page.click("#tag-form [value=untag]")
    page.wait_until(f"{told} === '“SAFETY” removed from 3 videos'")
    assert server.read("/api/labels")["tags"] == {}
    assert page.complaints() == []
