"""PDVC's weights in Stepline's network: the same boxes, confidences, counts, captions and choice.

The expected numbers are what ttengwang/PDVC @0b025c8 gave on a CPU: `resizeFeature`, `PDVC` with the
heads of its YouCook2 configuration, `PostProcess` and `reranking`. Its encoder and decoder read
zeros outside of a video, as its CUDA kernel does and its code for a CPU does not. Its captioner read
at the box of the last layer instead of the one before (docs/procx.md), and as everywhere the nearest
row outside of a video. The losses of training are those of `SetCriterion` with `HungarianMatcher`, and
rates of counts that are made here.
"""

import json
from pathlib import Path

import numpy as np
import pdvc_files as files
import pdvc_losses
import pytest
import torch

from stepline.models.procx import inference
from stepline.models.procx.losses import compute_localization_losses
from stepline.models.procx.matcher import Targets
from stepline.models.procx.model import Predictions, ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DescribeSettings,
    LossSettings,
    ModelSettings,
)
from stepline.models.procx.vocabulary import BEGIN_TOKEN, END_TOKEN, PAD_TOKEN

EXPECTED = json.loads((Path(__file__).parent / "pdvc_numbers.json").read_text())
MARKS = 3  # padding, begin and end; PDVC has one mark, 0, for all
LAYERS = {"offsets": "sampling_offsets", "weights": "attention_weights"}
LAYERS |= {"value": "value_proj", "out": "output_proj"}


def names():
    """Yield our name of each module and PDVC's."""
    for level in range(4):
        for n in (0, 1):
            yield f"pyramid.steps.{level}.{n}", f"base_encoder.input_proj.{level}.{n}"
    yield "places.duration", "base_encoder.pos_embed.duration_embed_layer"
    yield "reference", "transformer.reference_points"
    for n in range(2):
        encoder, decoder = f"transformer.encoder.layers.{n}", f"transformer.decoder.layers.{n}"
        for ours, theirs in LAYERS.items():
            yield f"encoder.{n}.attention.{ours}", f"{encoder}.self_attn.{theirs}"
            yield f"decoder.{n}.attention.{ours}", f"{decoder}.cross_attn.{theirs}"
        for part, place in (("encoder", encoder), ("decoder", decoder)):
            yield f"{part}.{n}.attention_norm", f"{place}.norm1"
            yield f"{part}.{n}.feed.feed.wide", f"{place}.linear1"
            yield f"{part}.{n}.feed.feed.narrow", f"{place}.linear2"
        yield f"encoder.{n}.feed.norm", f"{encoder}.norm2"
        yield f"decoder.{n}.feed.norm", f"{decoder}.norm3"
        yield f"decoder.{n}.among_norm", f"{decoder}.norm2"
        yield f"decoder.{n}.among.out", f"{decoder}.self_attn.out_proj"
        yield f"heads.{n}.sure", f"class_head.{n}"
        yield f"heads.{n}.count", f"count_head.{n}"
        yield from ((f"heads.{n}.box.{2 * m}", f"bbox_head.{n}.layers.{m}") for m in range(3))
    attention = "caption_head.0.core"
    looking = {"offsets": "deformable_att.sampling_offsets", "value": "deformable_att.value_proj"}
    looking |= {"hint": "ctx2att", "hidden": "h2att", "share": "alpha_net"}
    for ours, theirs in looking.items():
        yield f"captioner.looking.{ours}", f"{attention}.{theirs}"


def by_word(table):
    """Return PDVC's rows of words (V + 1, ...) as ours: no padding, begin and end are its row 0."""
    blank = torch.zeros_like(table[:1])
    return torch.cat((blank, table[:1], table[:1], table[1:]))


def state_of_pdvc(shapes):
    """Return the state dict of our network with PDVC's weights. shapes: of our network."""
    width = files.WIDTH
    modules = {
        f"{ours}.{kind}": f"{theirs}.{kind}"
        for ours, theirs in names()
        for kind in ("weight", "bias")
    }
    theirs = {theirs: shapes[ours] for ours, theirs in modules.items()}
    for n in range(2):
        attention = f"transformer.decoder.layers.{n}.self_attn.in_proj"
        theirs |= {f"{attention}_weight": (3 * width, width), f"{attention}_bias": (3 * width,)}
    words, head = files.WORDS + 1, "caption_head.0"
    theirs |= {
        "transformer.level_embed": (4, width),
        "query_embed.weight": (files.QUERIES, 2 * width),
        f"{head}.embed.weight": (words, width),
        f"{head}.logit.weight": (words, width),
        f"{head}.logit.bias": (words,),
        f"{head}.core.rnn.weight_ih_l0": (4 * width, 3 * width),
        f"{head}.core.rnn.weight_hh_l0": (4 * width, width),
    }
    given = files.network_state(theirs)
    state = {ours: given[theirs] for ours, theirs in modules.items()}
    state["places.level"] = given["transformer.level_embed"]
    places, queries = given["query_embed.weight"].chunk(2, dim=1)
    state |= {"query_places.weight": places, "queries.weight": queries}
    for n in range(2):
        for kind in ("weight", "bias"):
            joint = given[f"transformer.decoder.layers.{n}.self_attn.in_proj_{kind}"]
            state[f"decoder.{n}.among.asked.{kind}"] = joint[: 2 * width]
            state[f"decoder.{n}.among.value.{kind}"] = joint[2 * width :]
    word, seen, query = given[f"{head}.core.rnn.weight_ih_l0"].chunk(3, dim=1)
    state["captioner.fed.weight"] = torch.cat((word, query), dim=1)
    state["captioner.kept.weight"] = torch.cat((seen, given[f"{head}.core.rnn.weight_hh_l0"]), 1)
    for part in ("fed", "kept"):  # PDVC's gates have no biases
        state[f"captioner.{part}.bias"] = torch.zeros(4 * width)
    state["captioner.words.weight"] = by_word(given[f"{head}.embed.weight"])
    state["captioner.out.weight"] = by_word(given[f"{head}.logit.weight"])
    state["captioner.out.bias"] = by_word(given[f"{head}.logit.bias"])
    # PDVC's one mark has one chance
    state["captioner.out.bias"][[PAD_TOKEN, BEGIN_TOKEN]] = -1e9
    state["temperature.logarithm"] = torch.zeros(())  # of ProcX's contrastive loss
    return state


@pytest.fixture(scope="module")
def model():
    settings = ModelSettings(
        features=files.FEATURES,
        rows=files.ROWS,
        standardise=False,
        attention=AttentionSettings(form="vanilla"),
        encoder_layers=2,
        decoder_layers=2,
        feed_forward=files.FEED_FORWARD,
        queries=files.QUERIES,
        most_steps=files.MOST_STEPS,
        fuse=False,
        captioner=CaptionerSettings(kind="lstm", longest=files.LONGEST),
    )
    network = ProcX(settings, files.WORDS + MARKS)
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    network.load_state_dict(state_of_pdvc(shapes))
    return network.eval()


@pytest.fixture(scope="module")
def answers(model):
    videos = files.VIDEOS
    rows = [files.features(id) for id in videos]
    return inference.propose(model, rows, [seconds for _, seconds in videos.values()])


@pytest.mark.parametrize("part", ["logits", "boxes", "counts"])
def test_every_layer_predicts_what_pdvc_predicts(answers, part):
    predicted = getattr(answers[0].predictions, part)
    for number, id in enumerate(files.VIDEOS):
        for layer in range(2):
            wanted = torch.tensor(EXPECTED[id][part][layer])
            found = predicted[layer, number].flatten()
            torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)


def test_captions_and_choice_are_those_of_pdvc(model, answers):
    output, proposals = answers
    queries = [range(files.QUERIES)] * len(proposals)
    captions = inference.generate_captions(model, output, queries)
    for id, own, said in zip(files.VIDEOS, proposals, captions, strict=True):
        expected = EXPECTED[id]
        words = [[word for word in row if word] for row in expected["captions at own boxes"]]
        assert [[token - MARKS + 1 for token in each.tokens] for each in said] == words
        assert [each.log_probability for each in said] == pytest.approx(expected["log p"], abs=1e-4)
        likelihood = inference.compute_caption_likelihood(said, 1.0)
        ranked = own.__class__(own.confidence, own.boxes, own.step_count, likelihood)
        chosen = inference.select_proposals(ranked, DescribeSettings(caption_weight=1.0))
        assert chosen == [query for query, *_ in expected["chosen own"]]
        spans = [span for _, span, _ in expected["chosen own"]]
        np.testing.assert_allclose(own.boxes[chosen], spans, atol=2e-3)
        joint = [score for *_, score in expected["chosen own"]]
        np.testing.assert_allclose((own.confidence + likelihood)[chosen], joint, atol=1e-4)

    # the end is the mark that PDVC ends with
    assert END_TOKEN == MARKS - 1


def test_the_losses_of_training_and_their_gradients_are_pdvcs():
    expected = EXPECTED["losses"]
    outputs = {name: value.requires_grad_() for name, value in pdvc_losses.outputs().items()}
    steps = pdvc_losses.targets()
    lengths = torch.tensor([len(boxes) for boxes in steps])
    padded = torch.nn.utils.rnn.pad_sequence(steps, batch_first=True)  # (B, K, 2)
    targets = Targets(padded, torch.arange(padded.shape[1]) >= lengths[:, None])
    options = (LossSettings(confidence="focal"), pdvc_losses.rates())
    losses, matches = compute_localization_losses(Predictions(**outputs), targets, *options)
    pairs = [
        (layer, video, query, step)
        for layer, videos in enumerate(expected["matches"])
        for video, found in enumerate(videos)
        for query, step in found
    ]
    columns = (matches.layer, matches.video, matches.query, matches.step)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == pairs
    values = {name: loss.mean for name, loss in losses.items()}
    for name, value in values.items():
        assert value.item() == pytest.approx(expected[name], rel=1e-5), name
    total = 4 * values["giou"] + 2 * values["confidence"] + 0.5 * values["count"]
    gradients = torch.autograd.grad(total, list(outputs.values()))
    norms = [gradient.norm().item() for gradient in gradients]
    assert norms == pytest.approx(list(expected["gradients"].values()), rel=1e-5)
