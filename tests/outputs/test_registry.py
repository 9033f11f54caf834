import json
import re

import av
import docx
import opentimelineio
import pytest
from output_samples import make_step, make_video, picture_of, record_of
from PIL import Image
from small_video import draw_video
from test_chapters import read_chapters
from test_page import read_page
from test_subtitles import read_cues

from stepline.errors import MediaError, SettingsError, StoreError
from stepline.media import cut_clip
from stepline.outputs import OUTPUTS, OutputExtras, missing_outputs, output_path, write_outputs
from stepline.outputs.alignment import read_alignment
from stepline.records import Record, Span, Video
from stepline.storage import from_json

# of the shown steps of `record`
STARTS = [6.0, 10.0, 15.0, 19.0, 23.0, 32.0, 38.0, 46.0, 54.0, 57.5]
CHAPTERS = [0, 10, 23, 38, 54]  # steps within 10 s of the last chapter have joined it
WHOLE = [float(int(start)) for start in STARTS]  # as times for people are written


def read_times(text):
    """The first second of every `0:06-0:10` in a text."""
    return [int(m) * 60.0 + int(s) for m, s in re.findall(r"(\d+):(\d\d)-\d+:\d\d", text)]


def read_media_chapters(path, form=None):
    with av.open(str(path), format=form) as container:
        return [float(chapter["start"] * chapter["time_base"]) for chapter in container.chapters()]


def picture_times(container):
    times = [p.pts * p.time_base for p in container.demux(video=0) if p.pts is not None]
    return sorted(round(float(time), 3) for time in times)


def read_editor_markers(path):
    timeline = opentimelineio.adapters.read_from_file(str(path))
    (track,) = timeline.video_tracks()
    (clip,) = track.find_clips()
    assert clip.media_reference.target_url == "v.mp4"
    return [marker.marked_range.start_time.to_seconds() for marker in clip.markers]


def read_regions(path):
    (task,) = json.loads(path.read_text(encoding="utf-8"))
    results = task["predictions"][0]["result"]
    texts = [row for row in results if row["type"] == "textarea"]
    assert {row["id"] for row in texts} == {row["id"] for row in results}
    rate = task["data"]["frame_rate"]
    return [(row["value"]["ranges"][0]["start"] - 1) / rate for row in texts]


def read_recipe(path):
    tree = json.loads(path.read_text(encoding="utf-8"))
    shown = [step for step in tree["recipeInstructions"] if "video" in step]
    assert (tree["@type"], len(tree["recipeInstructions"])) == ("Recipe", 12)
    for step in shown:
        assert (path.parent / step["image"]).is_file()
        assert step["video"]["url"].startswith("v.mp4#t=")
    return [step["video"]["startOffset"] for step in shown]


def read_markdown(path):
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"!\[.*?\]\((.*?)\)", text):
        with Image.open(path.parent / link) as picture:
            assert picture.size == (320, 180)
    assert len(re.findall(r"^## \d+\. ", text, re.MULTILINE)) == 12
    return read_times(text)


def read_docx(path):
    document = docx.Document(str(path))
    assert len(document.inline_shapes) == 10
    return read_times("\n".join(paragraph.text for paragraph in document.paragraphs))


def text_of(read):
    return lambda path: read(path.read_text(encoding="utf-8"))


def step_starts(text):
    return [step.spans[0].start for step in from_json(text).steps if step.spans]


def cue_starts(text):
    return [start for _, start, _, line in read_cues(text) if not line.startswith("[said")]


def chapter_starts(text):
    return [start for start, _ in read_chapters(text)]


def clip_starts(text):
    return [clip["startOffset"] for clip in json.loads(text)["video"]["hasPart"]]


def row_starts(text):
    rows = read_page(text).all("li", "step")
    return [float(row["data-start"]) for row in rows if "data-start" in row]


# of each step, how many stretches of seconds fit it by .5 or more
SURE_RUNS = [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]

# One row an output that holds the steps of `record`: what reads it back, and the seconds that must
# come out of it.
READERS = {
    "json": (text_of(step_starts), STARTS),
    "vtt": (text_of(cue_starts), STARTS),
    "srt": (text_of(cue_starts), STARTS),
    "chapters": (text_of(chapter_starts), CHAPTERS),
    "jsonld": (text_of(clip_starts), STARTS),
    "html": (text_of(row_starts), STARTS),
    "markdown": (read_markdown, WHOLE),
    "recipe": (read_recipe, STARTS),
    "docx": (read_docx, WHOLE),
    "otio": (read_editor_markers, STARTS),
    "alignment": (lambda path: sorted(map(len, read_alignment(path).spans(0.5))), SURE_RUNS),
    "labelstudio": (read_regions, sorted([*STARTS, 52.0])),  # one has two
}

FROM_VIDEO = ("mp4", "mkv")


@pytest.mark.parametrize("name", READERS)
def test_an_output_reads_back_what_it_wrote(name, record, alignment, keyframes, tmp_path):
    media = tmp_path / "v.mp4"
    written = write_outputs(
        record, tmp_path, alignment=alignment, keyframes=keyframes, media=media, formats=[name]
    )
    path = tmp_path / f"mint-lemonade{OUTPUTS[name].suffix}"
    read, starts = READERS[name]
    assert path in written
    assert sorted(read(path)) == starts
    content = OUTPUTS[name].write(
        record,
        OutputExtras(alignment=alignment, keyframes=keyframes, media="v.mp4", formats=(name,)),
    )
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())


def test_every_output_has_its_reader():
    assert {*READERS, *FROM_VIDEO} == set(OUTPUTS)


@pytest.fixture
def film(tmp_path):
    make_video(tmp_path / "film.mp4", 8, codec="libx264")
    rows = (
        make_step(1, "cut", ((1.0, 3.0),)),
        make_step(2, "fold = press", ((4.0, 6.0),)),
        make_step(3, "glue"),
    )
    return Record(id="v", video=Video(id="v", duration=8.0), steps=rows), tmp_path / "film.mp4"


@pytest.mark.parametrize("form", ["mp4", "mkv"])
def test_chapters_stand_in_a_copy_whose_streams_are_the_videos_own(form, film, tmp_path):
    record, video = film
    (path,) = write_outputs(record, tmp_path / "out", media=video, formats=[form])
    assert read_media_chapters(path) == [0.0, 1.0, 4.0]
    with av.open(str(path)) as copy, av.open(str(video)) as source:
        titles = [chapter["metadata"]["title"] for chapter in copy.chapters()]
        assert titles == ["Intro", "Cut", "Fold = press"]
        assert picture_times(copy) == picture_times(source)
    (again,) = write_outputs(record, tmp_path / "again", media=video, formats=[form])
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("form", ["mp4", "mkv"])
@pytest.mark.parametrize("name", ["late.ts", "late.mp4", "reordered.mkv"])
def test_a_copy_with_chapters_begins_at_0_and_lacks_no_picture(name, form, tmp_path):
    # mkv has no decoding stamp for the first pictures of a video with B-frames
    late = 0 if name == "reordered.mkv" else 600
    with av.open(str(draw_video(tmp_path / "v.mp4", seconds=8))) as source:
        shown = picture_times(source)
    with av.open(str(tmp_path / "v.mp4")) as source, av.open(str(tmp_path / name), "w") as moved:
        streams = [moved.add_stream_from_template(stream) for stream in source.streams]
        streams[1].metadata["language"] = "ger"
        for packet in source.demux():
            if packet.size:
                packet.pts += round(late / packet.time_base)
                packet.dts += round(late / packet.time_base)
                packet.stream = streams[packet.stream_index]
                moved.mux(packet)

    record = record_of(make_step(1, "cut", ((1.0, 3.0),)), duration=8.0)
    (path,) = write_outputs(record, tmp_path / "out", media=tmp_path / name, formats=[form])
    assert read_media_chapters(path) == [0.0, 1.0]
    with av.open(str(path)) as copy:
        assert copy.streams.audio[0].language == "ger"
        assert next(copy.demux(video=0)).is_keyframe
        copy.seek(0)
        assert picture_times(copy) == pytest.approx(shown, abs=0.002)


def test_a_stream_that_a_copy_cannot_hold_is_an_error_after_the_other_outputs(film, tmp_path):
    raw, out = tmp_path / "raw.avi", tmp_path / "out"
    write_outputs(film[0], out, media=film[1], formats=["mp4"])
    make_video(raw, 2, codec="rawvideo")
    with pytest.raises(MediaError, match="cannot be copied into mp4 .*convert the video to mp4"):
        write_outputs(film[0], out, media=raw, formats=["mp4", "vtt", "json"])
    assert {path.name for path in out.glob("v*")} == {"v.vtt", "v.json"}


@pytest.mark.parametrize("form", ["mp4", "mkv"])
def test_the_cure_of_a_recording_whose_clock_begins_again_works(form, film, tmp_path):
    joined, out = tmp_path / "joined.ts", tmp_path / "out"
    with av.open(str(film[1])) as source, av.open(str(tmp_path / "part.ts"), "w") as part:
        target = part.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = target
                part.mux(packet)
    joined.write_bytes((tmp_path / "part.ts").read_bytes() * 2)
    with pytest.raises(MediaError, match="time stamps"):
        write_outputs(film[0], out, media=joined, formats=[form, "json"])
    assert (out / "v.json").is_file()
    cut_clip(joined, Span(start=0.0, end=16.0), tmp_path / "converted.mp4")
    write_outputs(film[0], out, media=tmp_path / "converted.mp4", formats=[form])
    assert read_media_chapters(out / f"v.chapters.{form}") == [0.0, 1.0, 4.0]


@pytest.mark.parametrize("form", FROM_VIDEO)
def test_an_output_made_from_the_video_says_so_without_one(form, record, tmp_path):
    with pytest.raises(SettingsError, match=f"--format {form}: it is made from the video"):
        write_outputs(record, tmp_path, formats=[form])


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "json"])
def test_an_output_that_stands_is_known_and_one_of_another_record_is_not(
    name, film, record, alignment, tmp_path
):
    if name in FROM_VIDEO:
        record, video = film
    else:
        video = tmp_path / "v.mp4"
    extras = {"alignment": alignment, "keyframes": {"1": picture_of(1)}}
    write_outputs(record, tmp_path, media=video, formats=[name, "json"], **extras)
    assert missing_outputs(record, tmp_path, [name]) == []
    other = record.model_copy(
        update={"steps": (record.steps[0], make_step(2, "bend", ((20.0, 40.0),)))}
    )
    assert missing_outputs(other, tmp_path, [name]) == [name]
    place = output_path(record, tmp_path, name)
    for path in (place, *place.rglob("*")):
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"x")
    assert missing_outputs(record, tmp_path, [name]) == [name] * (name != "html")


@pytest.mark.parametrize(
    ("name", "cure"),
    {
        "pdf": "print the page",
        "edl": "otioconvert",
        "gif": "--clips",
        "ffmetadata": "mp4 or mkv",
    }.items(),
)
def test_an_output_of_an_earlier_release_is_refused_with_its_cure(
    name, cure, record, stepline, tmp_path
):
    with pytest.raises(SettingsError, match=f"'{name}': no longer an output; .*{cure}"):
        write_outputs(record, tmp_path, formats=[name])
    result = stepline("steps", tmp_path / "v.mp4", "--format", name, "--out", tmp_path)
    assert result.exit_code == 1
    assert cure in result.stderr


def test_an_edl_is_made_of_the_timeline_by_the_adapter_that_the_error_names(record, tmp_path):
    (path,) = write_outputs(record, tmp_path, media=tmp_path / "v.mp4", formats=["otio"])
    timeline = opentimelineio.adapters.read_from_file(str(path))
    text = opentimelineio.adapters.write_to_string(timeline, "cmx_3600", rate=25)
    assert text.count("* LOC: ") == len(STARTS)


def test_a_timeline_is_in_the_time_code_of_the_media(record, tmp_path):
    media = tmp_path / "v.mov"
    with av.open(str(media), "w") as out:
        stream = out.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.metadata["timecode"] = "01:00:00:00"
        out.mux([*stream.encode(av.VideoFrame(64, 48, "yuv420p")), *stream.encode(None)])
    (path,) = write_outputs(record, tmp_path, media=media, formats=["otio"])
    timeline = opentimelineio.adapters.read_from_file(str(path))
    (clip,) = timeline.find_clips()
    assert clip.available_range().start_time.to_seconds() == 3600.0
    assert clip.source_range == clip.available_range()
    assert (clip.media_reference.target_url, clip.media_reference.name) == ("v.mov", "v.mov")
    named = OUTPUTS["otio"].write(record, OutputExtras(media="../v 1#50%.mov"))
    assert '"target_url": "../v%201%2350%25.mov",' in named
    starts = [marker.marked_range.start_time.to_seconds() for marker in clip.markers]
    assert sorted(starts) == [3600.0 + start for start in STARTS]
    text = opentimelineio.adapters.write_to_string(timeline, "cmx_3600", rate=25)
    assert "001  v        V     C        01:00:00:00" in text  # the file is its reel


def test_markup_in_a_step_is_text_in_markdown(hostile, tmp_path):
    (path,) = write_outputs(hostile, tmp_path, formats=["markdown"])
    assert r"\<script\>alert(1)\</script\>" in path.read_text(encoding="utf-8")


def test_json_loses_nothing(record, tmp_path):
    (path,) = write_outputs(record, tmp_path, formats=["json"])
    assert from_json(path.read_bytes()) == record


def test_the_json_comes_last_and_nothing_else_is_left_in_the_folder(record, tmp_path):
    paths = write_outputs(record, tmp_path / "new" / "out")
    assert [
        path.name.removeprefix("mint-lemonade") for path in paths
    ] == ".vtt .srt .chapters.txt .howto.jsonld .html .json".split()
    assert sorted(paths) == sorted((tmp_path / "new" / "out").iterdir())


def test_the_page_links_the_video_from_where_it_stands(record, tmp_path):
    video = tmp_path / "my videos" / "a#1 100%.mp4"
    (path,) = write_outputs(record, tmp_path / "out", media=video, formats=["html"])
    assert 'src="../my%20videos/a%231%20100%25.mp4"' in path.read_text(encoding="utf-8")


def test_chapters_that_cannot_be_are_left_out_and_older_ones_removed(record, tmp_path):
    write_outputs(record, tmp_path, formats=["chapters"])
    short = record_of(make_step(1, "cut", ((1.0, 2.0),)), id=record.id, duration=20.0)
    assert write_outputs(short, tmp_path, formats=["chapters"]) == []
    assert list(tmp_path.iterdir()) == []


def test_an_id_cannot_leave_the_folder(tmp_path):
    record = Record(id="../../up", video=Video(id="v"))
    (path,) = write_outputs(record, tmp_path / "a" / "b", formats=["vtt"])
    assert path.parent == tmp_path / "a" / "b"
    assert path == output_path(record, tmp_path / "a" / "b", "vtt")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_an_unknown_format_is_named_with_the_known_ones(record, tmp_path):
    with pytest.raises(SettingsError, match="'docs'; known: vtt, srt, chapters, jsonld, "):
        write_outputs(record, tmp_path, formats=["docs"])


def test_a_folder_that_is_a_file_is_an_error_in_one_line(record, tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        write_outputs(record, tmp_path / "out")


def test_the_same_record_gives_the_same_bytes(record, alignment, keyframes, tmp_path):
    extras = {"alignment": alignment, "keyframes": keyframes, "media": tmp_path / "v.mp4"}
    one, two = (
        write_outputs(record, tmp_path / name, formats=list(READERS), **extras) for name in "ab"
    )
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
