"""`stepline curate workflow` from its videos to the published data set, on made videos whose truth
is known; people answer by it."""

import json
import shlex
import shutil
import sys
import threading
import time
from functools import partial

import pytest
from click.testing import CliRunner
from http_client import ask
from kills import finish, start_driver
from reviewed_videos import answer_clips, clip_texts, make_videos

from stepline.annotate import AnswerLog
from stepline.annotate.server import serve
from stepline.cli import main
from stepline.curate.workflow.run import annotation_queue, run_workflow
from stepline.files.storage import read_parquet
from stepline.models.nasva.checkpoint import load_aligner

PEOPLE = ("Ann", "Ben")


def often_wrong(person, number):
    """Whether a person answers a clip wrongly: Ben does every tenth."""
    return person == "Ben" and number % 10 == 0


def lines_of(result):
    """The last line of each stage, by its name."""
    assert result.exit_code == 0, result.output
    return dict(line.split(": ", 1) for line in result.stdout.splitlines())


def files_of(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def records_of(folder, split):
    shards = sorted((folder / "data").glob(f"{split}-*.parquet"))
    return [record for shard in shards for record in read_parquet(shard)]


def workflow(source, out, *options):
    """Call the workflow on one worker."""
    words = ["curate", "workflow", source, "--out", out, "--workers", 1, *options]
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def curated(tmp_path_factory):
    """Eight made videos, curated: their list, their truth, and OUT up to the review."""
    folder = tmp_path_factory.mktemp("eight")
    truth = make_videos(folder / "videos", 8)
    assert workflow(folder / "videos/videos.csv", folder / "out").exit_code == 0
    return folder / "videos/videos.csv", truth, folder / "out"


@pytest.fixture
def eight(curated, tmp_path):
    """The truth of eight curated videos, a copy of OUT, and what calls the workflow on it."""
    source, truth, before = curated
    out = tmp_path / "out"
    shutil.copytree(before, out)
    return truth, out, partial(workflow, source, out)


@pytest.fixture
def fresh(tmp_path):
    """Make videos; return their truth, OUT, and what calls the workflow."""

    def begin(count):
        truth = make_videos(tmp_path / "videos", count)
        out = tmp_path / "out"
        return truth, out, partial(workflow, tmp_path / "videos/videos.csv", out)

    return begin


def test_forty_videos_become_a_published_data_set_with_a_network_that_is_better(fresh):
    truth, out, call = fresh(40)

    # What it takes, the data set, and what people are asked.
    lines = lines_of(call())
    assert "for 40 videos, from 12 of them" in lines["forecast"]
    assert lines["curate"].startswith("40 videos with 160 steps, 0 left out")
    command = lines["review"].partition("next: ")[2]
    assert lines["review"].startswith("0 of 160 clips answered")
    assert shlex.split(command)[4:] == ["--out", str(out), "--workers", "1", "--review"]
    assert len(clip_texts(out / "workflow/clips.json")) == 160

    # What they said, and a network; where it places held-out steps is asked about, too.
    answer_clips(out / "workflow", truth, PEOPLE, errs=often_wrong)
    asked = ("--train", "nasva", "--licence", "MIT")
    lines = lines_of(call(*asked))
    assert "160 of 160 clips answered" in lines["review"]
    assert "held-out steps in clips that no one has seen" in lines["measure"]
    assert lines["measure"].endswith("--train nasva --licence MIT --workers 1 --review")
    assert not (out / "published").exists()

    # What it is worth, and what is published.
    answer_clips(out / "workflow", truth, PEOPLE)
    result = call(*asked)
    lines = lines_of(result)
    assert lines["measure"].startswith("nasva is recommended: R@1 ")
    assert "32 videos to train on, 8 held out; licence MIT" in lines["publish"]
    kappa = float(lines["agreement"].split()[2])
    assert 0.6 < kappa < 0.95
    published = out / "published"
    counts = {split: len(records_of(published, split)) for split in ("train", "test")}
    assert counts == {"train": 32, "test": 8}
    assert load_aligner(published / "aligner").space.text == "minilm"
    card = (published / "README.md").read_text()
    assert 'license: "MIT"' in card
    assert "nasva, too little to promise a gain" in card
    assert f"Fleiss' kappa {kappa:.2f}" in card
    page = (out / "workflow.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 12

    # Nothing is done again.
    before = files_of(published)
    again = json.loads(call(*asked, "--json").stdout)
    assert files_of(published) == before
    assert (again["open_clips"], again["measures"][0]["is_better"]) == (0, True)


def test_people_s_word_is_what_is_published(eight):
    truth, out, call = eight
    answer_clips(out / "workflow", truth, PEOPLE)
    lines = lines_of(call())
    assert "nothing asked for" in lines["train"]
    assert "no licence is stated" in lines["publish"]
    assert not (out / "published/aligner").exists()
    shown = 0
    for record in (*records_of(out / "published", "train"), *records_of(out / "published", "test")):
        assert len(record.reference) == 4
        for step in record.reference:
            spans = [span for span in truth[record.id].values() if span is not None]
            assert not step.spans or any(step.spans[0].iou(span) >= 0.3 for span in spans)
            shown += bool(step.spans)
    review = json.loads((out / "published/dataset.json").read_text())["review"]
    assert (review["people"], review["clips"], review["shown"]) == (2, 32, shown)


def test_a_network_that_cannot_be_trained_or_is_no_better_is_refused_with_the_reason(eight):
    truth, out, call = eight
    answer_clips(out / "workflow", truth, PEOPLE)
    result = call("--train", "wys2", "--train", "procx", "--set", "threads=1")
    told = [line for line in result.stdout.splitlines() if line.startswith(("train", "measure"))]
    assert result.exit_code == 0, result.output
    assert any(line.startswith("measure: procx is refused") for line in told), told
    assert any("wys2 cannot be trained: " in line or "wys2 is refused" in line for line in told), (
        told
    )
    assert not (out / "published/aligner").exists()


def test_it_goes_on_with_the_answers_so_far(eight):
    truth, out, call = eight
    answer_clips(out / "workflow", truth, ["Ann"])
    log = out / "workflow/answers.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:5]))
    waiting = lines_of(call())
    assert waiting["review"].startswith("5 of 32 clips answered, 4.5 min for a person; next: ")
    lines = lines_of(call("--partly"))
    assert lines["review"] == "5 of 32 clips answered; the others count as not answered"
    assert lines["agreement"] == "not known: no clip has 2 answers; Ann answered"
    assert (out / "published/dataset.json").exists()


def test_a_call_that_ends_after_any_line_goes_on_to_the_same_data_set(eight, tmp_path, monkeypatch):
    truth, out, call = eight
    answer_clips(out / "workflow", truth, PEOPLE)
    other = tmp_path / "other"
    shutil.copytree(out, other)
    for _ in range(2):
        stages = len(call("--train", "nasva").stdout.splitlines())
        answer_clips(out / "workflow", truth, PEOPLE)
    assert stages > 9

    again = partial(workflow, call.args[0], other)
    command_module = sys.modules["stepline.cli.workflow"]
    for last in range(3, stages + 1):
        lines = []

        def report(line, last=last, lines=lines):
            lines.append(line)
            if len(lines) == last:
                raise KeyboardInterrupt

        monkeypatch.setattr(command_module, "_print_to_stdout", report)
        assert again("--train", "nasva").exit_code == 130
        answer_clips(other / "workflow", truth, PEOPLE)
    monkeypatch.undo()
    lines_of(again("--train", "nasva"))
    assert files_of(other / "published") == files_of(out / "published")


def test_the_clips_are_served_and_answered_in_their_order(eight):
    _, out, call = eight
    requests = []

    def keep(request):
        requests.append(request)
        return run_workflow(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepline.curate.workflow.run.run_workflow", keep)
        call()
    server = serve(annotation_queue(requests[0]), out / "cut")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        _, reply = ask(server, "GET", "/next?annotator=Ann")
        task = json.loads(reply)
        first = json.loads((out / "workflow/clips.json").read_text())[0]
        assert (task["clip"], task["text"], task["left"]) == (first["id"], first["text"], 31)
        reply, data = ask(server, "GET", task["media"])
        assert (reply.status, data[4:8]) == (200, b"ftyp")
    finally:
        server.stop()
        thread.join()
    assert list(AnswerLog(out / "workflow/answers.jsonl")) == []


def test_a_disk_that_is_too_small_is_reported_before_the_work(eight, monkeypatch):
    _, out, call = eight
    (out / "workflow/forecast.json").unlink()
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("stepline.curate.workflow.curation.shutil.disk_usage", lambda _: usage)
    result = call()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "are needed, 1.0 kB are free; give an --out with more room" in result.stderr
    assert not (out / "workflow/forecast.json").exists()


def test_a_forecast_alone_is_one_line_with_what_to_do_next(eight):
    _, out, call = eight
    (line,) = call("--dry-run").stdout.splitlines()
    assert line.startswith("forecast: ")
    assert f"next: stepline curate workflow {eight[2].args[0]} --out {out}" in line


@pytest.mark.slow
def test_kills_at_any_moment_change_nothing(tmp_path):
    truth = make_videos(tmp_path / "videos", 8)
    source = tmp_path / "videos/videos.csv"
    published = []
    for name, pauses in (("whole", ()), ("killed", (5, 9))):
        out = tmp_path / name
        words = ["curate", "workflow", str(source), "--out", str(out), "--workers", "1"]
        words += ["--train", "nasva"]
        code = f"from stepline.cli import main; main({words!r})"
        for _ in range(3):
            for pause in pauses:
                driver = start_driver(code, tmp_path / "cache")
                time.sleep(pause)
                driver.kill()
                driver.communicate()
            finish(code, tmp_path / "cache")
            answer_clips(out / "workflow", truth, PEOPLE)
        published.append(files_of(out / "published"))
    assert published[0] == published[1]
