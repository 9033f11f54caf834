"""Which networks the data are enough for: the rule, and that its curves are those of the docs."""

from pathlib import Path

import pytest

from stepline.curate.workflow.amounts import MEASURED_CURVES, Curve, LearningPoint, recommend

ROOT = Path(__file__).resolve().parents[2]


def curve(*points):
    return Curve("steps", "R@1", "speech", "docs/nasva.md", points)


def test_a_curve_gains_from_where_every_larger_amount_does():
    lost, won, dip, best = (
        LearningPoint(1, 10, 40.0, 50.0),
        LearningPoint(2, 20, 60.0, 50.0),
        LearningPoint(3, 30, 45.0, 50.0),
        LearningPoint(4, 40, 70.0, 50.0),
    )
    assert curve(lost, won, best).least == won
    assert curve(lost, won, dip, best).least == best


@pytest.mark.parametrize("network", MEASURED_CURVES)
def test_the_scores_are_in_the_docs_that_are_named(network):
    source = MEASURED_CURVES[network].source
    pages = [word.strip(",") for word in source.split() if word.startswith("docs/")]
    text = "".join((ROOT / page).read_text() for page in pages)
    for point in MEASURED_CURVES[network].points:
        forms = {f"{point.score:.1f}", f".{10 * point.score:.0f}"}  # per cent, or of 1
        assert any(form in text for form in forms), point


def test_too_little_is_refused_with_what_was_measured_and_where():
    nasva, procx, wys2 = recommend(videos=40, labels=120)
    assert not any(each.is_enough for each in (nasva, procx, wys2))
    assert str(nasva) == (
        "nasva, too little to promise a gain: 120 confirmed steps of 40 videos; measured to gain "
        "from 332 of 131 videos on (R@1 61.5 against 43.0, where steps are said: "
        "docs/selftraining.md and docs/curate.md, lab/curate_ceiling.py)"
    )
    assert "from 250 on (ROC-AUC 75.6 against 70.6" in str(wys2)


def test_both_steps_and_videos_must_be_enough():
    assert [each.is_enough for each in recommend(videos=131, labels=331)] == [False, False, True]
    assert [each.is_enough for each in recommend(videos=130, labels=900)] == [False, True, True]
    assert [each.is_enough for each in recommend(videos=131, labels=332)] == [True, False, True]
