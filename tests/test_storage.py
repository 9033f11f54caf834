import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stepline import storage as store
from stepline.errors import SteplineError, StoreError
from stepline.files import atomic_files
from stepline.files import parquet as parquet_files
from stepline.records import Record, Rejected, Sentence, Span, Step, Transcript, Video, Word


@pytest.fixture
def record():
    words = (Word(text="Cut", span=Span(0.5, 0.9), confidence=0.5), Word(text="it"))
    said = Span(0.5, 1.5)
    sentence = Sentence(text="Cut it", span=said, words=words, confidence=0.75, shown=0.25)
    spans = (Span(2.0, 3.0), Span(5.0, 6.0))
    placed = {"spans": spans, "at": 2.5, "said": said, "status": "placed", "score": 0.9}
    told = {"source_text": "Cut.", "licence": "CC0-1.0", "alternatives": ("slice it",)}
    told |= {"sources": (0,), "seen": ("a face talks to the camera",)}
    return Record(
        id="item",
        video=Video(id="v", path="v.mp4", duration=9.5, title="How to — “cut”"),
        transcript=Transcript(language="en", recogniser="test", sentences=(sentence,)),
        steps=(Step(id="1", text="cut it", **placed, **told), Step(id="2", text="not placed")),
        recipe=("Cut it.",),
        captions=(Step(id="c", text="someone cuts", spans=(Span(1.0, 2.0),)),),
        reference=(Step(id="r", text="cutting", spans=(Span(2.0, 4.0),)),),
        dropped=(Rejected(what="sentence", text="Thanks", reason="stock phrase"),),
        warnings=("file is cut short",),
        settings={"asr": {"beam": 5}},
        models={"asr": "whisper-tiny.en"},
    )


def test_json_loses_nothing(record):
    assert store.from_json(store.to_json(record)) == record


def test_json_has_the_public_form(record):
    tree = json.loads(store.to_json(record))
    assert tree["version"] == 1
    assert tree["video"]["id"] == "v"
    sentence = tree["transcript"]["sentences"][0]
    fields = [sentence[name] for name in ("text", "start", "end", "shown")]
    assert fields == ["Cut it", 0.5, 1.5, 0.25]
    step = tree["steps"][0]
    assert (step["start"], step["end"], step["at"], step["said"]) == (2.0, 3.0, 2.5, [0.5, 1.5])
    assert step["spans"] == [[2.0, 3.0], [5.0, 6.0]]
    assert tree["steps"][1]["start"] is None
    assert tree["dropped"] == [{"what": "sentence", "text": "Thanks", "reason": "stock phrase"}]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "[" * 10_000, '{"version": 2}', '{"version": 1}'),
        '{"version": 1, "id": "a", "video": 3}',
    ],
)
def test_what_is_not_a_record_is_refused_in_one_line(text):
    with pytest.raises(StoreError) as error:
        store.from_json(text)
    assert "\n" not in str(error.value)


def test_every_damaged_field_is_refused_or_read(record):
    tree = json.loads(store.to_json(record))
    for key in tree:
        for damage in (None, 3, "x", [None], {"a": 1}, [[]]):
            try:
                store.from_json(json.dumps(tree | {key: damage}))
            except StoreError as error:
                assert "\n" not in str(error)


def test_parquet_loses_nothing(record, tmp_path):
    path = tmp_path / "records.parquet"
    assert store.write_parquet([record, record.model_copy(update={"id": "b"})], path) == 2
    assert [r.id for r in store.read_parquet(path)] == ["item", "b"]
    assert next(store.read_parquet(path)) == record


def test_a_parquet_file_that_is_not_there_is_called_so(tmp_path):
    with pytest.raises(StoreError, match="none.parquet: no such file"):
        list(store.read_parquet(tmp_path / "none.parquet"))


def write_bytes_table(path, columns, metadata=None):
    """Write columns of bytes as what they are not checked to be: text."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    path.parent.mkdir(exist_ok=True)
    arrays = {
        name: arrow.array(cells, arrow.binary()).view(arrow.string())
        for name, cells in columns.items()
    }
    parquet.write_table(arrow.table(arrays).replace_schema_metadata(metadata), path)
    return path


def parquet_readers():
    """Return everything that turns somebody's Parquet into values, by name: (columns, reads a
    path)."""
    from stepline.curate.sources.read import read_source
    from stepline.features.store import INDEX_VERSION, LOCATION_COLUMNS, METADATA_KEY, read_index
    from stepline.sieve_swap.content_words import read_words
    from stepline.sieve_swap.pairing import WordVocabulary
    from stepline.sieve_swap.part_files import read_pairs
    from stepline.sieve_swap.text_base.base import RowGroupTable, read_table

    def index(path):
        folder = path.parent / "store"
        write_bytes_table(
            folder / "shard-00000.parquet",
            {key: [b"\xff"] for key in LOCATION_COLUMNS},
            {METADATA_KEY: INDEX_VERSION},
        )
        list(read_index(folder, 0))

    return {
        "records": ("record", lambda path: list(store.read_parquet(path))),
        "source list": ("id", lambda path: list(read_source(str(path)))),
        "feature index": ("id", index),
        "pairs": ("id", read_pairs),
        "words": ("title", lambda path: read_words(path, WordVocabulary())),
        "documents read": ("id", lambda path: list(read_table(path))),
        "text base": ("text", lambda path: RowGroupTable(path, 10)[0]),
    }


@pytest.mark.parametrize("name", sorted(parquet_readers()))
def test_text_that_is_not_utf8_in_anyones_parquet_is_an_error_of_one_line(tmp_path, name):
    column, read = parquet_readers()[name]
    path = write_bytes_table(tmp_path / "x.parquet", {column: [b"caf\xe9"]})
    with pytest.raises(SteplineError) as caught:
        read(path)
    assert ".parquet" in str(caught.value)
    if name != "words":  # whose rows are read as a whole
        assert f"column '{column}', row 0: text that is not UTF-8" in str(caught.value)


def test_a_cell_that_python_has_no_value_for_names_its_column_after_the_rows_before_it(tmp_path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    when = arrow.array([0, 2**62], arrow.timestamp("us"))
    parquet.write_table(arrow.table({"id": ["a", "b"], "when": when}), tmp_path / "x.parquet")
    table = parquet_files.ParquetReader(tmp_path / "x.parquet")
    rows = table.rows()
    assert next(rows)["id"] == "a"
    with pytest.raises(parquet_files.ParquetError, match="column 'when', row 1: "):
        next(rows)
    assert [*table.rows(["id"])] == [{"id": "a"}, {"id": "b"}]


def test_a_damaged_parquet_file_is_an_error(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="not a readable Parquet"):
        list(store.read_parquet(path))


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="midway"), atomic_files.atomic_path(path) as partial:
        partial.write_text("new, half")
        raise RuntimeError("midway")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line_with_the_cure(tmp_path):
    path = tmp_path / "a.json"
    full = pytest.raises(StoreError, match="free some space")
    with full, atomic_files.atomic_path(path) as partial:
        partial.write_text("x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_a_kill_in_mid_write_leaves_the_old_file_and_the_next_run_sweeps(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    code = f"""
        import os, signal
        from pathlib import Path
        from stepline.files import atomic_files
        with atomic_files.atomic_path(Path({str(path)!r})) as partial:
            partial.write_text("new, half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    atomic_files.remove_partial_files(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stem", ["字" * 80, "🍋" * 60, "é" * 124, "a" * 249])
def test_a_name_as_long_as_names_may_be_is_written_and_swept(tmp_path, stem):
    with atomic_files.atomic_path(tmp_path / f"{stem}.json") as partial:
        partial.write_text("x")
        assert atomic_files.partial_files(tmp_path / f"{stem}.json") == [partial]
    assert (tmp_path / f"{stem}.json").read_text() == "x"


def test_sweeping_spares_the_living(tmp_path):
    with atomic_files.atomic_path(tmp_path / "a.json") as partial:
        partial.write_text("x")
        atomic_files.remove_partial_files(tmp_path)
        assert partial.exists()
    assert (tmp_path / "a.json").read_text() == "x"


def test_sweeping_spares_the_writers_of_other_machines(tmp_path, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(os, "getpid", lambda: ended.pid)
    with atomic_files.atomic_files() as files:
        ours = files.partial(tmp_path / "a.json")
        ours.touch()
        monkeypatch.setattr(atomic_files.socket, "gethostname", lambda: "another")
        theirs = files.partial(tmp_path / "a.json")
        theirs.touch()
        # of a version that did not name the machine
        (tmp_path / f".a.{ended.pid}-0.partial.json").touch()
        assert len(atomic_files.partial_files(tmp_path / "a.json")) == 3
        monkeypatch.undo()
        atomic_files.remove_partial_files(tmp_path)
        assert list(tmp_path.iterdir()) == [theirs]
        theirs.write_text("x")


def test_a_folder_that_goes_while_it_is_walked_is_left_out(tmp_path, monkeypatch):
    for name in ("a/1.txt", "b/2.txt", "c/3.txt"):
        atomic_files.write_atomic(tmp_path / name, "x")
    (tmp_path / "d").symlink_to(tmp_path / "none")
    scandir = os.scandir

    def removed(path):
        if str(path).endswith("/b"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed)
    assert atomic_files.files_below(tmp_path) == [tmp_path / "a/1.txt", tmp_path / "c/3.txt"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        atomic_files.write_atomic(Path(tmp_path / "file" / "a.json"), "x")


def test_a_folder_is_checked_before_the_work_and_not_made(tmp_path):
    atomic_files.check_writable(tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        atomic_files.check_writable(tmp_path / "file" / "out")


def test_a_disk_that_fills_while_tensors_are_written_is_one_line_with_the_cure(tmp_path):
    code = (
        "import resource, sys, numpy, pathlib\n"
        "from stepline.features import FeatureWriter\n"
        "from stepline.errors import StoreError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "writer = FeatureWriter(pathlib.Path(sys.argv[1]))\n"
        "writer.add('v', numpy.zeros((100, 100), numpy.float32), rate=1.0, backbone='clip')\n"
        "try:\n    writer.flush()\n"
        "except StoreError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "cannot be written" in done.stdout
    assert "free some space" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_allow_writing_is_refused(tmp_path, monkeypatch):
    # a super-user may write anywhere
    monkeypatch.setattr(atomic_files.os, "access", lambda *_: False)
    with pytest.raises(StoreError, match="does not allow writing"):
        atomic_files.check_writable(tmp_path)


def test_a_file_of_a_library_that_keeps_it_for_its_owner_is_like_any_other(tmp_path):
    """As safetensors writes networks and features, which other users of a machine then miss."""
    (tmp_path / "other").touch()
    with atomic_files.atomic_path(tmp_path / "network") as partial:
        partial.touch(mode=0o600)
    assert (tmp_path / "network").stat().st_mode == (tmp_path / "other").stat().st_mode
