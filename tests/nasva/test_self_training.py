"""Self-training in a tiny simulated world: rounds, what is kept on disk, and what is told of
them."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.nasva.matrices import step_video
from lab.simulate import SimulationSettings, simulate
from stepline.errors import SettingsError, ShapeError, StoreError
from stepline.grounding.speech import coarse_spans
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.pseudo_labels import make_step_samples, read_labels, write_labels
from stepline.models.nasva.refine import SelfTraining
from stepline.models.nasva.settings import AlignerNetworkSettings, RefineSettings, SelfTrainSettings
from stepline.models.training.settings import TrainSettings
from stepline.records import FeatureSequence, Span

SIZES = {"video_width": 128, "text_width": 128, "text_positions": 128, "feed_forward": 64}
SIZES |= {"width": 32, "projection": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
MODEL = AlignerNetworkSettings(**SIZES)
TRAINING = TrainSettings(epochs=3, learning_rate=2e-3, save_every=5)
SETTINGS = SelfTrainSettings(rounds=2, teacher_epochs=2)


def simulated(video):
    record, features = video.record, video.features()
    likeness = video.embeddings("step") @ video.embeddings("narration").T
    duration = float(len(features.values))
    kept, _ = coarse_spans(record.steps, record.transcript.sentences, likeness, duration=duration)
    said = {step.id: step.said for step in kept}
    return step_video(
        video.id, features, video.vectors("step"), tuple(said.get(s.id) for s in record.steps)
    )


@pytest.fixture(scope="module")
def videos():
    return tuple(
        simulated(video)
        for video in simulate(0, SimulationSettings(videos=24, held_out=0.0)).videos
    )


@pytest.fixture
def training(videos, tmp_path):
    return SelfTraining(videos, tmp_path / "out", model=MODEL, training=TRAINING, settings=SETTINGS)


def files(folder):
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_two_rounds_give_labels_a_network_and_a_report_each(training, videos):
    done = training.run()
    assert [report.number for report in done.rounds] == [0, 1, 2]
    first, second, _ = done.rounds
    assert first.texts == sum(len(video.said_spans) for video in videos)
    assert first.kept == pytest.approx(1.0, abs=0.05)
    assert 0.02 < second.kept < 1.0  # the teachers do not agree on all
    assert first.moved is None
    assert second.moved > 0
    assert 0 < second.iou < 1
    assert len(done.labels) == len(videos)
    assert not any(path.name.endswith(".training") for path in training.folder.rglob("*"))


def test_labels_are_made_with_one_batch_of_matrices_in_memory(tmp_path, monkeypatch):
    rows, texts, rng = 1000, 40, np.random.default_rng(0)
    matrix = 4 * rows * texts  # bytes
    features = FeatureSequence(rng.normal(size=(rows, 16)).astype(np.float32), 1.0, "drawn")
    vectors = rng.normal(size=(texts, 16)).astype(np.float32)
    model = AlignerNetworkSettings(**SIZES | {"video_width": 16, "text_width": 16, "width": 8})
    monkeypatch.setattr("stepline.models.nasva.pseudo_labels.VIDEOS_PER_BATCH", 2)
    monkeypatch.setattr(
        SelfTraining, "_train_teachers", lambda training, number: [Aligner(model), Aligner(model)]
    )

    def peak(count):
        """The most bytes that labels of so many videos took."""
        videos = [
            step_video(f"v{number}", features, vectors, (None,) * texts) for number in range(count)
        ]
        kept = RefineSettings(threshold=0.0, agree=None)
        settings = SETTINGS.model_copy(update={"refine": kept})
        given = {"model": model, "training": TRAINING, "settings": settings}
        run = SelfTraining(videos, tmp_path / str(count), **given)
        tracemalloc.start()
        run._get_round_labels(1)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(24) - peak(8) < 16 * matrix / 2  # a matrix of each would be 16 of them


def test_a_run_that_is_done_is_not_redone(training):
    once = training.run()
    before = files(training.folder)
    again = training.run()
    assert files(training.folder) == before
    assert again.labels == once.labels
    assert again.rounds == once.rounds
    for weight, other in zip(once.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been(training, tmp_path):
    whole = training.run()

    def stop(name, progress):
        if name == "round-1/teacher-0" and progress.step == 2:
            raise KeyboardInterrupt

    parts = replace(training, folder=tmp_path / "parts", progress=stop)
    with pytest.raises(KeyboardInterrupt):
        parts.run()
    before = files(parts.folder)
    assert {"report.json", "round-0/labels.json", "round-1/labels.json"} <= set(before)
    assert "round-0/teacher-1.safetensors" in before
    done = replace(parts, progress=None).run()
    first = "round-0/teacher-0.safetensors"
    assert files(parts.folder)[first] == before[first]
    assert done.labels == whole.labels
    for weight, other in zip(whole.network.parameters(), done.network.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_no_round_trains_on_the_first_labels_alone(training, videos):
    done = replace(training, settings=SETTINGS.model_copy(update={"rounds": 0})).run()
    assert done.labels == tuple(video.said_spans for video in videos)


def test_another_run_does_not_go_on_in_its_folder(training):
    replace(training, settings=SETTINGS.model_copy(update={"rounds": 0})).run()
    with pytest.raises(SettingsError, match="another run"):
        training.run()


def test_a_threshold_that_keeps_nothing_ends_the_run(training):
    high = RefineSettings(threshold=0.99, threshold_kind="cosine")
    with pytest.raises(ShapeError, match="0 of"):
        replace(training, settings=SETTINGS.model_copy(update={"refine": high})).run()


def test_nothing_labelled_is_an_error(training, videos):
    silent = [replace(video, said_spans=(None,) * len(video.said_spans)) for video in videos]
    with pytest.raises(ShapeError, match="no step has a label"):
        replace(training, videos=silent).run()


def test_samples_hold_the_steps_with_a_label_or_all(videos):
    first = (Span(0.0, 2.0), *[None] * (len(videos[0].said_spans) - 1))
    labels = [first, (None,) * len(videos[1].said_spans)]
    (sample,) = make_step_samples(videos[:2], labels)
    assert sample.positive.sum(axis=1).tolist() == [2]
    every = make_step_samples(videos[:2], labels, keep_all=True)
    assert [len(one.text) for one in every] == [len(video.said_spans) for video in videos[:2]]
    assert [int(one.positive.sum()) for one in every] == [2, 0]


def test_labels_are_read_back_and_refused_for_other_videos(tmp_path):
    path = tmp_path / "labels.json"
    labels = ((Span(0.0, 1.5), None), ())
    write_labels(path, ["a", "b"], labels)
    assert read_labels(path, [("a", 2), ("b", 0)]) == labels
    with pytest.raises(StoreError, match="other texts"):
        read_labels(path, [("a", 3), ("b", 0)])
    with pytest.raises(StoreError, match="'c'"):
        read_labels(path, [("c", 1)])


def test_places_and_vectors_must_fit(videos):
    features, vectors = videos[0].read_inputs()
    with pytest.raises(ShapeError, match="need as many places"):
        step_video("v", features, vectors, ())


def test_a_round_takes_its_own_way_to_label(training, videos):
    """Round 1: 8 s from the best second, every text; round 2: as long as it grows, the better
    half."""
    own = {2: RefineSettings(seconds=None, threshold=0.5, agree=None)}
    refine = RefineSettings(position="start")
    settings = SETTINGS.model_copy(update={"refine": refine, "by_round": own})
    replace(training, settings=settings).run()
    names = [(video.id, len(video.said_spans)) for video in videos]
    first, second = (
        read_labels(training.folder / f"round-{number}" / "labels.json", names) for number in (1, 2)
    )
    durations = {span.end - span.start for spans in first for span in spans if span}
    assert max(durations) == 8.0
    flags = [span is not None for spans in second for span in spans]
    assert sum(flags) / len(flags) == pytest.approx(0.5, abs=0.05)
    assert len({span.end - span.start for spans in second for span in spans if span}) > 3
