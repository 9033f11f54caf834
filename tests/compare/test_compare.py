"""Many videos of one task as one procedure: the same recipe in other words and another order."""

import json
from contextlib import closing

import numpy as np
import pytest

from stepline.compare import TaskComparison, compare
from stepline.compare.align import StepIndex, sort_groups
from stepline.compare.materials import compare_materials
from stepline.compare.read import read_folder
from stepline.compare.settings import CompareSettings
from stepline.compare.write import to_json, to_lines
from stepline.errors import SettingsError, StoreError
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import ChangeEdit, Correction
from stepline.numeric import match_in_order
from stepline.records import Amount, Material, Record, Span, Step, Video
from stepline.storage import write_record

PANCAKES = {
    "anna": """crack two eggs into a bowl, whisk the eggs with 1 cup of milk,
        sift 2 cups of flour into the bowl, melt butter in a hot pan, pour the batter into the pan,
        flip the pancake over""",
    "ben": """break the eggs into a mixing bowl, pour in milk and beat with the eggs,
        add 3 cups of flour to the bowl, heat butter in the frying pan,
        ladle batter into the frying pan, turn the pancake to the other side,
        serve with maple syrup""",
    # the butter first
    "cleo": """melt some butter in a pan, crack three eggs into a bowl,
        sift 4 cups of flour into the bowl, pour batter into the hot pan, flip the pancake over""",
}
PANCAKES = {id: tuple(map(str.strip, text.split(","))) for id, text in PANCAKES.items()}
TYRE = ("loosen the wheel nuts with a wrench", "lift the car with a jack")
TYRE += ("take the flat tyre off", "put the spare wheel on")


def make_record(id, texts, materials=()):
    steps = []
    for number, text in enumerate(texts):
        start = 10.0 * number
        span = Span(start, start + 4.0 + len(id))
        steps.append(Step(id=f"a{number}", text=text, spans=(span,), status="placed"))
    video = Video(id=id, title=f"Pancakes of {id}", duration=100.0)
    return Record(id=id, video=video, steps=tuple(steps), materials=tuple(materials))


def milk(cups, at):
    amount = Amount(low=cups, high=cups, unit="cup", text=f"{cups} cups")
    return Material(name="milk", amounts=(amount,), at=at)


@pytest.fixture(scope="module")
def records():
    made = []
    for number, (id, texts) in enumerate(PANCAKES.items()):
        made.append(make_record(id, texts, [milk(1.0 + number, 5.0)]))
    made.append(make_record("tyre", TYRE))
    return made


@pytest.fixture(scope="module")
def comparison(records):
    return compare(records)


@pytest.fixture
def folder(records, tmp_path):
    folder = write_folder(tmp_path / "records", records)
    (folder / "notes.json").write_text("[]")
    return folder


def step_with(comparison, text):
    for step in comparison.steps:
        if text in [occurrence.text for occurrence in step.occurrences]:
            return step
    raise AssertionError(text)


@pytest.mark.parametrize("texts", [(0, 0, 1), (3, 3, 0), (4, 4, 3), (5, 5, 4)])
def test_one_act_in_three_wordings_is_one_step(comparison, texts):
    wordings = [PANCAKES[id][row] for id, row in zip(PANCAKES, texts, strict=True)]
    (step, *others) = (step_with(comparison, text) for text in wordings)
    assert {other.id for other in others} == {step.id}
    assert (step.videos, step.share, step.common) == (3, 1.0, True)


def test_every_step_of_every_video_is_in_the_procedure_once_and_common_or_not(comparison):
    places = [(o.video, o.step) for step in comparison.steps for o in step.occurrences]
    assert len(places) == len(set(places)) == sum(map(len, PANCAKES.values()))
    step = step_with(comparison, "serve with maple syrup")
    assert (step.videos, step.common) == (1, False)


def test_a_video_of_something_else_is_left_out_with_its_reason(comparison):
    assert [video.id for video in comparison.left_out] == ["tyre"]
    assert "something else" in comparison.left_out[0].reason
    assert {video.id for video in comparison.videos} == set(PANCAKES)


def test_an_occurrence_has_its_video_and_seconds(comparison):
    step = step_with(comparison, "turn the pancake to the other side")
    occurrence = next(o for o in step.occurrences if o.video == "ben")
    assert (occurrence.start, occurrence.end) == (50.0, 57.0)
    assert (step.seconds.low, step.seconds.median, step.seconds.high) == (7.0, 8.0, 8.0)


def test_the_usual_order_comes_with_how_many_keep_it(comparison):
    eggs = step_with(comparison, "crack two eggs into a bowl").id
    butter = step_with(comparison, "melt butter in a hot pan").id
    order = next(o for o in comparison.orders if {o.first, o.then} == {eggs, butter})
    assert (order.first, order.videos, order.of) == (eggs, 2, 3)
    ids = [step.id for step in comparison.steps]
    assert ids.index(eggs) < ids.index(butter)


def test_amounts_have_their_spread(comparison):
    flour = step_with(comparison, "sift 2 cups of flour into the bowl")
    spread = flour.amounts[0]
    assert spread.thing == "flour"
    assert (spread.low, spread.median, spread.high) == (2.0, 3.0, 4.0)
    assert set(spread.videos) == set(PANCAKES)
    needed = comparison.materials[0]
    assert needed.name == "milk"
    assert (needed.amounts[0].low, needed.amounts[0].median, needed.amounts[0].high) == (1, 2, 3)


def test_names_of_one_thing_are_one_material_by_the_name_of_most_videos():
    vectors = {"egg": (1.0, 0.0), "eggs": (0.9, 0.4359), "salt": (0.0, 1.0)}
    videos = [
        (video, [Material(name=name, at=second) for second, name in enumerate(names)])
        for video, names in {"a": ["eggs", "salt"], "b": ["egg"], "c": ["egg"]}.items()
    ]
    compared = compare_materials(videos, lambda names: np.array([vectors[name] for name in names]))
    found = {material.name: [m.video for m in material.videos] for material in compared}
    assert found == {"egg": ["a", "b", "c"], "salt": ["a"]}


def test_the_arrows_that_leave_a_step_sum_to_one(comparison):
    totals = {}
    for arrow in comparison.transitions:
        totals[arrow.source] = totals.get(arrow.source, 0.0) + arrow.probability
    assert "start" in totals
    assert "end" not in totals
    assert list(totals.values()) == pytest.approx([1.0] * len(totals))
    begin = [arrow for arrow in comparison.transitions if arrow.source == "start"]
    assert sorted(arrow.count for arrow in begin) == [1, 2]


def test_the_json_is_read_as_what_it_was(comparison):
    text = to_json(comparison)
    assert TaskComparison.model_validate_json(text) == comparison
    assert json.loads(text)["version"] == 1


def test_a_warning_is_not_a_step_of_the_same_words():
    texts = ("stir the soup", "boil the water")
    plain = make_record("a", texts)
    warned = make_record("b", texts)
    avoid = warned.steps[0].model_copy(update={"kind": "avoid"})
    warned = warned.model_copy(update={"steps": (avoid, warned.steps[1])})
    result = compare([plain, warned, make_record("c", texts)])
    counts = {(step.text, step.kind): step.videos for step in result.steps}
    assert counts["stir the soup", "do"] == 2
    assert counts["stir the soup", "avoid"] == 1


def test_no_two_videos_of_one_task_are_an_error_with_its_cure(records):
    with pytest.raises(StoreError, match="show the same task"):
        compare([records[0], records[-1]])
    with pytest.raises(StoreError, match="show the same task"):
        compare([make_record("a", ())])


def test_a_second_record_of_an_id_is_left_out(records):
    result = compare([*records[:3], records[0]])
    assert [video.reason for video in result.left_out] == ["another record has the same id"]


def test_no_common_step_is_an_error_with_its_cure(comparison, records):
    steps = tuple(step.model_copy(update={"common": False}) for step in comparison.steps)
    with pytest.raises(SettingsError, match="compare.common_share"):
        to_lines(comparison.model_copy(update={"steps": steps}))
    # a share of one keeps what all do
    strict = compare(records, CompareSettings(common_share=1.0))
    assert {step.videos for step in strict.common_steps} == {3}


def test_matches_in_order_have_the_greatest_sum(records):
    # step 0 likes group 1 best, but then step 1 would have none before it
    cosines = np.array([[0.7, 0.8], [0.1, 0.9]], dtype=np.float32)
    assert match_in_order(cosines, 0.5) == {0: 0, 1: 1}
    assert match_in_order(cosines, 0.85) == {1: 1}


def test_groups_come_in_the_order_of_most_videos():
    stir = [StepIndex(0, 1), StepIndex(1, 0), StepIndex(2, 0)]
    cut = [StepIndex(0, 0), StepIndex(1, 5), StepIndex(2, 5)]
    assert sort_groups([cut, stir], [9, 9, 9]) == [stir, cut]


def test_the_command_writes_two_files_and_lines_that_ground_takes(folder, tmp_path, stepline):
    from stepline.pipeline.batch import read_texts

    out = tmp_path / "compared"
    lines = tmp_path / "lines.txt"
    done = stepline("compare", folder, "--out", out, "--as-texts", lines)
    assert done.exit_code == 0, done.stderr
    assert "left out tyre" in done.stderr
    assert "3 of 3" in done.stdout
    read = TaskComparison.model_validate_json((out / "comparison.json").read_text())
    least = min(step.videos for step in read.common_steps)
    assert f" steps that at least {least} of 3 videos share, " in done.stdout.splitlines()[0]
    assert sorted(path.name for path in out.iterdir()) == [*("comparison.html", "comparison.json")]
    assert read_texts(lines) == tuple(step.text for step in read.common_steps)


def test_the_command_prints_json_and_takes_settings(folder, tmp_path, stepline):
    options = ("--json", "--set", "compare.video_likeness=0")
    done = stepline("compare", folder, "--out", tmp_path / "compared", *options)
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)["videos"]) == 4


def test_records_are_read_as_people_corrected_them(folder):
    text = "flip the pancake with a spatula"
    edit = ChangeEdit(do="change", step="a5", text=text)
    id = video_id("anna.json")
    correction = Correction(id="c1", video=id, by="Ann", when=0.0, base=0, edits=(edit,))
    with closing(CorrectedLibrary(folder)) as library:
        library.correct(id, correction)
    texts = [step.text for record in read_folder(folder)[0] for step in record.steps]
    assert text in texts


def test_a_folder_without_records_is_one_line(tmp_path, stepline):
    for path in (tmp_path, tmp_path / "none"):
        done = stepline("compare", path, "--out", tmp_path / "compared")
        assert done.exit_code == 1
        assert "stepline steps" in done.stderr


def test_a_likeness_of_one_joins_only_equal_words(records):
    likeness = dict.fromkeys(("step_likeness", "moved_likeness", "repeated_likeness"), 1.0)
    settings = CompareSettings(**likeness, rounds=1)
    apart = compare(records[:3], settings)
    assert len(apart.steps) >= sum(map(len, PANCAKES.values())) - 2


def write_folder(folder, records):
    folder.mkdir()
    for record in records:
        write_record(record, folder / f"{record.id}.json")
    return folder


CUT = b'{\n  "version": 1,\n  "id": "zoe",\n  "video": {'
DAMAGE = {
    "cut off": CUT,
    "empty": b"",
    "zeros": bytes(2000),
    "not UTF-8": CUT + b"\xff\xfe",
    "another version": b'{"version": 9, "id": "zoe", "video": {"id": "zoe"}, "steps": []}',
    "an invalid step": b'{"version": 1, "id": "zoe", "video": {"id": "zoe"}, "steps": [{"id": "1"}]}',
    "a key that lost a letter": b'{"version": 1, "id": "zoe", "vide": {"id": "zoe"}, "steps": []}',
}


def test_damaged_records_are_named_in_warnings_the_result_and_the_exit_code(
    folder, tmp_path, stepline
):
    names = [f"zoe {kind}" for kind in sorted(DAMAGE)]
    for name in names:
        (folder / f"{name}.json").write_bytes(DAMAGE[name.removeprefix("zoe ")])
    (folder / "notes.json").write_text('{"id": "no", "steps": "record"}')
    result = stepline("compare", folder, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 1
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == len(names)
    left_out = json.loads(result.stdout)["left_out"]
    assert [video["id"] for video in left_out] == [*names, "tyre"]
    page = (tmp_path / "out" / "comparison.html").read_text()
    for name, warning, video in zip(names, warnings, left_out, strict=False):
        assert f"{name}.json: " in warning
        assert "put a copy back" in warning
        assert f"{name}.json: not " in video["reason"]
        assert f"{name}.json" in page

    # the search index says it each time, not only when it is made
    for _ in range(2):
        result = stepline("search", folder, "whisk the eggs")
        assert result.exit_code == 1
        assert "whisk the eggs" in result.stdout.lower()
        for name in names:
            assert f"{name}.json: not " in result.stderr
    for name in names:
        (folder / f"{name}.json").unlink()
    assert stepline("search", folder, "whisk the eggs").exit_code == 0


def test_a_second_task_in_the_folder_is_named_with_the_cure(records):
    more = [make_record("wheel", (*TYRE, "lower the car again")), make_record("song", ("sing",))]
    comparison = compare([*records, *more])
    assert comparison.title == "Pancakes of anna"
    reasons = {video.id: video.reason for video in comparison.left_out}
    assert reasons.keys() == {"tyre", "wheel", "song"}
    for id in ("tyre", "wheel"):
        assert "of another task, “Pancakes of " in reasons[id]
        assert "as 2 videos here are" in reasons[id]
        assert reasons[id].endswith("; compare these in a folder of their own")
    assert "of something else" in reasons["song"]


@pytest.mark.parametrize("name", ["comparison.json", "comparison.html"])
def test_a_comparison_that_someone_else_wrote_is_not_written_over(folder, tmp_path, stepline, name):
    out = tmp_path / "out"
    assert stepline("compare", folder, "--out", out).exit_code == 0
    assert stepline("compare", folder, "--out", out).exit_code == 0  # its own files
    (out / name).write_text("[1]")
    result = stepline("compare", folder, "--out", out)
    assert result.exit_code == 1
    assert f"{name}: not a comparison that Stepline wrote" in result.stderr
    assert (out / name).read_text() == "[1]"


def test_a_record_that_is_called_comparison_is_not_written_over(folder, stepline):
    (folder / "anna.json").rename(folder / "comparison.json")
    before = (folder / "comparison.json").read_bytes()
    assert stepline("compare", folder, "--out", folder).exit_code == 1
    assert (folder / "comparison.json").read_bytes() == before


def test_as_texts_writes_over_no_file_that_the_run_reads(records, folder, tmp_path, stepline):
    video, settings = tmp_path / "elsewhere.mp4", tmp_path / "s.toml"
    video.write_bytes(b"a video")
    settings.write_text("compare.rounds = 1")
    anna = records[0].video.model_copy(update={"path": str(video)})
    write_record(records[0].model_copy(update={"video": anna}), folder / "anna.json")
    (folder / "ben.srt").write_text("captions")
    (tmp_path / "link.txt").symlink_to(folder / "ben.json")
    for path in (folder / "anna.json", folder / "ben.srt", video, settings, tmp_path / "link.txt"):
        before = path.read_bytes()
        more = ["--out", tmp_path / "out", "--as-texts", path, "--settings", settings]
        result = stepline("compare", folder, *more)
        assert result.exit_code == 1, path
        assert "a file of the compared videos" in result.stderr
        assert path.read_bytes() == before
    # an earlier list may be written again
    for _ in range(2):
        more = ["--out", tmp_path / "out", "--as-texts", folder / "lines.txt"]
        assert stepline("compare", folder, *more).exit_code == 0


def test_a_path_that_no_disk_takes_ends_no_comparison(records, folder, tmp_path, stepline):
    long = records[0].video.model_copy(update={"path": "/" + "a" * 5000})
    write_record(records[0].model_copy(update={"video": long}), folder / "anna.json")
    for number, path in enumerate(("/" + "a" * 5000, "a\x00b")):
        video = records[1].video.model_copy(update={"path": path})
        write_record(records[1].model_copy(update={"video": video}), folder / "ben.json")
        out = tmp_path / str(number)
        result = stepline("compare", folder, "--out", out, "--as-texts", tmp_path / "lines.txt")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.startswith("Pancakes of anna: ")
