"""How heavy pages are, and how soon a browser paints them on a slow machine.

    python lab/first_paint.py
    python lab/first_paint.py --steps 1 30 300 --slowdown 4 --rounds 7

It makes pages of videos with that many steps, each with a picture, from a file and without a video.
Half of the pages are of an upright video. A headless Chromium opens them with a slower CPU, as its
developer tools do it (Emulation.setCPUThrottlingRate). The picture of each step is a JPEG with as
many bytes as a key frame may have. So the page is as heavy as such a page gets.

First paint is the browser's own `first-contentful-paint`, from the start of the navigation. Loaded
is the end of its `load` event. Both are longer on a busy machine. So the work of the page's main
thread until the first paint is measured too. It comes from a trace without a slowdown, and is
multiplied by it.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT_FOLDER / "tests"))
from browser import Browser  # noqa: E402

from stepline.media import MAX_KEYFRAME_BYTES, encode_jpeg  # noqa: E402
from stepline.outputs import page  # noqa: E402
from stepline.records import Record, Sentence, Span, Step, Transcript, Video  # noqa: E402

STEP_SECONDS = 10.0  # of a made step
STEP_TEXT = (
    "Fold the dough in thirds, turn it by a quarter and roll it out to the length of your arm"
)
PICTURE_SIZES = {"landscape": (480, 270), "upright": (270, 480)}  # px of a key frame
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TRACE_CATEGORIES = ["loading", "devtools.timeline", "toplevel"]
TASK_EVENT = "ThreadControllerImpl::RunTask"  # all work of a thread, in Chromium's traces
MICROSECONDS_PER_SECOND = 1e6  # in a second
LOAD_END = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def noise_picture(number: int, size: tuple[int, int]) -> bytes:
    """Return a JPEG of about as many bytes as a key frame may have at most."""
    rng = np.random.default_rng(number)
    width, height = size
    for cell in (12, 16, 20, 24, 32):
        shape = (height // cell + 1, width // cell + 1, 3)
        coarse = rng.integers(40, 215, shape)
        fine = np.kron(coarse, np.ones((cell, cell, 1)))
        image = fine[:height, :width].astype(np.uint8)
        jpeg = encode_jpeg(image, MAX_KEYFRAME_BYTES)
        if len(jpeg) <= MAX_KEYFRAME_BYTES:
            return jpeg
    raise ValueError(f"no noise of {size} fits {MAX_KEYFRAME_BYTES} bytes")


def made_record(count: int) -> Record:
    """Return a record of that many steps, each said in two sentences."""
    steps = []
    sentences = []
    for number in range(count):
        start = number * STEP_SECONDS
        span = Span(start, start + STEP_SECONDS)
        for part in range(2):
            half_start = start + part * 5.0
            half = Span(half_start, half_start + 5.0)
            text = f"So now we {STEP_TEXT.lower()}."
            sentences.append(Sentence(text=text, span=half, shown=0.8))
        sources = (2 * number, 2 * number + 1)
        step = Step(
            id=str(number),
            text=STEP_TEXT,
            spans=(span,),
            at=span.center,
            said=span,
            status="shown",
            basis="pictures",
            score=0.9,
            sources=sources,
        )
        steps.append(step)
    transcript = Transcript(language="en", sentences=tuple(sentences), recogniser="captions")
    video = Video(id="made", duration=max(1, count) * STEP_SECONDS, title="A made video")
    return Record(id="made", video=video, transcript=transcript, steps=tuple(steps))


def write_page(count: int, shape: str, folder: Path) -> Path:
    """Write the page of that many steps with a picture each."""
    record = made_record(count)
    pictures = {}
    for number, step in enumerate(record.steps):
        pictures[step.id] = noise_picture(number, PICTURE_SIZES[shape])
    path = folder / f"{count}-{shape}.html"
    path.write_text(page(record, keyframes=pictures), encoding="utf-8")
    return path


def measure(browser: Browser, path: Path, slowdown: float, rounds: int) -> dict[str, float]:
    """Return the bytes of a page, its seconds to the first paint (median, greatest), to its load
    (median), and of work until the paint (median)."""
    paints = []
    loads = []
    work = []
    for _ in range(rounds):
        work.append(slowdown * work_to_paint(browser, path))
        tab = browser.open("about:blank", width=390, height=844)
        tab.send("Emulation.setCPUThrottlingRate", rate=slowdown)
        tab.send("Page.navigate", url=path.resolve().as_uri())
        tab.wait_until(f"location.href !== 'about:blank' && {FIRST_PAINT} && {LOAD_END} > 0")
        paints.append(tab.run(FIRST_PAINT) / 1000)
        loads.append(tab.run(LOAD_END) / 1000)
        tab.close()
    return {
        "bytes": path.stat().st_size,
        "paint": round(statistics.median(paints), 3),
        "paint_most": round(max(paints), 3),
        "loaded": round(statistics.median(loads), 3),
        "work": round(statistics.median(work), 3),
    }


def work_to_paint(browser: Browser, path: Path) -> float:
    """Return the CPU seconds of a page's main thread until its first paint."""
    tab = browser.open("about:blank", width=390, height=844)
    tab.send(
        "Tracing.start",
        transferMode="ReportEvents",
        traceConfig={"includedCategories": TRACE_CATEGORIES},
    )
    tab.send("Page.navigate", url=path.resolve().as_uri())
    tab.wait_until(f"location.href !== 'about:blank' && {FIRST_PAINT} && {LOAD_END} > 0")
    tab.send("Tracing.end")
    while not any(event["method"] == "Tracing.tracingComplete" for event in tab.events):
        tab.run("new Promise((next) => setTimeout(next, 50))")
    events = []
    for event in tab.events:
        if event["method"] == "Tracing.dataCollected":
            events += event["params"]["value"]
    tab.close()
    paints = [event for event in events if event["name"] == "firstContentfulPaint"]
    paint = paints[-1]
    main_thread = (paint["pid"], paint["tid"])
    seconds = 0.0
    for event in events:
        is_main = (event["pid"], event["tid"]) == main_thread
        if event["name"] == TASK_EVENT and is_main and event["ts"] < paint["ts"]:
            seconds += event.get("tdur", 0) / MICROSECONDS_PER_SECOND
    return seconds


def main() -> None:
    """Measure the pages and print a line for each, then all as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 30, 300])
    parser.add_argument("--slowdown", type=float, default=4.0, help="Of the CPU.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pages = {}
        for count in options.steps:
            for shape in PICTURE_SIZES:
                pages[f"{count} steps, {shape}"] = write_page(count, shape, folder)
        browser = Browser(folder / "profile")
        try:
            for name, path in pages.items():
                row = measure(browser, path, options.slowdown, options.rounds)
                rows[name] = row
                size = f"{row['bytes'] / 1000:,.0f} kB"
                times = f"first paint {row['paint']:.2f} s (at most {row['paint_most']:.2f})"
                work = f"work until then {row['work']:.2f} s"
                print(f"{name}: {size}, {times}, {work}, loaded {row['loaded']:.2f} s", flush=True)
        finally:
            browser.close()
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
