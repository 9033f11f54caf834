import ctypes
import sys
from threading import Event, current_thread
from types import SimpleNamespace

import pytest

from stepline.processes import trim_memory
from stepline.progress import read_ahead


def test_a_c_library_that_cannot_trim_is_not_an_error(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert trim_memory() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can trim")
def test_the_c_library_is_asked_to_trim(monkeypatch):
    asked = []
    library = SimpleNamespace(malloc_trim=asked.append)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    trim_memory()
    assert asked == [0]


def test_items_are_made_by_another_thread_no_further_ahead_than_asked():
    made, threads, far = [], set(), Event()

    def make():
        for number in range(20):
            made.append(number)
            threads.add(current_thread())
            if number == 3:
                far.set()
            yield number

    items = read_ahead(make(), 3)
    assert next(items) == 0
    assert far.wait(60)  # 1 to 3 are made while nobody asks
    assert len(made) <= 4
    assert list(items) == list(range(1, 20))
    assert threads
    assert current_thread() not in threads


def test_what_is_raised_ahead_is_raised_behind_the_items_before_it():
    def make():
        yield "first"
        raise ValueError("second")

    items = read_ahead(make(), 5)
    assert next(items) == "first"
    with pytest.raises(ValueError, match="second"):
        next(items)


def test_items_of_no_more_use_are_not_made():
    made = []

    def make():
        for number in range(10_000):
            made.append(number)
            yield number

    items = read_ahead(make(), 2)
    next(items)
    items.close()
    count = len(made)
    assert count <= 4
    assert len(made) == count


def test_it_may_be_ended_in_the_thread_that_reads_ahead():
    suspended = Event()
    ended = Event()
    threads = []

    def make():
        yield 1
        suspended.wait(60)
        items.close()
        threads.append(current_thread().name)
        ended.set()
        yield 2

    items = read_ahead(make(), 1)
    assert next(items) == 1
    suspended.set()
    assert ended.wait(60)
    assert threads[0].startswith("read-ahead")
