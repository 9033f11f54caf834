"""Every network runs on the device that it is given, its inputs with it, and gives what it gives on
the CPU."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pretend_gpu import GPU, OnGpu, pretend_gpu

from stepline.models.training.settings import TrainSettings
from stepline.networks.device import set_device

sys.path += [str(Path(__file__).parent / folder) for folder in ("nasva", "procx", "vision", "wys2")]
SHORT = TrainSettings(epochs=2, batch=3, readers=0)
RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (2, 64, 80, 3), dtype=np.uint8)
TEXTS = ["cut the banana", "fold the paper twice"]


def minilm(folder):
    from stepline.text import embed

    return embed(TEXTS)


def conse(folder):
    from stepline.vision import VisionSettings, load_backbone

    return encoded(load_backbone(VisionSettings()))


def clip(folder):
    pytest.importorskip("transformers")
    from checkpoints import write_clip

    from stepline.vision import VisionSettings, load_backbone

    path = folder if (folder / "config.json").exists() else write_clip(folder)
    return encoded(load_backbone(VisionSettings(backbone="clip", path=path)))


def s3d(folder):
    from stepline.vision.s3d import S3DBackbone, TextTower, WordDictionary
    from stepline.vision.s3d_network import S3D

    torch.manual_seed(0)
    video, words = S3D().eval(), TextTower(4).eval()
    backbone = S3DBackbone(
        video.to(place()), words.to(place()), WordDictionary(["cut", "the", "fold"]), "tan"
    )
    still = np.random.default_rng(1).integers(0, 256, (1, 2, 64, 64, 3), dtype=np.uint8)
    return np.concatenate([backbone.encode_clips(still), backbone.encode_texts(TEXTS)])


def encoded(backbone):
    return np.concatenate([backbone.encode_images(PICTURES), backbone.encode_texts(TEXTS)])


def place():
    from stepline.networks.device import current_device

    return current_device().name


def nasva(folder, **loss):
    from aligner_samples import WIDTH, sample, tiny

    from lab.nasva.matrices import alignable_logits, alignment_matrices
    from stepline.models.nasva.align import score_texts
    from stepline.models.nasva.settings import AlignerLossSettings
    from stepline.models.nasva.train import make_aligner_scorer, train_aligner
    from stepline.records import FeatureSequence

    samples = [sample(seed, seconds=20 + seed) for seed in range(4)]
    settings = AlignerLossSettings(**loss)
    scorer = make_aligner_scorer(samples[3:], lambda _: None)
    given = {"loss": settings, "settings": SHORT, "scorer": scorer}
    network = train_aligner(samples[:3], folder, model=tiny(alignability=True), **given)
    rows = np.random.default_rng(2).normal(size=(30, WIDTH)).astype(np.float32)
    features = FeatureSequence(rows, 1.0, "x")
    fit = score_texts(network, features, samples[0].text)
    labels = alignment_matrices(network, samples), alignable_logits(network, samples)
    return np.concatenate(
        [fit.scores.ravel(), fit.alignability_logits, labels[0][1].ravel(), labels[1][0]]
    )


def procx(folder, form, kind):
    from small_network import VOCABULARY, sample, tiny

    from stepline.models.procx.inference import VideoToDescribe, describe_videos
    from stepline.models.procx.settings import DescribeSettings
    from stepline.models.procx.train import make_soda_scorer, train_procx
    from stepline.models.training.distributed import start_processes

    samples = [sample("a"), sample("b", rows=20), sample("c", rows=9, steps=2)]
    scorer = make_soda_scorer(samples[:1], lambda _: None)
    given = {"settings": SHORT, "device": start_processes(), "scorer": scorer}
    network = train_procx(samples, folder, vocabulary=VOCABULARY, model=tiny(form, kind), **given)
    settings = DescribeSettings(count=3, caption_weight=0.5)
    videos = [VideoToDescribe(each.values, each.duration, each.duration) for each in samples]
    steps = [
        step
        for found in describe_videos(network, VOCABULARY, videos, settings)
        for step in found.steps
    ]
    return np.array([(step.spans[0].start, step.spans[0].end, step.score) for step in steps])


def wys2(folder, score="cosine", **contrast):
    from wys2_samples import pairs

    from stepline.models.wys2.detector import score_pairs
    from stepline.models.wys2.settings import ContrastSettings, DetectorSettings
    from stepline.models.wys2.train import train_detector

    text = "frozen" if score == "dot" else "head"
    settings = DetectorSettings(
        video_width=6, text_width=6, width=8, hidden=8, score=score, text=text, dropout=0.0
    )
    network = train_detector(
        pairs(7), folder, detector=settings, contrast=ContrastSettings(**contrast), settings=SHORT
    )
    return score_pairs(network, pairs(5, seed=1))


def nearest_texts(folder):
    from stepline.sieve_swap.text_base.vectors import nearest_exact

    rows = np.random.default_rng(4).normal(size=(50, 8)).astype(np.float32)
    return nearest_exact(rows[:5], rows, 3)[1]


NETWORKS = {
    "MiniLM": minilm,
    "ConSE": conse,
    "CLIP": clip,
    "S3D": s3d,
    "NaSVA, released loss": nasva,
    "NaSVA, the paper's loss": lambda folder: nasva(folder, form="paper"),
    "ProcX": lambda folder: procx(folder, "key-aware", "transformer"),
    "PDVC": lambda folder: procx(folder, "vanilla", "lstm"),
    "WYS2": wys2,
    "WYS2, frozen texts": lambda folder: wys2(folder, "dot"),
    "WYS2, negatives drawn": lambda folder: wys2(folder, negatives=3),
    "WYS2, MIL-NCE": lambda folder: wys2(folder, objective="mil-nce"),
    "WYS2, joint score": lambda folder: wys2(folder, "joint", objective="mil-nce-released"),
    "text base": nearest_texts,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_runs_on_the_device_that_it_was_given(name, tmp_path):
    expected = NETWORKS[name](tmp_path / "cpu")
    with pretend_gpu():
        found = NETWORKS[name](tmp_path / "gpu")
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_a_network_from_a_file_is_on_the_device(tmp_path):
    from aligner_samples import released_layout, tiny

    from stepline.models.nasva.checkpoint import load_aligner, write_aligner
    from stepline.models.nasva.model import Aligner
    from stepline.networks.device import device_of

    own, released = tmp_path / "aligner.safetensors", tmp_path / "released.pth"
    write_aligner(Aligner(tiny()), own)
    torch.save(released_layout(Aligner(tiny(width=64, heads=8))), released)
    with pretend_gpu():
        for path in (own, released):
            assert device_of(load_aligner(path).network).type == GPU


def test_a_device_that_is_made_believe_reports_what_is_mixed():
    with pretend_gpu():
        layer = torch.nn.Linear(3, 4).to(GPU)
        rows = torch.ones(2, 3)
        assert isinstance(layer(rows.to(GPU)), OnGpu)
        with pytest.raises(AssertionError, match="tensors of two devices"):
            layer(rows)
        with pytest.raises(RuntimeError, match="numpy"):
            layer(rows.to(GPU)).detach().numpy()


@pytest.mark.parametrize("name", [*list(NETWORKS)[:5], "ProcX", "WYS2", "WYS2, frozen texts"])
def test_every_network_infers_in_bf16(name, tmp_path):
    expected = NETWORKS[name](tmp_path / "float32")
    set_device("cpu", "bf16")
    try:
        found = NETWORKS[name](tmp_path / "bf16")
    finally:
        set_device()
    assert found.dtype == expected.dtype
    assert np.isfinite(found).all()
    if name in ("MiniLM", "CLIP", "S3D"):  # unit rows
        assert not np.array_equal(found, expected)
        assert (found * expected).sum(1).min() > 0.999
