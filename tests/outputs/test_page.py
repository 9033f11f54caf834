import base64
import hashlib
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from output_samples import HOSTILE, make_alignment, make_step, record_of

from stepline.outputs import page
from stepline.outputs.page.timeline import (
    alignment_picture,
    assign_lanes,
    match_texts_to_steps,
    pool_columns,
    scores_to_png,
    ticks,
    timeline,
)
from stepline.outputs.page.view import flatten, page_view
from stepline.outputs.text import clock, one_line, sentence_case, shorten
from stepline.outputs.web_addresses import media_link
from stepline.records import Alignment, Record, Sentence, Span, Step, Transcript, Video


class Elements(HTMLParser):
    """Every element of a page with its attributes and the text inside it."""

    VOID = frozenset({"meta", "link", "img", "input", "line", "rect", "image", "br"})

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.open_tags = [], []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.found.append(element)
        if tag not in self.VOID:
            self.open_tags.append(element)

    def handle_startendtag(self, tag, attrs):
        self.found.append({"tag": tag, "text": "", **dict(attrs)})

    def handle_endtag(self, tag):
        assert self.open_tags.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open_tags:
            element["text"] += data

    def all(self, tag, class_=""):
        return [
            e
            for e in self.found
            if e["tag"] == tag and (not class_ or class_ in (e.get("class") or "").split())
        ]


def read_page(text):
    elements = Elements()
    elements.feed(text)
    elements.close()
    assert elements.open_tags == []
    return elements


def test_every_step_is_listed_with_its_words_times_and_status(record):
    steps = read_page(page(record)).all("li", "step")
    assert len(steps) == 12
    first, said, missing = (" ".join(steps[index]["text"].split()) for index in (0, 9, 11))
    assert "Bring a cup of water to the boil 0:06–0:10 4 s Seen 91 %" in first
    assert (
        "First bring a cup of water to the boil and stir in the sugar until it dissolves." in first
    )
    assert "said 0:51–0:55 Said only" in said
    assert "Not found" in missing
    assert (steps[0]["data-start"], steps[0]["data-end"]) == ("6.0", "10.0")
    assert "data-start" not in steps[9]


def test_a_click_goes_to_where_it_is_shown_else_to_where_it_is_said_else_nowhere(record):
    buttons = read_page(page(record)).all("button", "go")
    seconds = [button.get("data-seek") for button in buttons[7:]]
    assert seconds == ["54.0", "46.0", "51.5", "57.5", None]


def test_sentences_say_whether_they_are_shown_by_the_steps_that_cite_them(record):
    marks = [sentence["mark"] for sentence in page_view(record, None, {})["sentences"]]
    expected = ["none", *["seen"] * 4, "none", *["seen"] * 4, "said_only", "seen", "none"]
    assert marks == expected


def test_a_sentence_is_marked_as_the_most_certain_of_its_steps():
    sentences = (
        Sentence(text="a", span=Span(0, 1), shown=0.9),
        Sentence(text="b", span=Span(1, 2)),
    )
    chat = Record(id="r", video=Video(id="r"), transcript=Transcript(sentences=sentences))
    assert [row["mark"] for row in page_view(chat, None, {})["sentences"]] == ["none", "none"]
    placed = Step(id="1", text="b", sources=(1,), status="placed", spans=(Span(5, 6),))
    said = Step(id="2", text="a", sources=(0, 1), status="said_only")
    told = chat.model_copy(update={"steps": (said, placed)})  # the page must not contradict itself
    marks = [row["mark"] for row in page_view(told, None, {})["sentences"]]
    assert marks == ["said_only", "placed"]


def test_a_step_shown_far_from_its_words_says_so(record):
    steps = page_view(record, None, {})["steps"]
    drifts = {step["number"]: step["drift"] for step in steps if step["drift"]}
    assert drifts == {8: "12 s after its words"}  # 55.75 - 43.55 = 12.2


def test_a_step_in_the_very_seconds_of_another_says_so():
    spans = ((1.0, 4.0), (1.0, 4.0), (2.0, 4.0))
    rows = tuple(make_step(number, "cut", (span,)) for number, span in enumerate(spans, start=1))
    rows += tuple(make_step(number, "fold", (), (1.0, 4.0), "said_only") for number in (4, 5))
    record = record_of(*rows)
    together = [step["together"] for step in page_view(record, None, {})["steps"]]
    assert together == [None, 1, None, None, None]
    (note,) = read_page(page(record)).all("p", "notes")
    assert " ".join(note["text"].split()) == "together with step 1"


def test_a_little_confidence_is_not_called_none():
    rows = tuple(
        make_step(n, "cut", ((1.0, 4.0),), status="seen", score=score)
        for n, score in enumerate((0.0031, 0.0, 0.0068, 1.0))
    )
    shown = page_view(record_of(*rows), None, {})
    assert [step["percent_text"] for step in shown["steps"]] == ["<1", "0", "1", "100"]
    assert "&lt;1 %" in page(record_of(*rows))


def test_what_the_picture_says_of_a_step_is_next_to_it(record):
    first = record.steps[0].model_copy(
        update={"seen": ("a face talks to the camera", "text on screen: <b>\nBOIL</b>")}
    )
    elements = read_page(page(record.model_copy(update={"steps": (first, *record.steps[1:])})))
    (seen,) = elements.all("ul", "remarks")
    assert (
        " ".join(seen["text"].split()) == "a face talks to the camera text on screen: <b> BOIL</b>"
    )


def test_a_page_without_steps_points_only_at_what_it_has(record):
    (told,) = read_page(page(record.model_copy(update={"steps": ()}))).all("p", "empty")
    assert (
        told["text"]
        == "No step was found in this video. What was left out, and why, is listed below."
    )
    bare = page(record_of())
    assert "No step found in 0 sentences" in bare
    (told,) = read_page(bare).all("p", "empty")
    assert told["text"] == "No step was found in this video. No speech was recognised in it."
    for shown in (record, record.model_copy(update={"steps": ()}), record_of()):
        found = read_page(page(shown)).found
        links = {e["href"][1:] for e in found if e.get("href", "").startswith("#")} - {"t=0"}
        assert links <= {e["id"] for e in found if "id" in e}


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_badges_can_be_read(record, scheme):
    """Contrast of WCAG 2.1, level AA: 4.5 and more."""
    (style,) = read_page(page(record)).all("style")
    colours = dict(
        re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", style["text"].split(":root {")[1 + scheme])
    )
    pairs = "shown shown-soft", "shown none-soft", "said said-soft", "none none-soft"
    for ink, paper in map(str.split, pairs):
        dark, light = sorted((luminance(colours[ink]), luminance(colours[paper])))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


def test_the_policy_names_exactly_the_pages_own_script_and_style(record):
    elements = read_page(page(record))
    policy = elements.all("meta")[1]["content"]
    script, style = elements.all("script")[-1]["text"], elements.all("style")[0]["text"]
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert not any("style" in element or "onclick" in element for element in elements.found)


def test_nothing_in_the_page_points_outside_but_the_video(record, alignment, keyframes):
    text = page(record, alignment=alignment, keyframes=keyframes, media="clip.mp4")
    links = {e.get(name) for e in read_page(text).found for name in ("src", "href") if e.get(name)}
    outside = {link for link in links if not link.startswith(("data:image/", "#"))}
    assert outside == {"clip.mp4"}
    assert "@import" not in text
    assert "url(" not in text


def test_key_frames_are_inside_the_page(record, keyframes):
    pictures = read_page(page(record, keyframes=keyframes)).all("img")
    assert len(pictures) == 10
    assert (
        pictures[0]["src"] == "data:image/jpeg;base64," + base64.b64encode(keyframes["1"]).decode()
    )


def test_hostile_text_adds_no_element_and_is_shown_as_it_is(hostile):
    elements = read_page(
        page(hostile, alignment=make_alignment(hostile), media='"><script>alert(9)</script>.mp4')
    )
    assert len(elements.all("script")) == 2  # the HowTo data and the page's own
    assert len(elements.all("h1")) == 1
    assert len(elements.all("img")) == 0
    assert [step["text"] for step in elements.all("bdi", "text")] == [
        sentence_case(one_line(text)) for text in HOSTILE
    ]
    attributes = {name for e in elements.found if e["tag"] != "html" for name in e}
    assert not any(name.startswith("on") for name in attributes)


def test_a_path_can_never_be_read_as_another_scheme_or_host():
    assert media_link("../v 1.mp4") == "../v%201.mp4"
    assert media_link("javascript:alert(1)") == "javascript%3Aalert%281%29"
    assert media_link("https://example.org/v.mp4") == "https%3A//example.org/v.mp4"
    assert media_link("/home/a b/v.mp4") == "file:///home/a%20b/v.mp4"
    assert media_link("//example.org/v.mp4").startswith("file:///")


def test_an_empty_record_has_a_page_without_player_or_picture():
    elements = read_page(page(record_of()))
    assert "No step was found" in elements.all("section", "steps")[0]["text"]
    assert elements.all("video") == elements.all("image") == []


def test_the_reference_is_next_to_the_prediction_only_where_there_is_one(record):
    assert [row["name"] for row in timeline(record, 67.0)["rows"]] == ["Said", "Steps", "Reference"]
    bare = record.model_copy(update={"reference": ()})
    assert [row["name"] for row in timeline(bare, 67.0)["rows"]] == ["Said", "Steps"]
    assert "Reference" not in page(bare).split("</style>")[1]


def test_captions_are_next_to_what_is_said_only_where_there_are_some(record):
    told = record.model_copy(
        update={"captions": (make_step(1, "pour <the> juice", ((37.0, 44.0),)),)}
    )
    names = [row["name"] for row in timeline(told, 67.0)["rows"]]
    assert names == ["Said", "Steps", "Described", "Reference"]
    assert "Pour &lt;the&gt; juice" in page(told)
    assert "Described from the picture" not in page(record)


def test_bars_lie_where_their_seconds_are():
    record = record_of(make_step(1, "cut", ((10.0, 15.0),), (2.0, 4.0), "placed"))
    (row,) = timeline(record, 40.0)["rows"]
    assert tuple(row["bars"][0][key] for key in ("x", "width", "seek")) == (25.0, 12.5, 10.0)


def test_bars_that_overlap_get_lanes_of_their_own():
    spans = [Span(0, 4), Span(1, 3), Span(2, 6), Span(4, 5), Span(4.5, 7)]
    assert assign_lanes(spans) == [0, 1, 2, 0, 1]
    assert max(assign_lanes([Span(0, 10)] * 20)) == 5


@pytest.mark.parametrize("total", [1.0, 7.5, 60.0, 61.0, 599.0, 3600.0, 40_000.0, 400_000.0])
def test_an_axis_has_two_to_seven_labels(total):
    found = ticks(total)
    assert 2 <= len(found) <= 7
    assert (found[0]["x"], found[0]["label"]) == (0.0, "0:00")


def test_a_texts_row_belongs_to_the_step_of_the_same_words_each_step_once(record):
    steps = page_view(record, None, {})["steps"]
    found = match_texts_to_steps(
        ("strain the lemonade", "something else", "Strain the lemonade"), steps
    )
    assert [step["number"] if step else None for step in found] == [8, None, None]


def test_the_picture_has_a_pixel_a_score_and_shows_the_greatest_strongest():
    from PIL import Image

    scores = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0]], np.float32)
    image = Image.open(io.BytesIO(scores_to_png(scores)))
    assert image.size == (3, 2)
    assert np.array(image).argmax() == 1
    assert image.convert("RGB").getpixel((1, 0)) == (6, 64, 61)


def test_a_flat_alignment_is_drawn_too(record):
    flat = Alignment(("a",), np.zeros((1, 5), np.float32), 1.0, "probability")
    assert alignment_picture(flat, page_view(record, flat, {}))["width"] == pytest.approx(
        100 * 5 / 67, abs=1e-3
    )


def test_long_alignments_are_pooled_by_their_maximum():
    assert pool_columns(np.array([[0, 3, 1, 2, 9]], np.float32), 3).tolist() == [[3, 2, 9]]
    assert pool_columns(np.zeros((2, 4000), np.float32), 1600).shape == (2, 1334)


def test_settings_become_rows():
    tree = {"asr": {"beam": 5, "model": None}, "empty": {}, "none": [], "list": ["a", 1]}
    rows = {"asr.beam": "5", "asr.model": "not set", "empty": "{}", "none": "none", "list": "a, 1"}
    assert flatten(tree) == [*rows.items()]


def test_words_and_times_for_people():
    assert [clock(t) for t in (0.9, 59.99, 61, 3723)] == ["0:00", "0:59", "1:01", "1:02:03"]
    assert shorten("cut the strips of tape", 17) == "cut the strips…"
    assert shorten("x" * 20, 5) == "xxxx…"
    assert one_line(" a\0 b\r\n\tc\u2028d ") == "a b c d"


def test_a_bar_too_narrow_for_its_number_has_none():
    rows = (make_step(1, "cut", ((0.0, 20.0),)), make_step(2, "fold", ((50.0, 60.0),)))
    (row,) = timeline(record_of(*rows), 1000.0)["rows"]
    assert [bar["label"] for bar in row["bars"]] == ["", ""]
    (row,) = timeline(record_of(*rows), 500.0)["rows"]
    assert [bar["label"] for bar in row["bars"]] == ["1", ""]  # 4 and 2 per cent


def test_a_line_ties_where_a_step_is_said_to_where_it_is_shown():
    sentence = Sentence(text="cut it", span=Span(2.0, 4.0))
    step = make_step(1, "cut", ((10.0, 15.0),), (2.0, 4.0), "placed", 0.9, (0,))
    record = Record(
        id="r", video=Video(id="r"), transcript=Transcript(sentences=(sentence,)), steps=(step,)
    )
    drawn = timeline(record, 50.0)
    (tie,) = drawn["ties"]
    said, shown = (row["bars"][0] for row in drawn["rows"])
    assert (tie["x1"], tie["x2"]) == (6.0, 25.0)  # 3 s and 12.5 s of 50 s
    assert (tie["y1"], tie["y2"]) == (said["y"] + said["height"], shown["y"])
