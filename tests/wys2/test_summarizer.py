"""The summarizer: segments, network, scores, training runs."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from small_video import CAPTIONS
from wys2_samples import record

from stepline.cli import main
from stepline.errors import DatasetError, ModelError, SettingsError, ShapeError
from stepline.features import FeatureStore, FeatureWriter
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import NO_FEATURES, with_transcripts
from stepline.models.wys2.settings import SummarizerRunSettings, SummarizerSettings
from stepline.models.wys2.summarizer import (
    SegmentedVideo,
    Summarizer,
    gather_summaries,
    predict_importance,
    read_frame_labels,
    read_summarizer,
    score_summaries,
    segment_video,
    train_summarizer,
    train_summarizer_run,
    write_summarizer,
)
from stepline.records import (
    FeatureSequence,
    Record,
    Sentence,
    Span,
    Step,
    Transcript,
    Video,
    count_reasons,
)
from stepline.storage import write_parquet

TINY = SummarizerSettings(video_width=6, width=16, heads=2, layers=1, dropout=0.0)


def made(seed, segments=8, said=0):
    """A video whose segments 2 and 5 matter, and look alike."""
    chance = np.random.default_rng(seed)
    seen = chance.normal(size=(segments, 6)).astype(np.float32)
    matters = np.zeros(segments, np.float32)
    matters[[2, 5]] = 1.0
    seen[[2, 5]] += np.array([4, 0, 0, -4, 0, 0], np.float32)
    return SegmentedVideo(f"v{seed}", seen, np.zeros((segments, said), np.float32), matters)


def timed_record(*steps, sentences=()):
    spoken = Transcript(sentences=tuple(Sentence(text="x", span=Span(a, b)) for a, b in sentences))
    shown = tuple(Step(id=str(k), text="x", spans=(Span(a, b),)) for k, (a, b) in enumerate(steps))
    return Record(id="v", video=Video(id="v"), transcript=spoken, reference=shown)


def test_segments_hold_means_and_shares_by_hand():
    features = FeatureSequence(np.arange(10, dtype=np.float32)[:, None], 1.0, "x")
    settings = SummarizerSettings(video_width=1, text_width=2, seconds=4.0)
    vectors = np.array([[1, 0], [0, 1]], np.float32)
    one = segment_video(
        timed_record((2.0, 5.0), (4.0, 6.0), sentences=((0.0, 1.0), (3.0, 5.0))),
        features,
        vectors,
        settings,
    )
    assert one.pictures[:, 0].tolist() == [1.5, 5.5, 8.5]
    assert one.speech.tolist() == [[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]]
    assert one.matters.tolist() == [0.5, 0.5, 0.0]  # 2 of 4 s; 4..6 once, though two steps show it


def test_speech_that_is_needed_and_lacks_is_an_error():
    features = FeatureSequence(np.zeros((4, 1), np.float32), 1.0, "x")
    with pytest.raises(ShapeError, match=r"sentence vectors must be \(0, 2\), not None"):
        segment_video(
            timed_record((0.0, 2.0)),
            features,
            None,
            SummarizerSettings(video_width=1, text_width=2),
        )
    with pytest.raises(ShapeError, match="no segment"):
        segment_video(
            timed_record(), FeatureSequence(np.zeros((0, 1), np.float32), 1.0, "x"), None, TINY
        )
    with pytest.raises(ShapeError, match="NaN"):
        SegmentedVideo(
            "v",
            np.full((1, 1), np.nan, np.float32),
            np.zeros((1, 0), np.float32),
            np.zeros(1, np.float32),
        )


def test_one_batch_can_be_overfitted_and_gives_a_number_a_second(tmp_path):
    samples = [made(seed) for seed in range(4)]
    settings = TrainSettings(epochs=150, learning_rate=1e-2)
    network = train_summarizer(samples, tmp_path, summarizer=TINY, settings=settings)
    scores = predict_importance(network, samples[0])
    assert scores.shape == (32,)  # 8 segments of 4 s
    assert (scores.reshape(8, 4).mean(axis=1) > 0.5).tolist() == (samples[0].matters > 0.5).tolist()
    unseen = predict_importance(network, made(9)).reshape(8, 4).mean(axis=1)
    assert set(unseen.argsort()[-2:]) == {2, 5}


def test_padding_changes_no_score():
    torch.manual_seed(0)
    network = Summarizer(TINY).eval()
    seen = torch.randn(1, 5, 6)
    longer = torch.cat([seen, torch.randn(1, 3, 6)], dim=1)
    pad = torch.tensor([[False] * 5 + [True] * 3])
    with torch.inference_mode():
        alone = network(seen, seen[..., :0], pad[:, :5])
        padded = network(longer, longer[..., :0], pad)[:, :5]
    torch.testing.assert_close(alone, padded, atol=1e-6, rtol=0)


def test_nothing_to_learn_from_is_an_error(tmp_path):
    flat = SegmentedVideo(
        "v", np.ones((3, 6), np.float32), np.zeros((3, 0), np.float32), np.zeros(3, np.float32)
    )
    for samples in ([], [flat]):
        with pytest.raises(ShapeError, match="teach nothing"):
            train_summarizer(samples, tmp_path, summarizer=TINY)


def test_a_network_is_read_as_written_and_other_files_are_refused(tmp_path):
    network = Summarizer(TINY).eval()
    write_summarizer(network, tmp_path / "s.safetensors", video="conse", text="minilm")
    again = read_summarizer(tmp_path / "s.safetensors")
    assert (again.space.video, again.space.text) == ("conse", "minilm")
    np.testing.assert_array_equal(
        predict_importance(network, made(1)), predict_importance(again.network, made(1))
    )
    (tmp_path / "t.safetensors").write_bytes(b"junk")
    with pytest.raises(ModelError, match="not a summarizer of Stepline"):
        read_summarizer(tmp_path / "t.safetensors")
    with pytest.raises(ShapeError, match="same backbone"):
        predict_importance(network, made(1, said=3))


SMALL = SummarizerRunSettings(
    summarizer=SummarizerSettings(width=16, heads=2, layers=1),
    train=TrainSettings(epochs=20, learning_rate=1e-2),
)


@pytest.fixture(scope="module")
def videos():
    """Twelve videos of 40 s, each with one step of 12 s somewhere."""
    starts = np.random.default_rng(0).integers(0, 7, 12) * 4.0
    return [
        record(
            (start, start + 4, "cut it"),
            steps=[("cut", start, start + 12)],
            duration=40.0,
            id=f"v{number}",
        )
        for number, start in enumerate(starts)
    ]


@pytest.fixture(scope="module")
def store(videos, tmp_path_factory):
    """Features whose first number is high where the step is shown."""
    chance, folder = np.random.default_rng(1), tmp_path_factory.mktemp("store")
    with FeatureWriter(folder) as writer:
        for video in videos:
            rows = chance.normal(size=(40, 8)).astype(np.float32)
            span = video.reference[0].spans[0]
            rows[int(span.start) : int(span.end), 0] += 4
            writer.add(video.id, rows, rate=1.0, backbone="made")
    return FeatureStore(folder)


def test_scores_by_hand():
    shown = np.array([True, False, False, True])
    # the fifth second is past it
    one = score_summaries([np.array([0.9, 0.8, 0.1, 0.7, 1.0], np.float32)], [shown])
    assert one.f == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    # 3 of 4 unlike pairs in order; of 6, 2 tie in the reference
    assert one.tau == pytest.approx(2 / np.sqrt(6 * 4))
    flat = score_summaries([np.ones(4, np.float32)], [shown])
    assert (flat.f, flat.tau, flat.rho) == (pytest.approx(2 / 3), 0.0, 0.0)
    nothing = score_summaries([np.ones(4, np.float32)], [np.zeros(4, bool)])
    assert (nothing.f, nothing.tau, nothing.videos) == (None, None, 1)
    assert score_summaries([], []).f is None


def test_a_run_learns_what_is_shown_and_scores_videos_that_it_never_saw(videos, store, tmp_path):
    silent = videos[0].model_copy(update={"transcript": None})
    lessons = gather_summaries([*videos[1:], silent, record(id="x")], store, None, SMALL.summarizer)
    assert count_reasons(lessons.omitted) == {NO_FEATURES: 1}
    made = train_summarizer_run(lessons, tmp_path, SMALL, video="made")
    assert made.videos == 10
    assert made.scores.videos == 2
    assert made.scores.f > 0.9
    assert made.scores.rho > 0.7
    told = json.loads((tmp_path / "run.json").read_text())
    assert (told["videos"], told["withheld"]["f"]) == (10, made.scores.f)
    assert read_summarizer(tmp_path / "summarizer.safetensors").space.video == "made"
    with pytest.raises(SettingsError, match="another run"):
        train_summarizer_run(lessons, tmp_path, SummarizerRunSettings())


def test_speech_is_used_where_it_is_asked_for(videos, store):
    def encode(texts):
        return np.ones((len(texts), 3), np.float32)

    silent = videos[0].model_copy(update={"transcript": None})
    untimed = record((0.0, 2.0, "hello"), steps=[("cut",)], id="v1")
    lessons = gather_summaries([silent, untimed, *videos[2:]], store, encode, SMALL.summarizer)
    assert count_reasons(lessons.omitted) == {"no narration": 1, "no reference step has a time": 1}
    assert {sample.speech.shape for sample in lessons.samples} == {(10, 3)}
    heard = with_transcripts([silent], {"v0": videos[0].transcript})
    told = gather_summaries(heard, store, encode, SMALL.summarizer)
    assert told.samples[0].speech.any()
    with pytest.raises(
        DatasetError, match="0 videos to train on, 3 are needed; left out: 1 x no narration"
    ):
        train_summarizer_run(
            gather_summaries([silent], store, encode, SMALL.summarizer), store.folder / "no", SMALL
        )


def test_frames_of_ones_are_spans_at_eight_a_second(tmp_path):
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps({"a": [0] * 8 + [1] * 16 + [0] * 4 + [1] * 4, "b": [0, 0]}))
    a, b = read_frame_labels(path)
    assert [step.spans for step in a.reference] == [(Span(1.0, 3.0),), (Span(3.5, 4.0),)]
    assert (a.video.duration, b.reference) == (4.0, ())
    for frames in ([0, 2], "text", [[1]], None):
        path.write_text(json.dumps({"a": frames}))
        with pytest.raises(DatasetError, match="a: not a list of 0 and 1"):
            list(read_frame_labels(path))


def test_the_command_trains_with_and_without_speech(videos, store, tmp_path):
    write_parquet(videos, tmp_path / "records.parquet")
    given = [
        "--features",
        store.folder,
        "--key-steps",
        tmp_path / "records.parquet",
        "--set",
        "train.epochs=1",
    ]
    for name, more in {"pictures": [], "both": ["--vectors", "minilm"]}.items():
        words = ["train", "summarizer", *given, "--out", tmp_path / name, "--json", *more]
        result = CliRunner().invoke(main, list(map(str, words)))
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout.splitlines()[-1])
        loaded = read_summarizer(tmp_path / name / "summarizer.safetensors")
        assert told["summarizer"] == str(loaded.path)
        assert told["withheld"]["videos"] == 2
        assert (loaded.space.text, loaded.network.settings.text_width) == (
            ("minilm", 384) if more else ("", 0)
        )
    neither = CliRunner().invoke(
        main, ["train", "summarizer", "--features", str(store.folder), "--out", "x"]
    )
    assert neither.exit_code == 1
    assert "give --key-steps or --frames" in neither.stderr


def test_a_summary_is_weighed_by_a_network_of_its_own_backbone(small_video, tmp_path):
    (tmp_path / "said.srt").write_text(CAPTIONS)
    (tmp_path / "run").mkdir()
    for width in (384, 16):
        settings = SummarizerSettings(
            video_width=width, text_width=384, width=16, heads=2, layers=1
        )
        name = "run/summarizer" if width == 384 else "narrow"
        write_summarizer(
            Summarizer(settings), tmp_path / f"{name}.safetensors", video="conse", text="minilm"
        )
    words = [
        "summarize",
        str(small_video),
        "--captions",
        str(tmp_path / "said.srt"),
        "--out",
        str(tmp_path / "out"),
    ]
    plain, weighed, narrow, other = (
        CliRunner().invoke(main, [*words, "--json", *more])
        for more in (
            [],
            ["--summarizer", str(tmp_path / "run")],
            ["--summarizer", str(tmp_path / "narrow.safetensors")],
            ["--summarizer", str(tmp_path / "run"), "--set", "vision.backbone=none"],
        )
    )
    assert plain.exit_code == weighed.exit_code == 0, weighed.output
    one, another = (json.loads(result.stdout)["segments"] for result in (plain, weighed))
    assert [row["start"] for row in one] == [row["start"] for row in another]
    assert all(row["value"] > less["value"] > 0 for row, less in zip(one, another, strict=True))
    assert (narrow.exit_code, other.exit_code) == (1, 1)
    assert "segments are (384, 384) wide (seen, said), not (16, 384)" in narrow.stderr
    assert "trained on features of 'conse', given are 'none'" in other.stderr
