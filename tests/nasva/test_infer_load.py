import pytest

from stepline.errors import ModelError
from stepline.nasva.checkpoint import find_aligner


def test_a_folder_gives_its_best_network_else_the_final_one(tmp_path):
    for name in ("last", "aligner", "best"):
        (tmp_path / f"{name}.safetensors").write_bytes(b"")
        if name != "last":
            assert find_aligner(tmp_path).name == f"{name}.safetensors"


def test_a_run_that_is_not_finished_has_no_network_yet(tmp_path):
    (tmp_path / "last.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="the run is not finished; run `stepline train nasva` again to end it"):
        find_aligner(tmp_path)


def test_a_folder_without_a_network_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"holds none of best\.safetensors, aligner\.safetensors; give"):
        find_aligner(tmp_path)
