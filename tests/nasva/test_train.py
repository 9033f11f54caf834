import numpy as np
import pytest
import torch
from aligner_samples import sample, tiny

from stepline.nasva.settings import AlignerLossSettings
from stepline.nasva.train import shuffle_texts, train_aligner
from stepline.training.settings import TrainSettings

SAMPLES = [sample(seed, seconds=20 + seed, ordered=True) for seed in range(6)]
QUICK = TrainSettings(epochs=12, batch=3, learning_rate=3e-3, save_every=5)


def test_training_places_texts_and_resumes_bit_for_bit(tmp_path):
    network = tiny(dropout=0.1, attention_dropout=0.1, alignability=True)
    losses = []
    whole = train_aligner(SAMPLES, tmp_path / "whole", model=network, settings=QUICK, report=losses.append)
    assert losses[-1].loss < 0.6 * losses[0].loss

    def stop(progress):
        if progress.step == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_aligner(SAMPLES, tmp_path / "parts", model=network, settings=QUICK, report=stop)
    again = train_aligner(SAMPLES, tmp_path / "parts", model=network, settings=QUICK)
    for (name, weight), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(weight, other), name


def test_order_is_drawn_for_each_sample_or_for_all():
    chance = np.random.default_rng(0)
    each = [shuffle_texts(SAMPLES, AlignerLossSettings(), chance) for _ in range(100)]
    shares = [sum(one.ordered for one in drawn) / len(drawn) for drawn in each]
    assert 0.4 < np.mean(shares) < 0.6
    assert set(shares) > {0.5}
    whole = [shuffle_texts(SAMPLES, AlignerLossSettings(drawn="batch"), chance) for _ in range(100)]
    assert {sum(one.ordered for one in drawn) for drawn in whole} == {0, 6}
    never = shuffle_texts(SAMPLES, AlignerLossSettings(shuffled=0.0), chance)
    assert all(one is given for one, given in zip(never, SAMPLES, strict=True))
