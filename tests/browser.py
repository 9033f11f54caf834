"""Drives a headless Chromium over its DevTools pipe: no driver, no socket, no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-extensions --disable-default-apps "
    "--disable-component-extensions-with-background-pages "
    "--disable-features=Translate,OptimizationHints,MediaRouter "
    "--disable-dev-shm-usage --mute-audio --autoplay-policy=no-user-gesture-required "
    "--remote-debugging-pipe"
).split()
PATIENCE = 60.0  # s after which an unanswered command, or a state that never comes, is an error
# What Chromium answers for a page that is about to be another.
GOING = ("navigated or closed", "context was destroyed", "Cannot find context")
COMPLAINTS = ("error", "warning", "assert")
CHROMIUM = shutil.which("chromium")

CONTRAST = """(() => {
  const linear = (c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > .5) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const node of document.querySelectorAll("body *:not(script):not(svg *):not(option)")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".thumb, .visually-hidden")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) low.push(`${node.className}: ${node.textContent.trim().slice(0, 30)}`);
  }
  return low;
})()"""

UNNAMED = """[...document.querySelectorAll("button, a[href], input, select, video, dialog, .controls")]
  .filter((node) => !(node.getAttribute("aria-label") || document.getElementById(node.getAttribute("aria-labelledby"))
    || node.labels?.length || (!node.matches("dialog, .controls") && node.textContent.trim())))
  .map((node) => node.outerHTML.slice(0, 80))"""


class Browser:
    """A Chromium with a fresh profile; `open` gives a page in it."""

    def __init__(self, profile):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; the shell puts them there.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        chromium = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        options = {"pass_fds": (to_read, to_write), "start_new_session": True, **quiet}
        self._process = subprocess.Popen(["bash", "-c", script, "bash", *chromium], **options)
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._last, self._pages = b"", 0, {}
        self._idle_tabs = []  # of closed pages; a new tab costs as much as loading a page

    def open(self, path, *, width=1280, height=900, dark=False, scale=1):
        """Open a file, or an address, in a tab of its own and wait until it has loaded."""
        if self._idle_tabs:
            target = self._idle_tabs.pop()
            self.send("Target.activateTarget", targetId=target)
        else:
            target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.set_screen(width, height, scale=scale)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.send("Emulation.setEmulatedMedia", features=features)
        page.send("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        page.wait_until("document.readyState === 'complete'")
        return page

    def send(self, method, session=None, **parameters):
        """Send one command and return its result, noting the events that come before it."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._last:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            if reply.get("method") == "Page.javascriptDialogOpening":  # may this page be left?
                leave = {
                    "id": 0,
                    "method": "Page.handleJavaScriptDialog",
                    "params": {"accept": True},
                }
                leave["sessionId"] = reply["sessionId"]
                os.write(self._write, json.dumps(leave).encode() + b"\0")
            if "method" in reply and reply.get("sessionId") in self._pages:
                self._pages[reply["sessionId"]].events.append(reply)

    def _receive(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], PATIENCE)
            data = os.read(self._read, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def leave(self, session, target):
        """End the session of a tab, which may be used again."""
        self.send("Target.detachFromTarget", sessionId=session)
        del self._pages[session]
        self._idle_tabs.append(target)

    def close_pages(self):
        """Close all pages that are open."""
        for page in list(self._pages.values()):
            page.close()

    def close(self):
        """End this Chromium, and only this one."""
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._read)
        os.close(self._write)


class Page:
    """One tab: runs scripts, presses keys, and remembers what the console and the network said."""

    def __init__(self, browser, session, target):
        self._browser, self._session, self._target, self.events = browser, session, target, []

    def resize(self, width):
        """Show the page that is open on a screen of another width, and wait until it is laid out
        so."""
        self.set_screen(width)
        self.wait_until(f"matchMedia('(width: {width}px)').matches")

    def set_screen(self, width, height=900, *, scale=1):
        screen = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.send("Emulation.setDeviceMetricsOverride", **screen, mobile=width < 600)

    def close(self):
        """Leave the page, with all that this session set in its tab, which is used again."""
        self.send("Page.navigate", url="about:blank")
        self._browser.leave(self._session, self._target)

    def send(self, method, **parameters):
        return self._browser.send(method, self._session, **parameters)

    def run(self, expression):
        """Return the value of a JavaScript expression, in which $ is querySelector and $$ all that
        match, as in a console; a promise is awaited."""
        options = dict.fromkeys(("returnByValue", "awaitPromise", "includeCommandLineAPI"), True)
        reply = self.send("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def wait_until(self, expression):
        """Wait for a JavaScript expression to become true."""
        deadline = time.monotonic() + PATIENCE
        while not self._is_true(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)

    def _is_true(self, expression):
        """A page that leads to another may go while it is asked; the next one is asked then."""
        try:
            return self.run(f"Boolean({expression})")
        except AssertionError as error:
            if not any(reason in str(error) for reason in GOING):
                raise
            return False

    def click(self, selector):
        """Click with the mouse in the middle of the first element that matches, and wait until the
        page has handled it. An element that the page made again between press and release takes no
        click, so the new one is clicked."""
        for _ in range(3):
            x, y = self._middle(selector)
            # a click comes in the task of its pointerup, and what listens to it after this listener
            self.run(
                "{ window.clicked = null; let seen = false; const once = {capture: true, once: true}; "
                "window.addEventListener('click', () => { seen = true; }, once); window.addEventListener("
                "'pointerup', () => setTimeout(() => { window.clicked = seen; }), once); }"
            )
            for kind in ("mousePressed", "mouseReleased"):
                at = {"button": "left", "clickCount": 1, "x": x, "y": y}
                self.send("Input.dispatchMouseEvent", type=kind, **at)
            self.wait_until("window.clicked !== null")  # undefined where it led to another page
            if not self._is_true("window.clicked === false"):
                return
        raise AssertionError(f"no click reached {selector}")

    def _middle(self, selector):
        """The middle of the first element that matches, once it is in sight and stands still."""
        return self.run(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)}); let before = null; for (;;) {{ "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "const middle = [b.x + b.width / 2, b.y + b.height / 2]; if (String(middle) === before) return middle; "
            "before = String(middle); await new Promise((next) => setTimeout(next, 50)); "
            "await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next))); } })()"
        )

    def drag(self, selector, by, *, touch=False):
        """Take the middle of the first element that matches, with the mouse or a finger, `by`
        pixels to the right, and wait until the page has seen it end."""
        x, y = self._middle(selector)
        # a finger's events may come long after their answer
        self.run(
            "window.dragEnd = null; for (const kind of ['pointerup', 'pointercancel']) "
            "window.addEventListener(kind, (event) => { window.dragEnd = event.type; }, {capture: true, once: true})"
        )
        points = [(x + by * part / 4, y) for part in range(5)]
        kinds = (
            "touchStart touchMove touchEnd" if touch else "mousePressed mouseMoved mouseReleased"
        )
        kinds, pressed = kinds.split(), {"button": "left", "buttons": 1, "clickCount": 1}
        for number, (x, y) in enumerate([*points, points[-1]]):
            kind = kinds[0 if number == 0 else 2 if number == len(points) else 1]
            if touch:
                places = [{"x": x, "y": y}] if kind != "touchEnd" else []
                self.send("Input.dispatchTouchEvent", type=kind, touchPoints=places)
            else:
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)
        self.wait_until("window.dragEnd")
        assert self.run("window.dragEnd") == "pointerup"
        # what listens to the end comes after this listener
        self.run("new Promise((next) => setTimeout(next, 0))")

    def drop(self, *paths):
        """Drop files in the middle of the page."""
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.send("Input.dispatchDragEvent", type=kind, x=200, y=200, data=data)

    def type(self, text):
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def violations(self):
        """Return what axe, the checker of WCAG, finds serious or critical: (rule, element)."""
        from axe_core_python import base

        if not self.run("'axe' in globalThis"):
            source = Path(base.__file__).with_name("axe.min.js").read_text()
            self.send("Runtime.evaluate", expression=source)
        found = self.run(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)"
        )
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        return [(each["id"], node["html"][:200]) for each in serious for node in each["nodes"]]

    def press(self, key, code=0, text=None, modifiers=0):
        """Press and release a key, as a person does. modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        typed = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path, *, whole=True):
        """Save the page as a PNG."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self):
        """Return every console error, warning, violation of the policy, and uncaught exception."""
        self.run("0")
        found = []
        for event in self.events:
            method, parameters = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in COMPLAINTS:
                found.append(parameters)
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in COMPLAINTS:
                found.append(parameters["entry"])
        return found

    def unreadable(self):
        """Return what WCAG 2.1 AA does not allow: controls without a name, words of low contrast,
        ids given twice."""
        ids = self.run("[...document.querySelectorAll('[id]')].map((node) => node.id)")
        return [*self.run(UNNAMED), *self.run(CONTRAST), *{id for id in ids if ids.count(id) > 1}]

    def requests(self):
        """Return the address of everything that was asked for."""
        self.run("0")
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
