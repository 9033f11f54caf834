"""Cost grows no faster than its input, counted in calls and bytes; lab/linearity.py has the
seconds."""

import cProfile
import io
import pstats
import sys
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from stepline.errors import CaptionError, SettingsError
from stepline.grounding import fusion
from stepline.grounding.settings import GroundSettings
from stepline.limits import MAX_CUE_CHARS
from stepline.pipeline import understand
from stepline.pipeline.batch import read_texts
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import StoppedError
from stepline.records import Span, Step
from stepline.speech.captions import read_captions
from stepline.writing.extractive.repeats import merge_by_meaning

TENFOLD = 11.0  # ten times the input, and a tenth for what does not divide evenly


def calls(action):
    """Return how many functions an action calls."""
    profile = cProfile.Profile()
    profile.runcall(action)
    return pstats.Stats(profile).total_calls


def peak(action):
    """Return the most bytes that an action holds."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def clock(second):
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d},000"


def srt(count, text="Now stir it."):
    return "".join(f"{i}\n{clock(3 * i)} --> {clock(3 * i + 2)}\n{text}\n\n" for i in range(count))


def test_captions_are_read_in_linear_calls_and_memory(tmp_path):
    paths = [tmp_path / "one.srt", tmp_path / "ten.srt"]
    for path, count in zip(paths, (100, 1000), strict=True):
        path.write_text(srt(count))
    read_captions(paths[0])
    for cost in (calls, peak):
        one, ten = (cost(lambda path=path: read_captions(path)) for path in paths)
        assert ten < TENFOLD * one


def test_one_endless_cue_is_left_out(tmp_path):
    path = tmp_path / "c.srt"
    path.write_text(srt(2) + f"3\n00:00:09,000 --> 00:00:19,000\n{'slice it. ' * MAX_CUE_CHARS}\n")
    read = read_captions(path)
    assert len(read.transcript.sentences) == 2
    (row,) = read.dropped
    assert f"a cue at most {MAX_CUE_CHARS}: cut it into cues" in row.reason


def test_more_words_than_any_video_says_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "c.srt"
    path.write_text(srt(5))
    monkeypatch.setattr("stepline.speech.captions.MAX_TRANSCRIPT_WORDS", 14)
    with pytest.raises(CaptionError, match="more than 14 words"):
        read_captions(path)


def test_captions_hours_past_the_end_are_not_read_for_steps(small_video, tmp_path, monkeypatch):
    from stepline.pipeline import understand
    from stepline.pipeline.batch import steps
    from stepline.settings import load_settings

    given = []
    write = understand.write_steps

    def noted(transcript, *rest, **more):
        given.append(transcript)
        return write(transcript, *rest, **more)

    monkeypatch.setattr(understand, "write_steps", noted)
    path = tmp_path / "c.srt"
    settings = load_settings(StepsSettings, None, ["vision.backbone=none"])
    path.write_text(srt(1000, "Now stir the soup."))
    record = steps(small_video, captions=path, settings=settings)
    assert len(given[0].sentences) == 26  # those that begin within 16 + 60 seconds
    assert len(record.sentences) == 6
    assert sum(row.what == "sentence" for row in record.dropped) == 994
    assert "994 of 1000 sentences" in record.warnings[-1]


def test_repeats_are_merged_in_linear_calls():
    def repeats(count):
        return [Step(id="0", text="stir it", sources=(10 * i,)) for i in range(count)]

    one, ten = (
        calls(lambda count=count: merge_by_meaning(repeats(count))) for count in (100, 1000)
    )
    assert ten < TENFOLD * one


@pytest.mark.parametrize("count", [50, 6000])
def test_thousands_of_steps_compete_for_four_seconds_without_a_nan(count):
    prior = np.full((count, 4), 0.25)
    prior[0] = (0.7, 0.1, 0.1, 0.1)
    likeness = np.zeros(prior.shape)
    speech = fusion.SpeechPrior(prior, np.full(count, 0.9), np.ones(count, bool))
    found = fusion.fuse(speech, likeness, GroundSettings())
    assert np.isfinite(found.occupancy).all()
    assert np.isfinite(found.score).all()


def test_logarithms_and_products_give_the_same_shares(monkeypatch):
    rng = np.random.default_rng(0)
    held, score = rng.random((40, 9)), rng.random(40)
    products = fusion.probability_unclaimed(held, score)
    monkeypatch.setattr(fusion, "MIN_PRODUCT", 1.0)
    logarithms = fusion.probability_unclaimed(held, score)
    shares = (rows / rows.sum(axis=1, keepdims=True) for rows in (logarithms, products))
    np.testing.assert_allclose(*shares, rtol=1e-9)


def test_more_lines_than_any_recipe_has_are_refused(tmp_path, monkeypatch):
    (tmp_path / "l.txt").write_text("cut\nstir\n")
    monkeypatch.setattr("stepline.pipeline.batch.MAX_TEXTS", 1)
    with pytest.raises(SettingsError, match="2 lines are more than 1"):
        read_texts(tmp_path / "l.txt")
    with pytest.raises(SettingsError, match="larger than 64 MiB"):
        read_texts(tmp_path.joinpath("/dev/zero"))


def test_hours_in_which_no_one_speaks_are_not_looked_at_to_their_end(
    small_video, tmp_path, monkeypatch
):
    """Nothing is sought in the pictures then, and eyes cost more than ears."""

    def look(request, info, settings, options):
        assert options.stop_event.wait(120)
        raise StoppedError

    monkeypatch.setattr(understand, "extract_features", look)
    record = understand.understand(Request(small_video, "small"), StepsSettings()).record
    assert (record.steps, record.transcript.sentences) == ((), ())
    assert record.video.duration == pytest.approx(16, abs=0.5)


def test_each_line_of_a_video_is_embedded_once(small_video, tmp_path, monkeypatch):
    from stepline.pipeline.batch import steps
    from stepline.text.encoder import SentenceEncoder

    encoded = []
    tokenize = SentenceEncoder.tokenize
    monkeypatch.setattr(
        SentenceEncoder,
        "tokenize",
        lambda self, texts: encoded.extend(texts) or tokenize(self, texts),
    )
    path = tmp_path / "c.srt"
    path.write_text(srt(3))
    lines = ("stir the soup", "cut the bread", "stir the soup")
    record = steps(small_video, captions=path, texts=lines)
    assert record.models["vision"] == "conse"  # whose space is that of the lines
    assert [step.text for step in record.steps] == list(lines)
    assert sorted(text for text in encoded if text in lines) == ["cut the bread", "stir the soup"]


def test_equal_texts_have_equal_vectors_in_their_places():
    from stepline.text import embed
    from stepline.text.embedding import embedding_cache

    vectors = embed(["stir it", "cut the bread", "stir it"])
    np.testing.assert_array_equal(vectors, embed(["stir it", "cut the bread"])[[0, 1, 0]])
    with embedding_cache():
        assert embed(["stir it"]) is embed(("stir it",))
    assert embed(["stir it"]) is not embed(["stir it"])


def test_a_page_holds_the_picture_of_many_steps_once():
    from stepline.outputs.page import page
    from stepline.records import Record, Video

    def length(count, picture):
        found = tuple(
            Step(id=str(n), text="stir it", spans=(Span(0.0, 2.0),), at=1.0) for n in range(count)
        )
        record = Record(id="v", video=Video(id="v", duration=9.0), steps=found)
        return len(page(record, keyframes={step.id: picture for step in found}))

    plain = io.BytesIO()
    Image.new("RGB", (8, 8)).save(plain, "JPEG")
    rest = -len(plain.getvalue()) % 3  # so that base64 ends with the picture
    small = plain.getvalue() + bytes(rest)
    large = small + bytes(30_000)
    assert length(100, large) - length(100, small) == length(2, large) - length(2, small) == 40_000


def test_the_page_of_very_many_lines_is_one_that_a_browser_opens(monkeypatch):
    from stepline.outputs.page import page, record_digest
    from stepline.records import Alignment, Record, Rejected, Sentence, Transcript, Video

    module = sys.modules[page.__module__]
    whole, most, count = module.MAX_PAGE_LINES, 100, 400
    monkeypatch.setattr(module, "MAX_PAGE_LINES", most)
    monkeypatch.setattr(module, "MAX_PICTURED_STEPS", 10)
    spoken = tuple(
        Sentence(text=f"now stir it {n} times", span=Span(n, n + 1.0)) for n in range(200)
    )
    common = {"said": Span(1, 2), "status": "placed", "score": 0.5}
    lines = []
    for n in range(count):
        own = {"id": str(n), "text": f"stir it {n} times", "at": n / 9 + 1, "sources": (n % 200,)}
        lines.append(Step(spans=(Span(n / 9, n / 9 + 5),), **own, **common))
    heard = Transcript(sentences=spoken)
    left_out = (Rejected(what="step", text="x", reason="y"),) * count
    record = Record(
        id="v",
        video=Video(id="v", duration=400.0),
        steps=tuple(lines),
        transcript=heard,
        dropped=left_out,
    )
    found = Alignment(
        tuple(step.text for step in lines), np.zeros((count, 2), np.float32), 1.0, "cosine"
    )
    text = page(record, found, media="v.mp4", keyframes={step.id: bytes(9_000) for step in lines})
    assert len(text) * whole / most < 20_000_000
    assert "the page holds no pictures: the steps are 400, more than 10" in text
    assert "the page holds the first 100 of 400 lines; the JSON next to it has all" in text
    assert record_digest(record) in text  # by which a run knows its page
    assert text.count('<li id="step-') == most
    assert "data:image/jpeg" not in text
