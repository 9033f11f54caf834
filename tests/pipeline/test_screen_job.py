"""A screen recording in the main job: found, read, its steps put where the screen changes."""

import io
import json

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from small_video import draw_video, write_pictures

from stepline.networks.weights import weights_fetched
from stepline.pipeline.output_files import draw_target_box, extract_keyframes
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import understand
from stepline.records import Record, ScreenTarget, Span, Step, Video
from stepline.storage import from_json, to_json

RATE = 5
SIZE = (640, 360)
FONT = ImageFont.load_default(20)
MENU = {"File": (20, 10), "Edit": (100, 10), "View": (180, 10), "Report of the year": (60, 120)}
OPENED = {"Open": (20, 50), "Print": (20, 90), "Export as": (20, 150)}
DIALOG = {"Format of the page": (250, 180), "Letter": (250, 220), "Cancel": (400, 220)}
SCREENS = ((0.0, MENU), (6.0, MENU | OPENED), (14.0, MENU | DIALOG))
SECONDS = 20
SAID = """WEBVTT

00:00.500 --> 00:02.500
This is our report of the year, and we want to send it to all of the others.

00:03.000 --> 00:05.000
First open the file menu.

00:10.500 --> 00:12.500
Then select export as.
"""
needs_reader = pytest.mark.skipif(
    not weights_fetched("pp-ocr"), reason="needs pp-ocr: stepline weights get pp-ocr"
)


def draw_screen(texts, caption=""):
    """Return a picture of words on white."""
    picture = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(picture)
    for text, place in texts.items():
        draw.text(place, text, "black", font=FONT)
    if caption:
        draw.text((SIZE[0] / 2, 330), caption, "black", font=FONT, anchor="mm")
    return np.asarray(picture)


def film_screens(path, captions=()):
    """Write a video of SCREENS. captions: (start, end, text), typed on them."""
    images = []
    for number in range(SECONDS * RATE):
        now = number / RATE
        texts = [texts for start, texts in SCREENS if start <= now][-1]
        words = [text for start, end, text in captions if start <= now < end]
        images.append(draw_screen(texts, " ".join(words)))
    return write_pictures(path, images, RATE, crf="18")


@pytest.fixture(scope="module")
def screencast(tmp_path_factory):
    folder = tmp_path_factory.mktemp("screencast")
    (folder / "screen.vtt").write_text(SAID)
    return film_screens(folder / "screen.mp4")


def run(video, captions=None, **vision):
    settings = StepsSettings.model_validate({"vision": vision})
    return understand(Request(video, id="screen", captions=captions), settings).record


@needs_reader
def test_steps_of_a_screen_stand_where_it_changes_with_their_label(screencast):
    record = run(screencast, screencast.with_suffix(".vtt"))
    assert [step.text for step in record.steps] == ["open the file menu", "select export as"]
    first, second = record.steps
    assert (first.target.label, second.target.label) == ("File", "Export as")
    assert abs(first.at - 6.0) <= 0.5
    assert abs(second.at - 14.0) <= 0.5
    assert first.target.at == first.at < 6.0
    left, top, right, bottom = first.target.box
    assert left < 30 / SIZE[0] < right
    assert top < 20 / SIZE[1] < bottom
    assert second.seen[0] == 'for: "Export as" is on screen, and the screen changes next'
    assert "Format of the page" in second.seen[1]
    assert record.models["screen"]["changes"] == 2
    assert any(warning.startswith("a screen recording") for warning in record.warnings)
    assert not any("hardly fits" in warning for warning in record.warnings)
    assert from_json(to_json(record)) == record


@needs_reader
def test_off_places_them_as_in_a_film(screencast):
    record = run(screencast, screencast.with_suffix(".vtt"), screen="off")
    assert "screen" not in record.models
    assert len(record.steps) == 2
    assert all(step.target is None for step in record.steps)
    assert record.settings["vision"]["screen"] == "off"


@needs_reader
def test_no_warning_where_no_change_of_the_screen_places_a_step(screencast, monkeypatch):
    monkeypatch.setattr("stepline.pipeline.screen.place_clicks", lambda *_: ())
    record = run(screencast, screencast.with_suffix(".vtt"))
    assert record.models["screen"]["changes"] == 2
    assert [step.basis for step in record.steps] == [None, None]
    assert not any("screen" in warning for warning in record.warnings)


@needs_reader
def test_captions_typed_on_a_silent_screen_become_steps(tmp_path):
    captions = [
        (1.0, 4.0, "This is our report."),
        (4.4, 7.6, "Open the file menu."),
        (11.0, 13.0, "Select export as."),
    ]
    record = run(film_screens(tmp_path / "silent.mp4", captions))
    texts = [step.text.lower() for step in record.steps]
    assert texts == ["open the file menu", "select export as"]
    assert [step.target.label for step in record.steps] == ["File", "Export as"]
    assert record.transcript.recogniser == "captions on the screen"


def test_a_film_has_neither_setting_nor_report_nor_target(tmp_path, captions_file):
    film = draw_video(tmp_path / "film.mp4", steady_light=True)  # as still as a screen
    record = run(film, captions_file)
    assert "screen" not in record.models
    assert "screen" not in record.settings["vision"]
    assert "target" not in json.dumps(json.loads(to_json(record))["steps"])


def test_the_place_of_a_click_is_marked_in_its_picture(screencast):
    target = ScreenTarget(label="File", at=5.7, box=(0.03, 0.03, 0.1, 0.09))
    step = Step(
        id="1", text="open it", spans=(Span(5.0, 7.0),), at=6.0, status="placed", target=target
    )
    record = Record(id="screen", video=Video(id="screen"), steps=(step,))
    picture = np.asarray(
        Image.open(io.BytesIO(extract_keyframes(record, screencast)["1"])).convert("RGB")
    )
    red = (picture[..., 0] > 180) & (picture[..., 1] < 110)
    rows, columns = np.nonzero(red)
    assert columns.max() < 0.2 * picture.shape[1]
    assert rows.max() < 0.2 * picture.shape[0]


def test_the_picture_of_a_click_shows_the_screen_before_it(screencast):
    spans, at = (Span(5.0, 7.5),), 5.7
    step = Step(id="1", text="open it", spans=spans, at=at, status="seen", basis="screen")
    record = Record(id="screen", video=Video(id="screen"), steps=(step,))
    jpeg = extract_keyframes(record, screencast)["1"]
    picture = np.asarray(Image.open(io.BytesIO(jpeg)).convert("L"))
    menu = picture[45 * picture.shape[0] // SIZE[1] :, : 200 * picture.shape[1] // SIZE[0]]
    # two of the three lines of the menu are not there yet
    assert menu[: menu.shape[0] // 6].min() > 200


def test_a_mark_keeps_the_size_of_the_picture():
    buffer = io.BytesIO()
    Image.new("RGB", (200, 100), "white").save(buffer, "JPEG")
    target = ScreenTarget(label="File", at=1.0, box=(0.0, 0.0, 1.0, 1.0))
    assert Image.open(io.BytesIO(draw_target_box(buffer.getvalue(), target))).size == (200, 100)
