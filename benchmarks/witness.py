"""A vision-language model as evidence: what its answers are worth, by how true they are and how
many are asked.

    python benchmarks/witness.py --cache DIR --seeds 200 230
    python benchmarks/witness.py --clips CLIPS --records DIR

No model answers. A server does that knows the truth, that of drawn videos or of the labels of real
clips. It says the truth with reliability r. Else, and where it is of another kind, it errs.
Pictures are named by their seconds, nothing is decoded. DIR is the cache of
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
from grounding import FAR, away, rendered, seen

from research.drawn_videos import true_record
from research.vision_language.descriptions import ask_after_descriptions
from stepline.chat.pictures import PICTURE_LETTERS
from stepline.chat.servers import Answer, Content, Schema
from stepline.grounding.evidence import shot_slices
from stepline.grounding.ground import Grounding, ground
from stepline.records import Span, Step, Transcript
from stepline.storage import read_record
from stepline.text import embed
from stepline.text.visibility import predict_visibility
from stepline.vision.settings import VisionLanguageSettings
from stepline.vision_language import GroundedVideo, ask_about_steps
from stepline.vision_language.questions import NONE_ANSWER

RESULTS = Path(__file__).resolve().parent / "results"
BUDGETS = (5, 10, 20, 40)  # requests per video
RELIABILITIES = (1.0, 0.9, 0.7, 0.5, 0.0)
FAULTS = ("liar", "always A", "never none", "always none", "another step")
CURVE = (3, 5, 8, 12, 20, 40)  # requests per video at which ways to ask are compared
PART = 0.95  # of the gain of asking about every step apart that is enough
DRAWS = 1000  # bootstrap samples


@dataclass(frozen=True)
class Video:
    """A grounded video and its truth: step k of the grounding is step k of `truth`, with the spans
    that show it."""

    name: str
    duration: float
    cuts: tuple[float, ...]
    grounding: Grounding
    truth: tuple[Step, ...]
    slack: float = 0.0  # s by which the spans may be wrong

    def shows(self, step: int, second: float) -> bool:
        """Tell whether a step is shown in a second."""
        spans = self.truth[step].spans
        return any(span.start - self.slack <= second < span.end + self.slack for span in spans)


class TruthServer:
    """Answers questions about one video by its truth, with reliability r, or as a fault says.
    Always the same alike.

    A place shows a step where the second of its picture is in one of the step's spans.
    """

    workers = 4

    def __init__(self, video: Video, r: float, fault: str = "", seed: int = 0) -> None:
        self.name = f"truth {r} {fault}"
        self.video, self.r, self.fault, self.seed = video, r, fault, seed
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
        asked = re.findall(r"<step>(.*)</step>", question[0]["text"].split("\n\n")[1])
        urls = [part["image_url"]["url"] for part in question if part["type"] == "image_url"]
        seconds = [float(base64.b64decode(url.partition(",")[2])) for url in urls]
        said = {}
        for n, text in enumerate(asked, start=1):
            step = self.texts.index(text)
            rng = np.random.default_rng(
                zlib.crc32(f"{self.seed} {self.video.name} {step} {seconds}".encode())
            )
            said[str(n)] = {"after": "it is done", "shown": self._letter(step, seconds, rng)}
        return Answer(json.dumps(said))

    def _described(self, question: list[dict[str, Any]]) -> dict[str, str]:
        """Return the words of the step that each picture shows. Wrong ones are those of another
        step, or none."""
        urls = [part["image_url"]["url"] for part in question if part["type"] == "image_url"]
        said = {}
        for letter, url in zip(PICTURE_LETTERS, urls, strict=False):
            second = float(base64.b64decode(url.partition(",")[2]))
            rng = np.random.default_rng(
                zlib.crc32(f"{self.seed} {self.video.name} {second}".encode())
            )
            right = [text for k, text in enumerate(self.texts) if self.video.shows(k, second)] or [
                NONE_ANSWER
            ]
            wrong = [text for text in (*self.texts, NONE_ANSWER) if text not in right]
            lies = self.fault == "liar" or rng.random() >= self.r
            said[letter] = {"always A": self.texts[0], "always none": NONE_ANSWER}.get(
                self.fault, str(rng.choice(wrong if lies and wrong else right))
            )
        return said

    def _letter(self, step: int, seconds: Sequence[float], rng: np.random.Generator) -> str:
        right = self._right(step, seconds)
        options = [*PICTURE_LETTERS[: len(seconds)], NONE_ANSWER]
        wrong = [letter for letter in options if letter not in right]
        if self.fault == "always A":
            return "A"
        if self.fault == "always none":
            return NONE_ANSWER
        if self.fault == "never none":
            return str(rng.choice(options[:-1]))
        if self.fault == "another step":
            other = (step + 1 + int(rng.integers(max(1, len(self.texts) - 1)))) % len(self.texts)
            return str(rng.choice(self._right(other, seconds)))
        lies = self.fault == "liar" or rng.random() >= self.r
        return str(rng.choice(wrong if lies and wrong else right))

    def _right(self, step: int, seconds: Sequence[float]) -> list[str]:
        pictures = zip(PICTURE_LETTERS, seconds, strict=False)
        return [letter for letter, second in pictures if self.video.shows(step, second)] or [
            NONE_ANSWER
        ]

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Row:
    """What is said of one true step."""

    video: str
    shown: bool
    far: bool
    hit: bool
    verdict: bool


def rows(
    video: Video, server: TruthServer | None, budget: int, **settings: Any
) -> tuple[list[Row], int]:
    """Return what the steps of a video come out as with that many requests, and how many were
    sent."""
    steps, alignment, sent = video.grounding.steps, video.grounding.alignment, 0
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
        named = VisionLanguageSettings(
            base_url="http://truth", requests=budget, cache=False, **settings
        )
        answers = ask(grounded, named, server=server)
        steps, alignment, sent = (
            answers.steps,
            answers.alignment,
            int(str(answers.report["requests"])),
        )
    out = []
    for k, (step, row, true) in enumerate(zip(steps, alignment.scores, video.truth, strict=True)):
        hit, shown = video.shows(k, int(row.argmax()) + 0.5), bool(true.spans)
        far = shown and true.said is not None and away(true) >= FAR
        out.append(Row(video.name, shown, far, hit, (step.status in ("shown", "unclear")) == shown))
    return out, sent


def figures(found: Sequence[Row]) -> dict[str, Any]:
    shown, far = [r.hit for r in found if r.shown], [r.hit for r in found if r.far]
    return {
        "R@1": float(np.mean(shown)),
        "far": float(np.mean(far)) if far else None,
        "verdict": float(np.mean([r.verdict for r in found])),
    }


def gain(found: Sequence[Row], without: Sequence[Row]) -> list[float]:
    """Return how much R@1 rises over not asking, and its 95 % interval. Bootstrap over
    videos."""
    names = sorted({row.video for row in found})
    pairs = {
        name: [
            (a.hit, b.hit)
            for a, b in zip(found, without, strict=True)
            if a.video == name and a.shown
        ]
        for name in names
    }
    rng = np.random.default_rng(0)

    def mean(chosen: Sequence[str]) -> float:
        both = np.array([pair for name in chosen for pair in pairs[name]], dtype=float).reshape(
            -1, 2
        )
        return float((both[:, 0] - both[:, 1]).mean())

    draws = [mean(list(rng.choice(names, len(names)))) for _ in range(DRAWS)]
    return [round(x, 4) for x in (mean(names), *np.percentile(draws, [2.5, 97.5]).tolist())]


def table(videos: Sequence[Video], repeats: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a row a kind of server (only: these) and budget: figures, the gain in R@1 and requests
    sent a video."""
    without = [row for video in videos for row in rows(video, None, 0)[0]]
    out: list[dict[str, Any]] = [{"server": "nobody", "budget": 0, "sent": 0.0, **figures(without)}]
    kinds = [(f"r = {r:g}", r, "") for r in RELIABILITIES] + [
        (fault, 0.0, fault) for fault in FAULTS
    ]
    kinds += [
        (name, float(name.removeprefix("r = ")), "")
        for name in only
        if name not in [kind for kind, *_ in kinds]
    ]
    for name, r, fault in [kind for kind in kinds if not only or kind[0] in only]:
        for budget in BUDGETS:
            found, sent = [], 0
            for repeat in range(repeats):
                for video in videos:
                    of_video, used = rows(video, TruthServer(video, r, fault, repeat), budget)
                    found += of_video
                    sent += used
            told = {
                "server": name,
                "budget": budget,
                "sent": sent / len(videos) / repeats,
                **figures(found),
            }
            out.append(told | {"gain": gain(found, without * repeats)})
            print(markdown(out[-1:]), flush=True)
    return out


WAYS: dict[str, dict[str, Any]] = {
    "every step apart, again and again": {"steps": 1, "least_gain": 0.0},
    "the most valuable, 1 a request": {"steps": 1},
    "the most valuable, 3 a request": {"steps": 3},
    "the same after all places are described": {"steps": 3, "described": True},
}


def ways_to_ask(videos: Sequence[Video], r: float) -> list[dict[str, Any]]:
    """Return R@1 and requests sent a video of each way to spend a budget, and what reaches 95 % of
    the first's gain."""
    without = figures([row for video in videos for row in rows(video, None, 0)[0]])["R@1"]
    out: list[dict[str, Any]] = []
    for way, settings in WAYS.items():
        curve = []
        for budget in CURVE:
            tried = [rows(video, TruthServer(video, r), budget, **settings) for video in videos]
            hits = figures([row for found, _ in tried for row in found])["R@1"]
            curve.append((budget, hits, sum(sent for _, sent in tried) / len(videos)))
        wanted = without + PART * ((out[0]["curve"] if out else curve)[-1][1] - without)
        enough = next((sent for _, hits, sent in curve if hits >= wanted), None)
        out.append({"asked": way, "curve": curve, "enough": enough})
        cells = " | ".join(f"{hits:.3f} ({sent:.1f})" for _, hits, sent in curve)
        print(f"| {way} | {cells} | {'never' if enough is None else f'{enough:.1f}'} |", flush=True)
    return out


def markdown(table: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in table:
        change = "" if "gain" not in row else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*row["gain"])
        shown = " | ".join(
            f"{row[name]:.3f}" if row[name] is not None else ""
            for name in ("R@1", "far", "verdict")
        )
        lines.append(
            f"| {row['server']} | {row['budget']} | {row['sent']:.1f} | {shown} | {change} |"
        )
    return "\n".join(lines)


def drawn(seeds: range, cache: Path) -> list[Video]:
    """Return the drawn videos of these seeds, their true steps grounded by speech and pictures."""
    videos = []
    for seed in seeds:
        path, script = rendered(seed, cache)
        record = true_record(script)
        pictures = seen(path, [step.text for step in script.steps])
        found = ground(
            unplaced(record.reference),
            duration=script.duration,
            transcript=record.transcript,
            features=pictures.features,
            step_vectors=pictures.vectors,
            activity=pictures.activity,
            visible=[float(p) for p in predict_visibility(pictures.vectors)],
        )
        videos.append(
            Video(script.id, script.duration, pictures.activity.cuts, found, record.reference)
        )
    return videos


def real(clips: Path, records: Path) -> list[Video]:
    """Return the narrated clips, the labelled steps grounded from where the labels say that they
    are spoken."""
    from real_clips import pictures

    videos = []
    for name, truth in json.loads((clips / "labels.json").read_text()).items():
        stored = records / f"{Path(name).stem}.json"
        labels = [label for label in truth["steps"] if label.get("spoken")]
        if not labels or not stored.exists():
            continue
        looked = pictures(clips / name, records)
        steps = tuple(
            Step(
                id=str(k),
                text=f"{label['text']}",
                said=Span(*map(float, label["spoken"])),
                spans=tuple(Span(float(a), float(b)) for a, b in label.get("shown") or ()),
            )
            for k, label in enumerate(labels)
        )
        assert looked.activity is not None
        assert looked.cues is not None
        transcript = read_record(stored).transcript or Transcript()
        sentences = [sentence.text for sentence in transcript.sentences]
        found = ground(
            unplaced(steps),
            duration=looked.end,
            transcript=transcript,
            features=looked.features,
            step_vectors=embed([step.text for step in steps]),
            sentence_vectors=embed(sentences),
            activity=looked.activity,
            on_screen=looked.cues.lines,
        )
        videos.append(Video(name, looked.end, looked.activity.cuts, found, steps, slack=1.0))
    return videos


def unplaced(steps: Sequence[Step]) -> list[Step]:
    return [step.model_copy(update={"spans": (), "at": None, "status": None}) for step in steps]


def main() -> None:
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
        "--repeats", type=int, default=3, help="servers of each kind, each with errors of its own"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        help="kinds of servers, as 'r = 0.7', added to what is stored",
    )
    args = parser.parse_args()
    videos = real(args.clips, args.records) if args.clips else drawn(range(*args.seeds), args.cache)
    print(
        "| server | requests at most | sent | R@1 | far | verdict | R@1 gained |\n|---|---|---|---|---|---|---|"
    )
    steps = sum(len(video.truth) for video in videos)
    path = RESULTS / ("witness_real.json" if args.clips else "witness.json")
    measured = table(videos, args.repeats, args.only)
    if args.only:
        result = json.loads(path.read_text())
        result.setdefault("more servers", {}).update(
            {
                f"{name}, {args.repeats} servers": [
                    row for row in measured if row["server"] == name
                ]
                for name in args.only
            }
        )
    else:
        print(f"| asked (R@1 and requests sent, r = .9) | {' | '.join(map(str, CURVE))} | enough |")
        result = {
            "videos": len(videos),
            "steps": steps,
            "repeats": args.repeats,
            "table": measured,
            "ways": ways_to_ask(videos, 0.9),
        }
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
