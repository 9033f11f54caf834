import torch

from stepline.training.loop import Loss


def test_a_loss_is_divided_by_what_it_is_over_and_weighted_before():
    loss = Loss(torch.tensor(6.0), torch.tensor(4))
    assert (float(loss.mean), float(loss.weighted(0.5).mean)) == (1.5, 0.75)


def test_a_loss_over_nothing_is_zero():
    assert float(Loss(torch.tensor(0.0), torch.tensor(0)).mean) == 0.0
