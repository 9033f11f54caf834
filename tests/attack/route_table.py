"""Every route of the studio: as the application has them, and a valid request to each for attacks
to begin from."""

import re
from dataclasses import dataclass, field
from urllib.parse import quote

from pydantic import BaseModel

from stepline.library.corrections import NewCorrection
from stepline.studio.api import ShareBody
from stepline.studio.operations import ApiRoute
from stepline.studio.server import PasswordBody
from stepline.studio.uploads import UploadBody
from stepline.studio.video_api import VideoBody
from stepline.studio.worker import JobOptions

PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


@dataclass(frozen=True)
class Entry:
    """A valid request to a route, and what there is to attack in it.

    names: parameter of the path -> the name in AttackedLibrary.names that fills it. query: its
    parameters, each with a valid value. model: of its JSON body. statuses: that answer the valid
    request, the second time too. needs_token: False for what reveals nothing. is_stream: the answer
    has no end.
    """

    names: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    model: type[BaseModel] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    needs_token: bool = True
    is_stream: bool = False


VIDEO = {"id": "video"}
JOB = {"id": "job"}
UPLOAD = {"id": "upload"}
RUN = {"name": "run"}
EDIT = {"do": "change", "step": "a", "text": "Slice", "kind": "do", "status": "placed"}
LABELS = [{"do": "title", "title": "Lemonade"}, {"do": "tag", "tag": "Safety"}]
LABELS.append({"do": "metadata", "name": "Course", "value": "A1"})
CORRECTION = {"by": "Ann", "base": 0, "edits": [EDIT, *LABELS], "id": "attack", "window": "w"}
PIECE = {"Upload-Offset": "0"}

PLAIN = "/ /favicon.ico /api/library /api/labels /api/choices /api/uploads /api/live"
PLAIN += " /api/openapi.json /api/docs"
OF_VIDEO = "/video/{id} /follow/{id} /api/videos/{id} /api/videos/{id}/removal"
OF_VIDEO += " /api/videos/{id}/media /api/videos/{id}/waveform"
FILTER = {"tag": "Safety", "metadata": "Course:A1", "state": "new"}

ENTRIES = {
    **{("GET", path): Entry() for path in PLAIN.split()},
    **{("GET", path): Entry(VIDEO) for path in OF_VIDEO.split()},
    ("GET", "/live/{name}"): Entry(RUN),
    ("GET", "/login"): Entry(needs_token=False),
    ("POST", "/login"): Entry(
        body={"password": "wrong"}, model=PasswordBody, statuses=(403,), needs_token=False
    ),
    ("GET", "/static/{name}"): Entry({"name": "static"}, needs_token=False),
    ("GET", "/api/videos"): Entry(
        query={"q": "lemon", "sort": "title", "from": "0", "most": "10", **FILTER}
    ),
    ("POST", "/api/videos"): Entry(
        body={"path": "broken.mp4", "options": {"language": "en"}}, model=VideoBody
    ),
    ("GET", "/health"): Entry(needs_token=False),
    ("DELETE", "/api/videos/{id}"): Entry({"id": "removed video"}, statuses=(200, 404)),
    ("GET", "/api/videos/{id}/record"): Entry(VIDEO, {"part": "steps"}),
    ("GET", "/api/videos/{id}/steps"): Entry(VIDEO, {"format": "json"}),
    ("GET", "/api/videos/{id}/history"): Entry(VIDEO, {"from": "0"}),
    ("POST", "/api/videos/{id}/corrections"): Entry(VIDEO, body=CORRECTION, model=NewCorrection),
    ("GET", "/api/videos/{id}/pictures/{second:float}.jpg"): Entry(VIDEO | {"second": "second"}),
    ("POST", "/api/videos/{id}/jobs"): Entry(
        VIDEO, body={"language": "en"}, model=JobOptions, statuses=(200, 409)
    ),
    ("GET", "/api/jobs"): Entry(query={"from": "0", "most": "10"}),
    ("GET", "/api/jobs/{id:int}"): Entry(JOB),
    ("DELETE", "/api/jobs/{id:int}"): Entry({"id": "removed job"}, statuses=(200, 404, 409)),
    ("POST", "/api/jobs/{id:int}/cancel"): Entry(JOB, statuses=(200, 409)),
    ("POST", "/api/jobs/{id:int}/retry"): Entry(JOB, statuses=(200, 409)),
    ("POST", "/api/uploads"): Entry(
        body={"name": "a.mp4", "size": 10, "options": {"language": "en"}},
        model=UploadBody,
        statuses=(201,),
    ),
    ("HEAD", "/api/uploads/{id}"): Entry(UPLOAD),
    ("PATCH", "/api/uploads/{id}"): Entry(
        UPLOAD, body="x" * 10, headers=PIECE, statuses=(200, 409)
    ),
    ("DELETE", "/api/uploads/{id}"): Entry({"id": "ended upload"}, statuses=(200, 404)),
    ("GET", "/api/search"): Entry(query={"q": "slice", "most": "3", **FILTER}),
    ("GET", "/api/live/{name}/events"): Entry(RUN, is_stream=True),
    ("POST", "/api/share"): Entry(body={"ids": ["{video}"], "videos": True}, model=ShareBody),
    ("GET", "/api/events"): Entry(is_stream=True),
}


def web_server_of(server):
    """The web server of a library within a StudioServer."""
    return server._server


def routes_of(server):
    """The (method, path) of every route of a StudioServer."""
    pairs = set()
    for route in web_server_of(server).config.app.routes:
        # Starlette adds HEAD to each GET.
        methods = route.methods - {"HEAD"} if "GET" in route.methods else route.methods
        pairs |= {(method, route.path) for method in methods}
    return pairs


def operations_of(server):
    """The routes of the API, each with its OpenAPI description: (method, path) -> (route, row)."""
    application = web_server_of(server).config.app
    paths = application.openapi()["paths"]
    return {
        (route.method, route.path): (route, paths[route.path_format][route.method.lower()])
        for route in application.routes
        if isinstance(route, ApiRoute) and route.include_in_schema
    }


def parameters_of(server):
    """The parameters of the query that the OpenAPI names: (method, path) -> names."""
    return {
        key: {each["name"] for each in row.get("parameters", ()) if each["in"] == "query"}
        for key, (_, row) in operations_of(server).items()
    }


def models_of(server):
    """The models of bodies that the routes name: (method, path) -> model."""
    return {
        key: route.body_field and route.body_field.field_info.annotation
        for key, (route, _) in operations_of(server).items()
    }


def address(path, entry, names, *, query=None, **values):
    """The address of an entry's route. values: of parameters of the path instead of the valid
    ones, as they are to be sent."""

    def value(match):
        parameter = match[1]
        if parameter in values:
            return values[parameter]
        return quote(names[entry.names[parameter]], safe="")

    query = entry.query if query is None else query
    pairs = "&".join(f"{name}={quote(text, safe='')}" for name, text in query.items())
    return PARAMETER.sub(value, path) + (f"?{pairs}" if pairs else "")


def with_names(body, names):
    """A body with the names of the library put where its texts say {name}."""
    if isinstance(body, dict):
        return {key: with_names(value, names) for key, value in body.items()}
    if isinstance(body, list):
        return [with_names(value, names) for value in body]
    if isinstance(body, str) and body.startswith("{"):
        return names[body.strip("{}")]
    return body


def text_fields(model):
    """The place of every text in a model's JSON, as keys and indices; of a list its first item."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    places = set()

    def visit(node, place):
        if "$ref" in node:
            visit(definitions[node["$ref"].rpartition("/")[2]], place)
        for kind in ("anyOf", "oneOf", "allOf"):
            for choice in node.get(kind, ()):
                visit(choice, place)
        if node.get("type") == "string" or "enum" in node or isinstance(node.get("const"), str):
            places.add(place)
        for name, part in node.get("properties", {}).items():
            visit(part, (*place, name))
        items = node.get("items")
        if isinstance(items, dict):
            visit(items, (*place, 0))
        for number, part in enumerate(node.get("prefixItems", ())):
            visit(part, (*place, number))

    visit(schema, ())
    return sorted(places, key=str)


def with_value(body, place, value):
    """A body with a value at a place, whose dicts and lists are made where they lack."""
    if not place:
        return value
    key, *rest = place
    if isinstance(key, int):
        items = list(body) if isinstance(body, list) else []
        items += [None] * (key + 1 - len(items))
        items[key] = with_value(items[key], rest, value)
        return items
    fields = dict(body) if isinstance(body, dict) else {}
    fields[key] = with_value(fields.get(key), rest, value)
    return fields
