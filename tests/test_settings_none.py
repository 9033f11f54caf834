"""`none` in a TOML file, a variable or `--set` is None, wherever a setting may be None."""

from importlib import import_module

import pytest
from pydantic import Field

from docs.generate import OTHERS, PACKAGE
from stepline.errors import SettingsError
from stepline.models.nasva.settings import RefineRunSettings
from stepline.models.training.settings import TrainSettings
from stepline.pipeline.request import StepsSettings
from stepline.settings import Settings, admits_none, load_settings, section_class, validate


def optional_keys(kind, prefix=""):
    """Yield the key of every setting that may be None, in the sections of `kind` too."""
    for name, field in kind.model_fields.items():
        if admits_none(field.annotation):
            yield f"{prefix}{name}"
        section = section_class(field.annotation)
        if section is not None:
            yield from optional_keys(section, f"{prefix}{name}.")


def value_at(settings, key):
    for part in key.split("."):
        settings = getattr(settings, part)
    return settings


COMMANDS = {"steps": StepsSettings, "refine": RefineRunSettings, **OTHERS}
KEYS = [
    pytest.param(kind, key, id=f"{command} {key}")
    for command, kind in COMMANDS.items()
    for key in optional_keys(kind)
]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_every_setting_that_may_be_none_takes_none(kind, key, tmp_path):
    assert value_at(load_settings(kind, None, [f"{key}=none"]), key) is None
    section, _, name = key.rpartition(".")
    file = tmp_path / "run.toml"
    file.write_text(f'{f"[{section}]" if section else ""}\n{name} = "none"\n')
    assert value_at(load_settings(kind, file), key) is None


def test_the_settings_of_the_issue_are_among_them():
    keys = {key for kind in COMMANDS.values() for key in optional_keys(kind)}
    named = ("rounds.refine.seconds", "rounds.refine.agree", "filter.longest", "place.shown_rate")
    assert {*named, "contrast.negatives"} <= keys


def test_the_environment_may_say_none(monkeypatch):
    monkeypatch.setenv("STEPLINE_ROUNDS__REFINE__SECONDS", "none")
    assert load_settings(RefineRunSettings).rounds.refine.seconds is None


def test_none_stays_a_word_where_it_is_a_value_of_its_own():
    settings = load_settings(RefineRunSettings, None, ["model.feature_scale=none"])
    assert settings.model.feature_scale == "none"


def test_a_number_that_may_not_be_none_is_refused_by_its_name():
    with pytest.raises(SettingsError, match="train.epochs"):
        load_settings(RefineRunSettings, None, ["train.epochs=none"])
    assert not admits_none(TrainSettings.model_fields["epochs"].annotation)


def test_a_wrong_value_says_that_none_is_one():
    with pytest.raises(SettingsError, match=r"rounds.refine.seconds.*number, or none \(given"):
        load_settings(RefineRunSettings, None, ["rounds.refine.seconds=null"])


class Leaf(Settings):
    depth: int | None = 1


class Stem(Settings):
    leaf: Leaf | None = Leaf()
    leaves: dict[str, Leaf] = Field(default_factory=dict)
    sizes: tuple[float | None, ...] = ()


def test_sections_and_lists_take_none_too():
    assert load_settings(Stem, None, ["leaf=none"]).leaf is None
    assert load_settings(Stem, None, ["leaf.depth=none"]).leaf == Leaf(depth=None)
    assert load_settings(Stem, None, ["leaves.a.depth=none"]).leaves == {"a": Leaf(depth=None)}
    assert load_settings(Stem, None, ['sizes=[1.0, "none"]']).sizes == (1.0, None)


def test_every_settings_class_takes_none_also_where_no_command_has_it():
    for file in PACKAGE.rglob("settings.py"):
        import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))
    kinds = [kind for kind in below(Settings) if kind.__module__.startswith("stepline.")]
    for kind in kinds:
        for name, field in kind.model_fields.items():
            if admits_none(field.annotation):
                assert getattr(validate(kind, {name: "none"}), name) is None


def below(kind):
    for child in kind.__subclasses__():
        yield child
        yield from below(child)
