import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from wys2_samples import pairs

from stepline.errors import DatasetError, ModelError, ShapeError
from stepline.records import FeatureSequence, Span
from stepline.training.settings import TrainSettings
from stepline.wys2.clips import ClipTextPair, clip_text_pair, collate_pairs
from stepline.wys2.detector import Detector, read_detector, score_pairs, trained_on, write_detector
from stepline.wys2.settings import ContrastSettings, DetectorSettings
from stepline.wys2.train import train_detector

SMALL = DetectorSettings(video_width=6, text_width=6, hidden=16, width=8)
FAST = TrainSettings(epochs=120, batch=12, learning_rate=0.01, weight_decay=0.0, save_every=10_000)
FORMS = [{"score": score, "text": text} for score in ("dot", "cosine", "joint") for text in ("head", "frozen")]


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
        torch.testing.assert_close(detector.own_scores(batch), detector(batch)[:, :, 0].diagonal())


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
    dot, cosine = made(text="frozen"), made(text="frozen", score="cosine")
    np.testing.assert_allclose(score_pairs(dot, [longer]), 3 * score_pairs(dot, [pair]), rtol=1e-5)
    np.testing.assert_allclose(score_pairs(cosine, [longer]), score_pairs(cosine, [pair]), rtol=1e-5)
    assert abs(score_pairs(cosine, [pair])[0]) <= 1 / 0.1 + 1e-4  # cosine over temperature


def test_frames_train_s3d_from_end_to_end(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (3, 2, 32, 32, 3), dtype=np.uint8)
    known = [ClipTextPair(str(n), frames[n], rng.standard_normal((1, 6)).astype(np.float32)) for n in range(3)]
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
    assert clip_text_pair("v", features, Span(2.0, 5.0), text).video[:, 0].tolist() == [2, 3, 4]
    assert clip_text_pair("v", features, Span(2.5, 5.5), text).video[:, 0].tolist() == [2, 3, 4, 5]
    assert clip_text_pair("v", features, Span(11.0, 14.0), text).video[:, 0].tolist() == [9]


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


def test_features_of_another_width_are_told():
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
    np.testing.assert_array_equal(score_pairs(read_detector(path), pairs(5)), score_pairs(detector, pairs(5)))
    assert read_detector(path).settings == detector.settings
    assert trained_on(path) == ("s3d", "minilm")


def test_a_file_that_is_no_detector_is_refused(tmp_path):
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
