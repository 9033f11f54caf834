import json

import pytest
from output_samples import make_step
from test_chapters import read_chapters
from test_page import read_page
from test_subtitles import read_cues

from stepline.errors import SettingsError, StoreError
from stepline.outputs import OUTPUTS, OutputExtras, output_path, write_outputs
from stepline.records import Record, Video
from stepline.storage import from_json

# One row an output: what reads it back, and the start of each shown step of `record` as it must come out of it.
READERS = {
    "json": lambda text: [step.spans[0].start for step in from_json(text).steps if step.spans],
    "vtt": lambda text: [start for _, start, _, line in read_cues(text) if not line.startswith("[said")],
    "srt": lambda text: [start for _, start, _, line in read_cues(text) if not line.startswith("[said")],
    "chapters": lambda text: [start for start, _ in read_chapters(text)],
    "jsonld": lambda text: [clip["startOffset"] for clip in json.loads(text)["video"]["hasPart"]],
    "html": lambda text: [float(s["data-start"]) for s in read_page(text).all("li", "step") if "data-start" in s],
}
STARTS = [6.0, 10.0, 15.0, 19.0, 23.0, 32.0, 38.0, 46.0, 54.0, 57.5]
CHAPTERS = [0, 10, 23, 38, 54]  # steps within 10 s of the last chapter have joined it


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_reads_back_what_it_wrote(name, record, alignment, keyframes, tmp_path):
    (path,) = write_outputs(record, tmp_path, alignment=alignment, keyframes=keyframes, formats=[name])
    text = path.read_text(encoding="utf-8")
    assert path.name == "mint-lemonade" + OUTPUTS[name][0]
    assert sorted(READERS[name](text)) == (CHAPTERS if name == "chapters" else STARTS)
    assert text == OUTPUTS[name][1](record, OutputExtras(alignment=alignment, keyframes=keyframes))


def test_json_loses_nothing(record, tmp_path):
    (path,) = write_outputs(record, tmp_path, formats=["json"])
    assert from_json(path.read_bytes()) == record


def test_the_json_comes_last_and_nothing_else_is_left_in_the_folder(record, tmp_path):
    paths = write_outputs(record, tmp_path / "new" / "out")
    assert [path.name.removeprefix("mint-lemonade") for path in paths] == [
        ".vtt",
        ".srt",
        ".chapters.txt",
        ".howto.jsonld",
        ".html",
        ".json",
    ]
    assert sorted(paths) == sorted((tmp_path / "new" / "out").iterdir())


def test_the_page_links_the_video_from_where_it_stands(record, tmp_path):
    video = tmp_path / "my videos" / "a#1 100%.mp4"
    (path,) = write_outputs(record, tmp_path / "out", media=video, formats=["html"])
    assert 'src="../my%20videos/a%231%20100%25.mp4"' in path.read_text(encoding="utf-8")


def test_chapters_that_cannot_be_are_left_out_and_older_ones_removed(record, tmp_path):
    write_outputs(record, tmp_path, formats=["chapters"])
    short = Record(id=record.id, video=Video(id="v", duration=20.0), steps=(make_step(1, "cut", ((1.0, 2.0),)),))
    assert write_outputs(short, tmp_path, formats=["chapters"]) == []
    assert list(tmp_path.iterdir()) == []


def test_an_id_cannot_leave_the_folder(tmp_path):
    record = Record(id="../../up", video=Video(id="v"))
    (path,) = write_outputs(record, tmp_path / "a" / "b", formats=["vtt"])
    assert path.parent == tmp_path / "a" / "b"
    assert path == output_path(record, tmp_path / "a" / "b", "vtt")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_an_unknown_format_is_named_with_the_known_ones(record, tmp_path):
    with pytest.raises(SettingsError, match="'pdf'; known: vtt, srt, chapters, jsonld, html, json"):
        write_outputs(record, tmp_path, formats=["pdf"])


def test_a_folder_that_is_a_file_is_an_error_in_one_line(record, tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        write_outputs(record, tmp_path / "out")


def test_the_same_record_gives_the_same_bytes(record, alignment, keyframes, tmp_path):
    one, two = (
        write_outputs(record, tmp_path / name, alignment=alignment, keyframes=keyframes, media=tmp_path / "v.mp4")
        for name in ("a", "b")
    )
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
