"""Plain English, checked: python benchmarks/english.py [PATH ...]

It lists each place in the documents and in the texts of the code that breaks a rule. Each comes
with its line and what to write instead. PATH is a file or a folder. Without one everything is read.

The rules are in english_rules.py. A sentence has at most 25 words, prose has no semicolon, and some
words are replaced. english_bounds.json holds how many places each file still has. These numbers may
only fall. `make lint` runs --check. It fails if a file has more places than its number, or fewer.
--tighten lowers the numbers to what is measured.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from english_rules import Place, places
from prose import Passage, markdown_passages, python_passages

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
BOUNDS_PATH = PROJECT_FOLDER / "benchmarks" / "english_bounds.json"
PAGE_PATTERNS = ("*.md", "docs/**/*.md")
PYTHON_FILES = ("stepline/**/*.py", "research/**/*.py", "benchmarks/*.py")

Counts = dict[str, int]  # places by file


def read_passages(project: Path, path: Path) -> list[Passage]:
    """Return the passages of a page or a Python file."""
    name = path.relative_to(project).as_posix()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return list(markdown_passages(name, text))
    return list(python_passages(name, text))


def prose_files(project: Path) -> list[Path]:
    """Return every page and Python file whose English is checked."""
    files: list[Path] = []
    for pattern in (*PAGE_PATTERNS, *PYTHON_FILES):
        files += sorted(project.glob(pattern))
    return files


def checkout_of(path: Path) -> Path:
    """Return the checkout that a path is in: the nearest folder above with a pyproject.toml."""
    for folder in (path, *path.parents):
        if (folder / "pyproject.toml").is_file():
            return folder
    return PROJECT_FOLDER


def files_below(path: Path) -> list[Path]:
    """Return the file, or the checked files of a folder, in whatever checkout it is."""
    if path.is_file():
        return [path]
    return [file for file in prose_files(checkout_of(path)) if path in file.parents]


def find_places(project: Path, files: Iterable[Path]) -> list[Place]:
    """Return the places that break a rule, in the order of files and lines."""
    all_places: list[Place] = []
    for file in files:
        file_places: list[Place] = []
        for passage in read_passages(project, file):
            file_places += places(passage)
        all_places += sorted(file_places, key=lambda place: place.line)
    return all_places


def departures(bounds: Counts, counts: Counts) -> list[str]:
    """Return a line per file that has more places than its bound, or a bound that is too high."""
    lines = []
    for path in sorted(bounds.keys() | counts.keys()):
        bound = bounds.get(path, 0)
        count = counts.get(path, 0)
        if count > bound:
            cure = f"`python benchmarks/english.py {path}` lists them"
            lines.append(f"{path}: {count} places that are not plain, {bound} allowed; {cure}")
        elif count < bound:
            cure = "`python benchmarks/english.py --tighten` lowers the number"
            lines.append(f"{path}: {bound} places allowed, {count} left; {cure}")
    return lines


def tightened(bounds: Counts, counts: Counts) -> Counts:
    """Return the bounds, each lowered to what is measured, without those that are 0."""
    tight = {}
    for path in sorted(bounds):
        bound = min(bounds[path], counts.get(path, 0))
        if bound:
            tight[path] = bound
    return tight


def read_bounds() -> Counts:
    """Return path -> how many places its file may have."""
    bounds: Counts = json.loads(BOUNDS_PATH.read_text(encoding="utf-8"))["places"]
    return bounds


def count_places(project: Path) -> Counts:
    """Return path -> how many places its file has, of files with one or more."""
    all_places = find_places(project, prose_files(project))
    return dict(Counter(place.path for place in all_places))


def tighten() -> None:
    """Write the bounds downwards."""
    bounds = tightened(read_bounds(), count_places(PROJECT_FOLDER))
    text = json.dumps({"places": bounds}, indent=1)
    BOUNDS_PATH.write_text(f"{text}\n", encoding="utf-8")


def main() -> int:
    """List the places, or do what an option asks for. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Check that documents and texts are plain.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--check", action="store_true", help="fail where a file breaks its bound")
    parser.add_argument("--tighten", action="store_true", help="lower the bounds to the measures")
    options = parser.parse_args()
    if options.tighten:
        tighten()
        return 0
    if options.check:
        lines = departures(read_bounds(), count_places(PROJECT_FOLDER))
        print(*lines, sep="\n", end="\n" if lines else "")
        return 1 if lines else 0
    all_places: list[Place] = []
    for path in options.paths or [PROJECT_FOLDER]:
        absolute = path.resolve()
        all_places += find_places(checkout_of(absolute), files_below(absolute))
    for place in all_places:
        print(place)
    files = {place.path for place in all_places}
    print(f"{len(all_places):,} places in {len(files):,} files", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
