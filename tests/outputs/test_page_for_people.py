"""The page as people read it: nothing of the machine's in the open, portrait videos whole, a
timeline that a phone shows to scroll."""

import io
from importlib.resources import files

import pytest
from output_samples import make_alignment, make_step, picture_of, sample_record
from PIL import Image

from stepline.outputs import page, write_outputs
from stepline.pipeline.output_files import extract_keyframes
from stepline.records import Record, Rejected, Span, Step, Video

DEMO = files("stepline") / "cli" / "demo" / "demo.mp4"
MAX_PAGE_BYTES = 1_000_000  # of a page of 30 steps, without its video


def upright_picture():
    stream = io.BytesIO()
    Image.effect_noise((180, 320), 90).convert("RGB").save(stream, "JPEG", quality=80)
    return stream.getvalue()


def record_of(count):
    """A record of `count` shown steps, each of 2 s."""
    steps = []
    for number in range(1, count + 1):
        start = 2.0 * number
        steps.append(make_step(number, f"slice lemon {number}", ((start, start + 2.0),)))
    video = Video(id="many", duration=2.0 * count + 4.0, title="Many lemons")
    settings = {"asr": {f"setting_{number}": number for number in range(169)}}
    return Record(id="many", video=video, steps=tuple(steps), settings=settings)


def pictures(record, picture):
    return {step.id: picture(number) for number, step in enumerate(record.steps)}


def test_settings_are_in_the_json_alone():
    shown = page(record_of(3))
    assert "setting_12" not in shown
    assert "Every setting is in the JSON of this record." in shown


def test_the_fit_is_scaled_in_words_and_not_in_numbers():
    record = sample_record()
    shown = page(record, make_alignment(record))
    scale = shown.partition('<p class="scale">')[2].partition("</p>")[0]
    assert "fits less" in scale
    assert "0." not in scale


def test_evidence_is_given_in_plain_words():
    step = Step(
        id="a",
        text="cut",
        spans=(Span(0.0, 2.0),),
        alternatives=("slice it",),
        seen=("for: a new shot begins with its sentence", "against: a face looks out"),
    )
    shown = page(Record(id="v", video=Video(id="v"), steps=(step,)))
    assert "Speaks for it:</b> <bdi>a new shot begins" in shown
    assert "Speaks against it:</b> <bdi>a face looks out" in shown
    assert "Slice it" in shown


def test_a_page_of_thirty_steps_is_small():
    record = record_of(30)
    frames = extract_keyframes(record, DEMO)
    assert len(frames) == 30
    assert len(page(record, keyframes=frames).encode()) <= MAX_PAGE_BYTES


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("count", [0, 1, 10, 300])
def test_pages_of_any_length_fit_each_screen(browser, tmp_path, count, dark):
    record = record_of(count)
    path = tmp_path / "many.html"
    path.write_text(page(record, keyframes=pictures(record, picture_of) if count < 300 else None))
    shown = browser.open(path, width=390, dark=dark)
    for width in (390, 768, 1280, 1920):
        shown.resize(width)
        assert shown.run("document.documentElement.scrollWidth") <= width
        assert shown.unreadable() == []
    # A picture of the whole page has all rows, but of very many.
    late = shown.run(
        "$$('.step').filter((row) => getComputedStyle(row).contentVisibility !== 'visible').length"
    )
    assert late == (count if count >= 100 else 0)


@pytest.mark.browser
def test_axe_finds_nothing_serious_on_a_page_of_many_steps(browser, tmp_path):
    pytest.importorskip("axe_core_python")
    path = tmp_path / "many.html"
    record = record_of(40)
    dropped = (Rejected(what="sentence", text="Thanks.", reason="a stock phrase"),)
    path.write_text(page(record.model_copy(update={"dropped": dropped})))
    shown = browser.open(path, width=390)
    assert shown.violations() == []


@pytest.mark.browser
def test_a_crowded_timeline_is_seen_to_scroll_on_a_phone(browser, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(page(record_of(40)))
    phone = browser.open(path, width=390)
    box = "$('.scroll')"
    assert phone.run(f"{box}.scrollWidth > {box}.clientWidth")
    assert phone.run("$('.swipe').checkVisibility()")
    assert phone.run(f"getComputedStyle({box}).backgroundImage").count("gradient") == 4
    phone.run(f"{box}.focus()")
    assert phone.run(f"document.activeElement === {box}")  # arrows scroll it
    wide = browser.open(path, width=1280)
    assert not wide.run("$('.swipe').checkVisibility()")


@pytest.mark.browser
def test_an_upright_video_has_whole_pictures_and_is_next_to_the_steps(browser, tmp_path):
    record = record_of(4)
    frames = pictures(record, lambda _: upright_picture())
    assert len(set(frames.values())) == len(frames)
    (path,) = write_outputs(
        record, tmp_path / "out", keyframes=frames, media=tmp_path / "none.mp4", formats=["html"]
    )
    wide = browser.open(path)
    assert wide.run("document.body.className") == "portrait"
    player = wide.run("$('video').getBoundingClientRect().toJSON()")
    steps = wide.run("$('.steps').getBoundingClientRect().toJSON()")
    assert steps["left"] >= player["right"]
    assert steps["width"] > player["width"]
    assert player["width"] / player["height"] == pytest.approx(9 / 16, abs=0.02)
    # nothing of the picture is cut off
    thumb = wide.run("$('.thumb').getBoundingClientRect().toJSON()")
    assert thumb["width"] / thumb["height"] == pytest.approx(9 / 16, abs=0.02)
    pictures_are = "getComputedStyle($('.thumb img')).objectFit"
    assert wide.run(pictures_are) == "contain"
    for width in (390, 768):
        narrow = browser.open(path, width=width)
        assert narrow.run("document.documentElement.scrollWidth") <= width
