"""Where the official scorers' tables lie: inside the installed `pycocoevalcap` package, read as data and never run.

The package carries METEOR's jar and paraphrase table and Stanford's tokenizer; only their bytes are used. A folder of
the user's own, laid out as that package is, can be given instead.
"""

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from stepline.errors import ModelError

METEOR_JAR = "meteor/meteor-1.5.jar"
PARAPHRASES = "meteor/data/paraphrase-en.gz"
TOKENIZER_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"

# sha256 of the files of pycocoevalcap 1.2
KNOWN = {
    METEOR_JAR: "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2",
    PARAPHRASES: "c147ac7d2c91f2fbb3ad31e4b352235061eb83145e0434daf217ee9ca5975f48",
    TOKENIZER_JAR: "2fcb91bb7a111f93d71e264f4ee0e3afd19ba0dde6d21b38605088df9e940399",
}
_CURE = "pip install 'stepline[evaluate]'"


def official_file(name: str, folder: Path | None = None) -> Path:
    """Return the path of one official file, in `folder` or in the installed package.

    Raises ModelError when it is not there.
    """
    root = folder if folder is not None else _package()
    path = root / name
    if not path.is_file():
        raise ModelError(f"{path}: no such file; {_CURE}, or give a folder laid out as the pycocoevalcap package is")
    return path


@cache
def fingerprint(path: Path) -> str:
    """Return the sha256 of an official file; the installed package's must be the known one.

    Raises ModelError for a damaged or unknown version inside the package.
    """
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = next((known for known in KNOWN if path.as_posix().endswith("pycocoevalcap/" + known)), None)
    if name is not None and digest != KNOWN[name]:
        raise ModelError(f"{path}: not the file of pycocoevalcap 1.2 (sha256 {digest[:12]}...); {_CURE}")
    return digest


@cache
def _package() -> Path:
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"METEOR's and the tokenizer's tables are not installed; {_CURE}, or give the folder that holds them"
        )
    return Path(next(iter(spec.submodule_search_locations)))
