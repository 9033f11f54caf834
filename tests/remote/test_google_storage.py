"""gs:// against gcp-storage-emulator; what holds for every kind of place is in
test_remote_path.py."""

import threading

import pytest

from stepline.errors import StoreError
from stepline.files.remote import RemotePath
from stepline.files.remote.retry import failure_reason, retry_reason
from stepline.files.remote.settings import RemoteSettings

QUICK = RemoteSettings(pause=0.001, seconds=60.0, block=1)
MISSING = "there is no such bucket; make it first"


def test_of_several_who_create_a_file_together_one_does(google_bucket):
    told, together = [], threading.Barrier(8, timeout=60)
    file = RemotePath("gs://bucket/out/driver.json", QUICK)

    def create(content):
        together.wait()
        told.append((file.create(content), content))

    threads = [threading.Thread(target=create, args=(b"%d" % number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (content for created, content in told if created)
    assert file.read() == winner
    assert google_bucket.refused == 7


def test_a_missing_bucket_is_reported_immediately_with_its_cure(google_bucket):
    none = RemotePath("gs://none/out", QUICK)
    for action in (
        lambda: list(none.list()),
        lambda: (none / "a").write("x"),
        lambda: (none / "a").create(b"x"),
    ):
        before = google_bucket.requests
        with pytest.raises(StoreError, match=MISSING):
            action()
        assert google_bucket.requests == before + 1
    with pytest.raises(StoreError, match="is not there; correct the address"):
        RemotePath("gs://bucket/none", QUICK).read()


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_reported_immediately_in_one_line(google_bucket, status, capfd):
    google_bucket.only = status
    before = google_bucket.requests
    with pytest.raises(StoreError, match="access is denied; check the credentials") as caught:
        RemotePath("gs://bucket/a", QUICK).read()
    assert google_bucket.requests == before + 1
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""
    with pytest.raises(StoreError, match="access is denied; check the credentials"):
        RemotePath("gs://bucket/a", QUICK).exists()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_busy_server_is_asked_as_often_as_the_settings_say(google_bucket, status):
    google_bucket.only = status
    with pytest.raises(StoreError, match="3 times in a row; see whether its server is up"):
        RemotePath("gs://bucket/a", QUICK.model_copy(update={"attempts": 3})).read()
    assert google_bucket.requests == 3


BOUNDARY = b"a file may\n--==0==--\nhold gcsfs's own boundary"


@pytest.mark.parametrize(
    "content", [b"", b"ends in a return\r", BOUNDARY, b'{"json": 1}', bytes(range(256))]
)
@pytest.mark.parametrize("way", ["write", "put"])
def test_bytes_arrive_as_they_are(google_bucket, content, way, tmp_path):
    file = RemotePath("gs://bucket/a/b c+ä%.json", QUICK)
    (tmp_path / "source").write_bytes(content)
    if way == "write":
        file.write(content)
    else:
        file.put(tmp_path / "source")
    assert file.read() == content
    file.fetch(tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


# gcsfs's own, of its parts
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_a_file_that_goes_in_parts_arrives_whole(google_bucket, tmp_path):
    content = bytes(range(256)) * 4096 * 6  # 6 MiB
    (tmp_path / "source").write_bytes(content)
    file = RemotePath("gs://bucket/large.bin", QUICK)
    file.put(tmp_path / "source")
    assert file.read() == content


def test_what_another_one_removed_in_between_is_removed(google_bucket):
    file = RemotePath("gs://bucket/claim", QUICK)
    file.write("x")
    file.remove()
    file.remove()
    assert not file.exists()


def test_credentials_that_cannot_be_renewed_for_now_are_tried_again():
    class TransportError(Exception):
        pass

    class HttpError(Exception):
        code = 401

    passing, lasting = HttpError(), HttpError()
    passing.__cause__ = TransportError()
    assert retry_reason(passing) == "the connection failed"
    assert retry_reason(lasting) is None
    assert "access is denied" in failure_reason(lasting)
