"""The one loop that tries again, and its pauses."""

import pytest

from stepline.files.remote.retry import exponential_backoff, retry


def failing(times, result="done"):
    """An action that fails so many times, then succeeds; it counts its calls."""
    calls = []

    def action():
        calls.append(None)
        if len(calls) <= times:
            raise OSError(f"fault {len(calls)}")
        return result

    return action, calls


def test_an_action_is_called_until_it_succeeds():
    action, calls = failing(2)
    tries = []

    def pause_after(error, count):
        tries.append((str(error), count))
        return 0.0

    assert retry(action, pause_after) == "done"
    assert tries == [("fault 1", 1), ("fault 2", 2)]
    assert len(calls) == 3


def test_what_the_pause_raises_ends_it():
    action, calls = failing(9)

    def pause_after(error, count):
        if count == 3:
            raise ValueError("enough") from error
        return 0.0

    with pytest.raises(ValueError, match="enough") as caught:
        retry(action, pause_after)
    assert str(caught.value.__cause__) == "fault 3"
    assert len(calls) == 3


def test_it_waits_as_long_as_the_server_asks(monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    action, _ = failing(3)
    retry(action, lambda _, count: exponential_backoff(0.5, count))
    assert slept == [0.5, 1.0, 2.0]


def test_a_pause_doubles_up_to_its_limit():
    assert [exponential_backoff(10.0, count) for count in (1, 2, 3)] == [10.0, 20.0, 30.0]
    assert exponential_backoff(10.0, 3, most=float("inf")) == 40.0
