"""`stepline sieve-swap` and `stepline curate excluded` from the command line, with the real encoder."""

import json

import pytest
from click.testing import CliRunner
from option_words import option_words
from test_sieve_swap_run import VIDEOS, records_of, write_videos

from stepline.cli import main

TOAST = ["Peel 2 cloves of garlic.", "Rub the toast with the garlic."]
SALAD = ["Drain the beans.", "Chop 1 red onion.", "Mix with vinegar."]
RECIPES = {
    "toast": {"title": "Garlic toast", "steps": TOAST},
    "salad": {"title": "Bean salad", "steps": SALAD},
}


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def base(tmp_path):
    (tmp_path / "recipes.json").write_text(json.dumps(RECIPES))
    return tmp_path / "recipes.json"


def test_records_are_swapped_from_the_command_line(tmp_path, base):
    videos = write_videos(tmp_path / "in")
    (tmp_path / "list.txt").write_text("test youcook2\n")
    options = ("--text-base", base, "--out", tmp_path / "out", "--exclude", tmp_path / "list.txt")
    few = ("--set", "pairing.smallest_category=1", "--set", "pairing.validation_iou=0.9")
    first = invoke("sieve-swap", videos, *options, *few, "--json")
    assert first.exit_code == 0, first.output
    counts = json.loads(first.stdout)
    assert counts["excluded"] == {"youcook2": 1}
    assert sum(counts["videos"].values()) == len(VIDEOS)
    kept = [*records_of(tmp_path / "out", "train"), *records_of(tmp_path / "out", "validation")]
    swapped = {step.text for record in kept for step in record.steps}
    assert swapped <= {text for recipe in RECIPES.values() for text in recipe["steps"]}
    assert "Peel 2 cloves of garlic." in swapped
    again = invoke("sieve-swap", videos, *options, *few)
    assert "1 parts, 1 of them done before" in again.stderr
    other = invoke("sieve-swap", videos, *options)
    assert other.exit_code == 1
    assert "give another --out" in other.stderr


def test_the_paper_s_threshold_is_refused_for_a_base_of_another_encoder(tmp_path, base):
    videos = write_videos(tmp_path / "in")
    built = invoke("text-base", "build", base, "--out", tmp_path / "base")
    assert built.exit_code == 0, built.output
    words = ("sieve-swap", videos, "--text-base", tmp_path / "base", "--out", tmp_path / "out")
    refused = invoke(*words, "--preset", "paper")
    assert refused.exit_code == 1
    line = refused.stderr.strip().splitlines()[-1]
    assert "embedded by minilm, while match.similarity 0.75 is for mpnet" in line
    assert line.endswith("or --set text_base.encoder=minilm takes it as it is")
    few = ("--set", "pairing.category=", "--set", "pairing.smallest_category=1")
    own = ("--set", "text_base.encoder=minilm", "--set", "pairing.validation_iou=1")
    asked = invoke(*words, "--preset", "paper", *few, *own)
    assert asked.exit_code == 0, asked.output


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("broken.json", b'{"version": 1, "id": "cut o'),
        ("broken.jsonl", b'{"no": "record"}\n'),
        ("broken.parquet", b"PAR1 and then nothing"),
        ("broken.csv", b"neither,start\nnor,end\n"),
    ],
    ids=["json", "jsonl", "parquet", "csv"],
)
def test_a_damaged_file_is_reported_and_counts_as_a_failure_while_the_rest_is_done(
    tmp_path, base, name, damaged
):
    videos = write_videos(tmp_path / "in")
    folder = videos if videos.is_dir() else videos.parent
    (folder / name).write_bytes(damaged)
    options = option_words(text_base=base, out=tmp_path / "out", set="pairing.smallest_category=1")
    for _ in range(2):
        done = invoke("sieve-swap", folder, *options, "--json")
        assert done.exit_code == 1
        assert name in done.stderr
        assert "1 of the videos could not be read" in done.stderr
        assert sum(json.loads(done.stdout)["videos"].values()) == len(VIDEOS) + 1


def test_what_cannot_be_used_is_an_error_in_one_line(tmp_path, base):
    nothing = invoke(
        "sieve-swap", tmp_path / "none.json", "--text-base", base, "--out", tmp_path / "out"
    )
    assert nothing.exit_code == 1
    assert "is not there" in nothing.stderr
    odd = invoke("curate", "excluded", "youcook2", "--out", tmp_path / "list.txt")
    assert odd.exit_code == 1
    assert "DATASET=PATH" in odd.stderr


def test_the_list_of_evaluation_videos_is_written(tmp_path):
    (tmp_path / "htm_align.json").write_text(json.dumps({"abcdefghijk": [[1, 0, 2, "stir"]]}))
    videos = f"htm-align={tmp_path}/htm_align.json"
    done = invoke("curate", "excluded", videos, "--out", tmp_path / "list.txt")
    assert done.exit_code == 0
    assert (tmp_path / "list.txt").read_text().splitlines()[-1] == "abcdefghijk\thtm-align"


SAID = ["peel two cloves of garlic", "rub the toast with garlic", "drizzle olive oil"]
CAPTIONS = {"text": SAID, "start": [0, 5, 10], "end": [4, 9, 14]}
CAPTIONS = {f"garlic{number}": CAPTIONS for number in range(3)}
TABLE = "video_id,category_1,category_2,rank,task_id\n" + "".join(
    f"{id},Food and Entertaining,Recipes,1,7\n" for id in CAPTIONS
)


@pytest.fixture
def captions(tmp_path):
    folder = tmp_path / "howto100m"
    folder.mkdir()
    (folder / "caption.json").write_text(json.dumps(CAPTIONS))
    (folder / "task_ids.csv").write_text("7\tMake garlic toast\n")
    return folder / "caption.json"


def swapped(captions, base, out, *settings):
    given = [part for each in settings for part in ("--set", each)]
    return invoke("sieve-swap", captions, "--text-base", base, "--out", out, *given)


def test_a_category_without_the_table_that_says_it_is_an_error(tmp_path, base, captions):
    cooking = "pairing.category=Food and Entertaining"
    loose = ("pairing.smallest_category=1", "pairing.validation_iou=0.9", "pairing.iou=0.05")
    done = swapped(captions, base, tmp_path / "out", cooking, *loose)
    assert done.exit_code == 1
    assert "caption.json: no video has a category" in done.stderr
    assert "put HowTo100M_v1.csv next to it, or give --set pairing.category=" in done.stderr
    assert not (tmp_path / "out" / "train.json").exists()
    (captions.parent / "HowTo100M_v1.csv").write_text(TABLE)
    done = swapped(captions, base, tmp_path / "out", cooking, *loose)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("pairing.category=Pets", ("3 x it is of another category", "another pairing.category")),
        ("pairing.smallest_category=9", ("too few videos", "lower pairing.smallest_category")),
        ("pairing.longest_video=5.0", ("too long", "raise pairing.longest_video")),
        ("pairing.iou=1.0", ("no document", "lower pairing.iou or pairing.recall")),
        ("pairing.validation_iou=0.01", ("3 x validation", "raise pairing.validation_iou")),
    ],
)
def test_an_empty_train_json_is_an_error_that_says_why(tmp_path, base, captions, setting, parts):
    (captions.parent / "HowTo100M_v1.csv").write_text(TABLE)
    loose = ("pairing.smallest_category=1", "pairing.validation_iou=0.9", "pairing.iou=0.05")
    done = swapped(captions, base, tmp_path / "out", *loose, setting)
    assert done.exit_code == 1
    (line,) = [
        line for line in done.stderr.splitlines() if line.startswith(("error", "Error", "stepline"))
    ]
    assert "train.json is empty" in line
    assert all(part in line for part in parts)
