"""Which proposals are steps, and the steps of silent videos."""

import numpy as np
import pytest
import torch
from silent_videos import DOINGS, SECONDS, TINY, WIDTH, features, records, samples

from stepline.errors import ShapeError
from stepline.models.procx.inference import (
    Caption,
    Description,
    Proposals,
    VideoToDescribe,
    compute_caption_likelihood,
    describe,
    describe_videos,
    generate_captions,
    propose,
    select_proposals,
)
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import DescribeSettings, VocabularySettings
from stepline.models.procx.train import make_soda_scorer, train_procx
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.models.training.settings import TrainSettings
from stepline.records import FeatureSequence

BOXES = np.array([[10.0, 20.0], [0.0, 8.0], [11.0, 19.0], [30.0, 40.0], [50.0, 50.01]])
SURE = np.array([0.9, 0.5, 0.8, 0.2, 0.99])


def proposals(count=3, likelihood=None):
    return Proposals(SURE, BOXES, count, likelihood)


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        # as many as are counted, in the order of time; the one of no length is none
        ({}, [1, 0, 2]),
        ({"count": 1}, [0]),
        ({"count": 0}, []),
        ({"count": 100}, [1, 0, 2, 3]),
        ({"floor": 0.6}, [0, 2]),
        ({"floor": 1.0}, []),
    ],
)
def test_the_settings_choose_which_proposals_stay(settings, chosen):
    assert select_proposals(proposals(), DescribeSettings(**settings)) == chosen


def test_a_count_of_none_gives_the_least():
    assert select_proposals(proposals(0), DescribeSettings()) == [0]
    assert select_proposals(proposals(0), DescribeSettings(least=0)) == []


def test_captions_have_a_say_where_their_likelihood_is_known():
    ranked = proposals(1, np.array([-0.5, 0.0, 0.0, 0.0, 0.0]))
    assert select_proposals(ranked, DescribeSettings()) == [2]


WORDS = train_vocabulary(DOINGS, VocabularySettings(size=300))


@pytest.fixture(scope="module")
def fresh():
    torch.manual_seed(0)
    return ProcX(TINY, len(WORDS)).eval()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network that has learned where the steps of six videos are."""
    torch.set_num_threads(1)
    settings = TrainSettings(epochs=60, batch=6, learning_rate=1e-2, readers=0, save_every=1000)
    given = {"model": TINY, "settings": settings.model_copy(update={"warmup": 0.1})}
    return train_procx(samples(), tmp_path_factory.mktemp("run"), vocabulary=WORDS, **given)


def clips(count=6):
    seconds = (float(SECONDS), float(SECONDS))
    return [VideoToDescribe(features(one).values, *seconds) for one in records(count)]


def test_a_trained_network_finds_the_steps(trained):
    total, count = make_soda_scorer(samples(), lambda network: None).score(trained, samples())
    assert total / count > 0.6  # by two halves: 0.50
    for found in describe_videos(trained, WORDS, clips()):
        assert len(found.steps) == 2
        starts = [step.spans[0].start for step in found.steps]
        assert starts == sorted(starts)
        assert [step.id for step in found.steps] == ["1", "2"]
        for step in found.steps:
            assert step.status == "seen"
            assert step.text
            assert step.at in step.spans[0]
            assert 0 < step.score < 1
            assert step.spans[0].end <= SECONDS


def test_no_video_changes_another(trained):
    together = describe_videos(trained, WORDS, clips(), DescribeSettings(batch=4))
    alone = [describe_videos(trained, WORDS, [clip])[0] for clip in clips()]
    for one, other in zip(together, alone, strict=True):
        assert [step.text for step in one.steps] == [step.text for step in other.steps]
        for a, b in zip(one.steps, other.steps, strict=True):
            assert a.spans[0].start == pytest.approx(b.spans[0].start, abs=2e-3)
            assert a.score == pytest.approx(b.score, abs=2e-3)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 2000])
def test_every_length_of_video_is_defined(fresh, rows):
    values = np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(np.float32)
    found = describe(fresh, WORDS, FeatureSequence(values, 1.0, "drawn"), DescribeSettings(count=3))
    assert isinstance(found, Description)
    assert len(found.steps) + len(found.dropped) == (3 if rows else 0)
    assert all(0 <= step.spans[0].start < step.spans[0].end <= rows for step in found.steps)


def test_an_empty_video_in_a_batch_has_no_steps_and_harms_none(fresh):
    empty = VideoToDescribe(np.zeros((0, WIDTH), np.float32), 1.0, 1.0)
    both = describe_videos(fresh, WORDS, [clips(1)[0], empty])
    assert both[1] == Description()
    (alone,) = describe_videos(fresh, WORDS, clips(1))
    assert [step.spans for step in both[0].steps] == [step.spans for step in alone.steps]
    assert describe_videos(fresh, WORDS, [empty]) == [Description()]
    assert describe_videos(fresh, WORDS, []) == []


def test_the_count_can_be_set_and_nothing_is_an_answer(fresh):
    def steps(**settings):
        return describe_videos(fresh, WORDS, clips(1), DescribeSettings(**settings))[0].steps

    assert len(steps(count=100)) <= TINY.queries
    assert steps(count=0) == steps(floor=1.0) == ()


def test_a_hundred_steps_can_be_described():
    torch.manual_seed(0)
    crowded = TINY.model_copy(update={"queries": 120})
    network = ProcX(crowded, len(WORDS)).eval()
    (found,) = describe_videos(network, WORDS, clips(1), DescribeSettings(count=100))
    assert len(found.steps) + len(found.dropped) == 100
    assert [int(step.id) for step in found.steps] == [*range(1, len(found.steps) + 1)]


def test_a_video_that_ends_before_its_features_has_no_step_past_its_end(fresh):
    values = features(records(1)[0])
    found = describe(fresh, WORDS, values, DescribeSettings(count=6), duration=12.0)
    assert all(step.spans[0].end <= 12.0 for step in found.steps)
    assert len(found.steps) + len(found.dropped) == 6


def test_a_captions_likelihood_ranks_as_pdvc_does(fresh):
    captions = [Caption((7, 8, 9), -4.5), Caption((), 0.0)]
    assert compute_caption_likelihood(captions, 1.0) == pytest.approx([-4.5 / 3**2, 0.0])
    assert compute_caption_likelihood(captions, 2.0) == pytest.approx([-1.0, 0.0])
    ranked = DescribeSettings(caption_weight=1e6, count=1)
    (best,) = describe_videos(fresh, WORDS, clips(1), ranked)[0].steps
    output, [found] = propose(fresh, [clips(1)[0].values], [24.0])
    assert found.caption_log_likelihood is None
    (captions,) = generate_captions(fresh, output, [range(TINY.queries)])
    likeliest = captions[compute_caption_likelihood(captions, 1.0).argmax()]
    assert best.text == WORDS.decode(likeliest.tokens)


def test_features_that_do_not_fit_are_refused(fresh):
    with pytest.raises(ShapeError, match="one width"):
        describe_videos(fresh, WORDS, [VideoToDescribe(np.zeros((4, 3), np.float32), 4.0, 4.0)])
