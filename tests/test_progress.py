import psutil

from stepline.progress import trim_memory


def test_a_c_library_that_cannot_trim_is_no_error(monkeypatch):
    monkeypatch.delattr(psutil, "heap_trim")
    assert trim_memory() is None


def test_the_c_library_is_asked_to_trim(monkeypatch):
    asked = []
    monkeypatch.setattr(psutil, "heap_trim", lambda: asked.append("trim"))
    trim_memory()
    assert asked == ["trim"]
