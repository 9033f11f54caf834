"""WYS2's losses by hand, and MIL-NCE against the official code's values."""

import json
import math
from pathlib import Path

import pytest
import torch

from stepline.errors import ShapeError
from stepline.wys2.detector import contrastive_loss, mil_nce_loss, nce_loss
from stepline.wys2.settings import ContrastSettings

CASES = Path(__file__).parents[3] / "shared" / "metric_cases" / "milnce.json"
EVERY = ContrastSettings(negatives=None)


def mean(loss):
    return float((loss.total / loss.count).detach())


def test_nce_is_the_share_of_the_own_text_among_all():
    scores = torch.log(torch.tensor([[2.0, 1.0, 1.0], [1.0, 4.0, 3.0], [5.0, 4.0, 1.0]]))
    shares = [2 / 4, 4 / 8, 1 / 10]
    assert mean(nce_loss(scores, EVERY)) == pytest.approx(-sum(map(math.log, shares)) / 3)


def test_rivals_may_be_other_clips_or_both():
    scores = torch.log(torch.tensor([[2.0, 1.0], [3.0, 4.0]]))
    videos = [2 / 5, 4 / 5]
    both = [2 / 6, 4 / 8]
    assert mean(nce_loss(scores, EVERY.model_copy(update={"rivals": "videos"}))) == pytest.approx(
        -sum(map(math.log, videos)) / 2
    )
    assert mean(nce_loss(scores, EVERY.model_copy(update={"rivals": "both"}))) == pytest.approx(
        -sum(map(math.log, both)) / 2
    )


@pytest.mark.parametrize(("rivals", "count"), [("texts", 4), ("videos", 4), ("both", 4), ("texts", 3), ("both", 3)])
def test_as_many_rivals_are_drawn_as_asked_for(rivals, count):
    scores = torch.zeros(20, 20)  # every pair alike: the loss counts them
    loss = nce_loss(scores, ContrastSettings(negatives=count, rivals=rivals))
    assert mean(loss) == pytest.approx(math.log(1 + count))


def test_the_own_text_is_never_its_own_rival():
    scores = torch.full((6, 6), -50.0).fill_diagonal_(50.0)
    for _ in range(20):
        assert mean(nce_loss(scores, ContrastSettings())) == pytest.approx(0.0, abs=1e-6)


def test_a_batch_smaller_than_the_rivals_gives_all_it_has():
    assert mean(nce_loss(torch.zeros(3, 3), ContrastSettings(negatives=4))) == pytest.approx(math.log(3))


def test_which_rivals_follows_from_the_seed():
    scores = torch.randn(16, 16)
    torch.manual_seed(1)
    first = mean(nce_loss(scores, ContrastSettings()))
    torch.manual_seed(1)
    assert mean(nce_loss(scores, ContrastSettings())) == first
    assert mean(nce_loss(scores, ContrastSettings())) != first


def test_one_clip_has_no_rival():
    with pytest.raises(ShapeError, match="no rival"):
        nce_loss(torch.zeros(1, 1), ContrastSettings())
    with pytest.raises(ShapeError, match="B, B, P"):
        contrastive_loss(torch.zeros(2, 3, 1), ContrastSettings())


@pytest.mark.parametrize(("texts", "wanted"), [("text_1cand", "loss_1cand"), ("text_2", "loss_2cand")])
def test_the_released_mil_nce_gives_what_the_official_code_gives(texts, wanted):
    if not CASES.exists():
        pytest.skip(f"{CASES} is not here")
    case = json.loads(CASES.read_text())
    video = torch.tensor(case["video"])
    text = torch.tensor(next(value for name, value in case.items() if name.startswith(texts)))
    scores = (video @ text.T).view(3, 3, -1)
    assert mean(mil_nce_loss(scores, released=True)) == pytest.approx(case[wanted], abs=1e-5)


def test_mil_nce_by_hand():
    shares = torch.tensor([[[2.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [3.0, 2.0]]])  # exp of the scores, (2, 2, 2)
    own, texts, clips = [3, 5], [2, 3], [3, 2]  # candidates; other texts with the clip; other clips with the texts
    right = [own[i] / (own[i] + texts[i] + clips[i]) for i in range(2)]
    twice = [own[i] / (2 * own[i] + texts[i] + clips[i]) for i in range(2)]
    assert mean(mil_nce_loss(shares.log(), released=False)) == pytest.approx(-sum(map(math.log, right)) / 2)
    assert mean(mil_nce_loss(shares.log(), released=True)) == pytest.approx(-sum(map(math.log, twice)) / 2)


def test_a_perfect_model_has_no_loss_but_in_the_released_form():
    scores = torch.full((4, 4, 2), -50.0)
    scores[torch.arange(4), torch.arange(4)] = 50.0
    assert mean(mil_nce_loss(scores, released=False)) == pytest.approx(0.0, abs=1e-6)
    assert mean(mil_nce_loss(scores, released=True)) == pytest.approx(math.log(2), abs=1e-5)


def test_padded_candidates_change_nothing():
    scores = torch.randn(4, 4, 2, requires_grad=True)
    padded = torch.cat([scores, torch.full((4, 4, 3), -torch.inf)], dim=2)
    for released in (False, True):
        assert mean(mil_nce_loss(padded, released=released)) == pytest.approx(
            mean(mil_nce_loss(scores, released=released))
        )
        mil_nce_loss(padded, released=released).total.backward()
        assert torch.isfinite(scores.grad).all()


def test_the_settings_name_the_loss():
    scores = torch.randn(5, 5, 3)
    for objective, released in (("mil-nce", False), ("mil-nce-released", True)):
        named = contrastive_loss(scores, ContrastSettings(objective=objective))
        assert mean(named) == pytest.approx(mean(mil_nce_loss(scores, released=released)))
    assert mean(contrastive_loss(scores, EVERY)) == pytest.approx(mean(nce_loss(scores[:, :, 0], EVERY)))
