"""Make docs/pictures/*.webp from the page of the demo, in a headless Chromium: python
docs/pictures.py."""

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

import stepline

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser  # noqa: E402

DEMO = ROOT / "stepline" / "demo" / "demo.mp4"
LARGEST = 200_000  # bytes of a picture
SCREENS = {
    "page": {"width": 1280, "height": 860},
    "page_phone": {"width": 390, "height": 844, "dark": True, "scale": 1.5},
}


def make_pictures(folder: Path) -> None:
    """Write a picture of the demo's page for each screen, its player at the second step."""
    stepline.steps(DEMO, out=folder)
    browser = Browser(folder / "profile")
    for name, screen in SCREENS.items():
        page = browser.open(folder / "demo.html", **screen)
        page.send("Emulation.setScrollbarsHidden", hidden=True)
        page.run("document.getElementById('player').currentTime = 18")
        page.wait_until("!document.getElementById('player').seeking")
        time.sleep(3)  # the player has painted that second and taken its circle away
        shot = folder / f"{name}.png"
        page.screenshot(shot, whole=False)
        picture = io.BytesIO()
        Image.open(shot).convert("RGB").save(picture, "WEBP", quality=82, method=6)
        assert len(picture.getvalue()) < LARGEST, f"{name}: {len(picture.getvalue())} bytes"
        (ROOT / "docs" / "pictures" / f"{name}.webp").write_bytes(picture.getvalue())
    browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        make_pictures(Path(scratch))
