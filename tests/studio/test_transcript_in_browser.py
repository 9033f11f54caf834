"""The transcript next to the steps, in a real browser: it follows the film, is mended, and changes
the steps. And the picture of a step, chosen on a scrubber."""

import pytest
from studio_pages import LOOKS, PLAYER, SAVED, wait_until_closed
from studio_server import let_in, library, serving

from stepline.library.corrected_library import video_id
from stepline.outputs.terminal import VERDICT_MARKS
from stepline.records import Sentence, Span, Transcript, Word
from stepline.storage import read_record, write_record

pytestmark = pytest.mark.browser

ID = video_id("v0.json")
TOLD = "$('#told-words').textContent"
TEXTS = "$$('#sentences .words').map((each) => each.textContent.trim())"
STEP_TEXTS = "$$('#list textarea').map((each) => each.value)"
SAID = [
    "Hello all, welcome back.",
    "First, slice the lemons.",
    "Then poor the silk into the bowl.",
    "Now whisk the sugar in.",
]


@pytest.fixture
def server(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    record = read_record(folder / "v0.json")
    sentences = []
    for number, text in enumerate(SAID):
        start = 4.0 * number
        words = tuple(
            Word(text=word, span=Span(start + 0.5 * n, start + 0.5 * n + 0.4), confidence=0.9)
            for n, word in enumerate(text.split())
        )
        sentences.append(Sentence(text=text, span=Span(start, start + 3.5), words=words))
    texts = ("slice the lemons", "poor the silk into the bowl", "whisk the sugar in")
    steps = [
        step.model_copy(update={"text": text, "sources": (number + 1,)})
        for number, (step, text) in enumerate(zip(record.steps, texts, strict=True))
    ]
    transcript = Transcript(language="en", sentences=tuple(sentences))
    update = {"transcript": transcript, "steps": tuple(steps), "models": {"writer": "extractive"}}
    write_record(record.model_copy(update=update), folder / "v0.json")
    with serving(folder) as running:
        yield running


@pytest.fixture
def review(browser, server):
    """Opens the video for review in a new window."""
    let_in(browser, server)

    def review(look="widest", shows="transcript"):
        page = browser.open(f"{server.address}video/{ID}", **LOOKS[look])
        if "narrow" in look:
            page.send("Emulation.setTouchEmulationEnabled", enabled=True)
        ready(page)
        if "narrow" in look:
            page.click(f"#view-{shows}")
        return page

    yield review
    browser.close_pages()


def ready(page):
    page.wait_until("$$('#sentences li').length")
    page.wait_until(f"{PLAYER}.readyState >= 1")
    page.wait_until(SAVED)


def record(server):
    return server.read(f"/api/videos/{ID}/record")["record"]


def said(server, page):
    page.wait_until(SAVED)
    return [sentence["text"] for sentence in record(server)["transcript"]["sentences"]]


def word(number, index):
    return f"#sentences li[data-id='{number}'] .word:nth-child({index + 1})"


def chosen(page):
    return page.run("Number(document.activeElement.closest('li').dataset.id)")


def press(page, key, code=0):
    """Press a key where the focus is."""
    page.press(key, code or ord(key.upper()), key if len(key) == 1 else None)


def enter(page):
    page.press("Enter", 13, "\r")


def choose(page, number):
    page.run(f"$('#sentences li[data-id=\"{number}\"] .when').focus()")


def type_over(page, number, text):
    """Edit a sentence by keys, and replace all its words."""
    choose(page, number)
    enter(page)
    page.wait_until("document.activeElement.matches('#sentences textarea')")
    page.run("document.activeElement.select()")
    page.type(text)


@pytest.mark.parametrize("look", ["widest", "narrow"])
def test_a_word_seeks_and_what_is_said_is_marked(review, look):
    page = review(look)
    page.click(word(2, 3))  # "silk", the fourth
    page.wait_until(f"Math.abs({PLAYER}.currentTime - 9.5) < .01")
    page.wait_until("$('.spoken')?.dataset.id === '2'")
    page.run(f"{PLAYER}.currentTime = 11.8")  # between two sentences
    page.wait_until("!$('.spoken')")
    page.run(f"{PLAYER}.currentTime = 12.2")
    page.wait_until("$('.spoken')?.dataset.id === '3'")
    assert page.run("$$('.spoken').length") == 1
    assert page.complaints() == []


def test_a_word_without_a_time_seeks_to_its_share_of_the_sentence(review, server):
    page = review()
    body = {"by": "bob", "base": 0, "edits": [{"do": "join", "sentences": [0, 1]}]}
    assert server.status("POST", f"/api/videos/{ID}/corrections", body) == 200
    page.wait_until("$$('#sentences li').length === 3")
    page.click(word(0, 6))  # "the": by its own time, which the join kept
    page.wait_until(f"Math.abs({PLAYER}.currentTime - 5) < .01")


def test_a_mended_word_changes_the_step_that_rests_on_it(review, server):
    page = review()
    type_over(page, 2, "Then pour the milk into the bowl.")
    enter(page)
    assert said(server, page)[2] == "Then pour the milk into the bowl."
    page.wait_until(f"{STEP_TEXTS}[1] === 'Pour the milk into the bowl'")
    assert "step 2 is written again" in page.run(TOLD)
    words = record(server)["transcript"]["sentences"][2]["words"]
    assert [each["text"] for each in words] == ["Then", *"pour the milk into the bowl.".split()]
    assert [each["start"] for each in words] == pytest.approx([8, 8.5, 9, 9.5, 10, 10.5, 11])
    assert chosen(page) == 2  # the focus is where it was

    # one undo takes both back
    page.click("#undo-words")
    page.wait_until(f"{STEP_TEXTS}[1] === 'Poor the silk into the bowl'")
    assert said(server, page) == SAID
    assert page.complaints() == []


def test_a_double_click_selects_the_word_so_that_typing_replaces_it(review, server):
    page = review()
    last = len(SAID[2].split()) - 1
    for index, typed in ((3, "milk"), (last, "pan")):  # the last has a full stop, which stays
        x, y = page._middle(word(2, index))
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                page.send(
                    "Input.dispatchMouseEvent", type=kind, button="left", clickCount=count, x=x, y=y
                )
        page.wait_until("document.activeElement.matches('#sentences textarea')")
        page.type(typed)
        enter(page)
        page.wait_until("!$('#sentences textarea')")
        page.wait_until(f"$(\"{word(2, index)}\").textContent.startsWith('{typed}')")
        page.wait_until(SAVED)  # what the reply says moves the words
    words = SAID[2].split()
    words[3], words[last] = "milk", "pan."
    assert said(server, page)[2] == " ".join(words)


def test_the_badges_have_the_marks_of_the_terminal(review):
    page = review()
    look = (
        "((kind) => { const badge = document.createElement('span'); badge.className = `badge ${kind}`; "
        "document.body.append(badge); const drawn = getComputedStyle(badge, '::before'); "
        "return [drawn.content, drawn.borderTopWidth !== '0px', "
        "drawn.backgroundImage.startsWith('linear-gradient(90deg'), "
        "drawn.backgroundColor !== 'rgba(0, 0, 0, 0)']; })"
    )
    marks = {  # text, a circle, half filled, filled
        "●": ["", True, False, True],
        "◐": ["", True, True, False],
        "○": ["", True, False, False],
        "?": ["?", False, False, False],
        "×": ["×", False, False, False],
    }
    for kind in ("seen", "placed", "said_only", "doubtful", "not_found"):
        text, *drawn = page.run(f"{look}('{kind}')")
        assert [text.strip('"'), *drawn] == marks[VERDICT_MARKS[kind]], kind


def test_a_step_that_a_person_wrote_stays_and_the_page_says_so(review, server):
    page = review()
    page.run("$$('#list textarea')[1].focus()")
    page.run("document.activeElement.select()")
    page.type("Add the milk")
    enter(page)
    page.wait_until(SAVED)
    type_over(page, 2, "Then pour the milk into the bowl.")
    enter(page)
    page.wait_until(f"{TOLD}.includes('step 2 stays as it is: a person wrote its text')")
    assert record(server)["steps"][1]["text"] == "Add the milk"


def test_keys_walk_join_drop_and_make_steps(review, server):
    page = review()
    page.run("document.body.focus()")
    press(page, "w")
    assert chosen(page) == 0
    page.press("ArrowDown", 40)
    page.press("ArrowDown", 40)
    assert chosen(page) == 2
    page.press("ArrowUp", 38)
    press(page, "j")
    assert said(server, page) == [SAID[0], f"{SAID[1]} {SAID[2]}", SAID[3]]
    assert chosen(page) == 1
    page.press("ArrowUp", 38)
    press(page, "Delete", 46)
    assert said(server, page) == [f"{SAID[1]} {SAID[2]}", SAID[3]]
    assert chosen(page) == 1
    page.press("ArrowDown", 40)
    press(page, "s")
    page.wait_until("$$('#list .step').length === 4")
    page.wait_until(SAVED)
    made = record(server)["steps"][3]
    fields = [made[name] for name in ("start", "end", "status", "sources")]
    assert fields == [12, 15.5, "placed", [1]]
    press(page, "z")  # of the page: not taken by the transcript
    page.wait_until("$$('#list .step').length === 3")
    assert page.complaints() == []


def test_a_sentence_is_made_into_a_step_once(review, server):
    page = review()
    button = "$$('#sentences .tools button').find((each) => each.textContent === 'Make a step')"
    page.click(word(0, 0))
    assert not page.run(f"{button}.disabled")
    page.run(f"{button}.click()")
    page.wait_until(f"{TOLD}.includes('step 1 has the words of the sentence: the writer finds no')")
    assert page.run(f"{button}.disabled")
    assert chosen(page) == 0
    press(page, "s")
    assert page.run(TOLD) == "it is a step already"
    page.wait_until(SAVED)
    assert [step["sources"] for step in record(server)["steps"]] == [[0], [1], [2], [3]]
    page.click(word(3, 0))  # the step that rests on it is the machine's
    assert not page.run(f"{button}.disabled")
    page.click(word(0, 0))
    page.click("#undo-words")
    page.wait_until(f"!{button}.disabled")


@pytest.mark.parametrize("look", ["widest", "narrow"])
def test_buttons_do_what_the_keys_do(review, server, look):
    page = review(look)

    def tool(name):
        page.run(
            "$$('#sentences .chosen .tools button')"
            f".find((each) => each.textContent === '{name}').click()"
        )
        page.wait_until(SAVED)  # what the reply says moves the words

    page.click(word(0, 0))
    tool("Drop")
    page.click(word(1, 0))
    tool("Join with next")
    page.click(word(3, 0))
    tool("Make a step")
    page.wait_until("$$('#list .step').length === 4")
    tool("Edit")
    page.run("document.activeElement.select()")
    page.type("Now stir it in.")
    page.run("document.activeElement.blur()")  # as a tap elsewhere does
    assert said(server, page) == [f"{SAID[1]} {SAID[2]}", "Now stir it in."]
    assert page.complaints() == []


def test_escape_leaves_the_words_as_they_were(review, server):
    page = review()
    type_over(page, 1, "Anything")
    page.press("Escape", 27)
    assert said(server, page) == SAID
    assert page.run(TEXTS) == SAID
    assert chosen(page) == 1
    assert server.read(f"/api/videos/{ID}/record")["revision"] == 0


def test_what_is_typed_outlives_a_reload(review, server):
    page = review()
    type_over(page, 2, "Then pour the milk")
    page.run("window.before = true")
    page.send("Page.reload")
    page.wait_until("!window.before && $('#sentences textarea')")
    assert page.run("$('#sentences textarea').value") == "Then pour the milk"
    assert page.run("document.activeElement.matches('#sentences textarea')")
    enter(page)
    assert said(server, page)[2] == "Then pour the milk"
    assert page.run("sessionStorage.length") == 0


def test_an_edit_that_could_not_be_sent_outlives_the_window(review, browser, server):
    page = review()
    page.send("Network.setBlockedURLs", urls=["*/corrections"])
    type_over(page, 1, "First, slice the limes.")
    enter(page)
    page.wait_until("$('#saved').classList.contains('offline')")
    assert page.run(TEXTS)[1] == "First, slice the limes."  # shown all the same
    page.close()
    wait_until_closed(browser, server)
    other = review()
    assert said(server, other)[1] == "First, slice the limes."


def test_the_caret_stays_where_another_window_changes_the_transcript(review, server):
    page = review()
    choose(page, 2)
    enter(page)
    page.run("document.activeElement.setSelectionRange(5, 5)")
    body = {"by": "bob", "base": 0, "edits": [{"do": "drop", "sentence": 0}]}
    assert server.status("POST", f"/api/videos/{ID}/corrections", body) == 200
    page.wait_until("$$('#sentences li').length === 3")
    page.type("really ")
    assert page.run("document.activeElement.value") == "Then really poor the silk into the bowl."
    enter(page)
    assert said(server, page)[1] == "Then really poor the silk into the bowl."


def test_two_windows_that_mend_the_same_sentence_are_asked(review, server):
    page = review()
    type_over(page, 2, "Then pour the milk in.")
    theirs = {"do": "words", "sentence": 2, "text": "Then pour the juice in."}
    body = {"by": "bob", "base": 0, "edits": [theirs]}
    assert server.status("POST", f"/api/videos/{ID}/corrections", body) == 200
    page.wait_until("$('#facts').textContent.includes('1 correction')")
    enter(page)  # what it was typed over has changed since
    page.wait_until("$('#clash').open")
    asked = page.run("$('#clash').textContent")
    assert "bob" in asked
    assert "Then pour the juice in." in asked
    assert "Then pour the milk in." in asked
    page.click("#keep-mine")
    assert said(server, page)[2] == "Then pour the milk in."


@pytest.mark.parametrize("look", ["widest", "narrow"])
def test_the_picture_of_a_step_is_chosen_on_a_scrubber(review, server, look):
    page = review(look, "steps")
    page.run("$('#step-1').click()")
    page.run("$$('#step-1 .tools button').find((each) => each.textContent === 'Picture').click()")
    assert page.run("document.activeElement.type") == "range"
    # from 10 s before the step to 10 s after it, as far as the film goes
    assert page.run("[document.activeElement.min, document.activeElement.max]") == ["0.0", "16.0"]
    page.run(
        "(() => { const r = document.activeElement; r.value = 8.3; r.dispatchEvent(new Event('input')); })()"
    )
    page.wait_until(f"Math.abs({PLAYER}.currentTime - 8.3) < .01")  # the player shows it
    page.wait_until(f"{PLAYER}.readyState >= 2 && !{PLAYER}.seeking")
    assert page.violations() == []
    page.press("ArrowRight", 39)
    page.wait_until(f"Math.abs({PLAYER}.currentTime - 8.4) < .01")
    enter(page)
    page.wait_until(SAVED)
    step = record(server)["steps"][0]
    assert (step["at"], step["start"]) == (8.4, 3.5)
    page.wait_until("$('#step-1 img').src.endsWith('/pictures/8.4.jpg')")
    assert page.run("$('#step-1 .scrub').hidden")
    (card,) = server.read("/api/videos")["videos"]
    assert card["picture"].endswith("/pictures/8.4.jpg")
    # and the machine's is next to it, one press away
    assert "picture of 0:04.0" in page.run("$('#step-1 .machine').textContent")
    page.run("$('#step-1 .machine button').click()")
    page.wait_until("$('#step-1 img').src.endsWith('/pictures/4.0.jpg')")
    assert page.complaints() == []


def test_no_picture_is_chosen_of_a_step_that_is_not_shown(review):
    page = review()
    page.run("$('#step-3').click(); document.activeElement.blur()")
    press(page, "p")
    assert "mark it as seen first" in page.run("$('#told').textContent")
    assert page.run("$('#step-3 .scrub').hidden")


@pytest.mark.parametrize("look", ["widest", "narrow", "widest-dark", "narrow-dark"])
def test_the_transcript_hinders_no_one(review, look):
    page = review(look)
    page.click(word(1, 2))
    page.wait_until("$('.spoken')")
    page.run("Promise.all(document.getAnimations().map((each) => each.finished))")
    assert page.violations() == []
    assert page.unreadable() == []
    assert page.run("document.documentElement.scrollWidth") <= LOOKS[look]["width"]
    choose(page, 1)
    enter(page)
    assert page.violations() == []
    assert page.unreadable() == []
    assert page.complaints() == []


def test_3000_sentences_are_read_edited_and_followed(browser, tmp_path, small_video):
    """Two hours of speech: each act changes what is drawn of its own sentence alone."""
    folder = library(tmp_path / "library", small_video)
    record = read_record(folder / "v0.json")
    sentences, text = [], "Sentence {} of a long talk about lemons."
    for n in range(3000):
        sentences.append(Sentence(text=text.format(n), span=Span(n / 200, (n + 1) / 200)))
    update = {"transcript": Transcript(language="en", sentences=tuple(sentences))}
    write_record(record.model_copy(update=update), folder / "v0.json")
    with serving(folder) as running:
        let_in(browser, running)
        page = browser.open(f"{running.address}video/{ID}", **LOOKS["widest"])
        ready(page)
        assert page.run("$$('#sentences li').length") == 3000
        page.run("window.nodes = $$('#sentences .word')")
        page.run(f"{PLAYER}.currentTime = 10.0012")
        page.wait_until("$('.spoken')?.dataset.id === '2000'")
        type_over(page, 2000, "Sentence 2000, mended.")
        enter(page)
        assert said(running, page)[2000] == "Sentence 2000, mended."
        # eight words of one sentence were drawn again
        assert page.run("window.nodes.filter((each) => !each.isConnected).length") == 8
        assert page.run("$$('#sentences .word').length") == 3000 * 8 - 5
        # while one types, nothing but the field changes
        choose(page, 2001)
        enter(page)
        page.run(
            "window.changed = 0; new MutationObserver((all) => { window.changed += all.length; })"
            ".observe($('#sentences'), {childList: true, subtree: true})"
        )
        for letter in "abc":
            page.type(letter)
        assert page.run("window.changed") == 0
        page.press("Escape", 27)
        assert page.complaints() == []
        page.close()
