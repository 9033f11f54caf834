from pathlib import Path

import platformdirs
import pytest

from stepline.compare.settings import CompareRunSettings
from stepline.curate.stage import Recipe
from stepline.errors import SettingsError
from stepline.models.nasva.settings import AlignerRunSettings, RefineRunSettings
from stepline.models.procx.settings import ProcxRunSettings
from stepline.models.training.network import parse_settings
from stepline.models.wys2.settings import Wys2Settings
from stepline.pipeline.request import StepsSettings
from stepline.settings import (
    SECTION_NAMES,
    Settings,
    config_file,
    load_settings,
    validate,
    without_removed_settings,
)
from stepline.sieve_swap.settings import SieveSwapSettings


class Inner(Settings):
    beam: int = 5
    words: tuple[str, ...] = ()
    path: Path | None = None


class Tree(Settings):
    asr: Inner = Inner()
    rate: float = 1.0


def test_an_unknown_key_names_its_near_miss():
    with pytest.raises(SettingsError, match=r"unknown setting 'asr.bean'; did you mean 'asr.beam'"):
        load_settings(Tree, None, ["asr.bean=1"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "writing.second_pass=true",
            "second_pass was removed; it is fixed or gone now; leave it out",
        ),
        ("writing.llm.words_per_chunk=60", "was removed; `writing.llm.form` decides how much"),
        ("writing.llm.prompt_file=a.txt", "was removed; `writing.llm.form` chooses what"),
        ("writing.llm.prompt=whole_words", r"writing.llm: prompt='whole_words': give form=auto, "),
        (
            "asr.retry_beam=2",
            "setting asr.retry_beam was removed; it is fixed or gone now; leave it",
        ),
        ("nasva.ground.lag_reach=3", "setting nasva.ground.lag_reach was removed"),
        ("vision.hands=true", "unknown setting 'vision.hands'"),
        ("procx.cover=1", "unknown setting 'procx.cover'"),
        ("procx.choose=apart", "setting procx.choose was removed; it is fixed or gone now"),
    ],
)
def test_a_setting_that_has_gone_is_named_in_one_line(override, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(StepsSettings, None, [override])


def test_a_wrong_type_names_the_key_and_the_value():
    with pytest.raises(SettingsError, match="asr.beam.*'many'"):
        load_settings(Tree, None, ["asr.beam=many"])
    with pytest.raises(SettingsError, match="rate"):
        load_settings(Tree, None, ["rate=nan"])


@pytest.mark.parametrize("value", ["5\n[writing]\nx = 1", "5\nrate = 3", "5\r\n6", "a\nb"])
def test_an_override_of_several_lines_is_refused(value):
    with pytest.raises(SettingsError, match="a value has one line"):
        load_settings(StepsSettings, None, [f"asr.beam={value}"])
    # what a file or a shell adds at the end is no second line
    assert load_settings(StepsSettings, None, ["asr.beam=5\n"]).asr.beam == 5


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
    outer = load_settings(Special, None, ["outer.count=5"]).outer
    assert outer == Outer(inner=Sizes(depth=7), count=5)
    outer = load_settings(Special, None, ["outer.inner.width=2"]).outer
    assert outer == Outer(inner=Sizes(depth=7, width=2), count=3)
    with pytest.raises(SettingsError, match="did you mean"):
        load_settings(Special, None, ["outer.inner.wdth=2"])


def test_what_was_not_set_is_still_known_not_to_be():
    assert load_settings(Special, None, ["outer.count=5"]).outer.inner.model_fields_set == {"depth"}
    assert load_settings(Outer, None, ["inner.depth=2"]).inner.model_fields_set == {"depth"}


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Set the user's own settings: user("config file's text", STEPLINE_ASR__BEAM="5")."""

    def write(text="", **variables):
        path = tmp_path / "config.toml"
        path.write_text(text)
        monkeypatch.setenv("STEPLINE_CONFIG", str(path))
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return path

    return write


def test_overrides_beat_the_file_the_environment_the_config_file_and_the_defaults_in_this_order(
    user, tmp_path
):
    place = {"STEPLINE_ASR__PATH": "from/environment"}
    user('[asr]\nbeam = 2\nwords = ["c"]\n', STEPLINE_ASR__BEAM="3", **place)
    expected = Inner(beam=3, words=("c",), path=Path("from/environment"))
    assert load_settings(Tree) == Tree(asr=expected)
    file = tmp_path / "s.toml"
    file.write_text("rate = 2\n[asr]\nbeam = 4\n")
    expected = expected.model_copy(update={"beam": 4})
    assert load_settings(Tree, file) == Tree(asr=expected, rate=2.0)
    found = load_settings(Tree, file, ["asr.beam=0", "asr.path=some/where"]).asr
    assert found == Inner(beam=0, words=("c",), path=Path("some/where"))


def test_the_config_file_is_in_the_users_config_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("STEPLINE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_file() is None
    path = platformdirs.user_config_path("stepline", appauthor=False) / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[asr]\nbeam = 7\n")
    assert load_settings(Tree).asr.beam == 7


def test_sections_of_other_commands_and_other_variables_are_left_alone(user):
    others = {"STEPLINE_CACHE": "x", "STEPLINE_OTHER": "1"}
    user("[writing]\nfloor = 1\n", STEPLINE_VOCABULARY__SIZE="3", **others)
    assert load_settings(Tree) == Tree()


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("[asr]\nbean = 1\n", {}, r"setting 'asr.bean'; did you mean 'asr.beam'\? .*config\.toml"),
        ("", {"STEPLINE_ASR__BEAN": "1"}, r"did you mean 'asr.beam'\? .*STEPLINE_ASR__BEAN"),
        ("[ars]\nbeam = 1\n", {}, r"config\.toml: unknown section 'ars'; did you mean 'asr'\?"),
        (
            "",
            {"STEPLINE_ARS__BEAM": "1"},
            r"ARS__BEAM: unknown section 'ars'; did you mean 'asr'\?",
        ),
        ("", {"STEPLINE_ASR__BEAM": "many"}, r"asr\.beam: .*'many'.*STEPLINE_ASR__BEAM"),
        ("", {"STEPLINE_ASR____BEAM": "1"}, r"STEPLINE_ASR____BEAM: write it as section.key=value"),
        ("[asr\n", {}, r"config\.toml: not valid TOML"),
    ],
)
def test_a_mistake_in_the_users_settings_is_one_line_that_says_where(
    user, text, variables, message
):
    user(text, **variables)
    with pytest.raises(SettingsError, match=message) as error:
        load_settings(Tree)
    assert "\n" not in str(error.value)


def test_a_config_file_that_is_named_must_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("STEPLINE_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SettingsError, match="none.toml: cannot be read"):
        load_settings(Tree)


def test_the_sections_of_every_command_are_known():
    roots = (
        *(Recipe, AlignerRunSettings, CompareRunSettings, RefineRunSettings),
        *(StepsSettings, ProcxRunSettings, SieveSwapSettings, Wys2Settings),
    )
    assert {name for root in roots for name in root.model_fields} == SECTION_NAMES


def _numbers(schema):
    """Every number that a JSON schema allows, in lists and unions too."""
    own, forms = [], schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        own = [schema] if schema.get("type") in ("integer", "number") else []
        forms = schema.values()
    return own + [number for form in forms for number in _numbers(form)]


def _kinds(kind):
    return {kind}.union(*(_kinds(below) for below in kind.__subclasses__()))


def test_every_number_that_can_be_set_has_a_range():
    assert {Recipe, SieveSwapSettings, Wys2Settings} <= _kinds(Settings)
    open_ended = [
        f"{kind.__name__}.{name}"
        for kind in _kinds(Settings)
        if kind.__module__.startswith("stepline.")
        for name, schema in kind.model_json_schema().get("properties", {}).items()
        for number in _numbers(schema)
        if not (
            {"minimum", "exclusiveMinimum"} & set(number)
            and {"maximum", "exclusiveMaximum"} & set(number)
        )
    ]
    assert open_ended == []


@pytest.mark.parametrize(
    "override",
    (
        "asr.pause=1e300 asr.longest=1e308 vision.frame_size=100000 media.threads=5000 "
        "asr.threads=5000 nasva.ground.window=1e-9"
    ).split(),
)
def test_a_number_beyond_its_range_is_refused_by_name_with_the_range(override):
    name = override.partition("=")[0]
    with pytest.raises(SettingsError, match=f"setting {name}: it must be .* and at most"):
        load_settings(StepsSettings, None, [override])


def test_what_0_1_0_stored_is_read_without_settings_that_were_removed():
    for kind, section, removed in (
        (StepsSettings, "asr", {"retry_beam": 2}),
        (AlignerRunSettings, "loss", {"every_layer": None}),
    ):
        now = kind().model_dump(mode="json")
        stored = {**now, section: now[section] | removed}
        assert without_removed_settings(stored) == now
        assert parse_settings(kind, stored) == kind()


def test_settings_that_0_1_0_stored_in_a_record_or_a_run_are_read_without_what_left():
    stored = {"procx": {"overlap": 0.2, "caption_power": 2.0, "floor": 0.1, "search": {"beam": 1}}}
    read = validate(StepsSettings, without_removed_settings(stored))
    assert read == validate(StepsSettings, {"procx": {"floor": 0.1}})
    report = {"points": 400, "task": None, "witness": {"seed": 3}, "seed": 5}
    run = without_removed_settings({"report": report, "steps": stored})
    assert validate(Recipe, run).report.seed == 5
    with pytest.raises(SettingsError, match=r"procx\.overlap was removed"):
        load_settings(StepsSettings, None, ["procx.overlap=0.2"])


@pytest.mark.parametrize(
    ("prompt", "form"), [("steps", "edit"), ("whole", "write"), ("nasva", "nasva")]
)
def test_the_prompt_of_a_language_model_that_0_1_0_stored_is_read_as_its_form(prompt, form):
    llm = {"prompt": prompt, "sentences_per_chunk": 12, "words_per_chunk": 60, "max_tokens": 99}
    read = parse_settings(StepsSettings, {"writing": {"writer": "llm", "llm": llm}}).writing.llm
    assert (read.form, read.sentences_per_chunk, read.max_tokens) == (form, 12, 99)
    assert not {"prompt", "words_per_chunk"} & read.model_dump().keys()


def test_a_removed_setting_is_one_of_no_section_that_stores_it():
    """What a section still has would be lost from stored settings."""
    tree = Recipe().model_dump(mode="json")
    assert without_removed_settings(tree) == tree
