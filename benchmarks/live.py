"""A live run against the clock: python benchmarks/live.py CLIPS --cache DIR [--only NAME ...]
[--hours H | --kill]

CLIPS and DIR are those of real_clips.py: labels.json, and a record of each clip by the main job.
Each clip is replayed as a run at its own pace on two cores of its own. Pictures are read on one
clock. Sound is recognised, written and grounded on another. What comes while a clock is busy waits,
and each piece of work takes the CPU seconds that it took here. So a busy machine changes the result
only by its caches.

- "behind": from the end of a word, or of the words of a step, until it is reported
- CPU: of both cores together, with decoding
- words: how many words of the main job's transcript are recognised live, and how many others
- against the labels: as in real_clips.py

--hours H plays the first clip again and again without a break, as fast as the machine goes. It
shows how the memory grows. Sound and pictures are real. The words of the main job's transcript
replace the recogniser, and the rows of pictures are kept from the first round. Voice detection,
motion, writing and grounding are computed again, every ten seconds.

--kill kills a real run over the first clip by its clock, and shows when the next one continues.
"""

import argparse
import difflib
import gc
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from real_clips import RESULTS, counts, records

from stepline.asr.audio_windows import AudioWindow, WindowTranscript
from stepline.live.events import GrowingVtt, LiveEvent, LiveLog
from stepline.live.options import LiveOptions
from stepline.live.run_files import RunFiles
from stepline.live.session import LiveSession
from stepline.live.speech import HeardSentences, Recognise
from stepline.media import AudioBlock, Frame, MediaReader
from stepline.pipeline.pictures import FRAMES_PER_ROW
from stepline.pipeline.request import StepsSettings
from stepline.progress import trim_memory
from stepline.records import Record, Span, Video, Word
from stepline.vision import Backbone, load_backbone

CORES = 2
BURST = 10  # s of sound that --hours takes together, as a session does that was kept busy so long


@dataclass
class Clock:
    """A source whose clock goes on by the work that is done. free: second from which each core has
    nothing to do."""

    free: float = 0.0
    begun: float = field(default_factory=time.process_time)
    end: float = 0.0
    paced: bool = True
    held: bool = False
    reason: str = "the source ended"

    @property
    def now(self) -> float:
        """The second it is while work goes on."""
        return self.free + time.process_time() - self.begun

    def begin(self, due: float) -> None:
        """Begin work that may not begin before `due`."""
        self.free, self.begun = max(self.free, due), time.process_time()

    def done(self) -> None:
        """End the work."""
        self.free = self.now


class Timed(LiveSession):
    """A session that notes how far behind each word is reported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.words: list[tuple[float, float]] = []  # end of the word, when it was reported

    def _take(self, heard: HeardSentences) -> None:
        self.words += [(word.span.end, self._now) for word in heard.words if word.span is not None]
        super()._take(heard)


@dataclass(frozen=True)
class Replay:
    """What came of a clip: its record as live as it was, delays in s, CPU seconds, length in s."""

    record: Record
    words: list[float]
    steps: list[float]
    sentences: list[float]  # the steps', behind the end of the sentence that describes them
    shown: list[float]
    revised: int
    cpu: float
    length: float


def items(
    clip: Path, settings: StepsSettings, rate: float
) -> Iterator[tuple[float, Frame | AudioBlock]]:
    """Yield what a clip holds with the second at which it is there."""
    reader = MediaReader(clip, frame_rate=rate, frame_size=settings.vision.frame_size, sound=True)
    for item in reader:
        yield (
            (item.time if isinstance(item, Frame) else item.start + len(item.samples) / 16_000),
            item,
        )


def replay(clip: Path, settings: StepsSettings, folder: Path, lag: float) -> Replay:
    """Play a clip as if each second took one."""
    told: list[LiveEvent] = []
    backbone = load_backbone(settings.vision)
    session = Timed(
        RunFiles(
            clip.stem,
            LiveLog(folder / f"{clip.stem}.jsonl"),
            GrowingVtt(folder / f"{clip.stem}.vtt"),
            folder / f"{clip.stem}.rows",
        ),
        settings,
        told.append,
        LiveOptions(lag),
        backbone,
    )
    session.warm_up()
    hearing, looking = Clock(), Clock()
    session.sources = (hearing,)  # type: ignore[assignment]
    waiting: list[AudioBlock] = []
    begun = time.process_time()
    for second, item in items(clip, settings, settings.vision.rate * FRAMES_PER_ROW):
        hearing.end = max(hearing.end, second)
        if isinstance(item, Frame):
            looking.begin(second)
            session.look(item)
            looking.done()
            continue
        waiting.append(item)
        if hearing.free <= second:  # else it waits, and is read with what comes next
            hearing.begin(second)
            session.advance(waiting)
            hearing.done()
            waiting = []
    hearing.begin(hearing.end)
    session.advance(waiting)
    session.finish()
    hearing.done()
    cpu = time.process_time() - begun
    steps = tuple(each.step for each in session.log.steps.values() if not each.withdrawn)
    record = Record(
        id=clip.stem,
        video=Video(id=clip.stem, duration=hearing.end),
        transcript=session.log.transcript,
        steps=steps,
    )
    return Replay(
        record,
        [now - end for end, now in session.words],
        [
            event.at - event.said.end
            for event in told
            if event.event == "step_said" and event.said is not None
        ],
        [
            event.at - session.log.sentences[max(event.sources)].span.end
            for event in told
            if event.event == "step_said" and event.sources
        ],
        [
            event.at - event.second
            for event in told
            if event.event == "step_shown" and event.second is not None
        ],
        sum(event.event == "revised" for event in told),
        cpu,
        hearing.end,
    )


def words_of(record: Record) -> list[str]:
    """Return what is said, as plain words."""
    return re.findall(r"[\w']+", " ".join(sentence.text.lower() for sentence in record.sentences))


def quantiles(values: list[float]) -> str:
    """Return median and 95th percentile in words."""
    return f"{np.median(values):.1f} / {np.quantile(values, 0.95):.1f}" if values else "-"


def compare(clips: Path, cache: Path, names: list[str], lag: float) -> None:
    """Replay the clips, print a row each and the sums, and keep them."""
    truths = json.loads((clips / "labels.json").read_text())
    settings, rows = StepsSettings(), []
    totals: dict[str, Counter[str]] = {"live": Counter(), "main job": Counter()}
    whole = records(clips, [f"{name}.mp4" for name in names], cache)
    print(
        "clip, s | words behind, s | steps behind; their sentences | CPU | main job's words heard, others | revised"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            live = replay(clips / f"{name}.mp4", settings, Path(folder), lag)
            own, other = words_of(live.record), words_of(whole[f"{name}.mp4"])
            same = sum(
                b.size
                for b in difflib.SequenceMatcher(
                    None, other, own, autojunk=False
                ).get_matching_blocks()
            )
            behind = (
                f"{quantiles(live.words)} | {quantiles(live.steps)}; {quantiles(live.sentences)}"
            )
            print(
                f"{name}, {live.length:.0f} | {behind} | "
                f"{live.cpu / live.length / CORES:.2f} | {same} of {len(other)}, {len(own) - same} | {live.revised}",
                flush=True,
            )
            totals["live"] += Counter(counts(truths[f"{name}.mp4"], live.record))
            totals["main job"] += Counter(counts(truths[f"{name}.mp4"], whole[f"{name}.mp4"]))
            rows.append((live, same, len(other), len(own)))
    lives = [row[0] for row in rows]
    length = sum(live.length for live in lives)
    summary = {
        "clips": len(lives),
        "seconds": round(length),
        "words behind, median / 95 %": quantiles([x for live in lives for x in live.words]),
        "steps behind, median / 95 %": quantiles([x for live in lives for x in live.steps]),
        "steps behind their sentence, median / 95 %": quantiles(
            [x for live in lives for x in live.sentences]
        ),
        "shown behind, median / 95 %": quantiles([x for live in lives for x in live.shown]),
        "CPU of two cores": round(sum(live.cpu for live in lives) / length / CORES, 3),
        "words": [
            sum(row[1] for row in rows),
            sum(row[2] for row in rows),
            sum(row[3] for row in rows),
        ],
        "steps told": sum(len(live.steps) for live in lives),
        "revised": sum(live.revised for live in lives),
        **{name: dict(total) for name, total in totals.items()},
    }
    print(json.dumps(summary, indent=1))
    (RESULTS / "live.json").write_text(json.dumps(summary, indent=1) + "\n")


class KnownPictures:
    """The backbone, with the rows of pictures that it has seen before."""

    def __init__(self, backbone: Backbone) -> None:
        self.name, self.dim, self.encode_texts = backbone.name, backbone.dim, backbone.encode_texts
        self._backbone, self._rows = backbone, dict[bytes, np.ndarray]()

    def encode_images(self, pictures: np.ndarray) -> np.ndarray:
        """Return the row of each picture."""
        key = pictures[:, ::8, ::8].tobytes()
        if key not in self._rows:
            self._rows[key] = self._backbone.encode_images(pictures)
        return self._rows[key]


def words_of_loop(words: Sequence[Word], length: float) -> Recognise:
    """Return a recogniser that hears the words of a clip that is played again and again, each round
    for `length` s."""

    def read(window: AudioWindow) -> WindowTranscript:
        rounds = range(int(window.start // length), int(window.end // length) + 1)
        heard = [
            word.model_copy(
                update={"span": Span(word.span.start + n * length, word.span.end + n * length)}
            )
            for n in rounds
            for word in words
            if word.span is not None
            and word.span.end <= length
            and word.span.start + n * length >= window.start - 0.1
            and word.span.end + n * length <= window.end
        ]
        return WindowTranscript(tuple(heard), "en", -0.2)

    return read


def loop(clip: Path, cache: Path, hours: float) -> None:
    """Play a clip again and again without a break, and print how the memory goes."""
    settings = StepsSettings()
    held = list(items(clip, settings, settings.vision.rate * FRAMES_PER_ROW))
    length = float(int(max(second for second, _ in held)))
    held = [(second, item) for second, item in held if second <= length]
    record = records(clip.parent, [clip.name], cache)[clip.name]
    words = [
        word.model_copy(update={"text": f" {word.text}"})
        for sentence in record.sentences
        for word in sentence.words
    ]
    rounds, rows = math.ceil(hours * 3600 / length), []
    with tempfile.TemporaryDirectory() as folder:
        session = LiveSession(
            RunFiles(
                clip.stem,
                LiveLog(Path(folder) / "v.jsonl"),
                GrowingVtt(Path(folder) / "v.vtt"),
                Path(folder) / "v.rows",
            ),
            settings,
            lambda _: None,
            LiveOptions(),
            KnownPictures(load_backbone(settings.vision)),
            recognise=words_of_loop(words, length),
        )
        session.warm_up()
        clock = Clock()
        session.sources = (clock,)  # type: ignore[assignment]
        for number in range(rounds):
            begun = time.process_time()
            waiting = []
            for second, item in held:
                clock.free = clock.end = number * length + second
                clock.begun = time.process_time()
                if isinstance(item, Frame):
                    session.look(Frame(item.time + number * length, item.image))
                else:
                    waiting.append(AudioBlock(item.start + number * length, item.samples))
                if len(waiting) == BURST:
                    session.advance(waiting)
                    waiting = []
            session.advance(waiting)
            spent = (time.process_time() - begun) / length
            if number % max(1, rounds // 18) == 0 or number == rounds - 1:
                as_it_is = psutil.Process().memory_info().rss / 2**20
                gc.collect()
                trim_memory()
                trimmed = psutil.Process().memory_info().rss / 2**20
                row = {
                    "hours": round((number + 1) * length / 3600, 3),
                    "MiB": round(as_it_is, 1),
                    "MiB after malloc_trim": round(trimmed, 1),
                    "steps": len(session.log.steps),
                    "sentences": len(session.log.sentences),
                    "CPU s a second": round(spent, 3),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
                (RESULTS / "live_memory.json").write_text(
                    json.dumps({"clip": clip.name, "rows": rows}, indent=1) + "\n"
                )


def killed(clip: Path, backbone: str) -> None:
    """Kill a run over a clip when its first step is reported, begin it again, and print when it
    goes on."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "stepline",
            "live",
            str(clip),
            "--out",
            folder,
            "--backbone",
            backbone,
        ]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        next(event for event in map(json.loads, first.stdout) if event["event"] == "step_said")
        first.kill()
        first.wait()
        kept = (Path(folder) / f"{clip.stem}.events.jsonl").read_text().split("\n")[:-1]
        last = json.loads(kept[-1])
        begun = time.monotonic()
        second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        went_on = json.loads(second.stdout.readline())
        spent, times = time.monotonic() - begun, psutil.Process(second.pid).cpu_times()
        second.kill()
        second.wait()
    assert went_on["number"] == last["number"] + 1
    print(
        f"{clip.name}, {backbone}: the next event {spent:.1f} s after the restart, {times.user + times.system:.1f} "
        f"CPU s; it was told at second {went_on['at']:.1f}, the last one before at {last['at']:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--lag", type=float, default=2.0)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    truths = json.loads((options.clips / "labels.json").read_text())
    narrated = {
        Path(name).stem
        for name, truth in truths.items()
        if any(s.get("spoken") for s in truth["steps"])
    }
    names = options.only or sorted(narrated)
    if options.hours:
        loop(options.clips / f"{names[0]}.mp4", options.cache, options.hours)
    elif options.kill:
        for backbone in ("none", StepsSettings().vision.backbone):
            killed(options.clips / f"{names[0]}.mp4", backbone)
    else:
        compare(options.clips, options.cache, names, options.lag)


if __name__ == "__main__":
    main()
