"""A whole run over a collection: what comes out, what stays out, and the same bytes whatever
interrupts it."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_base import SmallBase
from transcripts import transcript_of

from stepline.datasets import read
from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import DatasetError, SettingsError, StoreError
from stepline.files.digests import sha256
from stepline.records import Record, Span, Video
from stepline.settings import validate
from stepline.sieve_swap import run as collection
from stepline.sieve_swap.report import write_released_json
from stepline.sieve_swap.run import SieveSwapJob, run_job
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.storage import read_parquet, to_json

GARLIC = (
    "hello dear friends|peel two cloves of garlic|rub the toast with garlic|drizzle with olive oil"
)
BEANS = (
    "welcome to my channel|drain the beans|chop 1 onion|mix beans and onion with vinegar|subscribe"
)


def record(identity, title, speech, **video):
    said = transcript_of(*speech.split("|"), every=5.0, seconds=3.0, language=None)
    known = {"id": identity, "title": title, "task": title} | video
    return Record(id=identity, video=Video(**known), transcript=said)


PLAIN = {"sieve": "similarity", "similarity": 0.55, "swap_similarity": 0.0}
VIDEOS = [
    record("garlic1", "Easy garlic toast", GARLIC),
    record("beans1", "My best bean salad", BEANS),
    record("garlic2", "Garlic bread at home", GARLIC),
    record("long", "Garlic toast", GARLIC, duration=601.0),
    record("test", "Garlic toast", GARLIC),
    record("garlic1", "Easy garlic toast", GARLIC),
    record("other", "Fix a roof", "hammer the nails|climb down"),
    Record(id="silent", video=Video(id="silent", title="Garlic toast")),
]


def write_videos(folder, videos=VIDEOS):
    folder.mkdir(exist_ok=True)
    (folder / "videos.jsonl").write_text(
        "".join(json.dumps(json.loads(to_json(v))) + "\n" for v in videos)
    )
    return folder / "videos.jsonl"


def settings(**sections):
    tree = {"pairing": {"smallest_category": 1}, "match": PLAIN, "run": {"shard": 3}}
    merged = {key: tree.get(key, {}) | sections.get(key, {}) for key in tree | sections}
    return validate(SieveSwapSettings, merged)


def job(tmp_path, out="out", videos=VIDEOS, **sections):
    base = SmallBase()
    path = write_videos(tmp_path / "in", videos)
    excluded = ExcludedVideos({"test": ("youcook2",)})
    return SieveSwapJob(
        path, base, tmp_path / out, settings(**sections), excluded, embed=base.embed
    )


def records_of(out, split):
    return [
        record for file in sorted((out / split).glob("*.parquet")) for record in read_parquet(file)
    ]


def digests(folder):
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder)): sha256(file) for file in files}


def test_every_video_is_swapped_or_left_out_with_its_reason(tmp_path):
    outcome = run_job(job(tmp_path))
    kept = [*records_of(tmp_path / "out", "train"), *records_of(tmp_path / "out", "validation")]
    texts = {record.id: [step.text for step in record.steps] for record in kept}
    toast = ["Peel 2 cloves garlic.", "Rub the toast with the garlic.", "Drizzle with olive oil."]
    salad = ["Drain the beans.", "Chop 1 red onion.", "Mix beans and onion with vinegar."]
    assert texts == {"garlic1": toast, "garlic2": toast, "beans1": salad}
    left = {
        (record.id, record.dropped[0].reason) for record in records_of(tmp_path / "out", "left_out")
    }
    assert left == {
        ("long", "it is too long"),
        ("test", "it is an evaluation video"),
        ("garlic1", "its id was read before"),
        ("other", "no document goes with it"),
        ("silent", "nothing is said in it"),
    }
    sums = outcome.statistics
    assert sum(sums.videos.values()) == len(VIDEOS)
    assert sums.excluded == {"youcook2": 1}
    assert sums.sentences == {"swapped": 9, "no step is near enough": 4}
    assert sums.documents == {"tests: d0": 6, "tests: d1": 3}
    assert sums.licences == {"CC0-1.0": 9}


def test_a_second_run_does_nothing_and_changes_no_byte(tmp_path):
    run_job(job(tmp_path))
    before = digests(tmp_path / "out")
    again = run_job(job(tmp_path))
    assert again.resumed_count == len(again.parts) == 3
    assert digests(tmp_path / "out") == before


def test_a_part_that_is_lost_is_made_again_with_the_same_bytes(tmp_path):
    run_job(job(tmp_path))
    before = digests(tmp_path / "out")
    for victim in list((tmp_path / "out").rglob("00001-*")):
        victim.unlink()
    assert run_job(job(tmp_path)).resumed_count == 2
    assert digests(tmp_path / "out") == before


def test_files_of_other_videos_are_removed(tmp_path):
    run_job(job(tmp_path))
    run_job(job(tmp_path, videos=VIDEOS[:2]))
    run_job(job(tmp_path, out="fresh", videos=VIDEOS[:2]))
    assert digests(tmp_path / "out") == digests(tmp_path / "fresh")


def test_the_size_of_a_part_changes_no_record(tmp_path, monkeypatch):
    run_job(job(tmp_path))
    monkeypatch.setattr("stepline.sieve_swap.content_words.BLOCK_DOCUMENTS", 1)
    run_job(job(tmp_path, out="one", run={"shard": 100}))
    for split in ("train", "validation", "left_out"):
        by_id = sorted(records_of(tmp_path / "out", split), key=lambda record: record.id)
        assert by_id == sorted(records_of(tmp_path / "one", split), key=lambda record: record.id)


def test_other_settings_need_another_folder(tmp_path):
    run_job(job(tmp_path))
    with pytest.raises(SettingsError, match="another --out"):
        run_job(job(tmp_path, match={"similarity": 0.9}))


def test_a_category_with_too_few_videos_stays_out(tmp_path):
    videos = [record(f"v{n}", "Garlic toast", GARLIC) for n in range(3)] + [
        record("alone", "Bean salad", BEANS)
    ]
    outcome = run_job(job(tmp_path, videos=videos, pairing={"smallest_category": 3}))
    assert outcome.statistics.videos["its category has too few videos"] == 1
    assert not [record for record in records_of(tmp_path / "out", "train") if record.id == "alone"]


def test_the_whole_base_can_be_searched_without_pairing(tmp_path):
    outcome = run_job(job(tmp_path, videos=VIDEOS[-2:-1], match={"scope": "all", "variant": "raw"}))
    assert outcome.statistics.videos == {"train": 1}


def test_the_released_form_is_read_by_the_dataset_s_reader(tmp_path):
    run_job(job(tmp_path))
    files = (tmp_path / "out" / "validation").glob("*.parquet")
    assert write_released_json(files, tmp_path / "val.json") == 9
    found = {record.id: record for record in read("sieve-swap", tmp_path / "val.json").records}
    first = found["beans1"].steps[0]
    assert (first.text, first.spans) == ("Drain the beans.", (Span(5.0, 8.0),))
    assert first.alternatives == ("drain the beans",)


def test_what_cannot_be_read_is_counted_and_survived(tmp_path):
    folder = tmp_path / "in"
    write_videos(folder)
    with (folder / "videos.jsonl").open("ab") as file:
        file.write(b'\x00\xff binary junk\n{"version": 1, "id": 7}\n')
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    (folder / "long.json").write_text(
        '{"aaaaaaaaaaa": {"start": [0], "end": [1, 2], "text": ["x"]}, "bbb": {"start"'
    )
    base, said = SmallBase(), []
    given = {"embed": base.embed, "report": said.append}
    outcome = run_job(SieveSwapJob(folder, base, tmp_path / "out", settings(), **given))
    assert outcome.statistics.videos["it cannot be read"] == 5
    assert "broken.parquet" in next(line for line in said if line.startswith("left out"))
    assert sum(line.startswith("left out") for line in said) == 3
    assert {"beans1", "garlic2"} <= {
        record.id for record in records_of(tmp_path / "out", "validation")
    }


def test_nothing_to_read_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="holds no .*`stepline steps --format json`"):
        run_job(SieveSwapJob(tmp_path / "empty", SmallBase(), tmp_path / "out", settings()))


def test_a_base_without_a_step_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="holds no step"):
        run_job(
            SieveSwapJob(write_videos(tmp_path / "in"), SmallBase([]), tmp_path / "out", settings())
        )


def test_no_more_videos_are_held_than_a_part_has(tmp_path, monkeypatch):
    sizes = []
    inner = collection.sieve_and_swap

    def counted(records, *arguments, **options):
        sizes.append(len(records))
        return inner(records, *arguments, **options)

    monkeypatch.setattr(collection, "sieve_and_swap", counted)
    run_job(job(tmp_path, run={"shard": 2}))
    assert sizes == [2, 1, 0, 0]


RUN = """
import sys
from pathlib import Path
from small_base import SmallBase
from stepline.sieve_swap.run import SieveSwapJob, run_job
from stepline.sieve_swap.report import write_report
from test_sieve_swap_run import settings

base = SmallBase()
job = SieveSwapJob(Path(sys.argv[1]), base, Path(sys.argv[2]), settings(run={"shard": 2}), embed=base.embed)
print("begun", flush=True)
write_report(job, run_job(job))
"""


def start(videos, out):
    program = [sys.executable, "-c", RUN, str(videos), str(out)]
    here = {"cwd": Path(__file__).parent, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(program, **here)


def finish(videos, out):
    began = time.monotonic()
    process = start(videos, out)
    process.communicate(timeout=300)
    assert process.returncode == 0
    return time.monotonic() - began


def killed_after_files(videos, out, count):
    """Kill a run with signal 9 as soon as `out` holds more than `count` files, finished or not; say
    how many it had."""
    process = start(videos, out)
    process.stdout.readline()
    while process.poll() is None and sum(1 for file in out.rglob("*") if file.is_file()) <= count:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bytes(tmp_path):
    chance = random.Random(9)
    videos = write_videos(
        tmp_path / "in", [*VIDEOS, *(record(f"more{n}", "Garlic toast", GARLIC) for n in range(8))]
    )
    finish(videos, tmp_path / "whole")
    expected = digests(tmp_path / "whole")
    kills = 0
    for turn in range(4):
        out = tmp_path / f"out{turn}"
        for _ in range(2):
            there = sum(1 for file in out.rglob("*") if file.is_file()) if out.exists() else 0
            most = there + chance.randrange(len(expected) // 2)
            kills += killed_after_files(videos, out, most) == -signal.SIGKILL
        finish(videos, out)
        assert digests(out) == expected
    assert kills >= 4
