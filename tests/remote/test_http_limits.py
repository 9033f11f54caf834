"""Sources over http: which hosts and addresses they may lead to, and how much a hostile server can
make them take."""

import gzip
import socket

import pytest
from web_server import serve

from stepline.curate.settings import SourceSettings
from stepline.curate.sources.read import read_source
from stepline.curate.stage import VideoItem
from stepline.errors import DatasetError, StoreError
from stepline.files.remote import RemotePath
from stepline.files.remote.addresses import is_public
from stepline.files.remote.filesystems import host_of, redirect_refusal
from stepline.files.remote.settings import RemoteSettings

pytest.importorskip("aiohttp", reason="needs aiohttp")

QUICK = RemoteSettings(pause=0.001, seconds=60.0, block=1, attempts=2)
OURS = QUICK.model_copy(update={"private": True})  # the tests' own server is on this machine


def ours(**limits):
    return OURS.model_copy(update=limits)


@pytest.fixture
def server():
    with serve() as running:
        yield running


PRIVATE = """
127.0.0.1 127.8.8.8 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1
239.1.1.1 240.0.0.1 255.255.255.255 198.18.0.1 192.88.99.1 ::1 :: fe80::1%eth0 fc00::1 ff02::1
fec0::1 feff::1 2001:db8::1 5f00::1 fd00::1 fd00:ec2::254 100.100.100.200 168.63.129.16
::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:168.63.129.16 ::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8
::127.0.0.1 ::10.0.0.1 ::8.8.8.8 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::168.63.129.16
64:ff9b:1::1 64:ff9b:1::8.8.8.8 2002:7f00:1:: 2002:c0a8:101::1 2002:a83f:8110::1
2001:470::5efe:7f00:1 2001:470::200:5efe:a00:1
""".split()
PUBLIC = """
8.8.8.8 93.184.216.34 2606:2800:220:1::1 2606:4700::1111 64:ff9b::808:808 ::ffff:8.8.8.8
2001:470::200:1:a00:1
""".split()


def test_private_and_public_addresses_are_known_in_every_form():
    assert [address for address in (*PRIVATE, *PUBLIC) if is_public(address)] == PUBLIC


def test_a_private_address_is_refused_before_anything_is_sent(server):
    server.pages["/a.bin"] = b"secret"
    with pytest.raises(
        StoreError, match="127.0.0.1 is a private address; where you trust it, --set places.private"
    ):
        RemotePath(f"{server.url}/a.bin", QUICK).read()
    assert server.asked == []
    assert RemotePath(f"{server.url}/a.bin", OURS).read() == b"secret"


@pytest.mark.parametrize(
    "url", ["http://2130706433:{}/a", "http://0x7f.1:{}/a", "http://[::ffff:127.0.0.1]:{}/a"]
)
def test_a_private_address_in_another_spelling_is_refused(server, url):
    with pytest.raises(StoreError):
        RemotePath(url.format(server.server_port), QUICK).read()
    assert server.asked == []


def test_a_name_that_means_a_private_address_is_refused_whatever_it_meant_before(
    server, monkeypatch
):
    """The address that is looked at is the one that is connected to: a name cannot change its
    meaning in between."""
    asked = []

    def resolve(host, port, *_, **__):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(StoreError, match="127.0.0.1 is a private address"):
        RemotePath(f"http://public.example:{server.server_port}/a.bin", QUICK).read()
    assert (asked, server.asked) == (["public.example"], [])


def test_a_redirect_to_another_host_is_refused_unless_allowed(server):
    there = f"http://localhost:{server.server_port}/a.bin"
    server.pages |= {"/here": "/a.bin", "/there": there, "/a.bin": b"x"}
    assert RemotePath(f"{server.url}/here", OURS).read() == b"x"
    for method in (RemotePath.read, RemotePath.size, RemotePath.fingerprint):
        server.asked.clear()
        with pytest.raises(
            StoreError, match=r"leads to another host; .*places.hosts=\[\"localhost\"\]"
        ):
            method(RemotePath(f"{server.url}/there", OURS))
        assert set(server.asked) == {"/there"}
    for hosts in (("localhost",), ("*",)):
        assert RemotePath(f"{server.url}/there", ours(hosts=hosts)).read() == b"x"


def test_a_redirect_from_https_to_http_is_refused_on_any_host():
    anywhere = ours(hosts=("*",))
    assert "from https to http" in redirect_refusal(
        "https://a.example/x", "http://a.example/x", anywhere
    )
    assert redirect_refusal("http://a.example/x", "https://A.example/y", OURS) is None
    assert "another host" in redirect_refusal(
        "https://a.example/x", "https://a.example.evil/x", OURS
    )


def test_a_redirect_to_a_file_or_without_end_is_one_line(server):
    server.pages |= {"/file": "file:///etc/passwd", "/round": "/round"}
    for path in server.pages:
        with pytest.raises(StoreError) as caught:
            RemotePath(server.url + path, OURS).read()
        assert "\n" not in str(caught.value)
    assert len(server.asked) < 50


def test_an_answer_longer_than_asked_for_is_cut_off(server):
    def endless(request):
        request.send_response(206)
        request.end_headers()
        try:
            while True:
                request.wfile.write(b"x" * 65536)
        except OSError:
            server.cut_off = True

    server.pages["/a.bin"] = endless
    with pytest.raises(StoreError, match="sent more than the 10 bytes that may come"):
        RemotePath(f"{server.url}/a.bin", OURS).read(0, 10)
    with pytest.raises(StoreError, match="sent more than the 1048576 bytes"):
        RemotePath(f"{server.url}/a.bin", ours(largest=1)).read()


def test_a_file_too_large_too_slow_or_of_no_size_is_refused(server, tmp_path):
    def of_size(length):
        def answer(request):
            request.send_response(200)
            if length is not None:
                request.send_header("Content-Length", str(length))
            request.end_headers()

        return answer

    server.pages |= {"/huge": of_size(2**60), "/unknown": of_size(None), "/slow": b"x" * 2**21}
    for path, limits, reason in (
        ("/huge", {}, "bytes are more than places.largest=32768 MiB"),
        ("/unknown", {}, "its server does not state its size"),
        ("/slow", {"longest": 1e-9}, "takes longer than places.longest=1e-09 s"),
    ):
        with pytest.raises(StoreError, match=reason):
            RemotePath(server.url + path, ours(**limits)).fetch(tmp_path / "copy")
    assert not list(tmp_path.iterdir())


def listed(url, settings):
    """What becomes of a list's rows: id -> address or reason."""
    entries = read_source(url, SourceSettings(stamps=False), settings)
    return {
        entry.id: entry.video if isinstance(entry, VideoItem) else entry.reason for entry in entries
    }


ROWS = {
    "own": "films/a.mp4",
    "whole": "{url}/a.mp4",
    "path": "/etc/passwd",
    "up": "../../../etc/passwd",
    "double": "//evil.example/a.mp4",
    "file": "file:///etc/passwd",
    "part": "/etc/passwd#bytes=0-9/a.mp4",
    "parts": "file:///etc/passwd#bytes=0-9/a#bytes=0-5/a.mp4",
    "memory": "memory://a/b.mp4",
    "bucket": "s3://bucket/a.mp4",
    "other": "http://169.254.169.254/latest/meta-data",
    "user": "http://127.0.0.1@evil.example/a.mp4",
    "slash": "http://evil.example\\@127.0.0.1/a.mp4",
    "upper": "FILE:///etc/passwd",
    "broken": "http://[/a.mp4",
}


def test_a_list_from_elsewhere_names_files_of_its_own_host_alone(server):
    lines = [f"{id},{video.format(url=server.url)}" for id, video in ROWS.items()]
    server.pages["/lists/videos.csv"] = "\n".join(["id,video", *lines]).encode()
    found = listed(f"{server.url}/lists/videos.csv", OURS)
    taken = {id: address for id, address in found.items() if not address.startswith("its row")}
    assert taken == {
        "own": f"{server.url}/lists/films/a.mp4",
        "whole": f"{server.url}/a.mp4",
        # of the same server, as every browser reads it
        "up": f"{server.url}/lists/../../../etc/passwd",
    }
    refused = {id for id, reason in found.items() if "names a file of this machine" in reason}
    assert refused == {"path", "double", "file", "part", "parts"}
    cure = "where you trust it, --set 'places.hosts=[\"169.254.169.254\"]'"
    assert found["other"] == f"its row names another host; {cure}"
    more = listed(f"{server.url}/lists/videos.csv", ours(files=True, hosts=("s3://",)))
    assert (more["path"], more["bucket"]) == ("/etc/passwd", "s3://bucket/a.mp4")
    assert more["memory"].startswith("its row names another host")


def test_a_list_of_this_machine_names_what_it_likes(tmp_path):
    (tmp_path / "videos.csv").write_text("id,video\na,/films/a.mp4\nb,http://else.example/b.mp4\n")
    assert listed(str(tmp_path / "videos.csv"), QUICK) == {
        "a": "/films/a.mp4",
        "b": "http://else.example/b.mp4",
    }


def test_a_list_of_too_many_rows_is_refused(server):
    server.pages["/videos.csv"] = b"id,video\n" + b"".join(
        b"%d,v.mp4\n" % number for number in range(5)
    )
    assert len(listed(f"{server.url}/videos.csv", ours(most=6))) == 5
    with pytest.raises(DatasetError, match="more rows than places.most=3"):
        listed(f"{server.url}/videos.csv", ours(most=3))


def test_a_table_of_too_many_videos_is_refused(server):
    rows = b"".join(b"v%d,Food,7\n" % number for number in range(5))
    server.pages["/HowTo100M_v1.csv"] = b"video_id,category_1,task_id\n" + rows
    address = f"{server.url}/HowTo100M_v1.csv"
    assert len(listed(address, OURS)) == 5
    with pytest.raises(DatasetError, match="more videos than places.most=3"):
        listed(address, ours(most=3))


@pytest.mark.parametrize("name", ["v.csv.gz", "v.jsonl.gz"])
def test_a_packed_list_that_goes_on_and_on_is_refused(server, name):
    patient = ours(seconds=300.0)
    line = b'{"id": "a", "video": "' if "json" in name else b"id,video\na,"
    server.pages[f"/{name}"] = gzip.compress(line + b"x" * 2**21)
    with pytest.raises(DatasetError, match="a line has 1048576 characters and more"):
        listed(f"{server.url}/{name}", patient)
    server.pages[f"/{name}"] = gzip.compress(
        b'{"id": "a", "video": "v.mp4"}\n' * 50_000
        if "json" in name
        else b"id,video\n" + b"a,v.mp4\n" * 200_000
    )
    with pytest.raises(DatasetError, match="unpacks to more than places.largest"):
        listed(f"{server.url}/{name}", patient.model_copy(update={"largest": 1}))


def test_a_listing_of_too_many_files_is_refused(server):
    server.pages["/films"] = b"".join(b'<a href="%d.mp4">' % number for number in range(9))
    with pytest.raises(StoreError, match="lists more than places.most=4 files"):
        list(RemotePath(f"{server.url}/films", ours(most=4)).list())


def test_hosts_are_known_by_name_and_kind():
    urls = ("HTTPS://A.example:8/x", "http://u:p@b/", "s3a://b/x", "gcs://b", "ftp://c/x")
    assert [host_of(url) for url in urls] == ["a.example", "b", "s3://", "gs://", "ftp://"]
