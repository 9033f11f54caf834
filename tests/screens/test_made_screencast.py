"""A screencast that a browser really shows, narrated by a synthetic voice, from its film to its
steps."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser

from stepline.grounding.screens import place_clicks, read_screen
from stepline.media import probe
from stepline.media.settings import MediaSettings
from stepline.networks.weights import weights_fetched
from stepline.records import Sentence, Span, Step

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "lab")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium: apt-get install chromium"),
    pytest.mark.skipif(
        shutil.which("espeak-ng") is None,
        reason="espeak-ng is not installed (apt-get install espeak-ng)",
    ),
    pytest.mark.skipif(
        not weights_fetched("pp-ocr"), reason="needs pp-ocr: stepline weights get pp-ocr"
    ),
]


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setattr(sys, "path", [BENCHMARKS, *sys.path])
    return importlib.import_module("screencast_recorder")


def test_true_clicks_of_a_browser_are_found_with_their_labels(recorder, tmp_path):
    take = recorder.Take("menus", "after", "dark", size=(960, 540), cursor=True, rows=4)
    browser = Browser(tmp_path / "profile")
    video = recorder.record_screencast(take, tmp_path, browser)
    browser.close()
    acts = json.loads(video.with_suffix(".json").read_text())["acts"]
    done = [act for act in acts if act["second"] is not None]
    sentences, steps = [], []
    for number, act in enumerate(done):
        span = Span(*act["words"])
        sentences.append(Sentence(text=act["say"], span=span))
        steps.append(Step(id=str(number), text=act["say"], said=span, sources=(number,)))
    clicks = place_clicks(steps, sentences, read_screen(video, probe(video), MediaSettings()))
    assert [click.label.text for click in clicks] == ["File", "Export as", "PDF"]
    for click, act in zip(clicks, done, strict=True):
        assert abs(click.event.start - act["second"]) <= 1.0
