from pathlib import Path

import pytest

from stepline.errors import SettingsError
from stepline.settings import Settings, load_settings


class Inner(Settings):
    beam: int = 5
    words: tuple[str, ...] = ()
    path: Path | None = None


class Tree(Settings):
    asr: Inner = Inner()
    rate: float = 1.0


def test_overrides_beat_the_file_which_beats_the_defaults(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('rate = 2\n[asr]\nbeam = 3\nwords = ["a", "b"]\n')
    tree = load_settings(Tree, file, ["asr.beam=1", "asr.path=some/where"])
    assert tree == Tree(asr=Inner(beam=1, words=("a", "b"), path=Path("some/where")), rate=2.0)


def test_zero_means_zero():
    assert load_settings(Tree, None, ["asr.beam=0"]).asr.beam == 0


def test_an_unknown_key_names_its_near_miss():
    with pytest.raises(SettingsError, match=r"unknown setting 'asr.bean'; did you mean 'asr.beam'"):
        load_settings(Tree, None, ["asr.bean=1"])


def test_a_wrong_type_names_the_key_and_the_value():
    with pytest.raises(SettingsError, match="asr.beam.*'many'"):
        load_settings(Tree, None, ["asr.beam=many"])
    with pytest.raises(SettingsError, match="rate"):
        load_settings(Tree, None, ["rate=nan"])


@pytest.mark.parametrize("override", ["asr.beam", "=1", "asr..beam=1", "rate.x.y=1"])
def test_a_malformed_override_says_how_to_write_it(override):
    with pytest.raises(SettingsError):
        load_settings(Tree, None, ["rate=2", override])


def test_broken_or_missing_toml_is_one_line(tmp_path):
    broken = tmp_path / "b.toml"
    broken.write_text("rate = = 1")
    with pytest.raises(SettingsError, match="not valid TOML") as error:
        load_settings(Tree, broken)
    assert "\n" not in str(error.value)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(Tree, tmp_path / "none.toml")


class Server(Settings):
    api_key_variable: int = 0


def test_a_refused_secret_is_not_repeated():
    with pytest.raises(SettingsError, match="api_key_variable") as error:
        load_settings(Server, None, ["api_key_variable=sk-secret"])
    assert "sk-secret" not in str(error.value)


class Sizes(Settings):
    depth: int = 1
    width: int = 1


class Outer(Settings):
    inner: Sizes = Sizes()
    count: int = 1


class Special(Settings):
    outer: Outer = Outer(inner=Sizes(depth=7), count=3)


def test_a_sections_own_defaults_stay_where_other_fields_are_set():
    assert load_settings(Special, None, ["outer.count=5"]).outer == Outer(inner=Sizes(depth=7), count=5)
    assert load_settings(Special, None, ["outer.inner.width=2"]).outer == Outer(inner=Sizes(depth=7, width=2), count=3)
    with pytest.raises(SettingsError, match="did you mean"):
        load_settings(Special, None, ["outer.inner.wdth=2"])


def test_what_was_not_set_is_still_known_not_to_be():
    assert load_settings(Special, None, ["outer.count=5"]).outer.inner.model_fields_set == {"depth"}
    assert load_settings(Outer, None, ["inner.depth=2"]).inner.model_fields_set == {"depth"}
