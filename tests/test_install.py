"""What is published: the source distribution, the wheel built from it, and that wheel in an empty
environment."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_PACKAGES = 68  # of an installation without extras; docs/install.md has their number of today
LARGEST = 900e6  # bytes of it, weights apart


def run(*command, **options):
    """Run a program of another environment, where nothing of this one is seen; return what it
    printed."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "STEPLINE_CONFIG"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    options["env"] = environment | options.get("env", {})
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def readme_for_index(monkeypatch):
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=lambda **_: None))
    return runpy.run_path(str(ROOT / "setup.py"))["readme_for_index"]


def test_the_index_shows_the_readme_without_links_into_the_tree(readme_for_index):
    assert readme_for_index("see [the format](docs/json.md)") == "see the format (docs/json.md)"
    assert readme_for_index("([docs/json.md](docs/json.md))") == "(docs/json.md)"
    elsewhere = "[here](#start), [there](https://example.org)"
    assert readme_for_index(elsewhere) == elsewhere
    assert readme_for_index("![the page](docs/page.webp)") == "*the page*"
    text = readme_for_index((ROOT / "README.md").read_text())
    assert "docs/json.md" in text
    assert not re.findall(r"\]\((?!https?:|#)", text)


def test_the_index_shows_the_readme_with_links_to_a_repository_that_is_known(readme_for_index):
    here = "https://example.org/stepline"
    shown = readme_for_index("see [the format](docs/json.md) ![page](docs/page.webp)", here)
    picture = f"![page]({here}/raw/HEAD/docs/page.webp)"
    assert shown == f"see [the format]({here}/blob/HEAD/docs/json.md) {picture}"


def completed(variables):
    """Return what the program prints for a shell's completion."""
    code = "from stepline.cli import main; main.main(prog_name='stepline')"
    return run(sys.executable, "-c", code, env=variables | {"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete ")]
)
def test_a_shell_gets_its_completion(shell, words):
    script = completed({"_STEPLINE_COMPLETE": f"{shell}_source"})
    assert words in script
    assert "_STEPLINE_COMPLETE" in script


def test_the_completion_knows_commands_options_and_weights():
    def proposals(*words):
        line = {"COMP_WORDS": " ".join(["stepline", *words]), "COMP_CWORD": str(len(words))}
        return completed(line | {"_STEPLINE_COMPLETE": "bash_complete"})

    assert "plain,transcribe" in proposals("trans")
    assert "plain,--captions" in proposals("steps", "--cap")
    assert "plain,minilm" in proposals("weights", "get", "mini")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The source distribution of the checkout, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("published")
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    try:
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout, whose files are to be published")
    for name in done.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / "source" / name)
    venv.create(folder / "builder", with_pip=True)
    python = folder / "builder" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "setuptools>=77")
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    run(python, "-c", code, cwd=folder / "source")
    (sdist,) = folder.glob("*.tar.gz")
    wheel = "-m pip wheel -q --no-deps --no-build-isolation -w".split()
    run(python, *wheel, folder, sdist)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_what_is_published_is_whole(published):
    sdist, wheel = published
    files = [path for path in (ROOT / "stepline").rglob("*") if path.is_file()]
    tracked = {path.relative_to(ROOT).as_posix() for path in files}
    packaged = {name for name in tracked if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith("METADATA"))
        metadata = message_from_bytes(archive.read(about))
    assert packaged <= names
    assert {name.partition("/")[0] for name in names if "stepline-" not in name} == {"stepline"}
    assert any(name.endswith("share/man/man1/stepline.1") for name in names)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata["Author"]
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    pages = "README.md CHANGELOG.md CITATION.cff CONTRIBUTING.md docs/design.md docs/notebook.ipynb"
    others = "constraints.txt docs/pictures/page.webp mkdocs.yml setup.py"
    assert {*pages.split(), *others.split()} <= inside


def python_of(version):
    """Return a Python of that version which this machine can start, or None."""
    name = f"python{version}"
    found = shutil.which(name)
    starts = found and not subprocess.run([found, "-c", ""], capture_output=True).returncode
    return found if starts else None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "version", re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
)
def test_the_wheel_in_an_empty_environment_runs_the_demo(published, tmp_path, version):
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine's path")
    run(python, "-m", "venv", tmp_path / "env")
    programs = tmp_path / "env" / "bin"
    run(programs / "pip", "install", "-q", "-c", ROOT / "constraints.txt", published[1])
    home = {f"STEPLINE_{kind.upper()}": str(tmp_path / kind) for kind in ("weights", "cache")}
    table = run(programs / "stepline", "demo", "--out", tmp_path / "out", cwd=tmp_path, env=home)
    assert "Slice the banana" in table
    assert (tmp_path / "out" / "demo.html").stat().st_size > 10_000
    assert (tmp_path / "env" / "share" / "man" / "man1" / "stepline.1").exists()
    run(programs / "stepline", "doctor", env=home)
    bundled = ("pip", "setuptools")
    facts = (tmp_path / "env").glob("lib/python*/site-packages/*.dist-info")
    packages = [path for path in facts if not path.name.startswith(bundled)]
    size = 0
    for path in (tmp_path / "env").rglob("*"):
        parts = path.relative_to(tmp_path).parts
        if (
            path.is_file()
            and not path.is_symlink()
            and not any(p.startswith(bundled) for p in parts)
        ):
            size += path.stat().st_size
    print(f"{len(packages)} packages, {size / 1e6:.0f} MB")
    assert len(packages) <= MOST_PACKAGES, sorted(path.name for path in packages)
    assert size <= LARGEST
    assert not [p.name for p in packages if p.name.startswith(("torch-", "pyarrow-", "scipy-"))]
