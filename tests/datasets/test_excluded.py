"""The list of evaluation videos that training sets must not hold."""

import json
import re
import shlex
from pathlib import Path

import pytest

from stepline.datasets.excluded import (
    ExcludedSource,
    ExcludedVideos,
    collect_excluded,
    read_excluded,
    write_excluded,
)
from stepline.datasets.record_builder import strip_id_prefix
from stepline.errors import DatasetError


def test_ids_come_from_the_datasets_own_files(tmp_path):
    align = tmp_path / "htm_align.json"
    rows = {"abcdefghijk": [[1, 0, 2, "stir"]], "bbbbbbbbbbb": [[1, 9, 2, "its span is reversed"]]}
    align.write_text(json.dumps(rows))
    tasty = tmp_path / "train.json"
    video = {"duration": 9.0, "timestamps": [[0, 2]], "sentences": ["stir"]}
    tasty.write_text(json.dumps({"v_abcdefghijk": video}))
    sources = [ExcludedSource("htm-align", align), ExcludedSource("tasty", tasty, ("train",))]
    found = collect_excluded(sources)
    assert found.datasets == {"abcdefghijk": ("htm-align", "tasty"), "bbbbbbbbbbb": ("htm-align",)}
    assert found.counts() == {"htm-align": 2, "tasty": 1}


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["procx.md", "reproduce.md"])
def test_the_documented_pre_training_of_procx_sees_no_annotated_video_of_youcook2(
    page, tmp_path, monkeypatch, stepline
):
    """Batra et al., E.1: no video that YouCook2 annotates is in Sieve & Swap."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (line,) = re.findall(r"stepline (curate excluded .*youcook2.*)", text)
    for path in re.findall(r"=(\S+json)", line):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        video = {"duration": 9.0, "timestamps": [[0, 2]], "sentences": ["stir"]}
        file.write_text(json.dumps({"of-" + file.name.split(".")[0]: video}))
    monkeypatch.chdir(tmp_path)
    assert stepline(*shlex.split(line)).exit_code == 0
    videos = read_excluded([tmp_path / shlex.split(line)[-1]]).datasets
    assert videos["of-yc2_train"] == ("youcook2",)
    assert any(id.startswith("of-yc2_val") for id in videos)


@pytest.fixture
def htstep(tmp_path):
    """A release of HT-Step: train and validation are annotated, the test splits are only named."""
    folder = tmp_path / "htstep"
    folder.mkdir()
    head = "global_step_index,activity,step_index,variation,variation_index,headline,paragraph\n"
    (folder / "taxonomy.csv").write_text(head + "0,Make rice,0,none,1,Boil it.,\n")
    splits = {"train": ["t"], "val_seen": ["s"], "val_unseen": ["u"]}
    splits |= {"test_seen": ["h1"], "test_unseen": ["h2"]}
    (folder / "video_splits.json").write_text(json.dumps(splits))
    videos = {
        split: {"subset": split, "activity": "Make rice", "annotations": []} for split in splits
    }
    annotated = {splits[split][0]: videos[split] for split in ("train", "val_seen", "val_unseen")}
    (folder / "annotations.json").write_text(json.dumps(annotated))
    return folder


def test_ht_steps_hidden_test_videos_are_always_in_it_and_its_training_videos_not(htstep):
    hidden = collect_excluded([ExcludedSource("ht-step", htstep)]).datasets
    assert sorted(hidden) == ["h1", "h2", "s", "u"]
    one = ExcludedSource("ht-step", htstep, ("val_seen",))
    assert sorted(collect_excluded([one]).datasets) == ["h1", "h2", "s"]
    headlines = {"h3": {"step_headline": ["Boil it."]}}
    (htstep / "htm_test_input_headline.json").write_text(json.dumps(headlines))
    assert "h3" in collect_excluded([one])


def test_a_split_that_is_not_there_or_that_no_one_is_scored_on_is_reported(
    stepline, htstep, tmp_path
):
    def refused(given):
        result = stepline("curate", "excluded", given, "--out", tmp_path / "list.txt")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        return result.stderr

    train = tmp_path / "train.json"
    train.write_text(json.dumps({"a": {"duration": 9.0, "timestamps": [], "sentences": []}}))
    splits = "holds no split 'val'; it has test_seen, test_unseen, train, val_seen, val_unseen"
    assert splits in refused(f"ht-step:val={htstep}")
    unscored = "no one is scored on its videos, all of split 'train'; tasty:train="
    assert unscored in refused(f"tasty={train}")
    (htstep / "video_splits.json").unlink()
    said = refused(f"ht-step={htstep}")
    assert "no file states which videos are in the hidden test splits; put the release's" in said
    assert "video_splits.json" in said


def test_every_video_of_crosstask_may_be_drawn_for_a_test(stepline, tmp_path):
    from official_forms import crosstask

    source = f"crosstask={crosstask(tmp_path)}"
    result = stepline("curate", "excluded", source, "--out", tmp_path / "list.txt")
    assert result.exit_code == 0, result.output
    assert "qLnTkIUO0so" in read_excluded([tmp_path / "list.txt"])


def test_a_list_reads_back_as_it_was_written(tmp_path):
    found = ExcludedVideos({"b": ("coin",), "a": ("coin", "youcook2")})
    write_excluded(found, tmp_path / "list.txt")
    assert read_excluded([tmp_path / "list.txt"]) == found
    assert "v_" not in (tmp_path / "list.txt").read_text()


def test_plain_lists_of_ids_are_read_and_joined(tmp_path):
    (tmp_path / "one.txt").write_text("# mine\nabc\n\n  xyz coin # seen\n")
    (tmp_path / "two.txt").write_text("abc youcook2,coin\n")
    found = read_excluded([tmp_path / "one.txt", tmp_path / "two.txt"])
    assert found.datasets_with("abc") == ("coin", "unnamed", "youcook2")
    assert "xyz" in found
    assert "ab" not in found


@pytest.mark.parametrize(
    ("video", "plain"),
    [
        ("v_abcdefghijk", "abcdefghijk"),
        ("v_abcdefghi", "v_abcdefghi"),
        ("abc", "abc"),
        ("Fold [part 1] a crane [ab-defgh_jk]", "ab-defgh_jk"),
        ("Fold [ab-defgh_jk].f137", "ab-defgh_jk"),
        ("Fold a crane [in full]", "Fold a crane [in full]"),
    ],
)
def test_only_the_eleven_letters_of_an_id_lose_their_prefix_or_title(video, plain):
    assert strip_id_prefix(video) == plain


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(DatasetError, match="not UTF-8"):
        read_excluded([tmp_path / "list.txt"])
    with pytest.raises(DatasetError, match="cannot be read"):
        read_excluded([tmp_path / "none.txt"])
    (tmp_path / "htm_align.json").write_text('{"abcdefghijk": [[1, 0, 2, "stir"]]}')
    with pytest.raises(DatasetError, match="line 1 is not a video id.*stepline curate excluded"):
        read_excluded([tmp_path / "htm_align.json"])
