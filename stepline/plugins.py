"""Writers, recognisers, backbones and outputs of other packages, found by their entry points.

    [project.entry-points."stepline.outputs"]      name -> an outputs.Output
    [project.entry-points."stepline.writers"]      name -> (Transcript, WritingSettings) -> WrittenSteps
    [project.entry-points."stepline.recognisers"]  name -> (AsrSettings) -> an asr.recogniser.Recogniser
    [project.entry-points."stepline.backbones"]    name -> (VisionSettings) -> a vision.Backbone

A plugin is named where one of Stepline's own is: writing.writer, asr.recogniser, vision.backbone, --format. Its code
runs only when it is named. examples/plugin holds one of each.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from stepline.errors import SettingsError

Kind: TypeAlias = Literal["outputs", "writers", "recognisers", "backbones"]


def plugin_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of the installed plugins of a kind, sorted."""
    return tuple(sorted({point.name for point in _points(kind)}))


def load_plugin(kind: Kind, name: str) -> Any:
    """Return what a plugin's entry point names.

    Raises SettingsError where none is installed, two packages claim the name, or it cannot be imported.
    """
    points = [point for point in _points(kind) if point.name == name]
    if not points:
        known = ", ".join(plugin_names(kind)) or "none is installed"
        raise SettingsError(f"{name!r}: no plugin of stepline.{kind} has that name ({known}); install its package")
    if len({point.value for point in points}) > 1:
        claims = ", ".join(sorted(point.value for point in points))
        raise SettingsError(f"{name!r}: several packages offer it to stepline.{kind} ({claims}); uninstall all but one")
    try:
        return points[0].load()
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise SettingsError(f"{name!r}: the plugin {points[0].value} cannot be imported ({reason}); mend it") from error


def choice(kind: Kind, *own: str) -> AfterValidator:
    """Return the validator of a setting that names one of Stepline's own or a plugin."""

    def known(name: str) -> str:
        if name in own or name in plugin_names(kind):
            return name
        offered = [repr(word) for word in (*own, *plugin_names(kind))]
        raise PydanticCustomError("choice", f"Input should be {', '.join(offered[:-1])} or {offered[-1]}")

    return AfterValidator(known)


def _points(kind: Kind) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"stepline.{kind}"))
