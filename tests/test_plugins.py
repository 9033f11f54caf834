"""Plugins by entry points: the example's own, one contract a kind, as a user names them."""

import csv
import io
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from option_words import option_words

import stepline as package
from stepline.curate.stage import Recipe
from stepline.curate.stages import cache_keys
from stepline.errors import SettingsError
from stepline.outputs import OUTPUTS
from stepline.pipeline.extract import feature_settings
from stepline.pipeline.networks import Networks, describe_inputs
from stepline.pipeline.request import Request, StepsSettings
from stepline.plugins import load_plugin, plugin_names
from stepline.records import Sentence, Span, Transcript
from stepline.settings import validate
from stepline.speech import AsrSettings
from stepline.speech.audio_windows import AudioWindow
from stepline.vision import VisionSettings, load_backbone
from stepline.writing import WritingSettings, write_steps

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "plugin"


def install(folder, points, monkeypatch):
    """Have Python find entry points as of an installed package. points: group -> name -> value."""
    home = folder / "example-0.1.0.dist-info"
    home.mkdir()
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 0.1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items())
        for group, rows in points.items()
    ]
    (home / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))


def example_points():
    return tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture
def example(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, example_points(), monkeypatch)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("stepline_example_plugin", None)
    OUTPUTS.pop("csv", None)


def test_a_writer_plugin_cites_its_sentences_and_gives_no_times(example):
    said = ("Fold it.", Span(0, 1.0)), ("Press it.", Span(1, 2.0))
    transcript = Transcript(sentences=tuple(Sentence(text=text, span=span) for text, span in said))
    written = write_steps(transcript, WritingSettings(writer="every-sentence"))
    assert [step.sources for step in written.steps] == [(0,), (1,)]
    assert all(not step.spans and step.at is None and step.status is None for step in written.steps)
    assert write_steps(transcript, WritingSettings(writer="every-sentence")) == written


def test_a_recogniser_plugin_keeps_its_words_inside_the_window(example):
    make = load_plugin("recognisers", AsrSettings(recogniser="sound").recogniser)
    recogniser = make(AsrSettings())
    loud, quiet = (
        AudioWindow(5.0, np.zeros(32000, np.float32), np.full(62, voice, np.float32), True)
        for voice in (0.9, 0.0)
    )
    found, none = recogniser.read_many([loud, quiet])
    assert all(5.0 <= word.span.start < word.span.end <= 7.0 for word in found.words)
    assert found.words
    assert none.words == ()
    assert recogniser.read(loud) == found


def test_a_backbone_plugin_gives_unit_rows_whatever_the_batch(example):
    backbone = load_backbone(VisionSettings(backbone="colours"))
    pictures = np.random.default_rng(0).integers(0, 256, (5, 32, 48, 3), np.uint8)
    rows, texts = backbone.encode_images(pictures), backbone.encode_texts(["fold", "press"])
    assert (rows.shape, texts.shape) == ((5, 13), (2, 13))
    assert rows.dtype == texts.dtype == np.float32
    lengths = np.linalg.norm(np.concatenate([rows, texts]), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-6)
    np.testing.assert_allclose(backbone.encode_images(pictures[2:3]), rows[2:3], atol=1e-6)
    assert backbone.encode_texts([]).shape == (0, 13)


def test_an_output_plugin_is_written_and_known_again_by_the_command(
    example, small_video, captions_file, tmp_path, stepline
):
    given = option_words(captions=captions_file, backbone="colours", out=tmp_path)
    job = ("steps", small_video, *given, "--format", "csv", "--writer", "every-sentence")
    result = stepline(*job)
    assert result.exit_code == 0, result.output
    record = package.read_record(tmp_path / "small.json")
    rows = list(csv.reader(io.StringIO((tmp_path / "small.csv").read_text(encoding="utf-8"))))
    assert [row[-1] for row in rows] == [step.text for step in record.steps]
    assert (record.models["writer"], record.models["vision"]) == ("every-sentence", "colours")
    assert list(OUTPUTS)[-1] == "json"
    assert "done before" in stepline(*job).stderr
    (tmp_path / "small.csv").unlink()
    assert "done before" not in stepline(*job).stderr


def test_what_a_plugin_made_is_made_again_once_the_plugin_changed(
    tmp_path, monkeypatch, small_video, captions_file, stepline
):
    site = tmp_path / "site"
    site.mkdir()
    install(site, example_points(), monkeypatch)
    code, facts = site / "stepline_example_plugin.py", site / "example-0.1.0.dist-info" / "METADATA"
    code.write_text((EXAMPLE / code.name).read_text().replace("remade=True", "remade=False"))
    named = {"writing": {"writer": "every-sentence"}, "vision": {"backbone": "colours"}}
    settings = validate(StepsSettings, named | {"asr": {"recogniser": "sound"}})
    recipe = Recipe(stages=("write",), steps=settings)

    def known():
        """Each kind of key under which results are found again; that of `judge` holds no plugin."""
        names = "judge transcribe write encode ground".split()
        keys = [getattr(cache_keys, f"{name}_settings")(recipe) for name in names]
        given = describe_inputs(Request(small_video, "small"), settings, Networks())
        return [str(key) for key in (*keys, given, feature_settings(settings))]

    def unchanged(before):
        return [one == two for one, two in zip(before, known(), strict=True)]

    given = option_words(captions=captions_file, backbone="none", out=tmp_path / "out")
    common = ("steps", small_video, *given)
    try:
        for job in ((*common, "--format", "csv"), (*common, "--writer", "every-sentence")):
            assert "done before" not in stepline(*job).stderr
            assert "done before" in stepline(*job).stderr
            before = known()
            code.write_text(code.read_text() + "# changed\n")
            assert unchanged(before) == [True, *[False] * 6]
            assert "done before" not in stepline(*job).stderr
        before = known()
        facts.write_text(facts.read_text().replace("Version: 0.1.0", "Version: 0.1.1"))
        assert unchanged(before) == [True, *[False] * 6]
    finally:
        sys.modules.pop(code.stem, None)
        OUTPUTS.pop("csv", None)


def test_an_unknown_name_lists_the_plugins_too(example, stepline):
    assert plugin_names("writers") == ("every-sentence",)
    with pytest.raises(ValueError, match="'extractive', 'llm' or 'every-sentence'"):
        WritingSettings(writer="nobody")
    assert stepline("steps", "v.mp4", "--writer", "nobody").exit_code == 2
    with pytest.raises(SettingsError, match=r"'nobody': no plugin of stepline.outputs .* \(csv\)"):
        load_plugin("outputs", "nobody")


def test_a_broken_plugin_is_an_error_that_names_it(tmp_path, monkeypatch, stepline):
    points = {"stepline.outputs": {"broken": "no_such_module:X", "odd": "math:pi"}}
    install(tmp_path, points, monkeypatch)
    with pytest.raises(
        SettingsError, match=r"'broken': .* no_such_module:X cannot be imported \(M"
    ):
        load_plugin("outputs", "broken")
    result = stepline("steps", "v.mp4", "--format", "odd")
    assert result.exit_code == 1
    assert "'odd': the plugin is a float, not an Output" in result.stderr


def test_a_batch_goes_on_past_a_bad_video_and_counts(small_video, captions_file, tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "a.mp4").write_bytes(b"no video")
    (folder / "b.mp4").write_bytes(small_video.read_bytes())
    settings = package.StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')
    seen = []
    out = tmp_path / "out"
    job = {"texts": ["move the square"], "settings": settings, "out": out, "formats": ["vtt"]}
    job["progress"] = lambda *stage: seen.append(stage[0])
    bad, good = package.batch([folder], device="cpu", **job)
    assert (bad.record, bad.number, bad.total, good.number, good.error) == (None, 1, 2, 2, None)
    assert "a.mp4: not a video" in str(bad.error)
    assert good.record.recipe == ("move the square",)
    names = {path.name for path in out.glob("*.*") if path.name[0] != "."}
    assert names == {"b.json", "b.vtt"}
    assert "listening" in seen


def test_a_record_gives_its_outputs_as_text(small_video, captions_file):
    settings = package.StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')
    record = package.steps(small_video, captions=captions_file, settings=settings, device="cpu")
    assert record.to_vtt().startswith("WEBVTT")
    assert record.to_markdown().startswith("# Small\n\n")
    assert "<!doctype html>" in record.to_html()[:40].lower()
    assert record.to_text("json") == record.to_text("json")
    with pytest.raises(SettingsError, match="'docx' is not a text"):
        record.to_text("docx")
    with pytest.raises(SettingsError, match="unknown output format 'nonsense'"):
        record.to_text("nonsense")
