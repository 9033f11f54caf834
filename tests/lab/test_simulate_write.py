"""A simulation in the formats of the real datasets: the real readers give back what was planted."""

from pathlib import Path

import pytest
from file_bytes import file_bytes
from numpy.testing import assert_allclose

from lab.simulate import SimulationSettings, simulate, stream, write_dataset, write_videos
from lab.simulate.narration import TEXT_STYLES
from stepline.datasets import read
from stepline.errors import SettingsError, StoreError
from stepline.features.files import read_feature_file, read_text_features
from stepline.settings import validate
from stepline.speech import read_captions
from stepline.vision import VisionSettings, load_backbone
from stepline.vision.precomputed import PrecomputedBackbone

HALF = 2e-3  # what half precision may change in a unit row

TREE = {
    "videos": 10,
    "held_out": 0.5,
    "recogniser": "aligned",
    "tasks": {"tasks": 6, "unseen": 4},
    "timeline": {"repeated": 0.2},
}


@pytest.fixture(scope="module")
def simulation():
    return simulate(5, validate(SimulationSettings, TREE))


@pytest.fixture(scope="module")
def folder(simulation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_dataset(simulation, folder)
    return folder


def all_of(name, path):
    """What the reader of a dataset gives, with nothing rejected."""
    reading = read(name, path)
    assert reading.rejected == ()
    return reading


def pairs(simulation, reading):
    read_back = {record.id: record for record in reading.records}
    assert len(read_back) == len(simulation.videos)
    return ((record, read_back[record.id]) for record in simulation.records)


def test_ht_step_holds_the_recipe_and_where_its_lines_are_shown(simulation, folder):
    reading = all_of("ht-step", folder / "ht-step")
    for planted, found in pairs(simulation, reading):
        assert found.recipe == planted.recipe
        assert found.video.task == planted.video.task
        found, planted = (
            [(step.id, step.text, set(step.spans)) for step in record.reference]
            for record in (found, planted)
        )
        assert found == planted
    assert dict(reading.subsets) == {sample.id: sample.subset for sample in simulation.videos}
    assert set(reading.subsets.values()) == {"train", "val_seen", "val_unseen"}


def test_htm_align_holds_the_sentences_of_the_held_out_videos(simulation, folder):
    found = {record.id: record for record in all_of("htm-align", folder / "htm_align.json").records}
    planted = [each for each in simulation.records_about("narration") if each.id in found]
    assert len(found) == len(planted) == 5
    for record in planted:
        rows, wanted = (
            [
                (step.id, step.text, step.spans, None if step.spans else step.said)
                for step in one.reference
            ]
            for one in (found[record.id], record)
        )
        assert rows == wanted


@pytest.mark.parametrize("name", ["whisperx", "caption.json"])
def test_the_narration_comes_back(simulation, folder, name):
    for planted, found in pairs(simulation, all_of("howto100m", folder / name)):
        assert found.transcript.sentences == planted.transcript.sentences


def test_whisperx_files_are_captions_with_words(simulation, folder):
    record = simulation.records[0]
    first = read_captions(folder / "whisperx" / f"{record.id}.json").transcript.sentences[0]
    planted = record.transcript.sentences[0]
    assert first.text == planted.text
    assert first.span.start == pytest.approx(planted.span.start, abs=0.01)
    assert all(word.span is not None for word in first.words)
    assert len(first.words) == len(first.text.split())


def test_written_steps_come_back_with_the_times_of_their_sentences(simulation, folder):
    for planted, found in pairs(simulation, all_of("howtostep", folder / "howtostep")):
        steps = [(step.text, step.spans[0]) for step in found.steps]
        assert steps == [(step.text, step.said) for step in planted.steps]


def test_captions_come_back_as_youcook2(simulation, folder):
    reading = all_of("youcook2", folder / "youcook2")
    for planted, found in pairs(simulation, reading):
        assert found.reference == planted.captions
        assert found.video.duration == planted.video.duration
    assert set(reading.subsets.values()) == {"train", "val"}


def test_features_and_texts_come_back_within_half_precision(simulation, folder):
    for sample, record in zip(simulation.videos, simulation.records, strict=True):
        seen = read_feature_file(folder / "features" / "usual" / f"{sample.id}.pth.tar")
        assert_alike(seen, sample.features())
        for style in TEXT_STYLES:
            found = read_text_features(folder / "texts" / "usual" / style / f"{sample.id}.pth")
            assert_allclose(found.values, sample.vectors(style), atol=HALF)
            linking = read_text_features(folder / "texts" / "embedder" / style / f"{sample.id}.pth")
            assert_allclose(linking.values, sample.embeddings(style), atol=HALF)
            assert linking.texts == found.texts
        assert found.texts == record.recipe


def test_the_precomputed_backbone_finds_videos_and_lines(simulation, folder):
    sample = simulation.videos[0]
    texts = folder / "texts" / "usual" / "recipe" / f"{sample.id}.pth"
    settings = VisionSettings(backbone="precomputed", path=folder / "features", texts=texts)
    backbone = load_backbone(settings)
    assert isinstance(backbone, PrecomputedBackbone)
    assert_alike(backbone.features(sample.id), sample.features())
    lines = backbone.encode_texts(sample.record.recipe)
    assert_allclose(lines, sample.vectors("recipe"), atol=HALF)


def test_numpy_features_of_other_backbones_come_back(simulation, tmp_path):
    samples = stream(5, simulation.settings, count=2)
    chosen = {"backbones": ("sharp", "dull"), "features": "npy"}
    assert write_videos(simulation.world, samples, tmp_path, **chosen) == 2
    sample = simulation.videos[1]
    for name, width in (("sharp", 128), ("dull", 96)):
        path = tmp_path / "features" / name / f"{sample.id}.mp4.npy"
        assert_alike(read_feature_file(path, width=width), sample.features(name))


def test_what_cannot_be_written_is_refused(simulation, tmp_path):
    with pytest.raises(SettingsError, match="'blurred' is not one of this world"):
        write_dataset(simulation, tmp_path / "out", backbones=("blurred",))
    assert not (tmp_path / "out").exists()
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match="taken.*cannot be written .*give another folder"):
        write_dataset(simulation, tmp_path / "taken")


def test_the_same_world_writes_the_same_bytes(folder, tmp_path):
    write_dataset(simulate(5, validate(SimulationSettings, TREE)), tmp_path)
    files = file_bytes(folder)
    assert len(files) == 9 * 10 + 8
    assert files == file_bytes(tmp_path)


def test_the_example_in_the_document_runs(tmp_path):
    page = Path(__file__).resolve().parents[2] / "docs" / "world.md"
    example = page.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    names = {"folder": tmp_path}
    exec(example, names)
    assert (tmp_path / "htm_align.json").is_file()


def assert_alike(found, planted):
    assert found.rate == planted.rate == 1.0
    assert_allclose(found.values, planted.values, atol=HALF)
