"""Benchmarks answered by a detector, from the command line: clips of a set, and HTM-Align's
sentences."""

import json

import numpy as np
import pytest
import torch
from option_words import option_words

from stepline.features import FeatureStore, FeatureWriter
from stepline.models.wys2.clips import make_feature_pair
from stepline.models.wys2.detector import Detector, score_pairs, write_detector
from stepline.models.wys2.settings import DetectorSettings
from stepline.records import Span
from stepline.text import embed

WIDTH, SECONDS = 6, 10


@pytest.fixture
def detector():
    torch.manual_seed(0)
    return Detector(DetectorSettings(video_width=WIDTH, text_width=384, hidden=8, width=4)).eval()


@pytest.fixture
def folder(tmp_path, detector):
    """A store of two videos, a detector, clips of them and of a third, and HTM-Align's annotations
    of one."""
    rng = np.random.default_rng(0)
    with FeatureWriter(tmp_path / "store") as writer:
        for id in ("a", "b"):
            writer.add(
                id, rng.normal(size=(SECONDS, WIDTH)).astype(np.float32), rate=1.0, backbone="drawn"
            )
    write_detector(detector, tmp_path / "detector.safetensors", video="drawn", text="minilm")
    clips = [
        ("a:0", "films/a.mp4", 0, 3),
        ("a:1", "films/a.mp4", 4, 7),
        ("b:0", "b.mp4", 6, 9),
        ("c:0", "c.mp4", 0, 3),
    ]
    rows = []
    for id, video, start, end in clips:
        row = {"id": id, "video": video, "span": {"start": start, "end": end}}
        rows.append(row | {"text": f"cut {id}", "shown": start > 0})
    (tmp_path / "vnd_clips.json").write_text(json.dumps(rows))
    (tmp_path / "htm").mkdir()
    sentences = [[1, 2.0, 4.0, "cut the onion"], [0, 5.0, 6.0, "hello"]]
    (tmp_path / "htm" / "htm_align.json").write_text(json.dumps({"a": sentences}))
    return tmp_path


def given(folder, reference, detector="detector.safetensors"):
    files = {"detector": detector, "features": "store", "reference": reference, "out": "out.json"}
    return option_words(**{name: folder / file for name, file in files.items()})


def score(folder, detector, video, start, end, text):
    """Return the score of a clip by the network itself."""
    rows = FeatureStore(folder / "store").read(video)
    pair = make_feature_pair(video, rows, Span(start, end), embed([text], model="minilm"))
    return float(score_pairs(detector, [pair])[0])


def test_clips_get_the_score_of_their_own_words(folder, detector, stepline):
    done = stepline("predict", "vnd", *given(folder, "vnd_clips.json"), "--allow-missing")
    assert done.exit_code == 0, done.output
    answer = json.loads((folder / "out.json").read_text())
    assert list(answer) == ["a:0", "a:1", "b:0"]
    assert answer["a:1"] == pytest.approx(
        score(folder, detector, "a", 4.0, 7.0, "cut a:1"), abs=1e-5
    )
    assert "wrote" in done.stderr
    assert "3 of 4 clips" in done.stderr
    assert list(json.loads((folder / "out.json.missing.json").read_text())) == ["c:0"]


def test_a_sentence_is_as_alignable_as_its_best_clip(folder, detector, stepline):
    done = stepline("predict", "htm-align", *given(folder, "htm"))
    assert done.exit_code == 0, done.output
    answer = json.loads((folder / "out.json").read_text())["a"]
    # the clip of 3 s around the middle of each second
    spans = [(max(0.0, t - 1.0), t + 2.0) for t in range(SECONDS)]
    scores = [score(folder, detector, "a", *span, "cut the onion") for span in spans]
    assert answer["seconds"][0] == int(np.argmax(scores))
    assert answer["alignability"][0] == pytest.approx(max(scores), abs=1e-5)
    assert "shown" not in answer


def test_narrations_are_judged_where_a_transcript_says_they_are_spoken(folder, detector, stepline):
    transcript = {"a": {"text": ["cut the onion", "hello"], "start": [1.0, 5.0], "end": [5.0, 6.0]}}
    (folder / "htm" / "sentencified_htm_370k.json").write_text(json.dumps(transcript))
    assert stepline("predict", "htm-align", *given(folder, "htm")).exit_code == 0
    answer = json.loads((folder / "out.json").read_text())["a"]
    expected = [
        score(folder, detector, "a", 1.0, 5.0, "cut the onion"),
        score(folder, detector, "a", 4.0, 7.0, "hello"),  # widened to 3 s around its middle
    ]
    assert answer["shown"] == pytest.approx(expected, abs=1e-5)


def test_what_cannot_answer_is_an_error_in_one_line(folder, detector, stepline):
    write_detector(detector, folder / "nameless.safetensors", video="drawn")
    done = stepline("predict", "vnd", *given(folder, "vnd_clips.json", "nameless.safetensors"))
    assert done.exit_code == 1
    assert "does not say what made its text vectors" in done.stderr
    write_detector(detector, folder / "other.safetensors", video="s3d", text="minilm")
    done = stepline("predict", "vnd", *given(folder, "vnd_clips.json", "other.safetensors"))
    assert done.exit_code == 1
    assert "trained on features of 's3d', given are 'drawn'" in done.stderr
    done = stepline("predict", "vnd", *given(folder, "vnd_clips.json")[2:], "--aligner", "a.pth")
    assert done.exit_code == 1
    assert (
        "vnd is answered by --detector; give one, and leave --aligner, --model out" in done.stderr
    )
