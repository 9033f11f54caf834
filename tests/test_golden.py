"""What users see, held through every change of the code inside: files, commands, settings,
predictions, scores.

Each case runs commands in a folder with the inputs of tests/golden/inputs, and what they write is
compared with tests/golden/expected: text, names and structure exactly, numbers to 1e-4, for another
processor adds up otherwise. With STEPLINE_GOLDEN_EXACT=1, for the machine that wrote them, every
sha256 of the manifest must be the same.

    python -m pytest tests/test_golden.py
    python tests/test_golden.py --write [CASE ...]    # expect from now on what is written today
"""

import base64
import contextlib
import hashlib
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from installs import run_installed
from option_words import option_words

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "stepline" / "cli" / "demo" / "demo.mp4"
GENERATE = ROOT / "docs" / "generate.py"  # has `settings()`, the page of all settings
PACKAGE = "stepline"
# commands that are about to go; kept apart, and no fault where they are gone
LEAVING = ("experiment",)

GOLDEN = Path(__file__).resolve().parent / "golden"
EXPECTED, MANIFEST = GOLDEN / "expected", GOLDEN / "expected" / "manifest.json"
NEAR = 1e-4  # by which a number may differ, or by that share of its size where it is more than 1
NEARER = 1e-6  # the same with STEPLINE_GOLDEN_EXACT
# begins the name of what only its bytes tell, so only STEPLINE_GOLDEN_EXACT looks at it
EXACT = "exact "
# s since 1970; the time of change of all inputs, which decides the keys of `curate`
LONG_AGO = 1_704_067_200
RUNS = 4  # of each case when it is written: what differs among them is not held to the byte
NUMBER = re.compile(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?(?:e-?\d+)?")
IMAGE = re.compile(r"data:image/jpeg;base64,([A-Za-z0-9+/=]+)")
OF_RAY = ("DeprecationWarning", "ResourceWarning", "FutureWarning")


def run(folder, *arguments):
    """Run a command in this process and return what it prints."""
    from click.testing import CliRunner

    from stepline.cli import main

    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    finally:
        os.chdir(before)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result.stdout


def run_apart(folder, *arguments):
    """Run a command in a process of its own, which may start others, and return what it prints."""
    command = [sys.executable, "-m", PACKAGE, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fresh(folder):
    """Return a folder with the inputs, all changed long ago."""
    shutil.copytree(GOLDEN / "inputs", folder, dirs_exist_ok=True)
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder


def plain(text, folder):
    """Return text without what differs from place to place: folders, this package's version,
    pictures' bytes."""
    from stepline import __version__

    text = text.replace(str(folder.resolve()), "FOLDER").replace(str(folder), "FOLDER")
    text = text.replace(str(ROOT), "ROOT")
    text = re.sub(rf"(?<![\d.]){re.escape(__version__)}(?!\.?\d)", "VERSION", text)
    # of a record with its path
    text = re.sub(r'(name="stepline-record" content=")[0-9a-f]{64}', r"\1SHA256", text)
    return IMAGE.sub("data:image/jpeg;base64,PICTURE", text)


def keep(made, name, text, folder):
    """Keep a text, or the tree of a JSON file, under its name."""
    text = plain(text, folder)
    made[name] = json.loads(text) if name.endswith(".json") else text


def files_below(folder):
    """Return the names of all files below a folder."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def tensors(path):
    """Return the header of a safetensors file: what it says of itself, and each tensor's type and
    shape."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    about = sorted(header.pop("__metadata__", {}).items())
    kinds = {name: [each["dtype"], each["shape"]] for name, each in sorted(header.items())}
    return {"about": {name: _maybe_json(value) for name, value in about}, "tensors": kinds}


def table(path):
    """Return the columns of a Parquet file, with their types, and its rows."""
    import pyarrow.parquet as parquet

    found = parquet.read_table(path)
    about = {key.decode(): value.decode() for key, value in (found.schema.metadata or {}).items()}
    rows = [{name: _maybe_json(value) for name, value in row.items()} for row in found.to_pylist()]
    columns = [[field.name, str(field.type)] for field in found.schema]
    own = {key: value for key, value in about.items() if "stepline" in key}
    return {"columns": columns, "about": own, "rows": rows}


def _maybe_json(value):
    with contextlib.suppress(ValueError):
        return json.loads(value) if isinstance(value, str) and value[:1] in "{[" else value
    return value


def demo(folder):
    """The demo's record, page and other outputs, made in an installation without extras."""
    shutil.copy(DEMO, folder / "demo.mp4")
    made = {}
    # int8 rounds by the processor, and by it hears "flour" or "flower"
    steady = ("--set", "asr.compute=float32")
    done = run_installed([], "steps", "demo.mp4", "--out", "out", *steady, cwd=folder)
    assert done.returncode == 0, done.stderr
    keep(made, "table.txt", done.stdout, folder)
    for path in sorted((folder / "out").iterdir()):
        keep(made, path.name, path.read_text(encoding="utf-8"), folder)
    pictures = IMAGE.findall((folder / "out" / "demo.html").read_text(encoding="utf-8"))
    made[f"{EXACT}pictures"] = [
        hashlib.sha256(base64.b64decode(picture)).hexdigest() for picture in pictures
    ]
    made["files.json"] = sorted(path.name for path in (folder / "out").iterdir())
    return made


def command_line(folder):
    """Every command with its arguments and options; help texts may change."""
    from stepline.cli import main

    found = dict(_commands("", main))
    leaving = {name: found.pop(name) for name in list(found) if name.split(" ")[0] in LEAVING}
    found[""]["commands"] = [name for name in found[""]["commands"] if name not in LEAVING]
    return {"commands.json": found, "leaving.json": leaving}


def _commands(name, command):
    import click

    context = click.Context(command, info_name=name)
    options = [_option(option) for option in command.params if option.name != "help"]
    found = {"options": options}
    if isinstance(command, click.Group):
        found["commands"] = sorted(command.list_commands(context))
    yield name, found
    for below in found.get("commands", ()):
        yield from _commands(f"{name} {below}".strip(), command.get_command(context, below))


def _option(option):
    import click

    kind, default, ranges = option.type, option.default, click.IntRange | click.FloatRange
    if default is None or callable(default) or "UNSET" in repr(default).upper():
        default = None
    found = {
        "names": [*option.opts, *option.secondary_opts],
        "type": kind.name,
        "choices": list(map(str, kind.choices)) if isinstance(kind, click.Choice) else None,
        "range": [kind.min, kind.max] if isinstance(kind, ranges) else None,
        "required": option.required,
        "multiple": getattr(option, "multiple", False) or option.nargs != 1,
        "flag": getattr(option, "is_flag", False),
        "default": None if default is None else str(default),
    }
    return {name: value for name, value in found.items() if value not in (None, False)}


def settings(folder):
    """Every key of the settings with its default, by the command that takes them; what they mean
    may be reworded."""
    page, found, title = runpy.run_path(str(GENERATE))["settings"](), {}, ""
    for line in page.splitlines():
        if line.startswith("#"):
            title = " ".join(re.findall(r"`([^`]+)`", line))
        elif row := re.match(r"\| `([^`]+)` \| (?:`(.*?)`)? ?\|", line):
            found.setdefault(title, {})[row[1]] = row[2]
    return {"settings.json": found}


def curate(folder, engine):
    """A dataset of twelve videos: names of all files, which are keys of what decides them, and what
    it holds."""
    out, made = folder / engine, {}
    given = option_words(recipe="recipe.toml", out=engine, engine=engine, workers="2")
    run_apart(folder, "curate", "videos.csv", *given)
    made["files.json"] = _names(out)
    for name in ("README.md", "dataset.json"):
        text = (out / "dataset" / name).read_text(encoding="utf-8")
        text = re.sub(r'("(?:sha256|contentSize)": )"[^"]*"', r'\1"MASKED"', text)
        text = re.sub(r'("bytes": )\d+', r"\g<1>0", _shards(text))
        keep(made, name, text, folder)
    for path in sorted((out / "dataset" / "data").iterdir()):
        keep(made, f"{path.name.split('-')[0]}.json", json.dumps(table(path)), folder)
    shard = out / "dataset" / "features" / "shard-00000.parquet"
    made["features-parquet.json"] = table(shard)["columns"]
    made["features-safetensors.json"] = tensors(shard.with_suffix(".safetensors"))
    for path in (shard, shard.with_suffix(".safetensors")):
        made[f"{EXACT}{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (refined,) = (out / "stages" / "refine").glob("*/run/aligner.safetensors")
    made["network.json"] = tensors(refined)
    left_out = next((out / "stages" / "clean").glob("*/left_out.jsonl"))
    keep(made, "left_out.txt", left_out.read_text(), folder)
    for name in ("run.json", "items.jsonl", "refused.jsonl"):
        text = (out / name).read_text(encoding="utf-8")
        text = text.replace(f'"name": "{engine}"', '"name": "ENGINE"')
        keep(made, name if name == "run.json" else f"{name}.txt", text, folder)
    status = json.loads(run(folder, "curate", "status", engine, "--json"))
    shown = ("name", "done", "failed", "waiting")
    made["status.json"] = [{key: stage[key] for key in shown} for stage in status["stages"]]
    return made


def _names(out):
    """Return the names of a run's files, without what says where it ran: of `export` the key, which
    holds addresses."""
    names = (re.sub(r"^(stages/export/)[0-9a-f]{64}", r"\1KEY", name) for name in files_below(out))
    return sorted({re.sub(r"^timings/.*", "timings/JOURNAL", _shards(name)) for name in names})


def _shards(text):
    return re.sub(r"(-of-\d{5}-)[0-9a-f]{16}\.", r"\1SHA256.", text)


def local(folder):
    return curate(folder, "local")


def ray(folder):
    return curate(folder, "ray")


def predict(folder):
    """What one network of each system says of ready features and of a real video."""
    made = {}

    def say(name, *command):
        keep(made, name, run(folder, *command), folder)

    given = ("--features", "features")
    placing = ("--aligner", "networks/aligner.safetensors", *given)
    asked = (
        "htm-align htm_align.json htm_align.json",
        "ht-step htstep htstep.json",
        "ht-step htstep htstep.csv",
        "crosstask crosstask crosstask.json",
        "crosstask crosstask crosstask-given.json",
    )
    for benchmark, reference, name in map(str.split, asked):
        files = ("--reference", f"references/{reference}", "--out", name)
        order = ("--order", "given") if "given" in name else ()
        run(folder, "predict", benchmark, *placing, *files, *order)
        keep(made, name.replace(".csv", ".csv.txt"), (folder / name).read_text(), folder)
    files = ("--reference", "references/youcook2.json", "--out", "youcook2.json")
    run(folder, "predict", "youcook2", "--model", "networks/procx.safetensors", *given, *files)
    keep(made, "youcook2.json", (folder / "youcook2.json").read_text(), folder)
    lines = json.loads((folder / "references" / "youcook2.json").read_text())["a2"]["sentences"]
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    for mode in ("step", "narration"):
        texts = ("--texts", "lines.txt", *placing[:2], "--mode", mode, "--json")
        say(f"ground-{mode}.json", "ground", "features/a2.npy", *texts)
    describing = ("--describe", "networks/procx.safetensors", "--set", "procx.when=alone")
    describing += ("--format", "json", "--json", "--out", "described")
    say("describe.json", "steps", "features/a1.npy", *describing)
    counted = _sets(("count=3", "caption_weight=0.5"), "procx.")
    say("describe-counted.json", "steps", "features/a3.npy", *describing, *counted)
    video = ("media/small.mp4", "--captions", "captions/small.srt", "--json", "--out")
    detector = ("--detector", "networks/detector.safetensors")
    say("judge.json", "judge", *video, "judged", *detector)
    say("judge-untrained.json", "judge", *video, "plain")
    say("summary.json", "summarize", *video, "plain", "--length", "50%")
    say("steps.json", "steps", *video, "aligned", *placing[:2])
    for name in ("aligner", "procx", "detector"):
        made[f"network-{name}.json"] = tensors(folder / "networks" / f"{name}.safetensors")
    return made


def evaluate(folder):
    """Scores of fixed predictions, under every convention of a benchmark that needs no other
    program."""
    made = {}
    conventions = {
        "htm-align": ("htm_align.json", "tan", "nasva"),
        "ht-step": ("htstep", "official"),
        "crosstask": ("crosstask", "each-all"),
        "youcook2": ("youcook2.json", "stepline", "grounding", "segmentation"),
        "coin": ("coin.json", "grounding"),
        "vnd": ("vnd.json", "official"),
        "ivsum": ("ivsum.json", "frames", "official"),
    }
    for benchmark, (reference, *names) in conventions.items():
        predictions = f"predictions/{reference.removesuffix('.json')}.json"
        files = ("--predictions", predictions, "--reference", f"references/{reference}")
        for name in names:
            scoring = ("--convention", name, "--draws", 50, "--json")
            told = run(folder, "evaluate", benchmark, *files, *scoring)
            keep(made, f"{benchmark}-{name}.json", told, folder)
    against = (
        "--predictions predictions/vnd.json --against references/vnd.json --reference "
        "references/vnd.json --per-video rows.parquet"
    ).split()
    keep(made, "table.txt", run(folder, "evaluate", "vnd", *against, "--draws", 50), folder)
    made["rows.json"] = table(folder / "rows.parquet")
    for benchmark in conventions:
        keep(made, f"{benchmark}.txt", run(folder, "evaluate", benchmark), folder)
    return made


def train(folder):
    """A short run of NaSVA and of ProcX: its files, its run.json, and the keys of its
    network."""
    made = {}
    nasva = "width=16 heads=2 encoder_layers=1 decoder_layers=1 feed_forward=24 projection=8"
    procx = (
        "rows=16 attention.width=16 attention.heads=2 attention.levels=2 encoder_layers=1 "
        "decoder_layers=1 feed_forward=24 queries=4 captioner.width=16 captioner.heads=2 "
        "captioner.text_layers=1 captioner.joint_layers=1 captioner.feed_forward=24 "
        "captioner.projection=8"
    )
    run(folder, "features", "import", "features", "--out", "store", "--backbone", "conse")
    keep(made, "features.json", run(folder, "features", "check", "store", "--json"), folder)
    steps = ("--features", "store", "--steps", "youcook2:references/youcook2.json")
    runs = {
        "nasva": (*steps, "--step-vectors", "minilm", *_sets(nasva.split(), "model.")),
        "procx": (*steps, *_sets(procx.split(), "model."), "--set", "vocabulary.size=300"),
    }
    for name, given in runs.items():
        more = option_words(out=name, set=["train.epochs=1", "train.device=cpu"])
        run(folder, "train", name, *given, *more)
        out = folder / name
        told = json.loads(plain((out / "run.json").read_text(), folder))
        told.pop("versions", None)
        made[f"{name}-run.json"] = told
        made[f"{name}-files.json"] = files_below(out)
        for path in sorted(out.glob("*.safetensors")):
            if path.stem != "last":
                made[f"{name}-{path.stem}.json"] = tensors(path)
                made[f"{EXACT}{name} {path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return made


def sieve_swap(folder):
    """A text base of a few steps, what it answers, and narration swapped for its steps."""
    made = {}
    videos = json.loads((folder / "references" / "youcook2.json").read_text())
    recipes = [
        {"id": id, "title": f"Salad {id}", "steps": v["sentences"]} for id, v in videos.items()
    ]
    (folder / "recipes.json").write_text(json.dumps(recipes))
    run(folder, "text-base", "build", "recipes.json", "--out", "base", "--licence", "MIT")
    base = json.loads(run(folder, "text-base", "show", "base", "--json"))
    parts = [{**part, "files": sorted(part["files"])} for part in base["parts"]]
    made["base.json"] = {**base, "parts": parts}
    made[f"{EXACT}base"] = base
    asked = run(folder, "text-base", "ask", "base", "slice the lemons", "boil the potatoes")
    keep(made, "ask.txt", asked, folder)
    swapping = (
        "--text-base base --set pairing.smallest_category=1 --set pairing.iou=0.1 --set "
        "pairing.recall=0.1 --set pairing.validation_iou=0.6 --set match.similarity=0.4 --set "
        "match.swap_similarity=0.5"
    ).split()
    counts = run(folder, "sieve-swap", "narrations", "--out", "swapped", *swapping, "--json")
    keep(made, "counts.json", counts, folder)
    for part in ("base", "swapped"):
        names = "\n".join(files_below(folder / part))
        made[f"{part}-files.json"] = re.sub(r"-[0-9a-f]{16}\.", "-SHA256.", names).splitlines()
    for path in sorted((folder / "swapped").rglob("*.parquet")):
        made[f"{path.parent.name}.json"] = table(path)
    for name in ("train", "validation"):
        keep(made, f"{name}.json", (folder / "swapped" / f"{name}.json").read_text(), folder)
    return made


def _sets(pairs, prefix=""):
    return [part for pair in pairs for part in ("--set", f"{prefix}{pair}")]


CASES = {
    "demo": demo,
    "command_line": command_line,
    "settings": settings,
    "curate": local,
    "curate on ray": ray,
    "predict": predict,
    "evaluate": evaluate,
    "train": train,
    "sieve_swap": sieve_swap,
}
SAME_AS = {"curate on ray": "curate"}  # what an engine is leaves no trace


def observed(name, folder):
    """Return what a case makes: name -> text or tree."""
    import torch
    from threadpoolctl import threadpool_limits

    from stepline.evaluate.meteor.tables import load_phrases
    from stepline.networks.weights import weights_folder

    if name == "evaluate":
        # Compiled in the cache that all tests share: in the folder's own it takes 15 s.
        load_phrases()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ.setdefault("STEPLINE_WEIGHTS", str(weights_folder()))
    before = os.environ.get("STEPLINE_CACHE")
    os.environ["STEPLINE_CACHE"] = str(folder / "cache")
    try:
        with threadpool_limits(1):  # how many threads add up a sum decides its last bits
            return CASES[name](fresh(folder))
    finally:
        torch.set_num_threads(threads)
        os.environ.pop("STEPLINE_CACHE")
        if before is not None:
            os.environ["STEPLINE_CACHE"] = before


def written(name, content):
    """Return the text that stands for a content in its file."""
    if isinstance(content, str) and not name.endswith(".json"):
        return content
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def digest(name, content):
    return hashlib.sha256(written(name, content).encode()).hexdigest()


def differences(expected, found, within, place=""):
    """Yield where two trees or texts differ; numbers may by `within`, and by that share of their
    size."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if list(expected) != list(found):
            yield f"{place}: keys {list(expected)}, now {list(found)}"
        for key in expected.keys() & found.keys():
            yield from differences(expected[key], found[key], within, f"{place}/{key}")
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{place}: {len(expected)} entries, now {len(found)}"
        for number, pair in enumerate(zip(expected, found, strict=False)):
            yield from differences(*pair, within, f"{place}/{number}")
    elif _is_number(expected) and _is_number(found):
        if type(expected) is not type(found) or not math.isclose(
            expected, found, rel_tol=within, abs_tol=within
        ):
            yield f"{place}: {expected!r}, now {found!r}"
    elif isinstance(expected, str) and isinstance(found, str):
        yield from _text_differences(expected, found, within, place)
    elif expected != found or type(expected) is not type(found):
        yield f"{place}: {expected!r}, now {found!r}"


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text_differences(expected, found, within, place):
    lines, others = expected.splitlines(), found.splitlines()
    if len(lines) != len(others):
        yield f"{place}: {len(lines)} lines, now {len(others)}"
    for number, (line, other) in enumerate(zip(lines, others, strict=False), start=1):
        if line != other and not _same_line(line, other, within):
            yield f"{place}:{number}: {line[:200]!r}, now {other[:200]!r}"


def _same_line(line, other, within):
    values, others = (list(map(float, NUMBER.findall(each))) for each in (line, other))
    close = len(values) == len(others) and all(
        math.isclose(a, b, rel_tol=within, abs_tol=within)
        for a, b in zip(values, others, strict=True)
    )
    return close and NUMBER.sub("0", line) == NUMBER.sub("0", other)


def read_expected(name):
    files = sorted((EXPECTED / SAME_AS.get(name, name)).iterdir())
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    return {file: json.loads(t) if file.endswith(".json") else t for file, t in texts.items()}


def check(name, made):
    """Fail with every place where what a case makes differs from what is expected."""
    expected, exact = read_expected(name), os.environ.get("STEPLINE_GOLDEN_EXACT") == "1"
    digests = json.loads(MANIFEST.read_text())[SAME_AS.get(name, name)]
    files = {file: content for file, content in made.items() if not file.startswith(EXACT)}
    if files.get("leaving.json") == {}:  # they have gone
        made.pop("leaving.json")
        del files["leaving.json"], expected["leaving.json"]
    faults = [f"{file}: is not made any more" for file in expected.keys() - files.keys()]
    faults += [f"{file}: is not expected" for file in files.keys() - expected.keys()]
    for file in sorted(expected.keys() & files.keys()):
        found = differences(expected[file], files[file], NEARER if exact else NEAR)
        faults += [f"{file}{each}" for each in found]
    if exact:
        gone = digests.keys() - made.keys() - {"leaving.json"}
        faults += [f"{file}: is not made any more" for file in gone]
        for file in digests.keys() & made.keys():
            if digests[file] != digest(file, made[file]):
                faults.append(f"{file}: other bytes")
    assert not faults, f"{name}: {len(faults)} differences\n" + "\n".join(sorted(faults)[:40])


@pytest.mark.filterwarnings(*(f"ignore::{name}" for name in OF_RAY))
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if "ray" in name else name for name in CASES],
)
def test_what_users_see_stays_the_same(name, tmp_path):
    if name == "curate on ray":
        pytest.importorskip(
            "ray", reason="needs Ray: pip install -c constraints.txt 'stepline[ray]'"
        )
    check(name, observed(name, tmp_path))


def test_a_number_may_differ_by_little_and_a_text_not_at_all():
    assert not list(differences({"a": [1.0, "x 0.5 y"]}, {"a": [1.00005, "x 0.50005 y"]}, NEAR))
    others = [1.001, "x 0.5 y"], [1.0, "x 0.5 z"], [1, "x 0.5 y"], [1.0], [None, "x 0.5 y"]
    others += ([1.0, "x 0.6 y"],)
    for other in ({"b": [1.0, "x 0.5 y"]}, *({"a": values} for values in others)):
        assert list(differences({"a": [1.0, "x 0.5 y"]}, other, NEAR)), other


def write(names):
    """Write what the named cases make today, and the sha256 of all that comes out alike every
    time."""
    manifest = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    for name in names:
        runs = [observed_apart(name) for _ in range(RUNS)]
        shutil.rmtree(EXPECTED / name, ignore_errors=True)
        (EXPECTED / name).mkdir(parents=True)
        for file, content in runs[0].items():
            if not file.startswith(EXACT):
                (EXPECTED / name / file).write_text(written(file, content), encoding="utf-8")
        digests = {file: {digest(file, made[file]) for made in runs} for file in runs[0]}
        manifest[name] = {
            file: found.pop() for file, found in sorted(digests.items()) if len(found) == 1
        }
        alike = f"{len(manifest[name])} of them alike to the byte in {RUNS} runs"
        print(f"{name}: {len(digests)} files, {alike}")
        MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n")


def observed_apart(name):
    """Return what a case makes in a process of its own: where arrays lie in memory decides the last
    bits of a sum."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--observe", name, folder]
        subprocess.run(command, env=environment, check=True)
        return json.loads((Path(folder) / "observed.json").read_text())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--observe"]:
        _, _, name, folder = sys.argv
        made = observed(name, Path(folder) / "work")
        (Path(folder) / "observed.json").write_text(json.dumps(made))
        sys.exit()
    if sys.argv[1:2] != ["--write"]:
        sys.exit("python tests/test_golden.py --write [CASE ...]")
    write(sys.argv[2:] or [name for name in CASES if name not in SAME_AS])
