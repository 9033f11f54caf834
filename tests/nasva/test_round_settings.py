"""Settings by round: the paper's tables 8 and 9 as they are typed."""

import pytest

from stepline.cli.options import preset_files
from stepline.errors import SettingsError
from stepline.models.nasva.settings import RefineRunSettings
from stepline.settings import load_settings, validate

PAPER = preset_files("refine")["paper"]


def rounds(*overrides):
    return load_settings(RefineRunSettings, None, overrides, preset=PAPER).rounds


def labelling(refine):
    """Return the columns of table 9: threshold, position, duration."""
    return refine.threshold, refine.position, refine.seconds


def test_the_crosses_of_table_8_can_be_typed():
    typed = rounds(
        "rounds.refine.threshold=0.6", "rounds.refine.position=center", "rounds.refine.seconds=none"
    )
    assert labelling(typed.get_round_settings(1)) == (0.6, "center", None)


TABLE_9 = (
    "rounds.rounds=3 rounds.by_round.2.threshold=0.7 rounds.by_round.2.position=center "
    "rounds.by_round.2.seconds=none rounds.by_round.3.position=center "
    "rounds.by_round.3.seconds=none"
).split()


def test_the_rounds_of_table_9_can_be_typed():
    typed = rounds(*TABLE_9)
    first, second, third = (labelling(typed.get_round_settings(n)) for n in (1, 2, 3))
    assert (first, second) == ((0.8, "start", 8.0), (0.7, "center", None))
    assert third == (0.8, "center", None)


def test_rounds_of_a_settings_file_are_those_of_the_options(tmp_path):
    file = tmp_path / "table_9.toml"
    file.write_text(
        "[rounds]\nrounds = 3\n"
        '[rounds.by_round.2]\nthreshold = 0.7\nposition = "center"\nseconds = "none"\n'
        '[rounds.by_round.3]\nposition = "center"\nseconds = "none"\n'
    )
    assert load_settings(RefineRunSettings, file, preset=PAPER).rounds == rounds(*TABLE_9)


def test_what_is_written_down_is_read_back():
    settings = load_settings(RefineRunSettings, None, TABLE_9, preset=PAPER)
    written = settings.model_dump(mode="json")
    assert written["rounds"]["by_round"]["3"] == {"position": "center", "seconds": None}
    again = validate(RefineRunSettings, written).rounds
    assert again.get_round_settings(3) == settings.rounds.get_round_settings(3)
    assert "by_round" not in RefineRunSettings().model_dump()["rounds"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rounds.by_round.4.seconds=none", r"by_round.4 has no round; give rounds.rounds=4"),
        ("rounds.by_round.2.second=none", "did you mean 'rounds.by_round.2.seconds'"),
        ("rounds.by_round.2.threshold_kind=quantile", "quantile of 1 drops every text"),
        ("rounds.by_round.first.seconds=none", "by_round.first"),
        ("rounds.by_round.2.seconds=0", "at most 1e.09, or none"),
    ],
)
def test_a_mistake_is_reported_in_one_line(override, message):
    with pytest.raises(SettingsError, match=message) as error:
        rounds("rounds.rounds=3", "rounds.refine.threshold=1.0", override)
    assert "\n" not in str(error.value)
