import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from aligner_samples import batch, sample, tiny
from torch.nn.functional import pad
from torch.testing import assert_close

from stepline.errors import ShapeError
from stepline.models.nasva import loss as loss_module
from stepline.models.nasva.loss import alignability_loss, grounding_loss
from stepline.models.nasva.model import Aligner, AlignerOutput
from stepline.models.nasva.settings import AlignerLossSettings
from stepline.models.training import layers
from stepline.models.training.batches import Batch, Sample, collate
from stepline.models.training.loop import Loss

FORMS = ["paper", "release"]
HALF = torch.tensor([[0.0], [1.0], [0.0], [1.0]])
NEVER = Sample(
    "never", sample().video, np.zeros((0, 12), np.float32), np.zeros((0, 20), bool), ordered=True
)


def settings(form, **changes):
    return AlignerLossSettings(form=form, **changes)


def loss_and_gradients(data, form, model=None):
    """Return the mean loss of a fresh network, and the gradients of all its weights in one row."""
    torch.manual_seed(0)
    model = model or Aligner(tiny())
    loss = grounding_loss(model(data), data, settings(form)).mean
    loss.backward()
    return loss.item(), torch.cat(
        [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    )


def past_the_end():
    """A video cut at 10 of 20 seconds, whose only text is shown in second 15."""
    late = np.zeros((1, 20), bool)
    late[0, 15] = True
    return collate([replace(sample(1, texts=1), positive=late)], max_rows=10)


UNLABELLED = {
    "no label": collate([sample(1, labelled=False), sample(2, seconds=9, labelled=False)]),
    "no text": collate([NEVER]),
    "label past the end": past_the_end(),
    "label in padding": replace(
        batch(), positive=batch().video_pad[:, None] | batch().text_pad[..., None]
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", UNLABELLED)
def test_nothing_to_learn_gives_exactly_no_loss_and_no_gradient(case, form):
    loss, gradients = loss_and_gradients(UNLABELLED[case], form)
    assert loss == 0
    assert gradients.abs().max() == 0


def keeping(*labels):
    """A sample that keeps the labels of those of its texts whose place has a 1."""
    kept = np.array(labels, bool)[:, None]
    return replace(sample(1), positive=sample(1).positive & kept)


PARTLY = {
    "one video without texts": collate([NEVER, sample(1)]),
    "one video without labels": collate([sample(2, labelled=False), sample(1)]),
    "one text without a label": collate([keeping(1, 0, 1, 1)]),
    "a video all padding": replace(batch(), video_pad=torch.tensor([[False] * 20, [True] * 20])),
    "rows of zeros": replace(
        batch(), video=batch().video * (torch.arange(20) > 8)[:, None], text=batch().text * HALF
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", PARTLY)
def test_a_corner_of_the_batch_never_makes_the_rest_infinite(case, form):
    loss, gradients = loss_and_gradients(PARTLY[case], form)
    assert 0 < loss < 40
    assert bool(gradients.isfinite().all())
    # LayerNorm of a row of zeros multiplies by 316; F.normalize by 1e12
    assert 0 < gradients.abs().max() < 1e5


@pytest.mark.parametrize("form", FORMS)
def test_a_vector_of_no_length_passes_no_gradient(form):
    torch.manual_seed(0)
    model = Aligner(tiny())
    torch.nn.init.zeros_(model.text_out.weight)
    loss, gradients = loss_and_gradients(batch(), form, model)
    assert 0 < loss < 40
    assert gradients.abs().max() == 0


def test_a_label_on_padding_counts_for_nothing():
    data = batch()
    smeared = replace(
        data, positive=data.positive | data.video_pad[:, None] | data.text_pad[..., None]
    )
    for form in FORMS:
        assert loss_and_gradients(smeared, form)[0] == loss_and_gradients(data, form)[0]


@pytest.mark.parametrize("form", FORMS)
def test_more_padding_changes_nothing_but_the_rows_that_release_counts(form):
    torch.manual_seed(0)
    model = Aligner(tiny())
    data = batch()
    wide = collate([sample(1, ordered=True), sample(2, seconds=14, texts=3, ordered=True)])
    more = {name: pad(getattr(wide, name), (0, 0, 0, 3)) for name in ("text", "positive")}
    wide = replace(wide, text_pad=pad(wide.text_pad, (0, 3), value=True), **more)
    there, here = (grounding_loss(model(one), one, settings(form)).total for one in (wide, data))
    assert_close(there, here, atol=2e-5, rtol=0)


def hand_made():
    """One text, two seconds at cosine 0.6 and 0.8; the first is shown."""
    aligned = AlignerOutput(
        torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[0.6, 0.8], [0.8, -0.6]]]), None
    )
    no = torch.zeros(1, 2, dtype=torch.bool)
    data = Batch(
        ("v",),
        aligned.video,
        no,
        aligned.text[0],
        no[:, :1],
        torch.tensor([[[True, False]]]),
        no[:, 0],
    )
    return aligned, data


def test_the_loss_is_the_one_worked_by_hand():
    aligned, data = hand_made()
    expected = math.log(1 + math.exp((0.8 - 0.6) / 0.1))
    loss = grounding_loss(aligned, data, settings("paper", temperature=0.1))
    assert_close(loss.mean, torch.tensor(expected))
    assert loss.count == 1


def test_both_forms_agree_on_one_video_whose_texts_are_all_labelled():
    torch.manual_seed(0)
    model, data = Aligner(tiny(decoder_layers=1)), collate([sample(1)])
    paper = grounding_loss(model(data), data, settings("paper")).mean
    assert_close(grounding_loss(model(data), data, settings("release")).mean, paper)


def test_forms_differ_by_rivals_rows_and_layers():
    torch.manual_seed(0)
    model, data = Aligner(tiny()), batch()
    aligned = model(data)
    paper, release = (grounding_loss(aligned, data, settings(form)) for form in FORMS)
    assert (paper.count, release.count) == (7, 8)  # 4 + 3 labelled texts; 2 videos x 4 rows
    last = replace(aligned, text=aligned.text[-1:])
    assert_close(grounding_loss(last, data, settings("paper")).mean, paper.mean)
    assert grounding_loss(last, data, settings("release")).mean != release.mean
    assert release.total > paper.total  # more rivals


def test_the_official_case_gives_the_official_loss(shared):
    case = json.loads((shared / "metric_cases" / "nasva_loss.json").read_text())
    cosines = torch.tensor(case["sim(before/0.07) rows=B*S cols=B*T"])  # (6, 8)
    # (8, 8), unit rows, so that text = cosines @ video
    video = torch.linalg.qr(torch.randn(8, 8))[0]
    aligned = AlignerOutput((cosines @ video).view(1, 2, 3, 8), video.view(2, 4, 8), None)
    masks = {
        name: torch.tensor(case[name])
        for name in ("visual_padding_mask", "text_padding_mask", "time_mask")
    }
    data = Batch(
        ("a", "b"),
        aligned.video,
        masks["visual_padding_mask"],
        aligned.text[0],
        masks["text_padding_mask"],
        masks["time_mask"],
        torch.zeros(2, dtype=torch.bool),
    )
    expected = {
        "release": "loss_official_code(batch-wide negatives, mean over B*S incl. null/padded rows)",
        "paper": "mean_over_valid(paper eq)",
    }
    for form, name in expected.items():
        found = grounding_loss(aligned, data, settings(form)).mean.item()
        assert found == pytest.approx(case[name], abs=2e-5)


def test_sums_of_two_processes_make_the_mean_of_one():
    torch.manual_seed(0)
    model, videos = Aligner(tiny()), [sample(1), sample(2, texts=2)]
    parts = [grounding_loss(model(collate([one])), collate([one])) for one in videos]
    whole = grounding_loss(model(collate(videos)), collate(videos)).mean
    both = Loss(sum(part.total for part in parts), sum(part.count for part in parts))
    assert_close(both.mean, whole, atol=1e-5, rtol=0)


def test_kept_labels_are_the_alignable_texts():
    data = collate([keeping(1, 0, 1, 1), sample(2, texts=2)])
    sure = torch.tensor([[20.0, -20.0, 20.0, 20.0], [20.0, 20.0, 0.0, 0.0]])  # padding counts not
    loss = alignability_loss(AlignerOutput(data.text[None], data.video, sure), data)
    assert int(loss.count) == 6
    assert loss.mean.item() == pytest.approx(0.0, abs=1e-6)


def test_the_alignability_head_learns_from_its_targets():
    torch.manual_seed(0)
    model = Aligner(tiny(alignability=True))
    data = collate([keeping(1, 0, 1, 0), sample(2, texts=2)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = None
    for _ in range(40):
        loss = alignability_loss(model(data), data).mean
        first = loss.item() if first is None else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5 * first
    nothing = collate([NEVER])
    assert alignability_loss(model(nothing), nothing).mean.item() == 0


def test_without_the_head_its_loss_is_refused():
    with pytest.raises(ShapeError, match=r"set model\.alignability=true"):
        alignability_loss(Aligner(tiny())(batch()), batch())


def test_rivals_block_by_block_equal_the_whole_matrix(monkeypatch):
    monkeypatch.setattr(layers, "LOG_SUM_EXP_ROWS", 3)
    torch.manual_seed(0)
    text, video = (torch.randn(*shape, requires_grad=True) for shape in ((2, 2, 4, 5), (2, 6, 5)))
    padded = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    found = loss_module._log_sum_exp_over_batch(text, video, padded)  # (2, 2, 4)
    logits = torch.einsum("lbkd,csd->lbkcs", text, video).masked_fill(padded, -1e4)
    expected = logits.flatten(3).logsumexp(dim=3)
    assert_close(found, expected)
    weights = torch.randn(2, 2, 4)
    gradients = (
        torch.autograd.grad((out * weights).sum(), (text, video)) for out in (found, expected)
    )
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)
