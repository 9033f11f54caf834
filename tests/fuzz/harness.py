"""One fuzz harness over every reader of untrusted files: seeds, mutations, limits of memory and
time, what was found.

    python tests/fuzz/harness.py --hours 4 --seed 7 --keep found             # `make fuzz`
    python tests/fuzz/harness.py --inputs 200 --readers captions settings

A reader may return or raise a SteplineError of one line. Any other error is a trace; more processor
time than SECONDS, more memory than MEMORY, or an end of the process are failures as well. Each
reader runs in a process of its own, and the same seed gives the same inputs.
"""

import argparse
import importlib
import io
import json
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import numpy as np  # noqa: E402
from file_bytes import tar_bytes  # noqa: E402

from stepline.errors import SteplineError  # noqa: E402   found by the path above

SECONDS = 20  # of processor time an input may take; the slowest seed takes less than 1
HANGS = 300  # s without a word after which a reader waits for something that never comes
MEMORY = 4 * 2**30  # bytes of address space above what the process had before, an input may take
# random inputs of a reader before its process is replaced, which bounds what leaks add up to
WORST = 200

CORPUS = HERE / "corpus"

# What breaks parsers: numbers at every edge, brackets, escapes, halves of characters, separators of
# other systems.
TOKENS = (
    *(b"0", b"-1", b"1e308", b"1e999", b"-0.0", b"NaN", b"Infinity", b"9" * 400, b"2147483648"),
    *(b"18446744073709551616", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000"),
    *(b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\r", b"\n\n", b"[" * 3000, b'{"a":' * 2000),
    *(b"a." * 2000, b'"', b"'", b"\\", b"<", b"-->", b"99:99:99,999", b"null", b"true", b"[]"),
    *(b"{}", b'{"text":[],"start":[],"end":[]}', b"../../../etc/passwd", b"%s%n", b"\x1b[2J"),
    *(b"\x89PNG", b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"PAR1", b"\x93NUMPY\x01\x00"),
)


def mutated(data, others, rng):
    """Return a seed with one to eight changes: bits, bytes, cuts, repeats, tokens, parts of another
    seed."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(changed) + 1)
        kind = rng.randrange(8)
        if kind == 0 and changed:
            changed[place % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[place % len(changed)] = rng.randrange(256)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            del changed[place : place + rng.randrange(1, 64)]
        elif kind == 4:
            part = changed[place : place + rng.randrange(1, 64)]
            changed[place:place] = part * rng.choice((1, 2, 50))
        elif kind == 5:
            changed[place:place] = rng.choice(TOKENS)
        elif kind == 6:
            token = rng.choice(TOKENS)
            changed[place : place + len(token)] = token
        else:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            changed[place : place + 200] = other[start : start + rng.randrange(1, 400)]
    return bytes(changed)


@dataclass(frozen=True)
class Reader:
    """A reader of files: `read` goes through all that it finds in the file; `seeds` are name ->
    content."""

    read: Callable[[Path], object]
    seeds: Callable[[], dict[str, bytes]]


def corpus(*names):
    """Return what gives the seeds that stand in the repository."""
    return lambda: {name: (CORPUS / name).read_bytes() for name in names}


def _drained(items):
    for _ in items if isinstance(items, Iterator) else ():
        pass


def calls(*targets):
    """Return what calls each `module:function` with the file, and goes through what it returns."""

    def read(path):
        for target in targets:
            module, _, name = target.partition(":")
            _drained(getattr(importlib.import_module(f"stepline.{module}"), name)(path))

    return read


def _settings(path):
    from stepline.pipeline.request import StepsSettings
    from stepline.settings import load_settings

    load_settings(StepsSettings, path)


def _record(path):
    from stepline.outputs import OUTPUTS, OutputExtras, step_table
    from stepline.storage import read_record

    record = read_record(path)
    step_table(record)
    for name, output in OUTPUTS.items():
        # made from the video, or by other libraries
        if name not in ("mp4", "mkv", "docx"):
            output.write(record, OutputExtras())


def _feature_file(path):
    from stepline.features.files import read_feature_file, read_text_features

    for read in (read_feature_file, read_text_features):
        try:
            read(path)
        except SteplineError:
            continue


def _feature_tar(path):
    from stepline.features import import_features

    with tempfile.TemporaryDirectory() as folder:
        import_features(path, Path(folder) / "store")


def _source(path):
    from stepline.curate.sources.read import read_source

    _drained(read_source(str(path)))


def _feature_store(path):
    """Read a store whose index the file is; its rows are not there."""
    from stepline.features import FeatureStore

    index = path.with_name("shard-00000.parquet")
    path.replace(index)
    _drained(iter(FeatureStore(path.parent).check()))


def _how_to_texts(path):
    from stepline.sieve_swap.text_base.readers import read_source
    from stepline.sieve_swap.text_base.settings import TextBaseSettings

    _drained(read_source(path, TextBaseSettings()))


def _lists(path):
    from stepline.datasets.excluded import read_excluded
    from stepline.pipeline.batch import read_texts
    from stepline.pipeline.ground_texts import read_order_matrix

    for read in (
        lambda: read_excluded([path]),
        lambda: read_texts(path),
        lambda: read_order_matrix(path, 3),
    ):
        try:
            read()
        except SteplineError:
            continue


def _video(path):
    from stepline.media import MediaReader, probe
    from stepline.media.settings import MediaSettings

    limits = MediaSettings(max_duration=600.0, max_pixels=1280 * 720)
    probe(path, limits)
    _drained(iter(MediaReader(path, frame_rate=1.0, frame_size=64, sound=True, settings=limits)))


def _arrays():
    """Features as every suffix keeps them, and the vectors of texts."""
    import torch
    from safetensors.numpy import save

    rows = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)

    def saved(write):
        buffer = io.BytesIO()
        write(buffer)
        return buffer.getvalue()

    item = {"video_features": torch.from_numpy(rows), "text": ["a", "b"]}
    item |= {"start": [0.0, 2.0], "end": [1.0, 3.0]}
    texts = np.array(["slice", "pour"])
    return {
        "f.npy": saved(lambda file: np.save(file, rows)),
        "f.npz": saved(lambda file: np.savez(file, features=rows, texts=texts)),
        "f.safetensors": save({"features": rows}, metadata={"rate": "1.0"}),
        "f.pth": saved(lambda file: torch.save(item, file)),
    }


def _tars():
    arrays = _arrays()
    return {"f.tar": tar_bytes({"a.npy": arrays["f.npy"], "b.pth": arrays["f.pth"]})}


def _parquet():
    from stepline.storage import from_json, write_parquet

    record = from_json((CORPUS / "record.json").read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        write_parquet([record, record], Path(folder) / "r.parquet")
        return {"r.parquet": (Path(folder) / "r.parquet").read_bytes()}


def _how_to_seeds():
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    buffer = io.BytesIO()
    tea = {"title": "Tea", "steps": ["Boil water.", "Pour it."]}
    rows = [{**tea, "id": str(number)} for number in range(3)]
    parquet.write_table(arrow.Table.from_pylist(rows), buffer)
    texts = corpus("recipes.json", "recipes.csv", "lines.txt", "recipes.jsonl")()
    return {**texts, "recipes.parquet": buffer.getvalue()}


def _feature_index():
    from stepline.features import FeatureWriter

    with tempfile.TemporaryDirectory() as folder:
        with FeatureWriter(Path(folder)) as writer:
            for name in ("a", "b"):
                writer.add(name, np.ones((4, 3), np.float32), rate=1.0, backbone="clip")
        [index] = Path(folder).glob("*.parquet")
        return {index.name.replace("-", ""): index.read_bytes()}


def _videos():
    """Six small files, drawn: containers and codecs that people have."""
    from small_video import draw_video

    with tempfile.TemporaryDirectory() as folder:
        names = ("v.mp4", "v.mkv", "v.mov", "v.ts", "v.flv", "v.avi")
        made = [draw_video(Path(folder) / name, seconds=3, rate=5, size=(96, 96)) for name in names]
        return {path.name: path.read_bytes() for path in made}


def _networks():
    aligner = HERE.parent / "golden" / "inputs" / "networks" / "aligner.safetensors"
    return {"n.safetensors": aligner.read_bytes(), "n.pth": _arrays()["f.pth"]}


READERS: dict[str, Reader] = {
    "captions": Reader(
        calls("speech.captions:read_captions"),
        corpus("c.srt", "c.vtt", "json3.json", "caption.json", "whisperx.json", "c.csv"),
    ),
    "settings": Reader(_settings, corpus("settings.toml")),
    "record": Reader(_record, corpus("record.json")),
    "records": Reader(
        calls("sieve_swap.videos:read_videos"),
        corpus("record.json", "records.jsonl", "caption.json", "c.csv"),
    ),
    "record table": Reader(
        calls("sieve_swap.videos:read_videos", "storage:read_parquet"), _parquet
    ),
    "predictions": Reader(
        calls("datasets:read_predictions"),
        corpus("predictions.json", "chapters.json", "predictions.csv"),
    ),
    "feature file": Reader(_feature_file, _arrays),
    "feature store": Reader(_feature_store, _feature_index),
    "feature tar": Reader(_feature_tar, _tars),
    "source list": Reader(_source, corpus("list.csv", "list.jsonl")),
    "source table": Reader(_source, _parquet),
    "how-to texts": Reader(_how_to_texts, _how_to_seeds),
    "lists": Reader(_lists, corpus("lines.txt", "excluded.txt", "order.json")),
    "network": Reader(calls("models.nasva.checkpoint:load_aligner"), _networks),
    "video": Reader(_video, _videos),
}


@dataclass(frozen=True)
class Failure:
    """An input that a reader did not bear: which, what came of it, and the input."""

    reader: str
    kind: str
    name: str
    detail: str
    data: bytes


def found_before(name):
    """Return what once broke a reader, by the name of its file."""
    folder = CORPUS / "regressions" / name.replace(" ", "-")
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))}


def inputs(name, count, seed):
    """Yield a reader's seeds, what once broke it, then `count` mutations of seeds; the same for a
    seed."""
    seeds = READERS[name].seeds()
    rng = random.Random(f"{name} {seed}")
    others = [*seeds.values()]
    yield from seeds.items()
    yield from found_before(name).items()
    for number in range(count):
        chosen = rng.choice([*seeds])
        yield f"{number}-{chosen}", mutated(seeds[chosen], others, rng)


def _too_long(*_):
    raise TimeoutError(f"more than {SECONDS} s of processor time")


def _work(name, count, seed, skipped, results):
    """Read the inputs after the first `skipped`; tell of each that it begins, and how it ended."""
    import contextlib
    import faulthandler
    import os
    import warnings

    faulthandler.disable()  # pytest's; a crash is counted, not shown
    warnings.simplefilter("ignore")
    reader = READERS[name].read
    with contextlib.suppress(OSError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # what codecs say of broken files
    signal.signal(signal.SIGPROF, _too_long)
    folder = Path(tempfile.mkdtemp())
    try:
        for number, (label, data) in enumerate(inputs(name, count, seed)):
            if number < skipped:
                continue
            if number == 1:  # the first input has loaded all that a reader needs
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
            path = folder / label.rpartition("-")[2]
            path.write_bytes(data)
            results.send(("begins", label, ""))
            results.send(_outcome(reader, path, label))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results.send(("ends", "", ""))


def _outcome(reader, path, label):
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        reader(path)
    except SteplineError as error:
        line = str(error)
        if len(line.splitlines()) != 1:
            return "trace", label, f"an error of several lines: {line}"
        return "refused", label, ""
    except TimeoutError as error:
        return "time", label, str(error)
    except MemoryError:
        return "memory", label, traceback.format_exc(limit=-3)
    except BaseException:
        return "trace", label, traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read", label, ""


def fuzz(name, count, seed, ends=float("inf")):
    """Give a reader its seeds and `count` mutations; return how each ended, counted, and the
    failures."""
    context = multiprocessing.get_context("fork")
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    done, total = 0, len(READERS[name].seeds()) + len(found_before(name)) + count
    while done < total and time.monotonic() < ends:
        mine, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(name, count, seed, done, theirs))
        worker.start()
        theirs.close()
        begun = ""
        try:
            while True:
                # A worker that hangs without using the processor is as lost as one that died.
                hung = ("crash", begun, "it hangs")
                kind, label, detail = mine.recv() if mine.poll(HANGS) else hung
                if kind == "ends":
                    done = total
                    break
                if kind == "begins":
                    begun = label
                    continue
                done += 1
                counts[kind] += 1
                if kind not in ("read", "refused"):
                    failures.append(_failure(name, kind, label, detail, count, seed))
                if kind == "crash" or time.monotonic() > ends:
                    break
        except EOFError:
            done += 1
            worker.join(5)
            counts["crash"] += 1
            ended = f"its process ended ({worker.exitcode})"
            failures.append(_failure(name, "crash", begun, ended, count, seed))
        worker.kill()
        worker.join()
    return counts, failures


def _failure(name, kind, label, detail, count, seed):
    data = next((data for found, data in inputs(name, count, seed) if found == label), b"")
    return Failure(name, kind, label, detail, data)


def main():
    """Fuzz until the time is up or the inputs are done; print the counts as JSON; exit with 1 on a
    failure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    more = "go on with other seeds for so long"
    parser.add_argument("--seconds", type=float, default=float("inf"), help=more)
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--inputs", type=int, default=WORST, help="of each reader, a round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="*", default=[*READERS], choices=[*READERS])
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that failed")
    options = parser.parse_args()
    options.seconds = options.seconds if options.hours is None else options.hours * 3600
    ends = time.monotonic() + options.seconds
    totals: dict[str, Counter[str]] = {name: Counter() for name in options.readers}
    rounds = range(options.seed, sys.maxsize) if options.seconds < float("inf") else (options.seed,)
    failed = 0
    for seed in rounds:
        for name in options.readers:
            counts, failures = fuzz(name, options.inputs, seed, ends)
            totals[name] += counts
            failed += len(failures)
            for failure in failures:
                line = f"{failure.reader}: {failure.kind}: {failure.name} of seed {seed}"
                print(f"{line}\n{failure.detail}", file=sys.stderr)
                if options.keep is not None:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    kept = f"{name.replace(' ', '-')}-{seed}-{failure.name}"
                    (options.keep / kept).write_bytes(failure.data)
        if time.monotonic() > ends:
            break
    print(json.dumps({name: dict(counts) for name, counts in totals.items()}, indent=1))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
