"""Attacks on a real studio: a process with the command's own defaults, and its token.

`guest` has the token; `stranger` asks a second studio, which others reach by its password, and has
neither.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("studio",)]

import pytest  # noqa: E402
from attacked_library import AttackedLibrary  # noqa: E402   found by the path above
from studio_process import StudioProcess  # noqa: E402


@pytest.fixture(scope="session")
def attacked(tmp_path_factory, small_video):
    """A library with everything that a studio serves, next to a secret."""
    return AttackedLibrary(tmp_path_factory.mktemp("attack"), small_video)


@pytest.fixture(scope="session")
def guest(attacked):
    """The studio as one who has its token."""
    with StudioProcess(attacked.folder, variables=attacked.variables) as studio:
        attacked.fill(studio)
        yield studio


@pytest.fixture(scope="session")
def stranger(attacked, small_video):
    """A studio with a password, as one who does not know it."""
    password = attacked.root / "password"
    password.write_text("open sesame\n")
    other = attacked.open_library(small_video)
    more = ("--host", "127.0.0.1", "--password-file", password)
    with StudioProcess(other, *more, variables=attacked.variables) as studio:
        yield studio


@pytest.fixture
def precious(tmp_path):
    """A file of the user's outside of the folder that is attacked."""
    path = tmp_path / "precious.txt"
    path.write_bytes(b"what a person wrote\n")
    return path
