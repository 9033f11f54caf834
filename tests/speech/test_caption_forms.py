"""Caption files as they come: rolling lines, faults of their writers, other forms and encodings.

Every word arrives once, in order and at its time, or is listed as left out.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepline.errors import CaptionError
from stepline.speech import AsrSettings, read_captions


def read(folder, text, name="talk.srt"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_captions(path)


def lines_of(heard):
    return [(round(s.span.start, 2), s.text) for s in heard.transcript.sentences]


def words_of(heard):
    words = []
    for sentence in heard.transcript.sentences:
        for word in sentence.words:
            words.append((word.text, round(word.span.start, 2)))
    return words


def clock(second, mark=","):
    milliseconds = round(second * 1000)
    whole = milliseconds // 1000
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{mark}{milliseconds % 1000:03}"


def srt(*cues):
    blocks = []
    for number, (start, end, text) in enumerate(cues, 1):
        blocks.append(f"{number}\n{clock(start)} --> {clock(end)}\n{text}\n")
    return "\n".join(blocks)


def vtt(*cues):
    blocks = ["WEBVTT\n"]
    for start, end, text in cues:
        blocks.append(f"{clock(start, '.')} --> {clock(end, '.')}\n{text}\n")
    return "\n".join(blocks)


ROLLING = (
    (1, 3, " \ncut the strip"),
    (3, 3.01, "cut the strip\n "),
    (3.01, 6, "cut the strip\nfold it twice"),
    (6, 6.01, "fold it twice\n "),
    (6.01, 9, "fold it twice\npress it down"),
)
ROLLING_LINES = [(1, "cut the strip"), (3.01, "fold it twice"), (6.01, "press it down")]
THREE = (1, 3, "a b"), (3, 5, "a b\nc d"), (5, 7, "a b\nc d\ne f"), (7, 9, "c d\ne f\ng h")


@pytest.mark.parametrize(
    ("form", "cues", "lines"),
    [
        (srt, ROLLING, ROLLING_LINES),
        (vtt, ROLLING, ROLLING_LINES),
        (srt, THREE, [(1, "a b"), (3, "c d"), (5, "e f"), (7, "g h")]),
        # first for an instant
        (srt, [(1, 1.05, "cut the strip"), (1.05, 4, "cut the strip")], [(1, "cut the strip")]),
    ],
)
def test_a_rolling_line_belongs_where_it_first_appears(form, cues, lines, tmp_path):
    heard = read(tmp_path, form(*cues), f"talk.{form.__name__}")
    assert (lines_of(heard), heard.dropped) == (lines, ())
    assert len(heard.warnings) == (len(lines) > 1)  # few words without a full stop


@pytest.mark.parametrize(
    ("cues", "words"),
    [
        (  # a line gets its words later
            [(1, 2, "cut"), (2, 3, "cut the"), (3, 5, "cut the strip")],
            [("cut", 1), ("the", 2), ("strip", 3)],
        ),
        (  # tags of colours over two lines
            [
                (1, 2, "<c.colorE5E5E5>cut</c><c.colorCCCCCC><00:00:01.400><c> it</c></c>"),
                (2, 3, "<c.colorE5E5E5>cut</c><c.colorCCCCCC> it\n</c>"),
                (
                    3,
                    5,
                    "<c.colorE5E5E5>cut</c><c.colorCCCCCC> it</c>\nfold<00:00:03.500><c> it</c>",
                ),
            ],
            [("cut", 1), ("it", 1.4), ("fold", 3), ("it", 3.5)],
        ),
        (  # a sound of two words
            [
                (
                    *(1, 3),
                    "[soft music]<00:00:01.200><c> cut</c><00:00:02.700><c> it [ __ ]</c>"
                    "<00:00:02.900><c> now</c>",
                )
            ],
            [("cut", 1.2), ("it", 2.7), ("now", 2.9)],
        ),
    ],
)
def test_each_word_comes_once_at_its_own_time(cues, words, tmp_path):
    assert words_of(read(tmp_path, vtt(*cues), "talk.vtt")) == words


def test_text_behind_an_empty_line_belongs_to_its_cue(tmp_path):
    text = srt((1, 4, "Cut the strip.\n\nFold it."), (6, 8, "Count to\n\n10."))
    assert lines_of(read(tmp_path, text))[:2] == [(1, "Cut the strip."), (2.8, "Fold it.")]
    vtt_text = vtt((1, 4, "Cut the strip.\n\nFold it."), (6, 8, "Press."))
    heard = read(tmp_path, vtt_text, "talk.vtt")
    assert [text for _, text in lines_of(heard)] == ["Cut the strip.", "Fold it.", "Press."]


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        (["count to\n10", "then to\n\n20", "stop"], ["count to 10", "then to 20", "stop"]),
        (["Go to File --> Export.", "Open a --> b."], ["Go to File --> Export.", "Open a --> b."]),
        (["Open from\n9:30 - 11:00\nand 2:15, 3:30."], ["Open from 9:30 - 11:00 and 2:15, 3:30."]),
        (["Press <Enter> if <i>a</i> < b."], ["Press <Enter> if a < b."]),
    ],
)
def test_numbers_arrows_clocks_and_unknown_tags_in_the_text_are_words(shown, texts, tmp_path):
    heard = read(tmp_path, srt(*((2 * n + 1, 2 * n + 3, text) for n, text in enumerate(shown))))
    assert lines_of(heard) == [(2 * n + 1, text) for n, text in enumerate(texts)]


@pytest.mark.parametrize(
    "timing",
    [
        "00:00:03,500 -> 00:00:05,000",
        "00:00:03,500 --> 00:00:05,000",
        "00:00:03,500 —> 00:00:05,000",
        "00:00:03,500 → 00:00:05,000",
        "00:00:03,500 => 00:00:05,000",
        "00:00:03,500 -- > 00:00:05,000",
        "00:00:03,500 --&gt; 00:00:05,000",
        "00:00:03,500 – 00:00:05,000",
        "00:00:03,500-00:00:05,000",
        "00: 00: 03,500 -> 00: 00: 05,000",
        "00 : 00 : 03, 500->00 : 00 : 05, 000",
        "00：00：03，500 －＞ 00：00：05，000",
        "0:03.5 -> 0:05",
    ],
)
@pytest.mark.parametrize("others", ["00:00:01,000 --> 00:00:03,000", "0:01,0 -> 0:03,0"])
def test_two_clocks_with_any_arrow_are_a_timing(timing, others, tmp_path):
    heard = read(tmp_path, f"1\n{others}\nCut the strip.\n\n2\n{timing}\nFold it.\n")
    spans = [(line.text, line.span.start, line.span.end) for line in heard.transcript.sentences]
    assert spans == [("Cut the strip.", 1, 3), ("Fold it.", 3.5, 5)]


def test_a_cue_of_negative_times_is_dropped_with_its_reason(tmp_path):
    text = srt((1, 3, "Cut it.")) + "\n9\n-00:00:04,500 --> -00:00:02,000\nFold it.\n"
    text += "\n10\n-00:00:00,500 --> 00:00:01,000\nLook here.\n"
    heard = read(tmp_path, text)
    assert lines_of(heard) == [(0, "Look here."), (1, "Cut it.")]
    assert [(row.text, row.reason) for row in heard.dropped] == [
        ("Fold it.", "it ends at -2.00 s, before the video begins")
    ]


def test_names_of_cues_are_no_words_without_empty_lines_either(tmp_path):
    cues = ["00:01.000 --> 00:03.000", "Cut it.", "00:03.000 --> 00:05.000", "Fold", "the strip."]
    first, cut, second, *fold = cues
    named = "\n".join(["WEBVTT", "", "intro", first, cut, "the fold", second, *fold])
    heard = read(tmp_path, named, "talk.vtt")
    assert lines_of(heard) == [(1, "Cut it."), (3, "Fold the strip.")]
    assert [row.text for row in heard.dropped] == ["the fold"]
    # Without a name above the first cue, two lines are words.
    unnamed = "\n".join(["WEBVTT", "", "00:00.000 --> 00:01.000", *fold, first, cut])
    assert lines_of(read(tmp_path, unnamed, "talk.vtt"))[0] == (0, "Fold the strip.")


def test_text_outside_a_cue_is_listed(tmp_path):
    heard = read(tmp_path, "Made by Anna\nand Bert\n\n" + srt((1, 3, "Cut it.")))
    assert [(d.text, d.reason[:24]) for d in heard.dropped] == [
        ("Made by Anna and Bert", "it is outside of every c")
    ]
    text = vtt((1, 3, "Cut it.")).replace("WEBVTT\n", "WEBVTT\n\nMade by Anna\n\nNOTE by Bert\n", 1)
    heard = read(tmp_path, text, "talk.vtt")
    assert [d.text for d in heard.dropped] == ["Made by Anna"]
    assert "'by Bert'" in heard.warnings[0]


def test_joined_segments_of_hls_have_their_own_times(tmp_path):
    def segment(ticks, cue):
        line = f"WEBVTT\nX-TIMESTAMP-MAP=LOCAL:00:00:00.000,MPEGTS:{ticks % 2**33}\n"
        return vtt(cue).replace("WEBVTT\n", line, 1)

    near_wrap = 2**33 - 90_000
    cues = ((1, 3, "Cut it."), (1, 3, "Fold<00:00:02.000><c> it.</c>"))
    text = segment(near_wrap, cues[0]) + segment(near_wrap + 900_000, cues[1])
    heard = read(tmp_path, text, "talk.vtt")
    assert words_of(heard) == [("Cut", 1), ("it.", 2), ("Fold", 11), ("it.", 12)]


def test_a_cue_that_two_segments_hold_comes_once(tmp_path):
    header = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\n"
    first, second = vtt((1, 3, "Cut it."), (3, 6, "Fold it.")), vtt((3, 6, "Fold it."))
    text = (first + second).replace("WEBVTT\n", header)
    heard = read(tmp_path, text, "talk.vtt")
    assert lines_of(heard) == [(1, "Cut it."), (3, "Fold it.")]


@pytest.mark.parametrize(
    "title", [r"{\an8}How to fold", r"{\a6}How to fold", r"<i>{\pos(100,20)}How to fold</i>"]
)
def test_a_title_on_the_picture_is_not_speech(title, tmp_path):
    heard = read(tmp_path, srt((1, 3, "Cut the strip,"), (2, 4, title), (3, 5, "then fold it.")))
    assert [text for _, text in lines_of(heard)] == ["Cut the strip, then fold it."]
    assert [(d.text, "title" in d.reason) for d in heard.dropped] == [("How to fold", True)]


def test_a_title_of_webvtt_is_not_speech(tmp_path):
    text = vtt((1, 3, "Cut it."), (2, 4, "How to fold"), (4, 6, "Fold it."))
    text = text.replace("00:00:04.000\nHow", "00:00:04.000 line:5%\nHow")
    text = text.replace("00:00:03.000\n", "00:00:03.000 line:85% align:start\n")
    heard = read(tmp_path, text, "talk.vtt")
    assert [text for _, text in lines_of(heard)] == ["Cut it.", "Fold it."]
    assert [d.text for d in heard.dropped] == ["How to fold"]


def test_where_most_captions_are_on_top_they_are_speech(tmp_path):
    heard = read(tmp_path, srt((1, 3, r"{\an8}Cut it."), (3, 5, r"{\an8}Fold it."), (5, 7, "Go.")))
    assert len(heard.transcript.sentences) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Add sugar [the brown one] now", "Add sugar [the brown one] now"),
        ("Fold it (the long edge) twice", "Fold it (the long edge) twice"),
        ("[door creaks] Fold it (oil sizzling)", "Fold it"),
        ("[Música] Fold it [APPLAUSE]", "Fold it"),
        ("（拍手）Fold it 【音楽】", "Fold it"),
        ("(crack the eggs) and whisk", "(crack the eggs) and whisk"),
    ],
)
def test_brackets_are_words_unless_they_hold_a_sound(text, words, tmp_path):
    assert lines_of(read(tmp_path, srt((1, 3, text)))) == [(1, words)]


def test_sbv_is_read(tmp_path):
    text = "0:00:01.000,0:00:03.000\nCut the strip.\n\n0:01:03.500,0:01:05.000\nFold it\ntwice.\n"
    heard = read(tmp_path, text, "talk.sbv")
    assert lines_of(heard) == [(1, "Cut the strip."), (63.5, "Fold it twice.")]


def test_ttml_is_refused_with_the_program_that_converts_it(tmp_path):
    text = '<tt><body><div><p begin="1s" end="3s">Cut it.</p></div></body></tt>'
    with pytest.raises(CaptionError, match="ttconv"):
        read(tmp_path, text, "talk.ttml")


ENCODED = {
    "cp1251": "Охладите ожог под холодной проточной водой.",
    "koi8_r": "Охладите ожог под холодной проточной водой.",
    "cp1253": "Διπλώστε το χαρτί στη μέση.",
    "cp1250": "Złóż papier na pół, potem dociśnij brzeg.",
    "cp1254": "Kağıdı ikiye katlayın ve kenarına bastırın.",
    "gb18030": "先把纸对折，然后用拇指压平边缘。",
    "big5": "先把紙對折，然後用拇指壓平邊緣。",
    "cp949": "먼저 종이를 반으로 접으세요.",
    "cp932": "まず紙を半分に折ります。",
    "cp1252": "Pliez d’abord le papier là où c’est marqué, même à l’œil.",
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_an_encoding_is_guessed_with_a_warning(encoding, tmp_path):
    heard = read(tmp_path, srt((1, 5, ENCODED[encoding])).encode(encoding))
    assert "".join(s.text for s in heard.transcript.sentences) == ENCODED[encoding]
    (warning,) = heard.warnings
    assert "--encoding" in warning


def test_a_named_encoding_is_taken(tmp_path):
    path = tmp_path / "talk.srt"
    path.write_bytes(srt((1, 5, "Соль")).encode("koi8_r"))
    heard = read_captions(path, settings=AsrSettings(encoding="koi8_r"))
    assert (lines_of(heard), heard.warnings) == ([(1, "Соль")], ())
    with pytest.raises(CaptionError, match="name one such as cp1251"):
        read_captions(path, settings=AsrSettings(encoding="klingon"))
    with pytest.raises(CaptionError, match="save it as UTF-8"):
        read_captions(path, settings=AsrSettings(encoding="ascii"))


def test_one_damaged_byte_makes_no_other_encoding(tmp_path):
    text = srt((1, 5, "Охладите ожог под водой."), (6, 9, "Накройте ожог.")).encode()
    heard = read(tmp_path, text[:-3])
    assert lines_of(heard)[0] == (1, "Охладите ожог под водой.")
    assert "damaged at byte" in heard.warnings[0]


GAP = st.sampled_from([0.0, 0.3, 2.0])
LINES = st.lists(st.tuples(GAP, st.integers(1, 4)), min_size=1, max_size=8)


def made_lines(plan):
    """Return lines with their seconds: each word is there once."""
    lines = []
    second = 1.0
    count = 0
    for gap, size in plan:
        second = round(second + gap, 3)
        words = [f"word{count + number}" for number in range(size)]
        count += size
        lines.append((second, second + 2, words))
        second += 2
    return lines


def rolled(lines, height):
    """Return cues that show each line with those before it, as far as they touch."""
    cues = []
    shown = []
    last = 0.0
    for start, end, words in lines:
        if start - last > 0.5:
            shown = []
        shown = [*shown, " ".join(words)][-height:]
        if len(shown) > 1:
            cues.append((start, start + 0.01, "\n".join(shown[:-1])))
            start += 0.01
        cues.append((start, end, "\n".join(shown)))
        last = end
    return cues


def timed_words(start, end, words):
    step = (end - start) / len(words)
    text = words[0]
    for number, word in enumerate(words[1:], 1):
        text += f"<{clock(start + number * step, '.')}><c> {word}</c>"
    return text


def sbv(*cues):
    blocks = [f"{clock(start, '.')},{clock(end, '.')}\n{text}\n" for start, end, text in cues]
    return "\n".join(blocks)


FORMS = {"talk.srt": srt, "talk.vtt": vtt, "talk.sbv": sbv}
RULES = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def expected_words(lines):
    expected = []
    for start, end, words in lines:
        step = (end - start) / len(words)
        expected += [(word, start + number * step) for number, word in enumerate(words)]
    return expected


def assert_words(heard, lines):
    found, expected = words_of(heard), expected_words(lines)
    assert [word for word, _ in found] == [word for word, _ in expected]
    for (_, second), (_, truth) in zip(found, expected, strict=True):
        assert second == pytest.approx(truth, abs=0.05)
    assert heard.dropped == ()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("height", [1, 2, 3])
@RULES
@given(plan=LINES)
def test_every_word_arrives_once_at_its_time(name, height, tmp_path, plan):
    lines = made_lines(plan)
    assert_words(read(tmp_path, FORMS[name](*rolled(lines, height)), name), lines)


@RULES
@given(plan=LINES)
def test_every_timed_word_arrives_once_at_its_time(tmp_path, plan):
    lines = made_lines([(0.0, 2), *plan])
    cues = []
    before = ""
    for start, end, words in lines:
        cues.append((start, end, f"{before}\n{timed_words(start, end, words)}".lstrip("\n")))
        before = " ".join(words)
        cues.append((end - 0.01, end, before))
    assert_words(read(tmp_path, vtt(*cues), "talk.vtt"), lines)


PARTS = st.lists(
    st.sampled_from(["cue", "title", "outside", "blank", "sound", "arrow"]), min_size=1, max_size=8
)


@pytest.mark.parametrize("name", ["talk.srt", "talk.vtt"])
@RULES
@given(parts=PARTS)
def test_no_word_vanishes(name, tmp_path, parts):
    mark = "," if name == "talk.srt" else "."
    blocks = ["WEBVTT\n"] if name == "talk.vtt" else []
    blocks += ["before0 any1 cue2\n"] if parts[0] == "outside" else []
    words = ["before0", "any1", "cue2"] if parts[0] == "outside" else []
    for number, part in enumerate(parts):
        first, second = f"first{number}", f"second{number}"
        words += [first, second]
        texts = {
            "title": f"{{\\an8}}{first} {second}",
            "blank": f"{first}\n\n{second}\n",
            "sound": f"[{first} music {second}]",
            "arrow": f"{first} --> {second}",
        }
        timing = f"{clock(3 * number, mark)} --> {clock(3 * number + 2, mark)}"
        count = [str(number + 1)] if name == "talk.srt" else []
        blocks.append("\n".join([*count, timing, texts.get(part, f"{first} {second}"), ""]))
    heard = read(tmp_path, "\n".join(blocks), name)
    texts_found = [s.text for s in heard.transcript.sentences] + [d.text for d in heard.dropped]
    found = " ".join(texts_found).replace("[", " ").replace("]", " ").split()
    found = [word for word in found if word not in ("-->", "music")]
    assert sorted(found) == sorted(words)


@pytest.fixture
def wild(shared_path):
    """The folder of files that others' reports describe."""
    return shared_path("cases/wild")


WILD_LINES = {
    "burns_plain.srt": [1.9, 5.9, 13.8, 17.0, 19.8],
    "burns_ytdlp.srt": [1.9, 5.9, 13.8, 17.0, 19.8],
    "yt_roll.srt": [0.08, 2.40, 5.44, 7.84, 14.08, 17.07],
    "rollup.srt": [1, 3, 6, 13],
    "hls_map.vtt": [1, 11],
    "arrow.srt": [1, 13],
    "ru_cp1251.srt": [1, 13],
}


@pytest.mark.parametrize("name", WILD_LINES)
def test_lines_of_reported_files_are_at_their_times(name, wild):
    heard = read_captions(wild / name)
    starts = [start for start, _ in lines_of(heard)]
    assert starts == pytest.approx(WILD_LINES[name], abs=0.02)
    # few words without a full stop
    is_cut = name in ("burns_plain.srt", "burns_ytdlp.srt", "yt_roll.srt", "rollup.srt")
    assert ("steps may be cut" in " ".join(heard.warnings)) == is_cut


def test_reported_files_keep_their_words(wild):
    def texts(name):
        return [text for _, text in lines_of(read_captions(wild / name))]

    assert texts("burns_ytdlp.srt") == texts("burns_plain.srt")  # rolling, and not
    first, second, third = texts("blank_in_cue.srt")  # with an empty line
    assert first == "First fold the paper in half."
    assert (second, third) == ("Then press the edge down.", "Cut along the line.")
    assert texts("ru_cp1251.srt")[0].startswith("Охладите ожог")
    assert "cp1251" in read_captions(wild / "ru_cp1251.srt").warnings[0]


def test_reported_colour_captions_come_once(wild):
    words = words_of(read_captions(wild / "yt_colour2.vtt"))
    text = "greetings and salutations thanks for clicking on the video today fold the paper in half"
    assert [word for word, _ in words] == text.split()
    times = dict(words)
    assert (times["greetings"], times["for"], times["fold"]) == (1.0, 2.33, 4.41)
