"""An S3-compatible server in a thread of this process, that can be told to fail."""

import contextlib
import threading
import time

BUSY = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>told to fail</Message></Error>"
FAILURES = (("503 Slow Down", b"SlowDown"), ("500 Internal Server Error", b"InternalError"))
SECRET = "a-secret-that-nobody-may-see"


class Faults:
    """What goes wrong: each n-th request answers a 500 or a 503, or sends its body slowly; 0 =
    never."""

    def __init__(self, app):
        self.app, self.requests, self.failed, self.slowed = app, 0, 0, 0
        self.every, self.slow_every, self.slow_seconds = 0, 0, 0.0
        self.only = None
        self.lock = threading.Lock()
        # take the server from the network, and bring it back
        self.cut = self.restore = lambda: None

    def __call__(self, environment, start):
        with self.lock:
            self.requests += 1
            number = self.requests
            fail = self.every and number % self.every == 0
            slow = self.slow_every and number % self.slow_every == 1
            self.failed += bool(fail)
            self.slowed += bool(slow and not fail)
        if fail or self.only:
            environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            status, code = self.only or FAILURES[number % 2]
            start(status, [("Content-Type", "application/xml")])
            return [] if environment["REQUEST_METHOD"] == "HEAD" else [BUSY % code]
        answer = self.app(environment, start)
        return self._slowly(answer) if slow else answer

    def _slowly(self, answer):
        time.sleep(self.slow_seconds)
        yield from answer


@contextlib.contextmanager
def s3_server(monkeypatch):
    """Serve an empty S3 on a port of this machine, name it in the environment, and yield its
    `Faults`."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends

    for backends in list(s3_backends.values()):
        for backend in list(backends.values()):
            backend.reset()
    faults = Faults(DomainDispatcherApplication(create_backend_app))
    server = serve(faults, 0)
    port = server.server_port

    def cut():
        stop(server)

    def restore():
        nonlocal server
        server = serve(faults, port)

    faults.cut, faults.restore = cut, restore
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        yield faults
    finally:
        stop(server)


def serve(app, port):
    """Answer requests to a port of this machine in a thread; 0: any."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", port, app, threaded=True)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    return server


def stop(server):
    """End a server: connections are refused from now on."""
    server.shutdown()
    server.server_close()
