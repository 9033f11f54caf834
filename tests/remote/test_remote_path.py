import errno
import logging
import os
import shutil
import time

import pytest
from forget import forget_file_systems
from s3_server import SECRET
from web_server import serve

from stepline.errors import StoreError
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings

QUICK = RemoteSettings(pause=0.001, seconds=60.0, block=1)
BIG = bytes(range(256)) * 4096 * 3  # 3 MiB: three blocks


SERVERS = {"s3": "bucket", "gs": "google_bucket"}  # kind -> the fixture that serves it


@pytest.fixture(params=["local", "memory", "s3", "gs"])
def root(request, tmp_path):
    if request.param in SERVERS:
        request.getfixturevalue(SERVERS[request.param])
    urls = {"local": str(tmp_path), "memory": f"memory://{tmp_path.name}"}
    return RemotePath(urls.get(request.param, f"{request.param}://bucket/some"), QUICK)


def test_what_is_written_is_read_listed_and_stamped_alike_everywhere(root, tmp_path):
    file = root / "a" / "one.bin"
    assert not file.exists()
    file.write(b"0123456789")
    (root / "two.txt").write("zwei")
    assert file.exists()
    assert file.read() == b"0123456789"
    assert file.read(2, 5) == b"234"
    assert file.size() == 10
    entries = {entry.name: entry for entry in root.list()}
    assert set(entries) == {"a/one.bin", "two.txt"}
    assert entries["a/one.bin"].size == 10
    assert entries["a/one.bin"].fingerprint == file.fingerprint()
    assert file.fetch(tmp_path / "copy") == file.fingerprint()
    assert (tmp_path / "copy").read_bytes() == b"0123456789"
    file.remove()
    file.remove()
    assert not file.exists()


def test_a_changed_file_has_another_stamp(root):
    file = root / "one.txt"
    file.write("before")
    before = file.fingerprint()
    time.sleep(0.02)
    file.write("behind")
    assert file.fingerprint() != before


def test_large_files_go_and_come_in_blocks_and_can_be_read_from_anywhere(root, tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(BIG)
    (root / "big.bin").put(source)
    (root / "big.bin").fetch(tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == BIG
    with (root / "big.bin").open() as file:
        file.seek(1_500_000)
        assert file.read(4) == BIG[1_500_000:1_500_004]
        assert file.read() == BIG[1_500_004:]


def test_a_part_of_a_file_is_a_file(root, tmp_path):
    (root / "shard.tar").write(b"0123456789")
    part = RemotePath(f"{root.url}/shard.tar#bytes=2-6/clip.mp4", QUICK)
    assert part.name == "clip.mp4"
    assert (part.read(), part.read(1, 3), part.size(), part.local) == (b"2345", b"34", 4, None)
    part.fetch(tmp_path / "clip.mp4")
    assert (tmp_path / "clip.mp4").read_bytes() == b"2345"
    assert part.fingerprint().startswith((root / "shard.tar").fingerprint())
    with pytest.raises(StoreError, match="a part of a file cannot be written"):
        part.write(b"")


def test_hidden_files_are_not_listed(tmp_path):
    for name in ("seen.txt", ".hidden", ".git/config"):
        (RemotePath(str(tmp_path)) / name).write("x")
    assert [entry.name for entry in RemotePath(str(tmp_path)).list()] == ["seen.txt"]


def test_what_is_removed_while_a_folder_is_listed_is_not_there(tmp_path):
    """As the checkpoints of a training, while `curate status` looks."""
    for name in ("a", "b", "c/d", "e"):
        (RemotePath(str(tmp_path)) / name).write("x")
    listed = []
    for entry in RemotePath(str(tmp_path)).list():
        listed.append(entry.name)
        if entry.name == "a":
            (tmp_path / "b").unlink()
            shutil.rmtree(tmp_path / "c")
    assert listed == ["a", "e"]


# gcsfs asks two things at once, one of which would always fail where every second does.
@pytest.mark.parametrize(("kind", "every", "failed"), [("s3", 2, 5), ("gs", 3, 3)])
def test_injected_500s_and_503s_are_tried_again(kind, every, failed, tmp_path, request):
    bucket = request.getfixturevalue(SERVERS[kind])
    bucket.every = every
    root = RemotePath(f"{kind}://bucket/run", QUICK)
    for name in ("a.bin", "b.bin"):
        (root / name).write(BIG)
    assert [entry.name for entry in root.list()] == ["a.bin", "b.bin"]
    (root / "a.bin").fetch(tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == BIG
    assert bucket.failed >= failed


def test_a_slow_read_is_given_up_and_asked_for_again(bucket, tmp_path):
    settings = RemoteSettings(pause=0.001, seconds=2.0, block=1)
    file = RemotePath("s3://bucket/slow.bin", settings)
    file.write(BIG)
    bucket.slow_every, bucket.slow_seconds = 3, 6.0
    file.fetch(tmp_path / "slow.bin")
    assert (tmp_path / "slow.bin").read_bytes() == BIG
    assert bucket.slowed >= 1


@pytest.mark.parametrize("kind", SERVERS)
def test_listings_of_more_than_a_page_are_whole(kind, monkeypatch, request):
    bucket = request.getfixturevalue(SERVERS[kind])
    monkeypatch.setattr("stepline.files.remote.filesystems.PAGE_OBJECTS", 3)
    many = RemotePath(f"{kind}://bucket/many", QUICK)
    for number in range(8):
        (many / f"{number}.txt").write("x")
    (RemotePath(f"{many.url}-more", QUICK) / "other.txt").write("x")
    bucket.every = 3
    assert [entry.name for entry in many.list()] == [f"{number}.txt" for number in range(8)]


def test_a_server_that_never_recovers_ends_in_one_line_and_leaves_no_file(bucket, tmp_path):
    RemotePath("s3://bucket/a.bin", QUICK).write(BIG)
    bucket.only = ("500 Internal Server Error", b"InternalError")
    with pytest.raises(
        StoreError, match="answered 500, 10 times in a row; see whether its server is up"
    ) as caught:
        RemotePath("s3://bucket/a.bin", QUICK).fetch(tmp_path / "a.bin")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (("403 Forbidden", b"AccessDenied"), "access is denied; check the credentials"),
        (("403 Forbidden", b"SignatureDoesNotMatch"), "does not know these credentials"),
        (("404 Not Found", b"NoSuchBucket"), "no such bucket; make it first"),
        (("404 Not Found", b"NoSuchKey"), "is not there; correct the address"),
    ],
)
def test_a_refusal_is_reported_immediately_with_its_cure_and_without_a_secret(
    bucket, answer, message, caplog
):
    caplog.set_level(logging.DEBUG, logger="stepline")
    bucket.only = answer
    before = bucket.requests
    with pytest.raises(StoreError, match=message) as caught:
        list(RemotePath("s3://bucket/folder", QUICK).list())
    assert bucket.requests == before + 1
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value) + caplog.text


def test_missing_credentials_are_reported_with_their_names(bucket, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    forget_file_systems()
    with pytest.raises(StoreError, match="no credentials were found; set AWS_ACCESS_KEY_ID"):
        RemotePath("s3://bucket/a.bin", QUICK).read()


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path, monkeypatch):
    root = RemotePath(f"memory://{tmp_path.name}", QUICK)
    file = root / "film.bin"
    file.write(BIG)
    read = RemotePath.read

    def replaced(self, *limits):
        monkeypatch.setattr(RemotePath, "read", read)
        data = read(self, *limits)
        time.sleep(0.02)
        self.write(BIG[::-1])
        return data

    monkeypatch.setattr(RemotePath, "read", replaced)
    with pytest.raises(StoreError, match="it changed while it was read"):
        file.fetch(tmp_path / "film.bin")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_and_an_unknown_kind_name_the_cure(monkeypatch):
    def lacks(*arguments, **options):
        raise ImportError("Install s3fs to access S3")

    forget_file_systems()
    monkeypatch.setattr("fsspec.filesystem", lacks)
    with pytest.raises(
        StoreError,
        match=r"s3:// needs the package s3fs; pip install -c constraints.txt 'stepline\[cloud\]'",
    ):
        RemotePath("s3://bucket/a").read()
    with pytest.raises(StoreError, match=r"s4://: no such kind of address; did you mean s3"):
        RemotePath("s4://bucket/a").read()


def test_messages_show_no_password_and_no_signed_query():
    remote = RemotePath("https://user:password@host/folder/film.mp4?signature=abc")
    assert remote.display_url == "https://host/folder/film.mp4"
    assert repr(remote) == "RemotePath('https://host/folder/film.mp4')"
    assert remote.name == "film.mp4"


def test_files_of_a_web_server_are_fetched():
    pytest.importorskip("aiohttp", reason="needs aiohttp")

    def without_ranges(request):
        request.send_response(200)
        request.send_header("Content-Length", "400")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(b"film" * 100)

    private = QUICK.model_copy(update={"private": True})
    with serve() as server:
        server.pages["/film.bin"] = without_ranges
        remote = RemotePath(f"{server.url}/film.bin", private)
        assert remote.read() == b"film" * 100
        assert remote.exists()
        with pytest.raises(StoreError, match="is not there"):
            RemotePath(f"{server.url}/none.bin", private).read()


def test_a_disk_that_refuses_is_reported_in_one_line(tmp_path):
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StoreError, match="cannot be written"):
            (RemotePath(str(tmp_path)) / "file" / "below").write("x")
    with pytest.raises(StoreError, match="is a folder; give a file"):
        RemotePath(str(tmp_path)).read()


PLACES = [
    "disk",
    "memory",
    "bucket",
    "google",
    "a disk without links",
    "a bucket without conditions",
]


@pytest.mark.parametrize("where", PLACES)
def test_a_file_is_created_once(where, tmp_path, monkeypatch, request):
    folder = RemotePath(f"memory://{tmp_path.name}" if where == "memory" else str(tmp_path / "out"))
    if where == "google":
        request.getfixturevalue("google_bucket")
        folder = RemotePath("gs://bucket/out", QUICK)
    if "bucket" in where:
        faults = request.getfixturevalue("bucket")
        folder = RemotePath("s3://bucket/out", RemoteSettings(attempts=2, pause=0.0))
    if "links" in where:
        monkeypatch.setattr(
            os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "not permitted"))
        )
    if "conditions" in where:
        serve = faults.app

        def without(environment, start):
            if "HTTP_IF_NONE_MATCH" not in environment:
                return serve(environment, start)
            environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            start("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<?xml version='1.0'?><Error><Code>NotImplemented</Code></Error>"]

        faults.app = without
    file = folder / "driver.json"
    assert file.create(b"first")
    assert not file.create(b"second")
    assert file.read() == b"first"
    assert [entry.name for entry in folder.list()] == ["driver.json"]


def test_a_file_whose_creation_was_not_answered_is_known_as_ones_own(bucket):
    file = RemotePath("s3://bucket/own.json", RemoteSettings(attempts=3, pause=0.0))
    serve, lost = bucket.app, []

    def answer_is_lost(environment, start):
        answer = serve(
            environment,
            (lambda *_: None) if environment["REQUEST_METHOD"] == "PUT" and not lost else start,
        )
        if environment["REQUEST_METHOD"] != "PUT" or lost:
            return answer
        lost.append(b"".join(answer))
        start("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"]

    bucket.app = answer_is_lost
    assert file.create(b"mine")
    assert lost
    assert not file.create(b"another's")
