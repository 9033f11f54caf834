"""Whatever a caption file holds, it gives sentences that obey the rules, or a CaptionError in one line."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepline.asr import read_captions
from stepline.errors import CaptionError

MANY = 2_500  # cases a property behind `slow`; five properties make 12,500
FEW = 60
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-10, 10_000),
    st.none(),
    st.booleans(),
    st.text(max_size=5),
)
PHRASES = ["[Music]", "cut it.", "a\nb", "<c>", "&amp;", "3.5", "--> 1", "♪"]
TEXTS = st.one_of(st.text(max_size=30), st.sampled_from(PHRASES))
BEGINNINGS = [b"", b"WEBVTT\n", b"{", b"\xff\xfe", b"start,end,text\n"]
WORDS = st.fixed_dictionaries({}, optional={"word": TEXTS, "start": NUMBERS, "end": NUMBERS, "score": NUMBERS})
SEGMENTS = st.fixed_dictionaries(
    {}, optional={"text": TEXTS, "start": NUMBERS, "end": NUMBERS, "words": st.lists(WORDS, max_size=5) | NUMBERS}
)
PIECES = st.fixed_dictionaries({}, optional={"utf8": TEXTS, "tOffsetMs": NUMBERS})
EVENTS = st.fixed_dictionaries(
    {}, optional={"tStartMs": NUMBERS, "dDurationMs": NUMBERS, "segs": st.lists(PIECES, max_size=5) | NUMBERS}
)
COLUMNS = st.fixed_dictionaries(
    {}, optional={key: st.lists(TEXTS | NUMBERS, max_size=5) for key in ("text", "start", "end")}
)
TREES = st.one_of(
    st.fixed_dictionaries({"events": st.lists(EVENTS | NUMBERS, max_size=6)}),
    st.fixed_dictionaries({"segments": st.lists(SEGMENTS | NUMBERS, max_size=6)}),
    st.lists(SEGMENTS, max_size=5),
    COLUMNS,
    st.dictionaries(st.text(max_size=5), COLUMNS | NUMBERS, max_size=3),
    st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)),
)
LINES = st.one_of(
    TEXTS,
    st.sampled_from(["WEBVTT", "", " ", "1", "NOTE x", "STYLE", "start,end,text", "1,2,cut it", '"', "{", "-->"]),
    st.builds(
        lambda h, m, s, f, e: f"{h:02}:{m:02}:{s:02}.{f:03} --> 00:{e:02}:09,500 align:start",
        *(st.integers(0, 99) for _ in range(3)),
        st.integers(0, 999),
        st.integers(0, 99),
    ),
    st.builds(lambda a, s: f"{a}<00:00:{s:02}.500><c> word</c>", TEXTS, st.integers(0, 70)),
)


def check(folder: Path, content: bytes, name: str) -> None:
    """Read the content and check every rule that a transcript must obey."""
    path = folder / name
    path.write_bytes(content)
    try:
        heard = read_captions(path)
    except CaptionError as error:
        assert "\n" not in str(error)
        return
    for sentence in heard.transcript.sentences:
        assert sentence.text == " ".join(sentence.text.split()) != ""
        assert 0.0 <= sentence.span.start < sentence.span.end < math.inf
    assert all(item.reason and item.what == "sentence" for item in heard.dropped)
    assert read_captions(path) == heard


NAMES = st.sampled_from(["a.srt", "a.vtt", "a.json", "a.csv", "a"])


def properties(count: int) -> dict[str, object]:
    """Return the properties, each run on `count` cases."""
    rules = settings(max_examples=count, deadline=None, suppress_health_check=QUIET, derandomize=True, database=None)

    @rules
    @given(content=st.binary(max_size=200), begin=st.sampled_from(BEGINNINGS))
    def any_bytes(folder: Path, content: bytes, begin: bytes) -> None:
        for name in ("a.srt", "a.csv"):
            check(folder, begin + content, name)

    @rules
    @given(lines=st.lists(LINES, max_size=14), name=NAMES)
    def any_lines(folder: Path, lines: list[str], name: str) -> None:
        check(folder, "\n".join(lines).encode("utf-8", "surrogatepass"), name)

    @rules
    @given(tree=TREES)
    def any_tree(folder: Path, tree: object) -> None:
        check(folder, json.dumps(tree).encode(), "a.json")

    @rules
    @given(rows=st.lists(st.tuples(NUMBERS, NUMBERS, TEXTS), max_size=8))
    def any_table(folder: Path, rows: list[tuple[object, object, str]]) -> None:
        body = "\n".join(f"{start},{end},{json.dumps(text)}" for start, end, text in rows)
        check(folder, f"start,end,text\n{body}".encode(), "a.csv")

    @rules
    @given(starts=st.lists(st.integers(0, 3000), min_size=1, max_size=8, unique=True))
    def a_round_trip(folder: Path, starts: list[int]) -> None:
        cues = [(start, start + 1, f"word{index} is said.") for index, start in enumerate(sorted(starts))]

        def clock(s: int) -> str:
            return f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02},000"

        body = "\n".join(f"{i}\n{clock(a)} --> {clock(b)}\n{text}\n" for i, (a, b, text) in enumerate(cues))
        (folder / "b.srt").write_text(body)
        found = read_captions(folder / "b.srt").transcript.sentences
        assert [(s.span.start, s.span.end, s.text) for s in found] == cues

    return {f.__name__: f for f in (any_bytes, any_lines, any_tree, any_table, a_round_trip)}


PROPERTIES = list(properties(1))


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_few_cases_hold(name: str, tmp_path: Path) -> None:
    properties(FEW)[name](tmp_path)  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROPERTIES)
def test_many_cases_hold(name: str, tmp_path: Path) -> None:
    properties(MANY)[name](tmp_path)  # type: ignore[operator]
