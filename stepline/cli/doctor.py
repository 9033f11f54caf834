"""What Stepline tells of itself: `doctor` (what is here, what is missing), `datasets` (what it
reads), `completion`."""

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
from stepline.version import __version__
from stepline.weights import Weights, known_weights


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for. detail: its version or path; cure: how to get it when it is
    missing."""

    name: str
    purpose: str
    found: bool
    needed: bool
    detail: str
    cure: str


# distribution, module, what for, needed for the main job, how to get it
PACKAGES = (
    ("av", "av", "reads and writes video", True, "pip install av"),
    ("faster-whisper", "faster_whisper", "speech to text", True, "pip install faster-whisper"),
    (
        "onnxruntime",
        "onnxruntime",
        "runs the networks of texts and pictures",
        True,
        "pip install onnxruntime",
    ),
    ("spacy", "spacy", "writes steps without a language model", True, "pip install spacy"),
    ("torch", "torch", "trained networks, GPUs", False, "pip install 'stepline[train]'"),
    ("pyarrow", "pyarrow", "datasets, text bases", False, "pip install 'stepline[data]'"),
    ("xllamacpp", "xllamacpp", "local GGUF language models", False, "pip install 'stepline[llm]'"),
    (
        "transformers",
        "transformers",
        "CLIP and SigLIP backbones",
        False,
        "pip install 'stepline[clip]'",
    ),
    (
        "pycocoevalcap",
        "pycocoevalcap",
        "METEOR and tokenizer tables for evaluation",
        False,
        "pip install 'stepline[evaluate]'",
    ),
    (
        "whisperx",
        "whisperx",
        "forced alignment of words",
        False,
        "in an environment of its own, pip install -c constraints-whisperx.txt 'stepline[whisperx]'",
    ),
)


def examine() -> tuple[Finding, ...]:
    """Return a finding for every package, model and program that Stepline can use."""
    speaker = shutil.which("espeak-ng") or ""
    cure = "apt install espeak-ng"
    program = Finding(
        "espeak-ng", "re-makes the spoken demo video", bool(speaker), False, speaker, cure
    )
    return (*map(_package, PACKAGES), *map(_weights, known_weights().values()), program)


def _package(row: tuple[str, str, str, bool, str]) -> Finding:
    distribution, module, purpose, needed, cure = row
    found = importlib.util.find_spec(module) is not None
    try:
        detail = version(distribution) if found else ""
    except PackageNotFoundError:
        detail = "version unknown"
    return Finding(distribution, purpose, found, needed, detail, cure)


def _weights(weights: Weights) -> Finding:
    detail = f"{weights.size / 1e6:.0f} MB, {weights.licence}" if weights.fetched else ""
    cure = f"stepline weights get {weights.name}"
    return Finding(
        weights.name, weights.role, weights.fetched, weights.need == "required", detail, cure
    )


def as_text(findings: tuple[Finding, ...]) -> str:
    """Return the findings as lines for a person; the cure stands where something is missing."""
    lines = [
        f"stepline {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores",
        "",
    ]
    for finding in findings:
        mark = "ok     " if finding.found else ("MISSING" if finding.needed else "absent ")
        detail = finding.detail if finding.found else finding.cure
        lines.append(f"{mark} {finding.name:<24} {finding.purpose:<42} {detail}")
    missing = [finding.name for finding in findings if finding.needed and not finding.found]
    verdict = (
        f"missing for the main job: {', '.join(missing)}"
        if missing
        else "everything the main job needs is here"
    )
    return "\n".join([*lines, "", verdict])


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Report what is installed, what is missing and how to get it.

    \b
    Example:
      stepline doctor
    """
    findings = examine()
    tree = {"version": __version__, "findings": [asdict(finding) for finding in findings]}
    print_data(json.dumps(tree, indent=2) if as_json else as_text(findings))
    sys.exit(1 if any(finding.needed and not finding.found for finding in findings) else 0)


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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      stepline completion bash

    Source it in the file that the shell reads at its start.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    kind = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    print_data(kind(context.find_root().command, {}, "stepline", "_STEPLINE_COMPLETE").source())
