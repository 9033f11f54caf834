"""Made screencasts: small pages of screencast_apps/, used in a headless Chromium, recorded and narrated.

    record_screencast(Take(...), folder)     ID.mp4 and ID.json, the truth: what was clicked, and when

Each page holds its tour: what is said, and what is done at which element. A take says when the words
come: ahead of the act, on it, after it, or as captions typed on a silent screen. It also says how
large the window is and its contents are, its theme, and whether a cursor is seen. Needs Debian's
chromium and espeak-ng.
"""

import base64
import io
import json
import random
import sys
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from browser import Browser, Page

from lab.drawn_videos.speech import RATE, choose_voice, synthesize_speech

APP_FOLDER = Path(__file__).resolve().parent / "screencast_apps"
FRAME_RATE = 10
ANIMATED_SECONDS = 1.0  # after an act in which every frame is taken again
CURSOR_SECONDS = 0.8  # of its way to the next element
CURSOR_REST = 0.4  # s between its arrival and the click
LETTER_SECONDS = 0.1  # of each letter that is typed
BLOCK_SAMPLES = 1024  # samples of sound that are encoded together
ARROW_POINTS = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))  # px


@dataclass(frozen=True)
class Take:
    """One recording of an app. timing: "ahead", "on", "after" or "captions". zoom: of the page."""

    app: str
    timing: str
    theme: str = "light"
    zoom: float = 1.0
    size: tuple[int, int] = (1280, 720)
    cursor: bool = True
    seed: int = 0
    rows: int | None = None  # of the tour that are filmed; None: all

    @property
    def id(self) -> str:
        """What its files are called."""
        return f"{self.app}_{self.timing}"


@dataclass
class Act:
    """Something that is done or only said: when its words begin and end, when it is done."""

    row: dict[str, str]
    words: tuple[float, float]
    second: float | None
    box: list[float] = field(default_factory=list)  # left, top, right, bottom as fractions


def plan_acts(tour: list[dict[str, str]], take: Take) -> tuple[list[Act], float]:
    """Return what happens when, and how long it all takes."""
    rng = random.Random(f"{take.id} {take.seed}")
    voice = choose_voice(take.seed)
    acts = []
    now = 1.5
    for row in tour:
        length = len(synthesize_speech(spoken_text(row), voice)) / RATE
        if take.timing == "captions":
            length = 3.0
        typing = LETTER_SECONDS * len(row.get("type", ""))
        if "talk" in row:
            acts.append(Act(row, (now, now + length), None))
            now += length + rng.uniform(0.6, 1.5)
            continue
        start = now
        action = now
        if take.timing == "ahead":
            action = start + length + rng.uniform(0.5, 3.0)
        elif take.timing == "after":
            start = action + typing + rng.uniform(0.5, 2.5)
        else:
            action = start + length * rng.uniform(0.4, 0.9)
        acts.append(Act(row, (start, start + length), action))
        now = max(start + length, action + typing) + rng.uniform(1.2, 3.5)
    return acts, now + 2.0


def spoken_text(row: dict[str, str]) -> str:
    """Return what is said in a row of a tour."""
    return row.get("say") or row["talk"]


class Screen:
    """The page as a video sees it: its picture, with a cursor, a caption, or neither."""

    def __init__(self, page: Page, take: Take) -> None:
        self._page = page
        self._take = take
        self._picture = self._shoot()
        self.cursor = np.array([0.6, 0.7])  # fractions of the picture
        self.caption = ""

    def _shoot(self) -> Image.Image:
        data = self._page.send("Page.captureScreenshot", format="png")["data"]
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")

    def frame(self, *, changed: bool) -> np.ndarray:
        """Return the picture (H, W, 3), taken again where something may have changed."""
        if changed:
            self._picture = self._shoot()
        picture = self._picture.copy()
        draw = ImageDraw.Draw(picture)
        if self._take.cursor:
            tip_x, tip_y = self.cursor * picture.size
            arrow = [(tip_x + x, tip_y + y) for x, y in ARROW_POINTS]
            draw.polygon(arrow, fill="black", outline="white")
        if self.caption:
            self._draw_caption(draw, picture.size)
        return np.asarray(picture)

    def _draw_caption(self, draw: ImageDraw.ImageDraw, size: tuple[int, int]) -> None:
        font = ImageFont.load_default(26)
        center = (size[0] / 2, size[1] - 40)
        x1, y1, x2, y2 = draw.textbbox(center, self.caption, font=font, anchor="mm")
        draw.rectangle((x1 - 12, y1 - 8, x2 + 12, y2 + 8), fill="black")
        draw.text(center, self.caption, "white", font=font, anchor="mm")


def record_screencast(take: Take, folder: Path, browser: Browser) -> Path:
    """Write the video and the truth of a take and return the video's path."""
    page = open_app(take, browser)
    tour = json.loads(page.run("document.getElementById('tour').textContent"))
    acts, duration = plan_acts(tour[: take.rows], take)
    video = folder / f"{take.id}.mp4"
    with av.open(str(video), "w") as out:
        encoding = {"crf": "24", "preset": "faster"}
        track = out.add_stream("h264", rate=FRAME_RATE, options=encoding)
        track.width, track.height = take.size
        track.pix_fmt = "yuv420p"
        track.gop_size = 5 * FRAME_RATE
        voice = None
        if take.timing != "captions":
            voice = out.add_stream("aac", rate=RATE, layout="mono")
        for number, image in enumerate(film(page, take, acts, duration)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = number
            frame.time_base = Fraction(1, FRAME_RATE)
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
        if voice is not None:
            encode_sound(out, voice, narration(acts, duration, take.seed))
    page.close()
    rows = [{**act.row, "words": act.words, "second": act.second, "box": act.box} for act in acts]
    truth = {"take": asdict(take), "duration": duration, "acts": rows}
    video.with_suffix(".json").write_text(json.dumps(truth, indent=1))
    return video


def open_app(take: Take, browser: Browser) -> Page:
    """Open the app of a take in a window of its size."""
    width, height = take.size
    address = (APP_FOLDER / f"{take.app}.html").as_uri()
    return browser.open(
        f"{address}?theme={take.theme}",
        width=round(width / take.zoom),
        height=round(height / take.zoom),
        scale=take.zoom,
    )


def film(page: Page, take: Take, acts: list[Act], duration: float) -> Any:
    """Yield the frames of a take, doing each act in its second."""
    screen = Screen(page, take)
    hand = Hand(page, take, screen, [act for act in acts if act.second is not None])
    for number in range(round(duration * FRAME_RATE)):
        now = number / FRAME_RATE
        hand.move(now)
        hand.type_letters(now)
        if number % (3 * FRAME_RATE) == 0:  # a toast may have gone
            hand.changes_until = max(hand.changes_until, now)
        if take.timing == "captions":
            captions = [act for act in acts if act.words[0] <= now < act.words[1] + 0.5]
            screen.caption = spoken_text(captions[-1].row) if captions else ""
        yield screen.frame(changed=now <= hand.changes_until)


class Hand:
    """Moves the cursor to the element of each act, clicks there, and types.

    changes_until: the second up to which the page may still change.
    """

    def __init__(self, page: Page, take: Take, screen: Screen, acts: list[Act]) -> None:
        self._page = page
        self._take = take
        self._screen = screen
        self._acts = acts  # still to be done
        self._act: Act | None = None  # the one that the cursor moves to
        self._origin = screen.cursor
        self._target = screen.cursor
        self._letters: list[tuple[float, str]] = []  # still to be typed, with their seconds
        self.changes_until = 0.0

    def move(self, now: float) -> None:
        """Move the cursor on, and click where it has arrived and rested."""
        lead = CURSOR_SECONDS + CURSOR_REST
        if self._act is None and self._acts and now >= self._acts[0].second - lead:
            self._begin(self._acts.pop(0))
        if self._act is None:
            return
        share = (now - self._act.second + lead) / CURSOR_SECONDS
        part = np.clip(share, 0, 1)
        smooth = part**2 * (3 - 2 * part)
        self._screen.cursor = self._origin + (self._target - self._origin) * smooth
        has_just_arrived = 1.0 <= share < 1.0 + 1.5 / FRAME_RATE / CURSOR_SECONDS
        if self._take.cursor and has_just_arrived:
            mouse(self._page, "mouseMoved", self._target, self._take)
            self.changes_until = now + 0.2
        if now >= self._act.second:
            self._click(now)

    def type_letters(self, now: float) -> None:
        """Type the letters whose second has come."""
        while self._letters and now >= self._letters[0][0]:
            _, letter = self._letters.pop(0)
            self._page.type(letter)
            self.changes_until = now + 0.3

    def _begin(self, act: Act) -> None:
        act.box = element_box(self._page, act.row["at"], self._take)
        x1, y1, x2, y2 = act.box
        self._origin = self._screen.cursor
        self._target = np.array([(x1 + x2) / 2, (y1 + y2) / 2])
        self._act = act

    def _click(self, now: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            mouse(self._page, kind, self._target, self._take)
        for number, letter in enumerate(self._act.row.get("type", "")):
            self._letters.append((now + (number + 2) * LETTER_SECONDS, letter))
        self.changes_until = now + ANIMATED_SECONDS
        self._act = None


def element_box(page: Page, selector: str, take: Take) -> list[float]:
    """Return where an element is, as fractions of the picture."""
    element = f"document.querySelector({json.dumps(selector)})"
    script = f"""(() => {{
        const b = {element}.getBoundingClientRect();
        return [
            b.left / innerWidth, b.top / innerHeight, b.right / innerWidth, b.bottom / innerHeight
        ];
    }})()"""
    box: list[float] = page.run(script)
    assert box[2] > box[0], f"{take.id}: {selector} is not on the screen"
    return box


def mouse(page: Page, kind: str, position: np.ndarray, take: Take) -> None:
    """Send what a mouse does at a position, in fractions of the picture."""
    x, y = position * take.size / take.zoom
    button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
    page.send("Input.dispatchMouseEvent", type=kind, x=float(x), y=float(y), **button)


def narration(acts: list[Act], duration: float, seed: int) -> np.ndarray:
    """Return the voice of the whole video, (N,) float32 at RATE."""
    sound = np.zeros(round(duration * RATE), np.float32)
    voice = choose_voice(seed)
    for act in acts:
        words = synthesize_speech(spoken_text(act.row), voice)
        start = round(act.words[0] * RATE)
        sound[start : start + len(words)] += words[: len(sound) - start]
    return np.clip(sound, -1, 1)


def encode_sound(out: Any, track: Any, sound: np.ndarray) -> None:
    """Write the sound, block by block."""
    for start in range(0, len(sound), BLOCK_SAMPLES):
        block = np.ascontiguousarray(sound[None, start : start + BLOCK_SAMPLES])
        frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="mono")
        frame.sample_rate = RATE
        frame.pts = start
        frame.time_base = Fraction(1, RATE)
        out.mux(track.encode(frame))
    out.mux(track.encode(None))
