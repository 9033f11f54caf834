"""The tests of the doors share the samples of tests/nasva and tests/procx, and the second opinions
of tests/rehearsal."""

import sys
from pathlib import Path

sys.path[:0] = [
    str(folder)
    for name in ("nasva", "procx", "rehearsal")
    if str(folder := Path(__file__).resolve().parents[1] / name) not in sys.path
]
