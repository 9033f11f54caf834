"""The JSON Schemas hold for what is written, and refuse what is not."""

import json
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jsonschema", reason="needs jsonschema")

from output_schemas import check, schema_of, validator

from stepline import records
from stepline.cli.schema import SCHEMA_MAKERS, json_schema
from stepline.compare import TaskComparison
from stepline.live.events import LiveEvent
from stepline.pipeline.request import StepsSettings
from stepline.settings import load_settings
from stepline.storage import to_json, write_record

GOLDEN = Path(__file__).parent / "golden" / "expected"


@st.composite
def spans(draw):
    start = draw(st.floats(0, 1000))
    return records.Span(start, start + draw(st.floats(0.001, 1000)))


TEXTS = st.text(min_size=1, max_size=20)
PROBABILITIES = st.floats(0, 1)
AMOUNTS = st.floats(0, 1e6).map(lambda low: records.Amount(low=low, high=low + 1, unit=None))
THINGS = st.builds(
    records.Material,
    name=TEXTS,
    amounts=st.tuples(AMOUNTS),
    at=st.floats(0, 100),
    sources=st.just((0,)),
)
VERDICTS = st.one_of(
    st.sampled_from([None, "placed", "said_only", "not_found"]).map(lambda s: {"status": s}),
    st.sampled_from(get_args(records.Basis)).map(lambda basis: {"status": "seen", "basis": basis}),
    TEXTS.map(lambda text: {"status": "placed", "doubt": text}),
)
STEPS = st.builds(
    lambda verdict, **fields: records.Step(**verdict, **fields),
    verdict=VERDICTS,
    id=TEXTS,
    text=TEXTS,
    kind=st.sampled_from(["do", "avoid"]),
    spans=st.lists(spans(), max_size=3).map(tuple),
    at=st.none() | st.floats(0, 1000),
    said=st.none() | spans(),
    score=st.none() | PROBABILITIES,
    sources=st.just((0,)),
    seen=st.lists(TEXTS, max_size=2).map(tuple),
)
SENTENCES = st.builds(
    records.Sentence,
    text=st.text(max_size=20),
    span=spans(),
    words=st.builds(records.Word, text=TEXTS, span=st.none() | spans()).map(lambda word: (word,)),
    confidence=st.none() | PROBABILITIES,
)
RECORDS = st.builds(
    records.Record,
    id=TEXTS,
    video=st.builds(
        records.Video,
        id=TEXTS,
        duration=st.none() | st.floats(0.1, 1000),
        origin=st.none() | st.builds(records.LinkOrigin, url=TEXTS),
        author=st.none() | TEXTS,
        publication_date=st.sampled_from([None, "2024-05-06"]),
    ),
    transcript=st.builds(records.Transcript, sentences=SENTENCES.map(lambda sentence: (sentence,))),
    steps=st.lists(STEPS, max_size=3).map(tuple),
    materials=st.lists(THINGS, max_size=2).map(tuple),
    yields=st.lists(THINGS, max_size=1).map(tuple),
    times=st.just(()) | st.just((records.WorkTime(kind="total", low=60.0, high=90.0, at=1.0),)),
    reference=st.lists(STEPS, max_size=1).map(tuple),
    dropped=st.builds(records.Rejected, st.just("step"), TEXTS, text=TEXTS).map(lambda row: (row,)),
    settings=st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS, max_size=3),
)


@given(RECORDS)
@settings(max_examples=60)
def test_any_record_follows_its_schema(record):
    check("record", json.loads(to_json(record)))


def golden_files():
    """The records and comparisons among the files that the golden commands wrote."""
    paths = []
    for path in sorted(GOLDEN.rglob("*.json")):
        if schema_of(json.loads(path.read_bytes())):
            paths.append(path)
    return paths


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: str(path.relative_to(GOLDEN)))
def test_what_the_golden_commands_and_the_demo_wrote_follows_its_schema(path):
    tree = json.loads(path.read_bytes())
    check(schema_of(tree), tree)


def test_the_demo_is_among_the_golden_files():
    assert GOLDEN / "demo" / "demo.json" in golden_files()


def test_a_live_run_writes_events_by_the_schema(small_video, stepline, tmp_path):
    texts = tmp_path / "lines.txt"
    texts.write_text("Slice the lemons\n")
    run = ("live", small_video, "--speed", "100", "--backbone", "none", "--texts", texts)
    result = stepline(*run, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert {"started", "step_said", "finished"} <= {event["event"] for event in events}
    for event in events:
        check("events", event)


def test_every_field_of_an_event_follows_the_schema():
    word = records.Word(text="Slice", span=records.Span(0.0, 0.5), confidence=0.9)
    said = records.Span(0.0, 1.0)
    step = {"step": "1", "said": said, "sources": (0,), "spans": (records.Span(2.0, 3.0),)}
    verdict = {"status": "placed", "doubt": "a still", "score": 0.5}
    sentence = records.Sentence(text="Slice it.", span=said, words=(word,))
    event = LiveEvent(event="step_ended", number=3, at=4.0, sentence=sentence, **step, **verdict)
    check("events", event.model_dump(mode="json"))


def test_a_comparison_follows_its_schema(stepline, tmp_path):
    for id, verb in (("a", "whisk"), ("b", "beat"), ("c", "whisk")):
        texts = (f"{verb} two eggs with 1 cup of milk", "pour the batter into the hot pan")
        steps = [
            records.Step(
                id=str(n), text=text, spans=(records.Span(n * 10.0, n * 10 + 5.0),), status="placed"
            )
            for n, text in enumerate(texts)
        ]
        record = records.Record(
            id=id, video=records.Video(id=id, title="Pancakes"), steps=tuple(steps)
        )
        write_record(record, tmp_path / "records" / f"{id}.json")
    result = stepline("compare", tmp_path / "records", "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    tree = json.loads(result.stdout)
    assert TaskComparison.model_validate_json(result.stdout).steps
    check("comparison", tree)


def test_settings_of_every_kind_follow_the_schema(tmp_path):
    check("settings", StepsSettings().model_dump(mode="json"))
    toml = tmp_path / "run.toml"
    toml.write_text('[asr]\nbeam = 1\nlanguage = "none"\n[nasva.ground]\nwindow = 600\n')
    load_settings(StepsSettings, toml, [])
    check("settings", tomllib.loads(toml.read_text()))


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("settings", {"asr": {"beams": 1}}),
        ("settings", {"asr": {"beam": 0}}),
        ("events", {"event": "heard", "number": 0}),
        ("events", {"event": "eaten", "number": 0, "at": 1.0, "settled": 0.0}),
        ("record", {"version": 2}),
        ("comparison", {"version": 1}),
    ],
)
def test_what_is_invalid_is_refused(name, tree):
    assert not validator(name).is_valid(tree)


@pytest.mark.parametrize("field", ["start", "spans", "status", "text", "kind"])
def test_a_record_whose_step_lacks_a_field_is_refused(field):
    record = records.Record(
        id="r", video=records.Video(id="v"), steps=(records.Step(id="1", text="cut"),)
    )
    tree = json.loads(to_json(record))
    check("record", tree)
    del tree["steps"][0][field]
    assert not validator("record").is_valid(tree)


def properties(schema):
    for definition in (schema, *schema.get("$defs", {}).values()):
        yield from definition.get("properties", {}).items()


@pytest.mark.parametrize("name", SCHEMA_MAKERS)
def test_every_field_has_a_meaning(name):
    for field, entry in properties(json_schema(name)):
        assert entry.get("description") or "$ref" in entry, field


def test_the_meaning_is_the_codes_own():
    step = json_schema("record")["$defs"]["Step"]["properties"]
    assert step["at"]["description"] == "the most likely second"
    beam = json_schema("settings")["$defs"]["AsrSettings"]["properties"]["beam"]
    assert beam["description"].startswith("hypotheses of beam search. ")
    assert (beam["default"], beam["maximum"]) == (5, 20)


def test_the_command_writes_a_file_of_each_or_prints_one(stepline, tmp_path):
    result = stepline("schema", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"{name}.schema.json" for name in SCHEMA_MAKERS}
    printed = stepline("schema", "record")
    assert printed.stdout == (tmp_path / "record.schema.json").read_text()
    assert json.loads(printed.stdout)["$id"] == "urn:stepline:record:1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "several schemas need a folder; name it with --out"),
        (("record", "events"), "several schemas need a folder"),
        (("recrod",), "'recrod': no schema has that name; known: record, events, settings"),
    ],
)
def test_a_wrong_call_says_the_cure(arguments, message, stepline):
    result = stepline("schema", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_an_unknown_name_writes_nothing(stepline, tmp_path):
    result = stepline("schema", "record", "x", "--out", tmp_path)
    assert (result.exit_code, "'x': no schema" in result.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
