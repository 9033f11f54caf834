"""Videos by their address, from a server on this machine: files, pages by yt-dlp, limits, what
breaks off."""

import re
import time

import av
import pytest
from web_server import serve

from stepline.errors import MediaError
from stepline.media import probe
from stepline.media.links import delete_downloads, fetch_link, find_links
from stepline.media.page_videos import _page_origin
from stepline.media.settings import LinkSettings
from stepline.pipeline.sources import is_link

# the tests' own server is on this machine
OURS = LinkSettings(private=True, pause=0.001, seconds=60.0, attempts=3)
PAGE = """<html><head><title>Whisking, explained</title></head>
<body><video src="/whisk.mp4"><track kind="subtitles" srclang="en" src="/whisk.vtt"></video></body></html>"""


@pytest.fixture
def server(small_video):
    with serve() as running:
        running.video = small_video.read_bytes()
        running.pages |= {"/whisk.mp4": running.video, "/page": PAGE}
        yield running


def fetch(url, folder, settings=OURS, **options):
    return [fetch_link(link, folder, **options) for link in find_links(url, folder, settings)]


def error_of(url, folder, settings=OURS, **options):
    with pytest.raises(MediaError) as caught:
        fetch(url, folder, settings, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_address_is_told_from_a_path():
    assert [
        is_link(name)
        for name in ("https://a.example/v.mp4", "HTTP://a/", "v.mp4", "http:/a", "a https://b")
    ] == [True, True, False, False, False]


def test_a_file_is_fetched_once_and_known_again(server, tmp_path):
    tmp_path /= "downloads"
    (video,) = fetch(f"{server.url}/whisk.mp4", tmp_path)
    assert video.path.name == "whisk.mp4"
    assert video.path.read_bytes() == server.video
    assert video.origin.url == f"{server.url}/whisk.mp4"
    assert (video.page, video.captions) == (False, None)
    server.asked.clear()
    assert fetch(f"{server.url}/whisk.mp4", tmp_path) == [video]
    assert server.asked == []
    delete_downloads(video.origin.url, tmp_path)
    assert not tmp_path.exists()


def ask_password(request):
    if request.headers.get("Authorization") == "Basic dTpwQHNz":  # u:p@ss
        request.answer(request.server.video)
    else:
        request.send_response(401)
        request.send_header("Content-Length", "0")
        request.end_headers()


def test_a_user_and_password_log_in_and_are_kept_nowhere(server, tmp_path):
    server.pages |= {"/own.mp4": ask_password, "/moved": "/own.mp4"}
    base = server.url.removeprefix("http://")
    for path in ("own.mp4?X-Sign=s3cret", "moved?X-Sign=s3cret"):
        server.pages[f"/{path}"] = server.pages[f"/{path.partition('?')[0]}"]
        url = f"http://u:p%40ss@{base}/{path}"
        (video,) = fetch(url, tmp_path)
        assert video.path.read_bytes() == server.video
        assert video.origin.url == f"{server.url}/{path.partition('?')[0]}"
        server.asked.clear()
        assert fetch(url, tmp_path) == [video]
        assert server.asked == []
    for file in tmp_path.rglob("*.json"):
        assert not re.search("s3cret|p@ss|p%40ss", file.read_text())
    assert "access is denied" in error_of(f"{server.url}/own.mp4", tmp_path)


def test_a_redirect_to_another_server_gets_no_password(server, tmp_path):
    with serve() as other:
        seen = []

        def see(request):
            seen.append(request.headers.get("Authorization"))
            request.answer(server.video)

        other.pages["/v.mp4"] = see
        server.pages["/away"] = f"{other.url}/v.mp4"
        fetch(f"{server.url.replace('//', '//u:p@')}/away", tmp_path)
    assert seen == [None, None]


def test_what_an_earlier_version_stored_of_an_address_is_not_handed_on(server, tmp_path):
    url = f"{server.url}/whisk.mp4?sign=s3cret"
    server.pages["/whisk.mp4?sign=s3cret"] = server.video
    fetch(url, tmp_path)
    (stored,) = tmp_path.rglob("link.json")
    stored.write_text(stored.read_text().replace('whisk.mp4",', 'whisk.mp4?sign=s3cret",', 1))
    assert "s3cret" in stored.read_text()
    (video,) = fetch(url, tmp_path)
    assert video.origin.url == f"{server.url}/whisk.mp4"


def test_of_the_query_of_a_page_the_id_of_its_video_stays():
    url = "https://u:p@a.example/watch?sign=s3cret&v=7&t=5"
    for id, expected in (("7", "https://a.example/watch?v=7"), ("x", "https://a.example/watch")):
        assert _page_origin(url, {"id": id}).url == expected
    short = {"id": "7", "webpage_url": "https://a.example/watch?v=7"}
    assert _page_origin("https://a.short/7?si=s3cret", short).url == "https://a.example/watch?v=7"


def test_a_page_keeps_no_secret_of_its_address(server, tmp_path):
    server.pages["/page?token=s3cret"] = PAGE
    (video,) = fetch(f"{server.url}/page?token=s3cret", tmp_path)
    assert (video.page, video.origin.url) == (True, f"{server.url}/page")
    assert "s3cret" not in next(tmp_path.rglob("link.json")).read_text()


def test_a_download_that_breaks_off_goes_on_where_it_was(server, tmp_path):
    cuts = iter([None, 1000, 3000])  # the first answer tells only what it is
    server.pages["/whisk.mp4"] = lambda request: request.answer(
        server.video, breaks_at=next(cuts, None)
    )
    (video,) = fetch(f"{server.url}/whisk.mp4", tmp_path)
    assert video.path.read_bytes() == server.video
    assert server.ranges == ["bytes=1000-", "bytes=4000-"]
    assert not list(tmp_path.glob("*/.*"))


def test_what_a_killed_run_left_is_gone_on_with_by_the_next(server, tmp_path):
    server.pages["/whisk.mp4"] = lambda request: request.answer(server.video, breaks_at=5000)
    once = OURS.model_copy(update={"attempts": 1})
    assert "cannot be fetched" in error_of(f"{server.url}/whisk.mp4", tmp_path, once)
    server.pages["/whisk.mp4"] = server.video
    (video,) = fetch(f"{server.url}/whisk.mp4", tmp_path)
    assert server.ranges == ["bytes=5000-"]
    assert video.path.read_bytes() == server.video


def test_a_file_that_changed_in_between_is_begun_again(server, tmp_path):
    server.pages["/whisk.mp4"] = lambda request: request.answer(b"old" * 3000, breaks_at=5000)
    error_of(f"{server.url}/whisk.mp4", tmp_path, OURS.model_copy(update={"attempts": 1}))
    (mark,) = tmp_path.glob("*/.*.mark")
    mark.write_text('"0"')  # the server's own is "1"
    server.pages["/whisk.mp4"] = server.video
    (video,) = fetch(f"{server.url}/whisk.mp4", tmp_path)
    assert video.path.read_bytes() == server.video


MANIFEST = """<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT16S"><Period>
<AdaptationSet mimeType="video/mp4">
<Representation id="small" bandwidth="1" codecs="avc1.4d401e" width="160" height="120"><BaseURL>p.mp4</BaseURL>
</Representation><Representation id="huge" bandwidth="9" codecs="avc1.4d401e" width="1600" height="1200">
<BaseURL>huge.mp4</BaseURL></Representation></AdaptationSet>
<AdaptationSet mimeType="audio/mp4"><Representation id="sound" bandwidth="1" codecs="mp4a.40.2"><BaseURL>s.m4a</BaseURL>
</Representation></AdaptationSet></Period></MPD>"""


@pytest.fixture
def apart(server, small_video, tmp_path):
    """The server, with a page that gives the picture and the sound of the small video as two
    files."""
    for kind, name in (("video", "p.mp4"), ("audio", "s.m4a")):
        with (
            av.open(str(small_video)) as whole,
            av.open(str(tmp_path / name), "w", format="mp4") as part,
        ):
            (stream,) = getattr(whole.streams, kind)
            track = part.add_stream_from_template(stream)
            for packet in whole.demux(stream):
                if packet.dts is not None:
                    packet.stream = track
                    part.mux(packet)
        server.pages[f"/{name}"] = (tmp_path / name).read_bytes()
    server.pages["/whisk.mpd"] = lambda request: request.answer(
        MANIFEST.encode(), kind="application/dash+xml"
    )
    return server


def test_picture_and_sound_that_come_apart_are_joined_as_they_are(apart, small_video, tmp_path):
    (video,) = fetch(f"{apart.url}/whisk.mpd", tmp_path / "downloads")
    assert video.path.name == "whisk.mkv"
    assert sorted(file.name for file in video.path.parent.iterdir()) == ["link.json", "whisk.mkv"]
    assert "/huge.mp4" not in apart.asked
    for kind in ("video", "audio"):
        with av.open(str(small_video)) as one, av.open(str(video.path)) as other:
            packets = [
                [bytes(packet) for packet in file.demux(getattr(file.streams, kind))]
                for file in (one, other)
            ]
        assert packets[0] == packets[1]
    info = probe(video.path)
    assert (info.has_picture, info.has_sound) == (True, True)
    assert info.duration == pytest.approx(16.0, abs=0.1)
    apart.asked.clear()
    assert fetch(f"{apart.url}/whisk.mpd", tmp_path / "downloads") == [video]
    assert apart.asked == []


def test_a_picture_without_sound_is_a_video_too(apart, tmp_path):
    silent = MANIFEST[: MANIFEST.index('<AdaptationSet mimeType="audio')] + "</Period></MPD>"
    apart.pages["/whisk.mpd"] = lambda request: request.answer(
        silent.encode(), kind="application/dash+xml"
    )
    (video,) = fetch(f"{apart.url}/whisk.mpd", tmp_path / "downloads")
    assert video.path.read_bytes() == apart.pages["/p.mp4"]


def test_a_track_that_is_not_what_its_page_says_is_reported_in_one_line(apart, tmp_path):
    apart.pages["/s.m4a"] = apart.pages["/p.mp4"]
    assert "holds no sound, as its site says it does" in error_of(
        f"{apart.url}/whisk.mpd", tmp_path / "downloads"
    )


def test_a_private_address_is_refused_before_anything_is_sent(server, tmp_path):
    public = OURS.model_copy(update={"private": False})
    said = error_of(f"{server.url}/whisk.mp4?key=secret", tmp_path, public)
    assert said.endswith(
        "whisk.mp4: 127.0.0.1 is a private address; where you trust it, --set links.private=true"
    )
    assert "secret" not in said
    assert server.asked == []


@pytest.mark.parametrize("path", ["/there.mp4", "/page"])
def test_a_redirect_to_a_private_address_is_refused(server, tmp_path, monkeypatch, path):
    """Also one that yt-dlp would follow. 127.0.0.2 stands for the public internet."""
    monkeypatch.setattr(
        "stepline.files.remote.addresses.is_public", lambda address: address == "127.0.0.2"
    )
    public = OURS.model_copy(update={"private": False})
    with serve("127.0.0.2") as elsewhere:
        elsewhere.pages["/there.mp4"] = f"{server.url}/whisk.mp4"
        elsewhere.pages["/page"] = PAGE.replace("/whisk.mp4", "/there.mp4")
        said = error_of(elsewhere.url + path, tmp_path, public)
    assert "127.0.0.1 is a private address" in said
    assert "/whisk.mp4" not in server.asked


@pytest.mark.parametrize(
    ("path", "limits", "reason"),
    [
        ("/whisk.mp4", {"longest": 1e-9}, "takes longer than links.longest = 1e-09 s"),
        ("/huge.mp4", {"largest": 1}, "larger than links.largest = 1 MiB"),
        ("/endless.mp4", {"largest": 1}, "larger than links.largest = 1 MiB"),
        ("/hugepage", {"largest": 1}, "larger than links.largest = 1 MiB"),
        ("/dripping.mp4", {"longest": 0.5}, "takes longer than links.longest = 0.5 s"),
        ("/silent.mp4", {"seconds": 0.1, "attempts": 1}, "cannot be fetched (timed out)"),
        ("/none.mp4", {}, "is not there; correct the address"),
        ("/busy.mp4", {"attempts": 2}, "the server answered 503; try again later"),
        ("/denied.mp4", {}, "access is denied"),
        ("/round.mp4", {}, "infinite loop"),
        ("/file.mp4", {}, "cannot be fetched"),
    ],
)
def test_a_server_that_is_slow_broken_or_hostile_ends_in_one_line(
    server, tmp_path, path, limits, reason
):
    server.pages |= {
        "/huge.mp4": huge,
        "/endless.mp4": endless,
        "/dripping.mp4": dripping,
        "/silent.mp4": silent,
        "/hugepage": PAGE.replace("/whisk.mp4", "/huge.mp4"),
        "/round.mp4": "/round.mp4",
        "/file.mp4": "file:///etc/passwd",
        "/busy.mp4": lambda request: request.send_error(503),
        "/denied.mp4": lambda request: request.send_error(403),
    }
    assert reason in error_of(server.url + path, tmp_path, OURS.model_copy(update=limits))
    assert not [
        file for file in tmp_path.rglob("*") if file.is_file() and not file.name.startswith(".")
    ]


def huge(request):
    request.send_response(200)
    request.send_header("Content-Length", str(2**40))
    request.end_headers()


def endless(request):
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b"x" * 65536)
    except OSError:
        pass


def dripping(request):
    request.send_response(200)
    request.send_header("Content-Length", "100000")
    request.end_headers()
    try:
        for _ in range(100):
            request.wfile.write(b"x")
            time.sleep(0.02)
    except OSError:
        pass


def silent(request):
    time.sleep(0.3)


def test_a_page_with_a_video_is_read_by_yt_dlp(server, tmp_path):
    server.pages["/whisk.vtt"] = b"WEBVTT\n\n00:01.000 --> 00:03.000\nWhisk the sugar.\n"
    (video,) = fetch(f"{server.url}/page", tmp_path)
    assert video.path.read_bytes() == server.video
    assert (video.page, video.origin.title) == (True, "Whisking, explained (1)")
    server.asked.clear()
    assert fetch(f"{server.url}/page", tmp_path) == [video]
    assert server.asked == []


def test_a_page_without_a_video_says_so(server, tmp_path):
    server.pages["/empty"] = "<html><body>Nothing moves here.</body></html>"
    assert error_of(f"{server.url}/empty", tmp_path).endswith(
        "/empty: no video is found on this page; give the address of the video itself"
    )


def test_a_page_with_two_videos_is_a_playlist(server, tmp_path):
    server.pages["/other.mp4"] = server.video + b"0000"
    server.pages["/two"] = (
        '<title>Two</title><video src="/whisk.mp4"></video><video src="/other.mp4"></video>'
    )
    server.pages["/two"] = f"<html>{server.pages['/two']}</html>"
    videos = fetch(f"{server.url}/two", tmp_path)
    assert [video.path.read_bytes() for video in videos] == [server.video, server.video + b"0000"]
    assert len(find_links(f"{server.url}/two", tmp_path, OURS.model_copy(update={"most": 1}))) == 1


def test_without_the_extra_a_page_says_what_to_install(server, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yt_dlp", None)
    assert (
        "a page, which needs yt_dlp, which is not installed; pip install -c constraints.txt 'stepline[links]'"
        in error_of(f"{server.url}/page", tmp_path)
    )
    assert fetch(f"{server.url}/whisk.mp4", tmp_path)


@pytest.mark.parametrize(
    ("body", "kind", "what"),
    [
        (b"<!DOCTYPE html><title>Sorry</title>", "video/mp4", "a web page (HTML)"),
        (b"\xef\xbb\xbf\n<HTML>gone</HTML>", None, "a web page (HTML)"),
        (b'{"error": "quota exceeded"}', "application/json", "a JSON text"),
        (b"<?xml version='1.0'?><Error>no</Error>", "video/mp4", "an XML text"),
        (b"The file is gone, sorry.", "text/plain", "not a video"),
        (b"", "video/mp4", "the file is empty"),
    ],
)
def test_an_answer_that_is_not_a_medium_is_not_kept(server, tmp_path, body, kind, what):
    folder = tmp_path / "downloads"
    server.pages["/whisk.mp4"] = lambda request: request.answer(body, kind=kind)
    assert what in error_of(f"{server.url}/whisk.mp4", folder)
    assert not folder.exists()
    server.pages["/whisk.mp4"] = server.video
    (video,) = fetch(f"{server.url}/whisk.mp4", folder)
    assert video.path.read_bytes() == server.video


def test_a_page_that_an_earlier_version_kept_as_the_video_is_fetched_again(server, tmp_path):
    (video,) = fetch(f"{server.url}/whisk.mp4", tmp_path)
    page = b"<html>".ljust(len(server.video))
    video.path.write_bytes(page)
    (again,) = fetch(f"{server.url}/whisk.mp4", tmp_path)
    assert again.path.read_bytes() == server.video


def test_force_fetches_again_and_keeps_what_is_there_where_that_fails(server, tmp_path):
    url = f"{server.url}/whisk.mp4"
    (video,) = fetch(url, tmp_path)
    server.pages["/whisk.mp4"] = None
    (link,) = find_links(url, tmp_path, OURS)
    with pytest.raises(MediaError, match="is not there"):
        fetch_link(link, tmp_path, force=True)
    assert fetch(url, tmp_path) == [video]
    server.pages["/whisk.mp4"] = server.video + bytes(8)
    (link,) = find_links(url, tmp_path, OURS, force=True)
    assert fetch_link(link, tmp_path, force=True).path.read_bytes() == server.video + bytes(8)
    assert [folder.name for folder in tmp_path.iterdir() if folder.suffix] == []
