"""The report: what it counts, what it estimates, that no text of a video can become markup; and its
command."""

import json
import re
from html import unescape

import numpy as np
import pytest
from click.testing import CliRunner
from made_records import left_out, lost, record

from stepline.cli import main
from stepline.curate.report.collect import collect
from stepline.curate.report.counts import DatasetCounts
from stepline.curate.report.page import render_page
from stepline.curate.report.sections import (
    biases,
    commonest,
    mean_values,
    text_levels,
    video_levels,
)
from stepline.curate.report.write import write_report
from stepline.curate.sampling import ReservoirSample, audited_mean, proportion
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import StageFailure
from stepline.errors import StoreError
from stepline.files.remote import RemotePath
from stepline.review.answers import Answer
from stepline.storage import write_parquet

SETTINGS = ReportSettings(frames=False)
EVIL = "</script><img src=x onerror=alert(1)>"
WHISK = record(
    "whisk",
    [("Whisk the eggs", 10.0, 0.9), ("Pour in the milk slowly", 4.0, 0.5), ("Fry it", None, 0.1)],
    [("now whisk the eggs", 9.0, 0.8), ("I love eggs", 12.0, 0.1)],
    task="Make an omelette",
    dropped=[lost("hello", "chat: greets 3 viewers"), lost("hi", "chat: greets 12 viewers")],
)
RECORDS = [
    WHISK,
    left_out("mute", "nothing is said in 3.5 s"),
    left_out("dumb", "nothing is said in 12 s"),
]


def test_counts_of_one_kept_video_by_hand():
    counts = DatasetCounts()
    assert [counts.add(each) for each in RECORDS] == [True, False, False]
    assert (counts.videos, counts.kept_videos, counts.steps, counts.placed) == (3, 1, 3, 2)
    assert (counts.sentences, counts.cited) == (2, 1)
    assert (counts.step_words, counts.step_seconds) == (10, 8.0)
    assert (counts.neighbours, counts.out_of_order) == (1, 1)
    assert [mean for _, mean, _ in mean_values(counts)] == [
        *("3.0", "3.3", "4.0"),  # steps per video, words and seconds per step
        "84.0",  # seven words in 5 s, per minute
        "60.0",
    ]
    assert (counts.narration_shown.sums, counts.narration_shown.texts) == (
        [pytest.approx(0.9)],
        [2],
    )


def test_a_fall_joins_reasons_that_differ_in_numbers():
    found = collect(RECORDS, SETTINGS)
    first, last = video_levels(found)
    assert (first.count, first.dropped, last.count) == (3, (("nothing is said in # s", 2),), 1)
    written = text_levels(found.counts)[2]
    assert (written.count, written.dropped) == (5, (("chat: greets # viewers", 2),))


def test_a_left_out_video_is_reported_at_its_stage_with_the_kind_that_the_run_noted():
    failures = [
        StageFailure("mute", "transcribe", "error", "nothing is said in 3.5 s"),
        StageFailure("dumb", "probe", "hang", "of an earlier run with other settings"),
        StageFailure("whisk", "probe", "error", "of an earlier run"),
    ]
    records = [
        *RECORDS,
        left_out("twin", "the same as whisk", "gather"),
        left_out("cut", "it ends at 2 s", "probe"),
    ]
    found = collect(records, SETTINGS, failures=failures, stages=("probe", "transcribe", "gather"))
    assert [(row.stage, row.kind, row.reason, row.count, row.videos) for row in found.reasons] == [
        ("probe", "left out", "it ends at # s", 1, ("cut",)),
        ("transcribe", "error", "nothing is said in # s", 1, ("mute",)),
        ("transcribe", "left out", "nothing is said in # s", 1, ("dumb",)),
        ("gather", "left out", "the same as whisk", 1, ("twin",)),
    ]
    assert [(level.name, level.count) for level in video_levels(found)] == [
        ("videos before probe", 5),
        ("videos before transcribe", 4),
        ("videos before gather", 2),
        ("videos in the dataset", 1),
    ]


def test_the_rarest_reasons_are_together():
    reasons = DatasetCounts().left_out
    reasons.update(
        {"reason a": 9, "reason b": 8, "reason c": 7, "reason d": 6, "reason e": 5, "reason f": 4}
    )
    reasons.update({"reason g": 2, "reason h": 1})
    assert commonest(reasons)[-2:] == (("reason f", 4), ("2 other reasons", 3))


def test_a_share_and_its_interval():
    # draws of two videos: 50, 75 or 100
    assert str(proportion([1.0, 2.0], [2.0, 2.0])) == "75.0 % [50.0, 100.0]"
    assert str(proportion([], [])) == "not known"
    generator = np.random.default_rng(0)
    hits = generator.binomial(10, 0.3, size=5000).astype(float)
    many = proportion(list(hits), [10.0] * 5000)
    assert many.high - many.low == pytest.approx(
        2 * 1.96 * hits.std(ddof=1) / 10 / np.sqrt(5000), rel=0.01
    )


def test_verdicts_move_the_scores_of_all_texts_by_how_far_these_are_off():
    scores, verdicts = {"a": 0.9, "b": 0.7, "c": 0.5}, {"a": 1.0, "b": 0.0}
    moved = audited_mean(scores, verdicts, {"a": "v", "b": "w", "c": "v"}, 0.6)
    assert moved.value == pytest.approx(0.6 + (0.1 - 0.7) / 2)
    assert (moved.texts, moved.videos) == (2, 2)
    assert moved.low == pytest.approx(0.0)  # 0.6 - 0.7 is no share
    assert moved.high == pytest.approx(0.7)


def test_some_are_the_same_in_any_order_and_all_are_as_likely():
    ids = [f"v{n}" for n in range(200)]
    forward, backward = ReservoirSample(20), ReservoirSample(20)
    for one, other in zip(ids, reversed(ids), strict=True):
        forward.add(one, one)
        backward.add(other, other)
    assert forward.items() == backward.items()
    assert len(forward.items()) == 20
    times = 0
    for seed in range(300):
        some = ReservoirSample(20, seed=seed)
        for one in ids:
            some.add(one, one)
        times += "v7" in dict(some.items())
    assert 15 <= times <= 45  # 30 expected, standard deviation 5


def test_biases_follow_from_the_counts():
    counts = DatasetCounts()
    for each in RECORDS:
        counts.add(each)
    told = " ".join(biases(counts))
    assert "100 % of the videos have one language: en." in told
    assert "67 % of the videos are left out" in told
    assert "100 % of neighbouring steps are shown in another order" in told


@pytest.mark.parametrize("records", [[], [left_out("a", "silent")], [record("bare")], RECORDS])
def test_any_dataset_gives_a_page(records):
    html = render_page(collect(records, SETTINGS))
    assert html.count("<section") == html.count("</section>") == 7
    assert ("no video came in" in html) == (not records)


def test_no_text_becomes_markup():
    evil = record(
        EVIL, [(EVIL, 3.0, 0.5)] * 7, [(EVIL, 1.0, 0.5)], task=EVIL, title=EVIL, language=EVIL
    )
    out = left_out("b", EVIL)
    failures = [StageFailure("b", EVIL, "error", EVIL)]
    html = render_page(
        collect(
            [evil, out], SETTINGS, failures=failures, provenance={EVIL: EVIL + "\n"}, stages=(EVIL,)
        )
    )
    assert "<img" not in html
    assert html.count("</script>") == 2  # the page's own
    told = json.loads(re.search(r'id="asked">(.*?)</script>', html, re.DOTALL)[1])
    assert {one["text"] for one in told["asked"]} == {EVIL}
    assert "score" not in told["asked"][0]


def test_the_page_fetches_nothing_and_knows_no_other_script():
    html = render_page(collect(RECORDS, SETTINGS))
    assert "default-src 'none'; script-src 'sha256-" in unescape(html)
    assert not re.findall(r'(?:src|href)="(?!#|data:)', html)


def test_a_report_is_written_from_what_a_run_left(tmp_path):
    data = tmp_path / "dataset" / "data"
    data.mkdir(parents=True)
    write_parquet(RECORDS[:1], data / "train-0.parquet")
    write_parquet(RECORDS[1:], data / "left_out-0.parquet")
    reason = "nothing is said in 3.5 s"
    failure = {
        "id": "mute",
        "stage": "transcribe",
        "kind": "error",
        "reason": reason,
        "attempts": 1,
    }
    folder = tmp_path / "failures" / "transcribe"
    folder.mkdir(parents=True)
    (folder / "k.json").write_text(json.dumps(failure))
    (tmp_path / "run.json").write_text(
        json.dumps({"stages": ["probe", "transcribe"], "source": None})
    )
    found = write_report(RemotePath(str(tmp_path)), SETTINGS).findings
    assert found.counts.kept_videos == 1
    assert found.stages == ("probe", "transcribe")
    html = (tmp_path / "report.html").read_text()
    assert "nothing is said in # s" in html
    assert "1 of 3 videos" in html


def test_no_dataset_is_an_error_that_says_so(tmp_path):
    with pytest.raises(StoreError, match="no dataset yet"):
        write_report(RemotePath(str(tmp_path)), SETTINGS)


@pytest.fixture
def out(tmp_path):
    data = tmp_path / "dataset" / "data"
    data.mkdir(parents=True)
    records = [
        record(f"v{n}", [(f"Chop {n}", 5.0, 0.9)], [(f"chop {n}", 5.0, 0.8)]) for n in range(3)
    ]
    write_parquet([*records, left_out("mute", "nothing is said")], data / "all.parquet")
    return tmp_path


def test_a_report_is_written_with_other_settings(out):
    done = CliRunner().invoke(
        main, ["curate", "report", str(out), "--set", "frames=false", "--set", "audit_videos=2"]
    )
    assert done.exit_code == 0, done.output
    assert "of 2 videos, drawn with seed 0" in (out / "report.html").read_text()


def test_saved_verdicts_are_taken_over_and_give_the_table(out):
    runner = CliRunner()
    runner.invoke(main, ["curate", "report", str(out), "--set", "frames=false"])
    told = (out / "report.html").read_text().partition('id="asked">')[2].partition("</script>")[0]
    asked = [one["id"] for one in json.loads(told)["asked"]]
    for who, word in (("ann", "aligned"), ("bob", "misplaced")):
        lines = [
            Answer(item=id, annotator=who, answer=word).model_dump_json() + "\n" for id in asked
        ]
        (out / f"{who}.jsonl").write_text("".join(lines))
    files = ["--import", str(out / "ann.jsonl"), "--import", str(out / "bob.jsonl")]
    done = runner.invoke(main, ["curate", "audit", str(out), "--set", "frames=false", *files])
    assert done.exit_code == 0, done.output
    assert (
        "steps of the dataset           3  100.0 % [100.0, 100.0]  50.0 % [50.0, 50.0]"
        in done.output
    )
    assert "well aligned: Cohen's kappa 0.00 [0.00, 0.00] over 6 texts by ann, bob" in done.output
    assert "alignable: Cohen's kappa undefined over" in done.output  # nobody ever says no
    assert "ann, bob" in (out / "report.html").read_text()
    again = runner.invoke(main, ["curate", "audit", str(out), "--set", "frames=false", "--table"])
    assert "100.0 % [100.0, 100.0]" in again.output


def test_an_audit_of_nothing_is_an_error_in_one_line(tmp_path):
    done = CliRunner().invoke(main, ["curate", "audit", str(tmp_path), "--table"])
    assert done.exit_code == 1
    assert "no dataset yet" in done.output
