"""The audit: who is asked what, verdicts that survive a kill, and the table that they give."""

import json
import threading

import numpy as np
import pytest
from http_client import ask, status_of
from made_records import record

from stepline.curate.audit import AuditSampler, annotator_agreements, audit_table, serve_audit_page
from stepline.curate.report.page import render_page
from stepline.curate.report.write import collect_report
from stepline.curate.settings import ReportSettings
from stepline.review.answers import Answer, AnswerLog, cohen_kappa

RECORDS = [
    record(
        f"v{n}",
        [(f"Chop {n}", 5.0, 0.9), (f"Fry {n}", None, 0.2)],
        [(f"hello {n}", 1.0, 0.1), (f"chop {n}", 5.0, 0.8)],
    )
    for n in range(4)
]


def draw_sample(records, *, videos=10, **options):
    sampler = AuditSampler(videos=videos, **options)
    for each in records:
        sampler.add(each)
    return sampler.sample()


def ids(sample, kind):
    return [asked.id for asked in sample.texts if asked.kind == kind]


def test_sentences_and_placed_steps_are_asked_about():
    sample = draw_sample(RECORDS, videos=2, texts=1)
    assert len(sample.videos) == 2
    assert len(ids(sample, "narration")) == len(ids(sample, "step")) == 2
    assert draw_sample(reversed(RECORDS), videos=2, texts=1) == sample
    assert draw_sample(RECORDS, videos=2, texts=1, seed=5) != sample
    moved = record("v0", [("Chop 0", 6.0, 0.9)])  # other seconds are another question
    assert ids(draw_sample(RECORDS[:1]), "step") != ids(draw_sample([moved]), "step")


def test_shares_of_audit_answers_are_those_counted_by_hand():
    sample = draw_sample(RECORDS[:2])
    steps, narration = ids(sample, "step"), ids(sample, "narration")
    told = [
        (steps[0], "ann", "aligned"),
        (steps[1], "ann", "misplaced"),
        (steps[1], "bob", "not shown"),
        (narration[0], "ann", "unsure"),
        ("gone", "ann", "aligned"),
    ]
    said = [Answer(item=asked, annotator=who, answer=word) for asked, who, word in told]
    raw, final = audit_table(sample, said)
    assert (raw.alignable.texts, raw.unsure_count, str(raw.alignable)) == (0, 1, "not known")
    assert final.alignable.texts == 2
    assert str(final.alignable) == "75.0 % [50.0, 100.0]"  # 1 and, half of two people, 1/2
    assert str(final.well_aligned) == "50.0 % [0.0, 100.0]"


def test_cohens_kappa_by_hand():
    # 20 both yes, 15 both no, 5 and 10 apart: same .7; chance .5 x .6 + .5 x .4 = .5; kappa .4
    # (Wikipedia's example).
    one = np.repeat([1, 1, 0, 0], [20, 5, 10, 15])
    other = np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    assert cohen_kappa(one, other) == pytest.approx(0.4)
    assert cohen_kappa(np.ones(3, dtype=int), np.ones(3, dtype=int)) is None


def test_two_people_agree_beyond_chance_or_not():
    sample = draw_sample(RECORDS)
    asked = [one.id for one in sample.texts]
    ann = [
        Answer(item=id, annotator="ann", answer="aligned" if n % 2 else "not shown")
        for n, id in enumerate(asked)
    ]
    bob = [verdict.model_copy(update={"annotator": "bob"}) for verdict in ann]
    assert annotator_agreements(sample, ann) == []
    alignable, aligned = annotator_agreements(sample, [*ann, *bob])
    assert (alignable.annotators, alignable.texts) == (("ann", "bob"), 12)
    assert (alignable.kappa, alignable.equal_fraction) == (1.0, 1.0)
    assert (aligned.low, aligned.high) == (1.0, 1.0)
    misplaced = {"annotator": "eve", "answer": "misplaced"}
    eve = [verdict.model_copy(update=misplaced) for verdict in ann]
    alignable, aligned = annotator_agreements(sample, [*ann, *bob, *eve])
    # Fleiss by hand: six texts (3, 0), six (1, 2); pairs .6667; yes 24 of 36: chance 5/9; kappa
    # .25.
    assert alignable.kappa == pytest.approx(0.25)
    # six (2, 1), six (0, 3): 12 of 36 yes
    assert aligned.kappa == pytest.approx((2 / 3 - 5 / 9) / (4 / 9))


@pytest.fixture
def served(tmp_path):
    report = collect_report(RECORDS, ReportSettings(frames=False))
    verdicts = AnswerLog(tmp_path / "verdicts.jsonl")
    server = serve_audit_page(
        lambda: render_page(report, list(verdicts), with_audit=True), report.sample, verdicts
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    server.sample, server.file = report.sample, tmp_path / "verdicts.jsonl"
    yield server
    server.stop()
    thread.join()


def say(server, asked, who, said, **headers):
    body = json.dumps({"asked": asked, "annotator": who, "said": said})
    reply, data = ask(server, "POST", "/verdict", body, **({"X_Stepline": "audit"} | headers))
    return reply.status, data


def test_a_verdict_is_on_disk_when_it_is_taken_and_is_each_persons_own(served):
    first = served.sample.texts[0].id
    assert say(served, first, "ann", "aligned") == (200, b"{}")
    assert say(served, first, "ann", "misplaced")[0] == 200
    assert say(served, first, "bob", "unsure")[0] == 200
    kept = {(one.annotator, one.answer) for one in AnswerLog(served.file)}
    assert kept == {("ann", "misplaced"), ("bob", "unsure")}
    assert json.loads(ask(served, "GET", "/verdicts?annotator=ann")[1]) == {
        "said": {first: "misplaced"}
    }
    assert "raw narration" in ask(served, "GET", "/")[1].decode()


def test_what_is_not_a_verdict_of_the_page_is_refused(served):
    first = served.sample.texts[0].id
    assert say(served, first, "ann", "perhaps")[0] == 400
    assert say(served, "another", "ann", "aligned")[0] == 409
    assert say(served, first, "", "aligned")[0] == 400
    assert say(served, first, "ann", "aligned", X_Stepline="annotate")[0] == 400
    assert say(served, first, "ann", "aligned", Host="evil.example:80")[0] == 403
    assert status_of(served, "GET", "/../verdicts.jsonl") == 404
    assert not served.file.exists()


def test_a_line_that_a_kill_cut_short_is_forgotten(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    AnswerLog(file).add(Answer(item="a", annotator="ann", answer="aligned"))
    with file.open("ab") as open_file:
        open_file.write(b'{"asked": "b", "anno')
    verdicts = AnswerLog(file)
    verdicts.add(Answer(item="c", annotator="ann", answer="unsure"))
    assert [one.item for one in AnswerLog(file)] == ["a", "c"]


@pytest.mark.browser
def test_two_people_audit_in_a_browser(served, browser):
    for who, keys in (("ann", "112"), ("bob", "132")):
        tab = browser.open(f"http://127.0.0.1:{served.port}/", width=390)
        tab.run(f"(() => {{ part('name').value = '{who}'; $('#who button').click(); }})()")
        for number, key in enumerate(keys):
            tab.wait_until(f"said.size === {number} && !saving && !part('work').hidden")
            tab.press(key, ord(key), key)
        tab.wait_until("said.size === 3")
        assert tab.complaints() == tab.unreadable() == []
        assert tab.run("document.documentElement.scrollWidth") == 390
    tab = browser.open(f"http://127.0.0.1:{served.port}/")
    assert "ann, bob" in tab.run("part('accord').textContent")
    words = {"1": "aligned", "2": "misplaced", "3": "not shown"}
    kept = [(one.annotator, one.answer) for one in AnswerLog(served.file)]
    assert kept == [
        *(("ann", words[key]) for key in "112"),
        *(("bob", words[key]) for key in "132"),
    ]
