from types import SimpleNamespace

import fake_stages
import numpy as np
import pytest

from stepline.curate.stage import RECIPES_FOLDER, Recipe, load_recipe, resolve_stages
from stepline.curate.stages import STAGE_TABLE, per_video
from stepline.errors import SettingsError
from stepline.pipeline.request import StepsSettings
from stepline.settings import without_removed_settings

NAMES = sorted(path.stem for path in RECIPES_FOLDER.glob("*.toml"))


def test_the_papers_have_a_recipe_each_and_features_one():
    assert NAMES == ["clean", "features", "howtostep", "sieve_swap", "visual_narration"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_lists_stages_that_exist_each_after_what_it_needs(name):
    recipe = load_recipe(name)
    stages = resolve_stages(recipe, STAGE_TABLE)
    assert [stage.name for stage in stages] == list(recipe.stages)
    assert stages[-1].name == ("features" if name == "features" else "export")


def test_the_paper_s_stages_follow_its_settings():
    recipe = load_recipe("howtostep")
    assert (recipe.train.data.step_place, recipe.coarse.said) == ("said", "likeness")
    assert (recipe.refine.rounds.rounds, recipe.train.train.epochs) == (1, 12)


BEFORE_GATHER = ("probe", "transcribe", "write", "encode", "coarse")


def test_what_a_stage_takes_counts_where_the_recipe_has_it():
    short = (*BEFORE_GATHER, "gather")
    with_filter = ("probe", "transcribe", "write", "filter", "encode", "coarse", "gather")
    assert "filter" not in resolve_stages(Recipe(stages=short), STAGE_TABLE)[-1].needs
    assert "filter" in resolve_stages(Recipe(stages=with_filter), STAGE_TABLE)[-1].needs


@pytest.mark.parametrize(
    ("stages", "table", "said"),
    [
        (("probe", "transcibe"), STAGE_TABLE, "no stage 'transcibe'; did you mean 'transcribe'"),
        (("probe", "write"), STAGE_TABLE, "stage 'write' needs 'transcribe' before it"),
        (
            (*BEFORE_GATHER, "gather", "refine", "sieve-swap"),
            STAGE_TABLE,
            "stage 'refine' reads the result of 'sieve-swap'; name 'sieve-swap' first",
        ),
        (("reed",), fake_stages.STAGES, "no stage 'reed'"),
        (("count", "read"), fake_stages.STAGES, "'count' needs 'read' before it"),
        (("read", "read"), fake_stages.STAGES, "'read' is named twice"),
        ((), fake_stages.STAGES, "names no stage"),
    ],
)
def test_a_recipe_must_hold_together(stages, table, said):
    with pytest.raises(SettingsError, match=said):
        resolve_stages(Recipe(stages=stages), table)
    with pytest.raises(SettingsError, match="no such recipe"):
        load_recipe("no-such-recipe")


def test_what_a_stage_takes_counts_only_where_the_recipe_has_it():
    names = list(fake_stages.STAGES)
    with_share = resolve_stages(fake_stages.recipe(stages=names), fake_stages.STAGES)
    (publish,) = (stage for stage in with_share if stage.name == "publish")
    assert publish.needs == ("total", "double", "share")
    assert resolve_stages(fake_stages.recipe(), fake_stages.STAGES)[-1].needs == ("total", "double")


def test_a_vision_language_model_is_checked_before_any_video_is_opened():
    named = "steps.vision.vlm.base_url=http://127.0.0.1:8000/v1"
    assert load_recipe("howtostep", [named]).steps.vision.vlm.named
    with pytest.raises(SettingsError, match="vision.vlm needs one row per second"):
        load_recipe("howtostep", [named, "steps.vision.rate=2.0"])
    with pytest.raises(SettingsError, match="give --limit"):
        load_recipe("howtostep", [named, "steps.vision.vlm.dry_run=true"])


def test_settings_of_the_former_forecast_say_so_and_stored_ones_are_dropped():
    with pytest.raises(SettingsError, match=r"forecast was removed; run with --limit"):
        load_recipe("howtostep", ["forecast.sample=24"])
    assert without_removed_settings({"forecast": {"sample": 24}, "threads": 1}) == {"threads": 1}


def test_steps_are_compared_with_sentences_by_the_text_encoder_of_the_backbone(monkeypatch):
    """NaSVA, sections 3.1 and 3.2: one g; vectors of any length become unit vectors."""
    backbone = SimpleNamespace(encode_texts=lambda texts: np.full((len(texts), 4), 3, np.float32))
    monkeypatch.setattr(per_video, "_load_backbone", lambda vision: backbone)
    monkeypatch.setattr(per_video, "_load_text_encoder", lambda name: name)
    settings = StepsSettings()
    assert per_video._linking_encoder(settings) == "minilm"
    coarse = settings.nasva.coarse.model_copy(update={"encoder": "backbone"})
    nasva = settings.nasva.model_copy(update={"coarse": coarse})
    settings = settings.model_copy(update={"nasva": nasva})
    assert per_video._linking_encoder(settings) == "minilm"  # that of conse
    clip = settings.vision.model_copy(update={"backbone": "clip"})
    encode = per_video._linking_encoder(settings.model_copy(update={"vision": clip}))
    assert encode(["boil rice"]).tolist() == [[0.5] * 4]
