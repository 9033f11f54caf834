"""A vision-language model as evidence: the worth of its answers, by their truth and their number.

    python benchmarks/witness.py --cache DIR --seeds 200 230
    python benchmarks/witness.py --clips CLIPS --records DIR

No model answers, but a server that reads the truth of drawn videos or the labels of real clips. It
says the truth with reliability r. Else, and as a server of another kind, it errs. Pictures are
named by their seconds, nothing is decoded. DIR is the cache of
`benchmarks/grounding.py`, or that of `benchmarks/real_clips.py`. R@1, far and verdict as in
`benchmarks/grounding.py`. "shown" and "unclear" both count as shown. Intervals: bootstrap over
videos of the difference to not asking.
"""

import argparse
import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from grounding import MIN_FAR_SECONDS, away, rendered, seen

from research.drawn_videos import true_record
from research.vision_language.descriptions import ask_after_descriptions
from stepline.files.storage import read_record
from stepline.grounding.evidence import shot_slices
from stepline.grounding.ground import Grounding, ground
from stepline.grounding.vision_language import GroundedVideo, ask_about_steps
from stepline.grounding.vision_language.questions import NONE_ANSWER
from stepline.llm.pictures import PICTURE_LETTERS
from stepline.llm.servers import Answer, Content, Schema
from stepline.records import Span, Step, Transcript
from stepline.text import embed
from stepline.text.visibility import predict_visibility
from stepline.vision.settings import VisionLanguageSettings

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
REQUEST_BUDGETS = (5, 10, 20, 40)  # requests per video
SERVER_RELIABILITIES = (1.0, 0.9, 0.7, 0.5, 0.0)
SERVER_FAULTS = ("liar", "always A", "never none", "always none", "another step")
CURVE_BUDGETS = (3, 5, 8, 12, 20, 40)  # requests per video at which ways to ask are compared
ENOUGH_GAIN = 0.95  # of the gain of asking about every step apart
BOOTSTRAP_SAMPLES = 1000
TABLE_HEAD = (
    "| server | requests at most | sent | R@1 | far | verdict | R@1 gained |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Video:
    """A grounded video and its truth.

    Step k of the grounding is step k of `truth`, which has the spans that show it.
    """

    name: str
    duration: float
    cuts: tuple[float, ...]
    grounding: Grounding
    truth: tuple[Step, ...]
    slack: float = 0.0  # s by which the spans may be wrong

    def shows(self, step: int, second: float) -> bool:
        """Say whether a step is shown in a second."""
        spans = self.truth[step].spans
        return any(span.start - self.slack <= second < span.end + self.slack for span in spans)


class TruthServer:
    """Answers questions about one video by its truth, with reliability r, or as a fault says.

    Equal questions get equal answers. A picture shows a step if its second is in one of the step's
    spans.
    """

    workers = 4

    def __init__(self, video: Video, r: float, fault: str = "", seed: int = 0) -> None:
        self.name = f"truth {r} {fault}"
        self.video = video
        self.r = r
        self.fault = fault
        self.seed = seed
        self.texts = [step.text for step in video.truth]

    def ask(
        self,
        question: Content,
        *,
        seed: int,  # noqa: ARG002
        until: float,  # noqa: ARG002
        schema: Schema | None = None,  # noqa: ARG002
    ) -> Answer:
        """Return the reply to a question of `vision_language`."""
        assert not isinstance(question, str)
        if "<step>" not in question[0]["text"]:
            return Answer(json.dumps(self._described(question)))
        steps_part = question[0]["text"].split("\n\n")[1]
        texts = re.findall(r"<step>(.*)</step>", steps_part)
        seconds = _picture_seconds(question)
        answers = {}
        for number, text in enumerate(texts, start=1):
            step = self.texts.index(text)
            rng = self._rng(f"{step} {seconds}")
            letter = self._letter(step, seconds, rng)
            answers[str(number)] = {"after": "it is done", "shown": letter}
        return Answer(json.dumps(answers))

    def _rng(self, subject: str) -> np.random.Generator:
        """Return the random generator of one question."""
        text = f"{self.seed} {self.video.name} {subject}"
        return np.random.default_rng(zlib.crc32(text.encode()))

    def _described(self, question: list[dict[str, Any]]) -> dict[str, str]:
        """Return the words of the step that each picture shows.

        Wrong words are those of another step, or none.
        """
        answers = {}
        for letter, second in zip(PICTURE_LETTERS, _picture_seconds(question), strict=False):
            rng = self._rng(str(second))
            right = [text for k, text in enumerate(self.texts) if self.video.shows(k, second)]
            answer = self._right_or_wrong(right, [*self.texts, NONE_ANSWER], rng)
            if self.fault == "always A":
                answer = self.texts[0]
            elif self.fault == "always none":
                answer = NONE_ANSWER
            answers[letter] = answer
        return answers

    def _right_or_wrong(
        self, right: Sequence[str], options: Sequence[str], rng: np.random.Generator
    ) -> str:
        """Return a right answer with reliability r, else a wrong one where there is one."""
        right = right or [NONE_ANSWER]
        wrong = [option for option in options if option not in right]
        lies = self.fault == "liar" or rng.random() >= self.r
        return str(rng.choice(wrong if lies and wrong else right))

    def _letter(self, step: int, seconds: Sequence[float], rng: np.random.Generator) -> str:
        options = [*PICTURE_LETTERS[: len(seconds)], NONE_ANSWER]
        if self.fault == "always A":
            return "A"
        if self.fault == "always none":
            return NONE_ANSWER
        if self.fault == "never none":
            return str(rng.choice(options[:-1]))
        if self.fault == "another step":
            count = len(self.texts)
            other = (step + 1 + int(rng.integers(max(1, count - 1)))) % count
            return str(rng.choice(self._right(other, seconds)))
        return self._right_or_wrong(self._right(step, seconds), options, rng)

    def _right(self, step: int, seconds: Sequence[float]) -> list[str]:
        """Return the letters of the pictures that show a step, or "none" alone."""
        pictures = zip(PICTURE_LETTERS, seconds, strict=False)
        letters = [letter for letter, second in pictures if self.video.shows(step, second)]
        return letters or [NONE_ANSWER]

    def close(self) -> None:
        """Nothing is open."""


def _picture_seconds(question: list[dict[str, Any]]) -> list[float]:
    """Return the seconds of a question's pictures, which are their content."""
    seconds = []
    for part in question:
        if part["type"] == "image_url":
            _, _, content = part["image_url"]["url"].partition(",")
            seconds.append(float(base64.b64decode(content)))
    return seconds


@dataclass(frozen=True)
class Row:
    """The result of one true step."""

    video: str
    is_shown: bool
    is_far: bool
    is_hit: bool
    right_verdict: bool


def rows(
    video: Video, server: TruthServer | None, budget: int, **settings: Any
) -> tuple[list[Row], int]:
    """Return the results of a video's steps with that many requests, and how many were sent."""
    steps = video.grounding.steps
    alignment = video.grounding.alignment
    sent = 0
    # with a server, the grounding after its answers
    if server is not None:
        described = settings.pop("described", False)
        ask = ask_after_descriptions if described else ask_about_steps
        grounded = GroundedVideo(
            steps,
            alignment,
            shot_slices(video.cuts, alignment.scores.shape[1]),
            lambda seconds: {second: str(second).encode() for second in seconds},
            video.duration,
        )
        own_settings = VisionLanguageSettings(
            base_url="http://truth", requests=budget, cache=False, **settings
        )
        answers = ask(grounded, own_settings, server=server)
        steps = answers.steps
        alignment = answers.alignment
        sent = int(str(answers.report["requests"]))

    results = []
    for k, (step, scores, true) in enumerate(
        zip(steps, alignment.scores, video.truth, strict=True)
    ):
        is_shown = bool(true.spans)
        says_shown = step.status in ("shown", "unclear")
        row = Row(
            video.name,
            is_shown=is_shown,
            is_far=is_shown and true.said is not None and away(true) >= MIN_FAR_SECONDS,
            is_hit=video.shows(k, int(scores.argmax()) + 0.5),
            right_verdict=says_shown == is_shown,
        )
        results.append(row)
    return results, sent


def rows_without_server(videos: Sequence[Video]) -> list[Row]:
    """Return the results of all videos' steps where no server is asked."""
    results: list[Row] = []
    for video in videos:
        own, _ = rows(video, None, 0)
        results += own
    return results


def figures(results: Sequence[Row]) -> dict[str, Any]:
    """Return R@1, R@1 of the far steps (None without one), and the share of right verdicts."""
    shown_hits = [row.is_hit for row in results if row.is_shown]
    far_hits = [row.is_hit for row in results if row.is_far]
    return {
        "R@1": float(np.mean(shown_hits)),
        "far": float(np.mean(far_hits)) if far_hits else None,
        "verdict": float(np.mean([row.right_verdict for row in results])),
    }


def gain(results: Sequence[Row], without: Sequence[Row]) -> list[float]:
    """Return how much R@1 rises over not asking, and its 95 % bootstrap interval over videos."""
    pairs: dict[str, list[tuple[bool, bool]]] = {row.video: [] for row in results}
    for row, row_without in zip(results, without, strict=True):
        if row.is_shown:
            pairs[row.video].append((row.is_hit, row_without.is_hit))
    names = sorted(pairs)
    rng = np.random.default_rng(0)

    def mean_gain(videos: Sequence[str]) -> float:
        hits = [pair for name in videos for pair in pairs[name]]
        columns = np.array(hits, dtype=float).reshape(-1, 2)
        return float((columns[:, 0] - columns[:, 1]).mean())

    gains = []
    for _ in range(BOOTSTRAP_SAMPLES):
        gains.append(mean_gain(list(rng.choice(names, len(names)))))
    low, high = np.percentile(gains, [2.5, 97.5]).tolist()
    return [round(value, 4) for value in (mean_gain(names), low, high)]


def server_kinds(only: Sequence[str]) -> list[tuple[str, float, str]]:
    """Return the name, reliability and fault of the servers to measure, of all without `only`."""
    kinds = [(f"r = {r:g}", r, "") for r in SERVER_RELIABILITIES]
    kinds += [(fault, 0.0, fault) for fault in SERVER_FAULTS]
    names = {name for name, _, _ in kinds}
    for name in only:
        if name not in names:
            kinds.append((name, float(name.removeprefix("r = ")), ""))
    return [kind for kind in kinds if not only or kind[0] in only]


def table(videos: Sequence[Video], repeats: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return one row per kind of server (only: these) and budget.

    A row has the figures, the gain in R@1 and the requests sent per video.
    """
    without = rows_without_server(videos)
    head = {"server": "nobody", "budget": 0, "sent": 0.0}
    table_rows: list[dict[str, Any]] = [{**head, **figures(without)}]
    # several servers of a kind, each with its own errors
    for name, r, fault in server_kinds(only):
        for budget in REQUEST_BUDGETS:
            results: list[Row] = []
            sent = 0
            for repeat in range(repeats):
                for video in videos:
                    server = TruthServer(video, r, fault, repeat)
                    video_rows, video_sent = rows(video, server, budget)
                    results += video_rows
                    sent += video_sent
            row = {
                "server": name,
                "budget": budget,
                "sent": sent / len(videos) / repeats,
                **figures(results),
                "gain": gain(results, without * repeats),
            }
            table_rows.append(row)
            print(markdown([row]), flush=True)
    return table_rows


# Settings of `VisionLanguageSettings`, and whether all places are described first.
WAYS_TO_ASK: dict[str, dict[str, Any]] = {
    "every step apart, again and again": {"steps": 1, "least_gain": 0.0},
    "the most valuable, 1 a request": {"steps": 1},
    "the most valuable, 3 a request": {"steps": 3},
    "the same after all places are described": {"steps": 3, "described": True},
}


def ways_to_ask(videos: Sequence[Video], r: float) -> list[dict[str, Any]]:
    """Return R@1 and requests sent per video of each way to spend a budget.

    enough: the requests that reach 95 % of the first way's gain, None where none do.
    """
    without = figures(rows_without_server(videos))["R@1"]
    ways: list[dict[str, Any]] = []
    target = 0.0
    for way, settings in WAYS_TO_ASK.items():
        curve = []
        for budget in CURVE_BUDGETS:
            results: list[Row] = []
            sent = 0
            for video in videos:
                video_rows, video_sent = rows(video, TruthServer(video, r), budget, **settings)
                results += video_rows
                sent += video_sent
            curve.append((budget, figures(results)["R@1"], sent / len(videos)))

        # the first way, with the largest budget, is what the others are compared with
        if not ways:
            _, best_recall, _ = curve[-1]
            target = without + ENOUGH_GAIN * (best_recall - without)
        enough = next((sent for _, recall, sent in curve if recall >= target), None)
        ways.append({"asked": way, "curve": curve, "enough": enough})
        cells = " | ".join(f"{recall:.3f} ({sent:.1f})" for _, recall, sent in curve)
        enough_cell = "never" if enough is None else f"{enough:.1f}"
        print(f"| {way} | {cells} | {enough_cell} |", flush=True)
    return ways


def markdown(table: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in table:
        cells = [row["server"], str(row["budget"]), f"{row['sent']:.1f}"]
        for name in ("R@1", "far", "verdict"):
            cells.append("" if row[name] is None else f"{row[name]:.3f}")
        change = ""
        if "gain" in row:
            mean, low, high = row["gain"]
            change = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        lines.append("| " + " | ".join([*cells, change]) + " |")
    return "\n".join(lines)


def drawn(seeds: range, cache: Path) -> list[Video]:
    """Return the drawn videos of these seeds, their true steps grounded by speech and pictures."""
    videos = []
    for seed in seeds:
        path, script = rendered(seed, cache)
        record = true_record(script)
        pictures = seen(path, [step.text for step in script.steps])
        grounding = ground(
            unplaced(record.reference),
            duration=script.duration,
            transcript=record.transcript,
            features=pictures.features,
            step_vectors=pictures.vectors,
            activity=pictures.activity,
            visible=[float(p) for p in predict_visibility(pictures.vectors)],
        )
        cuts = pictures.activity.cuts
        videos.append(Video(script.id, script.duration, cuts, grounding, record.reference))
    return videos


def real(clips: Path, records: Path) -> list[Video]:
    """Return the narrated clips, their labelled steps grounded from the labelled spoken spans."""
    from real_clips import pictures

    videos = []
    for name, truth in json.loads((clips / "labels.json").read_text()).items():
        record_path = records / f"{Path(name).stem}.json"
        labels = [label for label in truth["steps"] if label.get("spoken")]
        if not labels or not record_path.exists():
            continue
        # the clip's cached cues and features
        clip = pictures(clips / name, records)
        assert clip.activity is not None
        assert clip.cues is not None
        steps = tuple(_labelled_step(k, label) for k, label in enumerate(labels))
        transcript = read_record(record_path).transcript or Transcript()
        sentences = [sentence.text for sentence in transcript.sentences]
        grounding = ground(
            unplaced(steps),
            duration=clip.end,
            transcript=transcript,
            features=clip.features,
            step_vectors=embed([step.text for step in steps]),
            sentence_vectors=embed(sentences),
            activity=clip.activity,
            on_screen=clip.cues.lines,
        )
        videos.append(Video(name, clip.end, clip.activity.cuts, grounding, steps, slack=1.0))
    return videos


def _labelled_step(number: int, label: dict[str, Any]) -> Step:
    start, end = label["spoken"]
    shown_spans = [Span(float(a), float(b)) for a, b in label.get("shown") or ()]
    return Step(
        id=str(number),
        text=f"{label['text']}",
        said=Span(float(start), float(end)),
        spans=tuple(shown_spans),
    )


def unplaced(steps: Sequence[Step]) -> list[Step]:
    return [step.model_copy(update={"spans": (), "at": None, "status": None}) for step in steps]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="folder of rendered videos, filled as needed")
    parser.add_argument(
        "--seeds", type=int, nargs=2, default=(200, 230), help="first seed, and one past the last"
    )
    parser.add_argument(
        "--clips", type=Path, help="folder of real clips and their labels, instead of drawn videos"
    )
    parser.add_argument("--records", type=Path, help="caches of those clips")
    parser.add_argument(
        "--repeats", type=int, default=3, help="servers of each kind, each with its own errors"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        help="kinds of servers, as 'r = 0.7', added to what is stored",
    )
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.clips:
        videos = real(args.clips, args.records)
        path = RESULTS_FOLDER / "witness_real.json"
    else:
        videos = drawn(range(*args.seeds), args.cache)
        path = RESULTS_FOLDER / "witness.json"
    print(TABLE_HEAD)
    table_rows = table(videos, args.repeats, args.only)

    # some servers are added to the result that is stored
    if args.only:
        result = json.loads(path.read_text())
        more = result.setdefault("more servers", {})
        for name in args.only:
            own = [row for row in table_rows if row["server"] == name]
            more[f"{name}, {args.repeats} servers"] = own
    else:
        budgets = " | ".join(map(str, CURVE_BUDGETS))
        print(f"| asked (R@1 and requests sent, r = .9) | {budgets} | enough |")
        result = {
            "videos": len(videos),
            "steps": sum(len(video.truth) for video in videos),
            "repeats": args.repeats,
            "table": table_rows,
            "ways": ways_to_ask(videos, 0.9),
        }
    RESULTS_FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
