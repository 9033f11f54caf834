"""Stages that cost nothing, and videos whose text says what goes wrong with them, for tests of the
engines."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from stepline.curate.stage import LeftOutError, Recipe, Stage, VideoItem
from stepline.errors import MediaError, ModelError
from stepline.settings import validate


def read(work):
    """Return what the "video" says, doing what it says first."""
    files = (file for file in (work.media, work.captions) if file)
    text = next((file.read_text() for file in files), "")
    word = text.split()[0] if text else ""
    if word == "slow":
        time.sleep(float(text.split()[1]))
    elif word == "corrupt":
        raise MediaError(f"{work.media}: nothing in it can be decoded")
    elif word == "odd":
        raise ZeroDivisionError("by nothing")
    elif word == "hang":
        time.sleep(3600)
    elif word == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word == "exit":
        os._exit(7)
    elif word == "hog":
        held = [bytearray(os.urandom(1 << 20) * 16) for _ in range(200)]  # 3 GiB, 16 MiB at a time
        time.sleep(len(held))
    elif word == "brood":  # what it starts holds the memory
        code = "import time; held = bytearray(b'x') * 2**30; time.sleep(60)"
        subprocess.run([sys.executable, "-c", code], check=True)
    elif word == "share":  # one memory, in two processes for a while
        held = bytearray(b"x") * 220 * 2**20
        if not (child := os.fork()):
            time.sleep(1.5)
            os._exit(len(held) == 0)
        os.waitpid(child, 0)
    elif word == "model":
        raise ModelError("no weights; install some")
    elif word == "silent":
        raise LeftOutError("nobody speaks")
    elif word == "full":
        raise OSError(28, "No space left on device")
    elif word == "flaky" and not Path(text.split()[1]).exists():
        Path(text.split()[1]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    work.notes["letters"] = len(text)
    return json.dumps({"id": work.item.id, "text": text}).encode()


def count(work):
    """Return how many letters were read, times the recipe's thread count."""
    letters = len(json.loads(work.results["read"])["text"])
    return json.dumps({"letters": letters}).encode()


def double(work):
    """Return twice the count."""
    return json.dumps({"double": 2 * json.loads(work.results["count"])["letters"]}).encode()


def total(gathered):
    """Write the sum over all videos, and who is missing."""
    rows = [{"id": item.id, **json.loads(data)} for item, data in gathered.results("double")]
    failures = sorted(gathered.failures.items())
    lost = {identity: [f.stage, f.kind, f.reason] for identity, f in failures}
    tree = {"sum": sum(row["double"] for row in rows), "rows": rows, "lost": lost}
    (gathered.folder / "total.json").write_text(json.dumps(tree, indent=1))


def share(work):
    """Return a video's share of the total: a stage of each video that needs one over all."""
    all_of_it = json.loads((work.folders["total"] / "total.json").read_text())["sum"]
    return json.dumps({"share": json.loads(work.results["double"])["double"] / all_of_it}).encode()


def publish(gathered):
    """Write what a run is for: each video's share of all, where the recipe has it, else its
    count."""
    last = "share" if "share" in gathered.recipe.stages else "double"
    rows = {item.id: json.loads(data) for item, data in gathered.results(last)}
    lost = {identity: failure.reason for identity, failure in sorted(gathered.failures.items())}
    text = json.dumps({"videos": rows, "lost": lost}, indent=1)
    (gathered.out / "dataset/dataset.json").write(text)


def aligner(recipe):
    """Return the one setting that decides `double`."""
    return recipe.steps.asr.model


def on_gpu(recipe):
    """Tell that `double` uses a GPU."""
    return bool(recipe.stages)


DOUBLE = {"needs": ("count",), "settings": lambda recipe: aligner(recipe), "gpu": on_gpu}
STAGES = {
    stage.name: stage
    for stage in (
        Stage("read", 1, "video", read, reads=("speech",)),
        Stage("count", 1, "video", count, needs=("read",)),
        Stage("double", 1, "video", double, **DOUBLE),
        Stage("total", 1, "dataset", total, needs=("double",)),
        Stage("share", 1, "video", share, needs=("total", "double")),
        Stage("publish", 1, "dataset", publish, needs=("total", "double"), takes=("share",)),
    )
}


def recipe(*, seconds=60.0, memory=1024, engine="local", workers=1, **more):
    """Return a recipe of all these stages but the last over each video."""
    tree = {
        "stages": [name for name in STAGES if name != "share"],
        "limits": {"seconds": seconds, "memory": memory},
        "engine": {"name": engine, "workers": workers},
    }
    return validate(Recipe, {**tree, **more})


def videos(folder, texts):
    """Write one "video" a text and return their items."""
    folder.mkdir(parents=True, exist_ok=True)
    items = []
    for identity, text in texts.items():
        path = folder / f"{identity}.txt"
        path.write_text(text)
        status = path.stat()
        stamp = f"{status.st_size}-{status.st_mtime_ns}"
        items.append(VideoItem(identity, video=str(path), stamp=stamp))
    return items


def status_text(status):
    """Return what `stepline curate status` prints of a run."""
    from stepline.cli.curate import _status_table

    return _status_table(status)
