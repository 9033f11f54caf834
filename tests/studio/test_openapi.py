"""The API's description: whole, true of what a running studio answers, and enough for a client that
others' programs make of it."""

import importlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("jsonschema", reason="needs jsonschema")

from http_client import ask, status_of
from jsonschema import Draft202012Validator
from studio_server import library, serving

from stepline.cli.schema import json_schema
from stepline.library.corrected_library import video_id
from stepline.pipeline.request import StepsSettings
from stepline.settings import load_settings
from stepline.studio.api import api_routes
from stepline.studio.operations import StudioApplication

FAST = load_settings(StepsSettings, None, ["vision.backbone=none"])  # no picture is looked at
DOCUMENT = StudioApplication(routes=api_routes()).openapi()
OPERATIONS = {
    row["operationId"]: (method, path, row)
    for path, rows in DOCUMENT["paths"].items()
    for method, row in rows.items()
}
LEMONADE = video_id("v0.json")
TEXT_EDIT = {"do": "change", "step": "a", "text": "Cut the lemons"}


def validator(schema):
    """The validator of a schema of the document, with the document's components."""
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def references(tree):
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            yield tree["$ref"]
        for part in tree.values():
            yield from references(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from references(part)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_a_schema_for_all_that_is_sent_and_answered(name):
    method, _, row = OPERATIONS[name]
    assert row["description"]
    assert row["x-role"] in ("read", "edit", "admin")
    contents = [parameter["schema"] for parameter in row.get("parameters", ())]
    contents += [each["schema"] for each in row.get("requestBody", {}).get("content", {}).values()]
    for status, reply in row["responses"].items():
        assert reply["description"]
        assert reply.get("content") or (method == "head" and reply["headers"]), status
        contents += [each["schema"] for each in reply.get("content", {}).values()]
        assert status < "4" or list(reply["content"]) == ["application/json"]
    for schema in contents:
        Draft202012Validator.check_schema(schema)
        assert schema.get("type") or schema.get("anyOf") or schema.get("$ref"), schema
    errors = {status for status in row["responses"] if status >= "4"}
    assert {"400", "401", "403", "409", "500", "503", "4XX"} <= errors
    assert "422" not in errors


def test_the_page_for_programs_says_how_many_operations_there_are():
    page = Path(__file__).resolve().parents[2] / "docs" / "studio_programs.md"
    assert f"describe all {len(OPERATIONS)} operations" in page.read_text(encoding="utf-8")


def test_every_reference_leads_somewhere():
    names = {reference.rpartition("/")[2] for reference in references(DOCUMENT)}
    assert names <= set(DOCUMENT["components"]["schemas"])
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_a_record_has_the_schema_that_the_command_writes():
    text = json.dumps(json_schema("record")).replace("#/$defs/", "#/components/schemas/")
    record = json.loads(text)
    schemas = DOCUMENT["components"]["schemas"]
    for name, schema in record.pop("$defs").items():
        assert schemas[name] == schema
    assert schemas["Record"] == {key: value for key, value in record.items() if key[0] != "$"}


class CheckedClient:
    """Sends what the document describes, and holds every answer against it."""

    def __init__(self, server):
        self.server = server
        self.called = set()

    def call(self, name, *, body=None, token=None, headers=None, query=(), **path_values):
        method, path, row = OPERATIONS[name]
        self.called.add(name)
        for parameter, value in path_values.items():
            path = path.replace(f"{{{parameter}}}", quote(str(value), safe=""))
        given = {parameter["name"] for parameter in row.get("parameters", ())}
        assert {*dict(query), *path_values, *(headers or {})} <= given
        if body is not None and not isinstance(body, bytes):
            content = row["requestBody"]["content"]["application/json"]
            assert validator(content["schema"]).is_valid(body)
            body = json.dumps(body)
        token = self.server.access.token if token is None else token
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        if query:
            path += f"?{urlencode(query)}"
        reply, data = ask(self.server, method.upper(), path, body, **sent)
        self.check(row, reply, data)
        if reply.headers.get_content_type() != "application/json":
            return reply.status, data
        return reply.status, json.loads(data)

    def check(self, row, reply, data):
        """Fail where the status, the media type or the JSON of an answer is not described."""
        described = row["responses"][str(reply.status)]
        if "content" not in described:
            assert data == b""
            assert all(name in reply.headers for name in described["headers"])
            return
        kind = reply.headers.get_content_type()
        kinds = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        content = next(described["content"][each] for each in kinds if each in described["content"])
        if content["schema"].get("type") == "string":
            return
        tree = json.loads(data)
        faults = list(validator(content["schema"]).iter_errors(tree))
        assert not faults, (row["operationId"], faults[0].message[:300], str(tree)[:300])


def first_of_stream(server, path):
    """The type and the first line of an event stream, which has no end."""
    import http.client

    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    line.request("GET", path, headers={"Authorization": f"Bearer {server.access.token}"})
    reply = line.getresponse()
    found = reply.headers.get_content_type(), reply.readline()
    reply.close()
    line.close()
    return found


def test_every_operation_of_a_running_studio_answers_as_described(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video, ("Lemonade", "Bread"))
    (folder / "run.events.jsonl").write_text('{"event": "finished"}\n')
    with serving(folder, settings=FAST) as server:
        client = CheckedClient(server)
        call = client.call

        # the library, and a video
        assert call("check_health") == (200, {"status": "ok"})
        assert call("get_library_id")[0] == 200
        assert call("list_videos", query=[("most", 1)])[1]["total"] == 2
        assert call("get_video", id=LEMONADE)[0] == 200
        assert call("get_record", id=LEMONADE)[1]["record"]["transcript"]
        part = call("get_record", id=LEMONADE, query=[("part", "steps")])[1]
        assert "transcript" not in part["record"]
        assert call("export_steps", id=LEMONADE, query=[("format", "srt")])[0] == 200
        assert call("get_media", id=LEMONADE)[0] == 200
        assert call("get_frame", id=LEMONADE, second=4.0)[0] == 200
        assert len(call("get_waveform", id=LEMONADE)[1]["peaks"]) == 2000

        # corrections, and who changed the same
        body = {"by": "ann", "base": 0, "edits": [TEXT_EDIT, {"do": "tag", "tag": "Safety"}]}
        assert call("add_correction", id=LEMONADE, body=body)[1]["revision"] == 1
        body = {"by": "bob", "base": 0, "edits": [{**TEXT_EDIT, "text": "Slice"}]}
        status, conflict = call("add_correction", id=LEMONADE, body=body)
        assert (status, conflict["by"]) == (409, "ann")
        assert conflict["edits"][0]["text"] == "Cut the lemons"
        assert call("add_correction", id=LEMONADE, body={**body, "base": 9})[0] == 409
        (correction,) = call("list_corrections", id=LEMONADE)[1]["corrections"]
        assert correction["by"] == "ann"
        assert call("list_labels")[1]["tags"] == {"Safety": 1}
        assert call("search_moments", query=[("q", "lemons")])[1]["moments"]
        assert call("share_videos", body={"ids": [LEMONADE]})[0] == 200

        # an upload, and jobs
        upload = call("begin_upload", body={"name": "new.mp4", "size": 3})[1]["upload"]
        offset = {"Upload-Offset": "0"}
        assert call("append_chunk", id=upload, body=b"x", headers=offset)[1] == {
            "offset": 1,
            "job": None,
        }
        assert call("get_upload_offset", id=upload)[0] == 200
        assert call("list_uploads")[1]["uploads"][0]["offset"] == 1
        assert call("append_chunk", id=upload, body=b"x", headers=offset)[0] == 409
        assert call("cancel_upload", id=upload)[0] == 200
        assert call("begin_upload", body={"name": "new.txt", "size": 3})[0] == 415
        assert "en" in call("list_choices")[1]["languages"]
        bread = video_id("v1.json")
        job = call("read_again", id=bread, body={"language": "en"})[1]["job"]
        assert call("cancel_job", id=job)[0] == 200
        assert call("remove_job", id=job)[0] == 200
        assert call("read_again", id=LEMONADE, body={})[0] == 409  # its steps are corrected
        job = call("start_job", body={"path": "v1.mp4"})[1]["job"]
        assert call("cancel_job", id=job)[1]["state"] == "cancelled"
        assert call("cancel_job", id=job)[0] == 409
        assert call("retry_job", id=job)[0] == 200
        assert call("get_job", id=job)[1]["source"].endswith("v1.mp4")
        assert call("cancel_job", id=job)[0] == 200
        assert call("list_jobs")[1]["total"] == 1
        assert call("remove_job", id=job)[1] == {"job": job}

        # streams, whose answers have no end
        assert call("list_live_runs")[1] == {
            "runs": [{"name": "run", "finished": True, "running": False}]
        }
        for name in ("stream_events", "stream_live_events"):
            _, path, row = OPERATIONS[name]
            kind, line = first_of_stream(server, path.replace("{name}", "run"))
            assert kind in row["responses"]["200"]["content"]
            assert line == b"retry: 2000\n"
            client.called.add(name)

        # errors have one form
        assert call("list_jobs", token="wrong")[0] == 401
        for name in ("get_video", "get_record", "get_media", "delete_video", "list_corrections"):
            assert call(name, id="none") == (404, {"error": "no such video"})
        for name in ("get_job", "remove_job", "retry_job"):
            assert call(name, id=99) == (404, {"error": "no such job"})
        status, reply = call("list_videos", query=[("most", 0)])
        rule = "query.most: Input should be greater than or equal to 1, not '0'"
        assert (status, reply["error"]) == (400, f"{rule}; /api/docs shows what it takes")
        assert call("append_chunk", id=upload, body=b"x")[0] in (400, 404)

        # the end of a video
        assert call("preview_removal", id=LEMONADE)[1]["corrections"] == 1
        assert call("delete_video", id=LEMONADE)[1]["removed"] == ["v0.json"]
        assert call("get_video", id=LEMONADE)[0] == 404
        assert client.called == set(OPERATIONS)


def test_head_is_answered_as_get(tmp_path, small_video):
    with serving(library(tmp_path / "library", small_video)) as server:
        for path in ("/health", "/api/videos", f"/api/videos/{LEMONADE}/media"):
            reply, data = server.ask("HEAD", path)
            assert (reply.status, data) == (200, b"")


def test_the_description_is_a_page_for_people_that_loads_nothing(tmp_path, small_video):
    with serving(library(tmp_path / "library", small_video)) as server:
        assert server.read("/api/openapi.json") == json.loads(json.dumps(DOCUMENT))
        reply, data = server.ask("GET", "/api/docs")
        assert (reply.status, reply.headers.get_content_type()) == (200, "text/html")
        page = data.decode()
        for _, path, _ in OPERATIONS.values():
            assert path in page
        targets = set(re.findall(r'href="#([^"]+)"', page))
        assert targets <= set(re.findall(r'id="([^"]+)"', page))
        assert set(DOCUMENT["components"]["schemas"]) <= set(re.findall(r'id="([^"]+)"', page))
        sheets = re.findall(r'<link rel="stylesheet" href="([^"]+)"', page)
        assert all(sheet.startswith("/static/") for sheet in sheets)
        assert not re.search("<script|<img|<iframe|src=", page)
        assert status_of(server, "GET", "/api/docs") == 401


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A client that openapi-python-client makes of the document."""
    pytest.importorskip("openapi_python_client", reason="needs openapi-python-client")
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(DOCUMENT))
    # It knows no media type of pictures and videos, and formats with a program that may be absent.
    kinds = dict.fromkeys(("*/*", "video/*", "image/jpeg"), "application/octet-stream")
    (folder / "config.json").write_text(
        json.dumps({"content_type_overrides": kinds, "post_hooks": []})
    )
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"]
    command += ["--path", "openapi.json", "--config", "config.json", "--meta", "none"]
    done = subprocess.run(
        [*command, "--output-path", "studio_client"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield "studio_client"
    sys.path.remove(str(folder))


def test_a_generated_client_uploads_polls_corrects_searches_and_deletes(
    generated, tmp_path, small_video, captions_file
):
    client_module = importlib.import_module(generated)
    models = importlib.import_module(f"{generated}.models")
    types = importlib.import_module(f"{generated}.types")

    def call(name, *arguments, **options):
        module = importlib.import_module(f"{generated}.api.default.{name}")
        return module.sync(*arguments, client=client, **options)

    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "words.srt").write_bytes(captions_file.read_bytes())
    data = small_video.read_bytes()
    with serving(folder, settings=FAST) as server:
        client = client_module.AuthenticatedClient(
            base_url=server.address.rstrip("/"), token=server.access.token
        )

        # in two pieces, then until the job has ended
        options = models.JobOptions(texts=["Slice the lemons"], captions="words.srt")
        body = models.UploadBody(name="small.mp4", size=len(data), options=options)
        upload = call("begin_upload", body=body).upload
        first = types.File(payload=data[:1000])
        assert call("append_chunk", upload, body=first, upload_offset=0).job is None
        rest = types.File(payload=data[1000:])
        job = call("append_chunk", upload, body=rest, upload_offset=1000).job
        ends = time.monotonic() + 120
        while (status := call("get_job", job)).state not in ("done", "failed"):
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert (status.state, status.error) == ("done", None)

        # the steps, corrected
        record = call("get_record", status.video)
        (step,) = record.record.steps
        assert step.text == "Slice the lemons"
        edit = models.ChangeEdit(do="change", step=step.id, text="Grate the zest")
        correction = models.NewCorrection(by="ann", base=0, edits=[edit], record=record.stamp)
        assert call("add_correction", status.video, body=correction).revision == 1
        other = models.NewCorrection(by="bob", base=0, edits=[edit])
        assert call("add_correction", status.video, body=other).by == "ann"
        assert call("search_moments", q="zest").moments[0].text == "Grate the zest"

        # and deleted
        assert call("delete_video", status.video).removed
        assert call("get_video", status.video).error == "no such video"
        assert call("list_videos").total == 0
        client.get_httpx_client().close()
