"""A training run's folder: the names of its files, and that it holds one run."""

from pathlib import Path

from stepline.errors import SettingsError
from stepline.settings import Settings
from stepline.storage import write_atomic

SETTINGS, RUN, VIDEOS = "settings.json", "run.json", "videos.json"
DETECTOR, SUMMARIZER = "detector.safetensors", "summarizer.safetensors"


def claim(folder: Path, settings: Settings) -> None:
    """Write a run's settings into its folder. Raises SettingsError where a run with other settings lies."""
    path, wanted = folder / SETTINGS, settings.model_dump_json(indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text(encoding="utf-8") != wanted:
        raise SettingsError(f"{path}: another run, with other settings; give another --out, or remove it")
    write_atomic(path, wanted)
