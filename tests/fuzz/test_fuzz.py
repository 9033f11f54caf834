"""Some inputs of every reader, the same in each run; `make fuzz` goes on for hours with others."""

import pytest
from harness import READERS, found_before, fuzz, inputs

INPUTS = 25  # of each reader; all of them take about a minute


@pytest.mark.parametrize("name", list(READERS))
def test_a_reader_bears_what_it_is_given(name):
    counts, failures = fuzz(name, INPUTS, seed=22)
    assert not failures, [(found.kind, found.name, found.detail) for found in failures]
    assert counts["read"] > 0  # the seeds, at least one of them, are what the reader is for
    assert sum(counts.values()) == len(READERS[name].seeds()) + len(found_before(name)) + INPUTS


def test_the_same_seed_gives_the_same_inputs():
    assert [*inputs("captions", 20, 1)] == [*inputs("captions", 20, 1)]
    assert [*inputs("captions", 20, 1)] != [*inputs("captions", 20, 2)]


BROKEN = {"trace": "1 / 0", "time": "while True: pass", "memory": "b'0' * 2**40"}
BROKEN["crash"] = "os.abort()"


@pytest.mark.parametrize(("kind", "body"), BROKEN.items())
def test_the_harness_finds_each_kind_of_failure(monkeypatch, kind, body):
    import harness

    def broken(path):
        if path.read_bytes() != b"seed":
            exec(body, {"os": __import__("os")})

    monkeypatch.setattr(harness, "SECONDS", 1)
    monkeypatch.setitem(READERS, "broken", harness.Reader(broken, lambda: {"x.bin": b"seed"}))
    counts, failures = fuzz("broken", 1, seed=3)
    assert [found.kind for found in failures] == [kind]
    assert counts == {"read": 1, kind: 1}
