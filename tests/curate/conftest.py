import logging

import pytest

from stepline.curate.remote import RemotePath, filesystems
from stepline.curate.settings import RemoteSettings
from stepline.curate.store.results import ResultStore


@pytest.fixture
def bucket(monkeypatch):
    """An S3 server of this process with one bucket, `bucket`, that can be told to fail."""
    pytest.importorskip("moto", reason="needs moto, a stand-in for S3: pip install 'moto[s3]'")
    pytest.importorskip("s3fs", reason="needs s3fs: pip install 'stepline[cloud]'")
    from s3_server import s3_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server(monkeypatch) as faults:
        filesystems._create.cache_clear()  # a new server on a new port
        filesystems.filesystem("s3://bucket", RemoteSettings()).mkdir("bucket")
        yield faults
        filesystems._create.cache_clear()


@pytest.fixture(params=["disk", "memory"])
def results(request, tmp_path):
    """Results on a disk, and in an object store that is listed and cannot be locked."""
    return ResultStore(RemotePath(str(tmp_path) if request.param == "disk" else f"memory://{tmp_path.name}"))
