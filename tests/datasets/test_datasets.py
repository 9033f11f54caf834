import csv
import gzip
import json
import math
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from official_forms import SAMPLES, write
from pyarrow import parquet
from shared_forms import REAL, load

from stepline.datasets import DATASETS, describe, read, stream
from stepline.datasets.htstep import read_taxonomy
from stepline.datasets.predictions import read_predictions
from stepline.datasets.record_builder import span_flaw
from stepline.errors import DatasetError
from stepline.outputs.editing import label_studio
from stepline.records import Record, Rejected, Span, Step, Video


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_keeps_the_contract(name, sample):
    path = sample(name)
    reading = read(name, path)
    ids = [record.id for record in reading.records]
    assert ids
    assert len(set(ids)) == len(ids)
    assert set(reading.subsets) <= set(ids)
    for record in reading.records:
        steps = record.steps + record.reference
        assert len({step.id for step in steps}) == len(steps)
        assert all(step.status is None for step in steps)
        spans = [span for step in steps for span in step.spans]
        if record.transcript:
            spans += [sentence.span for sentence in record.transcript.sentences]
        assert all(span.end <= (record.video.duration or span.end) for span in spans)
        own = [row for row in reading.rejected if row.id == record.id]
        assert len(record.dropped) == len(own)
    assert reading.rejected or name == "sieve-swap"
    assert all(row.reason and row.id for row in reading.rejected)
    assert read(name, path) == reading
    assert any(getattr(record, DATASETS[name].record_field) for record in reading.records)


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_names_a_missing_file_and_the_cure(name, tmp_path):
    with pytest.raises(DatasetError, match=r"; .*(give|says|needs)") as caught:
        read(name, tmp_path / "nowhere.json")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_rows_of_the_table_and_samples_go_together():
    assert list(SAMPLES) == list(DATASETS)
    assert all(row.name == name for name, row in DATASETS.items())


def test_describe_lists_every_dataset_and_one_in_full():
    assert [line.split()[0] for line in describe().splitlines()] == list(DATASETS)
    assert "coin-dataset/annotations" in describe("coin")
    assert "CC BY-NC 4.0" in describe("coin")
    with pytest.raises(DatasetError, match="did you mean 'youcook2'"):
        describe("YouCook")


def test_htm_align_sentences_keep_their_rows(sample):
    first = read("htm-align", sample("htm-align")).records[0]
    assert first.transcript is None
    assert first.reference == (
        Step(id="0", text="pour the milk", spans=(Span(5.0, 8.8),)),
        Step(id="1", text="I love this", said=Span(10.5, 12.0)),
        # row 2 is alignable but has no length: left out, since without a span it would read as not
        # alignable
    )


def test_ht_step_holds_the_whole_article_in_the_videos_variation(sample):
    reading = read("ht-step", sample("ht-step"))
    one, two, three = reading.records
    assert one.recipe == ("Boil water, then salt it.", "Drain.")
    shown = [(step.id, step.spans) for step in one.reference]
    assert shown == [("0", (Span(3, 9.5), Span(20, 25.5))), ("1", ())]
    # variation A, that of the first annotation
    assert [step.id for step in two.reference] == ["2", "3"]
    # no annotation, two variations: which one the video follows is not known
    assert three.reference == ()
    assert (one.video.task, reading.subsets["v2"]) == ("Make A", "val_seen")


def test_crosstask_holds_every_step_of_the_task(sample):
    record = read("crosstask", sample("crosstask")).records[0]
    assert (record.id, record.video.id) == ("23521_qLnTkIUO0so", "qLnTkIUO0so")
    assert record.video.task == "Make Jello Shots"
    assert [len(step.spans) for step in record.reference] == [2, 0, 1]
    assert record.recipe == ("pour water", "stir mixture", "pour into cups")


def test_coin_spans_of_one_step_are_together(sample):
    reading = read("coin", sample("coin"))
    (record,) = reading.records
    shown = [(step.id, step.spans) for step in record.reference]
    assert shown == [("373", (Span(21, 22),)), ("374", (Span(23, 24),))]
    past, value = "ends after the end of the video", "[25, 27] of 26.795 s"
    row = Rejected("span", past, text="begin to run up", id="NLy71UrHElw", value=value)
    assert reading.rejected == (row,)
    assert record.dropped[0].reason == f"span {past}: {value}"


def test_youcook2_reads_both_forms_alike(tmp_path):
    video = {"duration": 100.0, "timestamps": [[1, 2.5]], "sentences": ["mix"]}
    flat = read("youcook2", write(tmp_path / "yc2_val.json", {"v_GLd3aX16zBg": video})).records
    rows = [{"id": 7, "segment": [1, 2.5], "sentence": "mix"}]
    authors = {"duration": 100.0, "subset": "validation", "annotations": rows}
    tree = {"database": {"GLd3aX16zBg": authors}}
    assert read("youcook2", write(tmp_path / "authors.json", tree)).records == flat
    assert read("youcook2", tmp_path / "yc2_val.json").subsets == {"GLd3aX16zBg": "val"}
    # a YouTube id that begins like the prefix keeps it
    path = write(tmp_path / "yc2_val.json", {"v_LLLLLLLLL": video, "xHr8X2Wpmno": video})
    ids = [record.id for record in read("youcook2", path).records]
    assert ids == ["v_LLLLLLLLL", "xHr8X2Wpmno"]


def test_label_studio_reads_what_people_made_of_the_steps(sample):
    reading = read("label-studio", sample("label-studio"))
    one, two = reading.records
    spans = (Span(3.5, 9.0), Span(20.0, 25.0))
    assert one.reference == (Step(id="Fold", text="Fold", spans=spans),)
    assert (one.id, one.video.duration, two.id) == ("strip", 40.0, "b.mp4")
    # its label says that it is not shown
    assert two.reference == (Step(id="Glue it", text="Glue it"),)
    assert [(row.id, row.reason) for row in reading.rejected] == [
        ("strip", "ends before it starts"),
        ("c", "no one has annotated it"),
    ]


def test_label_studio_reads_back_the_steps_that_were_written_for_it(tmp_path):
    spans, doubt = (Span(3.5, 9.0), Span(20.0, 25.0)), "a still"
    shown = Step(id="1", text="fold the strip", spans=spans, status="placed")
    said = Step(id="2", text="press", said=Span(1.0, 2.0), status="said_only")
    doubtful = Step(id="3", text="glue it", spans=(Span(30, 33),), status="placed", doubt=doubt)
    record = Record(id="v", video=Video(id="v", duration=40.0), steps=(shown, said, doubtful))
    (task,) = json.loads(label_studio(record, "v.mp4"))
    task["annotations"] = task.pop("predictions")  # as when a person accepts them
    (back,) = read("label-studio", write(tmp_path / "export.json", [task])).records
    assert (back.id, back.video.duration) == ("v", 40.0)
    # The label of the third says that something speaks against it; a person who sees it relabels it.
    # A further span is a candidate, until a person labels it "seen".
    found = [(step.text, step.spans) for step in back.reference]
    assert found == [("Fold the strip", shown.spans[:1]), ("Glue it", ())]
    for row in task["annotations"][0]["result"]:
        if row["value"].get("timelinelabels") == ["candidate"]:
            row["value"]["timelinelabels"] = ["seen"]
    (again,) = read("label-studio", write(tmp_path / "export.json", [task])).records
    assert again.reference[0].spans == shown.spans


def test_sieve_and_swap_keeps_the_further_wordings(sample):
    record = read("sieve-swap", sample("sieve-swap")).records[0]
    assert record.reference == ()  # no human wrote them for this video
    assert record.steps[0].alternatives == ("stir together the flours",)
    assert record.steps[1].alternatives == ()


def test_whenact_joins_where_spoken_with_where_shown(sample):
    record = read("whenact", sample("whenact")).records[0]
    steps = {step.id: step for step in record.reference}
    # "adding the onions" is the closest to "add the onions"
    assert steps["0"].spans == (Span(2.2, 55.0),)
    assert steps["0"].said == Span(20, 31)
    assert steps["1"].spans == ()  # its window has no length
    assert steps["3"].spans == (Span(14, 15),)  # the second "mash it" gets the second window
    assert steps["3"].said is None
    assert [(s.text, s.shown) for s in record.transcript.sentences] == [
        ("mash it", 1.0),
        ("adding the onions", 1.0),
        ("love you", 0.0),
    ]


def test_an_instruction_lasts_until_the_next_one_or_the_end(sample, tmp_path):
    file = sample("interactive-cooking")
    reading = read("interactive-cooking", file)
    record, hasty = reading.records
    assert [step.spans for step in hasty.reference] == [(), (Span(4.0, 35.5),)]
    first, second = ((step.text, step.spans) for step in record.reference)
    assert first == ("Crack 2 eggs into a bowl.", (Span(4.0, 21.0),))
    assert second == ("Whisk the eggs.", (Span(21.0, 35.5),))
    assert (record.video.task, reading.subsets["1_7"]) == ("Microwave Egg Sandwich", "test")
    rows = json.loads(Path(file).read_text())
    row = rows[0]
    folder = tmp_path / "main"
    folder.mkdir()
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, folder / "validation-00000-of-00001.parquet")
    served = read("interactive-cooking", folder)
    assert served.records == reading.records
    assert set(served.subsets.values()) == {"validation"}
    row["output_types"] = row["output_types"][:-1]
    (folder / "main_test.json").write_text(json.dumps([row]))
    with pytest.raises(DatasetError, match="5 texts, 5 times, 4 types; give as many of each"):
        read("interactive-cooking", folder / "main_test.json")
    row["output_texts"], row["output_timestamps"] = row["output_texts"][:-1], [4, 15, 21, 33]
    (folder / "main_test.json").write_text(json.dumps([row]))
    (cut,) = read("interactive-cooking", folder / "main_test.json").records
    assert [step.spans for step in cut.reference] == [(Span(4.0, 21.0),), ()]


def test_a_subset_can_be_chosen(sample):
    path = sample("ht-step")
    ids = [record.id for record in read("ht-step", path, subset="val_seen").records]
    assert ids == ["v2", "v3"]
    with pytest.raises(DatasetError, match="no subset 'test'; it has train, val_seen"):
        read("ht-step", path, subset="test")


def test_an_id_that_comes_again_is_rejected(tmp_path):
    video = {"duration": 9, "timestamps": [[1, 2]], "sentences": ["mix"]}
    for split in ("train", "val"):
        write(tmp_path / f"yc2_{split}.json", {"xHr8X2Wpmno": video})
    reading = read("youcook2", tmp_path)
    assert len(reading.records) == 1
    assert reading.rejected == (Rejected("video", "its id was read before", id="xHr8X2Wpmno"),)


def test_gzipped_files_are_read_whatever_their_name(sample, tmp_path):
    path = sample("coin")
    plain = read("coin", path)
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read("coin", packed) == plain
    (tmp_path / "COIN.json.gz").write_bytes(packed.read_bytes())
    path.unlink()
    assert read("coin", tmp_path) == plain


def test_howtostep_is_read_from_one_file_a_folder_and_an_archive_alike(tmp_path):
    video = {"start": [1.0], "end": [2.0], "text": ["mix"]}
    whole = read("howtostep", write(tmp_path / "all.json", {"abc": video, "abd": video}))
    for id in ("abc", "abd"):
        write(tmp_path / "HowToStep" / f"{id}.json", video)
    with tarfile.open(tmp_path / "HowToStep.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "HowToStep", "HowToStep")
    assert read("howtostep", tmp_path / "HowToStep") == whole
    assert read("howtostep", tmp_path / "HowToStep.tar.gz").records == whole.records


def test_whisperx_segments_without_times_are_rejected(tmp_path):
    segments = [{"start": 1.0, "end": 2.0, "text": " Hi.", "words": []}, {"text": "lost"}]
    heard = write(tmp_path / "abc.json", {"segments": segments, "language": "en"})
    reading = read("howto100m", heard)
    assert [sentence.text for sentence in reading.records[0].transcript.sentences] == ["Hi."]
    assert reading.reasons() == {"sentence: the times are not finite numbers": 1}
    assert reading.records[0].id == "abc"


def test_stream_holds_one_entry_at_a_time(sample):
    entries = stream("crosstask", sample("crosstask"))
    assert next(entries).record is not None
    assert [entry.id for entry in entries] == ["16815_bbb", "16815_ccc", "999_ddd"]


STEP = '{"database": {"a": {"annotation": [{"id": "1", "label": "x"%s}]%s}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "COIN.json: not valid JSON at line 1, column 1"),
        ('{"database": {"a": 1}}', "COIN.json: database.a: 1 is not an object"),
        ("[]", "COIN.json: a list of 0 is not an object"),
        ('{"data": {}}', "COIN.json: lacks 'database'; is this the right file"),
        (STEP % ("", ""), r"database.a.annotation\[0\]: lacks 'segment'"),
        (STEP % (', "segment": [1]', ""), r"segment: a list of 1 is not a pair"),
        ('{"database": {"a": {}, "a": {}}}', "key 'a' is twice"),
        (
            STEP % (', "segment": [1, 2]', ', "duration": "long"'),
            "duration: 'long' is not a number",
        ),
        ("[" * 100_000, "JSON that cannot be read"),
    ],
)
def test_malformed_files_are_one_line_with_the_place(tmp_path, text, message):
    path = tmp_path / "COIN.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message) as caught:
        read("coin", path)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value)


def test_damaged_gzip_and_wrong_encoding_are_reported(tmp_path):
    path = tmp_path / "COIN.json"
    path.write_bytes(gzip.compress(b'{"database": {}}')[:-12])
    with pytest.raises(DatasetError, match="gzip is damaged"):
        read("coin", path)
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(DatasetError, match="not UTF-8 at byte 0"):
        read("coin", path)


def test_a_comma_in_a_crosstask_step_is_reported_and_not_cut(sample):
    folder = sample("crosstask")
    tasks = folder / "tasks_primary.txt"
    listed = tasks.read_text().replace("brake on,raise jack", "brake on,raise jack, slowly")
    tasks.write_text(listed)
    said = "task 16815 has 2 steps by its count but 3 between commas"
    with pytest.raises(DatasetError, match=said):
        read("crosstask", folder)


def test_every_flaw_of_a_span_has_its_reason_and_a_number_may_be_too_large(tmp_path):
    spans = (0, math.inf), (-1, 2), (2, 2), (3, 2), (0, 1e9), (0, 9), (9, 9.5), (0, 9.5)
    flaws = [span_flaw(start, end, 9.0) for start, end in spans]
    assert flaws[:2] == ["the times are not finite numbers", "starts before the video does"]
    assert flaws[2:5] == ["has no length", "ends before it starts", "lies past 360000 s"]
    past = "starts at or after the end of the video"
    assert flaws[5:] == [None, past, "ends after the end of the video"]
    rows = {"v": [[1, 0, 10**400, "a"], [1, 3, 4, "whole"]]}
    reading = read("htm-align", write(tmp_path / "htm_align.json", rows))
    assert reading.reasons() == {"step: the times are not finite numbers": 1}


def test_text_that_cannot_be_stored_is_rejected(tmp_path):
    halves = [[1, 1, 2, "half \ud800"], [1, 2, 1, "half \ud800"]]
    rows = {"v\ud800": [[0, 1, 2, "a"]], "ok": [*halves, [1, 3, 4, "whole"]], "": []}
    path = tmp_path / "htm_align.json"
    path.write_text(json.dumps(rows))
    reading = read("htm-align", path)
    assert [step.text for step in reading.records[0].reference] == ["whole"]
    assert reading.reasons() == {
        "video: its text is not valid Unicode": 1,
        "step: its text is not valid Unicode": 1,
        "step: ends before it starts": 1,
        "video: has no id": 1,
    }
    heard = {"segments": [{"start": 1, "end": 2, "text": "Hi."}], "language": "\ud800"}
    (tmp_path / "abc.json").write_text(json.dumps(heard))
    assert read("howto100m", tmp_path / "abc.json").records[0].transcript.language is None


# records, reference steps, their spans, narrations, rejected by reason: counted in the shared two
# thirds
COUNTS = {
    "coin": (6806, 19950, 26818, 0, {}),
    "crosstask": (1812, 13655, 13983, 0, {}),
    "youcook2": (1218, 9416, 9416, 0, {}),
    "whenact": (861, 10198, 2097, 10198, {"span: has no length": 8}),
    "hirest": (1268, 3076, 3076, 0, {"step: has no length": 12}),
}
SPLITS = {"coin": {"training": 4799, "testing": 2007}, "youcook2": {"train": 917, "val": 301}}


@pytest.fixture
def data(shared_path):
    return shared_path("data")


@pytest.mark.parametrize("name", REAL)
def test_real_annotations_are_read_and_counted(name, data, tmp_path):
    reading = read(name, REAL[name](data, tmp_path))
    steps = [step for record in reading.records for step in record.reference]
    heard = sum(len(record.transcript.sentences) for record in reading.records if record.transcript)
    spans = sum(len(step.spans) for step in steps)
    assert (len(reading.records), len(steps), spans, heard, reading.reasons()) == COUNTS[name]
    if name in SPLITS:
        assert Counter(reading.subsets.values()) == SPLITS[name]
    if name == "youcook2":  # YouTube's ids, without PDVC's "v_"
        assert {len(record.id) for record in reading.records} == {11}
    if name == "hirest":  # what is kept and what is rejected is all there is
        videos = load(data / "hirest/hirest.json.gz")
        raw = [(*step["segment"], video["duration"]) for video in videos for step in video["steps"]]
        reasons = Counter(span_flaw(*map(float, row)) for row in raw)
        assert spans == reasons[None]
        assert len(reading.rejected) == sum(reasons.values()) - spans


def test_the_real_taxonomy_is_read_from_csv(data, tmp_path):
    activities = load(data / "htstep/taxonomy.json.gz")
    rows = [step for steps in activities.values() for step in steps]
    with (tmp_path / "taxonomy.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    taxonomy = read_taxonomy(tmp_path / "taxonomy.csv")
    assert len(taxonomy) == len(rows) == 3483
    assert len({step.activity for step in taxonomy.values()}) == len(activities) == 302


def test_the_shared_dense_captions_are_read(shared):
    predictions = read_predictions(shared / "metric_cases/yc2_predictions.json")
    assert predictions.rejected == ()
    first = predictions.segments["0uaKitJaqmI"][0]
    assert first == (110.75, 136.08, "heat oil add chopped onion", None)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"


@pytest.mark.parametrize("name", DATASETS)
def test_the_page_states_every_row_as_the_table_does(name):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| `{name}` |"))
    row = DATASETS[name]
    _, description, files, *rest = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert description == row.description
    assert rest == [row.source, row.licence, row.conversion, row.rejected]
    assert files.replace("`", "") == ", ".join(row.files)
