"""The commands on a library of videos: served to people and assistants, searched, compared, exported as
training data, and the keys of programs."""

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.curate import curate
from stepline.cli.errors import Group, print_data, print_message
from stepline.cli.options import (
    MAX_PORT,
    PATH_TYPE,
    device_options,
    json_option,
    load_from_options,
    out_option,
    path_option,
    port_option,
    serve_until_stopped,
    settings_from_options,
    settings_options,
)
from stepline.cli.progress import progress_bars
from stepline.cli.results import print_corrections
from stepline.cli.weights import offer_weights
from stepline.errors import SettingsError, StoreError
from stepline.files.atomic_files import write_atomic

if TYPE_CHECKING:
    from stepline.compare import TaskComparison
    from stepline.library import Moment
    from stepline.studio.keys import Role


@click.command()
@click.argument("folder", type=PATH_TYPE, default=Path("out"))
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    help="Local port. 0: any free one. Default: the one of the last time.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="An address of this machine that others reach too. It needs a password.",
)
@path_option("--password-file", help="A file whose first line is the password.")
@path_option("--keys", help="A file of keys for programs, as `stepline keys add` makes it.")
@path_option("--certfile", help="A certificate (PEM), for https instead of http.")
@path_option("--keyfile", help="Its key (PEM), where --certfile does not hold it.")
@path_option(
    "--allow", multiple=True, help="A folder outside of FOLDER from which videos may be taken."
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=1, help="Videos to process at the same time."
)
@click.option("--webhook", help="An address that receives each job and correction.")
@path_option(
    "--webhook-secret",
    help="A file with the key, 16 bytes or more, that signs what the webhook receives.",
)
@click.option("--open", "browse", is_flag=True, help="Show it in the browser.")
@settings_options("One setting of `stepline steps`.")
@device_options
def studio(folder: Path, **options: Any) -> None:
    """Watch, correct and search your videos in the browser.

    \b
    Example:
      stepline studio out --port 8080

    FOLDER is the output folder of `stepline steps`. Programs can use the same address.

    Corrections are stored in FOLDER/.stepline-studio.sqlite. The records stay as they are.
    """
    from stepline.files.locks import lock_output
    from stepline.library.database import DATABASE_FILE
    from stepline.pages.web.local_server import Certificate, is_this_machine
    from stepline.studio.access import read_password
    from stepline.studio.events import open_webhook
    from stepline.studio.keys import KeyFile
    from stepline.studio.server import StudioServer
    from stepline.studio.store import Studio

    # who is let in, and how
    settings = settings_from_options(options)
    host = options["host"]
    certificate = None
    if options["certfile"] is not None:
        certificate = Certificate(options["certfile"], options["keyfile"])
    elif options["keyfile"] is not None:
        raise SettingsError("--keyfile needs --certfile, the certificate of that key")
    password_file = options["password_file"]
    password = None if password_file is None else read_password(password_file)
    webhook = open_webhook(options["webhook"], options["webhook_secret"], settings.links)
    keys = None
    if options["keys"] is not None:
        keys = KeyFile(options["keys"])
        if not keys.read_keys():
            print_message(
                f"warning: {keys.path} has no key; `stepline keys add {keys.path} NAME`",
                urgent=True,
            )
    library = Studio(folder, options["allow"])
    offer_weights()
    cleanup = ExitStack()

    # the server, and where it is found
    def start() -> StudioServer:
        server = StudioServer(
            library,
            port=options["port"],
            host=host,
            password=password,
            certificate=certificate,
            at_once=options["jobs"],
            settings=settings,
            webhook=webhook,
            keys=keys,
        )
        print_message(f"open {server.link}", urgent=True)
        if certificate is None and not is_this_machine(f"{host}:0"):
            print_message(
                "warning: plain http: others can read the password and the rest; use --certfile",
                urgent=True,
            )
        if options["browse"]:
            page = _write_login_page(server.link, folder)
            cleanup.callback(page.unlink, missing_ok=True)
            click.launch(page.absolute().as_uri())
        return server

    # served until it is stopped, by one server at a time
    with cleanup, lock_output(library.database.path.with_suffix(".lock"), folder):
        serve_until_stopped(
            start,
            options["port"] or 0,
            notice="serving at {address} (Ctrl-C ends)",
            goodbye=f"stopped; every correction is in {folder / DATABASE_FILE}",
        )
    library.close()


def _write_login_page(link: str, folder: Path) -> Path:
    """Write a page that leads to a link, which only this user can read. Return the page.

    A browser is not given the link itself: all users of a machine can read the arguments of
    processes.
    """
    # mkstemp makes a file that only this user can read.
    descriptor, name = tempfile.mkstemp(prefix="open-studio-", suffix=".html", dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">\n')
    return Path(name)


@click.command()
@click.argument("folder", type=PATH_TYPE)
@path_option("--allow", multiple=True, help="Another folder whose videos may be read.")
@click.option(
    "--http",
    is_flag=True,
    help="Serve over streamable HTTP on this machine, not over stdin and stdout.",
)
@port_option(help="Port for --http. 0: any free one.")
@settings_options("One setting of `stepline steps`, for videos that are processed.")
@device_options
def mcp(folder: Path, allow: tuple[Path, ...], http: bool, port: int, **options: Any) -> None:
    """Let AI assistants search the videos in a folder (MCP).

    \b
    Example:
      stepline mcp out

    Runs a server of the Model Context Protocol. FOLDER is the output folder of `stepline steps`.

    Tools: list_videos, search_moments, get_steps, get_frame, cut_clip, process_video. An assistant
    starts this command itself and talks to it over stdin and stdout. With --http it gets an address
    and a token instead. Needs the extra `mcp`.
    """
    from stepline.library.mcp_server import LibraryTools, http_application, mcp_server
    from stepline.library.search import index_path
    from stepline.pages.web.local_server import LocalServer

    # what assistants may do
    tools = LibraryTools(folder, allow=allow, settings=settings_from_options(options))
    index = index_path(folder)
    # Without a folder that can be written, the index is in the cache.
    if index.parent != folder:
        print_message(
            f"warning: {folder} cannot be written: no clip can be cut and no video processed, and "
            f"the index is in {index}",
            urgent=True,
        )
    try:
        if not http:
            server = mcp_server(tools)
            offer_weights()
            server.run("stdio")
            return

        # over http, to those that have the token
        token = secrets.token_urlsafe(24)
        application = http_application(tools, token)
        offer_weights()
        print_message(f"send the header Authorization: Bearer {token}", urgent=True)
        serve_until_stopped(
            lambda: LocalServer(application, port, lifespan="on"),
            port,
            notice="{address}mcp answers assistants; Ctrl-C ends it",
            goodbye="the assistants are left",
        )
    finally:
        tools.close()


@curate.command()
@click.argument("library", type=PATH_TYPE)
@path_option(
    "--export",
    "out",
    required=True,
    help="Folder for the corrected videos: records and features to train on.",
)
@device_options
def corrections(library: Path, out: Path) -> None:
    """Export corrected videos as training data.

    \b
    Example:
      stepline curate corrections out --export corrected

    LIBRARY is the folder that the studio serves.
    """
    from stepline.library.training_data import export_corrected
    from stepline.studio.store import Studio

    offer_weights()
    # The pictures of each video are looked at, which takes a while.
    studio = Studio(library)
    try:
        with progress_bars() as progress:
            count, left_out = export_corrected(studio.library, out, progress)
    finally:
        studio.close()
    print_message(*(f"left out {video.id}: {video.value}" for video in left_out), urgent=True)
    print_message(f"wrote {out / 'records'}: {count} videos to train on")
    print_message(f"wrote {out / 'features'}: what is seen of all")


@click.command()
@click.argument("folder", type=PATH_TYPE)
@click.argument("words", nargs=-1, required=True)
@click.option("--most", type=click.IntRange(min=1, max=100), default=5, help="Answers at most.")
@click.option("--tag", "tags", multiple=True, help="Only videos with this tag (repeatable).")
@json_option
@device_options
def search(
    folder: Path, words: tuple[str, ...], most: int, tags: tuple[str, ...], as_json: bool
) -> None:
    """Search the videos in a folder by meaning.

    \b
    Example:
      stepline search out "fold the egg whites"

    Finds the moments that show, say or have on screen what WORDS mean. FOLDER is the output folder
    of `stepline steps`. The index is stored there and follows the records that change.
    Tags are those that people gave in `stepline studio`.
    """
    from stepline.library.card_filter import CardFilter, matching_record_files
    from stepline.library.corrected_library import open_corrections
    from stepline.library.record_files import record_files
    from stepline.library.search import index_path, open_index

    # the index, brought up to date. A folder that never had a record gets none.
    corrections = open_corrections(folder)
    is_new = corrections is None and not index_path(folder).exists()
    if is_new and folder.is_dir() and not record_files(folder):
        raise StoreError(f"{folder}: no record in it; give the output folder of `stepline steps`")
    offer_weights()
    index = open_index(folder, corrections)
    if index.path.parent != folder:
        print_message(
            f"warning: {folder} cannot be written; the index is in {index.path}", urgent=True
        )
    with progress_bars() as progress:
        update = index.update(progress)
    if not index.uses_vectors:
        print_message(
            "warning: by words alone, for the weights of MiniLM are missing; `stepline weights get`",
            urgent=True,
        )
    _report_damage(update.damaged)
    if update.read_count:
        print_message(
            f"{update.read_count} file{'' if update.read_count == 1 else 's'} read into {index.path}"
        )

    # the videos with these tags, of all of them
    names: frozenset[str] | None = frozenset() if tags else None
    # Without corrections no video has a tag.
    if corrections is not None:
        names = matching_record_files(corrections, CardFilter(tags=tags))
    moments = index.search(" ".join(words), most, names)
    index.close()
    if as_json:
        print_data(json.dumps(list(map(asdict, moments)), ensure_ascii=False, indent=2))
    else:
        print_data(_moment_table(moments, folder), end="")
    if corrections is not None:
        print_corrections(corrections, {moment.file for moment in moments})
        corrections.close()
    sys.exit(1 if update.damaged else 0)


def _report_damage(reasons: Sequence[str]) -> None:
    """Print a warning for each record that is left out because it cannot be read."""
    for reason in reasons:
        print_message(f"warning: left out, {reason}", urgent=True)


def _moment_table(moments: "list[Moment]", folder: Path) -> str:
    from stepline.outputs.terminal import MARKS_LEGEND, VERDICT_MARKS
    from stepline.outputs.text import clock, one_line, sentence_case
    from stepline.outputs.verdict import verdict

    if not moments:
        return "nothing found\n"
    # A line for the moment, and one for where it is.
    lines = []
    for moment in moments:
        when = ""
        if moment.start is not None and moment.end is not None:
            when = f"{clock(moment.start)} – {clock(moment.end)}"
        mark = "“"
        if moment.kind == "step":
            mark = VERDICT_MARKS[verdict(moment.status, moment.doubt)]
        text = one_line(moment.text)
        if moment.kind == "step":
            text = sentence_case(text)
        where = f"{one_line(moment.title)} · {folder / (moment.link or moment.file)}"
        lines += [f"  {mark} {when:<15} {text}", f"    {'':<15} {where}"]
    return "\n".join([*lines, "", f"{MARKS_LEGEND}  “ said, no step rests on it", ""])


@click.command()
@click.argument("folder", type=PATH_TYPE)
@out_option("Folder for comparison.json and .html.", "comparison")
@path_option(
    "--as-texts",
    "texts_file",
    help="A file for the common procedure, one step per line, as `--texts` of steps, ground "
    "and live takes it.",
)
@json_option
@settings_options("One setting, e.g. compare.common_share=0.3.")
@device_options
def compare(
    folder: Path, out: Path, texts_file: Path | None, as_json: bool, **options: Any
) -> None:
    """Align the steps of many videos of one task.

    \b
    Example:
      stepline compare out --as-texts recipe.txt

    FOLDER holds what `stepline steps` wrote for several videos. The comparison shows what most of
    them do, in which orders, and what only some do. It also has amounts and times with their
    spread, and the seconds of each video. Videos of something else are left out.
    """
    from stepline.compare.procedure import compare as compare_records
    from stepline.compare.read import read_folder
    from stepline.compare.settings import CompareRunSettings
    from stepline.compare.write import check_outputs, to_json, to_lines, write_comparison

    settings = load_from_options(CompareRunSettings, options)
    offer_weights()
    records, damaged = read_folder(folder)
    inputs = [Path(record.video.path) for record in records if record.video.path is not None]
    if options["settings_file"] is not None:
        inputs.append(options["settings_file"])
    check_outputs(out, texts_file, folder, inputs)
    _report_damage([record.reason for record in damaged])
    comparison = compare_records(records, settings.compare, damaged=damaged)
    if comparison.left_out:
        print_message(
            f"compared are the {len(comparison.videos)} videos of “{comparison.title}”, and not "
            "those left out",
            urgent=True,
        )
    for record in comparison.left_out[len(damaged) :]:
        print_message(f"left out {record.id}: {record.reason}", urgent=True)

    # the files
    paths = write_comparison(comparison, out)
    if texts_file is not None:
        write_atomic(texts_file, to_lines(comparison))
        paths.append(texts_file)
    print_data(to_json(comparison) if as_json else _comparison_table(comparison), end="")
    print_message(*(f"wrote {path}" for path in paths))
    sys.exit(1 if damaged else 0)


def _comparison_table(comparison: "TaskComparison") -> str:
    """Return a line per common step: the number of videos with it, and its text."""
    from stepline.compare.write import step_text

    # The table has the common steps alone. The files have all.
    total = len(comparison.videos)
    common = comparison.common_steps
    least = min((step.videos for step in common), default=total)
    head = (
        f"{comparison.title}: {len(common)} step{'' if len(common) == 1 else 's'} that at least "
        f"{least} of {total} videos share, {len(comparison.steps) - len(common)} of fewer"
    )
    lines = [f"  {step.videos:>3} of {total}  {step_text(step)}" for step in common]
    return "\n".join([head, "", *lines, ""])


@click.group(cls=Group)
def keys() -> None:
    """Make, list and revoke keys with which programs use a studio.

    A key stays valid after a restart. FILE holds the hash of each key, and only its owner can read it.

    \b
    Example:
      stepline keys add keys.json shop --role read
      stepline studio out --keys keys.json
    """


@keys.command("add")
@click.argument("file", type=PATH_TYPE)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(("read", "edit", "admin")),
    default="read",
    help="What it may do: read, edit (also correct, upload and start jobs), admin (also remove).",
)
def add_key(file: Path, name: str, role: "Role") -> None:
    """Make a key, and print it once.

    \b
    Example:
      stepline keys add keys.json shop --role edit
    """
    from stepline.studio.keys import KeyFile

    print_data(KeyFile(file).add(name, role))
    print_message(f"{name} has the role {role}; copy the key now: {file} holds only its hash")


@keys.command("list")
@click.argument("file", type=PATH_TYPE)
def list_keys(file: Path) -> None:
    """List the names and roles of the keys in FILE.

    \b
    Example:
      stepline keys list keys.json
    """
    from stepline.studio.keys import KeyFile

    for key in KeyFile(file).read_keys():
        date = datetime.fromtimestamp(key.created, UTC).date().isoformat()
        print_data(f"{key.name}\t{key.role}\t{date}")


@keys.command("revoke")
@click.argument("file", type=PATH_TYPE)
@click.argument("name")
def revoke_key(file: Path, name: str) -> None:
    """Revoke a key, also in a studio that is running.

    \b
    Example:
      stepline keys revoke keys.json shop
    """
    from stepline.studio.keys import KeyFile

    KeyFile(file).revoke(name)
    print_message(f"revoked {name}")
