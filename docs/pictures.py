"""Make docs/pictures/*.webp from the page of the demo and the studio, in a headless Chromium: python
docs/pictures.py."""

import io
import sys
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image

import stepline
from stepline.studio.server import StudioServer
from stepline.studio.store import Studio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser, Page  # noqa: E402

DEMO = ROOT / "stepline" / "cli" / "demo" / "demo.mp4"
MAX_BYTES = 150_000  # of a picture


def make_pictures(folder: Path) -> None:
    """Write pictures of the demo's page, of the studio's library and of its review of the demo."""
    stepline.steps(DEMO, out=folder)
    browser = Browser(folder / "profile")
    page = browser.open(folder / "demo.html", width=1280, height=860)
    page.run("document.getElementById('player').currentTime = 18")
    page.wait_until("!document.getElementById('player').seeking")
    save_picture(page, "page", folder)
    studio = Studio(folder, [DEMO.parent])
    server = StudioServer(studio, at_once=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    browser.open(server.link)  # which lets the browser in
    page = browser.open(server.address, width=1280, height=860)
    page.wait_until("document.querySelector('.card img[src]')")
    save_picture(page, "studio", folder)
    page = browser.open(page.run("document.querySelector('.card a').href"), width=1280, height=860)
    page.wait_until("document.querySelectorAll('#list .step').length > 3")
    page.wait_until("document.getElementById('player').readyState > 1")
    save_picture(page, "review", folder)
    server.stop()
    thread.join()
    studio.close()
    browser.close()


def save_picture(page: Page, name: str, folder: Path) -> None:
    """Write what a page shows into docs/pictures."""
    page.send("Emulation.setScrollbarsHidden", hidden=True)
    time.sleep(3)  # the player has painted that second and taken its circle away
    shot = folder / f"{name}.png"
    page.screenshot(shot, whole=False)
    picture = io.BytesIO()
    Image.open(shot).convert("RGB").save(picture, "WEBP", quality=82, method=6)
    assert len(picture.getvalue()) < MAX_BYTES, f"{name}: {len(picture.getvalue())} bytes"
    (ROOT / "docs" / "pictures" / f"{name}.webp").write_bytes(picture.getvalue())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        make_pictures(Path(scratch))
