"""The page of a live run: what the log says is on it, and comes to it while the run goes on."""

import json
import time

import pytest
from studio_server import serving

from stepline.live.events import LiveLog
from stepline.pipeline.batch import lock_video
from stepline.records import Sentence, Span

ROWS = "$$('#steps li:not([hidden])').map((row) => row.innerText.replace(/\\s+/g, ' '))"
AT_HAND = "$('#steps [aria-current] bdi')?.textContent"
FACTS = "$('#facts').textContent"


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "library"
    folder.mkdir()
    with serving(folder, at_once=0) as running:
        yield running


def begun(server, name="camera-1"):
    log = LiveLog(server.studio.library.folder / f"{name}.events.jsonl")
    log.add("started", 0.0, source="rtsp://camera/1", wall=time.time())
    log.add("heard", 3.0, sentence=Sentence(text="Slice <b>the</b> lemons.", span=Span(0.5, 2.0)))
    told = {"step": "1", "text": "slice <b>the</b> lemons", "kind": "do", "sources": (0,)}
    log.add("step_said", 3.0, said=Span(0.5, 2.0), **told)
    return log


def read_stream(server, path, count):
    """The first events of a stream."""
    import http.client

    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    line.request("GET", path, headers={"Authorization": f"Bearer {server.access.token}"})
    reply, found = line.getresponse(), []
    while len(found) < count:
        text = reply.readline().decode()
        if text.startswith(("data:", "event:")):
            found.append(text.strip())
    line.close()
    return found


def test_a_run_is_told_from_its_first_event_on(server):
    log = begun(server)
    run = {"name": "camera-1", "finished": False}
    assert server.read("/api/live") == {"runs": [run | {"running": False}]}
    with lock_video("camera-1.live", log.path.parent):  # as run_live does
        assert server.read("/api/live") == {"runs": [run | {"running": True}]}
    first = read_stream(server, "/api/live/camera-1/events", 3)
    assert [json.loads(line[5:])["event"] for line in first] == ["started", "heard", "step_said"]
    log.add("finished", 9.0, seconds=9.0, reason="stopped")
    assert server.read("/api/live")["runs"][0]["finished"]


@pytest.mark.parametrize("name", ["nothing", "..%2Fother", "%2Fetc%2Fpasswd", "linked"])
def test_no_other_file_is_read(server, name):
    other = server.studio.library.folder.parent / "other.events.jsonl"
    other.write_text('{"event": "started"}\n')
    (server.studio.library.folder / "linked.events.jsonl").symlink_to(other)
    assert server.status("GET", f"/api/live/{name}/events") == 404


@pytest.mark.browser
def test_steps_come_to_the_page_while_the_run_goes_on(browser, server):
    log = begun(server)
    browser.open(server.link).close()
    library = browser.open(server.address)
    library.wait_until("$('#live a')?.getAttribute('href') === '/live/camera-1'")
    assert library.run("$('#live p').textContent") == "interrupted"
    library.close()
    page = browser.open(f"{server.address}live/camera-1", width=390, height=700)
    page.wait_until(f"{ROWS}.length === 1")
    assert page.run(ROWS) == ["Slice <b>the</b> lemons said 0:00"]
    assert page.run("$('#heard').textContent") == "Slice <b>the</b> lemons."
    log.add("step_shown", 6.0, step="1", second=4.0, score=0.9)
    page.wait_until(f"{AT_HAND} === 'Slice <b>the</b> lemons'")
    second = {"step": "2", "kind": "do", "said": Span(5.0, 7.0), "sources": (1,)}
    log.add("step_said", 8.0, text="pour it", **second)
    log.add("revised", 8.5, text="pour the juice", reason="", **second)
    shown = {"spans": (Span(3.0, 6.5),), "second": 4.0, "status": "placed", "score": 0.9}
    log.add("step_ended", 9.0, step="1", **shown)
    log.add("gap", 10.0, seconds=2.5, reason="the connection ended")
    page.wait_until(f"{FACTS}.includes('2.5 s are missing')")
    first = "Slice <b>the</b> lemons placed 0:03 to 0:06"
    assert page.run(ROWS) == [first, "Pour the juice said 0:05"]
    assert page.run(AT_HAND) is None
    log.add("finished", 12.0, seconds=12.0, reason="stopped")
    page.wait_until(f"{FACTS} === '0:12 · 2 steps · 2.5 s are missing at 0:10 · ended: stopped'")
    page.resize(1440)
    assert page.run("$('#steps').offsetWidth === $('main').clientWidth")
    log.path.unlink()
    begun(server)
    page.wait_until(f"{FACTS} === '0:03 · 1 step'")
    page.close()
