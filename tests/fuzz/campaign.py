"""Hostile surroundings rather than hostile bytes: a thousand runs of small commands, counted by
class.

    python tests/fuzz/campaign.py --seed 22

Each run is a fork in which one thing is odd: an archive, a locale, a time zone, a clock, a name, a
folder, the home or the cache, a mount, a limit of the system, a signal. It must end by itself, with
exit code 0, 1, 2 or 130 (or by the signal that it was sent), without a trace, without a socket, and
two writers of one log lose no line that they were told is kept. The counts are printed as JSON.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import resource
import signal
import socket
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent), str(HERE)]

import numpy as np  # noqa: E402   found by the path above
from cases import DISKS, Case, mount  # noqa: E402
from long_runs import long_runs  # noqa: E402
from small_video import CAPTIONS, draw_video  # noqa: E402

NOBODY = 65534  # a user who owns nothing
HANG = 60.0  # s after which a run that takes less than 2 counts as hanging
FINE = {0, 1, 2, 130}
Oddity: TypeAlias = tuple[str, Callable[[], object]]  # its name, and what the fork does first


@dataclass(frozen=True)
class Material:
    """Files that the cases use: a good video, captions, features and lists, in a folder of their
    own."""

    folder: Path
    video: Path
    captions: Path
    features: Path
    list: Path


def material(folder):
    """Write what the cases use."""
    video = draw_video(folder / "v.mp4", seconds=4, rate=5, size=(96, 96))
    captions, ids = folder / "v.srt", folder / "ids.json"
    captions.write_text(CAPTIONS)
    ids.write_text(json.dumps({"abcdefghijk": [[1, 0, 2, "stir"]]}))
    features = folder / "features"
    features.mkdir()
    for name in "ab":
        np.save(features / f"{name}.npy", np.ones((4, 3), np.float32))
    return Material(folder, video, captions, features, ids)


def commands(given, out):
    """Return small commands, each through other readers and writers."""
    job = [str(given.video), "--captions", str(given.captions)]
    return {
        "transcribe": ["transcribe", *job],
        "import": ["features", "import", str(given.features), "--out", str(out / "store")],
        "excluded": ["curate", "excluded", f"htm-align={given.list}", "--out", str(out / "list")],
        "datasets": ["datasets", "htm-align"],
        "missing": ["steps", str(out / "none.mp4"), "--out", str(out)],
        "steps": ["steps", *job, "--backbone", "none", "--out", str(out)],
    }


def archives(given, rng, scratch):
    """Tars and zips in every disguise, given wherever a file of features or annotations goes."""
    array = (given.features / "a.npy").read_bytes()
    names = ["a.npy", "../up.npy", "/etc/x.npy", "a" * 300 + ".npy", "é.npy", "a\n.npy"]
    names += ["con.npy", "..", "", "a//b.npy"]
    kinds = [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]
    kinds += [tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
    for number in range(150):
        buffer = io.BytesIO()
        style = rng.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        mode = rng.choice(("w", "w:gz", "w:bz2", "w:xz"))
        with tarfile.open(fileobj=buffer, mode=mode, format=style) as archive:
            for _ in range(rng.randrange(0, 5)):
                member = tarfile.TarInfo(rng.choice(names))
                member.type = rng.choice(kinds)
                member.linkname = rng.choice(("/etc/passwd", "a.npy", "../x"))
                member.size = len(array) if member.isreg() else 0
                with contextlib.suppress(ValueError):  # a form that cannot hold the name
                    archive.addfile(member, io.BytesIO(array))
        data = buffer.getvalue()
        disguise = rng.randrange(6)
        if disguise == 0:
            data = data[: rng.randrange(len(data) + 1)]
        elif disguise == 1:
            data = gzip.compress(data)
        elif disguise == 2:
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as zipped:
                zipped.writestr("a.tar", data)
            data = packed.getvalue()
        elif disguise == 3:
            data = data + data
        suffix = rng.choice((".tar", ".tar.gz", ".npz", ".zip", ".json", ".pth.tar"))
        path = scratch / f"{number}{suffix}"
        path.write_bytes(data)
        out = scratch / f"out{number}"
        lines = (
            ["features", "import", str(path), "--out", str(out)],
            ["curate", "excluded", f"htm-align={path}", "--out", str(out / "l.txt")],
            ["curate", "status", str(path)],
        )
        yield Case("archives", path.name, rng.choice(lines))


def locales(given, rng, scratch):
    """Terminals that hold other letters, and the variables that say so."""
    encodings = "ascii latin-1 cp1252 cp437 utf-16 shift_jis gb18030 koi8-r cp1140 utf-7".split()
    values = ("C", "POSIX", "tr_TR.UTF-8", "de_DE", "ar_EG.UTF-8", "xx_YY", "", "\udcff")
    for number, encoding in enumerate(encodings * 3):
        for name, arguments in commands(given, scratch / f"out{number}").items():
            value = rng.choice(values)

            def odd(value=value):
                os.environ |= {"LC_ALL": value, "LANG": value, "PYTHONIOENCODING": "ascii"}

            yield Case("locales", f"{encoding} {name}", arguments, odd, encoding=encoding)


def clocks(given, rng, scratch):
    """Time zones that are odd or none, and a clock that jumps while the command runs."""
    zones = ("", "UTC", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns", "XYZ-99")
    zones += (":/etc/passwd", "Nowhere/Land", "\x01")
    jumps = (0.0, -1e9, 1e9, -3600.0, 2**31, 1e12)
    for number in range(150):
        zone, jump = rng.choice(zones), rng.choice(jumps)
        name, arguments = rng.choice([*commands(given, scratch / f"out{number}").items()])

        def odd(zone=zone, jump=jump):
            os.environ["TZ"] = zone
            time.tzset()
            real, begin = time.time, time.time()
            time.time = lambda: real() + (jump if real() - begin > 0.01 else 0.0)

        yield Case("clocks", f"{zone!r} {jump} {name}", arguments, odd)


def names(given, rng, scratch):
    """File names at every edge, as sources and as --out."""
    parts = (
        *("a" * 251, "é" * 125, "字" * 83, " ", ".", "-", "--help", "a b", "a\tb", "a\nb"),
        *("$(x)", "%s", "~", "nul", "a:b", "V", "v", "\u202eb", "\x1b[31m", "\udcff", "🍋"),
        *("e\u0301", "*", "?", "[a]", "'", '"', "#", "a;b", "x.tar", ".hidden"),
    )
    for number in range(150):
        part = rng.choice(parts)
        folder = scratch / str(number)
        folder.mkdir()
        path = folder / f"{part}{rng.choice(('.mp4', '.MP4', ''))}"
        # the file system does not hold the name: then it is one that is not there
        with contextlib.suppress(OSError):
            path.write_bytes(given.video.read_bytes())
        out = folder / rng.choice(("out", part, part + "/" + part))
        lines = (
            ["transcribe", "--captions", str(given.captions), "--", str(path)],
            ["features", "import", str(given.features), "--out", str(out)],
            ["features", "import", str(path), "--out", str(out)],
            ["curate", "excluded", f"htm-align={path}", "--out", str(out)],
            ["curate", "status", str(folder)],
        )
        yield Case("names", repr(part), rng.choice(lines))


def folders(given, rng, scratch):
    """Folders with 10,000 files, names that differ by case alone, circles of links, files where
    folders belong."""
    many, twins, circle = (scratch / name for name in ("many", "twins", "circle"))
    for folder in (many, twins, circle):
        folder.mkdir()
    array = (given.features / "a.npy").read_bytes()
    for number in range(10_000):
        (many / f"{number:05d}.npy").write_bytes(array if number % 1000 == 0 else b"")
    for name in ("v", "V", "ﬁ", "fi", "É", "é", "e\u0301"):
        (twins / f"{name}.npy").write_bytes(array)
    (circle / "self").symlink_to(circle / "self")
    (circle / "up").symlink_to(circle)
    (circle / "gone.npy").symlink_to("/no/where")
    os.mkfifo(circle / "pipe.npy")
    odd = [many, twins, circle, circle / "self", Path("/dev/null"), Path("/dev/full")]
    odd += [Path("/proc/self"), scratch / "x" / ".." / "y"]
    outs = (Path("/dev/full"), Path("/proc/x"), circle / "self", given.list)
    for number in range(60):
        source = rng.choice(odd[1:]) if number else many
        out = rng.choice((scratch / f"out{number}", *outs))
        lines = (
            ["features", "import", str(source), "--out", str(out)],
            ["features", "check", str(source)],
            ["transcribe", str(source), "--captions", str(given.captions)],
            ["curate", "excluded", f"htm-align={source}", "--out", str(out)],
            ["curate", "status", str(source)],
        )
        yield Case("folders", f"{source.name} to {out.name}", rng.choice(lines))


def homes(given, rng, scratch):
    """No home, a cache that cannot be written, settings in the environment that make no sense."""
    places = ("", "/", "/dev/null", "/no/where", "/proc", "\udcff", "relative", "a" * 5000)
    folders = "HOME XDG_CACHE_HOME STEPLINE_CACHE TMPDIR XDG_CONFIG_HOME STEPLINE_CONFIG".split()
    variables = "STEPLINE_ASR__BEAM STEPLINE_X__Y STEPLINE_MEDIA__THREADS COLUMNS TERM NO_COLOR"
    values = ("", "-1", "many", "1e308", "9" * 500, "\x1b[2J")
    for number in range(130):
        changed = {rng.choice(folders): rng.choice(places)}
        changed[rng.choice(variables.split())] = rng.choice(values)
        name, arguments = rng.choice([*commands(given, scratch / f"out{number}").items()])
        bare = rng.random() < 0.2

        def odd(changed=changed, bare=bare):
            if bare:
                os.environ.clear()
            os.environ |= changed
            tempfile.tempdir = None

        yield Case("homes", f"{changed} {name}", arguments, odd)


def mounts(given, rng, scratch):
    """Disks that are read-only, full, out of inodes or let nothing be run: below --out, the cache,
    temporary files."""
    probe = Case("mounts", "whether one may", ["--version"], lambda: mount(scratch, 0, ""))
    if run(probe) != "fine":
        return
    for number in range(120):
        kind, variable = rng.choice([*DISKS]), rng.choice(("", "STEPLINE_CACHE", "TMPDIR", "HOME"))
        place = scratch / f"out{number}"
        place.mkdir()
        name = rng.choice(("transcribe", "import", "excluded", "steps"))
        arguments = commands(given, place)[name]

        def odd(kind=kind, variable=variable, place=place):
            mount(place, *DISKS[kind])
            if variable:
                os.environ[variable] = str(place)
                tempfile.tempdir = None

        yield Case("mounts", f"{kind} {variable or 'out'} {name}", arguments, odd)


def limits(given, rng, scratch):
    """Few open files, small files, little memory or stack, no processes, no core."""
    kinds = {"NOFILE": (16, 24, 64), "FSIZE": (0, 100, 5000), "AS": (2**28, 2**29, 2**31)}
    kinds |= {"STACK": (2**16, 2**20), "NPROC": (0, 1)}
    for number in range(150):
        kind = rng.choice([*kinds])
        size = rng.choice(kinds[kind])
        name, arguments = rng.choice([*commands(given, scratch / f"out{number}").items()])

        def odd(kind=kind, size=size):
            used = 0
            if kind == "AS":
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                used = pages * resource.getpagesize()
            which = getattr(resource, f"RLIMIT_{kind}")
            resource.setrlimit(which, (used + size, resource.getrlimit(which)[1]))

        yield Case("limits", f"{kind} {size} {name}", arguments, odd)


def signals(given, rng, scratch):
    """Every signal that a shell, a terminal or a scheduler sends, at any moment."""
    names = "SIGINT SIGTERM SIGHUP SIGPIPE SIGUSR1 SIGALRM SIGCONT SIGWINCH"
    sent = [signal.Signals[name] for name in names.split()]
    for number in range(150):
        name, arguments = rng.choice([*commands(given, scratch / f"out{number}").items()])
        which = rng.choice(sent)
        moment = {"signal": which, "after": rng.uniform(0.0, 0.6)}
        yield Case("signals", f"{which.name} {name}", arguments, **moment)


def _disk(out, rng):
    kind = rng.choice([*DISKS])
    return kind, lambda: mount(out, *DISKS[kind])


def _clock(_, rng):
    jump = rng.choice((-1e9, 1e9, -3600.0, 2**31))
    after = rng.uniform(0.01, 1.0)

    def shift():
        real, begin = time.time, time.time()
        time.time = lambda: real() + (jump if real() - begin > after else 0.0)

    return f"clock {jump:g}", shift


def _limit(_, rng):
    name, size = rng.choice((("NOFILE", 16), ("NOFILE", 40), ("FSIZE", 5000), ("FSIZE", 100_000)))
    which = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(which)[1]
    return f"{name} {size}", lambda: resource.setrlimit(which, (size, hard))


def _addresses(_, rng):
    more = rng.choice((2**26, 2**28, 2**30))
    page = resource.getpagesize()

    def limit():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * page
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))

    return f"AS {more}", limit


def _user(out, rng):
    is_owner = rng.random() < 0.5

    def become():
        if os.geteuid() != 0:
            return
        if is_owner:
            os.chown(out, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.environ["HOME"] = "/none"

    return f"nobody{' who owns it' if is_owner else ''}", become


def _moment(_, __):
    return "a signal", lambda: None


def runs(given, rng, scratch):
    """`train nasva`, `refine` and `sieve-swap` where a disk, the clock, a limit, the user or a
    signal is against them."""
    import torch

    torch.set_num_threads(1)  # a fork has no others
    known = long_runs(scratch)
    sent = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
    kinds = (_disk, _clock, _limit, _addresses, _user, _moment)
    for number in range(60):
        name = rng.choice([*known])
        out = scratch / f"out{number}"
        out.mkdir()
        kind, odd = rng.choice(kinds)(out, rng)
        case = Case("runs", f"{kind} {name}", [*known[name].arguments, "--out", str(out)], odd)
        if kind == "a signal":
            case.signal, case.after = rng.choice(sent), rng.uniform(0.0, 2.0)
        yield case


CLASSES = (archives, locales, clocks, names, folders, homes, mounts, limits, signals, runs)


def run(case):
    """Run a case in a fork; return "fine", or what was wrong, whose trace or line is put into
    `case.found`."""
    ours, said = os.pipe()  # no file, which a limit of its size would cut
    with tempfile.TemporaryFile() as sockets:
        child = os.fork()
        if child == 0:
            status = 99
            try:
                _carry_out(case, said, sockets.fileno())
            except KeyboardInterrupt:  # sent before the command began
                status = 130
            finally:
                os._exit(status)
        os.close(said)
        os.set_blocking(ours, False)
        ends, status, text = time.monotonic() + HANG, None, b""
        if case.signal:
            time.sleep(case.after)
            os.kill(child, case.signal)
        while status is None and time.monotonic() < ends:
            ended, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
            with contextlib.suppress(BlockingIOError):
                text += os.read(ours, 2**20)
            time.sleep(0.005)
        os.close(ours)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang"
        case.found.append(f"exit {status}: {text.decode(errors='replace')[-2000:]}")
        sockets.seek(0)
        if sockets.read():
            return "socket"
        if status == 70 or b"Traceback (most recent" in text:
            return "trace"
        return "fine" if status in FINE or (case.signal and status == -case.signal) else "crash"


def _carry_out(case, said, sockets):
    """Be the command, with what is odd; never returns."""
    from stepline.cli import main

    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(said, number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = os.fdopen(number, "wb", closefd=False)
        text = io.TextIOWrapper(stream, encoding=case.encoding, line_buffering=True)
        setattr(sys, name, text)
    connect = socket.socket.connect

    def watched(self, address):
        if self.family != socket.AF_UNIX:
            os.write(sockets, repr(address).encode())
        connect(self, address)

    socket.socket.connect = watched
    code = 0
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        case.before()
        main([*case.arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    # before the command began, or after it had ended: the interpreter's own way
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode(errors="replace"))
        code = 70
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


def lost_lines(scratch, rounds, rng):
    """Have two writers append to one log, kill them at any moment; return how many acknowledged
    lines are not there."""
    from stepline.files.append_log import AppendLog
    from stepline.records import FrozenModel

    class Line(FrozenModel):
        writer: int
        number: int

    def open_log(path):
        return AppendLog(path, Line, lambda line: (line.writer, line.number), "a line")

    lost = 0
    for turn in range(rounds):
        path, writers, pipes = scratch / f"log{turn}.jsonl", [], []
        for writer in (0, 1):
            ours, theirs = os.pipe()
            child = os.fork()
            if child == 0:
                log = open_log(path)
                for number in range(10_000):
                    log.add(Line(writer=writer, number=number))
                    os.write(theirs, f"{writer},{number}\n".encode())
                os._exit(0)
            os.close(theirs)
            writers.append(child)
            pipes.append(ours)
        time.sleep(rng.uniform(0.02, 0.3))
        for child in writers:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        told = set()
        for pipe in pipes:
            with os.fdopen(pipe) as lines:
                told |= {tuple(map(int, line.split(","))) for line in lines}
        kept = {(line.writer, line.number) for line in open_log(path)}
        lost += len(told - kept)
    return lost


def main():
    """Run every class, print the counts as JSON; exit with 1 where something was not fine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--classes", nargs="*", default=[kind.__name__ for kind in CLASSES])
    parser.add_argument("--rounds", type=int, default=40, help="of two writers that are killed")
    most = "at most; each class has its part of them"
    parser.add_argument("--hours", type=float, default=float("inf"), help=most)
    options = parser.parse_args()
    os.environ["STEPLINE_CONFIG"] = ""
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "given").mkdir()
        given = material(Path(name) / "given")
        for arguments in commands(given, Path(name) / "warm").values():
            run(Case("warm", "", arguments))
        import av  # noqa: F401
        import torch  # noqa: F401

        import stepline.features
        import stepline.media
        import stepline.pipeline.batch
        import stepline.speech.transcribe  # noqa: F401

        for kind in CLASSES:
            if kind.__name__ not in options.classes:
                continue
            scratch = Path(name) / kind.__name__
            scratch.mkdir()
            counts[kind.__name__] = Counter()
            ends = time.monotonic() + options.hours * 3600 / len(options.classes)
            for case in kind(given, random.Random(f"{kind.__name__} {options.seed}"), scratch):
                if time.monotonic() > ends:
                    break
                outcome = run(case)
                counts[kind.__name__][outcome] += 1
                if outcome != "fine":
                    line = f"{case.kind}: {outcome}: {case.name!a}\n  {case.arguments!a}"
                    print(f"{line}\n  {''.join(case.found)}", file=sys.stderr)
        lost = lost_lines(Path(name), options.rounds, random.Random(options.seed))
    total = sum(sum(found.values()) for found in counts.values())
    told = {"runs": total, "lost lines": lost, **{kind: dict(n) for kind, n in counts.items()}}
    print(json.dumps(told, indent=1))
    sys.exit(1 if lost or any(set(found) - {"fine"} for found in counts.values()) else 0)


if __name__ == "__main__":
    main()
