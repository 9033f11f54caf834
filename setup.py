"""What pyproject.toml cannot say: the README as a package index shows it, where no link leads into the source tree."""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def readme_for_index(text: str) -> str:
    """Return Markdown whose links into the source tree are their words, followed by the path where those differ."""

    def unlinked(link: re.Match[str]) -> str:
        words, path = link.groups()
        return words if path in words else f"{words} ({path})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)", unlinked, text)


setup(
    long_description=readme_for_index((HERE / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
