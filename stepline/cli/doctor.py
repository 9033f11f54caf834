"""`stepline doctor`: what is installed and what is missing. `stepline datasets`: what can be read."""

import importlib.util
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import click

from stepline.cli.errors import print_data
from stepline.cli.options import json_option
from stepline.networks.weights import Weights, known_weights
from stepline.version import __version__


@dataclass(frozen=True)
class Finding:
    """Whether a package, weights or a program that Stepline can use is installed.

    Attributes:
        name: name of the package, weights or program.
        purpose: what Stepline uses it for.
        found: whether it is installed.
        needed: whether finding the steps of a video needs it.
        detail: its version, size or path.
        cure: how to install it.
    """

    name: str
    purpose: str
    found: bool
    needed: bool
    detail: str
    cure: str


# distribution, what for, needed for the main job, how to get it
PACKAGE_ROWS = (
    ("av", "reads and writes video", True, "pip install -c constraints.txt ."),
    ("faster-whisper", "speech to text", True, "pip install -c constraints.txt ."),
    (
        "onnxruntime",
        "runs the networks of texts and pictures",
        True,
        "pip install -c constraints.txt .",
    ),
    ("spacy", "writes steps without a language model", True, "pip install -c constraints.txt ."),
    ("torch", "trained networks, GPUs", False, "pip install -c constraints.txt 'stepline[train]'"),
    ("pyarrow", "datasets, text bases", False, "pip install -c constraints.txt 'stepline[data]'"),
    (
        "xllamacpp",
        "local GGUF language models",
        False,
        "pip install -c constraints.txt 'stepline[llm]'",
    ),
    (
        "transformers",
        "CLIP and SigLIP backbones",
        False,
        "pip install -c constraints.txt 'stepline[clip]'",
    ),
    (
        "pycocoevalcap",
        "METEOR and tokenizer tables for evaluation",
        False,
        "pip install -c constraints.txt 'stepline[evaluate]'",
    ),
    (
        "whisperx",
        "forced alignment of words",
        False,
        "in an environment of its own, "
        "pip install -c constraints-whisperx.txt 'stepline[whisperx]'",
    ),
)


def find_dependencies() -> tuple[Finding, ...]:
    """Look for every package, weights and program that Stepline can use."""
    speaker = shutil.which("espeak-ng") or ""
    cure = "apt install espeak-ng"
    program = Finding(
        "espeak-ng", "re-makes the spoken demo video", bool(speaker), False, speaker, cure
    )
    return (
        *map(_find_package, PACKAGE_ROWS),
        *map(_find_weights, known_weights().values()),
        program,
    )


def _find_package(row: tuple[str, str, bool, str]) -> Finding:
    distribution, purpose, needed, cure = row
    # Only looked for: importing it would take seconds.
    is_here = importlib.util.find_spec(distribution.replace("-", "_")) is not None
    detail = ""
    if is_here:
        try:
            detail = version(distribution)
        except PackageNotFoundError:
            detail = "version unknown"
    return Finding(distribution, purpose, is_here, needed, detail, cure)


def _find_weights(weights: Weights) -> Finding:
    detail = f"{weights.size / 1e6:.0f} MB, {weights.licence}" if weights.fetched else ""
    cure = f"stepline weights get {weights.name}"
    return Finding(
        weights.name, weights.role, weights.fetched, weights.need == "required", detail, cure
    )


def format_findings(findings: tuple[Finding, ...]) -> str:
    """Return the findings as a table, with the cure if something is missing."""
    lines = [
        f"stepline {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores",
        "",
    ]
    # What is missing shows its cure in the place of its version.
    for finding in findings:
        mark = "ok"
        detail = finding.detail
        if not finding.found:
            mark = "MISSING" if finding.needed else "absent"
            detail = finding.cure
        lines.append(f"{mark:<7} {finding.name:<24} {finding.purpose:<42} {detail}")
    missing = [finding.name for finding in findings if finding.needed and not finding.found]
    verdict = "everything the main job needs is here"
    if missing:
        verdict = f"missing for the main job: {', '.join(missing)}"
    return "\n".join([*lines, "", verdict])


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Report what is installed, what is missing and how to get it.

    \b
    Example:
      stepline doctor
    """
    findings = find_dependencies()
    if as_json:
        rows = [asdict(finding) for finding in findings]
        print_data(json.dumps({"version": __version__, "findings": rows}, indent=2))
    else:
        print_data(format_findings(findings))
    # Only what the main job needs decides the exit code.
    missing = [finding for finding in findings if finding.needed and not finding.found]
    sys.exit(1 if missing else 0)


@click.command()
@click.argument("name", required=False)
def datasets(name: str | None) -> None:
    """List the public datasets that Stepline reads.

    \b
    Example:
      stepline datasets youcook2

    With NAME, print where to get it and what is read.
    """
    from stepline.datasets import describe

    print_data(describe(name), end="")
