"""Options that several commands share, and the settings that they make."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from stepline.pipeline import StepsSettings

F = TypeVar("F", bound=Callable[..., Any])


def settings_options(command: F) -> F:
    """Add the options that choose settings."""
    options = [
        click.option(
            "--settings",
            "settings_file",
            type=click.Path(path_type=Path),
            help="A TOML file of settings (docs/settings.md).",
        ),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. asr.beam=5."),
        click.option("--model", help="Recogniser: whisper-tiny.en, whisper-base or a CTranslate2 folder."),
        click.option("--captions", type=click.Path(path_type=Path), help="Captions to use instead of recognition."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def chosen_settings(options: dict[str, Any]) -> "StepsSettings":
    """Return the settings from file, --set and the shorthand options, which win."""
    from stepline.pipeline import StepsSettings
    from stepline.settings import load_settings

    shorthand = {
        "asr.model": options.get("model"),
        "writing.writer": options.get("writer"),
        "vision.backbone": options.get("backbone"),
        "vision.path": options.get("weights"),
        "nasva.aligner.path": options.get("aligner"),
        "nasva.aligner.mode": options.get("mode"),
        "nasva.aligner.order": options.get("order"),
        "procx.path": options.get("describer"),
    }
    given = [f"{key}={toml_string(str(value))}" for key, value in shorthand.items() if value is not None]
    return load_settings(StepsSettings, options["settings_file"], [*options["overrides"], *given])


def toml_string(value: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(value)
