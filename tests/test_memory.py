import ctypes

from stepline import progress as memory


def test_a_c_library_that_cannot_trim_is_no_error(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    assert memory.trim_memory() is None


def test_the_c_library_is_asked_to_trim(monkeypatch):
    asked = []

    class Library:
        @staticmethod
        def malloc_trim(keep):
            asked.append(keep)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    memory.trim_memory()
    assert asked == [0]
