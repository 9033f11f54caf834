"""The outputs of a record as one table, all of them written next to each other, together or not at
all."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from stepline.errors import SettingsError
from stepline.outputs import documents, editing
from stepline.outputs.alignment import alignment_npz
from stepline.outputs.chapters import chapters
from stepline.outputs.clips import step_file_name
from stepline.outputs.jsonld import jsonld, recipe_jsonld
from stepline.outputs.page import page, record_digest
from stepline.outputs.subtitles import srt, webvtt
from stepline.outputs.text import safe_stem
from stepline.outputs.web_addresses import RecordLinks, WebAddresses, media_link
from stepline.plugins import DEFAULT_OUTPUTS, load_plugin, plugin_names, refuse_removed_output
from stepline.records import Alignment, Record
from stepline.storage import to_json

NO_ADDRESSES = WebAddresses()
PICTURES_SUFFIX = ".pictures"  # of the folder of key frames that some outputs link


@dataclass(frozen=True)
class OutputExtras:
    """What an output may show in addition to the record.

    Attributes:
        alignment: P(each step is shown in each second). None if no step was grounded.
        media: path of the video, relative to the output's folder. None: outputs do not link the
            video.
        keyframes: step id -> JPEG of the step.
        said_cues: whether subtitles also contain steps that are said but not shown.
        video: the video file, for outputs that are cut from it. None if there is no file.
        web: web addresses of the outputs' folder and of the videos.
        formats: keys of OUTPUTS that are written together, and so may link each other.
    """

    alignment: Alignment | None = None
    media: str | None = None
    keyframes: Mapping[str, bytes] = field(default_factory=dict)
    said_cues: bool = True
    video: Path | None = None
    web: WebAddresses = NO_ADDRESSES
    formats: tuple[str, ...] = ()


# The content of a file, or a function that writes it to a path.
Content = str | bytes | Callable[[Path], None]
Writer = Callable[[Record, OutputExtras], Content | None]


class Output(NamedTuple):
    """An output format: how its file is named and written.

    Attributes:
        suffix: the end of the file name, after the record's id.
        write: function that returns the content of the file, None if the format cannot hold the
            record.
        keyframes: pictures of the steps are "inside" the file, "beside" it in a folder, or "none".
        remade: whether the file's text can be made again from the record alone.
        addressed: whether the file contains the web addresses of WebAddresses, if they are set.
    """

    suffix: str
    write: Writer
    keyframes: Literal["none", "inside", "beside"] = "none"
    remade: bool = False
    addressed: bool = False


# Writers that need more than the record.
def _howto_jsonld(record: Record, extras: OutputExtras) -> str:
    """Return the record as a schema.org HowTo. Links are web addresses, never local paths."""
    if extras.web.base is None:
        return jsonld(record)
    return jsonld(record, record_links(record, extras))


def _otio_timeline(record: Record, extras: OutputExtras) -> str:
    """Return the OpenTimelineIO file, in the time code of the video if that is at hand."""
    from stepline.media import probe

    start = 0.0
    if extras.video is not None and extras.video.is_file():
        start = probe(extras.video).start_timecode
    return editing.opentimelineio(record, extras.media, start)


def _html_page(record: Record, extras: OutputExtras) -> str:
    """Return the page. It holds the Recipe if that is written too and has an image."""
    linked_data = partial(_howto_jsonld, extras=extras)
    links = record_links(record, extras)
    # a search engine takes no Recipe without an image
    if "recipe" in extras.formats and links.image is not None:
        linked_data = partial(recipe_jsonld, links=links)
    return page(
        record,
        extras.alignment,
        # Without --media-url the link stays relative, so that an unpublished page plays too.
        media=replace(extras.web, base=None).video(extras.media),
        keyframes=extras.keyframes,
        linked_data=linked_data,
        digest=page_digest(record, extras.web, extras.formats),
    )


def page_digest(record: Record, web: WebAddresses, formats: Sequence[str]) -> str:
    """Return the hex digest by which a page is recognised, over record, addresses and JSON-LD type.

    Args:
        record: the record that the page shows.
        web: the web addresses in the page.
        formats: keys of OUTPUTS that are written together. With "recipe", the page contains a
            Recipe.
    """
    digest = record_digest(record)
    # Without addresses or a Recipe, the record alone decides.
    kind = "recipe" if "recipe" in formats else "howto"
    if (kind, web) == ("howto", NO_ADDRESSES):
        return digest
    return hashlib.sha256(f"{digest} {kind} {web}".encode()).hexdigest()


def record_links(record: Record, extras: OutputExtras) -> RecordLinks:
    """Return the links that JSON-LD names, as addresses if these are known."""
    # Only what is written too can be linked.
    web = extras.web
    page_link = None
    if "html" in extras.formats:
        page_link = web.absolute(media_link(f"{safe_stem(record.id)}.html"))
    pictures = {}
    if any(OUTPUTS[name].keyframes == "beside" for name in extras.formats):
        for id, link in picture_links(record, extras).items():
            pictures[id] = web.absolute(media_link(link))
    return RecordLinks(page_link, web.video(extras.media), pictures)


def picture_links(record: Record, extras: OutputExtras) -> dict[str, str]:
    """Return step id -> path of the step's picture, relative to the outputs' folder."""
    folder_name = f"{safe_stem(record.id)}{PICTURES_SUFFIX}"
    links = {}
    for number, step in enumerate(record.steps, start=1):
        if step.id in extras.keyframes:
            links[step.id] = f"{folder_name}/{step_file_name(number, step, '.jpg')}"
    return links


def _copy_with_chapters(record: Record, extras: OutputExtras, name: str) -> Content | None:
    from stepline.media import copy_with_chapters

    video = extras.video
    if video is None:
        raise SettingsError(
            f"--format {name}: it is made from the video, and none is given; leave {name} out"
        )
    file_chapters = editing.file_chapters(record)
    if not file_chapters:
        return None
    return lambda path: copy_with_chapters(video, file_chapters, path)


# The JSON comes last: where it is, the outputs before it are complete.
OUTPUTS: dict[str, Output] = {
    "vtt": Output(
        ".vtt", lambda record, extras: webvtt(record, said=extras.said_cues), remade=True
    ),
    "srt": Output(".srt", lambda record, extras: srt(record, said=extras.said_cues), remade=True),
    "chapters": Output(".chapters.txt", lambda record, _: chapters(record), remade=True),
    "jsonld": Output(".howto.jsonld", _howto_jsonld, remade=True, addressed=True),
    "markdown": Output(
        ".md",
        lambda record, extras: documents.markdown(
            record, picture_links(record, extras), extras.media
        ),
        keyframes="beside",
    ),
    "recipe": Output(
        ".recipe.jsonld",
        lambda record, extras: recipe_jsonld(record, record_links(record, extras)),
        keyframes="beside",
        addressed=True,
    ),
    "docx": Output(
        ".docx", lambda record, extras: documents.docx(record, extras.keyframes), keyframes="inside"
    ),
    "mp4": Output(".chapters.mp4", partial(_copy_with_chapters, name="mp4")),
    "mkv": Output(".chapters.mkv", partial(_copy_with_chapters, name="mkv")),
    "otio": Output(".otio", _otio_timeline),
    "labelstudio": Output(
        ".labelstudio.json",
        lambda record, extras: editing.label_studio(record, extras.web.video(extras.media)),
        addressed=True,
    ),
    "alignment": Output(".alignment.npz", lambda _, extras: alignment_npz(extras.alignment)),
    "html": Output(".html", _html_page, keyframes="inside"),
    "json": Output(".json", lambda record, _: to_json(record), remade=True),
}
BUILT_IN_OUTPUTS = frozenset(OUTPUTS)  # without plugins, which join OUTPUTS when they are named
USUAL = tuple(name for name in OUTPUTS if name in DEFAULT_OUTPUTS)  # in the order of writing


def find_outputs(names: Sequence[str]) -> None:
    """Add the installed plugins among the given format names to OUTPUTS, before the JSON format.

    Raises SettingsError for an unknown format, and for a plugin that is not an Output.
    """
    for name in names:
        if name in OUTPUTS:
            continue
        refuse_removed_output(name)
        if name not in plugin_names("outputs"):
            formats = ", ".join((*OUTPUTS, *plugin_names("outputs")))
            raise SettingsError(f"unknown output format {name!r}; known: {formats}")
        output = load_plugin("outputs", name)
        if not isinstance(output, Output):
            kind = type(output).__name__
            raise SettingsError(
                f"{name!r}: the plugin is a {kind}, not an Output; correct or uninstall it"
            )

        # the JSON stays the last
        OUTPUTS[name] = output
        OUTPUTS["json"] = OUTPUTS.pop("json")


def render(record: Record, name: str) -> str:
    """Return an output of a record as text. name: key of OUTPUTS.

    Raises SettingsError for an unknown format, and for a format that is not text.
    """
    find_outputs([name])
    text = OUTPUTS[name].write(record, OutputExtras())
    if not isinstance(text, str):
        reason = "cannot hold this record" if text is None else "is not a text"
        raise SettingsError(
            f"output format {name!r} {reason}; write it with stepline.write_outputs, or take "
            "another"
        )
    return text


def output_paths(record: Record, folder: Path, name: str) -> list[Path]:
    """Return the path of an output file and, if it links pictures, the path of their folder.

    Args:
        record: the record of the video.
        folder: the folder of the outputs.
        name: key of OUTPUTS.
    """
    paths = [output_path(record, folder, name)]
    if OUTPUTS[name].keyframes == "beside":
        paths.append(pictures_folder(record, folder))
    return paths


def pictures_folder(record: Record, folder: Path) -> Path:
    """Return the folder for the key frames to which Markdown and recipe outputs link.

    It may not exist yet.

    Args:
        record: the record of the video, whose id is in the folder's name.
        folder: the folder of the outputs.
    """
    return folder / f"{safe_stem(record.id)}{PICTURES_SUFFIX}"


def output_path(record: Record, folder: Path, name: str) -> Path:
    """Return the path to which `write_outputs` writes a format of the record.

    Args:
        record: the record of the video.
        folder: the folder of the outputs.
        name: key of OUTPUTS.
    """
    return folder / (safe_stem(record.id) + OUTPUTS[name].suffix)
