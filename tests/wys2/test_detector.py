"""The detector, its losses, and its file."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from wys2_samples import pairs

from stepline.errors import DatasetError, ModelError, ShapeError
from stepline.models.training.network import FeatureSpace
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.clips import ClipTextPair, collate_pairs, make_feature_pair
from stepline.models.wys2.detector import (
    Detector,
    contrastive_loss,
    mil_nce_loss,
    nce_loss,
    read_detector,
    score_pairs,
    write_detector,
)
from stepline.models.wys2.settings import ContrastSettings, DetectorSettings
from stepline.models.wys2.train import train_detector
from stepline.records import FeatureSequence, Span

SMALL = DetectorSettings(video_width=6, text_width=6, hidden=16, width=8)
FAST = TrainSettings(epochs=120, batch=12, learning_rate=0.01, weight_decay=0.0, save_every=10_000)
FORMS = [
    {"score": score, "text": text}
    for score in ("dot", "cosine", "joint")
    for text in ("head", "frozen")
]


def made(**changes):
    torch.manual_seed(0)
    return Detector(SMALL.model_copy(update=changes)).eval()


@pytest.mark.parametrize("form", FORMS)
def test_one_batch_can_be_overfitted(form, tmp_path):
    detector = SMALL.model_copy(update=form)
    known = pairs(12)
    every = ContrastSettings(negatives=None)
    learnt = train_detector(known, tmp_path, detector=detector, contrast=every, settings=FAST)
    scores = learnt(collate_pairs(known))[:, :, 0]
    assert scores.argmax(1).tolist() == list(range(12))


@pytest.mark.parametrize("objective", ["nce", "mil-nce", "mil-nce-released"])
def test_training_makes_the_own_text_score_above_others(objective, tmp_path):
    known, unseen = pairs(200), pairs(40, seed=0)
    settings = FAST.model_copy(update={"epochs": 15, "batch": 32})
    contrast = ContrastSettings(objective=objective)
    learnt = train_detector(known, tmp_path, detector=SMALL, contrast=contrast, settings=settings)
    scores = learnt(collate_pairs(unseen))[:, :, 0]
    assert (scores.diagonal() > scores.median(1).values).float().mean() > 0.9


@pytest.mark.parametrize("form", FORMS)
def test_padding_never_changes_a_score(form):
    detector = made(**form)
    short, long = pairs(3, rows=2), pairs(3, rows=5, seed=1)
    alone = score_pairs(detector, short)
    np.testing.assert_allclose(score_pairs(detector, short + long)[:3], alone, atol=1e-5)
    together, apart = (score_pairs(detector, short + long, at_once=count) for count in (6, 1))
    np.testing.assert_allclose(apart, together, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_clips_own_score_is_the_diagonal_of_all_scores(form):
    detector, known = made(**form), pairs(4)
    batch = collate_pairs(known)
    with torch.no_grad():
        torch.testing.assert_close(
            detector.score_matched_pairs(batch), detector(batch)[:, :, 0].diagonal()
        )


def test_missing_candidates_score_nothing():
    three = [ClipTextPair(p.id, p.video, np.repeat(p.text, 3, axis=0)) for p in pairs(1)]
    with torch.no_grad():
        scores = made()(collate_pairs([*three, *pairs(1, seed=1)]))
    assert torch.isfinite(scores[:, 0]).all()
    assert torch.isfinite(scores[:, 1, 0]).all()
    assert (scores[:, 1, 1:] == -torch.inf).all()


def test_raw_scores_grow_with_length_and_cosines_do_not():
    [pair] = pairs(1)
    longer = ClipTextPair("longer", pair.video, 3 * pair.text)
    dot, cosine = made(text="frozen", score="dot"), made(text="frozen", score="cosine")
    np.testing.assert_allclose(score_pairs(dot, [longer]), 3 * score_pairs(dot, [pair]), rtol=1e-5)
    np.testing.assert_allclose(
        score_pairs(cosine, [longer]), score_pairs(cosine, [pair]), rtol=1e-5
    )
    assert abs(score_pairs(cosine, [pair])[0]) <= 1 / 0.1 + 1e-4  # cosine over temperature


def test_frames_train_s3d_from_end_to_end(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (3, 2, 32, 32, 3), dtype=np.uint8)
    rows = rng.standard_normal((3, 1, 6)).astype(np.float32)
    known = [ClipTextPair(str(n), frames[n], row) for n, row in enumerate(rows)]
    detector = DetectorSettings(video="s3d", text_width=6, width=8)
    fresh = TrainSettings(epochs=1, batch=3, learning_rate=1e-3)
    torch.manual_seed(fresh.seed)
    before = Detector(detector).video.s3d.conv1.conv1.weight.clone()
    learnt = train_detector(known, tmp_path, detector=detector, settings=fresh)
    assert not torch.equal(learnt.video.s3d.conv1.conv1.weight, before)
    assert np.isfinite(score_pairs(learnt, known)).all()
    with pytest.raises(ShapeError, match="frames"):
        score_pairs(learnt, pairs(1))


def test_a_pair_is_the_rows_of_its_clip():
    features = FeatureSequence(np.arange(10, dtype=np.float32)[:, None], 1.0, "b")
    text = np.ones((1, 2), np.float32)
    assert make_feature_pair("v", features, Span(2.0, 5.0), text).video[:, 0].tolist() == [2, 3, 4]
    pair = make_feature_pair("v", features, Span(2.5, 5.5), text)
    assert pair.video[:, 0].tolist() == [2, 3, 4, 5]
    assert make_feature_pair("v", features, Span(11.0, 14.0), text).video[:, 0].tolist() == [9]


@pytest.mark.parametrize(
    ("video", "text"),
    [
        (np.zeros((0, 6), np.float32), np.ones((1, 6), np.float32)),
        (np.zeros((3, 6)), np.ones((1, 6), np.float32)),
        (np.full((3, 6), np.nan, np.float32), np.ones((1, 6), np.float32)),
        (np.zeros((3, 6), np.float32), np.ones((0, 6), np.float32)),
        (np.zeros((3, 6), np.float32), np.ones(6, np.float32)),
    ],
)
def test_clips_and_texts_of_another_form_are_refused(video, text):
    with pytest.raises(ShapeError, match="v:"):
        ClipTextPair("v", video, text)


def test_features_of_another_width_are_reported():
    with pytest.raises(ShapeError, match="6 wide, the detector takes 5"):
        score_pairs(made(video_width=5), pairs(2))
    with pytest.raises(ShapeError, match="6 wide, the detector takes 5"):
        score_pairs(made(text_width=5), pairs(2))
    with pytest.raises(ShapeError, match="at least one clip"):
        collate_pairs([])


def test_one_positive_cannot_be_contrasted(tmp_path):
    with pytest.raises(DatasetError, match="1 positive clips"):
        train_detector(pairs(1), tmp_path, detector=SMALL)


def test_an_epochs_last_pair_alone_teaches_nothing_and_harms_nothing(tmp_path):
    settings = TrainSettings(epochs=1, batch=2, learning_rate=1e-3)
    learnt = train_detector(pairs(3), tmp_path, detector=SMALL, settings=settings)
    assert all(torch.isfinite(weight).all() for weight in learnt.parameters())


def test_a_detector_reads_back_what_was_written(tmp_path):
    detector, path = made(score="cosine"), tmp_path / "detector.safetensors"
    write_detector(detector, path, video="s3d", text="minilm")
    np.testing.assert_array_equal(
        score_pairs(read_detector(path)[1], pairs(5)), score_pairs(detector, pairs(5))
    )
    assert read_detector(path)[1].settings == detector.settings
    assert read_detector(path)[0] == FeatureSpace("s3d", "minilm", None)


def test_a_file_that_is_not_a_detector_is_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ModelError, match="not a WYS2 detector of Stepline"):
        read_detector(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ModelError, match="not a WYS2 detector of Stepline"):
        read_detector(path)
    detector = made()
    detector.text[1].bias.data.fill_(float("nan"))
    write_detector(detector, path)
    with pytest.raises(ModelError, match=r"text\.1\.bias holds NaN"):
        read_detector(path)


MILNCE = Path(__file__).parents[3] / "shared" / "metric_cases" / "milnce.json"
EVERY = ContrastSettings(negatives=None)


def mean(loss):
    return float((loss.total / loss.count).detach())


def test_nce_is_the_share_of_the_own_text_among_all():
    scores = torch.log(torch.tensor([[2.0, 1.0, 1.0], [1.0, 4.0, 3.0], [5.0, 4.0, 1.0]]))
    shares = [2 / 4, 4 / 8, 1 / 10]
    assert mean(nce_loss(scores, EVERY)) == pytest.approx(-sum(map(math.log, shares)) / 3)


@pytest.mark.parametrize("count", [3, 4])
def test_as_many_rivals_are_drawn_as_asked_for(count):
    scores = torch.zeros(20, 20)  # every pair alike: the loss counts them
    loss = nce_loss(scores, ContrastSettings(negatives=count))
    assert mean(loss) == pytest.approx(math.log(1 + count))


def test_the_own_text_is_never_its_own_rival():
    scores = torch.full((6, 6), -50.0).fill_diagonal_(50.0)
    for _ in range(20):
        assert mean(nce_loss(scores, ContrastSettings())) == pytest.approx(0.0, abs=1e-6)


def test_a_batch_smaller_than_the_rivals_gives_all_it_has():
    assert mean(nce_loss(torch.zeros(3, 3), ContrastSettings(negatives=4))) == pytest.approx(
        math.log(3)
    )


def test_which_rivals_follows_from_the_seed():
    scores = torch.randn(16, 16)
    torch.manual_seed(1)
    first = mean(nce_loss(scores, ContrastSettings()))
    torch.manual_seed(1)
    assert mean(nce_loss(scores, ContrastSettings())) == first
    assert mean(nce_loss(scores, ContrastSettings())) != first


def test_a_contrastive_loss_of_one_clip_is_refused():
    with pytest.raises(ShapeError, match="no rival"):
        nce_loss(torch.zeros(1, 1), ContrastSettings())
    with pytest.raises(ShapeError, match="B, B, P"):
        contrastive_loss(torch.zeros(2, 3, 1), ContrastSettings())


@pytest.mark.parametrize(
    ("texts", "wanted"), [("text_1cand", "loss_1cand"), ("text_2", "loss_2cand")]
)
def test_the_released_mil_nce_gives_what_the_official_code_gives(texts, wanted):
    if not MILNCE.exists():
        pytest.skip(f"{MILNCE} is not here")
    case = json.loads(MILNCE.read_text())
    video = torch.tensor(case["video"])
    text = torch.tensor(next(value for name, value in case.items() if name.startswith(texts)))
    scores = (video @ text.T).view(3, 3, -1)
    assert mean(mil_nce_loss(scores, released=True)) == pytest.approx(case[wanted], abs=1e-5)


def test_mil_nce_by_hand():
    # exp of the scores, (2, 2, 2)
    shares = torch.tensor([[[2.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [3.0, 2.0]]])
    # candidates; other texts with the clip; other clips with the texts
    own, texts, clips = [3, 5], [2, 3], [3, 2]
    right = [own[i] / (own[i] + texts[i] + clips[i]) for i in range(2)]
    twice = [own[i] / (2 * own[i] + texts[i] + clips[i]) for i in range(2)]
    assert mean(mil_nce_loss(shares.log(), released=False)) == pytest.approx(
        -sum(map(math.log, right)) / 2
    )
    assert mean(mil_nce_loss(shares.log(), released=True)) == pytest.approx(
        -sum(map(math.log, twice)) / 2
    )


def test_a_perfect_model_has_no_loss_but_in_the_released_form():
    scores = torch.full((4, 4, 2), -50.0)
    scores[torch.arange(4), torch.arange(4)] = 50.0
    assert mean(mil_nce_loss(scores, released=False)) == pytest.approx(0.0, abs=1e-6)
    assert mean(mil_nce_loss(scores, released=True)) == pytest.approx(math.log(2), abs=1e-5)


def test_padded_candidates_change_nothing():
    scores = torch.randn(4, 4, 2, requires_grad=True)
    padded = torch.cat([scores, torch.full((4, 4, 3), -torch.inf)], dim=2)
    for released in (False, True):
        assert mean(mil_nce_loss(padded, released=released)) == pytest.approx(
            mean(mil_nce_loss(scores, released=released))
        )
        mil_nce_loss(padded, released=released).total.backward()
        assert torch.isfinite(scores.grad).all()


def test_the_settings_name_the_loss():
    scores = torch.randn(5, 5, 3)
    for objective, released in (("mil-nce", False), ("mil-nce-released", True)):
        named = contrastive_loss(scores, ContrastSettings(objective=objective))
        assert mean(named) == pytest.approx(mean(mil_nce_loss(scores, released=released)))
    assert mean(contrastive_loss(scores, EVERY)) == pytest.approx(
        mean(nce_loss(scores[:, :, 0], EVERY))
    )
