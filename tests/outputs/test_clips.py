import pytest
from output_samples import make_step, make_video

from stepline import media
from stepline.errors import MediaError
from stepline.outputs import write_clips
from stepline.outputs.clips import step_file_name
from stepline.records import Record, Span, Video


def steps(*texts):
    rows = tuple(
        make_step(i, text, ((i * 1.0, i + 2.0),), status="placed")
        for i, text in enumerate(texts, start=1)
    )
    waiting = make_step("said", "wait", said=(0.0, 1.0), status="said_only")
    return Record(id="a/b", video=Video(id="v"), steps=(*rows, waiting))


def test_every_shown_step_is_cut_into_a_file_named_by_its_place_and_words(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        media, "cut_clip", lambda path, span, out, _: (seen.append(span), out.write_bytes(b"clip"))
    )
    clips = write_clips(steps("fold the <strip>!", "/../", "剪 纸"), tmp_path / "v.mp4", tmp_path)
    assert [clip.name for clip in clips] == ["01-fold-the-strip.mp4", "02-step.mp4", "03-剪-纸.mp4"]
    assert seen == [Span(1.0, 3.0), Span(2.0, 4.0), Span(3.0, 5.0)]
    assert {clip.parent.parent for clip in clips} == {tmp_path}
    assert sorted(clips) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


CUT = "pour-in-the-eggs-when-the-butter"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # the 40th character is within "minute", which is left out
        ("Pour in the eggs when the butter melts minute by minute", f"{CUT}-melts"),
        ("Pour in the eggs when the butter melts it up", f"{CUT}-melts"),
        ("Pour in the eggs when the butter has set up", f"{CUT}-has-set"),
        ("x" * 50, "x" * 40),
    ],
)
def test_a_long_name_is_cut_between_words(text, name):
    assert step_file_name(4, make_step(1, text, ()), ".mp4") == f"04-{name}.mp4"


def test_a_cut_that_fails_leaves_no_half_clip(tmp_path, monkeypatch):
    def broken(path, span, out, settings):
        out.write_bytes(b"half")
        raise MediaError("cannot be cut")

    monkeypatch.setattr(media, "cut_clip", broken)
    with pytest.raises(MediaError):
        write_clips(steps("cut"), tmp_path / "v.mp4", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_real_video_is_cut_to_about_the_span(tmp_path):
    video = tmp_path / "film.mp4"
    make_video(video, 8, codec="libx264")
    record = Record(id="v", video=Video(id="v"), steps=(make_step(1, "cut", ((3.0, 5.0),)),))
    (clip,) = write_clips(record, video, tmp_path)
    assert clip == tmp_path / "v.clips" / "01-cut.mp4"
    assert media.probe(clip).duration == pytest.approx(2.0, abs=0.6)
