import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.evaluate.calibration import LogisticRegression
from stepline.grounding.fusion import UNCONFIRMED
from stepline.models.nasva.align import TextScores, extract_spans
from stepline.models.nasva.calibration import Calibration
from stepline.models.nasva.predict import NOT_CALIBRATED, place_steps
from stepline.models.nasva.settings import AlignerSettings
from stepline.records import Span, Step

BY_RISE = Calibration(
    "abc",
    {"step": LogisticRegression((0.0,) * 6, (1.0,) * 6, (0.0, 20.0, 0.0, 0.0, 0.0, 0.0), -10.0)},
)


def fit():
    """The first text rises by 1 in rows 10 to 14, most in row 12, the second by 0.1."""
    scores = np.zeros((2, 40), np.float32)
    scores[0, 10:15], scores[0, 12], scores[1, 30] = 1.0, 1.05, 0.1
    return TextScores(scores, None, 1.0)


def steps(**said):
    return [Step(id="1", text="cut the lemon", **said), Step(id="2", text="chill it", **said)]


def test_a_step_that_stands_out_is_shown_and_the_other_is_not():
    placing = place_steps(steps(), fit(), BY_RISE)
    first, second = placing.steps
    assert (first.status, first.at) == ("seen", 12.5)
    assert first.spans[0].iou(Span(10.0, 15.0)) > 0.7
    assert first.score > 0.99
    assert (second.status, second.spans, second.at) == ("not_found", (), None)
    assert (placing.at[1], placing.calibrated) == (30.5, True)
    assert placing.alignment.scores[0, 10:15].sum() == pytest.approx(1.0, abs=0.02)


def test_a_step_that_is_said_but_not_shown_says_so():
    said = steps(said=Span(3.0, 5.0))
    assert place_steps(said, fit(), BY_RISE).steps[1].status == "said_only"
    # P(shown) of .28 is no claim: eight of ten such claims would not hold
    scores = fit().scores.copy()
    scores[1, 30] = 0.45
    step = place_steps(said, TextScores(scores, None, 1.0), BY_RISE).steps[1]
    assert step.score == pytest.approx(0.27, abs=0.02)
    assert (step.status, step.at, step.doubt) == ("placed", 30.5, UNCONFIRMED)
    assert place_steps(steps(), TextScores(scores, None, 1.0), BY_RISE).steps[1].spans == ()


def test_without_calibration_no_step_counts_as_seen_and_a_doubt_says_so():
    placing = place_steps(steps(), fit())
    assert not placing.calibrated
    for step in placing.steps:
        assert (step.status, step.basis, step.doubt) == ("placed", None, NOT_CALIBRATED)
    assert placing.steps[0].at == 12.5


def test_speech_counts_where_it_is_known():
    scores = np.zeros((1, 60), np.float32)
    scores[0, [10, 50]] = 0.6
    step = Step(id="1", text="cut the lemon", said=Span(49.0, 51.0))
    assert place_steps([step], TextScores(scores, None, 1.0)).at == (50.5,)
    late = step.model_copy(update={"said": Span(90.0, 95.0)})  # after the last row
    assert place_steps([late], TextScores(scores, None, 1.0)).at == (50.5,)


def test_times_stay_inside_a_video_whose_last_second_is_short():
    scores = np.zeros((1, 10), np.float32)
    scores[0, 9] = 1.0
    placing = place_steps(steps()[:1], TextScores(scores, None, 1.0), BY_RISE, duration=9.3)
    assert placing.steps[0].spans[0].end <= 9.3
    assert placing.at[0] == pytest.approx(9.15)


def test_the_second_of_a_step_is_in_its_span():
    scores = np.zeros((1, 40), np.float32)
    # row 2 alone is best, seven others together
    scores[0, 2], scores[0, 20:27], scores[0, 23] = 1.0, 0.9, 0.91
    placing = place_steps(steps()[:1], TextScores(scores, None, 1.0))
    assert placing.posterior.best_rows.tolist() == [2]
    assert placing.steps[0].spans[0].iou(Span(20.0, 27.0)) > 0.7
    assert placing.steps[0].at == 23.5


@pytest.mark.parametrize("rule", ["start", "center", "grown"])
@pytest.mark.parametrize(("rate", "end"), [(1.0, 40.0), (1.0, 37.2), (3.0, 13.1), (0.7, 60.0)])
def test_every_rule_keeps_the_second_in_the_span(rule, rate, end):
    scores = np.random.default_rng(0).normal(scale=0.3, size=(60, 40)).astype(np.float32)
    named = [Step(id=str(k), text=str(k)) for k in range(60)]
    placing = place_steps(
        named, TextScores(scores, None, rate), settings=AlignerSettings(spans=rule), duration=end
    )
    assert all(
        span.start <= at <= span.end for span, at in zip(placing.spans, placing.at, strict=True)
    )


def test_a_span_begins_is_centred_or_grows_at_the_best_second():
    at = np.zeros((1, 40))
    at[0, 18:23] = 0.1, 0.2, 0.4, 0.2, 0.1
    by = {
        rule: extract_spans(at, 1.0, AlignerSettings(spans=rule, smooth=1))[0]
        for rule in ("start", "center", "grown")
    }
    assert by == {"start": Span(20.0, 28.0), "center": Span(16.5, 24.5), "grown": Span(19.0, 22.0)}
    assert extract_spans(at, 2.0, AlignerSettings(spans="start"))[0] == Span(10.0, 18.0)
    assert extract_spans(at, 1.0, AlignerSettings(spans="start"), end=25.0)[0] == Span(20.0, 25.0)


def test_one_dim_second_does_not_cut_a_span():
    at = np.full((1, 40), 1e-6)
    at[0, 15:26] = 0.1
    at[0, 20] = 0.001
    assert extract_spans(at, 1.0)[0].iou(Span(15.0, 26.0)) > 0.7
    assert extract_spans(at, 1.0, AlignerSettings(smooth=1))[0].duration <= 6


def test_scores_of_other_steps_are_refused():
    with pytest.raises(ShapeError, match="2 rows of scores for 1 steps"):
        place_steps(steps()[:1], fit())
