"""A chat-completion server on 127.0.0.1 that misbehaves as a test asks, and an embedding that needs
no model."""

import json
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from transcripts import transcript_of

talk = transcript_of
# The form "edit" asks about the fourth step, whose "it" no step nearby names.
DOUBTFUL_SPEECH = talk(
    "First put the flour in a big bowl.",
    "Then take the lid from the shelf.",
    "Now wash your hands with soap.",
    "Then put it on the bowl and press it down.",
    "Now heat the oven to 200 degrees.",
)


def bag_of_words(texts):
    """(N, 384) unit rows whose cosine grows with the words that two texts share."""
    rows = np.zeros((len(texts), 384), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().replace(".", "").replace(",", "").split():
            row[zlib.crc32(word.encode()) % 384] += 1.0
        row /= max(float(np.linalg.norm(row)), 1e-6)
    return rows


def completion(text, finish="stop"):
    """The JSON of a chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode()


class Answers:
    """Ready-made behaviours of one request; each takes the handler."""

    @staticmethod
    def says(text, finish="stop"):
        return Answers.raw(completion(text, finish))

    @staticmethod
    def raw(body, status=200, headers=()):
        def act(handler):
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            for name, value in headers:
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

        return act

    @staticmethod
    def status(code, message="no", **headers):
        body = json.dumps({"error": {"message": message}}).encode()
        sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return Answers.raw(body, code, sent)

    @staticmethod
    def stalls(handler):
        handler.server.over.wait()

    @staticmethod
    def drips(handler):
        """A byte of the body now and then: no read ever times out, yet no answer comes."""
        handler.send_response(200)
        handler.end_headers()
        while not handler.server.over.is_set():
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.02)

    @staticmethod
    def hangs_up(handler):
        handler.close_connection = True


class FakeServer:
    """Serves the behaviours in order, the last one for ever; keeps what it was asked."""

    def __init__(self, *behaviours):
        self.asked, self.headers, outer = [], [], self
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["Content-Length"])
                body = self.question = json.loads(self.rfile.read(length))
                with lock:
                    place = len(outer.asked)
                    outer.asked.append(body)
                    outer.headers.append({n.lower(): value for n, value in self.headers.items()})
                try:
                    behaviours[min(place, len(behaviours) - 1)](self)
                except OSError:
                    self.close_connection = True  # the client gave up, as it should

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.over = threading.Event()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self):
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._http.over.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def questions(self):
        """What the model was given to read, request by request."""
        return [body["messages"][0]["content"] for body in self.asked]
