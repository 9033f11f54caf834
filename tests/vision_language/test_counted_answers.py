"""Videos that people corrected say how reliable a vision-language model is in others."""

import pytest

from stepline import batch, steps
from stepline.errors import SettingsError
from stepline.files.storage import read_record, write_record
from stepline.grounding.vision_language.corrections import AnswerCounts, count_answers
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Span, Step, Video
from stepline.vision.settings import VisionLanguageSettings, VisionSettings

QUESTIONS = [
    {
        "steps": ["1", "2", "3"],
        "pictures": [5.5, 20.5, 40.5],
        "answers": [5.5, 40.5, None],
        "refused": [None, None, None],
    },
    {
        "steps": ["4", "5", "6"],
        "pictures": [5.5, 20.5],
        "answers": [None, 5.5, None],
        "refused": [None, None, "no answer in time"],
    },
]


def records():
    """What Stepline wrote, and what people made of it."""
    steps = tuple(Step(id=str(n), text=f"do {n}", spans=(Span(0.0, 3.0),)) for n in range(1, 7))
    machine = Record(
        id="v", video=Video(id="v"), steps=steps, models={"witness": {"questions": QUESTIONS}}
    )
    spans = {
        "1": (Span(4.0, 8.0),),
        "2": (Span(18.0, 22.0),),
        "3": (),
        "4": (Span(21.0, 25.0),),
        "6": (),
    }
    kept = tuple(
        step.model_copy(update={"spans": spans[step.id]}) for step in steps if step.id in spans
    )
    return machine, machine.model_copy(update={"steps": kept})


def test_answers_count_as_right_or_wrong_by_what_people_left():
    machine, corrected = records()
    # 1: its second is in the span. 2: people say elsewhere. 3: none, rightly. 4: none, but 20.5
    # lies beside 21 to 25.
    # 5: deleted. 6: refused.
    assert count_answers(machine, corrected) == AnswerCounts(right=2, wrong=2)


@pytest.mark.parametrize(
    "asked",
    [None, {}, {"questions": "many"}, {"questions": [1, {}, {"steps": ["1"]}]}, {"dry_run": True}],
)
def test_a_record_in_which_no_one_was_asked_counts_nothing(asked):
    machine, corrected = records()
    assert (
        count_answers(machine.model_copy(update={"models": {"witness": asked}}), corrected)
        == AnswerCounts()
    )


@pytest.fixture
def run(stepline, small_video, captions_file, tmp_path):
    def call(*options):
        return stepline(
            "steps",
            small_video,
            "--captions",
            captions_file,
            "--format",
            "json",
            "--out",
            tmp_path / "out",
            "--dry-run",
            "--set",
            "vision.witness.base_url=http://127.0.0.1:9/v1",
            "--set",
            "vision.screen_text=false",
            "--set",
            "vision.faces=false",
            *options,
        )

    return call


@pytest.fixture
def folders(tmp_path):
    """The records as the machine wrote them, and as people corrected them."""
    machine, corrected = records()
    for folder, record in (("wrote", machine), ("people", corrected)):
        (tmp_path / folder).mkdir()
        write_record(record, tmp_path / folder / "v.json")
    write_record(corrected, tmp_path / "people" / "other.json")
    return tmp_path / "wrote", tmp_path / "people"


def test_folders_of_a_library_set_the_prior(run, folders, small_video, tmp_path):
    machine, corrected = folders
    done = run(
        "--set",
        f"vision.witness.machine={machine}",
        "--set",
        f"vision.witness.corrected={corrected}",
    )
    assert done.exit_code == 0, done.stderr
    stored = read_record(tmp_path / "out" / f"{small_video.stem}.json").settings["vision"][
        "witness"
    ]
    assert (stored["right"], stored["wrong"]) == (4.0 + 2, 1.0 + 2)
    assert str(tmp_path) not in str(stored)


def from_python(machine, corrected):
    return StepsSettings(
        vision=VisionSettings(
            screen_text=False,
            faces=False,
            witness=VisionLanguageSettings(
                base_url="http://127.0.0.1:9/v1", dry_run=True, machine=machine, corrected=corrected
            ),
        )
    )


@pytest.mark.parametrize("out", [None, "out"])
def test_folders_set_the_prior_from_python_too(folders, small_video, captions_file, tmp_path, out):
    record = steps(
        small_video,
        captions=captions_file,
        settings=from_python(*folders),
        out=out and tmp_path / out,
    )
    stored = record.settings["vision"]["witness"]
    assert (stored["right"], stored["wrong"]) == (4.0 + 2, 1.0 + 2)
    assert str(tmp_path) not in str(stored)


def test_folders_of_a_batch_are_counted_once(folders, small_video, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(
        "stepline.grounding.vision_language.corrections.read_record",
        lambda path: read.append(path) or read_record(path),
    )
    settings = from_python(*folders)
    results = list(batch([small_video], settings=settings, out=tmp_path / "out"))
    assert [result.error for result in results] == [None]
    assert len(read) == 2


def test_one_folder_alone_is_an_error_from_python(folders, small_video):
    with pytest.raises(SettingsError, match="go together; name both folders"):
        steps(small_video, settings=from_python(folders[0], None))


def test_folders_that_say_nothing_are_errors_in_one_line(run, tmp_path):
    alone = run("--set", f"vision.witness.corrected={tmp_path}")
    assert alone.exit_code == 1
    assert "go together; name both folders" in alone.stderr
    apart = run(
        "--set",
        f"vision.witness.corrected={tmp_path}",
        "--set",
        f"vision.witness.machine={tmp_path / 'x'}",
    )
    assert apart.exit_code == 1
    assert "holds no record of a name" in apart.stderr
