import pytest

from stepline.curate.store.results import ResultStore
from stepline.files.remote import RemotePath


@pytest.fixture(params=["disk", "memory"])
def results(request, tmp_path):
    """Results on a disk, and in an object store that is listed and cannot be locked."""
    return ResultStore(
        RemotePath(str(tmp_path) if request.param == "disk" else f"memory://{tmp_path.name}")
    )
