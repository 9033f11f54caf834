"""What benchmarks/structure.py counts, on small files whose counts are clear by eye."""

import pytest
from structure_script import (
    import_arrows,
    plain_code,
    private_names,
    references,
    source_files,
    structure,
)

SourceFile = source_files.SourceFile


def source(text, path="stepline/example.py", module="stepline.example"):
    return SourceFile(path, module, text)


@pytest.fixture
def checkout(tmp_path):
    """Return what writes a small checkout: path -> text, beside a record and a page of settings."""

    def write(files):
        files = {
            "stepline/__init__.py": "",
            "stepline/records.py": "class Record:\n    models: dict[str, str]\n",
            "docs/settings.md": "| `train.data.slack` | `1` | seconds |\n",
            "pyproject.toml": "[tool.importlinter]\ncontracts = []\n",
            **files,
        }
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return write


def test_tokens_are_those_of_code_alone():
    text = '"""A file."""\n\nx = 1  # one\n\n\ndef f(a):\n    """Return it."""\n    return a\n'
    file = source(text)
    assert [token.string for token in file.code_tokens] == [
        *("x", "=", "1"),
        *("def", "f", "(", "a", ")", ":"),
        *("return", "a"),
    ]
    assert file.code_lines == [3, 6, 8]
    assert plain_code.tokens_per_line(file) == 11 / 3


def test_an_f_string_is_one_token_whatever_python_reads_it():
    assert (
        len(source('x = f"{a} and {b:.2f} and {f"{c}"!r}"\n'.replace('f"{c}"', "c")).code_tokens)
        == 3
    )


def test_a_participle_counts_where_it_is_bound_and_whole():
    text = "kept = 1\nkept_rows = kept\n\n\ndef f(told, *, found=1):\n    for seen in told: pass\n"
    names = [place.split()[-1] for place in plain_code.bare_participles(source(text))]
    assert sorted(names) == ["found", "kept", "seen", "told"]


@pytest.mark.parametrize("name", ["Heard", "Said", "Told", "Left", "Read", "Seen", "_Asked"])
def test_no_class_and_no_alias_may_be_a_bare_participle(name):
    for text in (
        f"class {name}:\n    pass\n",
        f"{name} = tuple[int, str]\n",
        f"{name}: TypeAlias = int\n",
    ):
        assert plain_code.participle_types(source(text)) == [f"stepline/example.py:1: {name}"]


@pytest.mark.parametrize(
    "name", ["HeardSentences", "Finding", "Record", "Drawing", "heard", "LEFT"]
)
def test_a_noun_is_not_a_participle(name):
    assert plain_code.participle_types(source(f"class {name}:\n    pass\n")) == []


def test_a_constant_of_one_word_counts_annotated_or_not_and_in_pairs():
    text = (
        "LONGEST = 1\nFEW: int = 2\nNEAR, FAR = 1, 2\nif LONGEST:\n    SLACK = 1\n"
        "MAX_CHARS = 3\n_WORDS = ()\nT = TypeVar('T')\nname = 1\n\n\ndef f():\n    INSIDE = 1\n"
    )
    names = [place.split()[-1] for place in plain_code.one_word_constants(source(text))]
    assert names == ["LONGEST", "FEW", "NEAR", "FAR", "SLACK", "_WORDS"]


def test_dense_expressions_are_counted():
    text = "a = 1 if b else 2\nc = [x for x in y]\nd = {x for x in y if x}\ne, f = 1, 2\ng, h = y\n"
    counts = [len(list_places(source(text))) for list_places in structure.RATE_ROWS.values()]
    assert counts == [1, 2, 1, 1]


def test_a_dense_file_is_not_plain_unless_it_is_a_line_or_two():
    line = "names = [row.name for row in rows if row.name]\n"
    (departure,) = plain_code.departures(source(line * 5))
    assert departure == "stepline/example.py: 15.00 tokens a line of code, over 8.5"
    assert list(plain_code.departures(source(line * 4))) == []


def test_switches_of_the_formatter_and_long_lines_are_counted():
    text = f"x = 1  # fmt: skip\n# fmt: off\ny = '{'z' * 96}'\n# {'long comment ' * 10}\n"
    assert len(plain_code.formatter_switches(source(text))) == 2
    assert plain_code.long_lines(source(text)) == ["stepline/example.py:3: 102 characters"]
    assert plain_code.comment_lines(source(text)) == 2


def test_sizes_count_from_the_first_too_large():
    parameters = ", ".join(f"p{number}" for number in range(9))
    body = "    x = 1\n" * 60
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(21))
    text = f"def f({parameters}):\n{body}\n\ndef g(self, {parameters[:-4]}): ...\n\n\nclass C:\n{methods}"
    file = source(text)
    assert plain_code.long_functions(file) == ["stepline/example.py:1: f, 61 lines"]
    assert plain_code.wide_functions(file) == ["stepline/example.py:1: f, 9 parameters"]
    assert [place.split(": ")[1] for place in plain_code.large_classes(file)] == ["C, 21 methods"]
    assert plain_code.long_files([source("x = 1\n" * 501), source("x = 1\n" * 500)]) == [
        "stepline/example.py: 501 lines"
    ]


MODULES = {
    "p.a": "from p import b\n",
    "p.b": "def f():\n    from p.c import g\n",
    "p.c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.d\n",
    "p.d": "import importlib\nimportlib.import_module('p.a').run()\n",
}


def arrows_of(texts):
    files = {name: source(text, f"{name}.py", name) for name, text in texts.items()}
    return import_arrows.arrows(files)


def test_an_import_of_every_kind_is_an_arrow():
    arrows = arrows_of(MODULES)
    assert [(arrow.source, arrow.target, arrow.kind) for arrow in arrows] == [
        ("p.a", "p.b", "top"),
        ("p.b", "p.c", "function"),
        ("p.c", "p.d", "types"),
        ("p.d", "p.a", "hidden"),
    ]


def test_a_circle_shows_once_all_its_kinds_are_counted():
    arrows = arrows_of(MODULES)
    assert import_arrows.circles(arrows, import_arrows.ALL_KINDS[:3]) == []
    assert import_arrows.circles(arrows) == [["p.a", "p.b", "p.c", "p.d"]]


def test_a_table_of_lazy_names_is_read_where_a_module_imports_by_a_variable():
    table = "TABLE = {'x': 'p.b'}\n"
    call = "\n\ndef f(name):\n    return import_module(TABLE[name])\n"
    other = {"p.b": "x = 1\n"}
    assert arrows_of({"p.a": table, **other}) == []
    (arrow,) = arrows_of({"p.a": table + call, **other})
    assert (arrow.target, arrow.kind) == ("p.b", "hidden")


def test_an_import_of_a_higher_layer_or_an_independent_sibling_runs_upward(checkout):
    layers = '["p.cli", "p.a | (p.b)", "p.base"]'
    contract = f'[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = {layers}\n'
    folder = checkout({"pyproject.toml": f"[tool.importlinter]\n{contract}"})
    texts = {
        "p.cli.steps": "import p.a.inner\n",
        "p.a.inner": "import p.b\nimport p.base\nimport p.a\n",
        "p.a": "",
        "p.b": "",
        "p.base": "def f():\n    __import__('p.cli.steps')\n",
    }
    read = import_arrows.read_layers(folder)
    assert read == [["p.cli"], ["p.a", "p.b"], ["p.base"]]
    upward = import_arrows.upward_arrows(arrows_of(texts), read)
    assert [(arrow.source, arrow.target) for arrow in upward] == [
        ("p.a.inner", "p.b"),
        ("p.base", "p.cli.steps"),
    ]


EXAMPLE = '''"""See `{}`."""

import json


class Grounder(Model):
    """Grounds."""

    rows: int

    def ground(self):
        self.found_at = 1


def ground(options):
    return options.width
'''


@pytest.mark.parametrize(
    ("reference", "resolves"),
    [
        ("example.ground", True),
        ("stepline.example.Grounder.rows", True),
        ("Grounder.rows", True),
        ("Grounder.found_at", True),
        ("example.py", True),
        ("example.py:ground", True),
        ("stepline/example.py:Grounder.ground", True),
        ("example.py::ground", True),
        ("data.slack", True),  # a setting
        ("models.speech", True),  # a key of a table in a record
        ("options.width", True),  # a variable of the file
        ("json.loads", True),  # a library of others
        ("run.json", True),  # a file that a program writes
        ("src/extract.py", True),  # of another repository
        ("Record.models", True),
        ("visible.visible", False),
        ("targets.py", False),
        ("stepline/targets.py", False),
        ("example.py:place", False),
        ("example.place", False),
        ("Record.place", False),
        ("stepline.example.Grounder", True),
        ("stepline.place", False),
    ],
)
def test_a_reference_in_backticks_leads_somewhere_or_is_found(checkout, reference, resolves):
    folder = checkout(
        {
            "stepline/example.py": EXAMPLE.format(reference),
            "stepline/model.py": "class Model:\n    pass\n",
        }
    )
    unresolved = references.unresolved_references(references.Repository(folder))
    assert unresolved == ([] if resolves else [f"stepline/example.py:1: `{reference}`"])


def test_a_page_is_checked_outside_its_blocks_of_code(checkout):
    page = "# Page\n\n```\n`gone.name`\n```\n\nSee `gone.other`.\n"
    repository = references.Repository(checkout({"docs/page.md": page}))
    assert references.unresolved_references(repository) == ["docs/page.md:7: `gone.other`"]


def test_a_setting_that_nothing_sets_is_found(checkout):
    settings = (
        "class Settings: ...\n\n\nclass AsrSettings(Settings):\n    beam: int = 5\n    pause: int = 1\n\n\n"
        "class RunSettings(AsrSettings):\n    asr: AsrSettings = AsrSettings()\n    threads: int = 1\n"
    )
    folder = checkout(
        {
            "stepline/settings.py": settings,
            "stepline/presets/fast.toml": "beam = 1\n",
            "tests/test_asr.py": "run({'threads': 2})\n",
        }
    )
    unset = references.unset_settings(references.Repository(folder))
    assert unset == ["stepline/settings.py: AsrSettings.pause"]


def test_a_private_name_counts_where_another_file_takes_it():
    package = source(
        "_cache = {}\n\n\nclass Reader:\n    def _read(self):\n        self._rows = 1\n"
    )
    names = private_names.private_names(package)
    assert names == {"_cache", "_read", "_rows"}
    test = source(
        "import os\nfrom stepline.example import _cache, Reader\n\n\n"
        "def f(self):\n    os._exit(0)\n    self._rows\n    return Reader()._read()._own\n"
    )
    places = private_names.private_accesses(test, names)
    assert [place.split()[-1] for place in places] == ["stepline.example._cache", "Reader()._read"]


def test_bounds_only_fall_and_that_of_comments_only_rises():
    bounds = {"tokens": 100, "ternaries": 5.5, structure.COMMENT_ROW: 1.3}
    numbers = {"tokens": 90, "ternaries": 6.0, structure.COMMENT_ROW: 1.5}
    assert structure.tightened(bounds, numbers) == {
        "tokens": 90,
        "ternaries": 5.5,
        structure.COMMENT_ROW: 1.5,
    }


def test_the_laboratory_is_counted_apart(checkout):
    folder = checkout({"research/a.py": "SLACK = 1\n", "benchmarks/b.py": "kept = SLACK = 1\n"})
    measures = structure.measure(folder)
    assert measures.laboratory == {
        "tokens per line of code": 4.0,
        "bare participles as variables": 1,
        "constants of one word": 2,
        "lines of code over 100 characters": 0,
        "functions over 60 lines": 0,
    }
    assert measures.numbers["constants of one word"] == 0
    assert "| constants of one word | 0 | 2 |" in structure.laboratory_table(measures)


def test_the_whole_table_is_counted_for_a_small_checkout(checkout):
    measures = structure.measure(checkout({"stepline/a.py": "LONGEST = 1\n"}))
    assert measures.numbers["constants of one word"] == 1
    assert measures.numbers["files"] == 3
    assert measures.laboratory == {}
    table = structure.table({"before": structure.Measures({"files": 2}), "now": measures})
    assert "| files | 2 | 3 |" in table
    assert "| constants of one word |  | 1 |" in table
