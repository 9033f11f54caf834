"""Plugins: writers, recognizers, backbones and outputs of other packages, by entry points.

    [project.entry-points."stepline.outputs"]      name -> an outputs.Output
    [project.entry-points."stepline.writers"]      name -> (Transcript, WritingSettings) -> WrittenSteps
    [project.entry-points."stepline.recognisers"]  name -> (AsrSettings) -> an asr.recogniser.Recogniser
    [project.entry-points."stepline.backbones"]    name -> (VisionSettings) -> a vision.Backbone

A plugin is selected like a built-in: writing.writer, asr.recogniser, vision.backbone, --format. Its
code runs only when it is selected. examples/plugin has a plugin of each kind.
"""

import hashlib
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stepline.errors import SettingsError

if TYPE_CHECKING:
    from pydantic import AfterValidator

# outputs that are written where no --format is given
DEFAULT_OUTPUTS = ("json", "html", "vtt", "srt", "chapters", "jsonld")
Kind = Literal["outputs", "writers", "recognisers", "backbones"]

# names of the built-ins of each kind, in the order of the command line's help
BUILT_IN_NAMES: dict[Kind, tuple[str, ...]] = {
    "recognisers": ("whisper", "whisperx"),
    "writers": ("extractive", "llm"),
    "outputs": (
        *DEFAULT_OUTPUTS,
        *("markdown", "recipe", "docx", "mp4", "mkv", "otio"),
        *("labelstudio", "alignment"),
    ),
    "backbones": (
        *("conse", "clip", "internvideo", "s3d", "s3d-mixed5c"),
        *("precomputed", "none"),
    ),
}

# output of an earlier release -> what to use instead, as the end of a sentence
REMOVED_OUTPUTS = {
    "webp": "give --clips, a video of each step; `ffmpeg -i CLIP -vf fps=5,scale=320:-1 CLIP.webp` "
    "makes an animated picture of one",
    "gif": "give --clips, a video of each step; `ffmpeg -i CLIP -vf fps=5,scale=320:-1 CLIP.gif` "
    "makes an animated picture of one",
    "ffmetadata": "write mp4 or mkv, a copy of the video that holds the chapters",
    "edl": "write otio, and `otioconvert -i v.otio -o v.edl -A rate=25` makes an EDL of it "
    "(pip install opentimelineio otio-cmx3600-adapter)",
    "pdf": "write html, and print the page to a PDF from the browser; docx is edited and printed too",
}


def refuse_removed_output(name: str) -> None:
    """Raise SettingsError for the name of an output format that earlier releases had.

    The message names its replacement. Other names pass.
    """
    if name in REMOVED_OUTPUTS:
        raise SettingsError(f"format {name!r}: no longer an output; {REMOVED_OUTPUTS[name]}")


def plugin_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of the installed plugins of a kind, sorted."""
    return tuple(sorted({point.name for point in _entry_points(kind)}))


def load_plugin(kind: Kind, name: str) -> Any:
    """Return the object that a plugin's entry point refers to.

    Args:
        kind: what the plugin provides.
        name: name of the entry point.

    Raises SettingsError if no such plugin is installed, two packages provide the name, or the
    import fails.
    """
    points = [point for point in _entry_points(kind) if point.name == name]
    if not points:
        names = ", ".join(plugin_names(kind)) or "none is installed"
        raise SettingsError(
            f"{name!r}: no plugin of stepline.{kind} has that name ({names}); install its package"
        )
    # Entry points of one name that mean the same object are one plugin.
    if len({point.value for point in points}) > 1:
        objects = ", ".join(sorted(point.value for point in points))
        raise SettingsError(
            f"{name!r}: several packages offer it to stepline.{kind} ({objects}); uninstall all "
            "but one"
        )
    # The import of a plugin may raise anything.
    try:
        return points[0].load()
    except Exception as error:
        raise SettingsError(
            f"{name!r}: the plugin {points[0].value} cannot be imported ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}); correct it"
        ) from error


def plugin_identities(names: dict[Kind, str]) -> dict[str, str]:
    """Return kind -> text with package, version and code digest of the plugin in use.

    Built-ins are left out. The digest is the sha256 of the Python files of the entry point's module
    or package.

    Args:
        names: kind -> name of a built-in or a plugin.
    """
    identities: dict[str, str] = {}
    for kind, name in names.items():
        if name in BUILT_IN_NAMES.get(kind, ()):
            continue
        point = next((point for point in _entry_points(kind) if point.name == name), None)
        if point is not None:
            package = f"{point.dist.name} {point.dist.version}" if point.dist else "no package"
            module, _, _ = point.module.partition(".")
            identities[kind] = f"{package}, {point.value}, {_code_digest(module)}"
    return identities


def _code_digest(module: str) -> str:
    digest = hashlib.sha256()
    for file in _python_files(module):
        file_digest = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.name} {file_digest}\n".encode())
    return digest.hexdigest()


def _python_files(module: str) -> list[Path]:
    """Return the Python files of a top-level module or package, without importing it."""
    spec = find_spec(module)
    if spec is None:  # reported when the plugin is loaded
        return []
    folders = spec.submodule_search_locations
    if folders is not None:
        return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
    if spec.origin is None or not spec.has_location:
        return []
    return [Path(spec.origin)]


def choice(kind: Kind) -> "AfterValidator":
    """Return a pydantic validator for a setting that names a built-in or a plugin.

    kind: what the setting selects, such as "writers".
    """
    from pydantic import AfterValidator
    from pydantic_core import PydanticCustomError

    def check_name(name: str) -> str:
        names = (*BUILT_IN_NAMES[kind], *plugin_names(kind))
        if name in names:
            return name
        *first_words, last_word = map(repr, names)
        raise PydanticCustomError(
            "choice", f"Input should be {', '.join(first_words)} or {last_word}"
        )

    return AfterValidator(check_name)


def _entry_points(kind: Kind) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"stepline.{kind}"))
