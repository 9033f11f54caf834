"""Rolling captions are repaired as TAN's sentencified HowTo100M does it."""

import json
from pathlib import Path

import pytest

from stepline.asr import read_captions
from stepline.asr.captions.formats import Cue
from stepline.asr.captions.read import repair_rolling_captions

CASES = Path(__file__).resolve().parents[2] / ".." / "shared" / "metric_cases" / "tan_merge_linebreaks.json"


def rows(cues: list[Cue]) -> list[tuple[str, float | None, float | None]]:
    return [(cue.text, cue.start, cue.end) for cue in cues]


def test_a_line_that_the_next_cue_begins_with_goes_to_the_next() -> None:
    cues = [Cue("hello\nwe cook", 0.0, 2.0), Cue("we cook\na pie", 2.0, 4.0)]
    assert rows(repair_rolling_captions(cues)) == [("hello", 0.0, 2.0), ("we cook a pie", 2.0, 4.0)]


def test_a_cue_that_grows_into_the_next_is_merged_with_it() -> None:
    cues = [Cue("add", 0.0, 1.0), Cue("add salt", 1.0, 2.0), Cue("address", 2.0, 3.0)]
    assert rows(repair_rolling_captions(cues)) == [("add salt", 0.0, 2.0), ("address", 2.0, 3.0)]


def test_the_same_words_much_later_stay() -> None:
    cues = [Cue("stir", 0.0, 1.0), Cue("stir", 9.0, 10.0)]
    assert rows(repair_rolling_captions(cues)) == rows(cues)


def test_an_overlap_is_cut_in_its_middle_and_an_inner_cue_takes_its_seconds() -> None:
    assert rows(repair_rolling_captions([Cue("a", 0.0, 3.0), Cue("b", 2.0, 5.0)])) == [("a", 0.0, 2.5), ("b", 2.5, 5.0)]
    assert rows(repair_rolling_captions([Cue("a", 0.0, 9.0), Cue("b", 2.0, 4.0)])) == [("a", 0.0, 2.0), ("b", 2.0, 4.0)]
    assert rows(repair_rolling_captions([Cue("a", 0.0, 9.0), Cue("b", 0.0, 4.0)])) == [("a", 0.0, 9.0), ("b", 0.0, 4.0)]


@pytest.mark.skipif(not CASES.is_file(), reason="needs ../shared/metric_cases")
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_official_cases_come_out_exactly(number: int, tmp_path: Path) -> None:
    case = json.loads(CASES.read_text())[number]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"vid": case["in"]}))
    texts, starts, ends = case["out(text,start,end)"]
    found = read_captions(path).transcript.sentences
    assert [s.text for s in found] == texts
    assert [(s.span.start, s.span.end) for s in found] == list(zip(starts, ends, strict=True))
