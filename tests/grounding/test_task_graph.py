"""What other videos of a task say of its lines in a new one: words, order, and how many do each."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.grounding.ground import ground
from stepline.grounding.inputs import GroundingInputs, GroundingWindow
from stepline.grounding.line_model import FEATURE_NAMES, load_line_weights, match_features
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import line_steps, place_texts
from stepline.grounding.task_graph import GraphPrior, TaskGraph, graph_prior, order_log_ratios
from stepline.records import Sentence, Span, Transcript
from stepline.text import embed

LINES = ("crack the eggs", "melt the butter", "pour the batter")
NO_WEIGHTS = {"graph_wordings": 0.0, "graph_order": 0.0, "graph_share": 0.0}
SPOKEN = (
    "hello and welcome back to my kitchen",
    "first melt the butter in the hot pan",
    "let it foam for a moment",
    "now crack the eggs into the bowl",
    "that is looking good",
    "turn it over to the other side",
)


def make_graph(**changes):
    # four videos: two crack the eggs first, two melt the butter first; one alone pours
    graph = TaskGraph(
        lines=LINES,
        wordings=(("break the eggs",), (), ()),
        kinds=("do", "do", "avoid"),
        videos=4,
        counts=(4, 4, 1),
        transitions=((0.5, 0.5, 0.0), (0.0, 0.5, 0.25), (0.5, 0.0, 0.0), (0.0, 0.0, 0.0)),
        departures=(4, 4, 4, 1),
        before=((0.5, 0.5, 2 / 3), (0.5, 0.5, 0.5), (1 / 3, 0.5, 0.5)),
    )
    return graph.model_copy(update=changes)


def transcript_of(texts):
    sentences = []
    for number, text in enumerate(texts):
        start = 5.0 * number
        sentences.append(Sentence(text=text, span=Span(start, start + 4.0)))
    return Transcript(language="en", sentences=tuple(sentences))


def place(graph, texts=SPOKEN, so_far=False, **weights):
    settings = CoarseSettings(**(NO_WEIGHTS | weights))
    prior = None if graph is None else graph_prior(graph, settings, embed)
    lines = LINES if graph is None else graph.lines
    return place_texts(
        lines,
        transcript_of(texts),
        embed(texts),
        embed(lines),
        so_far=so_far,
        settings=settings,
        prior=prior,
    )


@pytest.mark.parametrize("so_far", [False, True])
def test_weights_of_0_leave_every_bit_as_without_a_graph(so_far):
    alone = place(None, so_far=so_far)
    same = place(make_graph(), so_far=so_far)
    assert np.array_equal(alone.sentence_probabilities, same.sentence_probabilities)
    assert [step.said for step in alone.steps] == [step.said for step in same.steps]
    prior = GraphPrior(make_graph(), CoarseSettings(**NO_WEIGHTS))
    assert prior.shown_log_odds is None


def test_lines_have_the_kinds_of_the_graph():
    assert [step.kind for step in place(make_graph()).steps] == ["do", "do", "avoid"]
    assert [step.kind for step in line_steps(["never stir it", "stir it"])] == ["avoid", "do"]


def test_lines_of_another_graph_are_refused():
    with pytest.raises(ShapeError, match="2 texts are not the 3 lines"):
        line_steps(LINES[:2], make_graph())


def test_a_graph_whose_parts_do_not_fit_is_refused():
    make_graph().check()
    with pytest.raises(ShapeError, match="a task graph of 3 lines"):
        make_graph(counts=(1, 2)).check()


def test_an_order_that_videos_have_costs_less_than_in_lists():
    ratios = order_log_ratios(make_graph())
    # back from the butter to the eggs: two of four videos, and hardly any list
    assert ratios[2, 0] > 2.0
    # on from the butter to the batter: no video, and most lists
    assert ratios[2, 2] < 0.0
    assert ratios[0, 1] > 0.0
    assert np.all(np.diag(ratios[1:, :3]) == 0.0)
    assert np.isfinite(ratios).all()


def test_a_line_without_anything_seen_keeps_its_prices():
    graph = make_graph(departures=(0, 0, 0, 0))
    assert np.allclose(order_log_ratios(graph), 0.0)


def test_steps_in_another_order_are_placed_where_videos_do_them():
    # each of two lines fits each of two sentences alike: order alone decides
    backwards = make_graph(
        lines=LINES[:2],
        wordings=((), ()),
        kinds=("do", "do"),
        counts=(4, 4),
        transitions=((0.0, 1.0), (0.0, 0.0), (1.0, 0.0)),
        departures=(4, 4, 4),
        before=((0.5, 0.2), (0.8, 0.5)),
    )
    prior = GraphPrior(backwards, CoarseSettings(graph_order=2.0)).of_lines
    features = np.zeros((2, 2, len(FEATURE_NAMES)))
    for name in ("cosine", "context", "words", "near_words"):
        features[..., FEATURE_NAMES.index(name)] = 1.0
    by_list = match_features(features, load_line_weights())
    by_videos = match_features(features, load_line_weights(), prior=prior)
    assert by_list.posterior.argmax(axis=1).tolist() == [0, 1]
    assert by_videos.posterior.argmax(axis=1).tolist() == [1, 0]


def test_what_few_videos_do_is_less_likely_said():
    alone = place(make_graph()).sentence_probabilities.sum(axis=1)
    weighed = place(make_graph(), graph_share=1.0).sentence_probabilities.sum(axis=1)
    assert weighed[2] < alone[2]
    assert np.array_equal(weighed[:2], alone[:2])
    # log odds of one video of four and of four, with half a video more of either kind
    change = np.log(weighed[2] / (1 - weighed[2])) - np.log(alone[2] / (1 - alone[2]))
    assert change == pytest.approx(np.log(1.5 / 3.5) - np.log(4.5 / 0.5))


def test_a_line_is_found_in_the_words_of_another_video():
    graph = make_graph(wordings=(("turn it over to the other side",), (), ()))
    alone = place(graph)
    worded = place(graph, graph_wordings=1.0)
    assert alone.sentence_probabilities[0].argmax() == 3
    assert worded.sentence_probabilities[0, 5] > 100 * alone.sentence_probabilities[0, 5]


def test_no_one_says_a_line_that_few_do_so_it_is_less_likely_shown():
    prior = GraphPrior(make_graph(), CoarseSettings(graph_share=1.0))
    log_odds = prior.shown_log_odds
    assert log_odds.tolist()[:2] == [0.0, 0.0]
    assert log_odds[2] == pytest.approx(np.log(1.5 / 3.5) - np.log(4.5 / 0.5))
    inputs = GroundingInputs(line_steps(LINES), 60.0, shown_log_odds=log_odds)
    window = GroundingWindow(Span(0.0, 30.0), (2,), frozenset({2}))
    assert inputs.cut(window).shown_log_odds.tolist() == [log_odds[2]]


def test_a_graph_and_its_lines_ground_without_pictures():
    placed = place(make_graph(), graph_order=0.5, graph_share=0.5, graph_wordings=1.0)
    grounding = ground(
        placed.steps,
        duration=30.0,
        transcript=transcript_of(SPOKEN),
        written=False,
        tellings=placed.sentence_probabilities,
    )
    assert len(grounding.steps) == 3
