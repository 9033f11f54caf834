"""Live sources: at their own pace, growing, cut off and opened again; one clock through it all."""

import contextlib
import os
import socket
import threading
import time
from types import SimpleNamespace

import av
import numpy as np
import pytest
from live_server import GrowingPlaylist, cut_stream, rtsp_server
from web_server import serve

from stepline.errors import MediaError, SettingsError
from stepline.files.remote.addresses import NamedHost
from stepline.live import source as sources
from stepline.live.forward_proxy import ForwardProxy
from stepline.live.recording import StreamRecorder, join_recordings
from stepline.live.source import Gap, LiveSource, PictureRate, parse_sources
from stepline.media import AudioBlock, Frame, MediaReader
from stepline.media.settings import LinkSettings

PATIENT = LinkSettings(pause=0.001, seconds=60.0, attempts=3)
PICTURES = PictureRate(3.0, 64)


def read(source):
    items = list(source)
    return tuple(
        [item for item in items if isinstance(item, kind)] for kind in (Frame, AudioBlock, Gap)
    )


def live(address, **options):
    """The source of an address."""
    (parsed,) = parse_sources(address)
    return LiveSource(parsed, **{"links": PATIENT} | options)


def seconds(blocks):
    return sum(len(block.samples) for block in blocks) / 16_000


def assert_in_order(times):
    assert times == sorted(set(times))


def test_a_file_gives_what_any_reader_gives(small_video):
    frames, blocks, gaps = read(LiveSource(small_video, pictures=PICTURES, speed=1000))
    items = list(MediaReader(small_video, frame_rate=3.0, frame_size=64, sound=True))
    wanted = [item for item in items if isinstance(item, Frame)]
    assert [frame.time for frame in frames] == pytest.approx([frame.time for frame in wanted])
    assert all(np.array_equal(a.image, b.image) for a, b in zip(frames, wanted, strict=True))
    sound = np.concatenate([item.samples for item in items if isinstance(item, AudioBlock)])
    assert np.array_equal(np.concatenate([block.samples for block in blocks]), sound)
    assert gaps == []


def test_a_file_goes_on_from_a_second(small_video):
    frames, blocks, _ = read(LiveSource(small_video, pictures=PICTURES, speed=1000, start=7.4))
    assert frames[0].time == pytest.approx(7 + 1 / 6)
    assert blocks[0].start == pytest.approx(7.0, abs=0.1)
    assert frames[-1].time > 15


def test_a_file_is_read_at_its_pace(small_video):
    begun = time.monotonic()
    read(LiveSource(small_video, speed=32))
    assert time.monotonic() - begun >= 15 / 32


def test_a_file_that_grows_is_followed_to_its_end(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "GROWING_SECONDS", 3.0)
    growing, whole = tmp_path / "g.ts", stream.read_bytes()
    third, sixth = len(whole) // 3, len(whole) // 6
    growing.write_bytes(whole[:third])

    def grow():
        for part in range(4):
            time.sleep(0.2)
            with growing.open("ab") as file:
                file.write(whole[third:][part * sixth : (part + 1) * sixth])

    thread = threading.Thread(target=grow)
    thread.start()
    _, blocks, _ = read(LiveSource(growing, speed=1000))
    thread.join()
    assert blocks[-1].start >= 10


def test_a_stream_that_is_cut_ten_times_goes_on(stream, tmp_path):
    page, state = cut_stream(stream.read_bytes(), 11)
    recording = StreamRecorder(tmp_path, "kept")
    with serve() as server:
        server.pages["/live.ts"] = page
        source = live(f"{server.url}/live.ts", pictures=PICTURES, recording=recording)
        frames, blocks, gaps = read(source)
    recording.close()
    assert len(gaps) == 10
    assert state["asked"] >= 11
    assert_in_order([frame.time for frame in frames])
    assert seconds(blocks) >= 9  # what decoders lose at each cut is told as gaps
    assert source.end == pytest.approx(12, abs=1.0)
    assert "tries brought nothing" in source.reason
    joined = tmp_path / "joined.mkv"
    join_recordings(recording.parts, joined)
    kept, _, _ = read(MediaReader(joined, frame_rate=3.0, sound=True))
    assert kept[-1].time >= 10


def test_an_rtsp_stream_that_is_cut_ten_times_goes_on(stream):
    with rtsp_server(stream.read_bytes(), 11) as address:
        source = live(address, pictures=PICTURES)
        frames, blocks, gaps = read(source)
    assert len(gaps) == 10
    assert_in_order([frame.time for frame in frames])
    assert seconds(blocks) >= 7  # what decoders lose at each cut is told as gaps
    assert source.end == pytest.approx(12, abs=2.0)


def segments(stream, folder):
    """A second of the stream each, with key frames at their beginnings."""
    with av.open(str(stream)) as given:
        named = {"hls_time": "1", "hls_list_size": "0"}
        named["hls_segment_filename"] = str(folder / "%03d.ts")
        with av.open(str(folder / "all.m3u8"), "w", format="hls", options=named) as out:
            streams = {each.index: out.add_stream_from_template(each) for each in given.streams}
            for packet in given.demux():
                if packet.dts is not None:
                    packet.stream = streams[packet.stream.index]
                    out.mux(packet)
    return [path.read_bytes() for path in sorted(folder.glob("*.ts"))]


def test_a_playlist_that_grows_is_followed_and_what_it_has_lost_is_a_gap(stream, tmp_path):
    playlist = GrowingPlaylist(segments(stream, tmp_path), lost=range(3, 9))
    with serve() as server:
        server.pages |= playlist.pages
        patient = PATIENT.model_copy(update={"seconds": 20.0})
        source = live(f"{server.url}/live.m3u8", pictures=PICTURES, links=patient)
        frames, blocks, gaps = read(source)
    assert [gap.seconds for gap in gaps if gap.seconds] == [pytest.approx(6.0, abs=0.5)]
    assert_in_order([frame.time for frame in frames])
    assert not [frame for frame in frames if 4 < frame.time < 8]
    assert seconds(blocks) == pytest.approx(6.0, abs=1.0)
    assert source.end == pytest.approx(12, abs=0.5)


def test_what_a_stream_sends_to_no_one_is_a_gap(stream):
    whole = stream.read_bytes()
    page, _ = cut_stream(whole, 2, lost=-(-len(whole) // 6 // 188) * 188)
    with serve() as server:
        server.pages["/live.ts"] = page
        _, blocks, gaps = read(live(f"{server.url}/live.ts"))
    assert len(gaps) == 1
    assert gaps[0].seconds == pytest.approx(2.0, abs=1.5)
    assert blocks[-1].start >= 8


def test_time_stamps_that_begin_again_go_on_where_the_wall_clock_is(stream, monkeypatch):
    monkeypatch.setattr(sources, "TRUSTED_SECONDS", 5.0)
    # no second passes until the stream is there again
    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: 0.0))
    whole = stream.read_bytes()
    asked = []

    def page(handler):
        asked.append(1)
        if len(asked) > 2:
            handler.send_error(404)
            return
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(whole)

    with serve() as server:
        server.pages["/live.ts"] = page
        source = live(f"{server.url}/live.ts")
        _, blocks, gaps = read(source)
    starts = [block.start for block in blocks]
    assert starts == sorted(starts)
    assert len(gaps) == 1
    assert source.end == pytest.approx(24, abs=2.0)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://127.0.0.1:9/live.ts", "cannot be opened.*check that it runs"),
        ("camera:/dev/no-such", "no-such"),
        ("microphone:no-such", "no-such"),
        ("-", "a pipe; send it to an address"),
    ],
)
def test_a_server_or_device_that_is_not_there_is_one_line(address, said):
    with pytest.raises(MediaError, match=said) as caught:
        list(live(address))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["gopher://a/b", "camera+camera", "microphone:a+microphone:b"])
def test_what_is_not_a_source_is_refused(name):
    with pytest.raises(SettingsError):
        parse_sources(name)


def test_an_address_leads_to_no_file_of_this_machine(small_video):
    video = f"#EXTINF:16,\nfile://{small_video}\n#EXT-X-ENDLIST\n"
    with serve() as server:
        server.pages["/live.m3u8"] = f"#EXTM3U\n#EXT-X-TARGETDURATION:16\n{video}".encode()
        found = []
        with contextlib.suppress(MediaError):
            found = list(live(f"{server.url}/live.m3u8"))
    assert found == []


def test_an_address_that_you_name_may_be_private_but_leads_to_no_other_private_one(stream):
    with serve() as server:
        elsewhere = server.url.replace("127.0.0.1", "localhost")
        head = "#EXTM3U\n#EXT-X-TARGETDURATION:12\n#EXTINF:12,\n"
        server.pages |= {
            "/s.ts": stream.read_bytes(),
            "/here": f"{server.url}/s.ts",
            "/there": f"{elsewhere}/s.ts",
            "/v.m3u8": f"{head}{elsewhere}/s.ts\n#EXT-X-ENDLIST\n".encode(),
        }
        frames, _, _ = read(live(f"{server.url}/here", pictures=PICTURES, speed=1000))
        assert frames
        refused = r"leads elsewhere.*private address.*links.private=true"
        for name in ("there", "v.m3u8"):
            with pytest.raises(MediaError, match=refused) as caught:
                read(live(f"{server.url}/{name}", pictures=PICTURES))
            assert "\n" not in str(caught.value)
        options = {"pictures": PICTURES, "speed": 1000}
        options["links"] = PATIENT.model_copy(update={"private": True})
        frames, _, _ = read(live(f"{server.url}/there", **options))
        assert frames


def test_no_variable_of_the_environment_leads_past_the_rule(stream, monkeypatch):
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serve() as server:
        server.pages["/there"] = f"{server.url.replace('127.0.0.1', 'localhost')}/s.ts"
        with pytest.raises(MediaError, match="private address"):
            read(live(f"{server.url}/there"))
    assert os.environ["NO_PROXY"] == "localhost,127.0.0.1"


@pytest.mark.parametrize(
    "asked",
    [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"CONNECT localhost:22 HTTP/1.1\r\n\r\n"],
)
def test_the_proxy_serves_no_page_and_no_other_host(asked):
    proxy = ForwardProxy(NamedHost("127.0.0.1"), PATIENT)
    with proxy, socket.create_connection(proxy.server_address) as line:
        line.sendall(asked)
        assert line.recv(100).split()[1] in (b"400", b"403")


def test_the_proxy_says_that_a_connection_ends_with_its_answer():
    """FFmpeg would send its next request down a connection that is closed by then."""
    with serve() as server, ForwardProxy(NamedHost("127.0.0.1"), PATIENT) as proxy:
        server.pages["/v.ts"] = b"video"
        with socket.create_connection(proxy.server_address) as line:
            line.sendall(f"GET {server.url}/v.ts HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = b""
            while part := line.recv(1000):
                answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Connection: close" in head.splitlines()
    assert body == b"video"


@pytest.mark.parametrize("begin", [0.0, 3.0])
def test_a_film_at_an_address_is_read_whole_from_any_second(small_video, begin):
    with serve() as server:
        server.pages["/v.mp4"] = small_video.read_bytes()
        for _ in range(5):
            _, blocks, gaps = read(live(f"{server.url}/v.mp4", speed=1000, start=begin))
            assert not gaps
            assert blocks[-1].start > 14


def test_a_camera_says_how_it_is_read_where_pyav_reads_none(monkeypatch):
    monkeypatch.setattr(av, "formats_available", {"mpegts"})
    said = r"reads no v4l2.*ffmpeg -f v4l2 -i /dev/video0 -f mpegts udp://127.0.0.1:5000"
    with pytest.raises(MediaError, match=said):
        list(live("camera"))


def test_a_playlist_of_segments_is_read_to_its_end(stream):
    whole = stream.read_bytes()
    with serve() as server:
        head = "#EXTM3U\n#EXT-X-TARGETDURATION:12\n#EXTINF:12,\n"
        server.pages |= {"/v.m3u8": f"{head}a.ts\n#EXT-X-ENDLIST\n".encode(), "/a.ts": whole}
        _, blocks, _ = read(live(f"{server.url}/v.m3u8", speed=1000))
    assert blocks[-1].start >= 10
