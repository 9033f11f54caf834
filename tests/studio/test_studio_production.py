"""The API as programs use it in production: keys with roles, health, metrics, paging, removal and
errors, over a real port."""

import json
import stat

import pytest
from studio_server import cookie_name, library, serving

from stepline.errors import SettingsError
from stepline.library.corrected_library import video_id
from stepline.outputs import safe_stem, write_outputs
from stepline.storage import read_record
from stepline.studio.keys import KEY_ROLES, KeyFile, needed_role

LEMONADE = video_id("v0.json")
EDIT = {"by": "ann", "base": 0, "edits": [{"do": "change", "step": "a", "text": "Cut"}]}


@pytest.fixture
def keys(tmp_path):
    return KeyFile(tmp_path / "keys.json")


@pytest.fixture
def own(tmp_path, small_video, keys):
    folder = library(tmp_path / "library", small_video, ("Lemonade", "Tea", "Soup"))
    with serving(folder, keys=keys) as running:
        yield running


def _end_work(server):
    """Let no job begin."""
    server.read("/api/library")  # so it runs
    server.jobs.stop()


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_the_file_of_keys_holds_hashes_and_is_its_owners_alone(keys):
    secret = keys.add("shop", "read")
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    text = keys.path.read_text()
    assert secret not in text
    assert secret.removeprefix("stepline_") not in text
    assert [(key.name, key.role) for key in KeyFile(keys.path).read_keys()] == [("shop", "read")]
    assert [path.name for path in keys.path.parent.iterdir()] == ["keys.json"]


def test_a_name_is_taken_once_and_a_file_that_others_read_is_refused(keys):
    keys.add("shop", "read")
    with pytest.raises(SettingsError, match="shop has a key"):
        keys.add("shop", "admin")
    with pytest.raises(SettingsError, match="not a name for a key"):
        keys.add("a b", "read")
    with pytest.raises(SettingsError, match="there are: shop"):
        keys.revoke("other")
    keys.path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        KeyFile(keys.path).read_keys()


def test_a_key_does_what_its_role_says(own, keys):
    secrets = {role: keys.add(role, role) for role in KEY_ROLES}
    removal = ("DELETE", f"/api/videos/{LEMONADE}", "")
    tries = (
        ("read", ("GET", "/api/videos", None), 200),
        ("read", ("POST", f"/api/videos/{LEMONADE}/corrections", EDIT), 403),
        ("read", ("POST", "/api/videos", {"path": "v0.mp4"}), 403),
        ("edit", ("POST", f"/api/videos/{LEMONADE}/corrections", EDIT), 200),
        ("read", removal, 403),
        ("edit", removal, 403),
        ("edit", ("POST", "/api/share", {"ids": [LEMONADE]}), 403),
        ("admin", removal, 200),
    )
    for role, (method, path, body), status in tries:
        reply, data = own.ask(method, path, body, **bearer(secrets[role]))
        assert reply.status == status, (role, method, path, data)
        if status == 403:
            assert "stepline keys add" in json.loads(data)["error"]


def test_a_key_outlives_a_restart_and_ends_when_it_is_revoked(tmp_path, small_video, keys):
    folder = library(tmp_path / "library", small_video)
    secret = keys.add("shop", "read")
    for _ in range(2):
        with serving(folder, keys=KeyFile(keys.path)) as server:
            assert server.status("GET", "/api/videos", **bearer(secret)) == 200
    with serving(folder, keys=KeyFile(keys.path)) as server:
        keys.revoke("shop")
        assert server.status("GET", "/api/videos", **bearer(secret)) == 401


def test_a_key_counts_in_the_header_alone_and_as_it_is(own, keys):
    secret = keys.add("shop", "admin")
    digest = keys.read_keys()[0].digest
    name = cookie_name(own)
    cookie = {"Cookie": f"{name}={secret}"}
    wrong = (
        {"Authorization": f"Basic {secret}"},
        {"Authorization": secret},
        bearer(digest),
        bearer(secret[:-1]),
        {"Authorization": None} | cookie,
        bearer(secret) | cookie,
        bearer(secret) | {"Cookie": f"{name}=x"},
    )
    for headers in wrong:
        assert own.status("GET", "/api/videos", **headers) == 401, headers
    assert own.status("GET", f"/?token={secret}", Authorization=None) == 401


def test_every_operation_states_the_role_that_it_needs(own):
    paths = own.read("/api/openapi.json")["paths"]
    assert paths["/api/videos"]["get"]["x-role"] == "read"
    assert paths["/api/videos"]["post"]["x-role"] == "edit"
    assert paths["/api/videos/{id}"]["delete"]["x-role"] == "admin"
    assert needed_role("DELETE", "/api/uploads/0f") == "edit"


def test_health_needs_no_token_and_says_where_the_database_is_gone(own):
    reply, data = own.ask("GET", "/health", Authorization=None)
    assert (reply.status, json.loads(data)) == (200, {"status": "ok"})
    own.studio.database.close()
    reply, data = own.ask("GET", "/health", Authorization=None)
    assert reply.status == 503
    assert str(own.studio.library.folder) not in json.loads(data)["error"]


def test_lists_come_in_pages(own):
    whole = own.read("/api/videos")
    assert whole["total"] == 3
    pages = [own.read(f"/api/videos?from={first}&most=2") for first in (0, 2, 4)]
    assert [page["total"] for page in pages] == [3, 3, 3]
    assert [card for page in pages for card in page["videos"]] == whole["videos"]
    for query in ("from=-1", "from=x", "most=0", "most=1001"):
        assert own.status("GET", f"/api/videos?{query}") == 400
    _end_work(own)
    for _ in range(3):
        own.ask("POST", "/api/videos", {"path": "v0.mp4"})
    jobs = own.read("/api/jobs?from=1&most=1")
    assert (len(jobs["jobs"]), jobs["total"]) == (1, 3)
    id = jobs["jobs"][0]["id"]
    assert own.read(f"/api/jobs/{id}")["id"] == id


def test_a_removed_video_is_gone_with_its_corrections_and_keeps_its_file(own, tmp_path):
    folder = own.studio.library.folder
    own.ask("POST", f"/api/videos/{LEMONADE}/corrections", EDIT)
    (folder / "v0.srt").write_text("somebody's own")
    reply, data = own.ask("DELETE", f"/api/videos/{LEMONADE}", "")
    assert (reply.status, json.loads(data)["removed"]) == (200, ["v0.json"])
    assert own.status("DELETE", f"/api/videos/{LEMONADE}", "") == 404
    assert own.status("GET", f"/api/videos/{LEMONADE}") == 404
    assert {path.name for path in folder.glob("v0.*")} == {"v0.mp4", "v0.srt"}
    assert own.studio.database.rows("SELECT * FROM correction") == []
    # the files of an id that is no file name, and of a record that was renamed
    record = read_record(folder / "v1.json")
    for id, name in (("a tea (2)", safe_stem("a tea (2)")), ("v1", "renamed")):
        paths = write_outputs(record.model_copy(update={"id": id}), tmp_path / id, media=None)
        for path in paths:
            path.rename(folder / path.name.replace("v1", "renamed"))
        names = {f"{name}{path.name[path.name.index('.') :]}" for path in paths}
        removed = json.loads(own.ask("DELETE", f"/api/videos/{video_id(f'{name}.json')}", "")[1])
        assert set(removed["removed"]) == names
        assert not list(folder.glob(f"{name}*"))


def test_a_job_is_removed_once_it_has_ended(own):
    _end_work(own)
    id = json.loads(own.ask("POST", "/api/videos", {"path": "v0.mp4"})[1])["job"]
    reply, data = own.ask("DELETE", f"/api/jobs/{id}", "")
    assert reply.status == 409
    assert "cancel it first" in json.loads(data)["error"]
    own.ask("POST", f"/api/jobs/{id}/cancel", "")
    assert own.status("DELETE", f"/api/jobs/{id}", "") == 200
    assert own.status("GET", f"/api/jobs/{id}") == 404


def test_a_job_takes_captions_texts_and_force(own):
    _end_work(own)
    (own.studio.library.folder / "v0.vtt").write_text("WEBVTT\n")
    options = {"captions": "v0.vtt", "texts": ["Slice"], "force": True}
    id = json.loads(own.ask("POST", "/api/videos", {"path": "v0.mp4", "options": options})[1])[
        "job"
    ]
    stored = own.read(f"/api/jobs/{id}")["options"]
    assert (stored["texts"], stored["force"]) == (["Slice"], True)
    assert stored["captions"].endswith("v0.vtt")


def test_errors_have_one_form_and_browsers_get_a_page(own):
    document = {"Sec_Fetch_Dest": "document", "Sec_Fetch_Site": "none"}
    tries = (
        ("GET", "/api/videos/unknown", None, {}, 404),
        ("GET", "/nothing", None, {}, 404),
        ("PUT", "/api/videos", "", {}, 405),
        ("POST", "/api/videos", "{", {}, 400),
        ("GET", "/api/videos", None, {"Authorization": None}, 401),
    )
    for method, path, body, headers, status in tries:
        reply, data = own.ask(method, path, body, **headers)
        assert reply.status == status
        assert [*json.loads(data)] == ["error"]
    reply, data = own.ask("GET", "/nothing", **document)
    assert (reply.status, reply.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert b"<h1>no such page</h1>" in data


def test_the_error_names_the_missing_header(own):
    cookie = f"{cookie_name(own)}={own.access.token}"  # as a browser sends it
    headers = {"X_Stepline": None, "Authorization": None, "Cookie": cookie}
    reply, data = own.ask("POST", "/api/videos", {"path": "v0.mp4"}, **headers)
    assert reply.status == 400
    assert "`X-Stepline: studio`" in json.loads(data)["error"]


def test_the_command_makes_lists_and_revokes_keys(tmp_path, stepline):
    file = tmp_path / "keys.json"
    secret = stepline("keys", "add", str(file), "shop", "--role", "edit").stdout.strip()
    assert KeyFile(file).find(secret).role == "edit"
    assert stepline("keys", "list", str(file)).stdout.split("\t")[:2] == ["shop", "edit"]
    assert stepline("keys", "revoke", str(file), "shop").exit_code == 0
    assert KeyFile(file).find(secret) is None
    assert stepline("keys", "revoke", str(file), "shop").exit_code == 1
