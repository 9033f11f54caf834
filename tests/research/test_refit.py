"""What corrections teach is measured on videos held out; what does not surely help is refused, and
nothing written."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from research.refit import corrected_videos as learning
from research.refit.__main__ import refit as command
from research.refit.corrected_videos import (
    EVIDENCE_FOLDER,
    LEARNED_NAME,
    learned_settings,
    record_settings,
    report,
    source_of,
    write_settings,
)
from research.refit.refit import (
    DEFAULT_POINT,
    GROUND_PARAMETERS,
    CorrectedVideo,
    Figure,
    PlacingFit,
    Refit,
    ground_settings,
    outcome,
    refit,
    refusal,
)
from stepline.errors import DatasetError, SettingsError
from stepline.files.digests import sha256
from stepline.files.storage import write_record
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import ChangeEdit, Correction
from stepline.models.nasva.settings import NasvaSettings
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import StepsSettings
from stepline.records import (
    FeatureSequence,
    LinkOrigin,
    Record,
    Rejected,
    Sentence,
    Span,
    Step,
    Transcript,
    Video,
)
from stepline.settings import load_settings

TOLD = (
    "slice the lemons",
    "pour the juice into the bowl",
    "whisk the sugar into the water",
    "chill it for an hour",
)


def narrated(name, *, gap=12.0, video=None):
    """Return a record in which one of two sentences tells a step, every `gap` seconds."""
    heard, steps = [], []
    for number, text in enumerate(TOLD):
        start = gap * number
        said, shown = (
            Span(start + gap / 6, start + gap / 2),
            Span(start + gap / 4, start + 3 * gap / 4),
        )
        heard += [
            Sentence(text=f"now {text}", span=said),
            Sentence(
                text="my neighbour told me this story", span=Span(start + 2 * gap / 3, start + gap)
            ),
        ]
        steps.append(
            Step(
                id=str(number),
                text=text,
                said=said,
                sources=(2 * number,),
                spans=(shown,),
                at=shown.center,
                status="shown",
                score=0.9,
            )
        )
    video = video or Video(id=name, duration=4 * gap)
    return Record(
        id=name,
        video=video,
        transcript=Transcript(language="en", sentences=tuple(heard)),
        steps=tuple(steps),
    )


def seen(seconds=48, seed=0):
    rows = np.random.default_rng(seed).normal(size=(seconds, 384)).astype(np.float32)
    return VisualFeatures(features=FeatureSequence(rows, 1.0, "drawn"), end=float(seconds))


def corrected_video(number, change):
    """Return a video whose steps people changed: `change` of each step and its number."""
    machine = narrated(f"v{number}")
    steps = tuple(
        step.model_copy(update=change(place, step)) for place, step in enumerate(machine.steps)
    )
    return CorrectedVideo(
        machine, machine.model_copy(update={"steps": steps}), seen(), f"maker {number}"
    )


def shown_while_said(_, step):
    return {"spans": (Span(step.said.start, step.said.end + 1),), "status": "shown"}


def never_shown(_, __):
    return {"spans": (), "status": "said"}


def test_a_judge_that_people_contradict_is_mended_on_videos_that_it_has_not_seen():
    videos = [corrected_video(number, never_shown) for number in range(5)]
    result = refit(videos)
    right, loss = result.figures["judge"]
    assert right.after > right.before
    assert loss.high < 0
    assert "judge" not in result.refusals
    again = refit(
        videos,
        StepsSettings.model_validate(
            {"judge": {"weights": tuple(result.settings["judge"]["weights"])}}
        ),
    )
    # what was learnt is what the next refit is measured against
    assert again.figures["judge"][1].before < loss.before
    assert "accepted" in report(result)


def test_what_the_next_maker_contradicts_is_refused():
    """Half of the makers show what they say, the others never do: of sentences, nothing holds for a
    maker left out."""
    videos = [corrected_video(n, shown_while_said if n % 2 else never_shown) for n in range(6)]
    result = refit(videos)
    assert "judge" in result.refusals
    assert "judge" not in result.settings
    assert "refused: " in report(result)


def test_a_lag_of_all_pictures_is_learnt_and_stays_near_the_default():
    base, later = StepsSettings(), 2 * GROUND_PARAMETERS[3].spread
    # spans that touch hide a lag
    apart, seconds = 24.0, 96
    machine = narrated("v", gap=apart)
    pictures = seen(seconds)
    late = base.nasva.ground.model_copy(update={"lag_usual": base.nasva.ground.lag_usual + later})
    settings = StepsSettings(nasva=NasvaSettings(ground=late))
    truth = ground_steps(
        machine.steps, float(seconds), machine.transcript, pictures, settings
    ).steps
    videos = []
    for number in range(5):
        record = narrated(f"v{number}", gap=apart)
        steps = tuple(
            step.model_copy(update={"spans": true.spans, "at": true.at})
            for step, true in zip(record.steps, truth, strict=True)
        )
        corrected = record.model_copy(update={"steps": steps})
        videos.append(CorrectedVideo(record, corrected, pictures, f"maker {number}"))
    learnt = refit(videos).settings["nasva.ground"]
    assert base.nasva.ground.lag_usual < learnt["lag_usual"] <= late.lag_usual
    assert "typical" not in learnt


def test_what_the_machine_had_right_teaches_nothing():
    settings, machine = StepsSettings(), narrated("v")
    video = CorrectedVideo(machine, machine, seen(), "v")
    fitting = PlacingFit([video], settings)
    found = outcome(video, settings.nasva.ground, seconds=3.0)
    assert found.sums["steps"] == 4
    assert fitting.outcome(0, DEFAULT_POINT).sums == found.sums
    assert ground_settings(DEFAULT_POINT, settings.nasva.ground) == settings.nasva.ground


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([Figure("a", 0.5, 0.6, 0.0, 0.2, 9), Figure("loss", 1.0, 0.9, -0.2, -0.01, 9)], None),
        (
            [Figure("a", 0.5, 0.6, 0.0, 0.2, 9), Figure("loss", 1.0, 0.9, -0.2, 0.01, 9)],
            "does not surely fall",
        ),
        (
            [Figure("a", 0.6, 0.5, -0.2, 0.0, 9), Figure("loss", 1.0, 0.9, -0.2, -0.01, 9)],
            "a falls by 0.100",
        ),
        ([Figure("loss", 1.0, 0.9, float("nan"), float("nan"), 9)], "does not surely fall"),
    ],
    ids=["better", "unsure", "worse", "unknown"],
)
def test_a_part_is_refused_unless_it_surely_helps(rows, reason):
    found = refusal(rows)
    assert found is None if reason is None else reason in found


def test_too_few_videos_or_makers_are_refused_in_one_line():
    videos = [corrected_video(number, shown_while_said) for number in range(4)]
    with pytest.raises(DatasetError, match="4 corrected videos of 4 sources; a refit needs 5"):
        refit(videos)


def test_videos_of_a_maker_or_folder_are_held_out_together():
    video = Video(id="v", origin=LinkOrigin(url="https://example.org/v", uploader="A kitchen"))
    assert source_of(Record(id="v", video=video), "any/v.json") == "A kitchen"
    assert source_of(narrated("v"), "ann/v.json") == source_of(narrated("w"), "ann/w.json") == "ann"
    assert source_of(narrated("v"), "v.json") != source_of(narrated("w"), "w.json")


@pytest.mark.parametrize(
    "settings",
    [
        {"nasva": {"aligner": {"path": "trained"}}},
        {"vision": {"backbone": "none"}},
        {"inputs": {"part": [0, 9]}},
    ],
    ids=["network", "no pictures", "part"],
)
def test_a_record_that_another_grounding_made_is_left_out(settings):
    with pytest.raises(SettingsError, match="a refit needs the default grounding"):
        record_settings(narrated("v").model_copy(update={"settings": settings}))


# ---------------------------------------------------------------- a library, by the command


@pytest.fixture(scope="module")
def library(tmp_path_factory, small_video):
    """Eight records of one small film, all corrected by Ann."""
    folder = tmp_path_factory.mktemp("library")
    digest = sha256(small_video)
    library = CorrectedLibrary(folder)
    for number in range(8):
        video = Video(id=f"v{number}", path=str(small_video), duration=16.0, sha256=digest)
        write_record(narrated(f"v{number}", gap=4.0, video=video), folder / f"v{number}.json")
        id = video_id(f"v{number}.json")
        edits = tuple(
            ChangeEdit(
                do="change",
                step=step.id,
                span=Span(step.said.end + 1.2, step.said.end + 2),
                status="shown",
            )
            for step in library.record(id).steps
        )
        library.correct(
            id, Correction(id=f"a{number}", video=id, by="Ann", when=0.0, base=0, edits=edits)
        )
    yield library
    library.close()


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_command_writes_settings_that_the_main_job_takes(library):
    result = run(library.folder, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["videos"], told["sources"], "judge" in told["refusals"]) == (8, 8, False)
    settings = load_settings(StepsSettings, library.folder / LEARNED_NAME)
    assert list(settings.judge.weights) == told["settings"]["judge"]["weights"]
    assert learned_settings(library.folder) == settings
    assert len(list((library.folder / EVIDENCE_FOLDER).iterdir())) == 1  # one film, looked at once


def test_a_refusal_is_a_result_and_leaves_the_settings_alone(library, monkeypatch):
    path = library.folder / LEARNED_NAME
    path.write_text("[judge]\nweights = [1.0, 2.0, 3.0]\n")
    monkeypatch.setattr(learning, "refit", lambda videos, base, report: Refit(8, 8))
    result = run(library.folder)
    assert result.exit_code == 0
    assert "nothing is learnt" in result.stderr
    assert path.read_text() == "[judge]\nweights = [1.0, 2.0, 3.0]\n"
    path.unlink()


def test_a_part_that_was_refused_keeps_what_was_learnt_before(tmp_path):
    path = tmp_path / LEARNED_NAME
    path.write_text("[nasva.ground]\nlag_usual = 1.5\n")
    write_settings(Refit(8, 8, settings={"judge": {"weights": [1.0, 2.5, -3.0]}}), path)
    settings = load_settings(StepsSettings, path)
    assert (settings.judge.weights, settings.nasva.ground.lag_usual) == ((1.0, 2.5, -3.0), 1.5)
    write_settings(Refit(9, 9, settings={"nasva.ground": {}}), path)
    settings = load_settings(StepsSettings, path)
    assert (settings.judge.weights, settings.nasva.ground.lag_usual) == ((1.0, 2.5, -3.0), 1.25)


def test_a_video_that_is_gone_is_left_out_with_its_reason(library, monkeypatch):
    monkeypatch.setattr(library, "media_file", lambda id, video: None)
    found = learning.corrected_videos(library)
    assert found.usable == ()
    assert found.left_out[0] == Rejected(
        "video",
        "it cannot be grounded again",
        id="v0",
        value="its video is not there; put it where its record says",
    )
