"""Shot lists: cuts to the frame, pictures, steps, and the files of the command."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

from stepline.errors import MediaError, StoreError
from stepline.files.storage import to_json
from stepline.records import Record, Span, Step, Video
from stepline.shots.find import find_shots, join_samples, shot_spans
from stepline.shots.shot_list import ShotList, shown_steps
from stepline.shots.write import precise_clock, to_csv, to_html
from stepline.vision import VisionSettings

RATE = 25  # frames/s of the drawn films
CUTS = (2.2, 5.04, 6.8)  # s


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Nine seconds of noise, another noise from each cut on."""
    return draw_cuts(tmp_path_factory.mktemp("film") / "soup_day.mp4", (320, 180))


def draw_cuts(path, size):
    import av

    pictures = []
    for number in range(len(CUTS) + 1):
        noise = np.random.default_rng(number).integers(0, 255, (size[1] // 10, size[0] // 10, 3))
        pictures.append(np.kron(noise, np.ones((10, 10, 1))).astype(np.uint8))
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=RATE, width=size[0], height=size[1])
        stream.pix_fmt = "yuv420p"
        for index in range(9 * RATE):
            shot = sum(index / RATE >= cut - 1e-6 for cut in CUTS)
            frame = av.VideoFrame.from_ndarray(pictures[shot], format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def step(id, start, end, **fields):
    return Step(id=id, text=f"step {id}", spans=(Span(start, end),), status="shown", **fields)


def record_of(path, *steps):
    return Record(id=path.stem, video=Video(id=path.stem, path=str(path)), steps=steps)


def test_cuts_are_found_to_the_frame(film):
    found = find_shots(film, VisionSettings(), 160)
    starts = [shot.start for shot in found.shots]
    assert starts == pytest.approx([0.0, *CUTS], abs=0.5 / RATE)
    assert found.shots[-1].end == pytest.approx(9.0, abs=0.1)
    assert sorted(found.pictures) == [0, 1, 2, 3]


def test_a_picture_has_the_size_that_is_asked_for_and_is_never_larger_than_the_video(film):
    for size, expected in ((160, (160, 90)), (4000, (320, 180))):
        picture = find_shots(film, VisionSettings(), size).pictures[1]
        assert Image.open(io.BytesIO(picture)).size == expected


def test_a_picture_of_an_upright_video_is_whole(tmp_path):
    film = draw_cuts(tmp_path / "upright.mp4", (180, 320))
    picture = find_shots(film, VisionSettings(), 160).pictures[0]
    assert Image.open(io.BytesIO(picture)).size == (90, 160)


def test_cuts_at_samples_that_follow_each_other_are_one():
    joined = join_samples([0.5, 2.5, 2.5 + 1 / 3, 4.5], 1 / 3)
    spans = [(round(span.start, 2), round(span.end, 2)) for span in joined]
    assert spans == [(0.17, 0.5), (2.17, 2.83), (4.17, 4.5)]


def test_shots_cover_the_video_without_a_gap():
    assert shot_spans([1.5, 2.0004], 3.0) == [Span(0.0, 1.5), Span(1.5, 2.0), Span(2.0, 3.0)]
    assert shot_spans([], 3.0) == [Span(0.0, 3.0)]


def test_a_step_is_in_the_shots_in_which_half_a_second_of_it_is_shown(film):
    said = Step(id="d", text="said", status="said", spans=(Span(0, 9),))
    record = record_of(film, step("a", 0.0, 2.5), step("b", 2.3, 2.5), step("c", 1.0, 9.0), said)
    assert [each.number for each in shown_steps(record, Span(0.0, 2.2))] == [1, 3]
    assert [each.number for each in shown_steps(record, Span(2.2, 5.0))] == [2, 3]


def test_the_command_writes_pictures_csv_page_and_json(film, tmp_path, stepline):
    done = stepline("shots", film, "--out", tmp_path, "--size", 160)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Soup day: 4 shots in 0:09\n")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "soup_day.shots",
        *(f"soup_day.shots.{kind}" for kind in ("csv", "html", "json")),
    ]
    shot_list = ShotList.model_validate_json((tmp_path / "soup_day.shots.json").read_text())
    assert all((tmp_path / shot.thumbnail).is_file() for shot in shot_list.shots)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "soup_day.shots.csv").read_text())))
    assert [float(row["start"]) for row in rows] == [shot.start for shot in shot_list.shots]


def test_the_steps_of_a_record_are_in_its_list(film, tmp_path, stepline):
    (tmp_path / "soup_day.json").write_text(to_json(record_of(film, step("a", 2.5, 4.0))))
    for source in (film, tmp_path / "soup_day.json", tmp_path):
        done = stepline("shots", source, "--out", tmp_path, "--json")
        assert done.exit_code == 0, done.stderr
        steps = [shot["steps"] for shot in json.loads(done.stdout)["shots"]]
        assert [len(of_shot) for of_shot in steps] == [0, 1, 0, 0]
        assert steps[1][0]["text"] == "Step a"


def test_another_video_of_the_same_name_has_no_steps_of_it(film, tmp_path, stepline):
    other = draw_cuts(tmp_path / "soup_day.mp4", (180, 320))
    (tmp_path / "soup_day.json").write_text(to_json(record_of(film, step("a", 2.5, 4.0))))
    done = stepline("shots", other, "--out", tmp_path, "--json")
    assert not json.loads(done.stdout)["record"]


def test_pictures_of_an_earlier_list_go(film, tmp_path, stepline):
    stale = tmp_path / "soup_day.shots" / "0009.jpg"
    own = tmp_path / "soup_day.shots" / "notes.txt"
    stale.parent.mkdir()
    for path in (stale, own):
        path.write_bytes(b"")
    assert stepline("shots", film, "--out", tmp_path).exit_code == 0
    assert not stale.exists()
    assert own.exists()


def test_a_folder_has_a_line_a_video_and_one_that_fails_stops_no_other(film, tmp_path, stepline):
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "a.mp4").write_bytes(film.read_bytes())
    (videos / "broken.mp4").write_bytes(b"no video")
    (videos / "c.mp4").write_bytes(film.read_bytes())
    done = stepline("shots", videos, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["A: 4 shots in 0:09", "C: 4 shots in 0:09"]
    assert "broken.mp4" in done.stderr
    assert "2 of 3 videos done, 1 failed" in done.stderr
    done = stepline("shots", videos, "--out", tmp_path / "out", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "c"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none.mp4", None, "none.mp4"),
        ("broken.mp4", b"no video", "broken.mp4"),
        ("list.json", b"[]", "not a Stepline record"),
        ("empty", "folder", "no video and no record in this folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(name, content, reason, tmp_path, stepline):
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    out = tmp_path / "out"
    done = stepline("shots", path, "--out", out)
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert reason in done.stderr
    assert not out.exists()


def test_a_record_without_its_video_says_so(tmp_path, stepline):
    record = Record(id="v", video=Video(id="v", path="gone.mp4"))
    (tmp_path / "v.json").write_text(to_json(record))
    done = stepline("shots", tmp_path / "v.json", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "its video gone.mp4 is not there" in done.stderr


def test_sound_alone_has_no_shots(tmp_path):
    import av

    path = tmp_path / "talk.m4a"
    with av.open(str(path), "w", format="mp4") as out:
        stream = out.add_stream("aac", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 16_000), np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate = 16_000
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with pytest.raises(MediaError, match="has no picture"):
        find_shots(path, VisionSettings(), 320)


def test_nothing_is_half_written(film, tmp_path, stepline, monkeypatch):
    def fail(*_):
        raise StoreError("no room")

    monkeypatch.setattr("stepline.shots.write.to_html", lambda *_: "page")
    monkeypatch.setattr("stepline.files.atomic_files.FileSet.commit", fail)
    done = stepline("shots", film, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_two_records_of_one_id_are_not_written_over_each_other(film, tmp_path, stepline):
    text = to_json(record_of(film))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "soup_day.json").write_text(text)
    done = stepline("shots", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "soup_day: a second record of this id" in done.stderr


def test_texts_cannot_become_markup(film, tmp_path):
    evil = '"><script>alert(1)</script>'
    shot = {"number": 1, "start": 0.0, "end": 9.0, "thumbnail": None}
    steps = [{"number": 1, "id": "a", "text": evil, "verdict": "shown"}]
    tree = {"id": "v", "title": evil, "video": str(film), "duration": 9.0, "width": 9, "height": 16}
    tree |= {"record": True, "shots": [{**shot, "steps": steps}]}
    shot_list = ShotList.model_validate_json(json.dumps(tree))
    assert "<script" not in to_html(shot_list, tmp_path)
    (row,) = csv.DictReader(io.StringIO(to_csv(shot_list)))
    assert row["steps"] == evil


def test_times_of_cuts_have_hundredths():
    assert precise_clock(62.479) == "1:02.48"
    assert precise_clock(59.999) == "1:00.00"
