"""Annotators answer in the studio, about the library's sentences, and what they say lies in its one
store."""

import json

import pytest
from studio_server import library, serving

from stepline.review import AgreementRule, Answer, agreement, queue
from stepline.studio.store import Studio


@pytest.fixture
def server(tmp_path, small_video, monkeypatch):
    monkeypatch.setattr(
        queue, "CLOCK_TOLERANCE_SECONDS", 100.0
    )  # nobody waits here until a clip has ended
    with serving(library(tmp_path / "library", small_video)) as server:
        yield server


def answer_all(server, name, shown):
    """Answer every clip that is left as one person, and return the clips."""
    done = []
    while (task := server.read(f"/annotate/next?annotator={name}")).get("clip"):
        told = {"annotator": name, "clip": task["clip"]}
        assert server.ask("POST", "/annotate/begin", told)[0].status == 200
        reply, data = server.ask(
            "POST", "/annotate/answer", told | {"shown": shown, "confidence": "very"}
        )
        assert reply.status == 200, data
        done.append(task["clip"])
    return done


def test_two_people_answer_about_the_library_and_the_store_keeps_it(server):
    page, text = server.ask("GET", "/annotate/")
    assert page.status == 200
    assert b'src="page.js"' in text  # beside it, wherever it is served
    assert b"studio" in server.ask("GET", "/annotate/page.js")[1]
    task = server.read("/annotate/next?annotator=Ann")
    clip, film = server.ask("GET", task["media"])
    assert (clip.status, film[4:8]) == (200, b"ftyp")
    first = answer_all(server, "Ann", True)
    assert len(first) == 3
    assert server.ask("POST", "/annotate/undo", {"annotator": "Ann"})[0].status == 200
    assert answer_all(server, "Ann", False) == first[-1:]
    assert answer_all(server, "Bob", True) != []
    again = Studio(server.studio.library.folder)
    told = agreement(again.answers, AgreementRule(2, 2))
    assert (told.complete, told.shown, told.unshown) == (3, 2, 0)
    assert told.same == pytest.approx(2 / 3)
    again.answers.add(Answer(clip=first[0], annotator="Ann", shown=False, confidence="not"))
    assert len(list(again.answers)) == 6  # in the place of the earlier one
    again.close()


def test_annotators_need_the_token_too(server):
    for path in ("/annotate/", "/annotate/next?annotator=Ann", "/annotate/clip/0.mp4"):
        assert server.ask("GET", path, Authorization=None)[0].status == 401
    body = json.dumps({"annotator": "Ann"})
    assert server.ask("POST", "/annotate/undo", body, X_Stepline=None)[0].status == 400
    assert server.ask("GET", "/annotate/clip/../../demo.json")[0].status in (400, 404)
    assert server.ask("GET", "/annotate/else")[0].status == 404
