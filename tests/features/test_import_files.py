"""Files as other projects name them go in under their item's id; what is no features stays out,
with its reason."""

import io
import json

import numpy as np
import pytest
import torch
from feature_rows import rows
from file_bytes import tar_bytes
from numpy.testing import assert_allclose

from stepline.errors import StoreError
from stepline.features import FeatureStore, FeatureWriter, import_features
from stepline.features.import_files import DROPPED_NAME, read_dropped
from stepline.features.store import TURNED
from stepline.records import count_reasons


def data_of(content):
    """The bytes of a file: those that are given, an array as .npy, else content as .pth."""
    if isinstance(content, bytes):
        return content
    file = io.BytesIO()
    save = np.save if isinstance(content, np.ndarray) else lambda file, tree: torch.save(tree, file)
    save(file, content)
    return file.getvalue()


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data_of(content))
    return folder


def tar(path, files, mode="w"):
    path.write_bytes(tar_bytes({name: data_of(each) for name, each in files.items()}, mode))
    return path


def test_every_kind_of_file_gives_its_item(tmp_path):
    files = {
        "a.mp4.npy": rows(1),
        "b.webm.npy": rows(2).astype(np.float64),
        "sub/c.pth.tar": torch.from_numpy(rows(3)).half(),
        "sub/d.pth": torch.from_numpy(rows(4)).bfloat16(),
        "with.dot.npy": rows(5),
        "all.pth": {"e": torch.from_numpy(rows(6)), "f": torch.from_numpy(rows(7, 2))},
        "notes.txt": b"no features",
    }
    source = write(tmp_path / "in", files)
    done = import_features(source, tmp_path / "store", backbone="s3d", rate=2.0)
    assert sorted(done.added_ids) == ["a", "b", "c", "d", "e", "f", "with.dot"]
    assert done.dropped == ()
    store = FeatureStore(tmp_path / "store")
    for seed, id in enumerate(["a", "b", "c", "d", "with.dot", "e"], start=1):
        assert_allclose(store.matrix(id), rows(seed), atol=0.01)
    assert store.read("f").values.shape == (2, 4)
    assert (store.read("f").rate, store.read("f").backbone) == (2.0, "s3d")


def test_a_webdataset_is_keyed_by_what_is_before_the_first_dot(tmp_path):
    files = {"x/k1.video.npy": rows(1), "x/k1.json": b"{}", "x/k2.video.npy": rows(3)}
    import_features(tar(tmp_path / "000.tar", files), tmp_path / "video")
    store = FeatureStore(tmp_path / "video")
    assert list(store) == ["k1", "k2"]
    assert_allclose(store.matrix("k2"), rows(3), atol=0.01)


def test_several_arrays_of_a_key_are_refused(tmp_path):
    files = {"x/k1.text.npy": rows(2, 2), "x/k1.json": b"{}", "x/k1.video.npy": rows(1)}
    archive = tar(tmp_path / "000.tar", {"x/k0.video.npy": rows(3)} | files)
    said = r"k1 holds several arrays, \.text\.npy, \.video\.npy; unpack it"
    with pytest.raises(StoreError, match=said):
        import_features(archive, tmp_path / "both")


def test_a_key_that_comes_again_later_keeps_its_first_array_in_a_gzipped_archive(tmp_path):
    """As Sieve & Swap's features.tar.gz."""
    files = {"x/k1.npy": rows(1), "x/k2.npy": rows(2), "y/k1.npy": rows(3)}
    archive = tar(tmp_path / "features.tar.gz", files, "w:gz")
    done = import_features(archive, tmp_path / "store")
    assert count_reasons(done.dropped) == {"its id came before": 1}
    assert_allclose(FeatureStore(tmp_path / "store").matrix("k1"), rows(1), atol=0.01)


def test_texts_and_their_times_come_along(tmp_path):
    said = {"vid": "v", "start": [1.0, 4.0], "end": [3.0, 9.5], "text": ["cut it", "mix it"]}
    write(tmp_path / "in", {"v.pth": said | {"features": torch.from_numpy(rows(1, 2))}})
    import_features(tmp_path / "in", tmp_path / "store")
    lines = FeatureStore(tmp_path / "store").texts("v")
    assert lines.texts == ("cut it", "mix it")
    assert (lines.starts, lines.ends) == ((1.0, 4.0), (3.0, 9.5))


def test_what_is_not_features_is_left_out_with_its_reason(tmp_path):
    broken = rows(1)
    broken[2, 1] = np.nan
    files = {
        "1/good.npy": rows(0),
        "1/empty.npy": rows(0, 0),
        "1/nan.npy": broken,
        "1/flat.npy": rows(0)[0],
        "1/great.npy": rows(0) * 1e6,
        "1/wide.npy": rows(0, 5, 6),
        "1/cut.npy": data_of(rows(0))[:-7],
        "2/good.npy": rows(9),
        "2/other.pth": {"vid": "another", "text": ["a"], "features": torch.ones(1, 4)},
        "2/texts.pth": {"vid": "texts", "text": ["a"], "features": torch.ones(2, 4)},
        "2/code.pth": {"features": print},
    }
    source = write(tmp_path / "in", files)
    done = import_features(source, tmp_path / "store", width=4)
    assert list(done.added_ids) == ["good"]
    assert {each.id: each.reason for each in done.dropped} == {
        "empty": "it has no row",
        "nan": "it holds NaN or infinity",
        "flat": "it holds no (rows, width) of float numbers",
        "great": "its values are beyond half precision",
        "wide": "its width is another",
        "cut": "the file cannot be read",
        "good": "its id came before",
        "other": "it says that it is another item",
        "texts": "its texts or times are not one per row",
        "code": "the file cannot be read",
    }
    assert read_dropped(tmp_path / "store" / DROPPED_NAME) == done.dropped
    # the first, not the other
    assert_allclose(FeatureStore(tmp_path / "store").matrix("good"), rows(0), atol=0.01)


def test_an_import_that_was_stopped_goes_on_and_reads_nothing_twice(tmp_path):
    source = write(tmp_path / "in", {f"v{number}.npy": rows(number) for number in range(6)})
    seen = []

    def stop(id):
        seen.append(id)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_features(source, tmp_path / "store", shard_bytes=80, report=stop)
    again = import_features(source, tmp_path / "store", shard_bytes=80)
    assert (again.already_stored, list(again.added_ids)) == (4, ["v4", "v5"])
    assert len(FeatureStore(tmp_path / "store")) == 6
    third = import_features(source, tmp_path / "store")
    assert (third.already_stored, third.added_ids, third.dropped) == (6, (), ())


def test_a_source_without_features_is_reported(tmp_path):
    with pytest.raises(StoreError, match="no such file or folder"):
        import_features(tmp_path / "none", tmp_path / "store")
    with pytest.raises(StoreError, match="holds no feature file"):
        import_features(write(tmp_path / "in", {"a.txt": b""}), tmp_path / "store")
    whole = tar(tmp_path / "whole.tar", {"a.npy": rows()}).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:700])
    with pytest.raises(StoreError, match="a damaged archive"):
        import_features(tmp_path / "cut.tar", tmp_path / "store")


@pytest.mark.parametrize("cut", [1024 + 512, 1024 + 700, 2 * 1024 + 100, 2 * 1024, 3 * 1024 - 1])
def test_an_archive_that_was_cut_off_anywhere_is_an_error_and_what_is_before_is_stored(
    tmp_path, stepline, cut
):
    # Each member is a header and one padded block of data; after the third come the empty blocks of
    # the end.
    whole = tar(tmp_path / "whole.tar", {f"{name}.npy": rows(count=2) for name in "abc"})
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:cut])
    result = stepline("features", "import", tmp_path / "cut.tar", "--out", tmp_path / "store")
    assert result.exit_code == 1
    assert "a damaged archive" in result.stderr
    assert "a" in FeatureStore(tmp_path / "store")


def test_a_file_that_cannot_be_read_is_a_failure_and_the_rest_is_stored(tmp_path, stepline):
    source = write(tmp_path / "in", {"a.npy": rows(), "b.npy": data_of(rows())[:-9]})
    result = stepline("features", "import", source, "--out", tmp_path / "store")
    assert result.exit_code == 1
    assert "1 of its files could not be read" in result.stderr
    assert "a" in FeatureStore(tmp_path / "store")


def test_the_commands_import_and_check(tmp_path, stepline):
    broken = rows(1)
    broken[0, 0] = np.inf
    source = write(tmp_path / "in", {"a.npy": rows(), "b.npy": broken})
    made = stepline("features", "import", source, "--out", tmp_path / "store", "--backbone", "clip")
    assert made.exit_code == 0
    assert "added 1 items (5 rows)" in made.stdout
    assert "dropped 1: it holds NaN or infinity" in made.stderr
    told = json.loads(stepline("features", "check", tmp_path / "store", "--json").stdout)
    assert told == {
        "items": 1,
        "rows": 5,
        "hours": 0.0,
        "widths": [4],
        "backbones": ["clip"],
        "faults": {},
        "dropped": {"it holds NaN or infinity": 1},
    }
    bad = write(tmp_path / "bad", {"c.npy": broken})
    nothing = stepline("features", "import", bad, "--out", tmp_path / "new")
    assert nothing.exit_code == 1
    assert "nothing in it could be stored" in nothing.stderr
    assert stepline("features", "check", tmp_path / "in").exit_code == 1


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ([(1024, 30), (1024, 31)], {"backbone": "s3d-mixed5c"}),
        ([(1024, 30), (1024, 30)], {"backbone": "s3d-mixed5c"}),
        ([(1024, 30)], {}),
        ([(6, 3), (6, 4), (6, 5)], {"backbone": "mine"}),
    ],
)
def test_arrays_of_width_and_time_are_refused(tmp_path, shapes, options):
    files = {f"v{n}.npy": rows(n, *shape) for n, shape in enumerate(shapes)}
    source = write(tmp_path / "in", files)
    with pytest.raises(StoreError, match="look turned, .*transpose"):
        import_features(source, tmp_path / "store", **options)
    assert not list((tmp_path / "store").glob("shard-*"))


def test_a_turned_array_among_others_is_dropped_also_if_it_comes_first(tmp_path):
    files = {"a.npy": rows(0, 6, 3)} | {f"b{n}.npy": rows(n, n, 6) for n in (2, 3)}
    done = import_features(write(tmp_path / "in", files), tmp_path / "store")
    assert done.added_ids == ("b2", "b3")
    assert [(row.id, row.reason) for row in done.dropped] == [("a", TURNED)]
    # The store knows its width now.
    late = write(tmp_path / "late", {"c.npy": rows(0, 6, 9), "d.npy": rows(0, 9, 6)})
    assert import_features(late, tmp_path / "store").added_ids == ("d",)


def test_a_width_that_is_stated_or_like_any_other_is_believed(tmp_path):
    source = write(tmp_path / "in", {"a.npy": rows(0, 1024, 30)})
    assert import_features(source, tmp_path / "store", width=30).added_ids == ("a",)
    same = write(tmp_path / "same", {f"v{n}.npy": rows(n, 6, 4) for n in range(2)})
    done = import_features(same, tmp_path / "other")
    assert done.added_ids == ("v0", "v1")
    assert done.warnings == ("all arrays have 6 rows of 4; if 6 is their width, transpose them",)


def test_another_width_than_that_of_the_named_backbone_is_told(tmp_path):
    source = write(tmp_path / "in", {"a.npy": rows(0, 9, 7), "b.npy": rows(0, 8, 7)})
    done = import_features(source, tmp_path / "store", backbone="s3d")
    assert done.warnings == ("2 items are 7 wide, and rows of s3d 512; check --backbone",)


def test_check_finds_turned_arrays_that_are_stored(tmp_path, stepline):
    with FeatureWriter(tmp_path) as writer:
        writer.add("a", rows(0, 1024, 30), rate=1.0, backbone="s3d-mixed5c")
    result = stepline("features", "check", tmp_path)
    assert result.exit_code == 1
    assert TURNED in result.stderr


def test_a_backbone_named_after_the_import_is_told_not_to_be_stored(tmp_path, stepline):
    source = write(tmp_path / "in", {f"v{n}.npy": rows(n, 5 + n) for n in range(12)})
    import_features(source, tmp_path / "store")
    words = ("--out", tmp_path / "store", "--backbone", "mine", "--json")
    again = stepline("features", "import", source, *words)
    line = "12 items that were there already are stored as of 'unknown', not of 'mine'; import them"
    line += " into a new --out to name them"
    assert json.loads(again.stdout)["warnings"] == [line]
    assert line in again.stderr
    assert import_features(source, tmp_path / "store").warnings == ()
