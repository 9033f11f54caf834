"""The simulated world: the same by seed, and what it promises about every video."""

import subprocess
import sys

import numpy as np
import pytest

from lab.simulate import (
    BACKBONE_SETTINGS,
    EASY_WORLD,
    SHORT_WORLD,
    WORLD_SETTINGS,
    YOUCOOK2_WORLD,
    SimulationSettings,
    recipes,
    simulate,
    stream,
)
from lab.simulate.narration import TEXT_STYLES
from lab.simulate.scene import NO_INDEX
from lab.simulate.settings import RECOGNISER_SETTINGS
from stepline.errors import SettingsError
from stepline.records import Span
from stepline.settings import validate
from stepline.storage import from_json, to_json


@pytest.fixture(scope="module")
def simulation():
    return simulate(0, SHORT_WORLD.model_copy(update={"videos": 12}))


def test_the_same_seed_gives_the_same_videos():
    settings = SHORT_WORLD.model_copy(update={"videos": 2})
    first, second, other = simulate(1, settings), simulate(1, settings), simulate(2, settings)
    assert list(map(to_json, first.records)) == list(map(to_json, second.records))
    assert from_json(to_json(first.records[0])) == first.records[0]
    assert first.records != other.records
    for style in TEXT_STYLES:
        assert np.array_equal(first.vectors(style)[1], second.vectors(style)[1])
        assert np.array_equal(first.embeddings(style)[1], second.embeddings(style)[1])
    assert np.array_equal(first.features()[1].values, second.features()[1].values)
    assert not np.array_equal(first.features()[1].values[:50], other.features()[1].values[:50])


def test_a_video_is_the_same_whatever_was_drawn_before_it(simulation):
    (alone,) = stream(0, simulation.settings, start=7, count=1)
    assert np.array_equal(alone.vectors("step"), simulation.videos[7].vectors("step"))
    assert alone.record == simulation.videos[7].record
    assert len(list(stream(0, simulation.settings))) == 12
    (beyond,) = stream(0, simulation.settings, start=999, count=1)
    assert (beyond.subset, beyond.id) == ("val_seen", "w0000000999")


def test_texts_and_vectors_and_truth_are_aligned(simulation):
    for sample, record in zip(simulation.videos, simulation.records, strict=True):
        texts = {"narration": record.transcript.sentences, "step": record.steps}
        texts["recipe"] = record.recipe
        seconds = int(np.ceil(sample.duration))
        assert sample.features().values.shape == (seconds, 128)
        for style in TEXT_STYLES:
            assert len(texts[style]) == len(sample.lines(style)) == len(sample.vectors(style))
            assert sample.shown(style).shape == (len(texts[style]), seconds)
            assert np.array_equal(sample.shown(style).any(axis=1), sample.lines(style).shown)


def test_rows_have_length_one(simulation):
    sample = simulation.videos[0]
    texts = [sample.vectors(style) for style in TEXT_STYLES]
    for rows in (sample.features().values, *texts, sample.embeddings("step")):
        assert rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("world", WORLD_SETTINGS)
def test_windows_stand_in_order_inside_the_video_and_never_overlap(world):
    settings = WORLD_SETTINGS[world]
    for sample in stream(3, settings, count=30):
        windows = sample.timeline.windows
        assert settings.timeline.shortest <= sample.duration <= settings.timeline.longest
        assert (windows[:, 0] < windows[:, 1]).all()
        assert (windows[1:, 0] >= windows[:-1, 1]).all()
        assert windows[0, 0] >= 0
        assert windows[-1, 1] <= sample.duration


def test_the_reference_is_the_planted_truth_about_each_kind_of_text(simulation):
    sample = simulation.videos[3]
    for style in TEXT_STYLES:
        record = simulation.records_about(style)[3]
        assert len(record.reference) == len(sample.lines(style))
        for step, row in zip(record.reference, sample.shown(style), strict=True):
            seconds = np.arange(len(row)) + 0.5
            inside = [any(second in span for span in step.spans) for second in seconds]
            assert row.tolist() == inside


def test_a_repeated_step_has_several_spans():
    timeline = SHORT_WORLD.timeline.model_copy(update={"repeated": 1.0})
    world = SHORT_WORLD.model_copy(update={"videos": 1, "timeline": timeline})
    record = simulate(0, world).records[0]
    assert {len(step.spans) for step in record.reference} == {0, 2}


def test_written_steps_cite_sentences_that_tell_them(simulation):
    for sample in simulation.videos:
        for row, sources in enumerate(sample.steps.sources):
            said = sample.narration
            assert {int(said.step[source]) for source in sources} == {int(sample.steps.step[row])}
            assert {source // 10 for source in sources} == {sources[0] // 10}
            assert sample.steps.times[row, 0] == said.times[sources[0], 0]


def test_captions_tell_what_is_shown_in_the_order_of_time(simulation):
    for sample, record in zip(simulation.videos, simulation.records, strict=True):
        windows = [Span(*map(float, window)) for window in sample.timeline.windows]
        assert [step.spans[0] for step in record.captions] == windows
        assert len({step.id for step in record.captions}) == len(record.captions)


def test_titles_and_articles_belong_to_the_task(simulation):
    base = recipes(simulation.world)
    assert len(base) == 12
    assert base == simulation.recipes
    assert all(record.recipe == base[str(record.video.task)] for record in simulation.records)
    many = simulate(0, validate(SimulationSettings, {"videos": 1, "tasks": {"tasks": 1000}}))
    assert len(many.recipes) == 1000


def test_a_line_of_an_article_reads_the_same_and_has_the_same_vector_in_every_video(simulation):
    first, *others = stream(0, simulation.settings, count=60)
    other = next(s for s in others if s.task.number == first.task.number)
    assert np.array_equal(first.vectors("recipe"), other.vectors("recipe"))
    assert not np.array_equal(first.recipe.window, other.recipe.window)


def test_an_unseen_task_is_never_trained_on():
    tasks = SHORT_WORLD.tasks.model_copy(update={"unseen": 4})
    samples = list(stream(0, SHORT_WORLD.model_copy(update={"videos": 80, "tasks": tasks})))
    unseen = [sample for sample in samples if sample.task.number >= 8]
    assert unseen
    assert {sample.subset for sample in unseen} == {"val_unseen"}
    assert {sample.subset for sample in samples} == {"train", "val_seen", "val_unseen"}


@pytest.mark.parametrize("style", TEXT_STYLES)
def test_text_and_picture_of_a_shown_step_are_alike_without_noise(style):
    quiet = dict.fromkeys(("walk", "white", "video", "instance", "style_bias"), 0.0)
    quiet |= {"action_shared": 1.0, "object_shared": 1.0}
    quiet |= {each: {"distortion": 0.0, "noise": 0.0} for each in TEXT_STYLES}
    tree = {"videos": 20, "backbone": "quiet", "backbones": {"quiet": quiet}}
    tree["scene"] = {"action_seen": 1.0}
    tree["narration"] = {"object_dropped": 0.0, "action_dropped": 0.0}
    settings = validate(SimulationSettings, tree)
    hits = []
    for sample in stream(0, settings):
        truth = sample.shown(style)
        best = (sample.vectors(style) @ sample.features().values.T).argmax(axis=1)
        hits += truth[np.arange(len(truth)), best][truth.any(axis=1)].tolist()
    assert np.mean(hits) > 0.9


def test_a_worse_recogniser_errs_but_keeps_the_truth(simulation):
    sample = simulation.videos[0]
    clean, noisy = sample.recognised("clean"), sample.recognised("noisy")
    assert len(clean) == len(noisy) == len(sample.spoken)
    assert sorted(clean.window) == sorted(noisy.window)
    assert not np.array_equal(clean.times, noisy.times)
    assert (np.diff(noisy.times[:, 0]) >= 0).all()
    assert (noisy.times[:, 1] <= sample.duration).all()
    assert set(noisy.said_action) == {0, 1, 2} or set(noisy.said_object) == {0, 1, 2}


def test_a_worse_recogniser_writes_other_words():
    said = {}
    for grade in RECOGNISER_SETTINGS:
        world = SHORT_WORLD.model_copy(update={"videos": 5, "recogniser": grade})
        sentences = [
            one for each in simulate(0, world).records for one in each.transcript.sentences
        ]
        said[grade] = " ".join(sentence.text for sentence in sentences)
    assert said["noisy"] == said["noisy"].lower()
    assert "." in said["aligned"]
    known = set(said["clean"].lower().split())
    wrong = {
        grade: np.mean([word not in known for word in text.lower().split()])
        for grade, text in said.items()
    }
    assert wrong["clean"] == 0 < wrong["aligned"] < wrong["noisy"]


def test_chat_and_absent_steps_are_shown_nowhere(simulation):
    for sample in simulation.videos:
        lines = sample.narration
        assert not lines.shown[lines.step == NO_INDEX].any()
        absent = np.isin(lines.step, sample.timeline.steps, invert=True)
        assert not lines.shown[absent].any()


def test_settings_that_cannot_be_are_refused(simulation):
    said = "'blurred' is not one of this world; take one of usual, sharp, dull"
    with pytest.raises(SettingsError, match=said):
        simulation.videos[0].features("blurred")
    for tree, said in (
        ({"backbone": "blurred"}, "is not one of usual"),
        ({"backbones": {"usual": {"width": 40}}}, "width must be at least"),
        ({"tasks": {"fewest_steps": 20}}, "fewest_steps <= most_steps"),
        ({"backbones": {"usual": {}, "embedder": {}}}, "taken by the text encoder"),
    ):
        with pytest.raises(SettingsError, match=said):
            validate(SimulationSettings, tree)


def test_extreme_settings_still_give_videos():
    for tree in (
        {"timeline": {"present": 0.0, "least_present": 1}},
        {"timeline": {"present": 1.0}},
        {"narration": {"sentence_least": 200.0, "sentence_most": 300.0}},
        {"narration": {"more_mentions": 50.0}},
        {"writer": {"step_kept": 0.0, "object_chat_kept": 0.0, "chat_kept": 0.0}},
        {"tasks": {"tasks": 1}, "held_out": 0.0},
    ):
        for sample in stream(0, validate(SimulationSettings, {"videos": 3, **tree})):
            assert sample.record.id == sample.id
            for style in TEXT_STYLES:
                assert sample.vectors(style).shape == (len(sample.lines(style)), 128)


def test_named_worlds_differ_where_they_say():
    assert EASY_WORLD.difficulty < SHORT_WORLD.difficulty
    assert YOUCOOK2_WORLD.timeline.longest == 600.0
    assert set(BACKBONE_SETTINGS) == {"usual", "sharp", "dull"}


def test_importing_it_loads_no_network():
    code = "import sys, lab.simulate; print('torch' in sys.modules or 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
