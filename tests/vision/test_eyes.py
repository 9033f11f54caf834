"""Each way to give Stepline eyes, as a user types it, on a film of colours in which words alone err.

A door that does not open leaves purple and orange where they are said, and no step seen.
"""

import base64
import io
import json
import shutil

import numpy as np
import pytest
from checkpoints import (
    write_aligner_of_clip,
    write_clip,
    write_clip_of_colours,
    write_internvideo_of_colours,
)
from colour_film import COLOURS, LINES, draw_film, scene_of, write_captions
from llm_fakes import Answers, FakeServer, completion
from PIL import Image

from stepline.grounding.vision_language.questions import TEST_PROMPT
from stepline.outputs.verdict import picture_scores
from stepline.storage import read_record

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

QUICK = ("--set", "vision.screen_text=false", "--format", "json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the film, its captions, its lines and the checkpoint clip/."""
    folder = tmp_path_factory.mktemp("colours")
    draw_film(folder / "film.mp4")
    write_captions(folder / "film.vtt")
    (folder / "lines.txt").write_text("\n".join(LINES))
    write_clip_of_colours(folder / "clip")
    return folder


@pytest.fixture
def look(stepline, folder, tmp_path, monkeypatch):
    """Run `stepline steps film.mp4` with more options, in the folder of the film."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))

    def run(*options, out=tmp_path / "out"):
        film = ("steps", "film.mp4", "--captions", "film.vtt", "--out", out)
        return stepline(*film, *QUICK, *options)

    return run


def found(done, out, basis="image_text"):
    """The colours whose step is seen, by pictures of this kind, in the scene of the colour.

    basis: None for steps that no calibrated pictures decide, which are placed with a doubt."""
    assert done.exit_code == 0, done.stderr
    seen = set()
    for step in read_record(out / "film.json").steps:
        (name,) = set(step.text.lower().split()) & set(COLOURS)
        start, end = scene_of(name)
        if step.basis == basis and start <= step.at <= end:
            assert step.status == ("seen" if basis else "placed")
            assert bool(step.doubt) == (basis is None)
            seen.add(name)
    return seen


def test_words_alone_see_nothing_and_put_two_colours_in_the_scene_of_the_other(look, tmp_path):
    assert found(look(), tmp_path / "out") == set()
    at = {step.text: step.at for step in read_record(tmp_path / "out" / "film.json").steps}
    for name, other in (("purple", "orange"), ("orange", "purple")):
        start, end = scene_of(other)
        assert start <= at[f"add the {name} paint"] <= end


def test_a_clip_checkpoint_sees_every_colour(look, tmp_path):
    assert found(look("--backbone", "clip", "--weights", "clip"), tmp_path / "out") == set(COLOURS)


def test_a_siglip_checkpoint_sees_every_colour(look, folder, tmp_path):
    write_clip_of_colours(folder / "siglip", "siglip")
    done = look("--backbone", "clip", "--weights", "siglip")
    assert found(done, tmp_path / "out") == set(COLOURS)


@pytest.fixture(scope="module")
def internvideo(folder):
    """A checkpoint of InternVideo, with the film's rows and the lines' vectors as files."""
    from stepline.media import probe
    from stepline.pipeline.pictures import VisualOptions, extract_features
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.vision import VisionSettings, load_backbone

    (folder / "internvideo").mkdir()
    path = write_internvideo_of_colours(folder / "internvideo")
    vision = VisionSettings(backbone="internvideo", path=path)
    backbone = load_backbone(vision)
    film = folder / "film.mp4"
    options = VisualOptions(backbone, measures_motion=False)
    settings = StepsSettings(vision=vision)
    features = extract_features(Request(film, "film"), probe(film), settings, options).features
    (folder / "rows").mkdir()
    torch.save(torch.from_numpy(features.values), folder / "rows" / "film.pth.tar")
    vectors = torch.from_numpy(backbone.encode_texts(LINES))
    times = {"start": [0.0] * len(LINES), "end": [1.0] * len(LINES)}
    torch.save({"vid": "film", **times, "text": LINES, "features": vectors}, folder / "lines.pth")
    return path


def test_an_internvideo_checkpoint_sees_every_colour(look, internvideo, tmp_path):
    done = look("--backbone", "internvideo", "--weights", internvideo)
    assert found(done, tmp_path / "out") == set(COLOURS)


READY = ("--backbone", "precomputed", "--weights", "rows", "--set", "vision.texts=lines.pth")


@pytest.mark.usefixtures("internvideo")
@pytest.mark.parametrize("count", [len(LINES), 5])
def test_ready_rows_see_the_lines_that_have_vectors_though_more_is_said(
    count, look, folder, tmp_path
):
    (folder / "some.txt").write_text("\n".join(LINES[:count]))
    done = look(*READY, "--texts", "some.txt")
    assert found(done, tmp_path / "out") >= set(list(COLOURS)[: count - 2])


def test_a_calibrated_network_of_nasva_sees_every_colour_and_says_how_sure_it_is(
    look, folder, tmp_path
):
    write_aligner_of_clip(tmp_path / "run", folder / "clip")
    done = look("--backbone", "clip", "--weights", "clip", "--aligner", tmp_path / "run")
    assert found(done, tmp_path / "out", "network") == set(COLOURS)
    record = read_record(tmp_path / "out" / "film.json")
    assert record.models["grounding"]["calibrated"]
    assert picture_scores(record).keys() == {step.id for step in record.steps}
    assert done.stdout.count("%") == len(COLOURS)


@pytest.mark.slow
def test_a_network_of_nasva_trained_on_the_rows_of_clip_sees_every_colour(
    look, stepline, folder, tmp_path
):
    clip = ("--backbone", "clip", "--weights", "clip")
    assert look(*clip, out=tmp_path / "labels").exit_code == 0
    made = stepline("features", "extract", "film.mp4", *clip, "--out", tmp_path / "store")
    assert made.exit_code == 0, made.stderr
    sizes = ("width=32", "heads=2", "encoder_layers=1", "decoder_layers=1", "feed_forward=32")
    options = [*(f"model.{size}" for size in sizes), "train.epochs=200", "train.batch=1"]
    made = stepline(
        *("train", "nasva", "--features", tmp_path / "store", "--out", tmp_path / "run"),
        *("--steps", tmp_path / "labels" / "film.json", "--step-vectors", "clip:clip"),
        *(part for option in options for part in ("--set", option)),
    )
    assert made.exit_code == 0, made.stderr
    done = look(*clip, "--aligner", tmp_path / "run")
    assert found(done, tmp_path / "out", None) == set(COLOURS)  # by a network not calibrated


def sees(handler):
    """A model that knows the colours: the picture that is most like the colour of each step."""
    parts = handler.question["messages"][0]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    pictures = [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]
    means = np.array([np.asarray(picture)[-10:].mean((0, 1)) for picture in pictures])
    names = [
        name for line in parts[0]["text"].split("<step>") for name in COLOURS if f" {name} " in line
    ]
    answer = {}
    for number, name in enumerate(names, start=1):
        distance = np.abs(means - COLOURS[name]).sum(1)
        letter = "ABCDEFGH"[distance.argmin()] if distance.min() < 60 else "none"
        answer[str(number)] = {"after": "it is there", "shown": letter}
    Answers.raw(completion(json.dumps(answer)))(handler)


def vlm(server, model="llava"):
    return (
        *("--set", f"vision.vlm.base_url={server.url}", "--set", f"vision.vlm.model={model}"),
        *("--set", "vision.vlm.pause=0.0"),
    )


def test_a_model_that_sees_behind_the_protocol_of_openai_and_ollama_sees_every_colour(
    look, tmp_path
):
    with FakeServer(sees) as server:
        done = look(*vlm(server))
        asked = server.asked
    assert found(done, tmp_path / "out", "vlm") == set(COLOURS)
    report = read_record(tmp_path / "out" / "film.json").models["witness"]
    assert report["requests"] == len(asked) - 1  # the first one is the test pictures


def test_a_server_is_shown_test_pictures_once_and_none_in_a_dry_run(look, tmp_path):
    with FakeServer(sees) as server:
        first = look(*vlm(server))
        again = look(*vlm(server), "--force")
        shown = [server.asked.index(body) for body in server.asked if TEST_PROMPT in str(body)]
        count = len(server.asked)
        dry = look(*vlm(server, "other"), "--dry-run", "--force")
        assert len(server.asked) == count
    assert [done.exit_code for done in (first, again, dry)] == [0, 0, 0]
    assert shown == [0]


# What is wrong is said before any work.


@pytest.fixture
def refused(look, monkeypatch, tmp_path):
    """Run a command that must end with one line before anything is heard, decoded or written."""
    import stepline.pipeline.understand

    def work(*_, **__):
        pytest.fail("work began before the check")

    for name in ("recognise_speech", "extract_features"):
        monkeypatch.setattr(stepline.pipeline.understand, name, work)

    def run(*options):
        done = look(*options)
        assert done.exit_code == 1
        assert not any((tmp_path / "out").glob("*"))
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("stepline: ")]
        return line

    return run


def test_a_checkpoint_without_its_tokenizer_is_refused(refused, folder, tmp_path):
    shutil.copytree(folder / "clip", tmp_path / "clip")
    for file in (tmp_path / "clip").glob("tokenizer*"):
        file.unlink()
    line = refused("--backbone", "clip", "--weights", tmp_path / "clip")
    assert "its tokenizer has" in line
    assert "tokenizer.json" in line


def test_a_checkpoint_whose_pictures_have_another_size_is_refused(refused, tmp_path):
    path = write_clip(tmp_path / "clip") / "processor_config.json"
    form = json.loads(path.read_text())
    form["image_processor"]["crop_size"] = {"height": 16, "width": 16}
    path.write_text(json.dumps(form))
    line = refused("--backbone", "clip", "--weights", tmp_path / "clip")
    assert "cannot be loaded" in line
    assert "give a whole CLIP or SigLIP checkpoint" in line


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_network_of_another_width_than_the_checkpoint_is_refused(kind, refused, tmp_path):
    from stepline.models.nasva.checkpoint import write_aligner
    from stepline.models.nasva.model import Aligner
    from stepline.models.nasva.settings import AlignerNetworkSettings
    from stepline.models.training.network import FeatureSpace

    write_clip(tmp_path / kind, kind)
    sizes = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 8}
    space = FeatureSpace("clip", "clip")
    options = ("--backbone", "clip", "--weights", tmp_path / kind, "--aligner", tmp_path)
    for widths, fault in (((768, 16), "features 768 wide"), ((16, 768), "texts 768 wide")):
        video, text = widths
        settings = AlignerNetworkSettings(video_width=video, text_width=text, **sizes)
        write_aligner(Aligner(settings), tmp_path / "aligner.safetensors", space)
        assert f"trained on {fault}" in refused(*options)


def test_weights_of_another_form_are_refused(refused):
    line = refused("--backbone", "internvideo", "--weights", "clip/model.safetensors")
    assert "not InternVideo-MM's weights" in line
    assert "InternVideo-MM-L-14.ckpt" in line


@pytest.mark.usefixtures("internvideo")
def test_ready_rows_without_lines_or_with_a_line_without_a_vector_are_refused(refused, tmp_path):
    assert "give your lines with --texts" in refused(*READY)
    (tmp_path / "other.txt").write_text("fold the paper")
    line = refused(*READY, "--texts", tmp_path / "other.txt")
    assert "no features for 'fold the paper'" in line


@pytest.mark.parametrize(
    ("status", "message", "fault"),
    [
        (404, "model 'llava' not found", "correct vision.vlm.base_url (.../v1) or vision.vlm.mod"),
        (500, "image input is not supported by this server", "'llava' takes no pictures"),
        (400, "m is not a multimodal model None", "name one that takes them as vision.vlm.model"),
        (400, "Model does not support images", "vision.vlm.together=true"),
        (401, "no key", "vision.vlm.api_key_variable"),
    ],
)
def test_a_server_without_the_model_or_whose_model_takes_no_pictures_is_refused(
    status, message, fault, refused
):
    with FakeServer(Answers.status(status, message)) as server:
        assert fault in refused(*vlm(server))


def test_an_address_without_a_server_is_refused(refused):
    line = refused("--set", "vision.vlm.base_url=http://127.0.0.1:9/v1")
    assert "no server answers there" in line


def test_other_weights_at_the_same_place_make_the_result_again(look, folder, tmp_path):
    path = tmp_path / "weights"
    shutil.copytree(folder / "clip", path)
    options = ("--backbone", "clip", "--weights", path)
    assert found(look(*options), tmp_path / "out") == set(COLOURS)
    write_clip(path)
    done = look(*options)
    assert "done before" not in done.stderr
    assert found(done, tmp_path / "out") == set()
