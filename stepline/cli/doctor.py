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


# distribution, what for, the extra that brings it. "": the main job needs it
PACKAGE_ROWS = (
    ("av", "reads and writes video", ""),
    ("faster-whisper", "speech to text", ""),
    ("onnxruntime", "runs the networks of texts and pictures", ""),
    ("spacy", "writes steps without a language model", ""),
    ("torch", "trained networks, GPUs", "train"),
    ("pyarrow", "datasets, text bases", "data"),
    ("xllamacpp", "local GGUF language models", "llm"),
    ("transformers", "CLIP and SigLIP backbones", "clip"),
    ("pycocoevalcap", "METEOR and tokenizer tables for evaluation", "evaluate"),
    ("whisperx", "forced alignment of words", "whisperx"),
)
INSTALL = "pip install -c constraints.txt"


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


def _find_package(row: tuple[str, str, str]) -> Finding:
    distribution, purpose, extra = row
    cure = f"{INSTALL} 'stepline[{extra}]'" if extra else f"{INSTALL} ."
    if extra == "whisperx":  # which needs other versions of torch
        cure = (
            "in an environment of its own, "
            "pip install -c constraints-whisperx.txt 'stepline[whisperx]'"
        )
    # Only looked for: importing it would take seconds.
    is_here = importlib.util.find_spec(distribution.replace("-", "_")) is not None
    detail = ""
    if is_here:
        try:
            detail = version(distribution)
        except PackageNotFoundError:
            detail = "version unknown"
    return Finding(distribution, purpose, is_here, not extra, detail, cure)


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
    verdict = "everything that `stepline steps` needs is here"
    if missing:
        verdict = f"missing for `stepline steps`: {', '.join(missing)}"
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
