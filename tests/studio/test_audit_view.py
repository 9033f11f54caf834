"""People audit a dataset in the studio: what they say lies in its one store, and in the audit's own
file."""

import json
import shutil
import sqlite3
from html import unescape

import pytest
from browser import CHROMIUM
from click.testing import CliRunner
from studio_server import library, serving

from stepline.cli import main
from stepline.library.database import DATABASE_FILE
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.review.answers import Answer, AnswerLog
from stepline.storage import write_parquet
from stepline.studio.store import Studio


def made_record(id):
    said = Transcript(
        language="en", sentences=(Sentence(text=f"chop {id}", span=Span(5.0, 7.0), shown=0.8),)
    )
    step = Step(
        id="a", text=f"Chop {id}", spans=(Span(5.0, 9.0),), score=0.9, status="shown", sources=(0,)
    )
    return Record(id=id, video=Video(id=id, duration=20.0), transcript=said, steps=(step,))


@pytest.fixture
def dataset(tmp_path):
    data = tmp_path / "curated" / "dataset" / "data"
    data.mkdir(parents=True)
    write_parquet([made_record(f"v{n}") for n in range(3)], data / "all.parquet")
    return tmp_path / "curated"


@pytest.fixture
def server(tmp_path, small_video, dataset):
    with serving(library(tmp_path / "library", small_video), audit=dataset) as server:
        yield server


def asked_texts(server):
    """Return the ids of the texts that the page asks about."""
    reply, page = server.ask("GET", "/audit/")
    assert reply.status == 200, page
    told = page.decode().partition('id="asked">')[2].partition("</script>")[0]
    return [text["id"] for text in json.loads(told)["asked"]]


def say(server, text, who, word, **headers):
    body = {"asked": text, "annotator": who, "said": word}
    return server.ask("POST", "/audit/verdict", body, **headers)[0].status


def table(out, *arguments):
    done = CliRunner().invoke(
        main, ["curate", "audit", str(out), "--set", "frames=false", "--table", *arguments]
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_verdicts_are_in_the_store_and_give_curate_audits_own_table(server, dataset, tmp_path):
    texts = asked_texts(server)
    assert len(texts) == 6
    given = []
    for n, text in enumerate(texts):
        given += [
            (text, "ann", "aligned" if n % 2 else "not shown"),
            (text, "bob", "aligned" if n else "misplaced"),
        ]
    for text, who, word in [(texts[0], "ann", "unsure"), *given]:  # the first is said anew
        assert say(server, text, who, word) == 200
    assert server.read("/audit/verdicts?annotator=bob") == {
        "said": {text: word for text, who, word in given[1::2]}
    }
    again = Studio(server.studio.library.folder)
    assert {(one.item, one.annotator, one.answer) for one in again.verdicts} == set(given)
    again.close()
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(dataset / "dataset", tmp_path / "elsewhere" / "dataset")
    saved = tmp_path / "saved.jsonl"
    lines = [
        Answer(item=text, annotator=who, answer=word).model_dump_json() + "\n"
        for text, who, word in given
    ]
    saved.write_text("".join(lines))
    told = table(dataset)
    assert table(tmp_path / "elsewhere", "--import", str(saved)).endswith(
        f"12 verdicts taken over\n{told}"
    )
    assert "over 6 texts by ann, bob" in told
    assert "ann, bob" in server.ask("GET", "/audit/")[1].decode()


def test_a_studio_and_curate_audit_on_one_dataset_know_each_others_verdicts(
    server, dataset, tmp_path
):
    first, second, third, *_ = asked_texts(server)
    file = dataset / "audit" / "verdicts.jsonl"
    assert say(server, first, "ann", "aligned") == 200
    elsewhere = AnswerLog(file)
    elsewhere.add(Answer(item=first, annotator="ann", answer="misplaced"))
    elsewhere.add(Answer(item=second, annotator="ann", answer="unsure"))
    assert server.read("/audit/verdicts?annotator=ann") == {
        "said": {first: "misplaced", second: "unsure"}
    }
    assert [one.answer for one in server.studio.verdicts] == ["misplaced", "unsure"]
    server.studio.verdicts.add(Answer(item=third, annotator="ann", answer="aligned"))
    server.studio.verdicts.add(Answer(item="of another dataset", annotator="ann", answer="aligned"))
    file.unlink()
    shutil.copytree(server.studio.library.folder, tmp_path / "copy")
    with serving(tmp_path / "copy", audit=dataset) as next_server:
        asked_texts(next_server)
    assert [(one.item, one.answer) for one in AnswerLog(file)] == [
        (first, "misplaced"),
        (second, "unsure"),
        (third, "aligned"),
    ]


def test_auditors_need_the_token_too_and_ask_about_the_sample_alone(server, dataset):
    first = asked_texts(server)[0]
    for path in ("/audit/", "/audit/verdicts?annotator=ann"):
        assert server.ask("GET", path, Authorization=None)[0].status == 401
    assert say(server, first, "ann", "aligned", Authorization=None) == 401
    assert say(server, first, "ann", "aligned", X_Stepline="audit") == 400
    assert say(server, first, "ann", "perhaps") == 400
    assert say(server, "another", "ann", "aligned") == 409
    assert say(server, first, "ann", "aligned", Host="evil.example:80") == 403
    assert not (dataset / "audit" / "verdicts.jsonl").exists()
    page, text = server.ask("GET", "/audit/")
    policy = page.getheader("Content-Security-Policy")
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in unescape(text.decode())  # the page's own: its one script
    assert "unsafe-inline" not in server.ask("GET", "/")[0].getheader("Content-Security-Policy")


def test_where_no_dataset_is_the_view_says_so_and_a_later_one_is_found(
    tmp_path, small_video, dataset
):
    folder = library(tmp_path / "library", small_video)
    with serving(folder) as server:
        reply, data = server.ask("GET", "/audit/")
        assert (reply.status, b"no dataset yet" in data) == (409, True)
        shutil.copytree(dataset / "dataset", folder / "dataset")
        assert len(asked_texts(server)) == 6
        write_parquet([made_record("v9")], folder / "dataset" / "data" / "more.parquet")
        assert len(asked_texts(server)) == 8
    done = CliRunner().invoke(main, ["studio", str(folder), "--audit", str(tmp_path / "typo")])
    assert (done.exit_code, "no dataset yet" in done.output) == (1, True)


def test_a_store_from_before_there_were_verdicts_takes_them(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    Studio(folder).close()
    with sqlite3.connect(folder / DATABASE_FILE) as database:
        database.execute("DROP TABLE verdict")
    database.close()
    studio = Studio(folder)
    studio.verdicts.add(Answer(item="a", annotator="ann", answer="aligned"))
    assert [one.answer for one in studio.verdicts] == ["aligned"]
    studio.close()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
def test_the_page_of_the_audit_works_in_the_studio(server, browser):
    tab = browser.open(f"{server.address}audit/?token={server.access.token}", width=390)
    tab.wait_until("document.querySelector('#who button') !== null")
    tab.run(
        "(() => { part('name').value = 'ann'; document.querySelector('#who button').click(); })()"
    )
    for number, key in enumerate("112"):
        tab.wait_until(f"said.size === {number} && !saving && !part('work').hidden")
        tab.press(key, ord(key), key)
    tab.wait_until("said.size === 3")
    assert tab.violations() == []
    assert tab.unreadable() == []
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints() == []
    assert [one.answer for one in server.studio.verdicts] == ["aligned", "aligned", "misplaced"]
