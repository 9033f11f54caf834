"""Links and live sources that lead where they should not: private addresses in any spelling, names
that change their meaning, other programs of this machine, and secrets of an address."""

import json
import os
import socket

import pytest
from web_server import serve

from stepline.errors import MediaError, SettingsError
from stepline.files.remote.addresses import NamedHost, connect_checked, display_url
from stepline.live.events import LiveLog
from stepline.live.forward_proxy import ForwardProxy
from stepline.live.source import LiveSource, parse_sources
from stepline.media.http import LinkLimits
from stepline.media.links import fetch_link, find_links
from stepline.media.page_videos import limited_youtube_dl
from stepline.media.settings import LinkSettings

OURS = LinkSettings(private=True, pause=0.001, seconds=60.0, attempts=2)
PUBLIC = OURS.model_copy(update={"private": False})

# Ways to name this machine or what lies next to it, with the port of a server that listens there.
HOSTS = """127.0.0.1 127.1 127.0.1 0177.0.0.1 0x7f.0.0.1 0x7f000001 2130706433 017700000001 0 0.0.0.0
localhost LOCALHOST localhost. [::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1]
[::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::7f00:1] [fec0::1] user@127.0.0.1
8.8.8.8@127.0.0.1 ①②⑦.⓪.⓪.①"""
PRIVATE_SPELLINGS = [f"http://{host}:{{}}/v.mp4" for host in HOSTS.split()]
PRIVATE_SPELLINGS.append("http://127.0.0.1:{}#@8.8.8.8/v.mp4")


@pytest.fixture
def server(small_video):
    with serve() as running:
        running.video = small_video.read_bytes()
        running.pages["/v.mp4"] = running.video
        yield running


def fetch(url, folder, settings=OURS):
    return [fetch_link(link, folder) for link in find_links(url, folder, settings)]


@pytest.mark.parametrize("spelling", PRIVATE_SPELLINGS)
def test_a_private_address_is_refused_in_every_spelling(server, tmp_path, spelling):
    with pytest.raises(MediaError) as caught:
        fetch(spelling.format(server.server_port), tmp_path, PUBLIC)
    assert "\n" not in str(caught.value)
    assert server.asked == []


NO_ADDRESSES = (
    *"http://[bad/ http://[::1/ http://[::zz]/ http://a:b/v.mp4 http://a:99999/v.mp4".split(),
    *"http://:80/ http:///v.mp4 http://..example/ http://%/".split(),
    *("http://\udcff/v.mp4", "http://" + "a" * 70 + ".example/", "http://a\x00b/"),
)


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_an_invalid_address_ends_in_one_line(url, tmp_path):
    with pytest.raises(MediaError) as caught:
        fetch(url, tmp_path)
    assert "\n" not in str(caught.value)


def test_invalid_addresses_end_no_batch(server, tmp_path, stepline):
    urls = [url for url in NO_ADDRESSES if "\x00" not in url]
    options = ("--backbone", "none", "--set", "links.private=true", "--set", "links.pause=0")
    result = stepline("steps", *urls, f"{server.url}/v.mp4", *options, "--out", tmp_path)
    assert result.exit_code == 1
    assert f"1 of {len(urls) + 1} videos done, {len(urls)} failed" in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("stepline: http")]
    assert len(errors) == len(urls), result.stderr


@pytest.mark.parametrize(
    "url", ["http://[bad/", "rtsp://[bad/", "http://a:b/", "rtmp://a:99999/x", "udp://"]
)
def test_an_invalid_live_address_is_reported_with_its_cure(url):
    with pytest.raises(SettingsError, match="correct the address"):
        parse_sources(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:secret@a.example/v?key=secret#secret", "http://a.example/v"),
        ("http://user:secret@[bad/v?key=secret", "http://[bad/v"),
        ("rtsp://user:se@cret@a.example/v", "rtsp://a.example/v"),
        ("http://a.example?secret", "http://a.example"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url, shown):
    assert display_url(url) == shown


SMIL = """<smil><body><switch>
<video streamer="rtmp://127.0.0.1:{port}/live/" src="whisk.flv" system-bitrate="500000"/>
{more}</switch></body></smil>"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder first on PATH with programs that write down that they ran."""
    folder = tmp_path / "bin"
    folder.mkdir()
    ran = tmp_path / "ran"
    for name in ("rtmpdump", "ffmpeg", "ffprobe", "avconv", "phantomjs", "curl", "mplayer", "mpv"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{name} $@" >> {ran}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: ran.read_text() if ran.exists() else ""


@pytest.mark.parametrize("private", [True, False])
def test_a_page_whose_video_comes_by_rtmp_runs_no_other_program(
    server, tmp_path, programs, private, monkeypatch
):
    monkeypatch.setattr("stepline.files.remote.addresses.is_public", lambda _: True)
    settings = OURS.model_copy(update={"private": private})
    server.pages["/page"] = SMIL.format(port=server.server_port, more="")
    with pytest.raises(MediaError, match="comes by 'rtmp'"):
        fetch(f"{server.url}/page", tmp_path / "downloads", settings)
    assert programs() == ""


def test_of_a_video_that_comes_in_two_ways_the_safe_one_is_fetched(server, tmp_path, programs):
    more = f'<video src="{server.url}/v.mp4" system-bitrate="100000"/>'
    server.pages["/page"] = SMIL.format(port=server.server_port, more=more)
    (video,) = fetch(f"{server.url}/page", tmp_path / "downloads")
    assert video.path.read_bytes() == server.video
    assert programs() == ""


@pytest.mark.parametrize(
    "protocol", ["rtmp", "rtsp", "mms", "f4m", "ism", "websocket_frag", "m3u8+rtmp", "rtmp_ffmpeg"]
)
def test_only_http_hls_and_dash_are_fetched(tmp_path, programs, protocol):
    info = {"url": "http://127.0.0.1:1/x", "protocol": protocol, "ext": "mp4", "id": "x"}
    refused = pytest.raises(MediaError, match="which is not fetched")
    with limited_youtube_dl(LinkLimits(OURS), {}) as downloader, refused:
        downloader.dl(str(tmp_path / "x.mp4"), info)
    assert programs() == ""


def test_an_extractor_finds_no_phantomjs(programs):
    from yt_dlp.extractor.openload import PhantomJSwrapper
    from yt_dlp.utils import ExtractorError

    with limited_youtube_dl(LinkLimits(OURS), {}) as downloader, pytest.raises(ExtractorError):
        PhantomJSwrapper(downloader.get_info_extractor("Generic"))
    assert programs() == ""


class Names:
    """Stands for the names of the network: `meanings` of a host, one a question, the last for
    ever."""

    def __init__(self, meanings):
        self.meanings = {host: list(answers) for host, answers in meanings.items()}

    def resolve(self, host, port, *_, **__):
        answers = self.meanings.get(host, [host])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port))]


def may_connect(named, host, port):
    try:
        connect_checked((host, port), 5.0, named=named).close()
    except MediaError:
        return False
    return True


@pytest.fixture
def names(monkeypatch):
    """Gives hosts of the network their meanings; 127.0.0.2 stands for the public internet."""
    public = "stepline.files.remote.addresses.is_public"
    monkeypatch.setattr(public, lambda address: address == "127.0.0.2")
    return lambda meanings: monkeypatch.setattr(socket, "getaddrinfo", Names(meanings).resolve)


def test_a_named_host_that_becomes_private_is_refused(server, names):
    names({"cam.example": ["127.0.0.2", "127.0.0.1"], "home.example": ["127.0.0.1"]})
    with serve("127.0.0.2") as public:
        rebound = NamedHost("cam.example")
        assert may_connect(rebound, "cam.example", public.server_port)
        assert not may_connect(rebound, "cam.example", server.server_port)
    home = NamedHost("Home.example")
    assert may_connect(home, "home.example", server.server_port)
    assert may_connect(home, "home.example", server.server_port)
    assert not may_connect(home, "cam.example", server.server_port)


def test_a_live_source_that_becomes_private_between_connections_is_left(server, names):
    """The first connection is cut, the second one would be to this machine."""
    # The system's own resolver is asked by nobody else: FFmpeg asks the proxy.
    names({"cam.example": ["127.0.0.2", "127.0.0.1"]})
    asked = []

    def cut(handler):
        asked.append("public")
        handler.send_response(200)
        handler.end_headers()

    with serve("127.0.0.2") as public:
        public.pages["/v.ts"] = cut
        (address,) = parse_sources(f"http://cam.example:{public.server_port}/v.ts")
        source = LiveSource(address, links=PUBLIC)
        faults = []
        for _ in range(2):
            with pytest.raises(MediaError) as caught:
                list(source)
            faults.append(str(caught.value))
    assert asked == ["public"]
    assert "private address" not in faults[0]
    assert "127.0.0.1 is a private address" in faults[1]


def test_the_proxy_keeps_what_the_host_is_over_connections(server, monkeypatch):
    monkeypatch.setattr("stepline.files.remote.addresses.is_public", lambda _: False)
    named = NamedHost("127.0.0.1")
    for _ in range(2):
        proxy = ForwardProxy(named, PUBLIC)
        with proxy, socket.create_connection(proxy.server_address) as line:
            line.sendall(f"GET {server.url}/v.mp4 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert line.recv(100).split()[1] == b"200"


SECRET = "hunter2"


def test_no_secret_of_a_live_address_is_written_or_said(server, tmp_path, stepline):
    url = server.url.replace("http://", f"http://user:{SECRET}@") + f"/v.mp4?key={SECRET}"
    server.pages[f"/v.mp4?key={SECRET}"] = server.video
    out = tmp_path / "out"
    given = ("--backbone", "none", "--speed", "1000", "--out", out, "--at-end", out)
    run = stepline("live", url, *given)
    assert run.exit_code == 0, run.stderr
    started = json.loads(run.stdout.splitlines()[0])
    assert started["source"] == f"{server.url}/v.mp4"
    written = b"".join(file.read_bytes() for file in out.rglob("*") if file.is_file())
    assert SECRET.encode() not in written
    assert SECRET not in run.stdout + run.stderr


def test_no_secret_is_said_of_a_live_address_that_breaks_off(server, tmp_path, stepline):
    url = server.url.replace("http://", f"http://user:{SECRET}@") + f"/v.ts?key={SECRET}"

    def broken(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        handler.wfile.write(server.video[:20000])

    for page in (broken, None, "http://127.0.0.1:1/x", b"no video"):
        server.pages["/v.ts"] = page
        server.pages[f"/v.ts?key={SECRET}"] = page
        given = ("--backbone", "none", "--set", "links.attempts=1", "--set", "links.pause=0.01")
        run = stepline("live", "-v", url, *given, "--out", tmp_path, "--force")
        written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert SECRET not in run.stdout + run.stderr + written.decode("utf-8", "replace")


def test_a_run_goes_on_with_its_own_address_alone(server, tmp_path, stepline):
    """Two addresses that differ in their query alone are two sources."""
    given = ("--backbone", "none", "--speed", "1000", "--out", tmp_path)
    for query in ("a", "b"):
        server.pages[f"/v.mp4?cam={query}"] = server.video
    first = stepline("live", f"{server.url}/v.mp4?cam=a", *given)
    assert first.exit_code == 0, first.stderr
    (path,) = tmp_path.glob("*.events.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1]))  # as of a run that was killed
    other = stepline("live", f"{server.url}/v.mp4?cam=b", *given)
    assert other.exit_code == 1
    assert "holds a run of" in other.stderr
    assert "cam=" not in other.stderr
    again = stepline("live", f"{server.url}/v.mp4?cam=a", *given)
    assert again.exit_code == 0, again.stderr
    assert LiveLog(path).last.event == "finished"
