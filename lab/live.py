"""A live run against the clock: python lab/live.py CLIPS --cache DIR [--only NAME ...]

CLIPS and DIR are those of real_clips.py: labels.json, and a record of each clip by the main job.
Each clip is replayed as a run at its own pace on two cores of its own. Pictures are read on one
clock. Sound is recognised, written and grounded on another. What comes while a clock is busy waits,
and each piece of work takes the CPU seconds that it took here. So a busy machine changes the result
only by its caches.

- "behind": from the end of a word, or of the words of a step, until it is reported
- CPU: of both cores together, with decoding
- words: how many words of the main job's transcript are recognised live, and how many others
- against the labels: as in real_clips.py
"""

import argparse
import difflib
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from real_clips import RESULTS_FOLDER, counts, records

from stepline.live.events import LiveEvent, LiveLog, LiveOptions, RunFiles
from stepline.live.run import LiveSession
from stepline.live.speech import RecognisedSentences
from stepline.media import AudioBlock, Frame, MediaReader
from stepline.pipeline.pictures import FRAMES_PER_ROW
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Video
from stepline.vision import load_backbone

CORE_COUNT = 2
Item = Frame | AudioBlock
TimedItem = tuple[float, Item]


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
        self.free = max(self.free, due)
        self.begun = time.process_time()

    def done(self) -> None:
        """End the work."""
        self.free = self.now


class Timed(LiveSession):
    """A session that notes how far behind each word is reported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.words: list[tuple[float, float]] = []  # end of the word, when it was reported

    def _emit_sentences(self, speech: RecognisedSentences) -> None:
        for word in speech.words:
            if word.span is not None:
                self.words.append((word.span.end, self._now))
        super()._emit_sentences(speech)


@dataclass(frozen=True)
class Replay:
    """What came of a clip: its record as live as it was, delays in s, CPU seconds, length in s."""

    record: Record
    words: list[float]
    steps: list[float]
    sentences: list[float]  # the steps', behind the end of the sentence that describes them
    shown_steps: list[float]
    revised: int
    cpu: float
    length: float


def items(clip: Path, settings: StepsSettings) -> Iterator[TimedItem]:
    """Yield what a clip holds with the second at which it is there."""
    rate = settings.vision.rate * FRAMES_PER_ROW
    reader = MediaReader(clip, frame_rate=rate, frame_size=settings.vision.frame_size, sound=True)
    for item in reader:
        if isinstance(item, Frame):
            yield item.time, item
        else:
            yield item.start + len(item.samples) / 16_000, item


def run_files(clip: Path, folder: Path) -> RunFiles:
    """Return the files of a run in a folder."""
    return RunFiles(
        clip.stem,
        LiveLog(folder / f"{clip.stem}.jsonl"),
        folder / f"{clip.stem}.vtt",
        folder / f"{clip.stem}.rows",
    )


def replay(clip: Path, settings: StepsSettings, folder: Path, lag: float) -> Replay:
    """Play a clip as if each second took one."""
    # the run
    events: list[LiveEvent] = []
    session = Timed(
        run_files(clip, folder),
        settings,
        events.append,
        LiveOptions(lag),
        load_backbone(settings.vision),
    )
    session.warm_up()
    began = time.process_time()
    length = play_by_clocks(session, items(clip, settings))
    cpu = time.process_time() - began
    # what it came to
    steps = []
    for logged in session.log.steps.values():
        if not logged.withdrawn:
            steps.append(logged.step)
    record = Record(
        id=clip.stem,
        video=Video(id=clip.stem, duration=length),
        transcript=session.log.transcript,
        steps=tuple(steps),
    )
    step_delays, sentence_delays, shown_delays = event_delays(session, events)
    return Replay(
        record=record,
        words=[now - end for end, now in session.words],
        steps=step_delays,
        sentences=sentence_delays,
        shown_steps=shown_delays,
        revised=sum(event.event == "revised" for event in events),
        cpu=cpu,
        length=length,
    )


def play_by_clocks(session: LiveSession, clip_items: Iterator[TimedItem]) -> float:
    """Play a clip on a clock for sound and another for pictures. Return its length in s."""
    speech_clock = Clock()
    picture_clock = Clock()
    session.sources = (speech_clock,)  # type: ignore[assignment]
    waiting: list[AudioBlock] = []
    for second, item in clip_items:
        speech_clock.end = max(speech_clock.end, second)
        if isinstance(item, Frame):
            picture_clock.begin(second)
            session.add_frame(item)
            picture_clock.done()
            continue
        waiting.append(item)
        # while the clock is busy sound waits, and is read with what comes next
        if speech_clock.free <= second:
            speech_clock.begin(second)
            session.advance(waiting)
            speech_clock.done()
            waiting = []
    speech_clock.begin(speech_clock.end)
    session.advance(waiting)
    session.finish()
    speech_clock.done()
    return speech_clock.end


def event_delays(
    session: LiveSession, events: Sequence[LiveEvent]
) -> tuple[list[float], list[float], list[float]]:
    """Return the delays of steps behind their words, behind their sentences and behind pictures."""
    behind_words = []
    behind_sentences = []
    behind_pictures = []
    for event in events:
        if event.event == "step_said":
            if event.said is not None:
                behind_words.append(event.at - event.said.end)
            if event.sources:
                sentence = session.log.sentences[max(event.sources)]
                behind_sentences.append(event.at - sentence.span.end)
        if event.event == "step_shown" and event.second is not None:
            behind_pictures.append(event.at - event.second)
    return behind_words, behind_sentences, behind_pictures


def words_of(record: Record) -> list[str]:
    """Return what is said, as plain words."""
    text = " ".join(sentence.text for sentence in record.sentences)
    return re.findall(r"[\w']+", text.lower())


def quantiles(values: list[float]) -> str:
    """Return median and 95th percentile in words."""
    if not values:
        return "-"
    return f"{np.median(values):.1f} / {np.quantile(values, 0.95):.1f}"


@dataclass
class WordCounts:
    """Words of the main job's transcript, of the live one, and those of both."""

    same: int = 0
    main_job: int = 0
    live: int = 0

    def add(self, main_job: Sequence[str], live: Sequence[str]) -> "WordCounts":
        """Count the words of a clip. Return its own counts."""
        matcher = difflib.SequenceMatcher(None, main_job, live, autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
        self.same += same
        self.main_job += len(main_job)
        self.live += len(live)
        return WordCounts(same, len(main_job), len(live))


def compare(clips: Path, cache: Path, names: list[str], lag: float) -> None:
    """Replay the clips, print a row each and the sums, and keep them."""
    truths = json.loads((clips / "labels.json").read_text())
    settings = StepsSettings()
    lives: list[Replay] = []
    words = WordCounts()
    live_totals: Counter[str] = Counter()
    main_totals: Counter[str] = Counter()
    main_records = records(clips, [f"{name}.mp4" for name in names], cache)
    titles = "steps behind; their sentences | CPU | main job's words heard, others | revised"
    print(f"clip, s | words behind, s | {titles}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            video = f"{name}.mp4"
            live = replay(clips / video, settings, Path(folder), lag)
            main_record = main_records[video]
            clip_words = words.add(words_of(main_record), words_of(live.record))
            print_clip(name, live, clip_words)
            live_totals += Counter(counts(truths[video], live.record))
            main_totals += Counter(counts(truths[video], main_record))
            lives.append(live)
    totals = {"live": dict(live_totals), "main job": dict(main_totals)}
    summary = summary_of(lives, words) | totals
    text = json.dumps(summary, indent=1)
    print(text)
    (RESULTS_FOLDER / "live.json").write_text(f"{text}\n")


def print_clip(name: str, live: Replay, words: WordCounts) -> None:
    """Print the row of a clip."""
    cpu = live.cpu / live.length / CORE_COUNT
    steps = f"{quantiles(live.steps)}; {quantiles(live.sentences)}"
    word_text = f"{words.same} of {words.main_job}, {words.live - words.same}"
    cells = [
        f"{name}, {live.length:.0f}",
        quantiles(live.words),
        steps,
        f"{cpu:.2f}",
        word_text,
        str(live.revised),
    ]
    print(" | ".join(cells), flush=True)


def summary_of(lives: Sequence[Replay], words: WordCounts) -> dict[str, object]:
    """Return what came of all clips."""

    def all_quantiles(delays: str) -> str:
        return quantiles([delay for live in lives for delay in getattr(live, delays)])

    length = sum(live.length for live in lives)
    cpu = sum(live.cpu for live in lives)
    return {
        "clips": len(lives),
        "seconds": round(length),
        "words behind, median / 95 %": all_quantiles("words"),
        "steps behind, median / 95 %": all_quantiles("steps"),
        "steps behind their sentence, median / 95 %": all_quantiles("sentences"),
        "shown behind, median / 95 %": all_quantiles("shown_steps"),
        "CPU of two cores": round(cpu / length / CORE_COUNT, 3),
        "words": [words.same, words.main_job, words.live],
        "steps told": sum(len(live.steps) for live in lives),
        "revised": sum(live.revised for live in lives),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--lag", type=float, default=2.0)
    options = parser.parse_args()
    truths = json.loads((options.clips / "labels.json").read_text())
    narrated = set()
    for name, truth in truths.items():
        if any(step.get("spoken") for step in truth["steps"]):
            narrated.add(Path(name).stem)
    names = options.only or sorted(narrated)
    compare(options.clips, options.cache, names, options.lag)


if __name__ == "__main__":
    main()
