"""A PDVC of 512 channels, which is the least that its code takes, with two layers and small heads, and
three videos."""

import closed_forms

FEATURES, ROWS, QUERIES, MOST_STEPS, FEED_FORWARD, WORDS, LONGEST = 12, 24, 7, 5, 32, 17, 8
WIDTH = 512
VIDEOS = {"pour": (31, 61.3), "whisk": (24, 300.5), "bake": (9, 20.0)}  # id -> rows, seconds


def features(id):
    """Return the feature rows (T, FEATURES) of a video."""
    return closed_forms.rows(id, VIDEOS[id][0], FEATURES)


def network_state(shapes):
    """Return PDVC's weights by its names. Layers that share a head, and what only proposals read, are
    left out."""
    shared = ("transformer.decoder.bbox_head", "caption_head.1", "transformer.pos_trans")
    own = {name: shape for name, shape in shapes.items() if not name.startswith(shared)}
    state = closed_forms.weights(own)
    # points that reach past both ends of a video, boxes of all lengths, sentences that differ and end
    factors = {"sampling_offsets.bias": 10, "layers.2.weight": 3}
    factors |= {"embed.weight": 12, "logit.weight": 5}
    for name in state:
        for ending, factor in factors.items():
            if name.endswith(ending):
                state[name] = factor * state[name]
    state["caption_head.0.logit.bias"][0] = 0.35
    state["count_head.1.bias"][3] += 2
    return state
