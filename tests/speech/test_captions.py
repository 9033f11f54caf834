"""Every caption format gives the same sentences, and what is broken says so in one line.

Rolling captions are repaired as TAN's sentencified HowTo100M does it.

Whatever a caption file holds, it gives sentences that obey the rules, or a CaptionError in one
line.
"""

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stepline
from stepline.errors import CaptionError
from stepline.speech import read_captions
from stepline.speech.captions import repair_rolling_captions
from stepline.speech.shown_captions import Cue

SRT = "1\n00:00:01,000 --> 00:00:03,000\nCut the strip.\n\n2\n00:00:03,500 --> 00:00:05,000\nFold it.\n"
EXPECTED = [("Cut the strip.", 1.0, 3.0), ("Fold it.", 3.5, 5.0)]


def write(folder, content, name="talk.txt"):
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
        )
    return path


def rows(heard):
    return [
        (s.text, round(s.span.start, 3), round(s.span.end, 3)) for s in heard.transcript.sentences
    ]


def vtt(body):
    return f"WEBVTT\nKind: captions\n\nNOTE a remark\nof two lines\n\n{body}\n"


TEXTS_OF_BOTH = ["Cut the strip.", "Fold it."]
COLUMNS_OF_BOTH = {"text": TEXTS_OF_BOTH, "start": [1, 3.5], "end": [3, 5]}


def tokens(*rows):
    """The transcription of whisper.cpp: (text, start, end) of each part, in milliseconds."""
    return [{"offsets": {"from": a, "to": b}, "text": text} for text, a, b in rows]


def words(*rows):
    """Words as WhisperX and OpenAI write them: (word, start, end) of each, in seconds."""
    return [{"word": word, "start": start, "end": end} for word, start, end in rows]


def chunks(*rows):
    """Chunks as Hugging Face writes them: (text, start, end) of each, in seconds."""
    return [{"text": text, "timestamp": [start, end]} for text, start, end in rows]


def event(start, duration, *pieces):
    """An event of YouTube's json3, in milliseconds."""
    return {"tStartMs": start, "dDurationMs": duration, "segs": list(pieces)}


SPOKEN = (" Cut the strip.", 1000, 3000), (" Fold it.", 3500, 5000)
TOKENS = ("", 0, 0), (" C", 1000, 1100), ("ut", 1100, 1200), (" the", 1200, 1200)
TOKENS += (" strip", 2000, 3000), (".", 3000, 3000), (" Fold", 3500, 4000), (" it.", 4000, 5000)
LASTING = [("Cut the strip.", "1", "2"), ("Fold it.", "3.5", "1.5")]
WHOLE_TEXT = " Cut the strip. Fold it."
SEGMENT_WORDS = [
    {"word": "Cut", "start": 1.0, "end": 1.5, "score": 0.9},
    {"word": "the"},
    {"word": "strip.", "start": 2.0, "end": 3.0, "score": 0.7},
]
FORMS = {
    "srt": SRT,
    "vtt": vtt(
        "intro\n00:01.000 --> 00:03.000 align:start position:0%\n<v Anna>Cut <b>the</b> strip.</v>\n\n"
        "00:03.500 --> 00:05.000\n- Fold it."
    ),
    "csv": "start,end,text\n1.0,3.0,Cut the strip.\n3.5,5.0,Fold it.\n",
    "csv, other order": 'text,start,end\n"Cut the strip.",1.0,3.0\nFold it.,3.5,5.0\n',
    "HowTo100M": {"abc": COLUMNS_OF_BOTH},
    "one entry": COLUMNS_OF_BOTH,
    "WhisperX": {
        "segments": [
            {"start": 1.0, "end": 3.0, "text": " Cut the strip.", "words": SEGMENT_WORDS},
            {"text": "Fold it.", "words": words(("Fold", 3.5, 4), ("it.", 4, 5))},
        ]
    },
    "whisper.cpp csv": 'start,end,text\n1000,3000," Cut the strip."\n3500,5000," Fold it."\n',
    "whisper.cpp JSON": {
        "systeminfo": "AVX = 1",
        "model": {"type": "base", "multilingual": False},
        "params": {"translate": False},
        "result": {"language": "en"},
        "transcription": [row | {"tokens": []} for row in tokens(*SPOKEN)],
    },
    "whisper.cpp tokens": {"systeminfo": "", "transcription": tokens(*TOKENS)},
    "Hugging Face": {
        "text": WHOLE_TEXT,
        "chunks": chunks((" Cut the strip.", 1.0, 3.0), (" Fold it.", 3.5, 5.0)),
    },
    "Hugging Face words": {
        "text": WHOLE_TEXT,
        "chunks": chunks(
            *((" Cut", 1.0, 1.1), (" the", 1.1, 1.1), (" strip.", 2.0, 3.0)),
            *((" Fold", 3.5, 4.6), (" it.", 4.6, None)),
        ),
    },
    "youtube-transcript-api": [
        {"text": text, "start": float(start), "duration": float(seconds)}
        for text, start, seconds in LASTING
    ],
    "youtube-transcript-api, of several videos": [
        [{"text": text, "start": start, "dur": seconds} for text, start, seconds in LASTING]
    ],
    "OpenAI words": {
        "text": WHOLE_TEXT.strip(),
        "words": words(
            *(("Cut", 1.0, 1.5), ("the", 1.5, 1.7), ("strip.", 2.0, 3.0)),
            *(("Fold", 3.5, 4.0), ("it.", 4.0, 5.0)),
        ),
    },
    "Zoom": "WEBVTT\n\n1\n00:01.000 --> 00:03.000\nAnna Smith (Host): Cut the strip.\n\n"
    "2\n00:03.500 --> 00:05.000\nAnna Smith (Host): Fold it.",
    "WhisperX srt": SRT.replace("Cut", "[SPEAKER_00]: Cut").replace("Fold", "[SPEAKER_00]: Fold"),
    "json3": {
        "events": [
            {"tStartMs": 0, "dDurationMs": 9000, "id": 1},
            event(
                1000,
                2000,
                {"utf8": "Cut"},
                {"utf8": " the", "tOffsetMs": 500},
                {"utf8": " strip.", "tOffsetMs": 1000},
            ),
            {"tStartMs": 2900, "aAppend": 1, "segs": [{"utf8": "\n"}]},
            event(3500, 1500, {"utf8": "Fold it."}),
        ]
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_sentences(form, tmp_path):
    heard = read_captions(write(tmp_path, FORMS[form]))
    assert rows(heard) == EXPECTED
    assert heard.dropped == ()


OPEN_ENDS = chunks((" Cut the strip.", 1.0, None), (" Fold it now.", 3.5, None))


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        pytest.param(
            {"text": "", "chunks": OPEN_ENDS},
            [("Cut the strip.", 1.0, 3.5), ("Fold it now.", 3.5, 4.7)],
            id="an open end is the next start, and at last the time to say the words",
        ),
        pytest.param(
            [
                {"text": "Cut the strip.", "start": 1.0, "duration": 4.0},
                {"text": "Fold it.", "start": 3.0, "duration": 4.0},
            ],
            [("Cut the strip.", 1.0, 3.0), ("Fold it.", 3.0, 7.0)],
            id="a caption of YouTube ends where the next begins",
        ),
        pytest.param(
            "start,end,text\n0,4,Cut it. Now fold\n4,5,the paper.\n",
            [("Cut it.", 0.0, 2.0), ("Now fold the paper.", 2.0, 5.0)],
            id="sentences are rebuilt across cues with interpolated times",
        ),
        pytest.param(
            "start,end,text\n0,2,cut the strip\n2,4,now fold it\n",
            [("cut the strip", 0.0, 2.0), ("now fold it", 2.0, 4.0)],
            id="without punctuation a cue is a sentence",
        ),
        pytest.param(
            "start,end,text\n4,6,fold it\n1,3,cut it\n",
            [("cut it", 1.0, 3.0), ("fold it", 4.0, 6.0)],
            id="cues out of order are sorted",
        ),
    ],
)
def test_cues_become_sentences(content, sentences, tmp_path):
    assert rows(read_captions(write(tmp_path, content))) == sentences


def test_whole_numbers_are_milliseconds_only_where_seconds_leave_no_words(tmp_path):
    table = "start,end,text\n{}000,{}000,Cut the strip.\n{}000,{}000,Fold it.\n"
    heard = read_captions(write(tmp_path, table.format(1, 3, 401, 403)))
    assert rows(heard) == [("Cut the strip.", 1.0, 3.0), ("Fold it.", 401.0, 403.0)]
    assert len(heard.warnings) == 1
    assert "talk.txt: times are read as milliseconds" in heard.warnings[0]
    heard = read_captions(write(tmp_path, table.replace("000", "").format(1, 100, 120, 200)))
    assert [start for _, start, _ in rows(heard)] == [1.0, 120.0]
    assert heard.warnings == ()


def zoom(*texts):
    cues = [f"00:0{n}.000 --> 00:0{n}.900\n{text}\n" for n, text in enumerate(texts)]
    return "\n".join(["WEBVTT\n", *cues])


@pytest.mark.parametrize(
    ("texts", "spoken", "names"),
    [
        (
            [
                "Anna Smith: Cut it.",
                "Ben (he/him): Why?",
                "Anna Smith: Note: dry.\nBen (he/him): Ah.",
            ],
            ["Cut it.", "Why?", "Note: dry.", "Ah."],
            "'Anna Smith', 'Ben (he/him)'",
        ),
        (
            [
                "Dr. Müller (Host): Cut it.",
                "Fold it.",
                "Dry it.",
                "Iron it.",
                "Dr. Müller (Host): Ok.",
            ],
            ["Cut it.", "Fold it.", "Dry it.", "Iron it.", "Ok."],
            "'Dr. Müller (Host)'",
        ),
        (["🌸 Anna (she/her): A!", "🌸 Anna (she/her): B!"], ["A!", "B!"], "'🌸 Anna (she/her)'"),
        (["张三：好。", "张三：是。", "张三：好。"], ["好。", "是。", "好。"], "'张三'"),
        (["Step 1: Cut it.", "Step 2: Fold it."], ["Step 1: Cut it.", "Step 2: Fold it."], ""),
        (
            ["Cut it.", "Note: dry.", "At 10:30 stop.", "Note: Iron it."],
            ["Cut it.", "Note: dry.", "At 10:30 stop.", "Note: Iron it."],
            "",
        ),
    ],
)
def test_a_name_before_a_colon_that_repeats_is_a_speaker(texts, spoken, names, tmp_path):
    heard = read_captions(write(tmp_path, zoom(*texts)))
    assert [text for text, _, _ in rows(heard)] == spoken
    warning = f"talk.txt: names of speakers before a colon are left out: {names}"
    assert heard.warnings == ((warning,) if names else ())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_encodings_are_told_apart(encoding, tmp_path):
    text = SRT.replace("Fold it.", "\u202bCrème brûlée.\u202c")  # marks of the writing direction
    path = write(tmp_path, text.encode(encoding, errors="ignore"))
    assert rows(read_captions(path))[1][0] == "Crème brûlée."


def test_youtubes_automatic_captions_say_each_word_once_at_its_time(tmp_path):
    body = (
        "00:00:00.000 --> 00:00:02.000\n \nhello<00:00:00.500><c> and</c><00:00:01.000><c> welcome.</c>\n\n"
        "00:00:02.000 --> 00:00:02.010\nhello and welcome.\n \n\n"
        "00:00:02.010 --> 00:00:04.010\nhello and welcome.\ncut<00:00:03.000><c> &amp; fold</c>"
    )
    heard = read_captions(write(tmp_path, vtt(body)))
    assert rows(heard) == [("hello and welcome.", 0.0, 2.0), ("cut & fold", 2.01, 4.01)]
    assert [w.span.start for w in heard.transcript.sentences[0].words if w.span] == [0.0, 0.5, 1.0]


def test_words_without_times_keep_none(tmp_path):
    (first, _) = read_captions(write(tmp_path, FORMS["WhisperX"])).transcript.sentences
    assert [word.span is None for word in first.words] == [False, True, False]
    assert first.confidence == pytest.approx(0.8)


def test_sounds_are_left_out_with_their_reason(tmp_path):
    rows_of = "0,2,[Music]\n2,4,♪ la la ♪\n4,6,[Laughs] cut it (applause)\n"
    heard = read_captions(write(tmp_path, f"start,end,text\n{rows_of}"))
    assert [(d.text, d.reason) for d in heard.dropped] == [
        ("[Music]", "a sound, not speech"),
        ("♪ la la ♪", "a sound, not speech"),
    ]
    assert rows(heard) == [("cut it", 4.0, 6.0)]


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("3", "2", "it ends at 2.00 s, not after its start at 3.00 s"),
        ("nan", "2", "the caption has no time"),
        ("1", "", "the caption has no time"),
        ("1", "1e9", "its time lies past 360000 s"),
        ("-5", "-1", "it ends at -1.00 s, before the video begins"),
        ("1", "1.1", "shown for 0.10 s, and 0.2 s is too short for speech"),
    ],
)
def test_a_cue_with_a_broken_time_is_dropped_with_its_reason(start, end, reason, tmp_path):
    heard = read_captions(write(tmp_path, f"start,end,text\n{start},{end},cut it\n4,6,fold it\n"))
    assert [(d.what, d.text, d.reason) for d in heard.dropped] == [("sentence", "cut it", reason)]
    assert rows(heard) == [("fold it", 4.0, 6.0)]


def test_one_video_of_many_is_picked_by_its_id(tmp_path):
    entry = {"text": ["cut it"], "start": [1], "end": [3]}
    path = write(tmp_path, {"abc": {"text": ["no"], "start": [0], "end": [1]}, "xyz": entry})
    assert rows(read_captions(path, "xyz")) == [("cut it", 1.0, 3.0)]
    with pytest.raises(CaptionError, match="did you mean 'xyz'"):
        read_captions(path, "xyy")
    with pytest.raises(CaptionError, match="name one of its 2 videos"):
        read_captions(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no captions recognised"),
        (b"hello world", "no captions recognised"),
        (b"\x00\x01\x02\x03", "holds zero bytes"),
        (b"\xff\xfea", "damaged at byte"),
        (b"{\n]", "line 2: not valid JSON"),
        (b"[1, 2]", "unknown form"),
        (b"{}", "unknown form"),
        (b'{"a": 3}', "unknown form"),
        (b"[" * 100_000, "nested deeper than 100"),
        (b'{"segments": [' + b"9" * 5000 + b"]}", "too long a number"),
        (b'{"text": ["a"], "start": [], "end": [1]}', "equally long"),
        (b"1\n00:00:01 00:00:02\nhello", "no captions recognised"),
        (b"1\n00:00:-4,500 -> 00:00:02,000\nhello", "line 2: '00:00:-4,500 -> 00:00:02,000'"),
        (b"1\n- 00:00:01,500 --> -00:00:01,000\nhello", "line 2: .* is not a timing"),
        (b"1\n2 00:00:01,500 --> 00:00:02,000\nhello", "line 2: .* is not a timing"),
        (b"1\n00:00:01,500 -->\nhello", "line 2: '00:00:01,500 -->' is not a timing"),
        (b"1\n00.00.01,500 --> 00.00.02,000\nhello", "line 2: .* is not a timing"),
        (b"1\n00:00:01:500 => 00:00:02:000\nhello", "line 2: .* is not a timing"),
        (
            b"1\n00:00:xx,0 --> 00:00:02,0\nhello",
            "line 2: '00:00:xx,0 --> 00:00:02,0' is not a timing",
        ),
        (b"start,end,text\n1,2\n", "line 2: 2 columns"),
        (b'{"systeminfo": "", "results": {"channels": []}}', "unknown form; give YouTube json3"),
    ],
)
def test_bad_input_is_an_error_in_one_line(content, message, tmp_path):
    with pytest.raises(CaptionError, match=message) as caught:
        read_captions(write(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_captions_without_a_sentence_are_an_error_that_says_why(tmp_path):
    cue = {"text": "cut it " * 3000, "start": 1.0, "end": 9.0}
    path = write(tmp_path, {"segments": [cue]}, "talk.json")
    reason = "1 left out, the first: it has 21000 characters, a cue at most 20000: cut it into cues"
    with pytest.raises(CaptionError) as caught:
        stepline.steps(path)
    cure = "give other captions"
    assert str(caught.value) == f"{path}: holds no sentence to write steps from ({reason}); {cure}"


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    with pytest.raises(CaptionError, match="No such file"):
        read_captions(tmp_path / "none.srt")
    with pytest.raises(CaptionError, match="cannot be read"):
        read_captions(tmp_path)


def test_an_empty_webvtt_file_is_an_empty_transcript(tmp_path):
    assert read_captions(write(tmp_path, "WEBVTT\n")).transcript.sentences == ()


CASES = Path(__file__).resolve().parents[3] / "shared/metric_cases/tan_merge_linebreaks.json"


@pytest.mark.parametrize(
    ("cues", "repaired"),
    [
        (  # a line that the next cue begins with goes to the next
            [("hello\nwe cook", 0, 2), ("we cook\na pie", 2, 4)],
            [("hello", 0, 2), ("we cook a pie", 2, 4)],
        ),
        (  # a cue that grows into the next is merged with it
            [("add", 0, 1), ("add salt", 1, 2), ("address", 2, 3)],
            [("add salt", 0, 2), ("address", 2, 3)],
        ),
        ([("stir", 0, 1), ("stir", 9, 10)], [("stir", 0, 1), ("stir", 9, 10)]),
        # an overlap is cut in its middle, and an inner cue takes its seconds
        ([("a", 0, 3), ("b", 2, 5)], [("a", 0, 2.5), ("b", 2.5, 5)]),
        ([("a", 0, 9), ("b", 2, 4)], [("a", 0, 2), ("b", 2, 4)]),
        ([("a", 0, 9), ("b", 0, 4)], [("a", 0, 9), ("b", 0, 4)]),
    ],
)
def test_rolling_captions_are_repaired(cues, repaired):
    found = repair_rolling_captions([Cue(*cue) for cue in cues])
    assert [(cue.text, cue.start, cue.end) for cue in found] == repaired


@pytest.mark.skipif(not CASES.is_file(), reason="needs ../shared/metric_cases")
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_official_cases_come_out_exactly(number, tmp_path):
    case = json.loads(CASES.read_text())[number]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"vid": case["in"]}))
    texts, starts, ends = case["out(text,start,end)"]
    found = read_captions(path).transcript.sentences
    assert [s.text for s in found] == texts
    assert [(s.span.start, s.span.end) for s in found] == list(zip(starts, ends, strict=True))


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
BEGINNINGS = [b"", b"WEBVTT\n", b"{", b"\xff\xfe", b"start,end,text\n", SRT.encode()]
GOOD = st.builds(
    lambda start, text: {"start": start, "end": start + 2, "text": text},
    st.integers(0, 100),
    st.sampled_from(PHRASES),
)


def keys(**values):
    """Objects that have some of the keys."""
    return st.fixed_dictionaries({}, optional=values)


def some(values):
    return st.lists(values, max_size=5)


WORDS = some(keys(word=TEXTS, start=NUMBERS, end=NUMBERS, score=NUMBERS)) | NUMBERS
SEGMENTS = keys(text=TEXTS, start=NUMBERS, end=NUMBERS, words=WORDS)
PIECES = some(keys(utf8=TEXTS, tOffsetMs=NUMBERS)) | NUMBERS
EVENTS = keys(tStartMs=NUMBERS, dDurationMs=NUMBERS, segs=PIECES)
COLUMNS = keys(**dict.fromkeys(("text", "start", "end"), some(TEXTS | NUMBERS)))
TREES = st.one_of(
    st.fixed_dictionaries({"events": st.lists(EVENTS | NUMBERS, max_size=6)}),
    st.fixed_dictionaries({"segments": st.lists(SEGMENTS | NUMBERS | GOOD, max_size=6)}),
    st.lists(SEGMENTS | GOOD, max_size=5),
    COLUMNS,
    st.dictionaries(st.text(max_size=5), COLUMNS | NUMBERS, max_size=3),
    st.recursive(
        NUMBERS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    ),
)
LINES = st.one_of(
    TEXTS,
    st.sampled_from(
        ["WEBVTT", "", " ", "1", "NOTE x", "STYLE", "start,end,text", "1,2,cut it", '"', "{", "-->"]
    ),
    st.builds(
        lambda h, m, s, f, e: f"{h:02}:{m:02}:{s:02}.{f:03} --> 00:{e:02}:09,500 align:start",
        *(st.integers(0, 99) for _ in range(3)),
        st.integers(0, 999),
        st.integers(0, 99),
    ),
    st.builds(
        lambda s, text: f"00:00:{s:02},000 --> 00:00:{s + 1:02},500\n{text}",
        st.integers(0, 57),
        TEXTS,
    ),
    st.builds(lambda a, s: f"{a}<00:00:{s:02}.500><c> word</c>", TEXTS, st.integers(0, 70)),
)


def check(folder, content, name, seen):
    """Read the content and check every rule that a transcript must obey. seen: counts what it
    held."""
    path = folder / name
    path.write_bytes(content)
    try:
        heard = read_captions(path)
    except CaptionError as error:
        assert str(error).startswith(f"{path}")
        assert "; " in str(error)  # then the cure
        seen["refused"] += 1
        return
    for sentence in heard.transcript.sentences:
        seen["sentences"] += 1
        assert sentence.text == " ".join(sentence.text.split()) != ""
        assert 0.0 <= sentence.span.start < sentence.span.end < math.inf
    assert all(item.reason and item.what == "sentence" for item in heard.dropped)
    assert read_captions(path) == heard


NAMES = st.sampled_from(["a.srt", "a.vtt", "a.json", "a.csv", "a"])


def properties(count, seen):
    """Return the properties, each run on `count` cases. seen: counts what these held."""
    rules = settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=QUIET,
        derandomize=True,
        database=None,
    )

    @rules
    @given(content=st.binary(max_size=200), begin=st.sampled_from(BEGINNINGS))
    def any_bytes(folder, content, begin):
        for name in ("a.srt", "a.csv"):
            check(folder, begin + content, name, seen)

    @rules
    @given(lines=st.lists(LINES, max_size=14), name=NAMES)
    def any_lines(folder, lines, name):
        check(folder, "\n".join(lines).encode("utf-8", "surrogatepass"), name, seen)

    @rules
    @given(tree=TREES)
    def any_tree(folder, tree):
        check(folder, json.dumps(tree).encode(), "a.json", seen)

    @rules
    @given(
        rows=st.lists(
            st.tuples(NUMBERS, NUMBERS, TEXTS) | GOOD.map(lambda cue: tuple(cue.values())),
            max_size=8,
        )
    )
    def any_table(folder, rows):
        body = "\n".join(f"{start},{end},{json.dumps(text)}" for start, end, text in rows)
        check(folder, f"start,end,text\n{body}".encode(), "a.csv", seen)

    @rules
    @given(starts=st.lists(st.integers(0, 3000), min_size=1, max_size=8, unique=True))
    def a_round_trip(folder, starts):
        cues = [
            (start, start + 1, f"word{index} is said.")
            for index, start in enumerate(sorted(starts))
        ]

        def clock(s):
            return f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02},000"

        body = "\n".join(
            f"{i}\n{clock(a)} --> {clock(b)}\n{text}\n" for i, (a, b, text) in enumerate(cues)
        )
        (folder / "b.srt").write_text(body)
        found = read_captions(folder / "b.srt").transcript.sentences
        assert [(s.span.start, s.span.end, s.text) for s in found] == cues
        seen["sentences"] += len(cues)

    return {f.__name__: f for f in (any_bytes, any_lines, any_tree, any_table, a_round_trip)}


PROPERTIES = list(properties(1, Counter()))


def holds(name, count, folder):
    """Run a property; its cases must have reached the rules of sentences, and, where they may be
    broken, of errors."""
    seen = Counter()
    properties(count, seen)[name](folder)
    assert seen["sentences"] >= count // 20
    if name != "any_table":  # which is refused now and then
        assert (seen["refused"] > 0) == (name != "a_round_trip")


@pytest.mark.parametrize("name", PROPERTIES)
def test_caption_properties_hold_for_a_few_random_files(name, tmp_path):
    holds(name, FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROPERTIES)
def test_caption_properties_hold_for_many_random_files(name, tmp_path):
    holds(name, MANY, tmp_path)
