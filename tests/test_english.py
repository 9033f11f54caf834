"""What benchmarks/english.py finds in small texts, and that the project keeps to its bounds."""

import re

import click
import pytest
from structure_script import ROOT, english, english_rules, prose

from stepline.cli import main


def pages(text):
    return list(prose.markdown_passages("page.md", text))


def module(text):
    return list(prose.python_passages("module.py", text))


def found(passages):
    """Return (line, words) of each place in some passages."""
    places = [place for passage in passages for place in english_rules.places(passage)]
    return [(place.line, place.text) for place in places]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The page tells it.", "tells"),
        ("Where the pictures do not tell.", "do not tell"),
        ("The file stands there.", "stands"),
        ("A bowl beside the pan.", "beside"),
        ("A step that is none.", "is none"),
        ("It is no video.", "is no"),
        ("Read it anew.", "anew"),
        ("Two files, one of which is empty.", "of which"),
        ("In so many words.", "so many"),
        ("The likest text and the shyest.", "likest"),
        ("It is not to be had.", "to be had"),
        ("It takes 3 videos a worker.", "videos a worker"),
        ("8 words a run.", "words a run"),
        ("It takes 3.1 s a video.", "s a video"),
        ("Print a line a video.", "a line a video"),
        ("It lies in a folder.", "lies in"),
        ("Meanwhile it waits.", "Meanwhile"),
        ("Nobody speaks.", "Nobody"),
        ("Sixteen at once.", "at once"),
        ("It is\nto be\nhad.", "to be had"),
    ],
)
def test_a_word_of_the_list_is_found(text, words):
    assert words in [place_words for _, place_words in found(pages(text))]


@pytest.mark.parametrize(
    "text",
    [
        "Two mixer stands.",
        "A stand mixer.",
        "B stands for batch.",
        "It tells the two apart.",
        "There is no video.",
        "It is no longer there.",
        "Run `stepline tells --beside` once.",
        'The paper says "it is told anew".',
        "The value is None.",
        "It gives a video a title.",
        "The second lies in [start, end).",
        "It took 729 MiB a day earlier.",
        "The folder lists a row of words.",
        "See [the page](docs/told.md).",
        "He understands besides.",
        "```\nit is told; anew\n```",
    ],
)
def test_a_plain_or_foreign_use_is_not_a_place(text):
    assert found(pages(text)) == []


def words(count):
    return f"{' '.join(['Word'] + ['word'] * (count - 1))}."


def test_a_sentence_has_25_words_at_most():
    assert found(pages(words(25))) == []
    ((line, _),) = found(pages(f"Short.\n{words(26)}"))
    assert line == 2


def test_a_span_of_code_is_one_word():
    assert found(pages(f"{words(24)[:-1]} `stepline steps my video.mp4`.")) == []
    assert found(pages(f"{words(25)[:-1]} `stepline steps`.")) != []


def test_items_of_a_list_and_paragraphs_are_sentences_of_their_own():
    half = words(15)[:-1]
    assert found(pages(f"- {half}\n- {half}\n\n{half}\n\n{half}\n")) == []
    assert found(pages(f"{half}\n{half}\n")) != []


def test_an_indented_block_is_code_outside_of_a_list():
    assert found(pages("Run this:\n\n    stepline tells; anew\n")) == []
    assert found(pages("- One.\n\n    It is told.\n")) == [(3, "told")]
    assert found(pages("It is\n    told.\n")) == [(2, "told")]


def test_an_abbreviation_and_a_decimal_end_no_sentence():
    (passage,) = pages("A share of .58, e.g. Whisper. Then 3.5 s.")
    texts = [sentence.strip() for _, sentence in english_rules.sentences(passage)]
    assert texts == ["A share of .58, e.g. Whisper.", "Then 3.5 s."]


def test_a_semicolon_in_prose_is_found_where_it_is():
    assert found(pages("One.\nTwo; three.")) == [(2, "Two;")]
    assert found(pages("Write `a; b`.\n\n```\na; b\n```\n")) == []


def test_a_cell_and_a_heading_are_judged_by_their_words_alone():
    assert found(pages(f"| {words(30)} | a; b |\n|---|---|\n| it is told | `told` |")) == [
        (3, "told")
    ]
    assert found(pages("# What is told; a title")) == [(1, "told")]


CODE = '''"""It is told; so it is."""

import click

LIMIT = 3  # seconds; told in the paper
# Read anew; the first reading
# may have failed.


@click.option("--out", help="Folder; stands below.")
def f(path):
    """Return it.

    path: where it is
    width: how much

        told; code

    name      told; a table
    """
    print_message(f"{path} is told of; see there")
    raise ValueError(f"{path}: no file; check it; then go" " on beside it")


REASON = "hardly a sentence tells a step; so it is"
PATTERN = "(?:it is told|it is not told)"
'''


def test_a_python_file_is_read_by_docstrings_comments_helps_and_messages():
    kinds = {passage.kind for passage in module(CODE)}
    assert kinds == {"docstring", "comment", "label", "help", "message", "string"}
    assert sorted(found(module(CODE))) == [
        (1, "It is told;"),
        (1, "told"),
        (5, "told"),
        (6, "Read anew;"),
        (6, "anew"),
        (10, "Folder;"),
        (10, "stands"),
        (21, "told"),
        (22, "beside"),
        (22, "¤: no file; check it;"),
        (25, "tells"),
    ]


def test_a_docstring_begins_with_the_verb_of_what_is_done():
    (place,) = found(module('def f():\n    """Have a thread end."""\n'))
    assert place == (2, "Have a thread end.")
    assert found(module('def f():\n    """End a thread."""\n')) == []


def test_a_hash_within_a_string_is_not_a_comment():
    assert module('colour = "#told; ü"  # a colour\n')[0].text == "a colour"
    assert [passage.text for passage in module('x = """\n# told\n"""\n')] == []


def test_a_message_may_have_two_parts_of_25_words():
    part = words(20)[:-1]
    assert found(module(f'raise E("{part}; {part}")')) == []
    assert found(module(f'raise E("{part}, {part}")')) != []


def helps(command):
    """Yield every help text of a command and of those below it."""
    yield command.help
    for parameter in command.params:
        yield getattr(parameter, "help", None)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from helps(below)


def test_every_help_text_is_read():
    """Up to the first mark: the rest may be put together by code."""
    texts = []
    for file in english.files_below(ROOT / "stepline" / "cli"):
        texts += [passage.text for passage in english.read_passages(ROOT, file)]
    together = " ".join(" ".join(texts).split())
    openings = {re.split("[.,;:(]", " ".join((text or "").split()))[0] for text in helps(main)}
    openings = {opening.strip() for opening in openings}
    long_openings = {text for text in openings if len(text.split()) >= prose.LEAST_MESSAGE_WORDS}
    missing = {text for text in long_openings if text not in together}
    # The first is click's own, the other is chosen by a condition.
    assert missing == {"Show the version and exit", "Values of the paper"}


def test_a_path_of_another_checkout_is_read_there(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("It is told.\n")
    assert english.files_below(tmp_path / "docs") == [page]
    assert english.checkout_of(page) == tmp_path
    (place,) = english.find_places(tmp_path, [page])
    assert (place.path, place.line) == ("docs/page.md", 1)


def test_bounds_only_fall():
    bounds = {"a.md": 3, "b.md": 2, "c.md": 1}
    assert english.tightened(bounds, {"a.md": 4, "b.md": 1, "d.md": 5}) == {"a.md": 3, "b.md": 1}


def test_a_file_with_more_places_and_a_bound_that_is_too_high_are_reported():
    lines = english.departures({"a.md": 3, "b.md": 2, "c.md": 1}, {"a.md": 4, "b.md": 1, "c.md": 1})
    assert [line.split(";")[0] for line in lines] == [
        "a.md: 4 places that are not plain, 3 allowed",
        "b.md: 2 places allowed, 1 left",
    ]


def test_the_project_keeps_to_its_bounds():
    """Where this fails, the lines of the message say what to run."""
    lines = english.departures(english.read_bounds(), english.count_places(ROOT))
    assert lines == [], "\n".join(lines)
