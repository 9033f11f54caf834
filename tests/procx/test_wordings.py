"""Further wordings of a step are right for its query too, where MIL-InfoNCE takes several positives."""

import math
from dataclasses import replace

import pytest
import torch
from silent_videos import DOINGS, TINY, samples

from stepline.procx.batch import collate
from stepline.procx.losses import AlternativeTexts, batch_losses, contrastive_loss
from stepline.procx.matcher import Matches
from stepline.procx.model import ProcX
from stepline.procx.settings import LossSettings, VocabularySettings
from stepline.procx.vocabulary import train_vocabulary

WORDS = train_vocabulary(DOINGS, VocabularySettings(size=300))
MULTIPLE = LossSettings(contrast="multiple", neighbours=0)


def pairs(*rows):
    video, step = torch.tensor(rows).T
    return Matches(torch.zeros_like(video), video, torch.arange(len(rows)), step, 0)


def test_a_further_wording_is_a_positive_of_its_step_alone():
    wordings = AlternativeTexts(torch.eye(2), torch.tensor([0, 1]), torch.tensor([2, 0]))
    found = wordings.positives(pairs((0, 1), (0, 2), (1, 0), (1, 2)))
    assert found.tolist() == [[False, False], [True, False], [False, True], [False, False]]
    near = wordings.positives(pairs((0, 1), (0, 2), (1, 0), (1, 2)), neighbours=1)
    assert near.tolist() == [[True, False], [True, False], [False, True], [False, False]]


def test_a_further_wording_shares_the_numerator():
    """One query, its own sentence across from it, another wording just like it: only the wording is near."""
    query, own = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    one, temperature = pairs((0, 0)), torch.tensor(1.0)
    right = AlternativeTexts(query, torch.tensor([0]), torch.tensor([0]))
    wrong = AlternativeTexts(query, torch.tensor([1]), torch.tensor([0]))
    assert contrastive_loss(query, own, one, temperature, MULTIPLE, right).mean == pytest.approx(0.0, abs=1e-6)
    surprise = math.log(1 + math.e)  # of exp(0) among exp(0) + exp(1); from text to query there is one choice
    assert contrastive_loss(query, own, one, temperature, MULTIPLE, wrong).mean == pytest.approx(0.5 * surprise)
    single = LossSettings(contrast="pair")
    assert contrastive_loss(query, own, one, temperature, single, wrong).mean == pytest.approx(0.0, abs=1e-6)


def test_a_batch_carries_them_to_the_loss():
    plain = samples(3)
    told = [replace(one, alternatives=tuple((f"now {text}", text) for text in one.sentences)) for one in plain]
    torch.manual_seed(0)
    network = ProcX(TINY, len(WORDS)).eval()
    batch = collate(told, WORDS, TINY)
    assert len(batch.alternatives.sentences) == 12
    assert batch.alternatives.video.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert batch.alternatives.step.tolist() == [0, 0, 1, 1] * 3
    assert collate(plain, WORDS, TINY).alternatives is None
    with_them, without = (batch_losses(network, one, MULTIPLE) for one in (batch, collate(plain, WORDS, TINY)))
    assert with_them["contrast"].mean != without["contrast"].mean
    assert with_them["caption"].mean == without["caption"].mean
    single = LossSettings(contrast="pair")
    paired, unpaired = (
        batch_losses(network, one, single)["contrast"].mean for one in (batch, collate(plain, WORDS, TINY))
    )
    assert paired == unpaired
    with_them["contrast"].mean.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in network.parameters() if weight.grad is not None)
