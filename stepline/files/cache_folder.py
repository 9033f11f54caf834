"""Where files are kept that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for what can be made again: STEPLINE_CACHE, else the user's cache
    folder."""
    import platformdirs

    variable = os.environ.get("STEPLINE_CACHE")
    if variable:
        return Path(variable).expanduser()
    return platformdirs.user_cache_path("stepline", appauthor=False)
