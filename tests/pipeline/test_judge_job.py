"""`stepline judge` and `stepline steps` say the same of the same sentences."""

import json

import pytest

from stepline.evaluate.calibration import LogisticRegression
from stepline.models.wys2.detector import Detector, write_detector
from stepline.models.wys2.predict import DetectorCalibration, write_calibration
from stepline.models.wys2.settings import DetectorSettings
from stepline.pipeline.placing import decide_by_detector
from stepline.records import Sentence, Span, Step, Transcript
from stepline.storage import read_record


def detector_of(folder, log_odds):
    """Write a detector that gives every sentence the same P(shown)."""
    path = folder / "detector.safetensors"
    settings = DetectorSettings(video_width=384, text_width=384, hidden=8, width=4)
    write_detector(Detector(settings), path, video="conse")
    same = LogisticRegression((0.0,), (1.0,), (0.0,), log_odds)
    write_calibration(DetectorCalibration(same, 0.05), path)
    return path


@pytest.mark.parametrize(
    ("log_odds", "status", "basis"),
    [(None, "placed", None), (3.0, "seen", "network"), (-3.0, "said_only", None)],
    ids=["no detector", "shown", "not shown"],
)
def test_a_sentence_is_judged_as_the_steps_that_rest_on_it(
    stepline, small_video, captions_file, tmp_path, log_odds, status, basis
):
    given = [small_video, "--captions", captions_file]
    detector = [] if log_odds is None else [detector_of(tmp_path, log_odds)]
    judging = ("judge", *given, *(("--detector", *detector) if detector else ()))
    judged = stepline(*judging, "--out", tmp_path / "judge", "--json")
    assert judged.exit_code == 0, judged.stderr
    settings = [part for path in detector for part in ("--set", f"judge.detector={path}")]
    found = stepline("steps", *given, "--out", tmp_path / "steps", *settings)
    assert found.exit_code == 0, found.stderr
    record = read_record(tmp_path / "steps" / f"{small_video.stem}.json")
    rows = json.loads(judged.stdout)["sentences"]
    assert len(rows) == len(record.sentences)
    assert record.steps
    for step in record.steps:
        assert (step.status, step.basis) == (status, basis)
        for source in step.sources:
            row = rows[source]
            assert step.id in row["steps"]
            assert (row["status"], row["basis"], row["doubt"]) == (status, basis, step.doubt)
    # what no step rests on is judged by the detector alone
    chat = [row for row in rows if not row["steps"]]
    assert {row["status"] for row in chat} <= {None if log_odds is None else status}
    assert all((row["shown"] is None) == (log_odds is None) for row in rows)
    table = stepline(*judging, "--out", tmp_path / "judge")
    assert {"placed": "?", "seen": "●", "said_only": "○"}[status] in table.stdout


def test_a_step_that_the_detector_sees_is_where_the_detector_looked():
    said = Span(4.0, 6.0)
    near = Step(id="1", text="cut", said=said, spans=(Span(3.0, 9.0),), at=5.5, status="placed")
    far = near.model_copy(update={"spans": (Span(20.0, 25.0),), "at": 22.5})
    steps = [step.model_copy(update={"sources": (0,)}) for step in (near, far)]
    transcript = Transcript(sentences=(Sentence(text="cut it", span=said, shown=0.9),))
    kept, moved = decide_by_detector(steps, transcript)
    assert (kept.status, kept.spans, kept.at) == ("seen", (Span(3.0, 9.0),), 5.5)
    assert (moved.status, moved.spans, moved.at) == ("seen", (said,), 5.0)
