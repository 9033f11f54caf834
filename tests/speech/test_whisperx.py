"""WhisperX is used as it is, and its absence is an error with a cure; a small stand-in plays the
package."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from stepline.errors import ModelError
from stepline.speech.audio_windows import AudioWindow
from stepline.speech.settings import AsrSettings
from stepline.speech.whisperx import WhisperX

SETTINGS = AsrSettings(recogniser="whisperx", model="small")
ALIGNED = [
    {"word": "Cut", "start": 0.5, "end": 0.9, "score": 0.8},
    {"word": "3"},
    {"word": "strips.", "start": 1.5, "end": 1.2, "score": 1.2},
]


def window(voice=1.0):
    return AudioWindow(10.0, np.zeros(32_000, np.float32), np.full(63, voice, np.float32), True)


def package(calls):
    def load_model(*args, **kwargs):
        calls.append(("load", args, kwargs))
        heard = {"segments": [{"text": "Cut 3 strips."}], "language": "en"}
        return SimpleNamespace(transcribe=lambda samples, batch_size, language: heard)

    def load_align_model(*, language_code, device):
        calls.append(("aligner", language_code))
        if language_code == "xx":
            raise ValueError("no such language")
        return "aligner", {}

    def align(segments, *rest):
        return {"segments": [{"words": ALIGNED}, {"text": "no words"}]}

    return SimpleNamespace(load_model=load_model, load_align_model=load_align_model, align=align)


def test_aligned_words_keep_their_times_and_the_others_have_none(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "whisperx", package(calls))
    recogniser = WhisperX(SETTINGS)
    passage = recogniser.read(window())
    recogniser.read(window())
    assert [
        (w.text, w.span and (w.span.start, w.span.end), w.confidence) for w in passage.words
    ] == [(" Cut", (10.5, 10.9), 0.8), (" 3", None, None), (" strips.", None, 1.0)]
    assert passage.language == "en"
    assert [call[0] for call in calls] == ["load", "aligner"]
    assert calls[0][1][0] == "small"


def test_without_voice_nothing_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "whisperx", package([]))
    assert WhisperX(SETTINGS).read(window(voice=0.1)).words == ()


def test_a_language_without_aligner_is_an_error(monkeypatch):
    fake = package([])
    fake.load_model = lambda *a, **k: SimpleNamespace(
        transcribe=lambda *a, **k: {"segments": [], "language": "xx"}
    )
    monkeypatch.setitem(sys.modules, "whisperx", fake)
    with pytest.raises(ModelError, match="no alignment model for 'xx'"):
        WhisperX(SETTINGS).read(window())


def test_a_missing_package_names_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "whisperx", None)
    with pytest.raises(ModelError, match=r"-c constraints-whisperx.txt 'stepline\[whisperx\]'"):
        WhisperX(SETTINGS)
