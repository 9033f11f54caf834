"""Live servers: one that cuts the line again and again, as a page of `web_server`; RTSP; a playlist
that grows."""

import contextlib
import socket
import struct
import threading


def cut_stream(whole, pieces, *, lost=0):
    """A page that sends a live stream piece by piece, one a connection, and cuts the line behind
    each.

    lost: bytes that are sent to nobody between two pieces.
    """
    state = {"at": 0, "asked": 0}

    def page(handler):
        size = -(-len(whole) // pieces // 188) * 188
        part = whole[state["at"] : state["at"] + size - lost]
        state["at"], state["asked"] = state["at"] + size, state["asked"] + 1
        if not part:
            handler.send_error(404)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "video/mp2t")
        handler.end_headers()
        handler.wfile.write(part)

    return page, state


@contextlib.contextmanager
def rtsp_server(whole, pieces):
    """Yield the address of an RTSP server that sends a transport stream over its own connection, a
    piece each.

    RFC 2326, RTP between the replies (section 10.12), packets of RFC 2250. It takes no more than
    `pieces` connections.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"rtsp://127.0.0.1:{listener.getsockname()[1]}/live"
    size = len(whole) // pieces // (7 * 188) * 7 * 188

    cuts = [number * size for number in range(pieces)] + [None]

    def serve():
        for number in range(pieces):
            with contextlib.suppress(OSError):
                line, _ = listener.accept()
                with line:
                    _play(line, address, whole[cuts[number] : cuts[number + 1]], number)
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield address
    finally:
        listener.close()


def _play(line, address, piece, number):
    """Answer one client until it has been sent the piece."""
    asked = line.makefile("rb")
    while True:
        lines = []
        while (text := asked.readline().decode().strip()) or not lines:
            if not text and not lines:
                return
            lines.append(text)
        verb = lines[0].split()[0]
        sequence = next(row for row in lines if row.lower().startswith("cseq"))
        body, more = "", ["Session: 1"]
        if verb == "DESCRIBE":
            body = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=live\r\nt=0 0\r\nm=video 0 RTP/AVP 33\r\na=control:track\r\n"
            more = [f"Content-Base: {address}/", "Content-Type: application/sdp"]
            more.append(f"Content-Length: {len(body)}")
        elif verb == "SETUP":
            more = ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1", "Session: 1"]
        elif verb == "OPTIONS":
            more = ["Public: DESCRIBE, SETUP, PLAY, TEARDOWN"]
        line.sendall("\r\n".join(["RTSP/1.0 200 OK", sequence, *more, "", body]).encode())
        if verb == "PLAY":
            for count, at in enumerate(range(0, len(piece), 7 * 188)):
                data = piece[at : at + 7 * 188]
                head = struct.pack("!BBHII", 0x80, 33, count % 65536, count * 90, number + 1)
                line.sendall(struct.pack("!cBH", b"$", 0, len(head + data)) + head + data)
            return


class GrowingPlaylist:
    """A live HLS playlist as pages of `web_server`: two more segments each time that it is asked
    for, then its end.

    lost: numbers of segments that the server has lost.
    """

    def __init__(self, segments, *, lost=(), ends=True):
        self.count, self.segments, self.ends = 1, segments, ends
        self.pages = {"/live.m3u8": self.playlist}
        self.pages |= {f"/{n}.ts": None if n in lost else each for n, each in enumerate(segments)}

    def playlist(self, handler):
        self.count = min(len(self.segments), self.count + 2)
        rows = [f"#EXTINF:1.0,\n{n}.ts" for n in range(max(0, self.count - 6), self.count)]
        head = ["#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-TARGETDURATION:1"]
        head.append(f"#EXT-X-MEDIA-SEQUENCE:{max(0, self.count - 6)}")
        end = ["#EXT-X-ENDLIST"] if self.ends and self.count == len(self.segments) else []
        text = "\n".join([*head, *rows, *end, ""])
        handler.answer(text.encode(), "application/vnd.apple.mpegurl")
