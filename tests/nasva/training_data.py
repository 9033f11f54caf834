"""Stores of features and texts on disk that a small network learns from in seconds, and the
command's arguments."""

import numpy as np

from stepline.features import FeatureWriter, RowTexts

WIDTH = 12
SMALL = (
    "width=32 heads=4 encoder_layers=1 decoder_layers=2 feed_forward=48 projection=8 "
    "text_positions=16"
).split()


def write_stores(folder, videos=8, seed=0, texts=4):
    """Write video features and two kinds of text features with times; text k is shown in 3 seconds
    and looks so."""
    chance = np.random.default_rng(seed)
    kinds = {kind: FeatureWriter(folder / kind) for kind in ("video", "narration", "step")}
    for number in range(videos):
        seconds = 18 + number
        video = chance.normal(size=(seconds, WIDTH)).astype(np.float32)
        for kind in ("narration", "step"):
            vectors = chance.normal(size=(texts, WIDTH)).astype(np.float32)
            starts = [4.0 * k + (kind == "step") for k in range(texts)]
            for start, vector in zip(starts, vectors, strict=True):
                video[int(start) : int(start) + 3] += 1.5 * vector
            names = tuple(f"{kind} {k}" for k in range(texts))
            lines = RowTexts(names, tuple(starts), tuple(start + 3.0 for start in starts))
            kinds[kind].add(f"v{number}", vectors, rate=1.0, backbone="drawn", texts=lines)
        kinds["video"].add(f"v{number}", video, rate=1.0, backbone="drawn")
    for writer in kinds.values():
        writer.flush()
    return folder


def command(stores, out, *settings, kinds=("narrations", "steps"), options=()):
    """Return the arguments of `stepline train nasva`; settings: key=value of train."""
    sources = [
        part for kind in kinds for part in (f"--{kind}", str(stores / kind.removesuffix("s")))
    ]
    chosen = [f"model.{each}" for each in SMALL] + [f"train.{each}" for each in settings]
    sets = [part for each in (*chosen, "train.device=cpu") for part in ("--set", each)]
    features = ["--features", str(stores / "video")]
    return ["train", "nasva", *features, *sources, "--out", str(out), *sets, *options]
