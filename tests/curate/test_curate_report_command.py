"""`stepline curate report` and `audit` on a dataset that is there, and a forecast as people read it."""

import json

import pytest
from click.testing import CliRunner
from made_records import left_out, record

from stepline.cli import main
from stepline.curate.audit.verdicts import Verdict
from stepline.curate.forecast.dry_run import forecast_json, format_bytes, format_forecast, format_seconds
from stepline.curate.forecast.model import Forecast, Interval, StageForecast
from stepline.storage import write_parquet


@pytest.fixture
def out(tmp_path):
    data = tmp_path / "dataset" / "data"
    data.mkdir(parents=True)
    records = [record(f"v{n}", [(f"Chop {n}", 5.0, 0.9)], [(f"chop {n}", 5.0, 0.8)]) for n in range(3)]
    write_parquet([*records, left_out("mute", "nothing is said")], data / "all.parquet")
    return tmp_path


def test_a_report_is_written_with_other_settings(out):
    done = CliRunner().invoke(main, ["curate", "report", str(out), "--set", "frames=false", "--set", "audit_videos=2"])
    assert done.exit_code == 0, done.output
    assert "of 2 videos, drawn with seed 0" in (out / "report.html").read_text()


def test_saved_verdicts_are_taken_over_and_give_the_table(out):
    runner = CliRunner()
    runner.invoke(main, ["curate", "report", str(out), "--set", "frames=false"])
    told = (out / "report.html").read_text().partition('id="asked">')[2].partition("</script>")[0]
    asked = [one["id"] for one in json.loads(told)["asked"]]
    for who, word in (("ann", "aligned"), ("bob", "misplaced")):
        lines = [Verdict(asked=id, annotator=who, said=word).model_dump_json() + "\n" for id in asked]
        (out / f"{who}.jsonl").write_text("".join(lines))
    files = ["--import", str(out / "ann.jsonl"), "--import", str(out / "bob.jsonl")]
    done = runner.invoke(main, ["curate", "audit", str(out), "--set", "frames=false", *files])
    assert done.exit_code == 0, done.output
    assert "steps of the dataset           3  100.0 % [100.0, 100.0]  50.0 % [50.0, 50.0]" in done.output
    assert "well aligned: Cohen's kappa 0.00 [0.00, 0.00] over 6 texts by ann, bob" in done.output
    assert "alignable: Cohen's kappa undefined over" in done.output  # nobody ever says no
    assert "ann, bob" in (out / "report.html").read_text()
    again = runner.invoke(main, ["curate", "audit", str(out), "--set", "frames=false", "--table"])
    assert "100.0 % [100.0, 100.0]" in again.output


def test_an_audit_of_nothing_is_an_error_in_one_line(tmp_path):
    done = CliRunner().invoke(main, ["curate", "audit", str(tmp_path), "--table"])
    assert done.exit_code == 1
    assert "no dataset yet" in done.output


def test_a_forecast_reads_in_large_units():
    one = Interval(7200.0, 60.0, 9000.0)
    stage = StageForecast("hear", "video", one, one, Interval(2e9, 1e9, 3e9), Interval(0, 0, 0), load=3.0, failed=0.25)
    hours = Interval(2.0, 1.0, 3.0)
    told = Forecast(
        1000, 24, "bytes", (stage,), hours, hours, {1: hours, 16: Interval(0.01, 0.005, 0.02)}, Interval(5e8, 4e8, 6e8),
        Interval(0, 0, 0), Interval(1.5, 1.0, 2.0),
    )  # fmt: skip
    text = format_forecast(told)
    assert "hear   2.0 h  60.0 s to 2.5 h  2.0 GB  25 %" in text
    assert "with 16 workers: 36.0 s [18.0 s, 72.0 s]" in text
    assert "tokens" not in text
    assert json.loads(forecast_json(told))["stages"][0]["load"] == 3.0
    assert (format_seconds(119.0), format_seconds(7199.0), format_bytes(999), format_bytes(1e18)) == (
        "119.0 s",
        "120.0 min",
        "999.0 B",
        "1000.0 PB",
    )
