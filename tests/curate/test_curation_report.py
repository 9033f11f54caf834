"""The report: what it counts, what it estimates, that no text of a video can become markup; and its
command."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from made_records import left_out, lost, record

from stepline.curate.audit import AuditSampler
from stepline.curate.report.counts import DatasetCounts, compute_means, describe_biases
from stepline.curate.report.page import Report, render_page
from stepline.curate.report.write import collect_report, open_verdicts, write_report
from stepline.curate.sampling import ReservoirSample, estimate_proportion
from stepline.curate.settings import ReportSettings
from stepline.files.remote import RemotePath
from stepline.records import Record, Step, Video
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
    assert (counts.videos, counts.kept_videos, counts.steps, counts.steps_with_span) == (3, 1, 3, 2)
    assert (counts.sentences, counts.dropped_steps) == (2, {"chat: greets # viewers": 2})
    assert (counts.step_words, counts.step_seconds) == (10, 8.0)
    assert (counts.successive_pairs, counts.reversed_pairs) == (1, 1)
    assert [mean for _, mean, _ in compute_means(counts)] == [
        *("3.0", "3.3", "4.0"),  # steps per video, words and seconds per step
        "84.0",  # seven words in 5 s, per minute
        "60.0",
    ]
    shown = counts.narration_shown
    assert (shown.sums, shown.texts) == ([pytest.approx(0.9)], [2])
    assert counts.steps_shown.sums == [pytest.approx(1.5)]
    told = " ".join(describe_biases(counts))
    assert "no P(shown)" not in told
    assert "100 % of the videos have one language: en." in told
    assert "67 % of the videos are left out" in told
    assert "100 % of neighbouring steps have their spans in another order" in told


@pytest.mark.parametrize(
    ("models", "basis", "texts"),
    [
        ({"placing": {"calibrated": False}, "grounding": {"calibrated": True}}, None, []),
        ({"grounding": {"aligner": "1f", "calibrated": True}}, None, [1]),
        ({"grounding": {"likeness": 1.5}}, None, []),
        ({"grounding": None, "judge": "detector"}, "network", [1]),
        ({"grounding": {"likeness": 1.5}}, "image_text", []),
    ],
)
def test_only_scores_of_a_calibrated_network_count_as_p_shown(models, basis, texts):
    step = Step(id="1", text="stir", score=0.5, status="seen" if basis else "placed", basis=basis)
    counts = DatasetCounts()
    counts.add(Record(id="a", video=Video(id="a"), steps=(step,), models=models))
    assert counts.steps_shown.texts == texts
    told = " ".join(describe_biases(counts))
    assert ("1 of 1 steps have no P(shown)" in told) == (not texts)
    assert ("P(shown) comes from" in told) == bool(texts)
    page = render_page(Report(counts, (), AuditSampler(videos=1).sample(), ()))
    assert ("alignable not known" in page) == (not texts)


def test_each_stage_has_the_videos_that_it_left_out_by_reasons_without_numbers():
    records = [
        *RECORDS,
        left_out("twin", "the same as whisk", "gather"),
        left_out("cut", "it ends at 2 s", "probe"),
    ]
    report = collect_report(records, SETTINGS, ("probe", "transcribe", "gather"))
    assert [(loss.stage, loss.entered, loss.dropped) for loss in report.losses] == [
        ("source", 5, {}),
        ("probe", 5, {"it ends at # s": 1}),
        ("transcribe", 4, {"nothing is said in # s": 2}),
        ("gather", 2, {"the same as whisk": 1}),
    ]


def test_a_share_and_its_interval():
    # draws of two videos: 50, 75 or 100
    assert str(estimate_proportion([1.0, 2.0], [2.0, 2.0])) == "75.0 % [50.0, 100.0]"
    assert str(estimate_proportion([], [])) == "not known"


def test_some_are_the_same_in_any_order_and_all_are_as_likely():
    ids = [f"v{n}" for n in range(200)]
    forward, backward = ReservoirSample(20), ReservoirSample(20)
    for one, other in zip(ids, reversed(ids), strict=True):
        forward.add(one, one)
        backward.add(other, other)
    assert forward.values() == backward.values()
    assert len(forward.values()) == 20
    times = 0
    for seed in range(300):
        some = ReservoirSample(20, seed=seed)
        for one in ids:
            some.add(one, one)
        times += "v7" in some.values()
    assert 15 <= times <= 45  # 30 expected, standard deviation 5


@pytest.mark.parametrize(
    ("records", "sections"),
    [([], 5), ([left_out("a", "silent")], 5), ([record("bare")], 6), (RECORDS, 6)],
)
def test_any_dataset_gives_a_page(records, sections):
    html = render_page(collect_report(records, SETTINGS))
    assert html.count("<section") == html.count("</section>") == sections
    assert ("no video came in" in html) == (not records)


def test_no_text_becomes_markup():
    evil = record(
        EVIL, [(EVIL, 3.0, 0.5)] * 7, [(EVIL, 1.0, 0.5)], task=EVIL, title=EVIL, language=EVIL
    )
    report = collect_report([evil, left_out("b", EVIL)], SETTINGS, (EVIL,))
    report = replace(report, provenance={EVIL: EVIL + "\n"}, notes=(EVIL,))
    assert render_page(report).count("<script") == 0
    html = render_page(report, with_audit=True)
    assert "<img" not in html
    assert html.count("</script>") == 2  # the page's own
    told = json.loads(re.search(r'id="asked">(.*?)</script>', html, re.DOTALL)[1])
    assert {one["text"] for one in told["asked"]} == {EVIL}
    assert "score" not in told["asked"][0]


def test_the_page_fetches_nothing_and_knows_no_other_script():
    html = render_page(collect_report(RECORDS, SETTINGS), with_audit=True)
    assert "default-src 'none'; script-src 'sha256-" in unescape(html)
    assert not re.findall(r'(?:src|href)="(?!#|data:)', html)


def written(out, **shards):
    """Write shards of a dataset, and return the folder of the run."""
    data = out / "dataset" / "data"
    data.mkdir(parents=True)
    for name, records in shards.items():
        write_parquet(records, data / f"{name}-0.parquet")
    return out


def test_a_report_is_written_from_what_a_run_left(tmp_path):
    written(tmp_path, train=RECORDS[:1], left_out=RECORDS[1:])
    run = {"stages": ["probe", "transcribe"], "source": None}
    (tmp_path / "run.json").write_text(json.dumps(run))
    report = write_report(RemotePath(str(tmp_path)), SETTINGS)
    assert report.counts.kept_videos == 1
    assert [loss.stage for loss in report.losses] == ["source", "probe", "transcribe"]
    html = (tmp_path / "report.html").read_text()
    assert "nothing is said in # s" in html
    assert "1 of 3 videos" in html


@pytest.fixture
def out(tmp_path):
    records = [
        record(f"v{n}", [(f"Chop {n}", 5.0, 0.9)], [(f"chop {n}", 5.0, 0.8)]) for n in range(3)
    ]
    return written(tmp_path, all=[*records, left_out("mute", "nothing is said")])


def test_a_report_is_written_with_other_settings_and_no_dataset_is_an_error(
    out, tmp_path, stepline
):
    settings = ("--set", "frames=false", "--set", "examples=2")
    done = stepline("curate", "report", out, *settings)
    assert done.exit_code == 0, done.output
    assert "2 of 3 videos, drawn with seed 0" in (out / "report.html").read_text()
    empty = stepline("curate", "audit", tmp_path / "empty", "--table")
    assert (empty.exit_code, "no dataset yet" in empty.output) == (1, True)


def test_verdicts_of_two_people_give_the_table_and_their_agreement(out, stepline):
    folder = RemotePath(str(out))
    sample = write_report(folder, SETTINGS).sample
    verdicts = open_verdicts(folder)
    for who, word in (("ann", "aligned"), ("bob", "misplaced")):
        for text in sample.texts:
            verdicts.add(Answer(item=text.id, annotator=who, answer=word))
    done = stepline("curate", "audit", out, "--set", "frames=false", "--table")
    assert done.exit_code == 0, done.output
    row = "steps of the dataset           3  100.0 % [100.0, 100.0]  50.0 % [50.0, 50.0]"
    assert row in done.output
    assert "well aligned: Cohen's kappa 0.00 [0.00, 0.00] over 6 texts by ann, bob" in done.output
    assert "alignable: Cohen's kappa undefined over" in done.output  # nobody ever says no
    assert "ann, bob" in (out / "report.html").read_text()
