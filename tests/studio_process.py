"""`stepline studio` in a process of its own, which tests attack, starve and kill."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from http_client import ask

ROOT = Path(__file__).resolve().parents[1]
FAST = ("--set", "vision.backbone=none")  # no job looks at a picture


class StudioProcess:
    """The studio of a folder, by the command that people type.

    more: further arguments. prefix: a command that runs it, for example under other rights.
    variables: of its environment. token: the one of the address that it printed.
    """

    def __init__(self, folder, *more, prefix=(), variables=None):
        self._wait_for_start(self.begin(folder, *more, prefix=prefix, variables=variables))

    @classmethod
    def of(cls, process):
        """Return the studio of a process that `begin` returned."""
        studio = cls.__new__(cls)
        studio._wait_for_start(process)
        return studio

    @staticmethod
    def begin(folder, *more, prefix=(), variables=None):
        """Start the command, and return its process without a wait for its address."""
        command = [*prefix, sys.executable, "-m", "stepline", "studio", str(folder), *FAST, *more]
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | (variables or {})
        return subprocess.Popen(
            [str(part) for part in command], stderr=subprocess.PIPE, text=True, env=environment
        )

    def _wait_for_start(self, process):
        self.process = process
        self.lines = []  # of its standard error
        self.token = None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("open http"):
                address, _, self.token = line.split()[1].partition("/?token=")
                self.port = int(address.rpartition(":")[2])
                break
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def has_started(self):
        return self.token is not None

    def _read(self):
        self.lines.extend(self.process.stderr)

    def ask(self, method, path, body=None, **headers):
        """Return the reply to a request with the token, and its body; a header that is None is left
        out."""
        known = {"Authorization": f"Bearer {self.token}", "X_Stepline": "studio"} | headers
        sent = {name: value for name, value in known.items() if value is not None}
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        return ask(self, method, path, data, **sent)

    def status(self, *request, **headers):
        return self.ask(*request, **headers)[0].status

    def read(self, path):
        reply, data = self.ask("GET", path)
        assert reply.status == 200, data
        return json.loads(data)

    def end(self):
        """Kill it, and return its exit code where it had ended by itself."""
        self.process.kill()
        code = self.process.wait()
        self._reading.join(60)
        self.process.stderr.close()
        return code

    def __enter__(self):
        assert self.has_started, "".join(self.lines)
        return self

    def __exit__(self, *_):
        self.end()
