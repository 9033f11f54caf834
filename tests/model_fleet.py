"""A fleet of language-model servers behind one address, that limits its rate and whose replicas
die."""

import itertools
import json
import threading
import time
import urllib.request

from llm_fakes import Answers, FakeServer, completion


def steps_of(question):
    """A model's list of steps: each line of the transcript that begins as an order does."""
    quoted = question.rpartition("<transcript>")[2].partition("</transcript>")[0]
    lines = [
        line.partition(" ")[2]
        for line in quoted.splitlines()
        if line.startswith(("First ", "Then ", "Now "))
    ]
    return (
        "\n".join(f"{number}. {line.strip('.')}" for number, line in enumerate(lines, 1)) or "none"
    )


def replica():
    """A server that answers at once, to one question after another."""

    def answer(handler):
        Answers.raw(completion(steps_of(handler.question["messages"][0]["content"])))(handler)

    return FakeServer(answer)


class Fleet:
    """The front: hands questions to replicas in turn. Use it as a context.

    most: requests that it takes in a second; beyond, 429 with Retry-After. dies: after so many
    questions the first replica dies, whose next ones the front answers with 502, as one does that
    has not noticed yet.
    """

    def __init__(self, replicas=3, *, most=None, dies=None):
        self.replicas = [replica() for _ in range(replicas)]
        self.most, self.dies = most, dies
        self.statuses, self._times, self._lock = [], [], threading.Lock()
        self._turn = itertools.cycle(range(replicas))
        self.front = FakeServer(self._hand_on)
        self.url = self.front.url

    def __enter__(self):
        for server in (*self.replicas, self.front):
            server.__enter__()
        return self

    def __exit__(self, *error):
        for server in (self.front, *self.replicas):
            server.__exit__(*error)

    def _hand_on(self, handler):
        with self._lock:
            now = time.monotonic()
            self._times = [at for at in self._times if now - at < 1.0]
            busy = self.most is not None and len(self._times) >= self.most
            if not busy:
                self._times.append(now)
            number = next(self._turn)
            dead = number == 0 and self.dies is not None and self.statuses.count(200) >= self.dies
            status = 429 if busy else 502 if dead else 200
            self.statuses.append(status)
        if status == 429:
            return Answers.status(429, "too many requests", Retry_After="1")(handler)
        if status == 502:
            return Answers.status(502, "the replica is gone")(handler)
        request = urllib.request.Request(
            f"{self.replicas[number].url}/chat/completions",
            data=json.dumps(handler.question).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answers.raw(answer.read())(handler)
