"""What pyproject.toml cannot say: the README as a package index shows it, away from the source
tree.

Where pyproject.toml has `[project.urls]` with `Source`, links and pictures lead there; else a link
is its words, and the path where those differ, and a picture is its description.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def readme_for_index(text: str, source: str | None = None) -> str:
    """Return Markdown without relative links and pictures; source: the address of the
    repository."""

    def moved(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        if source:
            return f"{mark}[{words}]({source}/{'raw' if mark else 'blob'}/HEAD/{path})"
        return f"*{words}*" if mark else words if path in words else f"{words} ({path})"

    return re.sub(r"(!?)\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)", moved, text)


project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
setup(
    long_description=readme_for_index(
        (HERE / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")
    ),
    long_description_content_type="text/markdown",
)
