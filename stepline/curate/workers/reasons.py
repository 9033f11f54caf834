"""Why a unit failed, in the same words wherever it ran: a reason stands in the dataset, which no machine may mark."""

import re
from collections.abc import Iterable

LONGEST = 400  # characters of a reason
PATH = re.compile(r"(?<![\w:/.<])(?:/[^\s/'\":;,()\[\]<>]+){2,}/?")  # of two parts or more; a URL's are its own
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")  # where an object lay in memory


def plain(reason: str, files: Iterable[str], identity: str) -> str:
    """Return a reason as one line without paths or addresses of memory of this machine.

    files: what the reason may call the video's own files, which become its id; any other path becomes `(a path)`.
    """
    for name in sorted(files, key=len, reverse=True):
        reason = reason.replace(name, identity)
    line = ADDRESS.sub("0x...", PATH.sub("(a path)", " ".join(reason.split())))
    return line if len(line) <= LONGEST else line[:LONGEST] + "..."
