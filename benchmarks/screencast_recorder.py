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

from research.drawn_videos.speech import RATE, choose_voice, synthesize_speech

APPS = Path(__file__).resolve().parent / "screencast_apps"
FRAME_RATE = 10
ANIMATED_SECONDS = 1.0  # after an act in which every frame is taken again
CURSOR_SECONDS = 0.8  # of its way to the next element
CURSOR_REST = 0.4  # s between its arrival and the click
LETTER_SECONDS = 0.1  # of each letter that is typed
BLOCK = 1024  # samples of sound that are encoded together
ARROW = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))  # px


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
    done: float | None
    box: list[float] = field(default_factory=list)  # left, top, right, bottom as fractions


def plan_acts(tour: list[dict[str, str]], take: Take) -> tuple[list[Act], float]:
    """Return what happens when, and how long it all takes."""
    rng = random.Random(f"{take.id} {take.seed}")
    voice = choose_voice(take.seed)
    acts, now = [], 1.5
    for row in tour:
        text = row.get("say") or row["talk"]
        length = len(synthesize_speech(text, voice)) / RATE
        if take.timing == "captions":
            length = 3.0
        typing = LETTER_SECONDS * len(row.get("type", ""))
        if "talk" in row:
            acts.append(Act(row, (now, now + length), None))
            now += length + rng.uniform(0.6, 1.5)
            continue
        start, done = now, now
        if take.timing == "ahead":
            done = start + length + rng.uniform(0.5, 3.0)
        elif take.timing == "after":
            start = done + typing + rng.uniform(0.5, 2.5)
        else:
            done = start + length * rng.uniform(0.4, 0.9)
        acts.append(Act(row, (start, start + length), done))
        now = max(start + length, done + typing) + rng.uniform(1.2, 3.5)
    return acts, now + 2.0


class Screen:
    """The page as a video sees it: its picture, with a cursor, a caption, or neither."""

    def __init__(self, page: Page, take: Take) -> None:
        self._page, self._take = page, take
        self._picture = self._shoot()
        self.cursor = np.array([0.6, 0.7])  # fractions of the picture
        self.caption = ""

    def _shoot(self) -> Image.Image:
        data = self._page.send("Page.captureScreenshot", format="png")["data"]
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")

    def frame(self, *, anew: bool) -> np.ndarray:
        """Return the picture (H, W, 3), taken again where something may have changed."""
        if anew:
            self._picture = self._shoot()
        picture = self._picture.copy()
        draw = ImageDraw.Draw(picture)
        if self._take.cursor:
            x, y = self.cursor * picture.size
            draw.polygon([(x + a, y + b) for a, b in ARROW], fill="black", outline="white")
        if self.caption:
            font = ImageFont.load_default(26)
            width, height = picture.size
            box = draw.textbbox((width / 2, height - 40), self.caption, font=font, anchor="mm")
            draw.rectangle((box[0] - 12, box[1] - 8, box[2] + 12, box[3] + 8), fill="black")
            draw.text((width / 2, height - 40), self.caption, "white", font=font, anchor="mm")
        return np.asarray(picture)


def record_screencast(take: Take, folder: Path, browser: Browser) -> Path:
    """Write the video and the truth of a take and return the video's path."""
    width, height = take.size
    address = f"{(APPS / f'{take.app}.html').as_uri()}?theme={take.theme}"
    window = {"width": round(width / take.zoom), "height": round(height / take.zoom)}
    page = browser.open(address, **window, scale=take.zoom)
    tour = json.loads(page.run("document.getElementById('tour').textContent"))
    acts, duration = plan_acts(tour[: take.rows], take)
    video = folder / f"{take.id}.mp4"
    with av.open(str(video), "w") as out:
        track = out.add_stream("h264", rate=FRAME_RATE, options={"crf": "24", "preset": "faster"})
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        track.gop_size = 5 * FRAME_RATE
        voice = (
            None if take.timing == "captions" else out.add_stream("aac", rate=RATE, layout="mono")
        )
        for number, image in enumerate(film(page, take, acts, duration)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FRAME_RATE)
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
        if voice is not None:
            encode_sound(out, voice, narration(acts, duration, take.seed))
    page.close()
    rows = [{**act.row, "words": act.words, "second": act.done, "box": act.box} for act in acts]
    truth = {"take": asdict(take), "duration": duration, "acts": rows}
    video.with_suffix(".json").write_text(json.dumps(truth, indent=1))
    return video


def film(page: Page, take: Take, acts: list[Act], duration: float) -> Any:
    """Yield the frames of a take, doing each act in its second."""
    screen, active = Screen(page, take), 0.0
    deeds = [act for act in acts if act.done is not None]
    keys: list[tuple[float, str]] = []  # letters that are still to be typed
    origin, spot = screen.cursor, screen.cursor
    waiting: Act | None = None
    for number in range(round(duration * FRAME_RATE)):
        now = number / FRAME_RATE
        if waiting is None and deeds and now >= deeds[0].done - CURSOR_SECONDS - CURSOR_REST:
            waiting = deeds.pop(0)
            waiting.box = element_box(page, waiting.row["at"], take)
            origin = screen.cursor
            left, top, right, bottom = waiting.box
            spot = np.array([(left + right) / 2, (top + bottom) / 2])
        if waiting is not None:
            share = (now - waiting.done + CURSOR_SECONDS + CURSOR_REST) / CURSOR_SECONDS
            smooth = np.clip(share, 0, 1) ** 2 * (3 - 2 * np.clip(share, 0, 1))
            screen.cursor = origin + (spot - origin) * smooth
            if take.cursor and 1.0 <= share < 1.0 + 1.5 / FRAME_RATE / CURSOR_SECONDS:
                mouse(page, "mouseMoved", spot, take)
                active = now + 0.2
            if now >= waiting.done:
                for kind in ("mousePressed", "mouseReleased"):
                    mouse(page, kind, spot, take)
                letters = waiting.row.get("type", "")
                keys += [(now + (n + 2) * LETTER_SECONDS, key) for n, key in enumerate(letters)]
                active, waiting = now + ANIMATED_SECONDS, None
        while keys and now >= keys[0][0]:
            page.type(keys.pop(0)[1])
            active = now + 0.3
        if number % (3 * FRAME_RATE) == 0:  # a toast may have gone
            active = max(active, now)
        if take.timing == "captions":
            words = [act for act in acts if act.words[0] <= now < act.words[1] + 0.5]
            screen.caption = (words[-1].row.get("say") or words[-1].row["talk"]) if words else ""
        yield screen.frame(anew=now <= active)


def element_box(page: Page, selector: str, take: Take) -> list[float]:
    """Return where an element is, as fractions of the picture."""
    script = (
        f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
        "return [b.left / innerWidth, b.top / innerHeight, b.right / innerWidth, b.bottom / innerHeight]; })()"
    )
    box: list[float] = page.run(script)
    assert box[2] > box[0], f"{take.id}: {selector} is not on the screen"
    return box


def mouse(page: Page, kind: str, spot: np.ndarray, take: Take) -> None:
    """Send what a mouse does at a place, in fractions of the picture."""
    x, y = spot * take.size / take.zoom
    button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
    page.send("Input.dispatchMouseEvent", type=kind, x=float(x), y=float(y), **button)


def narration(acts: list[Act], duration: float, seed: int) -> np.ndarray:
    """Return the voice of the whole video, (N,) float32 at RATE."""
    sound = np.zeros(round(duration * RATE), np.float32)
    voice = choose_voice(seed)
    for act in acts:
        words = synthesize_speech(act.row.get("say") or act.row["talk"], voice)
        start = round(act.words[0] * RATE)
        sound[start : start + len(words)] += words[: len(sound) - start]
    return np.clip(sound, -1, 1)


def encode_sound(out: Any, track: Any, sound: np.ndarray) -> None:
    """Write the sound, block by block."""
    for start in range(0, len(sound), BLOCK):
        block = np.ascontiguousarray(sound[None, start : start + BLOCK])
        frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, start, Fraction(1, RATE)
        out.mux(track.encode(frame))
    out.mux(track.encode(None))
