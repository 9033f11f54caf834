"""Contrastive losses on the scores of a batch: WYS2's NCE, and MIL-NCE in its correct and its released form.

Letters: B clips, P candidate texts of a clip. scores (B, B, P): of clip i with candidate p of clip j, -inf on padding.
"""

import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.training.loss import Loss
from stepline.wys2.settings import ContrastSettings


def contrast(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return the loss that the settings name. Raises ShapeError for a batch of one clip, which has no rival."""
    if scores.ndim != 3 or scores.shape[0] != scores.shape[1]:
        raise ShapeError(f"scores must be (B, B, P), not {tuple(scores.shape)}")
    if settings.objective == "nce":
        return nce(scores[:, :, 0], settings)
    return mil_nce(scores, released=settings.objective == "mil-nce-released")


def nce(scores: Tensor, settings: ContrastSettings) -> Loss:
    """Return -log of the share of each clip's own text among it and its rivals (WYS2, the equation of section 3.2).

    scores: (B, B), clip by text. Rivals are pairs of the batch that share the clip ("texts"), the text ("videos"), or
    as many of each, of an odd number one text more; which ones is drawn with torch's random numbers.
    """
    own = scores.diagonal()  # (B,)
    texts, videos = _shares(settings)
    rivals = []
    if texts != 0:
        rivals.append(_drawn(scores, texts))
    if videos != 0:
        rivals.append(_drawn(scores.T, videos))
    every = torch.cat([own[:, None], *rivals], dim=1)  # (B, 1 + rivals)
    return Loss((every.logsumexp(1) - own).sum(), torch.tensor(float(len(own))))


def mil_nce(scores: Tensor, *, released: bool) -> Loss:
    """Return MIL-NCE: -log of the share of a clip's candidates among them, its other texts and their other clips.

    released: as its published code does, a clip's own candidates are counted twice below, so that a perfect model's
    loss is log 2 and not 0. Source: Miech et al. 2020, equation 1.
    """
    b = len(scores)
    mine = scores[torch.arange(b), torch.arange(b)]  # (B, P)
    rows, columns = scores.flatten(1), scores.transpose(0, 1).flatten(1)  # (B, B P): with its clip, with its texts
    if not released:
        diagonal = torch.eye(b, dtype=torch.bool, device=scores.device)
        columns = scores.transpose(0, 1).masked_fill(diagonal[:, :, None], -torch.inf).flatten(1)
    every = torch.cat([rows, columns], dim=1)
    return Loss((every.logsumexp(1) - mine.logsumexp(1)).sum(), torch.tensor(float(b)))


def _shares(settings: ContrastSettings) -> tuple[int | None, int | None]:
    """Return how many rivals are other texts and how many other clips; None: all of the batch."""
    count = settings.negatives
    if settings.rivals == "texts":
        return count, 0
    if settings.rivals == "videos":
        return 0, count
    return (None, None) if count is None else ((count + 1) // 2, count // 2)


def _drawn(scores: Tensor, count: int | None) -> Tensor:
    """Return (B, count): of each row, that many scores off the diagonal, or all of them."""
    b = len(scores)
    if b < 2:
        raise ShapeError("a batch of one clip holds no rival; raise train.batch, or give more clips")
    chance = torch.rand(b, b, device=scores.device).fill_diagonal_(2.0)  # the diagonal comes last
    chosen = chance.argsort(1)[:, : min(b - 1, b - 1 if count is None else count)]
    return scores.gather(1, chosen)
