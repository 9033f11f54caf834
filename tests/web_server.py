"""A small web server on this machine, for tests of what is fetched from elsewhere."""

import contextlib
import http.server
import re
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Gives what `pages` says: bytes, text of a page, a redirect's address, or a function that
    answers itself."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path)
        if callable(page):
            self.close_connection = True
            page(self)
        elif isinstance(page, str) and page.startswith("<"):
            self.answer(page.encode(), kind="text/html")
        elif isinstance(page, str):
            self.send_response(302)
            self.send_header("Location", page)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.answer(page)

    def answer(self, page, kind=None, breaks_at=None):
        """Answer with bytes, or the range of them that is asked for. breaks_at: bytes after which
        the line is cut."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and self.headers.get("If-Range", '"1"') != '"1"':
            asked = None
        self.send_response(404 if page is None else 206 if asked else 200)
        page = whole = page or b""
        if asked:
            self.server.ranges.append(asked[0])
            page = page[int(asked[1]) : int(asked[2]) + 1 if asked[2] else None]
            last = int(asked[1]) + len(page) - 1
            self.send_header("Content-Range", f"bytes {asked[1]}-{last}/{len(whole)}")
        if kind is not None:
            self.send_header("Content-Type", kind)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(page[:breaks_at])
        self.close_connection |= breaks_at is not None


@contextlib.contextmanager
def serve(host="127.0.0.1"):
    """Yield a server that is up: `url`, `pages` to fill, `asked` paths and `ranges`, in order."""
    running = http.server.ThreadingHTTPServer((host, 0), Handler)
    running.daemon_threads = True
    running.asked, running.ranges, running.pages = [], [], {}
    running.url = f"http://{host}:{running.server_port}"
    thread = threading.Thread(target=running.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        thread.join()
        running.server_close()
