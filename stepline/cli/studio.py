"""The studio's commands: a library of videos served to people and programs, and what is learnt from
corrections."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import print_data, say
from stepline.cli.options import (
    PATH,
    chosen_settings,
    device_options,
    json_option,
    serve_until_stopped,
    settings_options,
)
from stepline.cli.progress import progress_bars
from stepline.cli.weights import offer_weights

if TYPE_CHECKING:
    from stepline.pipeline.request import StepsSettings


@click.command()
@click.argument("folder", type=PATH, default=Path("out"))
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Default: that of the last time; 0: any free one."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="An address of this machine that others reach too; needs a password.",
)
@click.option("--password-file", type=PATH, help="A file whose first line is the password.")
@click.option("--certfile", type=PATH, help="A certificate (PEM), for https instead of http.")
@click.option("--keyfile", type=PATH, help="Its key (PEM), where --certfile does not hold it.")
@click.option(
    "--allow",
    multiple=True,
    type=PATH,
    help="A folder outside of FOLDER from which videos may be taken.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Videos understood at once.",
)
@click.option("--webhook", help="An address that is told of jobs and corrections.")
@click.option("--webhook-secret", type=PATH, help="A file with the key that signs what it is told.")
@click.option(
    "--audit", type=PATH, help="The OUT of `stepline curate` whose sample people check at /audit/."
)
@click.option("--open", "browse", is_flag=True, help="Show it in the browser.")
@settings_options("One setting of the main job.")
@device_options
def studio(folder: Path, **options: Any) -> None:
    """Watch, correct and search the videos whose steps are in FOLDER, in the browser, and serve
    them to programs.

    What people correct lies in FOLDER/.stepline-studio.sqlite; the records stay as they are.

    \b
    Example:
      stepline studio out --port 8080
    """
    from stepline.errors import SettingsError
    from stepline.locks import lock_output
    from stepline.studio.access import read_password
    from stepline.studio.events import open_webhook
    from stepline.studio.server import StudioOptions, StudioServer
    from stepline.studio.store import STORE, Studio
    from stepline.web.local_server import Certificate, is_this_machine

    settings, password_file = _library_settings(folder, options), options["password_file"]
    if options["audit"] is not None:
        from stepline.curate.report.write import read_dataset
        from stepline.remote import RemotePath

        next(read_dataset(RemotePath(str(options["audit"]))), None)  # raises where there is none
    certfile, keyfile = options["certfile"], options["keyfile"]
    if keyfile is not None and certfile is None:
        raise SettingsError("--keyfile needs --certfile, the certificate that it is the key of")
    library = Studio(folder, options["allow"])
    chosen = StudioOptions(
        port=options["port"],
        host=options["host"],
        password=read_password(password_file) if password_file is not None else None,
        certificate=Certificate(certfile, keyfile) if certfile is not None else None,
        at_once=options["jobs"],
        settings=settings,
        webhook=open_webhook(options["webhook"], options["webhook_secret"], settings.links),
        audit=options["audit"],
    )
    offer_weights()
    with lock_output(library.path.with_suffix(".lock"), folder):

        def start() -> StudioServer:
            server = StudioServer(library, chosen)
            say(f"open {server.link}", urgent=True)
            if chosen.certificate is None and not is_this_machine(f"{chosen.host}:0"):
                say(
                    "warning: plain http: who is between reads the password and all else; --certfile",
                    urgent=True,
                )
            if chosen.audit is not None:
                say(f"{chosen.audit} is audited at {server.address}audit/")
            if options["browse"]:
                click.launch(server.link)
            return server

        serve_until_stopped(
            start,
            options["port"] or 0,
            notice="serving at {address} (Ctrl-C ends)",
            goodbye=f"stopped; every correction is in {folder / STORE}",
        )
    library.close()


@click.command()
@click.argument("folder", type=PATH)
@click.option(
    "--allow", type=PATH, multiple=True, help="A folder beside it whose videos may be read."
)
@click.option(
    "--http",
    is_flag=True,
    help="Serve over streamable HTTP on this machine, not over stdin and stdout.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="With --http; 0: any that is free."
)
@settings_options("One setting of the main job, for videos that are processed.")
@device_options
def mcp(folder: Path, allow: tuple[Path, ...], http: bool, port: int, **options: Any) -> None:
    """Offer the videos whose steps are in FOLDER to assistants, as tools of the Model Context
    Protocol.

    Tools: list_videos, search_moments, get_steps, get_frame, cut_clip, process_video. An assistant
    starts this command itself and talks to it over stdin and stdout; with --http it is given an
    address and a token instead. Needs the extra `mcp`.

    \b
    Example:
      stepline mcp out
    """
    from stepline.library.search import index_path
    from stepline.studio.mcp_server import LibraryTools, http_application, mcp_server
    from stepline.web.local_server import LocalServer

    tools = LibraryTools(folder, allow=allow, settings=_library_settings(folder, options))
    if (path := index_path(folder)).parent != folder:
        told = f"{folder} cannot be written: no clip can be cut and no video processed, and the index lies in {path}"
        say(f"warning: {told}", urgent=True)
    if not http:
        server = mcp_server(tools)
        offer_weights()
        try:
            server.run("stdio")
        finally:
            tools.close()
        return
    token = secrets.token_urlsafe(24)
    application = http_application(tools, token)
    offer_weights()
    say(f"send the header Authorization: Bearer {token}", urgent=True)
    try:
        serve_until_stopped(
            lambda: LocalServer(application, port, lifespan="on"),
            port,
            notice="{address}mcp answers assistants; Ctrl-C ends it",
            goodbye="the assistants are left",
        )
    finally:
        tools.close()


@click.command()
@click.argument("library", type=PATH)
@click.option(
    "--export",
    "data",
    type=PATH,
    help="Also write the corrected videos into this folder: records and "
    "features to train on, and a test set of those that two people corrected.",
)
@json_option
@device_options
def learn(library: Path, data: Path | None, as_json: bool) -> None:
    """Refit the few parameters of grounding and judge to what people corrected in LIBRARY.

    Corrected videos are held out in turn, and what does not surely do better on them is refused.
    What is accepted is written to LIBRARY/learned.toml, which `steps --settings` takes and the
    studio's jobs use.

    \b
    Example:
      stepline learn out --export corrected
    """
    import json
    from dataclasses import asdict

    from stepline.learning.corrected_videos import LEARNED, learn, report
    from stepline.learning.training_data import export_corrected
    from stepline.studio.store import Studio

    offer_weights()
    studio = Studio(library)
    with progress_bars() as progress:
        result, videos = learn(studio, progress)
    print_data(
        json.dumps(asdict(result), indent=2) if as_json else report(result, videos.left_out), end=""
    )
    say(
        f"wrote {library / LEARNED}"
        if result.settings
        else "nothing is learnt: the settings stay as they are"
    )
    if data is not None:
        say(*(f"wrote {line}" for line in export_corrected(studio, videos, data)))
    studio.close()


def _library_settings(folder: Path, options: dict[str, Any]) -> "StepsSettings":
    """Return the settings of the main job: without a file of them, what was learnt in the
    library."""
    from stepline.learning.corrected_videos import LEARNED

    learned = folder / LEARNED
    given = options["settings_file"] or (learned if learned.is_file() else None)
    return chosen_settings({**options, "settings_file": given})
