"""Small networks and batches for the tests of the grounding network."""

import math

import numpy as np
import torch

from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.models.training.batches import Sample, collate

WIDTH = 12  # of the features


def tiny(**changes):
    """Settings of a network that trains in a second; without dropout, so that equal inputs give
    equal outputs."""
    sizes = {"video_width": WIDTH, "text_width": WIDTH, "width": 32, "heads": 4}
    sizes |= {"encoder_layers": 1, "decoder_layers": 2, "feed_forward": 48, "projection": 8}
    return AlignerNetworkSettings(**(sizes | {"text_positions": 16, "dropout": 0.0} | changes))


def sample(seed=0, *, seconds=20, texts=4, ordered=False, labelled=True):
    """A video whose text k is shown in the 3 seconds from 4 k on, and looks like them."""
    chance = np.random.default_rng(seed)
    text = chance.normal(size=(texts, WIDTH)).astype(np.float32)
    video = chance.normal(size=(seconds, WIDTH)).astype(np.float32)
    positive = np.zeros((texts, seconds), dtype=bool)
    for k in range(texts if labelled else 0):
        positive[k, 4 * k : 4 * k + 3] = True
        video[positive[k]] += 2 * text[k]
    return Sample(f"v{seed}", video, text, positive, ordered)


def batch(*samples):
    """A batch of the given samples, or of two videos of unlike length."""
    unlike = sample(1, ordered=True), sample(2, seconds=14, texts=3, ordered=True)
    return collate(samples or unlike)


# Names of the released code and ours; the layers, N, are filled in.
RELEASED_NAMES = {
    "visual_proj": "video_in",
    "text_proj": "text_in",
    "text_pos_enc": "text_place",
    "v_sim_proj": "video_out",
    "t_sim_proj": "text_out",
    "decoder.norm": "decoder_norm",
    "visual_encoder.layers.N.self_attn.in_proj_": "encoder.N.attention.project.",
    "visual_encoder.layers.N.self_attn.out_proj": "encoder.N.attention.out",
    "visual_encoder.layers.N.norm1": "encoder.N.attention_norm",
    "visual_encoder.layers.N.norm2": "encoder.N.feed_norm",
    "visual_encoder.layers.N.linear1": "encoder.N.feed.wide",
    "visual_encoder.layers.N.linear2": "encoder.N.feed.narrow",
    "decoder.layers.N.self_attn.in_proj_": "decoder.N.self_attention.project.",
    "decoder.layers.N.self_attn.out_proj": "decoder.N.self_attention.out",
    "decoder.layers.N.multihead_attn.in_proj_": "decoder.N.cross_attention.project.",
    "decoder.layers.N.multihead_attn.out_proj": "decoder.N.cross_attention.out",
    "decoder.layers.N.norm1": "decoder.N.self_norm",
    "decoder.layers.N.norm2": "decoder.N.cross_norm",
    "decoder.layers.N.norm3": "decoder.N.feed_norm",
    "decoder.layers.N.linear1": "decoder.N.feed.wide",
    "decoder.layers.N.linear2": "decoder.N.feed.narrow",
}


def released_layout(network):
    """Return a network as NaSVA's authors released theirs: {"epoch", "model_state_dict"} with all
    of its keys."""
    width, state = network.settings.width, {}
    for ours, value in network.state_dict().items():
        numbers = [part for part in ours.split(".") if part.isdigit()]
        layer = numbers[0] if numbers and ours.startswith(("enc", "dec")) else ""
        for theirs, name in RELEASED_NAMES.items():
            begin = name.replace("N", layer)
            if ours.startswith(begin if begin.endswith(".") else f"{begin}."):
                state[theirs.replace("N", layer) + ours.removeprefix(begin)] = value
    assert len(state) == len(network.state_dict())
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angle = torch.arange(5000)[:, None] * rates
    places = torch.stack([angle.sin(), angle.cos()], dim=2)
    state["visual_pos_enc.pe"] = places.reshape(1, 5000, width)
    state |= {"alignable_head.weight": torch.zeros(2, width), "alignable_head.bias": torch.zeros(2)}
    sizes = zip(range(3), (width, width // 2, width // 2), (width // 2, width // 2, 1), strict=True)
    for n, inner, outer in sizes:
        state[f"timestamp_head.0.layers.{n}.weight"] = torch.zeros(outer, inner)
        state[f"timestamp_head.0.layers.{n}.bias"] = torch.zeros(outer)
    return {"epoch": 20, "model_state_dict": state}
