"""Which settings decide which stage's result."""

import pytest

from stepline.curate.stage import Recipe, load_recipe, resolve_stages
from stepline.curate.stages import STAGE_TABLE
from stepline.curate.stages.cache_keys import text_encoder_name
from stepline.errors import SettingsError
from stepline.files.digests import file_digest
from stepline.settings import load_settings


def touched(*overrides):
    """Return the stages whose own settings differ once these are changed."""
    before, after = load_settings(Recipe), load_settings(Recipe, None, overrides)
    stages = {name: STAGE_TABLE[name] for name in set(STAGE_TABLE) - {"sieve-swap", "export"}}
    changed = {n: s.result_settings(before) != s.result_settings(after) for n, s in stages.items()}
    return {name for name in changed if changed[name]}


# a setting and the stages whose result it decides; speed and places decide none
DECIDED = """filter.words=20 filter, coarse.said=cited coarse, steps.nasva.coarse.grow=0.5 coarse,
steps.nasva.coarse.matching=line-model coarse, steps.nasva.ground.typical=7.5 ground,
steps.asr.beam=1 transcribe, steps.vision.rate=2.0 encode, steps.judge.seconds=4.0 judge,
gather.same_words=0.5 gather, train.train.epochs=3 train, refine.rounds.rounds=2 refine,
place.aligner.smooth=3 refine, clean.shown=0.7 clean, visible.shown=0.7 visible,
threads=2 train refine, steps.asr.threads=4, steps.vision.batch=8,
steps.writing.llm.concurrency=8, train.train.readers=0, refine.train.save_every=5,
engine.workers=2, limits.seconds=5.0, source.kind=folder, export.rows=10"""


@pytest.mark.parametrize("row", DECIDED.split(","), ids=str.strip)
def test_a_setting_touches_the_stages_that_read_it_alone(row):
    override, *stages = row.split()
    assert touched(override) == set(stages)


def test_the_words_asked_of_a_model_count_only_where_one_is_asked():
    assert touched("steps.writing.llm.floor=0.3") == set()
    asked = ("steps.writing.writer=llm", "steps.writing.llm.base_url=http://127.0.0.1:1/v1")
    one = load_settings(Recipe, None, [*asked, "steps.writing.llm.floor=0.3"])
    other = load_settings(Recipe, None, asked)
    elsewhere = load_settings(Recipe, None, [asked[0], asked[1].replace("1:1", "2:2")])
    write = STAGE_TABLE["write"].settings
    assert write(one) != write(other)
    assert write(other) == write(elsewhere)  # the same model at another address


def test_a_named_file_counts_by_its_bytes(tmp_path):
    (tmp_path / "a").write_text("1")
    first = file_digest(tmp_path)
    assert file_digest(tmp_path / "a") != first
    (tmp_path / "a").write_text("2")
    assert file_digest(tmp_path) != first
    assert file_digest(None) is None
    with pytest.raises(SettingsError, match="it is not there"):
        file_digest(tmp_path / "b")


def test_sieve_and_swap_asks_for_a_text_base():
    with pytest.raises(SettingsError, match="stepline text-base build"):
        STAGE_TABLE["sieve-swap"].result_settings(load_recipe("sieve_swap"))


def test_steps_are_encoded_in_the_space_of_the_features():
    assert text_encoder_name(load_settings(Recipe)) == "minilm"
    clip = load_settings(Recipe, None, ["steps.vision.backbone=clip", "steps.vision.path=weights"])
    assert text_encoder_name(clip) == "clip:weights"


def test_a_vision_language_model_decides_ground_alone_and_lets_it_read_the_video():
    named = "steps.vision.vlm.base_url=http://127.0.0.1:8000/v1"
    assert touched(named, "steps.vision.vlm.requests=5") == {"ground"}
    assert touched("steps.vision.vlm.requests=5") == set()  # of nobody
    models = ("steps.vision.vlm.model=one", "steps.vision.vlm.model=other")
    ground = STAGE_TABLE["ground"].result_settings
    first, second = (ground(load_settings(Recipe, None, (named, model))) for model in models)
    assert first != second
    names = ("probe", "transcribe", "write", "encode", "coarse", "ground")
    for overrides, reads in (((), ()), ((named,), ("media",))):
        recipe = load_settings(Recipe, None, overrides).model_copy(update={"stages": names})
        assert resolve_stages(recipe, STAGE_TABLE)[-1].reads == reads
